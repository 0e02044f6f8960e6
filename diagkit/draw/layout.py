"""Layout: from a sheet to a scene. Lines are broken, columns arranged, rows settled, and everything drawn."""

from __future__ import annotations

from itertools import pairwise

from diagkit.draw.arrange import LANE_GLYPHS, Ahead, Placed, arrange, closed_up
from diagkit.draw.flags import MARK, draw_flag
from diagkit.draw.fonts import SANS
from diagkit.draw.glyphs import GLYPHS
from diagkit.draw.head import DENSE_HEAD, Drawn, draw_brackets, draw_head
from diagkit.draw.pen import TITLE, Pen
from diagkit.draw.plan import Column, Key, Sheet, Source
from diagkit.draw.rows import Bundle, Line, Strand, Zone
from diagkit.draw.scene import Runs, polyline, rectangle, runs_width
from diagkit.draw.table import CELL, Cells
from diagkit.draw.typeset import roman
from diagkit.draw.wires import draw_separators, draw_wires

LEFT = 20.0
WIDEST = 880.0
LABEL = 15.0
NAME = 24.0
SMALL_NAME = 16.0
NOTE = 9.5
DENSE_NOTE = 12.5
"""Notes in a loop, which is made smaller as a whole, are larger before that."""
SLACK = 50.0
LAST_SLACK = 85.0
"""By how much a line may be wider than asked for, and one with which everything is said."""


class Uses:
    """Which columns read which wire."""

    def __init__(self, sheet: Sheet) -> None:
        self.sheet = sheet
        self.at: dict[Key, list[int]] = {}
        for number, column in enumerate(sheet.columns):
            for key in column.reads:
                self.at.setdefault(key, []).append(number)
        for key in sheet.outputs:
            self.at.setdefault(key, []).append(len(sheet.columns))

    def after(self, key: Key, number: int) -> list[int]:
        """The columns after that number which read the wire."""
        return [n for n in self.at.get(key, []) if n > number]

    def ahead(self, number: int, end: int) -> Ahead:
        """What follows column `number` on a line that ends before column `end`."""
        column = self.sheet.columns[number]
        return Ahead(
            goes_on=lambda key: bool(self.after(key, number)),
            copy_below=lambda key: self._below(key, number),
            lane=self._lane(column, end),
        )

    def _lane(self, column: Column, end: int) -> bool:
        readers = self.at.get(column.makes[0], []) if len(column.makes) == 1 else []
        return len(readers) == 1 and readers[0] < end and self.sheet.columns[readers[0]].glyph in LANE_GLYPHS

    def _below(self, key: Key, number: int) -> bool:
        """Whether the copy that column `number` takes forks off below what goes on. It does when the two
        meet again in a box that reads the original first."""
        following = self.after(key, number)[0]
        if following == len(self.sheet.columns):
            return True
        made = set(self.sheet.columns[number].makes)
        for column in self.sheet.columns[number + 1 : following]:
            if made & set(column.reads):
                made |= set(column.makes)
        reads = self.sheet.columns[following].reads
        met = [place for place, read in enumerate(reads) if read in made]
        return bool(met) and reads.index(key) < met[0]


def line_end(sheet: Sheet, cells: Cells, begin: int, widest: float) -> int:
    """The column before which a line that starts at `begin` should break, by a guess at widths."""
    used, widest = 150.0, widest + LAST_SLACK
    widths = cells.widths([column.key for column in sheet.columns[begin : begin + 20]])
    for number in range(begin, min(begin + 20, len(sheet.columns))):
        column = sheet.columns[number]
        used += max(_guess(column), widths[column.key] + 14)
        if used > widest and number > begin:
            return number
    return min(begin + 20, len(sheet.columns))


_USUAL = {"contract": 120.0, "linear": 100.0, "softmax": 96.0, "norm": 96.0, "load": 90.0, "store": 96.0, "mask": 92.0}


def _guess(column: Column) -> float:
    return max(_USUAL.get(column.glyph, 88.0), runs_width(column.text, 14) + 56)


def draw_lines(
    pen: Pen, sheet: Sheet, cells: Cells, top: float, widest: float = WIDEST, ruled: bool = True
) -> tuple[float, float]:
    """Draw a sheet, wrapped where it is wide; returns how far it reaches to the right and down."""
    uses, carried = Uses(sheet), list[Bundle]()
    right, begin, last = 0.0, 0, False
    while not last:
        end = _after_loads(sheet, begin, line_end(sheet, cells, begin, widest))
        part, drawn, wide, low = _fitting(sheet, cells, uses, (begin, end), carried, top, widest, ruled)
        begin, last, carried = drawn.end, drawn.last, drawn.outputs
        pen.add(part)
        right, top = max(right, wide), low + (0 if last else 26)
    return right, top


