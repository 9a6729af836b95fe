"""The charts of a report: the course of a search, the space, the roofline, the finalists.

Each is one function from numbers to SVG text, for a `Frame`: a page shows `WIDE` ones, or where it
is narrow `NARROW` ones, whose letters are as large. Nothing here reads the store.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from explorer.report import svg
from explorer.report.svg import FEW, Axis
from explorer.report.units import TimeUnit, rate
from explorer.roofline import Roofline

RIGHT, TOP, BOTTOM = 16, 34, 48
_LETTER = 6.5  # pixels of a letter of a tick
_BOLD = 7.5  # of a label
_SPREAD = 40.0  # slowest time shown, in times of the best; slower ones stand at the edge


@dataclass(frozen=True, slots=True)
class Frame:
    """How large a chart is, how many ticks it has room for, and whether one can point at it."""

    width: float
    height: float
    left: float  # of the first axis: room for short numbers
    names: float  # of the first axis: room for names and rates
    few: int
    pointed: bool

    def tip(self, words: str) -> str:
        return words if self.pointed else ""


WIDE = Frame(760, 300, 64, 104, FEW, True)
NARROW = Frame(360, 270, 48, 88, 4, False)


def for_both(draw: Callable[[Frame], str]) -> str:
    """A chart that is readable on wide pages and on narrow ones."""
    drawn = ((name, draw(frame)) for name, frame in (("wide", WIDE), ("narrow", NARROW)))
    return "\n".join(f'<div class="{name}">{chart}</div>' for name, chart in drawn)


@dataclass(frozen=True, slots=True)
class Mark:
    """One trial: where it stands along the axis, its time (None: it failed), what to say of it, and
    whether its time is in doubt."""

    x: float
    seconds: float | None
    tip: str
    doubted: bool = False

    @property
    def style(self) -> str:
        return "doubted" if self.doubted else "trial"


@dataclass(frozen=True, slots=True)
class Interval:
    """A finalist: its median, and the ends of the interval around it."""

    name: str
    median: float
    low: float
    high: float
    best: bool


def _times(seconds: Sequence[float], start: float, end: float, few: int = FEW) -> Axis:
    """A logarithmic axis for times of one search."""
    best = min(seconds)
    worst = min(max(seconds), best * _SPREAD)
    return Axis(best / 1.1, max(worst, best * 1.3) * 1.1, start, end, True, few)


def course(marks: Sequence[Mark], unit: TimeUnit, title: str, frame: Frame = WIDE) -> str:
    """Every trial as a dot, failures as ticks below the axis, the best so far as a line."""
    right = [(mark.x, mark.seconds) for mark in marks if mark.seconds is not None]
    end = frame.width - RIGHT
    across = Axis(0, max(mark.x for mark in marks) or 1, frame.left, end, few=frame.few)
    up = _times([seconds for _, seconds in right], frame.height - BOTTOM, TOP, frame.few)
    parts = svg.grid(across, up, lambda v: f"{v:g}", unit.short, (title, f"time, {unit.name}"))
    for mark in marks:
        x = across.at(mark.x)
        if mark.seconds is None:
            parts.append(svg.bar(x - 1, up.start - 8, 2, 8, "failed", frame.tip(mark.tip)))
        else:
            parts.append(svg.dot(x, up.at(mark.seconds), mark.style, frame.tip(mark.tip)))
    parts.append(svg.path(_steps(right, across, up), "best"))
    return svg.figure(frame.width, frame.height, parts, f"best time by {title}")


def _steps(
    points: Sequence[tuple[float, float]], across: Axis, up: Axis
) -> list[tuple[float, float]]:
    """The best so far as stairs to the end of the axis."""
    stairs: list[tuple[float, float]] = []
    best = math.inf
    for x, seconds in points:
        if seconds < best:
            if stairs:
                stairs.append((across.at(x), stairs[-1][1]))
            best = seconds
            stairs.append((across.at(x), up.at(best)))
    return [*stairs, (across.end, stairs[-1][1])]


def shares(values: Mapping[str, float], frame: Frame = WIDE) -> str:
    """Horizontal bars of shares, the largest first."""
    height = 26.0
    widest = max(values.values(), default=0.0) or 1.0
    left = 46 + frame.names
    parts = []
    for number, (name, value) in enumerate(values.items()):
        y = 8 + number * height
        width = (frame.width - left - 62) * value / widest
        tip = frame.tip(f"{name}: {value:.1%}")
        parts.append(svg.text(left - 10, y + 14, _shortened(name, left, _BOLD), "label", "end"))
        parts.append(svg.bar(left, y + 2, width, height - 9, "share", tip))
        parts.append(svg.text(left + width + 8, y + 14, f"{value:.1%}", "tick"))
    return svg.figure(frame.width, 16 + height * len(values), parts, "importance of decisions")


def strip(name: str, groups: Mapping[str, Sequence[float]], unit: TimeUnit) -> str:
    """Times by value of one decision: a dot for each trial, a bar at the best."""
    width, height = 372, 210
    across_start, across_end = 52.0, width - 10.0
    times = [seconds for group in groups.values() for seconds in group]
    up = _times(times, height - 40, 34)
    column = (across_end - across_start) / len(groups)
    parts = [svg.text(across_start, 16, name, "label")]
    for value in up.ticks():
        parts.append(svg.line(across_start, up.at(value), across_end, up.at(value), "grid"))
        parts.append(svg.text(across_start - 8, up.at(value) + 4, unit.short(value), "tick", "end"))
    every = _label_every(list(groups), column)
    for number, (choice, group) in enumerate(groups.items()):
        x = across_start + (number + 0.5) * column
        if number % every == 0:
            label = _shortened(choice, every * column)
            parts.append(svg.text(x, height - 22, label, "tick", "middle"))
        for place, seconds in enumerate(group):
            spread = (place * 0.618 % 1 - 0.5) * min(column * 0.6, 22)
            tip = f"{name} = {choice}: {unit.text(seconds)}"
            parts.append(svg.dot(round(x + spread, 1), up.at(seconds), "trial", tip, 2.2))
        half = min(column * 0.4, 16)
        if group:
            parts.append(svg.line(x - half, up.at(min(group)), x + half, up.at(min(group)), "best"))
    return svg.figure(width, height, parts, f"times by {name}")


def _label_every(values: Sequence[str], column: float) -> int:
    """Every how many columns one has room for its value: numbers are left out, words shortened."""
    if not all(value.lstrip("-").isdecimal() for value in values):
        return 1
    widest = max(len(value) for value in values) + 1
    return max(1, math.ceil(widest * _LETTER / column))


def _shortened(value: str, pixels: float, letter: float = _LETTER) -> str:
    """As much of a value as fits into a column; tooltips have all of it."""
    fits = max(2, int(pixels / letter))
    return value if len(value) <= fits else f"{value[: fits - 1]}…"


def roofline(
    roof: Roofline,
    marks: Sequence[Mark],
    best: float,
    unit: TimeUnit,
    frame: Frame = WIDE,
) -> str:
    """Peak and memory as a roof over the program's intensity, trials as dots beneath it.

    `best` is the winner's time, which need not be that of a trial: finals measure better.
    """
    assert roof.peak_flops is not None
    timed = [(mark, roof.flops / mark.seconds) for mark in marks if mark.seconds]
    rates = [roof.flops / best, *(speed for _, speed in timed)]
    ridge = roof.peak_flops / roof.peak_bytes if roof.peak_bytes else roof.intensity
    ends = sorted((roof.intensity, ridge))
    right, few = frame.width - RIGHT, frame.few
    across = Axis(ends[0] / 8, ends[1] * 8, frame.names, right, True, few)
    low, high = min(*rates, roof.peak_flops) / 3, max(*rates, roof.peak_flops) * 2
    up = Axis(low, high, frame.height - BOTTOM, TOP, True, few)
    titles = ("operations for each byte of memory", "operations a second")
    parts = svg.grid(across, up, lambda v: f"{v:g}", rate, titles)
    parts.append(svg.path(_roof(roof, across, up), "roof"))
    label = f"peak {rate(roof.peak_flops)}"
    parts.append(svg.text(across.end, up.at(roof.peak_flops) - 8, label, "label", "end"))
    x = across.at(roof.intensity)
    for mark, speed in timed:
        tip = frame.tip(unit.text(mark.seconds or 0.0))
        parts.append(svg.dot(x, up.at(speed), mark.style, tip))
    parts += _winner(x, up.at(rates[0]), f"best {rate(rates[0])}", across)
    return svg.figure(frame.width, frame.height, parts, "roofline")


def _winner(x: float, y: float, words: str, across: Axis) -> list[str]:
    """A large dot, with its words to the right of it if there is room."""
    beyond = x + 10 + _BOLD * len(words) > across.end
    side, anchor = (x - 10, "end") if beyond else (x + 10, "start")
    return [svg.dot(x, y, "winner", words, 5), svg.text(side, y + 4, words, "label", anchor)]


def _roof(roof: Roofline, across: Axis, up: Axis) -> list[tuple[float, float]]:
    assert roof.peak_flops is not None
    top = up.at(roof.peak_flops)
    if not roof.peak_bytes:
        return [(across.start, top), (across.end, top)]
    ridge = roof.peak_flops / roof.peak_bytes
    first = max(across.low, up.low / roof.peak_bytes)
    start = (across.at(first), up.at(first * roof.peak_bytes))
    return [start, (across.at(ridge), top), (across.end, top)]


def intervals(finalists: Sequence[Interval], unit: TimeUnit, frame: Frame = WIDE) -> str:
    """Medians with their intervals, one line each, the fastest first."""
    row, left, right = 30.0, frame.names, frame.width - 90
    low = min(finalist.low for finalist in finalists)
    high = max(finalist.high for finalist in finalists)
    margin = (high - low) * 0.08 or low * 0.02
    bottom = 20 + row * len(finalists)
    across = Axis(low - margin, high + margin, left, right - 10, few=frame.few)
    parts = []
    for value in across.ticks():
        parts.append(svg.line(across.at(value), 12, across.at(value), bottom, "grid"))
        parts.append(svg.text(across.at(value), bottom + 18, unit.short(value), "tick", "middle"))
    for number, finalist in enumerate(finalists):
        y = 30 + number * row
        style = "winner" if finalist.best else "other"
        parts.append(svg.text(left - 14, y + 4, finalist.name, "label", "end"))
        parts.append(svg.line(across.at(finalist.low), y, across.at(finalist.high), y, "whisker"))
        tip = frame.tip(unit.text(finalist.median))
        parts.append(svg.dot(across.at(finalist.median), y, style, tip, 5))
        parts.append(svg.text(right, y + 4, unit.text(finalist.median), "tick"))
    middle = (left + right - 10) / 2
    parts.append(svg.text(middle, bottom + 36, unit.name, "name", "middle"))
    return svg.figure(frame.width, bottom + 42, parts, "finalists with intervals")
