"""Hardware facts from data/: machines with a source for every number, the machine at hand, recorded inputs.

Time, energy and schedule models take a `Machine` as an argument; nothing here guesses a number.
"""

from diagkit.machine.activations import activations, recorded_numbers, tokens
from diagkit.machine.anchors import Anchor, Comparison, additive_rate, anchors, compare
from diagkit.machine.facts import GRADES, Machine, MachineError, Number
from diagkit.machine.files import data_path, load, names
from diagkit.machine.measured import cores, here, measure_here, processor
from diagkit.machine.times import Times, times
from diagkit.machine.warpgroups import Pipeline, pipeline, softmax_time

__all__ = [
    "GRADES", "Anchor", "Comparison", "Machine", "MachineError", "Number", "Pipeline", "Times", "activations",
    "additive_rate", "anchors", "compare", "cores", "data_path", "here", "load", "measure_here", "names",
    "pipeline", "processor", "recorded_numbers", "softmax_time", "times", "tokens",
]  # fmt: skip