def _fitting(
    sheet: Sheet, cells: Cells, uses: Uses, span: tuple[int, int], carried: list[Bundle], top: float, widest: float,
    ruled: bool,
) -> tuple[Pen, Drawn, float, float]:  # fmt: skip
    """A line of at most these columns; of fewer where it turns out too wide."""
    begin, end = span
    while True:
        part, last = Pen(), end == len(sheet.columns)
        drawn = _arranged(sheet, uses, (begin, end), carried, _entering(sheet, uses, begin, end, last), last)
        wide, low = _draw_line(part, sheet, cells, drawn, top, ruled)
        over = wide - widest - (LAST_SLACK if last else SLACK)
        shared = _shared_out(sheet, begin, end)
        if (over <= 0 or end - begin <= 1) and shared == end:
            return part, drawn, wide, low
        if over <= 0:
            end = shared
            continue
        end = _after_loads(sheet, begin, max(begin + 1, end - 1 - int(over / 160)))


def _shared_out(sheet: Sheet, begin: int, end: int) -> int:
    """The end of a line moved to the left where nothing but stores would be left for the next."""
    rest = sheet.columns[end:]
    if not rest or end - begin < 3 or any(column.glyph != "store" for column in rest):
        return end
    return _after_loads(sheet, begin, begin + -(-2 * (end - begin) // 3))


def _after_loads(sheet: Sheet, begin: int, end: int) -> int:
    """The end of a line moved to the left of loads, which belong to what follows them."""
    while end < len(sheet.columns) and end - 1 > begin and sheet.columns[end - 1].glyph == "load":
        end -= 1
    return end


def _entering(sheet: Sheet, uses: Uses, begin: int, end: int, last: bool) -> list[Source]:
    """The arrays that stand at the left of this line: those it reads first."""
    stop = end + 1 if last else end
    return [source for source in sheet.sources if begin <= min(uses.at.get(source.key, [0])) < max(stop, 1)]


def _arranged(
    sheet: Sheet, uses: Uses, span: tuple[int, int], carried: list[Bundle], fresh: list[Source], last: bool
) -> Drawn:
    line, (begin, end) = Line(), span
    stack = [_again(line, sheet, bundle) for bundle in carried] + [_bundle(line, source) for source in fresh]
    opening = line.open("margin", stack)
    placed = [arrange(line, sheet.columns[n], uses.ahead(n, end)) for n in range(begin, end)]
    wanted = list(sheet.outputs) if last else [b.key for b in line.stack if uses.after(b.key, end - 1)]
    kept = sorted((b for b in line.stack if b.key in wanted), key=lambda b: wanted.index(b.key))
    outputs = [closed_up(bundle, _axes_of(sheet, bundle)) for bundle in kept]
    hug = [strand for bundle in outputs if not bundle.rail for strand in bundle.strands[:-1]]
    closing = line.open("margin", outputs, hug=hug)
    return Drawn(line, placed, opening, closing, outputs, last, end)


def _axes_of(sheet: Sheet, bundle: Bundle) -> tuple[str, ...]:
    for column in sheet.columns:
        if bundle.key in column.axes:
            return column.axes[bundle.key]
    return bundle.axes


def _again(line: Line, sheet: Sheet, bundle: Bundle) -> Bundle:
    """An array that came from the line above."""
    strands = [line.strand(s.axis, s.level, s.kind, thin=s.thin) for s in bundle.wires]
    shown, note = sheet.name(bundle.key[0], 90, SMALL_NAME), sheet.notes.get(bundle.key[0], ())
    return Bundle(bundle.key, strands, shown, note, continued=True, rail=bundle.rail)


def _bundle(line: Line, source: Source) -> Bundle:
    strands = [line.strand(axis, source.level, thin=source.thin) for axis in source.axes]
    strands = strands or [line.strand("", source.level, "item", thin=source.thin)]
    return Bundle(source.key, strands, source.shown, source.note, rail=source.rail, warning=source.warning)


# From rows to places.


def _draw_line(pen: Pen, sheet: Sheet, cells: Cells, drawn: Drawn, top: float, ruled: bool) -> tuple[float, float]:
    keys = [placed.column.key for placed in drawn.placed]
    heights = [cells.height(row, keys, drawn.last) for row in range(len(cells.names))]
    first = top + 22 + sum(heights) + (16 if heights else 10)
    low = drawn.line.settle(first + 34)
    right = _place_columns(pen, sheet, cells, drawn)
    if not sheet.dense:
        draw_separators(pen, drawn.line)
    draw_wires(pen, drawn.line)
    right = draw_head(pen, cells, drawn, top, heights, (LEFT, right), ruled)
    return right, low + 44 + draw_brackets(pen, sheet, drawn, low + 42)


def _place_columns(pen: Pen, sheet: Sheet, cells: Cells, drawn: Drawn) -> float:
    opening = drawn.opening
    names = max((_name_width(bundle, _note_size(sheet)) for bundle in opening.stack), default=0.0)
    opening.x0 = LEFT + names + 12
    _say_names(pen, opening, LEFT + names / 2, _note_size(sheet))
    at = opening.x0 + _flags(pen, opening)
    opening.x1 = at + _labels(pen, sheet, opening, at, 24)
    x, reach = opening.x1, LEFT + cells.name_width + 14 if cells.names else 0.0
    widths = cells.widths([placed.column.key for placed in drawn.placed])
    for placed in drawn.placed:
        x, reach = _place_column(pen, sheet, widths[placed.column.key], placed, drawn, x, reach)
    return _place_outputs(pen, sheet, drawn, x)


def _place_column(
    pen: Pen, sheet: Sheet, cell: float, placed: Placed, drawn: Drawn, x: float, reach: float
) -> tuple[float, float]:
    """Put a column's glyph after x, its head after `reach`; returns both anew."""
    measure, draw, tinted = GLYPHS[placed.column.glyph]
    zone, after, column = placed.zone, placed.after, placed.column
    wide = measure(placed)
    head = max(cell, runs_width(column.head, DENSE_HEAD if sheet.dense else CELL)) / 2 + 6
    start = x + _route(drawn.line, zone, sheet.dense)
    zone.x0 = max(start, reach + head - wide / 2)
    _stretch_label(drawn.line, zone, zone.x0 - start)
    zone.x1 = zone.x0 + wide
    box = draw(pen, placed)
    if tinted and (placed.lane is not None or column.glyph != "map"):
        _tint(pen, placed, box)
    centre = (zone.x0 + zone.x1) / 2
    drawn.heads[column.key] = centre
    after.x0 = zone.x1
    at = after.x0 + _column_flag(pen, placed)
    after.x1 = at + _labels(pen, sheet, after, at, 6)
    return after.x1, centre + head + 4


def _stretch_label(line: Line, zone: Zone, extra: float) -> None:
    """Give room that a wide cell asks for to the zone before, so that curves keep their length."""
    line.zones[zone.number - 1].x1 += extra


def _route(line: Line, zone: Zone, dense: bool) -> float:
    """How much room wires need to change rows before a zone."""
    drop = max((abs(a - b) for a, b in line_moves(line, zone)), default=0.0)
    return 4.0 if drop < 0.5 else min(max(26.0, 12 + 0.42 * drop), 35.0 if dense else 60.0)


def line_moves(line: Line, zone: Zone) -> list[tuple[float, float]]:
    """From which height to which wires move on their way into a zone."""
    if not zone.moves:
        return []
    moves = []
    for strand in line.strands:
        for before, after in pairwise(strand.spans):
            if after.first == zone.number:
                moves.append((before.track.y, after.track.y))
        if strand.forked is not None and strand.spans and strand.spans[0].first == zone.number:
            moves.append((strand.forked.row(zone.number - 1), strand.spans[0].track.y))
        if strand.joins is not None and strand.joins_at == zone.number:
            moves.append((strand.row(zone.number - 1), strand.joins.row(zone.number)))
    return moves


def _tint(pen: Pen, placed: Placed, box: tuple[float, float, float, float]) -> None:
    column, zone = placed.column, placed.zone
    title = roman(column.title)
    head = 18.0 if column.title else 8.0
    region = (
        zone.x0 + 1,
        box[1] - head - (4 if column.title and column.glyph != "contract" else 3),
        zone.x1 - 1,
        box[3] + 10,
    )
    pen.draw("back", rectangle(region, 4), f"tint-{column.glyph}", str(column.key))
    if title:
        pen.say(title, (region[0] + region[2]) / 2, box[1] - 9, TITLE, "kind", family=SANS, owner=str(column.key))


# Warnings.


def _flags(pen: Pen, zone: Zone) -> float:
    """The marks on the arrays that stand at the left; how much room they take."""
    flagged = [bundle for bundle in zone.stack if bundle.warning]
    for bundle in flagged:
        y = bundle.strands[-1].row(zone.number)
        draw_flag(pen, (zone.x0 + MARK / 2, y), bundle.key[0], bundle.warning)
    return MARK if flagged else 0.0


def _column_flag(pen: Pen, placed: Placed) -> float:
    """The mark on what a column makes, on its lowest wire; how much room it takes."""
    column, after = placed.column, placed.after
    made = next((bundle for bundle in after.stack if bundle.key == column.makes[0]), None)
    if not column.warning or made is None:
        return 0.0
    draw_flag(pen, (after.x0 + MARK / 2, made.wires[-1].row(after.number)), str(column.key), column.warning)
    return MARK


# Labels and names.


def axis_runs(sheet: Sheet, bundle: Bundle, strand: Strand) -> tuple[Runs, bool]:
    """What is written on a wire in one place: its tile where a label partitions it there, else its axis,
    and whether with an overbar."""
    tile = sheet.tile(bundle.key[1], strand.axis, strand.level)
    if tile:
        return tile, False
    return sheet.axis_name(strand.axis, 80, LABEL), strand.axis in sheet.barred


def _labels(pen: Pen, sheet: Sheet, zone: Zone, x: float, pad: float) -> float:
    """Label the new wires of a zone, and those whose last label is far away; returns the zone's width."""
    for strand in (s for b in zone.stack for s in b.strands if sheet.dense and s.forked is not None):
        strand.named = strand.named or zone.kind == "label"
    again = 1e9 if sheet.dense else 300
    due = [(b, s) for b in zone.stack for s in b.strands if s.kind == "axis" and (not s.named or x - s.label_x > again)]
    if not any(not strand.named for _, strand in due):
        return 6 if sheet.dense else pad + 8
    set_runs = [(strand, *axis_runs(sheet, bundle, strand)) for bundle, strand in due]
    wide = max(runs_width(runs, LABEL) for _, runs, _ in set_runs)
    centre = x + (pad + 8) / 2 + wide / 2
    for strand, runs, barred in set_runs:
        write_label(pen, strand, runs, barred, centre, strand.row(zone.number))
        strand.named, strand.label_x = True, centre
    return wide + pad + 10


def write_label(pen: Pen, strand: Strand, runs: Runs, barred: bool, x: float, y: float) -> None:
    """An axis label above its wire."""
    pen.say(runs, x, y - 6, LABEL, f"label-{strand.level}", owner=strand.axis)
    if barred:
        left = x - runs_width(runs, LABEL) / 2
        overbar(pen, runs, left, y - 6, LABEL, f"bar-{strand.level}", strand.axis)


def overbar(pen: Pen, runs: Runs, left: float, y: float, size: float, role: str, owner: str) -> None:
    """A bar over the first letters of runs that begin at `left`, on the base line y."""
    wide = runs_width(runs[:1], size)
    low = all(char in "acegmnopqrsuvwxyzηι" for char in runs[0].text)
    high = y - (0.6 if low else 0.8) * size
    pen.draw("line", polyline([(left + 0.14 * wide, high), (left + 0.86 * wide, high)]), role, owner)


def _note_size(sheet: Sheet) -> float:
    return DENSE_NOTE if sheet.dense else NOTE


def _name_width(bundle: Bundle, note: float) -> float:
    return max(runs_width(bundle.shown, _name_size(bundle)), runs_width(bundle.note, note, SANS))


def _name_size(bundle: Bundle) -> float:
    return SMALL_NAME if bundle.continued or runs_width(bundle.shown, NAME) > 60 else NAME


def _say_names(pen: Pen, zone: Zone, x: float, note: float) -> None:
    for bundle in zone.stack:
        rows = [strand.row(zone.number) for strand in bundle.strands]
        size = _name_size(bundle)
        y = (rows[0] + rows[-1]) / 2 + size * 0.3
        role = "head" if bundle.continued else "name"
        pen.say(bundle.shown, x, y, size, role, owner=bundle.key[0])
        pen.say(bundle.note, x, y + 4.5 + note, note, "format", family=SANS, owner=bundle.key[0])


def _place_outputs(pen: Pen, sheet: Sheet, drawn: Drawn, x: float) -> float:
    closing = drawn.closing
    closing.x0 = x + _route(drawn.line, closing, sheet.dense)
    for bundle in closing.stack:
        for strand in bundle.strands:
            strand.named = strand.named and x - strand.label_x < 60
    closing.x1 = closing.x0 + _labels(pen, sheet, closing, closing.x0, 20)
    for bundle in closing.stack:
        bundle.note, bundle.continued = sheet.notes.get(bundle.key[0], ()), not drawn.last
        name = bundle.key[0]
        bundle.shown = sheet.end_name(name) if drawn.last else sheet.name(name, 90, SMALL_NAME)
    wide = max((runs_width(b.shown, _name_size(b)) for b in closing.stack), default=0.0)
    _say_names(pen, closing, closing.x1 + 10 + wide / 2, _note_size(sheet))
    return closing.x1 + 10 + wide + 12
