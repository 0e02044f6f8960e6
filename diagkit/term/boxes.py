"""What a diagram is made of: axes, arrays, and seven kinds of box.

A box is one column of the picture. It names the wire it makes, the axes of that wire and the wires it
reads. Everything a room knows about a kind of box is one entry in a table keyed by the classes below.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from diagkit.term.errors import AxisError
from diagkit.term.formats import check_format
from diagkit.term.symbols import Expr, apply, exact, never_negative, size, text


def check_name(name: Any, what: str) -> None:
    """Refuse a name that is not text, or that nobody could read."""
    if not isinstance(name, str) or not name.strip():
        raise AxisError(f"{what} needs a name, not {name!r}", remedy="give it any non-blank text")


def _whole(length: Any) -> bool:
    return isinstance(length, int) and not isinstance(length, bool) and length >= 0


def _formula(length: Any, name: str) -> bool:
    """Whether `length` is a whole number made of the sizes of other axes."""
    symbols: set[Any] = getattr(length, "free_symbols", set())
    others = bool(symbols) and all(symbol == size(symbol.name) != size(name) for symbol in symbols)
    return others and length.is_integer is True and never_negative(length)


@dataclass(frozen=True)
class Axis:
    """A named axis; its `length` is a number of elements, None while it stays symbolic, or a formula of
    other sizes: such an axis is *derived*, its size is computed and never asked for.

    >>> Axis("q").size, Axis("d", 64).size, Axis("x").blocks(64).size
    (q, 64, ceiling(x/64))

    >>> x = Axis("x")
    >>> x.size, x.derived, x.blocks(64).derived
    (x, False, True)

    In a formula an axis stands for its size.

    >>> (2 * x.size).subs({x: 8})
    16
    """

    name: str
    length: Any = None

    def __post_init__(self) -> None:
        check_name(self.name, "an axis")
        if getattr(self.length, "is_Integer", False):
            object.__setattr__(self, "length", int(self.length))
        if self.length is not None and not (_whole(self.length) or _formula(self.length, self.name)):
            raise AxisError(
                f"axis {self.name!r} cannot have size {self.length!r}",
                axis=self.name,
                remedy="use a whole number >= 0, leave it symbolic, or derive it: x.blocks(64)",
            )

    def _sympy_(self) -> Any:
        return self.size

    @property
    def size(self) -> Any:
        """The size in elements: an integer, the size symbol of that name, or the formula it is derived by."""
        return size(self.name) if self.length is None else exact(self.length)

    @property
    def derived(self) -> bool:
        """Whether the size is a formula of other sizes."""
        return not (self.length is None or isinstance(self.length, int))

    def blocks(self, width: int, name: str | None = None) -> Axis:
        """The axis of this one's blocks of `width` elements, the last maybe short; named "x_block" for x.

        >>> Axis("x").blocks(64)
        Axis('x_block', apply('ceiling', (exact('1/64'))*(size('x'))))
        >>> Axis("x", 100).blocks(64)
        Axis('x_block', 2)
        """
        if not _whole(width) or width < 1:
            reason = f"axis {self.name!r} cannot have blocks of {width!r} elements"
            raise AxisError(reason, axis=self.name, remedy="use a whole number >= 1")
        return Axis(f"{self.name}_block" if name is None else name, apply("ceiling", self.size / width))

    def __repr__(self) -> str:
        length = "" if self.length is None else f", {text(self.length) if self.derived else self.length}"
        return f"Axis({self.name!r}{length})"


Axes = tuple[Axis, ...]


def names(axes: Axes) -> tuple[str, ...]:
    """The names of `axes`, in order.

    >>> names((Axis("q"), Axis("d", 64)))
    ('q', 'd')
    """
    return tuple(axis.name for axis in axes)


def elements(axes: Axes) -> Any:
    """The number of elements of an array over `axes`: the product of their sizes.

    >>> elements((Axis("q"), Axis("d", 64)))
    64*q
    """
    total = exact(1)
    for axis in axes:
        total = total * axis.size
    return total


@dataclass(frozen=True)
class Array:
    """An input: its name, axes and number format; a `weight` is learned and draws as part of its layer.

    >>> Array("Q", (Axis("q"), Axis("d")))
    Array('Q', (Axis('q'), Axis('d')), 'fp32')
    """

    name: str
    axes: Axes
    dtype: str = "fp32"
    weight: bool = False

    def __post_init__(self) -> None:
        check_format(self.dtype)
        check_name(self.name, "an array")
        distinct(self.axes, f"array {self.name!r}")

    def __repr__(self) -> str:
        weight = ", weight=True" if self.weight else ""
        return f"Array({self.name!r}, {self.axes!r}, {self.dtype!r}{weight})"


def distinct(axes: Axes, owner: str, box: str | None = None) -> None:
    """Refuse axes that repeat: a diagonal is a view, never an accident."""
    seen: set[str] = set()
    for axis in axes:
        if axis.name in seen:
            raise AxisError(
                f"{owner} has axis {axis.name!r} twice", axis=axis.name, box=box, remedy="name each axis once"
            )
        seen.add(axis.name)


@dataclass(frozen=True)
class Box:
    """One column: makes the wire `name` over `axes` from the wires `inputs`.

    >>> import diagkit as dk
    >>> box = dk.Diagram(dk.exp(dk.array("X", dk.axis("x")), name="E")).box("E")
    >>> box.name, box.axes, box.inputs, box.kind, box.formulas
    ('E', (Axis('x'),), ('X',), 'map', (exp(a0),))
    """

    name: str
    axes: Axes
    inputs: tuple[str, ...]
    kind: ClassVar[str] = "box"

    def __repr__(self) -> str:
        parts = [text(v) if isinstance(v, Expr) else _tuple_text(v) for v in self._values()]
        return f"{type(self).__name__}({', '.join(parts)})"

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, field.name) for field in fields(self))

    @property
    def formulas(self) -> tuple[Any, ...]:
        """What it computes with beside its inputs: the expression of a map, the coordinates of a view."""
        return ()


def _tuple_text(value: Any) -> str:
    if isinstance(value, tuple) and any(isinstance(item, Expr) for item in value):
        return "(" + "".join(f"{text(item)}, " for item in value) + ")"
    return repr(value)


@dataclass(frozen=True, repr=False)
class Map(Box):
    """A scalar expression `expr` in arg(0), arg(1), ... applied at every point of the axes.

    An input that lacks an axis is used again at each position along it.

    >>> from diagkit.term.symbols import arg
    >>> Map("Y", (Axis("x"),), ("X",), 2 * arg(0))
    Map('Y', (Axis('x'),), ('X',), (2)*(arg(0)))
    >>> Map("Y", (Axis("x"),), ("X",), 2 * arg(0)).formulas
    (2*a0,)
    """

    expr: Any
    kind: ClassVar[str] = "map"

    @property
    def formulas(self) -> tuple[Any, ...]:
        """Its expression."""
        return (self.expr,)


@dataclass(frozen=True, repr=False)
class Reduce(Box):
    """The `op` ("sum", "max", "min" or "product") of one input over the axes `over`, named.

    >>> Reduce("s", (), ("X",), "sum", ("x",))
    Reduce('s', (), ('X',), 'sum', ('x',))
    """

    op: str
    over: tuple[str, ...]
    kind: ClassVar[str] = "reduce"


@dataclass(frozen=True, repr=False)
class Contract(Box):
    """The sum, over every axis that `axes` lacks, of the product of the inputs: what tensor cores do.

    >>> q, x, d = Axis("q"), Axis("x"), Axis("d")
    >>> Contract("S", (q, x), ("Q", "K"))
    Contract('S', (Axis('q'), Axis('x')), ('Q', 'K'))
    """

    kind: ClassVar[str] = "contract"


@dataclass(frozen=True, repr=False)
class Index(Box):
    """The position 0, 1, 2, ... along its one axis; made where it is used, never moved.

    >>> Index("#x", (Axis("x"),), ()).kind
    'index'
    """

    kind: ClassVar[str] = "index"


@dataclass(frozen=True, repr=False)
class Cast(Box):
    """The input, rounded to the number format `dtype` (to nearest, ties to even; fp8, int8 and
    int4 saturate).

    >>> Cast("C", (Axis("x"),), ("X",), "fp16").dtype
    'fp16'
    """

    dtype: str
    kind: ClassVar[str] = "cast"


@dataclass(frozen=True, repr=False)
class View(Box):
    """Affine reindexing: the input read at `coordinates`, one per axis of the input, each affine in
    the coordinates of `axes`, or with floors of such over a whole number; 0 outside the input. Windows,
    shifts, slices, renamed axes, axes cut into blocks, and a value per block read at every position.

    >>> from diagkit.term.symbols import coordinate
    >>> View("Y", (Axis("t"),), ("X",), (coordinate("t") + 1,))
    View('Y', (Axis('t'),), ('X',), (coordinate('t') + 1, ))
    >>> View("Y", (Axis("t"),), ("X",), (coordinate("t") + 1,)).formulas
    (t + 1,)
    """

    coordinates: tuple[Any, ...]
    kind: ClassVar[str] = "view"

    @property
    def formulas(self) -> tuple[Any, ...]:
        """Its coordinates."""
        return self.coordinates


@dataclass(frozen=True, repr=False)
class Block(Box):
    """Named boxes that draw as one glyph: `title` says which, `body` are the boxes inside, the last of
    which makes the wire `name`. A block can be opened: its body takes its place.

    >>> import diagkit as dk
    >>> (block,) = dk.Diagram(dk.softmax(dk.array("S", dk.axis("x")), over="x", name="P")).boxes
    >>> block.title, [box.name for box in block.body]
    ('softmax', ['P.max', 'P.exp', 'P.sum', 'P'])
    """

    title: str
    body: tuple[Box, ...]
    kind: ClassVar[str] = "block"


KINDS: tuple[type[Box], ...] = (Map, Reduce, Contract, Index, Cast, View, Block)
PRIMITIVES: tuple[type[Box], ...] = KINDS[:-1]


def rename_box(box: Box, names_of: dict[str, str]) -> Box:
    """`box` with every wire name looked up in `names_of` (itself where absent), blocks throughout.

    >>> rename_box(Contract("C", (), ("A", "B")), {"A": "X"})
    Contract('C', (), ('X', 'B'))
    """
    changes: dict[str, Any] = {
        "name": names_of.get(box.name, box.name),
        "inputs": tuple(names_of.get(wire, wire) for wire in box.inputs),
    }
    if isinstance(box, Block):
        changes["body"] = tuple(rename_box(inner, names_of) for inner in box.body)
    return replace(box, **changes)
