"""Axes and marks of small charts, as SVG text. Colours are classes that the page's style defines.

Knows numbers and pixels; nothing of jobs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

Text = Callable[[float], str]
FEW = 7  # ticks of an axis, about


@dataclass(frozen=True, slots=True)
class Axis:
    """Values from `low` to `high` on pixels from `start` to `end`; logarithmic if `log`.

    It has room for about `few` ticks.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    few: int = FEW

    def at(self, value: float) -> float:
        """The pixel of a value; what lies outside is drawn at the edge."""
        value = min(max(value, self.low), self.high)
        low, high = self._scaled(self.low), self._scaled(self.high)
        share = (self._scaled(value) - low) / (high - low) if high > low else 0.5
        return round(self.start + share * (self.end - self.start), 1)

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def ticks(self) -> list[float]:
        """Round values within the axis."""
        make = _log_ticks if self.log else _ticks
        return make(self.low, self.high, self.few)


def _ticks(low: float, high: float, few: int) -> list[float]:
    span = (high - low) or 1.0
    rough = span / few
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * unit for unit in (1, 2, 5, 10) if power * unit >= rough)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def _log_ticks(low: float, high: float, few: int) -> list[float]:
    """1, 2 and 5 of each decade; of many decades only the powers; of a narrow range round steps."""
    found = _log_values(low, high)
    if len(found) < 3:
        return [value for value in _ticks(low, high, few) if value > 0]
    return found[:: math.ceil(len(found) / (few + 2))]


def _log_values(low: float, high: float) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    units = (1, 2, 5) if len(decades) <= 4 else (1,)
    found = [unit * 10.0**decade for decade in decades for unit in units]
    return [value for value in found if low * 0.999 <= value <= high * 1.001]


def figure(width: float, height: float, parts: Iterable[str], label: str) -> str:
    """A whole chart, which scales with the page; `label` is for those who cannot see it."""
    body = "\n".join(parts)
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}">\n'
        f"{body}\n</svg>"
    )


def text(x: float, y: float, words: str, style: str = "", anchor: str = "start") -> str:
    shown = f' class="{style}"' if style else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{shown}>{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" class="{style}"/>'


def dot(x: float, y: float, style: str, tip: str = "", radius: float = 3) -> str:
    title = f"<title>{escape(tip)}</title>" if tip else ""
    return f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" class="{style}">{title}</circle>'


def bar(x: float, y: float, width: float, height: float, style: str, tip: str = "") -> str:
    title = f"<title>{escape(tip)}</title>" if tip else ""
    size = f'width="{max(0.0, width):g}" height="{height:g}"'
    return f'<rect x="{x:g}" y="{y:g}" {size} class="{style}" rx="2">{title}</rect>'


def path(points: Sequence[tuple[float, float]], style: str) -> str:
    """Straight lines through pixels."""
    steps = " L".join(f"{x:g} {y:g}" for x, y in points)
    return f'<path d="M{steps}" class="{style}"/>'


def grid(
    across: Axis, up: Axis, across_text: Text, up_text: Text, titles: tuple[str, str]
) -> list[str]:
    """Grid lines with their values, and what the axes are: below, and above on the left."""
    parts = []
    for value in up.ticks():
        y = up.at(value)
        parts.append(line(across.start, y, across.end, y, "grid"))
        parts.append(text(across.start - 8, y + 4, up_text(value), "tick", "end"))
    for value in across.ticks():
        x = across.at(value)
        parts.append(line(x, up.start, x, up.start + 4, "axis"))
        parts.append(text(x, up.start + 18, across_text(value), "tick", "middle"))
    parts.append(line(across.start, up.start, across.end, up.start, "axis"))
    parts.append(text((across.start + across.end) / 2, up.start + 36, titles[0], "name", "middle"))
    parts.append(text(across.start, up.end - 10, titles[1], "name"))
    return parts
