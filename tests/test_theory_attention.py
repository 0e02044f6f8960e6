"""The tables of attention, row by row where no other test has them."""

import derive_cases
import sympy

from diagkit.cost import transfers
from diagkit.derive import fuse, group, stream
from diagkit.term import size

q, x, d, e, g = map(size, ("q", "x", "d", "e", "g_q"))


def flash():
    return stream(group(fuse(derive_cases.attention()), q="g_q"), x="s_x")


def test_bytes_of_mixed_formats():
    """Attention: q (d b_Q + e b_O) + (q / g_q) x (d b_K + e b_V), in bytes."""
    mixed = transfers(flash()).bytes({"Q": "bf16", "K": "fp8e4m3", "V": "int4", "O": "fp32"})
    expected = q * (2 * d + 4 * e) + q * x / g * (d + e / 2)
    assert sympy.expand(mixed.relaxed().total() - expected) == 0
