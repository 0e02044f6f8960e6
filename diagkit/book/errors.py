"""The error of this room."""

from __future__ import annotations

from diagkit.term import DiagkitError


class BookError(DiagkitError):
    """A record that says nothing, a notebook that cannot be read, a claim that is none."""
