"""Kernels at work: checked against float64, counted by themselves, timed beside their rivals."""

from diagkit.bench.check import Check
from diagkit.bench.count import Counted
from diagkit.bench.errors import KernelError
from diagkit.bench.inspect import Inspection
from diagkit.bench.kernel import Kernel
from diagkit.bench.landscape import Landscape
from diagkit.bench.measure import Compared, Measured, Times
from diagkit.bench.recorded import Recorded, recorded
from diagkit.bench.show import Shown, seconds

__all__ = [
    "Check", "Compared", "Counted", "Inspection", "Kernel", "KernelError", "Landscape", "Measured", "Recorded",
    "Shown", "Times", "recorded", "seconds",
]  # fmt: skip
