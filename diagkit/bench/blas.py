"""One thread for the BLAS that numba calls, while workers call it side by side.

numba's np.dot runs the BLAS that scipy ships. Its own threads would fight with the workers, so it gets
one while a kernel runs, and its threads back afterwards.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

_PREFIXES = ("scipy_openblas", "openblas")
_SUFFIXES = ("", "64_")


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Inside, scipy's OpenBLAS runs on the thread that calls it; other libraries need no such care."""
    control = _control()
    before = control[0]() if control else 1
    if control and before != 1:
        control[1](1)
    try:
        yield
    finally:
        if control and before != 1:
            control[1](before)


@lru_cache(maxsize=1)
def _control() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """How to read and set the number of threads, where scipy ships an OpenBLAS."""
    import scipy.linalg.cython_blas  # loads the library

    package = Path(scipy.__file__).parent
    places = (package.parent / "scipy.libs", package / ".libs", package / ".dylibs")
    for file in sorted(file for place in places if place.is_dir() for file in place.iterdir()):
        if "openblas" in file.name:
            return _functions(ctypes.CDLL(str(file)))
    return None


def _functions(library: Any) -> tuple[Callable[[], int], Callable[[int], None]] | None:
    for prefix in _PREFIXES:
        for suffix in _SUFFIXES:
            read = getattr(library, f"{prefix}_get_num_threads{suffix}", None)
            write = getattr(library, f"{prefix}_set_num_threads{suffix}", None)
            if read and write:
                return read, write
    return None
