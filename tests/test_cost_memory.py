"""Live memory: what the formulas say is held, what is overwritten, and where the peak is."""

import cost_cases as cases
import derive_cases
import pytest
import sympy
from cost_cases import flash, heads, tiled_matmul
from derive_cases import attention
from hypothesis import given
from hypothesis import strategies as st

import diagkit as dk
from diagkit import ops
from diagkit.cost import memory
from diagkit.cost.upper import at_least, undominated
from diagkit.derive import fuse, group, stream
from diagkit.term import FormatError, Term, size

q, x, d, e, a, b, c = map(size, "qxdeabc")
g, s, g_a, g_c, s_b = map(size, ("g_q", "s_x", "g_a", "g_c", "s_b"))


def same(left, right):
    return sympy.expand(left - right) == 0


def test_attention_table():
    """Attention: napkin g(d + e) + s(d + e), + score tile g s, + statistics 2 g."""
    held = memory(flash())
    assert same(held.napkin().peak(), (g + s) * (d + e))
    assert same(held.peak(), (g + s) * (d + e) + g * s + 2 * g)


def test_matmul_table():
    """Matrix product: g_a g_c + s_b (g_a + g_c); in bytes each operand by its format, sums in fp32."""
    assert same(memory(tiled_matmul()).peak(), g_a * g_c + s_b * (g_a + g_c))
    mixed = memory(tiled_matmul("fp8e4m3", "fp16")).bytes()
    assert same(mixed.peak(), 4 * g_a * g_c + s_b * (g_a + 2 * g_c))


def test_head_table():
    """Attention: grouped heads hold one tile of keys per KV head and r tiles of queries."""
    g_k, g_r = size("g_k"), size("g_r")
    assert same(memory(heads()).napkin().peak(), 2 * g * g_k * g_r * d + 2 * s * g_k * d)
    assert same(memory(heads("x d")).napkin().peak(), 2 * g * g_k * g_r * d + 2 * s * d)


def test_unfused_kernels_hold_their_arrays():
    held = memory(attention()).columns()
    assert held[0, "load"] == q * d + x * d
    assert held[0, "QK"] == q * d + x * d + q * x
    assert held[1, "S"] == q * x


def chain(*operations):
    X = dk.array("X", cases.q, cases.x)
    for operation in operations:
        X = operation(X)
    return fuse(derive_cases.term(X, Y=X))


def test_maps_overwrite_what_nobody_reads_later():
    exp_sin = memory(chain(dk.exp, dk.sin)).columns()
    assert set(exp_sin.values()) == {q * x}
    twice = memory(chain(dk.exp, lambda X: X * dk.sin(X)))
    assert twice.peak() == 2 * q * x


def test_a_map_that_widens_needs_room_of_its_own():
    X, y = dk.array("X", cases.q), dk.array("W", cases.q, cases.x)
    Z = X * y
    assert memory(derive_cases.term(Z, Z=Z)).peak() == q * x + q
    Z = dk.exp(X) * y
    assert memory(fuse(derive_cases.term(Z, Z=Z))).peak() == q * x + q


def test_a_stored_wire_is_not_overwritten():
    X = dk.array("X", cases.q)
    A = dk.exp(X)
    B = dk.sin(A)
    made = derive_cases.term(A, B, A=A, B=B)
    assert memory(made.replace(levels=(("A", 1),))).peak() == 2 * q


def test_an_overwritten_buffer_takes_the_wider_format():
    X = dk.array("X", cases.q, dtype="fp16")
    Y = dk.cast(X, "fp32")
    held = memory(derive_cases.term(Y, Y=Y)).bytes().columns()
    assert held == {(0, "load"): 2 * q, (0, "Y"): 4 * q, (0, "store"): 4 * q}
    Y = dk.cast(X, "fp8e4m3")
    assert memory(derive_cases.term(Y, Y=Y)).bytes().columns()[0, "store"] == 2 * q


def test_masks_of_positions_take_no_memory():
    assert memory(flash(mask=ops.causal(cases.q, cases.x))).peak() == memory(flash()).peak()


