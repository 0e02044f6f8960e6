"""Kernels at work: checked against float64, counted by themselves, timed beside their rivals."""

from diagkit.bench.check import Check
from diagkit.bench.count import Counted
from diagkit.bench.errors import KernelError
from diagkit.bench.kernel import Kernel
from diagkit.bench.measure import Compared, Measured, Times

__all__ = ["Check", "Compared", "Counted", "Kernel", "KernelError", "Measured", "Times"]
