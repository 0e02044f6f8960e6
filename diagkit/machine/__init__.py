"""Hardware facts from data/: machines with a source for every number, the machine at hand, recorded inputs.

Time, energy and schedule models take a `Machine` as an argument; nothing here guesses a number.
"""

from diagkit.machine.activations import activations, recorded_numbers, tokens
from diagkit.machine.facts import GRADES, Machine, MachineError, Number
from diagkit.machine.files import data_path, load, names
from diagkit.machine.measured import here, measure_here

__all__ = [
    "GRADES", "Machine", "MachineError", "Number", "activations", "data_path", "here", "load", "measure_here", "names",
    "recorded_numbers", "tokens",
]  # fmt: skip
