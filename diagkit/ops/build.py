"""What users call to write an algorithm down: axes, arrays and the primitives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import sympy

from diagkit.ops.nodes import Node, formula, need_node, union
from diagkit.term import (
    Array,
    Axes,
    Axis,
    AxisError,
    Cast,
    Contract,
    Index,
    InputError,
    TermError,
    View,
    check_format,
    coordinate,
    names,
)

Over = Axis | str | Iterable[Axis | str]


WORDS = {
    "against", "aim", "arrays", "bounds", "cold", "dtype", "hoist", "lemma", "level", "machine", "machines", "memory",
    "multiples", "ranges", "region", "repeats", "rounds", "seed", "self", "target", "theme", "without",
}  # fmt: skip
"""Words of the calls that take sizes and tiles by the names of axes: ``stream(region=..., x=...)``."""


def _named(name: str) -> str:
    """The name of an axis, unless a size or tile could not be given by it."""
    if name in WORDS:
        reason = f"an axis cannot be called {name!r}: calls that take sizes and tiles by name have a word {name}=..."
        raise AxisError(reason, axis=name, remedy=f"call it otherwise, for example {name}_axis")
    return name


def axes(text: str, **sizes: int) -> Any:
    """Axes by name, separated by blanks; sizes, in elements, stay symbolic unless given.

    Returns one Axis for one name, else a tuple.

    >>> axes("q x d", d=64)
    (Axis('q'), Axis('x'), Axis('d', 64))
    >>> axes("x=10")
    Axis('x', 10)
    """
    if not isinstance(text, str):
        raise AxisError(f"{text!r} names no axes", remedy='write for example dk.axes("q x d")')
    if "," in text:
        raise AxisError(f"{text!r} has commas", remedy='blanks separate axes: dk.axes("q x d")')
    made = [_axis(word, sizes) for word in text.split()]
    unknown = set(sizes) - {axis.name for axis in made}
    if unknown:
        raise AxisError(
            f"a size for {min(unknown)!r}, which is no axis of {text!r}", axis=min(unknown), remedy="name it too"
        )
    if not made:
        raise AxisError("no axis is named", remedy='write for example dk.axes("q x d")')
    twice = next((axis.name for axis in made if [other.name for other in made].count(axis.name) > 1), None)
    if twice is not None:
        raise AxisError(f"axis {twice!r} is named twice in {text!r}", axis=twice, remedy="name each axis once")
    return made[0] if len(made) == 1 else tuple(made)


def _axis(word: str, sizes: dict[str, int]) -> Axis:
    name, equals, length = word.partition("=")
    if equals and not length.isdigit():
        raise AxisError(f"axis {name!r} cannot have size {length!r}", axis=name, remedy="write for example x=128")
    return Axis(_named(name), int(length) if equals else sizes.get(name))


def axis(name: str, length: Any = None) -> Axis:
    """One axis; the name may be any text but a word of the calls that take tiles (`WORDS`), the length (elements)
    may stay symbolic or follow from others.

    >>> axis("key position").size
    key position
    >>> x = axis("x")
    >>> x.blocks(64).size, axis("pair", x.size * (x.size + 1)).size
    (ceiling(x/64), x*(x + 1))
    """
    return Axis(_named(name), length)


def array(name: str, *over: Axis, dtype: str = "fp32") -> Node:
    """An input array of that name over those axes, in the number format `dtype`.

    >>> q, d = axes("q d")
    >>> array("Q", q, d)
    <array 'Q' over (q, d)>
    """
    return Node(Array(name, _axes_only(name, over), dtype), (), name, name)


def weight(name: str, *over: Axis, dtype: str = "fp32") -> Node:
    """A learned array: as `array`, and a contraction with it draws as a linear layer.

    >>> W = weight("W", *axes("a b"))
    >>> W, W.source.weight
    (<array 'W' over (a, b)>, True)
    """
    return Node(Array(name, _axes_only(name, over), dtype, weight=True), (), name, name)


def _axes_only(name: str, over: tuple[Any, ...]) -> Axes:
    for one in over:
        if not isinstance(one, Axis):
            raise AxisError(f"array {name!r}: {one!r} is no axis", remedy='make axes with dk.axes("q x d")')
    return over


def einsum(pattern: str, *operands: Node, name: str | None = None) -> Node:
    """The sum of products that `pattern` writes: names of axes, commas between arrays, an arrow.

    Axes that the output lacks are summed. Errors name the array, what the pattern says and what it has.

    >>> q, x, d = axes("q x d")
    >>> einsum("q d, x d -> q x", array("Q", q, d), array("K", x, d))
    <contract over (q, x)>
    """
    groups, kept = _pattern(str(pattern))
    if len(groups) != len(operands):
        raise InputError(
            f"{pattern!r} writes {len(groups)} arrays and gets {len(operands)}", remedy="one array per comma"
        )
    for words, node in zip(groups, map(need_node, operands), strict=True):
        if set(words) != set(names(node.axes)) or len(words) != len(node.axes):
            label = node.name or node.hint or "a value"
            raise AxisError(
                f"{pattern!r}: {label!r} is written as ({' '.join(words)})",
                remedy=f"its axes are ({' '.join(names(node.axes))})",
            )
    return contract(*operands, keep=kept, name=name)


def _pattern(pattern: str) -> tuple[list[list[str]], list[str]]:
    left, arrow, right = pattern.partition("->")
    if not arrow or "->" in right or "," in right or "..." in pattern:
        raise AxisError(f"{pattern!r} is no pattern", remedy='write for example "q d, x d -> q x"')
    return [part.split() for part in left.split(",")], right.split()


def contract(*operands: Node, over: Over = (), keep: Over | None = None, name: str | None = None) -> Node:
    """The product of the operands, summed `over` some axes (or over all but those to `keep`, in order).

    >>> q, x, d = axes("q x d")
    >>> contract(array("Q", q, d), array("K", x, d), over=d)
    <contract over (q, x)>
    """
    for operand in operands:
        need_node(operand)
    if not operands:
        raise TermError("a contraction of nothing", remedy="give the values it multiplies: dk.contract(Q, K, over=d)")
    joined = union([node.axes for node in operands])
    kept = pick(joined, keep) if keep is not None else without(joined, pick(joined, over))
    unique = tuple(dict.fromkeys(operands))
    if len(unique) < len(operands):
        raise TermError("a contraction reads one value twice", remedy="square it with x * x, then reduce it")
    return Node(Contract("", kept, ()), operands, "", name)


def _listed(over: Over) -> list[Axis | str]:
    if isinstance(over, Axis | str):
        return [over]
    if not isinstance(over, Iterable) or not all(isinstance(one, Axis | str) for one in over):
        raise AxisError(f"{over!r} names no axis", remedy="give an axis, its name, or several of them")
    return list(over)


def _need_axis(axis: Any) -> Axis:
    if not isinstance(axis, Axis):
        raise AxisError(f"{axis!r} is no axis", remedy='make axes with dk.axes("q x d")')
    return axis


def pick(axes: Axes, over: Over) -> Axes:
    """The axes among `axes` that `over` names. Errors: AxisError for one that is not there, or named twice.

    >>> pick(axes("q x"), "x")
    (Axis('x'),)
    """
    by_name = {axis.name: axis for axis in axes}
    picked = []
    for one in _listed(over):
        key = one.name if isinstance(one, Axis) else one
        if key not in by_name or (isinstance(one, Axis) and by_name[key] != one):
            known = ", ".join(f"{a.name} (size {a.size})" for a in axes) or "none"
            shown = one if key in by_name else key
            raise AxisError(f"no axis {shown!r} here", axis=key, remedy=f"the axes are: {known}")
        picked.append(by_name[key])
    if len(set(picked)) < len(picked):
        twice = next(a for a in picked if picked.count(a) > 1)
        again = f'name each axis once; an array meets itself along another one: dk.rename(K, {twice.name}="x")'
        raise AxisError(f"axis {twice.name!r} is named twice", axis=twice.name, remedy=again)
    return tuple(picked)


def without(axes: Axes, removed: Axes) -> Axes:
    """The axes that are left."""
    return tuple(axis for axis in axes if axis not in removed)


def index(over: Axis, name: str | None = None) -> Node:
    """The position 0, 1, 2, ... along an axis: for masks, windows and position-dependent scores.

    >>> import diagkit as dk
    >>> X = dk.array("X", dk.axis("x"))
    >>> dk.Diagram(X * dk.index(dk.axis("x")))(X=[5.0, 6.0, 7.0])
    array([ 0.,  6., 14.])
    """
    return Node(Index("", (_need_axis(over),), ()), (), f"#{over.name}", name)


def cast(value: Node, dtype: str, name: str | None = None) -> Node:
    """`value` rounded to the number format `dtype`.

    >>> import diagkit as dk
    >>> X = dk.array("X", dk.axis("x"))
    >>> dk.Diagram(dk.cast(X, "fp16"))(X=[0.1])
    array([0.09997559])
    """
    return Node(Cast("", need_node(value).axes, (), check_format(dtype)), (value,), "", name)


def rename(value: Node, name: str | None = None, **axes_to: Axis | str) -> Node:
    """The same array with some axes under another name: ``rename(X, q=x)`` reads X's axis q along x, and
    ``rename(X, q="x")`` along a new axis of that name and size.

    >>> q, x = axes("q x")
    >>> rename(array("X", q), q=x), rename(array("X", axis("q", 8)), q="x").axes
    (<view over (x)>, (Axis('x', 8),))
    """
    given = need_node(value).axes
    made_to = {old: _renamed(pick(given, old)[0], new) for old, new in axes_to.items()}
    made = tuple(made_to.get(axis.name, axis) for axis in given)
    return Node(View("", made, (), tuple(coordinate(a.name) for a in made)), (value,), "", name)


def _renamed(was: Axis, to: Axis | str) -> Axis:
    new = Axis(to, was.length) if isinstance(to, str) else _need_axis(to)
    if None not in (was.length, new.length) and was.length != new.length:
        reason = f"axis {was.name!r} has size {was.size} and cannot become {new.name!r} of size {new.size}"
        raise AxisError(reason, axis=was.name, remedy="an axis keeps its size under another name")
    return new


def view(value: Node, coordinates: dict[str, Any], over: Iterable[Axis], name: str | None = None) -> Node:
    """Affine reindexing: an array over `over` that reads `value` at `coordinates[axis]` for each of its
    axes, written with ``dk.coordinate(name)`` of the new axes; 0 where that is outside.

    A view of an array in slow memory moves nothing: what reads it loads the elements where they lie. Of windows next
    to each other, ``p + w`` or ``p - w``, a tile of g positions loads g + w - 1, each once. On chip they take the
    room of all windows. A convolution that looks back, with 0 before the start:

    >>> import diagkit as dk
    >>> p, w, c = axes("p w c")
    >>> before = {"p": dk.coordinate("p") - dk.coordinate("w")}
    >>> windows = view(array("X", p, c), before, (p, w, c), name="windows")
    >>> Y = dk.einsum("p w c, w c -> p", windows, dk.weight("W", w, c), name="Y")
    >>> dk.Diagram(Y)(X=[[1.0], [2.0], [3.0]], W=[[1.0], [10.0]])
    array([ 1., 12., 23.])
    >>> t = axis("t", p.size + w.size - 1)
    >>> ahead = view(array("X", t, c), {"t": dk.coordinate("p") + dk.coordinate("w")}, (p, w, c), name="windows")
    >>> whole = dk.Diagram(dk.einsum("p w c, w c -> p", ahead, dk.weight("W", w, c), name="Y"))
    >>> whole.fuse().group(p="g").transfers().by_array()["X"]
    c*(p + (w - 1)*ceiling(p/g))
    """
    if not isinstance(coordinates, Mapping):
        raise AxisError(f"{coordinates!r} are no coordinates", remedy='write {"t": dk.coordinate("t") + 1}')
    pick(need_node(value).axes, coordinates)
    read = (coordinates.get(axis.name, coordinate(axis.name)) for axis in value.axes)
    wanted = tuple(formula(lambda place: place, [place]) for place in read)
    made = tuple(map(_need_axis, [over] if isinstance(over, Axis) or not isinstance(over, Iterable) else over))
    for one in wanted:
        _need_affine(one, made)
    return Node(View("", made, (), wanted), (value,), "", name)


def spread(value: Node, over: Axis, width: int, name: str | None = None) -> Node:
    """An array with one value for each block of `width` positions, read at every position of `over`.

    The array's axis is ``over.blocks(width)``: a scale per block, seen along the axis that it scales.

    >>> x, d = axes("x d")
    >>> scales = array("scale", x.blocks(64), d)
    >>> spread(scales, x, 64).source.coordinates
    (floor(x/64), d)
    """
    block = _need_axis(over).blocks(width)
    pick(need_node(value).axes, block.name)
    made = tuple(over if axis.name == block.name else axis for axis in value.axes)
    return view(value, {block.name: sympy.floor(coordinate(over.name) / width)}, made, name)


def blocked(value: Node, name: str | None = None, **widths: int) -> Node:
    """The same array with an axis cut into blocks: ``blocked(K, x=64)`` has x_block and x_in for x.

    Positions beyond the end of the axis read 0.

    >>> x, d = axes("x d")
    >>> blocked(array("K", x, d), x=64)
    <view over (x_block, x_in, d)>
    """
    pick(need_node(value).axes, widths)
    made: list[Axis] = []
    at = {}
    for one in value.axes:
        width = widths.get(one.name)
        parts = (one,) if width is None else (one.blocks(width), Axis(f"{one.name}_in", width))
        made += parts
        at[one.name] = sum(coordinate(p.name) * (width if n < len(parts) - 1 else 1) for n, p in enumerate(parts))
    return view(value, at, made, name)


_AFFINE = 'read at sums such as 2 * dk.coordinate("t") + dk.coordinate("w"), or at their floor over a number'


def _need_affine(read: Any, made: Axes) -> None:
    """Refuse what is no whole-number combination of the coordinates of `made` and of floors of such
    combinations over a whole number."""
    for part in read.atoms(sympy.floor):
        above, below = part.args[0].as_numer_denom()
        if not below.is_Integer or above.has(sympy.floor):
            raise AxisError(f"{part} is no floor of positions over a whole number", remedy=_AFFINE)
        _need_affine(above, made)
    floors = {part: coordinate(str(part)) for part in read.atoms(sympy.floor)}
    read, allowed = read.xreplace(floors), {*map(coordinate, names(made)), *floors.values()}
    affine = read.is_polynomial() and not read.free_symbols - allowed
    if not affine or (allowed and sympy.Poly(read, *allowed).total_degree() > 1):
        raise AxisError(f"{read} is not affine in the coordinates of {names(made)}", remedy=_AFFINE)
    if not all(number.is_Integer for number in read.as_coefficients_dict().values()):
        raise AxisError(f"{read} is not whole at every position", remedy="use whole-number coefficients")
