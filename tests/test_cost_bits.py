"""The quantization law: the gains of the theory sheet, derived from diagrams; and against brute force."""

from __future__ import annotations

import pytest
import sympy
from examples import attention, matmul

from diagkit import cost
from diagkit.cost.exact import evaluate
from diagkit.term import DiagkitError, FormatError, InputError, size

FLASH = attention().fuse().group(q="g_q").stream(x="s_x")
TILED = matmul().group(a="g_a", c="g_c").stream(b="s_b")


def b(name):
    return size(f"b_{name}")


def test_attention_pays_for_what_moves_and_for_what_stays():
    q, x, d, memory = (size(name) for name in ("q", "x", "d", "M"))
    wanted = q * x * d**2 * (b("K") + b("V")) * (b("Q") + b("O_acc")) / memory
    assert sympy.expand(FLASH.bits().ruling - wanted) == 0
    assert sympy.expand(FLASH.bits().transfers - wanted - q * d * (b("Q") + b("O"))) == 0


def test_matmul_pays_with_the_root_of_all_three():
    a, inner, c, memory = (size(name) for name in ("a", "b", "c", "M"))
    wanted = 2 * a * inner * c * sympy.sqrt(b("A") * b("B") * b("C_acc") / memory)
    assert sympy.simplify(TILED.bits().ruling / wanted) == 1


@pytest.mark.parametrize(
    ("formats", "gain"),
    [
        ({"dtype": "fp8e4m3"}, 2.4),
        ({"K": "fp8e4m3", "V": "fp8e4m3"}, 2.0),
        ({"K": "int4", "V": "int4"}, 4.0),
        ({"dtype": "fp8e4m3", "accumulators": "fp16"}, 4.0),
        ({"dtype": "fp8e4m3", "base_accumulators": "fp16", "accumulators": "fp8e4m3"}, 4.0),
        ({"K": 1 + 1 / 32, "V": 1 + 1 / 32}, 64 / 33),
    ],
)
def test_gains_of_attention(formats, gain):
    assert float(FLASH.bits().gain(**formats)) == pytest.approx(gain)


def test_gains_of_matmul():
    assert TILED.bits().gain("fp8e4m3") == 2
    strict = TILED.bits().gain("fp8e4m3", base_accumulators="fp16", accumulators="fp8e4m3")
    assert float(strict) == pytest.approx(2**1.5)


@pytest.mark.parametrize("diagram", [FLASH, TILED])
def test_all_together_gain_one_plus_beta(diagram):
    law = diagram.bits()
    assert law.exponents()["all"] == 1 + law.optimum.beta
    assert sympy.simplify(law.exponents()["operands"] + law.exponents()["accumulators"] - 1 - law.optimum.beta) == 0


def test_the_law_is_the_optimum_in_bytes_where_accumulators_are_stored_as_they_are():
    widths = {b(name): sympy.Integer(2) for name in ("Q", "K", "V", "O", "O_acc")}
    direct = FLASH.formats("fp16").optimum("M", unit="bytes").transfers
    assert sympy.expand(FLASH.bits().transfers.subs(widths) - direct) == 0


def test_no_tile_does_better_than_the_law():
    """Every group tile whose operands and accumulators fit 8,000 bytes moves at least H*."""
    sizes, room = {"q": 64, "x": 96, "d": 16}, 8000
    widths = {"b_Q": 2, "b_K": 1, "b_V": 1, "b_O": 2, "b_O_acc": 4}
    least = evaluate(FLASH.bits(room).transfers.subs({size(k): v for k, v in widths.items()}), sizes)
    moved = FLASH.transfers().bytes({"Q": "fp16", "K": "int8", "V": "int8", "O": "fp16"})
    fits = [g for g in range(1, 65) if g * sizes["d"] * (2 + 4) <= room]
    assert max(fits) > 1
    assert least <= min(moved.total(**sizes, g_q=g, s_x=1) for g in fits) <= 1.2 * least


def test_what_is_refused():
    with pytest.raises(InputError, match="what moves: Q, K, V, O"):
        FLASH.bits().gain(W="fp16")
    with pytest.raises(FormatError, match="number format"):
        FLASH.bits().gain("fp7")
    with pytest.raises(DiagkitError, match="group an axis"):
        cost.bits(matmul()).gain("fp8e4m3")


def test_it_displays():
    text = str(FLASH.bits())
    assert "beta = 1" in text
    assert "power of all" in text
