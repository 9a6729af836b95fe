"""The charts of pages, as options of Apache ECharts: plain data, which `draw.js` gives the library.

Each is one function from numbers to a mapping that JSON can hold; tips are text, never markup.
Nothing here reads the store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from explorer.report.units import TimeUnit, rate
from explorer.roofline import Roofline

Option = dict[str, Any]
ACCENT, MARK, BAD, SOFT = "#0b8fc4", "#7fa9bd", "#d0503a", "#8a949b"
WARM, COOL = "#d0503a", "#0b6e99"
SPREAD = 40.0  # slowest time shown, in times of the best; slower ones stand at the edge
_NARROW = 4.0  # times the least value: an axis of that range or less is linear
_ROW = 26  # pixels of a line of a chart that lists things


@dataclass(frozen=True, slots=True)
class Mark:
    """One trial: where it stands along the axis, its time (None: it failed), what to say of it, and
    whether its time is in doubt."""

    x: float
    seconds: float | None
    tip: str
    doubted: bool = False


@dataclass(frozen=True, slots=True)
class Interval:
    """A finalist: its median, and the ends of the interval around it."""

    name: str
    median: float
    low: float
    high: float
    best: bool


@dataclass(frozen=True, slots=True)
class Dimension:
    """An axis of parallel coordinates: a decision and the values that were tried, in order."""

    name: str
    values: tuple[str, ...]


def option(label: str, height: int = 300, **parts: Any) -> Option:
    """What all charts have; `label` says it to those who cannot see it, `height` is in pixels."""
    return {
        "height": height,
        "option": {
            "animation": False,
            "backgroundColor": "transparent",
            "aria": {"enabled": True, "label": {"description": label}},
            "tooltip": {"renderMode": "richText", "confine": True, "formatter": "{b}"},
            "grid": {"left": 12, "right": 24, "top": 36, "bottom": 34, "containLabel": True},
            **parts,
        },
    }


def _axis(name: str, values: Sequence[float], middle: bool = False) -> Option:
    """Logarithmic where values are far apart. `middle` puts the name below a horizontal axis."""
    low, high = min(values), max(values)
    wide = low > 0 and high > _NARROW * low
    above = {"nameLocation": "end", "nameTextStyle": {"align": "left"}}
    named = {"nameLocation": "middle", "nameGap": 28} if middle else above
    kind = {"type": "log", "logBase": 10 if high > 1000 * low else 2} if wide else {"type": "value"}
    return {"name": name, "scale": True, **kind, **named, "axisLabel": {"hideOverlap": True}}


def _dots(data: list[Option], color: str, **more: Any) -> Option:
    return {"type": "scatter", "symbolSize": 6, "data": data, "itemStyle": {"color": color}, **more}


def course(marks: Sequence[Mark], unit: TimeUnit, title: str) -> Option:
    """Every trial as a dot, failures as ticks below, the best so far as a line."""
    right = [(mark, mark.seconds) for mark in marks if mark.seconds is not None]
    least = min((seconds for _, seconds in right), default=1.0)
    top = least * SPREAD
    times = [min(seconds, top) / unit.scale for _, seconds in right] or [1.0]
    found = {
        doubted: [
            {"name": mark.tip, "value": [mark.x, min(seconds, top) / unit.scale]}
            for mark, seconds in right
            if mark.doubted is doubted
        ]
        for doubted in (False, True)
    }
    floor = min(times) / (1.15 if max(times) > _NARROW * min(times) else 1.03)
    failed = [{"name": m.tip, "value": [m.x, floor]} for m in marks if m.seconds is None]
    hollow = {"itemStyle": {"color": "transparent", "borderColor": MARK, "borderWidth": 1}}
    return option(
        f"best time by {title}",
        xAxis={"type": "value", "name": title, "nameLocation": "middle", "nameGap": 28,
               "splitLine": {"show": False}},
        yAxis=_axis(f"time, {unit.name}", [*times, floor]),
        series=[
            _dots(found[False], MARK, name="right"),
            _dots(found[True], MARK, name="in doubt") | hollow,
            _dots(failed, BAD, name="failed", symbol="rect") | {"symbolSize": [2, 9]},
            best_line(right, max((mark.x for mark in marks), default=0.0), unit),
        ],
    )  # fmt: skip


def best_line(right: Sequence[tuple[Mark, float]], end: float, unit: TimeUnit) -> Option:
    """The best so far as stairs to the end of the axis."""
    stairs: list[list[float]] = []
    for mark, seconds in right:
        if not stairs or seconds / unit.scale < stairs[-1][1]:
            stairs.append([mark.x, seconds / unit.scale])
    if stairs:
        stairs.append([end, stairs[-1][1]])
    return {
        "type": "line", "name": "best so far", "step": "end", "symbol": "none", "data": stairs,
        "lineStyle": {"color": ACCENT, "width": 2.5}, "silent": True,
    }  # fmt: skip


def courses(lines: Mapping[str, Sequence[tuple[float, float]]], title: str) -> Option:
    """Several searches in one chart: (x, best so far over its end) of each, as stairs."""
    values = [y for line in lines.values() for _, y in line] or [1.0]
    series = [
        {"type": "line", "name": name, "step": "end", "symbol": "none",
         "data": [list(point) for point in line]}
        for name, line in lines.items()
    ]  # fmt: skip
    return option(
        f"best so far of each job by {title}",
        340,
        legend={"type": "scroll", "bottom": 0},
        grid={"left": 12, "right": 24, "top": 36, "bottom": 64, "containLabel": True},
        tooltip={"renderMode": "richText", "confine": True, "trigger": "axis"},
        xAxis={"type": "value", "name": title, "nameLocation": "middle", "nameGap": 26},
        yAxis=_axis("time over the job's best", values),
        series=series,
    )


def shares(values: Mapping[str, float]) -> Option:
    """Horizontal bars of shares, the largest first."""
    return option(
        "importance of decisions",
        60 + _ROW * len(values),
        tooltip={"renderMode": "richText", "confine": True, "formatter": "{b}: {c} %"},
        grid={"left": 12, "right": 70, "top": 8, "bottom": 34, "containLabel": True},
        xAxis={"type": "value", "name": "% of the variation", "nameLocation": "middle",
               "nameGap": 26},
        yAxis={"type": "category", "inverse": True, "data": list(values)},
        series=[{
            "type": "bar", "itemStyle": {"color": ACCENT}, "barMaxWidth": 16,
            "data": [round(100 * value, 1) for value in values.values()],
            "label": {"show": True, "position": "right", "formatter": "{c} %"},
        }],
    )  # fmt: skip


def together(names: Sequence[str], pairs: Mapping[tuple[str, str], float]) -> Option:
    """What pairs of decisions explain beyond what both do apart: a square with a cell for each."""
    cells: list[Option] = []
    for (one, two), share in pairs.items():
        across, up = sorted((names.index(one), names.index(two)))
        cells.append({"name": f"{one} with {two}: {share:.1%}",
                      "value": [across, up, round(100 * share, 2)]})  # fmt: skip
    most = max((cell["value"][2] for cell in cells), default=0.0)
    return option(
        "interactions of decisions",
        120 + 30 * len(names),
        grid={"left": 12, "right": 24, "top": 8, "bottom": 60, "containLabel": True},
        xAxis={"type": "category", "data": list(names), "axisLabel": {"rotate": 40}},
        yAxis={"type": "category", "data": list(names), "inverse": True},
        visualMap={"min": 0, "max": most or 1.0, "orient": "horizontal", "left": "center",
                   "bottom": 0, "itemHeight": 90, "text": [f"{most:.1f} %", "0"],
                   "inRange": {"color": ["#eef3f5", COOL]}},
        series=[{"type": "heatmap", "data": cells}],
    )  # fmt: skip


def strip(name: str, groups: Mapping[str, Sequence[float]], unit: TimeUnit) -> Option:
    """Times by value of one decision: a dot for each trial, a bar at the best."""
    times = [seconds / unit.scale for group in groups.values() for seconds in group]
    dots = [
        {"name": f"{name} = {value}: {unit.text(seconds)}",
         "value": [value, seconds / unit.scale]}
        for value, group in groups.items()
        for seconds in group
    ]  # fmt: skip
    best = [
        {"name": f"best with {value}: {unit.text(min(group))}",
         "value": [value, min(group) / unit.scale]}
        for value, group in groups.items()
        if group
    ]  # fmt: skip
    return option(
        f"times by {name}",
        210,
        title={"text": name, "textStyle": {"fontSize": 13}, "left": 8},
        xAxis={"type": "category", "data": list(groups), "jitter": 22,
               "axisLabel": {"hideOverlap": True, "width": 90, "overflow": "truncate"}},
        yAxis=_axis("", times),
        series=[
            _dots(dots, MARK) | {"symbolSize": 4},
            _dots(best, ACCENT, symbol="rect") | {"symbolSize": [26, 3]},
        ],
    )  # fmt: skip


def parallel(
    dimensions: Sequence[Dimension],
    rows: Sequence[tuple[Sequence[str], float]],
    unit: TimeUnit,
) -> Option:
    """A line for each right kernel through its decisions' values to its time, fast ones in colour.

    Marking a part of an axis leaves the lines through it.
    """
    times = [seconds / unit.scale for _, seconds in rows]
    last = len(dimensions)
    axes: list[Option] = [
        {"dim": number, "name": dimension.name, "type": "category", "data": list(dimension.values)}
        for number, dimension in enumerate(dimensions)
    ]
    axes.append({"dim": last, **_axis(f"time, {unit.name}", times)})
    ordered = sorted(rows, key=lambda row: -row[1])  # the fastest are drawn last, on top
    return option(
        "decisions and times of all right kernels",
        400,
        parallelAxis=axes,
        parallel={"left": 40, "right": 120, "top": 50, "bottom": 30, "parallelAxisDefault": {
            "nameTextStyle": {"fontSize": 11}, "nameRotate": 12, "nameTruncate": {"maxWidth": 110},
            "axisLabel": {"width": 80, "overflow": "truncate"}}},
        visualMap={"show": False, "dimension": last, "min": min(times),
                   "max": sorted(times)[len(times) * 3 // 4] or 1.0,
                   "inRange": {"color": [WARM, "#c9b458", MARK], "opacity": [0.9, 0.5, 0.15]}},
        series=[{
            "type": "parallel", "lineStyle": {"width": 1.5}, "progressive": 0,
            "data": [[*values, seconds / unit.scale] for values, seconds in ordered],
        }],
    )  # fmt: skip


def roofline(roof: Roofline, marks: Sequence[Mark], best: float, unit: TimeUnit) -> Option:
    """Peak and memory as a roof over the program's intensity, trials as dots beneath it.

    `best` is the winner's time, which need not be that of a trial: finals measure better.
    """
    assert roof.peak_flops is not None
    dots = [
        {"name": f"{mark.tip}, {rate(roof.flops / mark.seconds)}",
         "value": [roof.intensity, roof.flops / mark.seconds / 1e9]}
        for mark in marks
        if mark.seconds
    ]  # fmt: skip
    won = f"best {rate(roof.flops / best)}"
    place = [roof.intensity, roof.flops / best / 1e9]
    winner = {"name": f"{won}, {unit.text(best)}", "value": place,
              "label": {"show": True, "formatter": won, "position": "right"}}  # fmt: skip
    line = {"type": "line", "symbol": "none", "data": roof_line(roof), "silent": True,
            "lineStyle": {"color": SOFT, "width": 2},
            "endLabel": {"show": True, "formatter": f"peak {rate(roof.peak_flops)}",
                         "align": "right", "verticalAlign": "bottom"}}  # fmt: skip
    name = "operations for each byte of memory"
    return option(
        "roofline",
        xAxis={"type": "log", "name": name, "nameLocation": "middle", "nameGap": 28},
        yAxis={"type": "log", "name": "GFLOP/s"},
        series=[line, _dots(dots, MARK), _dots([winner], ACCENT) | {"symbolSize": 11}],
    )


def roof_line(roof: Roofline) -> list[list[float]]:
    """Corners of the roof, in operations for each byte and GFLOP/s."""
    assert roof.peak_flops is not None
    top = roof.peak_flops / 1e9
    if not roof.peak_bytes:
        return [[roof.intensity / 8, top], [roof.intensity * 8, top]]
    ridge = roof.peak_flops / roof.peak_bytes
    low, high = min(roof.intensity, ridge) / 8, max(roof.intensity, ridge) * 8
    return [[low, low * roof.peak_bytes / 1e9], [ridge, top], [high, top]]


def intervals(finalists: Sequence[Interval], unit: TimeUnit) -> Option:
    """Medians with their intervals, one line each, the fastest first."""
    bars: list[Option] = [
        {"type": "line", "symbol": "none", "silent": True, "lineStyle": {"color": SOFT, "width": 2},
         "data": [[one.low / unit.scale, place], [one.high / unit.scale, place]]}
        for place, one in enumerate(finalists)
    ]  # fmt: skip
    dots = [
        {"name": f"{one.name}: {unit.text(one.median)}", "value": [one.median / unit.scale, place],
         "itemStyle": {"color": ACCENT if one.best else MARK},
         "label": {"show": True, "position": "top", "formatter": unit.text(one.median)}}
        for place, one in enumerate(finalists)
    ]  # fmt: skip
    return option(
        "finalists with intervals",
        80 + 36 * len(finalists),
        grid={"left": 12, "right": 60, "top": 16, "bottom": 34, "containLabel": True},
        xAxis=_axis(unit.name, [one.low for one in finalists] or [1.0], middle=True)
        | {"type": "value"},
        yAxis={"type": "category", "inverse": True, "data": [one.name for one in finalists]},
        series=[*bars, _dots(dots, MARK) | {"symbolSize": 11}],
    )


def accuracy(rows: Sequence[tuple[float, float, float, float]]) -> Option:
    """The model over a search: (trial, rank correlation, regret, the prior's share) by batch."""
    told = ("rank correlation", "regret - 1", "the prior's share")
    colors = (ACCENT, BAD, SOFT)
    series = [
        {"type": "line", "name": name, "symbolSize": 5, "itemStyle": {"color": color},
         "data": [[row[0], round(row[number] - (number == 2), 4)] for row in rows]}
        for number, (name, color) in enumerate(zip(told, colors, strict=True), start=1)
    ]  # fmt: skip
    return option(
        "accuracy of the model by trial",
        260,
        legend={"bottom": 0},
        grid={"left": 12, "right": 24, "top": 16, "bottom": 62, "containLabel": True},
        tooltip={"renderMode": "richText", "confine": True, "trigger": "axis"},
        xAxis={"type": "value", "name": "trial", "nameLocation": "middle", "nameGap": 24},
        yAxis={"type": "value"},
        series=series,
    )
