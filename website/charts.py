"""The two kinds of charts of the gallery, as SVG files: points beside names, and courses.

Built from the axes and marks of the reports. Knows numbers and words; nothing of experiments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from website import svg
from website.svg import Axis

WIDTH = 760.0
_LETTER = 6.3  # pixels of a letter of a label
_BOLD = 7.2  # of a name
_ROW, _HEAD, _FOOT = 17.0, 40.0, 44.0
_COLOURS = (("#1f6fb4", "#6cb2ec"), ("#c65d16", "#f0a066"), ("#6b7280", "#a3a9b4"),
            ("#2f855a", "#74c69d"))  # fmt: skip
_FONT = "font:12px system-ui,-apple-system,'Segoe UI',sans-serif"


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a chart of points: its name, and a value for each series (None: there is none)."""

    name: str
    values: tuple[float | None, ...]


def points(
    rows: Sequence[Row], series: Sequence[str], title: str, *, even: float | None = 1.0
) -> str:
    """Values beside the names of their rows, on a logarithmic axis; a line stands at `even`.

    Of one series each value is written beside its point.
    """
    shown = [value for row in rows for value in row.values if value is not None]
    ends = [*shown, *([even] if even is not None else [])]
    left = 24 + _LETTER * max(len(row.name) for row in rows)
    across = Axis(min(ends) / 1.08, max(ends) * 1.08, left, WIDTH - 64, log=True)
    bottom = _HEAD + _ROW * len(rows)
    parts = _legend(series, left) + _scale(across, _HEAD - 4, bottom, title)
    if even is not None:
        parts.append(svg.line(across.at(even), _HEAD - 4, across.at(even), bottom, "even"))
    for number, row in enumerate(rows):
        y = _HEAD + _ROW * (number + 0.5)
        parts.append(svg.text(left - 12, y + 4, row.name, "", "end"))
        for place, value in enumerate(row.values):
            if value is not None:
                parts.append(svg.dot(across.at(value), y, f"s{place}", radius=4))
                if len(series) == 1:
                    parts.append(svg.text(WIDTH - 56, y + 4, number_text(value), "tick"))
    return _file(bottom + _FOOT, parts, title)


def courses(lines: Mapping[str, Sequence[tuple[float, float]]], titles: tuple[str, str]) -> str:
    """A line for each name through its points; the horizontal axis is logarithmic.

    The first line has the first colour, the second the second, and all others the third: names
    stand at the ends.
    """
    every = [point for line in lines.values() for point in line]
    height, right = 380.0, WIDTH - 24 - _BOLD * max(map(len, lines))
    xs, ys = sorted({x for x, _ in every}), [y for _, y in every]
    across = Axis(xs[0], xs[-1], 64, right, log=True)
    margin = (max(ys) - min(ys)) * 0.06
    up = Axis(min(ys) - margin, max(ys) + margin, height - 48, 34)
    parts = svg.grid(_Given(across, xs), up, number_text, number_text, titles)  # type: ignore[arg-type]
    places = apart([up.at(line[-1][1]) for line in lines.values()], 15)
    for number, ((name, line), place) in enumerate(zip(lines.items(), places, strict=True)):
        style = f"s{min(number, 2)}"
        drawn = [(across.at(x), up.at(y)) for x, y in line]
        parts.append(svg.path(drawn, f"course {style}"))
        parts += [svg.dot(x, y, style) for x, y in drawn]
        parts.append(svg.text(right + 10, place + 4, name, f"name {style}"))
    return _file(height, parts, f"{titles[1]} by {titles[0]}")


@dataclass(frozen=True, slots=True)
class _Given:
    """An axis with ticks at the values that were measured."""

    axis: Axis
    values: Sequence[float]

    @property
    def start(self) -> float:
        return self.axis.start

    @property
    def end(self) -> float:
        return self.axis.end

    def at(self, value: float) -> float:
        return self.axis.at(value)

    def ticks(self) -> Sequence[float]:
        return self.values


def apart(places: Sequence[float], least: float) -> list[float]:
    """The places, moved so that any two are `least` apart, in their order.

    >>> apart([10.0, 12.0, 40.0], 15)
    [3.5, 18.5, 40.0]
    """
    order = sorted(range(len(places)), key=places.__getitem__)
    found = [places[number] for number in order]
    for _ in range(100 * len(found)):
        near = [n for n, (a, b) in enumerate(pairwise(found)) if b - a < least - 1e-9]
        if not near:
            break
        middle = (found[near[0]] + found[near[0] + 1]) / 2
        found[near[0]], found[near[0] + 1] = middle - least / 2, middle + least / 2
    back = dict(zip(order, found, strict=True))
    return [round(back[number], 1) for number in range(len(places))]


def number_text(value: float) -> str:
    """Three significant digits, of large numbers all before the point."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _legend(series: Sequence[str], x: float) -> list[str]:
    parts: list[str] = []
    if len(series) < 2:
        return parts
    for number, name in enumerate(series):
        parts += [svg.dot(x + 4, 14, f"s{number}", radius=4), svg.text(x + 14, 18, name)]
        x += 34 + _LETTER * len(name)
    return parts


def _scale(across: Axis, top: float, bottom: float, title: str) -> list[str]:
    """Grid lines with their values below, and what they are."""
    parts = []
    for value in across.ticks():
        x = across.at(value)
        parts.append(svg.line(x, top, x, bottom, "grid"))
        parts.append(svg.text(x, bottom + 16, number_text(value), "tick", "middle"))
    middle = (across.start + across.end) / 2
    return [*parts, svg.text(middle, bottom + 35, title, "name", "middle")]


def _file(height: float, parts: Sequence[str], label: str) -> str:
    """A file of its own, in the colours that the reader's system asks for."""
    drawn = svg.figure(WIDTH, math.ceil(height), [f"<style>{_style()}</style>", *parts], label)
    size = f'xmlns="http://www.w3.org/2000/svg" width="{WIDTH:g}" height="{math.ceil(height)}"'
    return drawn.replace("<svg ", f"<svg {size} ", 1) + "\n"


def _style() -> str:
    light, dark = ([pair[way] for pair in _COLOURS] for way in (0, 1))
    return (
        f"{_colours('#222', '#dde1e6', light)}"
        f"text{{{_FONT}}}.name{{font-weight:600}}.tick{{opacity:.75}}"
        ".course{fill:none;stroke-width:2}line.even{stroke-width:1.5}"
        f"@media (prefers-color-scheme:dark){{{_colours('#e4e6ea', '#3a3f47', dark)}}}"
    )


def _colours(ink: str, lines: str, series: Sequence[str]) -> str:
    marks = "".join(
        f"circle.s{n},text.s{n}{{fill:{colour}}}path.s{n}{{stroke:{colour}}}"
        for n, colour in enumerate(series)
    )
    return f"text{{fill:{ink}}}.grid,.axis{{stroke:{lines}}}.even{{stroke:{ink}}}{marks}"
