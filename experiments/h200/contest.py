"""Competitors on one GPU, timed turn by turn.

Knows runs on operand sets, and nothing of schedules or results. Two ways: graphs of many runs over
operand sets that together exceed the L2 cache; single launches behind a flush of that cache.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

BLOCK_SECONDS = 2e-3
BLOCKS = 64
LEAST_BLOCKS = 24
CONTEST_SECONDS = 6.0
WARM_SECONDS = 0.5  # power and clocks settle
FLUSH_BYTES = 256 << 20
Run = Callable[[], Any]


def event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


@dataclass
class Side:
    """One competitor: `runs` has a run for each operand set."""

    name: str
    runs: list[Run]
    graph: Any = None
    count: int = 0
    samples: list[float] = field(default_factory=list)
    cold: list[float] = field(default_factory=list)

    def prepare(self) -> None:
        """Warm up, and capture enough runs for one block."""
        stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(stream):
            for run in self.runs[:3]:
                run()
            stream.synchronize()
            start, end = event(), event()
            start.record(stream)
            for number in range(4):
                self.runs[number % len(self.runs)]()
            end.record(stream)
            stream.synchronize()
        seconds = start.elapsed_time(end) * 1e-3 / 4
        self.count = max(len(self.runs), min(200, math.ceil(BLOCK_SECONDS / max(seconds, 1e-6))))
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            for number in range(self.count):
                self.runs[number % len(self.runs)]()

    def block(self) -> float:
        start, end = event(), event()
        start.record()
        self.graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3 / self.count


def interleaved(sides: list[Side], blocks: int = BLOCKS) -> None:
    """Fill the samples of all sides in turns that go forth and back; fewer if blocks are long."""
    for side in sides:
        if side.graph is None:
            side.prepare()
    began, warm, turn = time.monotonic(), 0, 0.0
    while warm < 2 or time.monotonic() - began < WARM_SECONDS:
        turn = sum(side.block() * side.count for side in _order(sides, warm))
        warm += 1
    count = min(blocks, max(LEAST_BLOCKS, int(CONTEST_SECONDS / turn)))
    for number in range(count):
        for side in _order(sides, number):
            side.samples.append(side.block())


def flushed(sides: list[Side], blocks: int = BLOCKS) -> None:
    """Fill the cold samples: single launches, each behind a write that empties the L2 cache."""
    rest = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    for number in range(blocks + 2):
        for side in _order(sides, number):
            start, end = event(), event()
            rest.zero_()
            start.record()
            side.runs[number % len(side.runs)]()
            end.record()
            end.synchronize()
            if number > 1:
                side.cold.append(float(start.elapsed_time(end)) * 1e-3)


def _order(sides: list[Side], number: int) -> list[Side]:
    return sides if number % 2 else sides[::-1]


def spread(samples: list[float]) -> float:
    """Between the quartiles, over the median."""
    low, middle, high = statistics.quantiles(samples, n=4)
    return (high - low) / middle


def time_row(case: str, ours: Side, peer: Side, cold: bool = False, **more: Any) -> dict[str, Any]:
    """Medians and their ratio; `paired_ratio` is the median of the ratios turn by turn."""
    mine, theirs = (side.cold if cold else side.samples for side in (ours, peer))
    middle, other = statistics.median(mine), statistics.median(theirs)
    pairs = [b / a for a, b in zip(mine, theirs, strict=True)]
    return {
        "case": case, "metric": "time, L2 flushed" if cold else "time", "unit": "us",
        "ours": middle * 1e6, "peer": peer.name, "peer_value": other * 1e6,
        "ratio": other / middle, "spread": spread(mine), "peer_spread": spread(theirs),
        "paired_ratio": statistics.median(pairs), "paired_spread": spread(pairs),
        "blocks": len(mine), **more,
    }  # fmt: skip
