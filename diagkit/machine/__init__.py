"""Hardware facts from data/: machines with a source for every number, the machine at hand, recorded inputs.

Time, energy and schedule models take a `Machine` as an argument; nothing here guesses a number.
"""

from diagkit.machine.activations import activations, recorded_numbers, tokens
from diagkit.machine.additive import (
    ASSUMPTIONS,
    Assumption,
    Case,
    additive_rate,
    balanced_d,
    case_clocks,
    case_rate,
    gains,
)
from diagkit.machine.anchors import Anchor, Comparison, anchors, compare
from diagkit.machine.energy import Energy, energy
from diagkit.machine.facts import GRADES, Machine, MachineError, Number
from diagkit.machine.files import data_path, load, names
from diagkit.machine.implementations import IMPLEMENTATIONS, Implementation, implementation
from diagkit.machine.measured import cores, here, measure_here, processor
from diagkit.machine.show import Sheet, aligned
from diagkit.machine.times import Times, resource_rate, times
from diagkit.machine.warpgroups import UNITS as PIPELINE_UNITS
from diagkit.machine.warpgroups import Pipeline, Slot, pipeline, softmax_time

__all__ = [
    "ASSUMPTIONS", "GRADES", "IMPLEMENTATIONS", "PIPELINE_UNITS", "Anchor", "Assumption", "Case", "Comparison",
    "Energy", "Implementation", "Machine", "MachineError", "Number", "Pipeline", "Sheet", "Slot", "Times",
    "activations", "additive_rate", "aligned", "anchors", "balanced_d", "case_clocks", "case_rate", "compare", "cores",
    "data_path", "energy", "gains", "here", "implementation", "load", "measure_here", "names", "pipeline",
    "processor", "recorded_numbers", "resource_rate", "softmax_time", "times", "tokens",
]  # fmt: skip
