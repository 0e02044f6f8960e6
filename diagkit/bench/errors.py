"""What the bench refuses."""

from diagkit.term import DiagkitError


class KernelError(DiagkitError):
    """A kernel that has not earned what is asked of it, or a rival that cannot take its place."""
