"""Streams that must come out of the algebra: what they carry, and that any split gives the whole."""

from itertools import pairwise

import numpy as np
import pytest
from derive_cases import FORMS, arrays_for
from fold import Fold

from diagkit import ops
from diagkit.derive import fuse, stream


def streamed(name, **options):
    """One of the shared cases, fused and streamed along its axis, with arrays of awkward sizes."""
    made, axis, more = FORMS[name]
    plain = made()
    return stream(fuse(plain), **{**more, **options, axis: f"s_{axis}"}), plain


def fold_of(flash, sizes, arrays):
    return Fold(flash, flash.forms[0], arrays, sizes)


def outputs(value, term):
    return value if isinstance(value, dict) else {term.outputs[0]: value}


def close(found, wanted):
    for name, value in wanted.items():
        scale = max(1.0, float(np.max(np.abs(value[np.isfinite(value)]), initial=0.0)))
        np.testing.assert_allclose(found[name], value, rtol=1e-10, atol=1e-11 * scale, err_msg=name)


@pytest.mark.parametrize("name", FORMS)
def test_any_split_and_any_merge_tree_gives_the_whole(name):
    flash, plain = streamed(name)
    axis = flash.forms[0].axis
    rng = np.random.default_rng(len(name))
    for length in (0, 1, 7, 12):
        sizes, arrays = arrays_for(plain, axis, length, rng)
        whole = outputs(ops.reference(plain, arrays), plain)
        fold = fold_of(flash, sizes, arrays)
        for _ in range(2 if length < 2 else 25):
            cuts = [0, *sorted(map(int, rng.integers(0, length + 1, size=rng.integers(0, 5)))), length]
            close(fold.finish(fold.fold(cuts)), whole)
            close(fold.finish(_tree(fold, cuts, rng)), whole)


def _tree(fold, cuts, rng):
    """Partial states of the chunks, merged two neighbours at a time in random order."""
    parts = [fold.fold(cut) for cut in pairwise(cuts)]
    while len(parts) > 1:
        place = int(rng.integers(0, len(parts) - 1))
        parts[place : place + 2] = [fold.merge(*parts[place : place + 2])]
    return parts[0]