def test_where_the_peak_is():
    small, large = {"q": 64, "x": 64, "d": 8, "e": 8, "g_q": 4, "s_x": 4}, {"q": 4, "x": 64, "d": 8, "e": 8}
    assert memory(flash()).where(**small)[0] == (0, "QK")
    unfused = memory(attention())
    assert len(set(unfused.where())) == 2
    assert unfused.where(**large) == ((0, "QK"), (3, "O"))
    assert unfused.peak(**large) == 4 * 8 + 64 * 8 + 4 * 64


def test_a_max_only_where_sizes_decide():
    assert not memory(flash()).peak().has(sympy.Max)
    A = dk.total(dk.array("A", cases.q), over=cases.q)
    B = dk.total(dk.array("B", cases.x), over=cases.x)
    assert memory(derive_cases.term(A, B, A=A, B=B)).peak() == sympy.Max(q + 1, x + 1)


def test_bytes_and_formats():
    assert memory(flash()).bytes("fp16").peak() == sympy.expand(2 * memory(flash()).peak())
    with pytest.raises(FormatError):
        memory(flash()).bytes("fp12")


def test_per_kernel():
    assert memory(attention()).per_kernel()[1] == q * x


def test_fixed_loads_that_only_fixed_boxes_read_are_given_back():
    """Q and W are gone once Y = Q W is there; Y stays for the whole loop."""
    w = dk.axis("w")
    Q, W, K, V = (
        dk.array("Q", cases.q, w),
        dk.array("W", w, cases.d),
        dk.array("K", cases.x, cases.d),
        dk.array("V", cases.x, cases.e),
    )
    Y = dk.einsum("q w, w d -> q d", Q, W)
    P = dk.softmax(dk.einsum("q d, x d -> q x", Y, K), over=cases.x)
    O = dk.einsum("q x, x e -> q e", P, V)
    held = memory(stream(group(fuse(derive_cases.term(O, Y=Y, P=P, O=O)), q="g_q"), x="s_x")).columns()
    assert same(held[0, "Y"], g * size("w") + size("w") * d + g * d)
    assert same(held[0, "QK" if (0, "QK") in held else "YK"], g * d + s * (d + e) + g * s + g * e + 2 * g)


def test_display():
    shown = memory(flash())
    assert "peak" in str(shown)
    assert shown._repr_html_() == memory(flash())._repr_html_()
    assert shown._repr_latex_().startswith("$")


exponents = st.dictionaries(st.sampled_from("uvw"), st.integers(1, 2), max_size=2)
sums = st.lists(st.tuples(st.integers(1, 3), exponents), min_size=1, max_size=4)


def as_sum(parts):
    return sum((n * sympy.Mul(*(size(v) ** p for v, p in powers.items())) for n, powers in parts), sympy.Integer(0))


@given(sums, sums)
def test_at_least_is_never_wrong(left, right):
    high, low = as_sum(left), as_sum(right)
    values = [
        dict(zip(map(size, "uvw"), at, strict=True))
        for at in [(1, 1, 1), (1, 2, 5), (7, 1, 1), (3, 3, 3), (1, 9, 1), (2, 1, 8)]
    ]
    if at_least(high, low):
        assert all(high.subs(at) >= low.subs(at) for at in values)


def test_undominated_keeps_one_of_equals():
    assert undominated([q * d, d * q, q]) == [d * q]
    assert undominated([q, d]) == [q, d]
    assert at_least(q * d + q, 2 * q)
    assert not at_least(q, d)


def test_empty_diagram():
    row = Term((ops.array("X", cases.q).source,), (), ("X",))
    assert memory(row).peak() == 0


def test_boxes_named_load_and_store():
    load = dk.exp(dk.array("X", cases.q, cases.x), name="load")
    store = dk.total(load, over=cases.x, name="store")
    held = memory(fuse(derive_cases.term(store)))
    assert held.columns() == {(0, "load'"): q * x, (0, "load"): q * x, (0, "store"): q * x + q, (0, "store'"): q}


def test_what_the_loop_reads_stays_for_all_of_it():
    """Q is read by the first box of the step alone, and must be there for the next chunk."""
    held = memory(flash()).columns()
    step = [name for _, name in held][1:-2]
    assert step[0] == "QK"
    assert all(held[0, name].coeff(d).has(g) and held[0, name].coeff(d).has(s) for name in step)
