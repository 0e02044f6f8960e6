"""Where moving and computing take equal time: the thresholds of appendix B.1, from the diagram."""

from __future__ import annotations

import examples
import pytest

import diagkit as dk
from diagkit.term import DiagkitError

MATMUL = examples.matmul().group(a="g_a", c="g_c").stream(b="s_b")


def test_a_matrix_product_against_global_memory():
    found = MATMUL.balance("H100-SXM")
    assert round(found.least_memory / 1024, 1) == 681.5
    assert round(found.least_size()["b"]) == 295


def test_a_matrix_product_against_the_cache():
    """12 TB/s into the shared memories: 82 at best, 151 with 256 KiB of registers."""
    found = MATMUL.balance("H100-SXM", "L2")
    assert round(found.least_size()["b"]) == 82
    assert round(found.least_size(dk.machine.load("H100-SXM").capacity("register"))["b"]) == 151


def test_at_the_balance_both_take_equal_time():
    found = MATMUL.balance("A100-SXM-80GB")
    elements = found.least_memory / 2
    assert found.moving(elements) * found.intensity == pytest.approx(1)


def test_attention_needs_its_head_size():
    flash = examples.attention().fuse().group(q="g_q").stream(x="s_x")
    assert round(flash.balance("H100-SXM", d=128).least_memory / 1024) == 148
    with pytest.raises(DiagkitError, match="needs d"):
        _ = flash.balance("H100-SXM").least_memory


def test_too_little_memory_is_refused():
    with pytest.raises(DiagkitError, match="too few at any size"):
        MATMUL.balance("H100-SXM").least_size(1024)
    assert "681 KiB" in repr(MATMUL.balance("H100-SXM"))
    assert MATMUL.balance("H100-SXM")._repr_html_().startswith("<table")
