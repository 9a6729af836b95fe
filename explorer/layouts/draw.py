"""Pictures of layouts: tables as text, and SVG with lanes and registers or with banks in colour.

A memory layout is drawn over its coordinates, a thread-value layout over the tile it covers. Knows
layouts and 32 banks of 4 bytes; no instruction and no program.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from xml.sax.saxutils import escape

from ir.layout.errors import LayoutError
from ir.layout.layout import Layout
from ir.layout.swizzle import AnyLayout

BANKS, BANK_BITS = 32, 32
MOST_CELLS = 1 << 16
LANES = 32
_FONT = "font-family='DejaVu Sans Mono, Menlo, Consolas, monospace'"
_MARGIN, _TITLE, _LEGEND = 34, 30, 34


@dataclass(frozen=True, slots=True)
class Cell:
    """What stands at (row, column), and a colour number out of `colours`; None is left empty."""

    text: str
    colour: int


Grid = list[list[Cell | None]]


def table(layout: AnyLayout) -> str:
    """Offsets as text: mode 0 down, the other modes across; one mode is written across.

    Raises LayoutError (extent) for more than 65,536 coordinates.
    """
    rows, columns = _extents(layout)
    values = layout.offsets().reshape(columns, rows).T
    width = max(len(str(values.max())), len(str(values.min())), len(str(columns - 1)))
    lead = len(str(rows - 1))
    head = " " * lead + " | " + " ".join(f"{column:>{width}}" for column in range(columns))
    lines = [str(layout), head, "-" * (lead + 1) + "+" + "-" * (len(head) - lead - 2)]
    for number, row in enumerate(values.tolist()):
        lines.append(f"{number:>{lead}} | " + " ".join(f"{value:>{width}}" for value in row))
    return "\n".join(lines)


def _extents(layout: AnyLayout) -> tuple[int, int]:
    """(rows, columns) of the drawing of a layout."""
    if layout.size > MOST_CELLS:
        raise LayoutError("extent", f"{layout.size} coordinates to draw, {MOST_CELLS} are readable")
    inner = layout if isinstance(layout, Layout) else layout.layout
    rows = inner.mode(0).size if inner.rank > 1 else 1
    return rows, layout.size // rows


def memory_svg(layout: AnyLayout, element_bits: int = 16) -> str:
    """Offsets (in elements of `element_bits`) at their coordinates, coloured by bank.

    Raises LayoutError (extent) for more than 65,536 coordinates or elements below 4 bits.
    """
    if element_bits < 4:
        raise LayoutError("extent", f"elements of {element_bits} bits: at least 4")
    rows, columns = _extents(layout)
    values = layout.offsets().reshape(columns, rows).T
    banks = values * element_bits // BANK_BITS % BANKS
    grid: Grid = [
        [Cell(str(v), int(bank)) for v, bank in zip(row, line, strict=True)]
        for row, line in zip(values.tolist(), banks, strict=True)
    ]
    about = f"{layout}   {element_bits}-bit elements, colour: bank"
    return _svg(grid, about, BANKS, "bank")


def thread_svg(layout: Layout, tile: tuple[int, int]) -> str:
    """A thread-value layout over its tile of (rows, columns), coloured by lane.

    Each element shows its thread (T) and the number of its value (V) there; of several owners the
    first, with a +. Raises LayoutError: rank without the two modes, extent for what lies outside.
    """
    if layout.rank != 2:
        raise LayoutError("rank", f"{layout} has {layout.rank} modes: (thread, value) are 2")
    rows, columns = tile
    if layout.size > MOST_CELLS or any(stride < 0 for _, stride in layout.flat()):
        raise LayoutError(
            "extent", f"{layout}: {layout.size} values to draw, {MOST_CELLS} from 0 on are readable"
        )
    if rows < 1 or columns < 1 or layout.cosize > rows * columns or rows * columns > MOST_CELLS:
        raise LayoutError(
            "extent", f"{layout} reaches index {layout.cosize - 1} of a {rows} x {columns} tile"
        )
    threads = layout.mode(0).size
    grid: Grid = [[None] * columns for _ in range(rows)]
    for index, place in enumerate(layout.offsets().tolist()):
        value, thread = divmod(index, threads)
        row, column = place % rows, place // rows
        had = grid[row][column]
        text = f"T{thread} V{value}" if had is None else had.text.rstrip("+") + "+"
        grid[row][column] = Cell(text, thread % LANES if had is None else had.colour)
    about = f"{layout}   tile {rows} x {columns}, colour: lane (thread mod {LANES})"
    return _svg(grid, about, LANES, "lane")


# -- SVG


def _svg(grid: Grid, about: str, colours: int, what: str) -> str:
    longest = max((len(c.text) for row in grid for c in row if c is not None), default=1)
    wide, high = max(24, 6 * longest + 8), 20
    columns = len(grid[0])
    width = max(_MARGIN + columns * wide + 8, 7 * len(about) + 16, colours * 18 + 60)
    height = _TITLE + 18 + len(grid) * high + _LEGEND
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' "
        f"viewBox='0 0 {width} {height}'>",
        f"<title>{escape(about)}</title>",
        f"<rect width='{width}' height='{height}' fill='white'/>",
        _text(8, 19, about, 11, "start"),
        *_headings(len(grid), columns, wide, high),
        *_cells(grid, wide, high),
        *_legend(colours, what, height - 20),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _headings(rows: int, columns: int, wide: int, high: int) -> Iterator[str]:
    for column in range(columns):
        yield _text(_MARGIN + column * wide + wide / 2, _TITLE + 12, str(column), 9, "middle")
    for row in range(rows):
        yield _text(_MARGIN - 5, _TITLE + 18 + row * high + 14, str(row), 9, "end")


def _cells(grid: Grid, wide: int, high: int) -> Iterator[str]:
    for number, row in enumerate(grid):
        y = _TITLE + 18 + number * high
        for column, cell in enumerate(row):
            x = _MARGIN + column * wide
            fill = _colour(cell.colour) if cell else "#ffffff"
            yield (
                f"<rect x='{x}' y='{y}' width='{wide}' height='{high}' fill='{fill}' "
                f"stroke='#888' stroke-width='0.5'/>"
            )
            if cell:
                yield _text(x + wide / 2, y + 14, cell.text, 9, "middle")


def _legend(colours: int, what: str, y: float) -> Iterator[str]:
    yield _text(8, y + 11, what, 10, "start")
    for number in range(colours):
        x = 48 + number * 18
        yield f"<rect x='{x}' y='{y}' width='18' height='15' fill='{_colour(number)}'/>"
        yield _text(x + 9, y + 11, str(number), 8, "middle")


def _text(x: float, y: float, text: str, size: int, anchor: str) -> str:
    return (
        f"<text x='{x:g}' y='{y:g}' font-size='{size}' text-anchor='{anchor}' {_FONT}>"
        f"{escape(text)}</text>"
    )


def _colour(number: int) -> str:
    """32 light colours, neighbours far apart: eight hues, four shades."""
    hue = (number % 8) * 45 + (number // 8) * 11
    return _hex(hue % 360, 0.65, (0.86, 0.74, 0.80, 0.68)[number // 8 % 4])


def _hex(hue: float, saturation: float, lightness: float) -> str:
    reach = saturation * min(lightness, 1 - lightness)

    def channel(shift: int) -> int:
        k = (shift + hue / 30) % 12
        return round(255 * (lightness - reach * max(-1.0, min(k - 3, 9 - k, 1.0))))

    return "#" + "".join(f"{channel(shift):02x}" for shift in (0, 8, 4))
