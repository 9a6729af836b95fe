"""How a machine's peaks are named where facts are kept: rates of engines, bandwidths of levels.

A peak is a number by a name, so that jobs and records carry it as they carry other facts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_RATE, _BANDWIDTH, _NEARER = "rate.", "bandwidth.", "nearer."
HEADROOM = "headroom"  # how many times its peaks a machine may reach: measured ones are no limit
LEVELS = {"l2": "L2 cache", "l3": "L3 cache", "memory": "memory"}


@dataclass(frozen=True, slots=True)
class Rate:
    """Operations a second of one engine on factors of a type, summed in another."""

    engine: str
    factors: str
    accumulates: str
    per_second: float


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Bytes a second out of one level, and how many bytes may lie nearer than that already."""

    level: str
    per_second: float
    nearer: float


def rate_name(engine: str, factors: str, accumulates: str) -> str:
    """Where the rate of an engine stands among facts; no part has a dot."""
    return f"{_RATE}{engine}.{factors}.{accumulates}"


def level_facts(level: str, per_second: float, nearer: float) -> dict[str, float]:
    """The bandwidth of a level as facts."""
    return {f"{_BANDWIDTH}{level}": per_second, f"{_NEARER}{level}": nearer}


def rates_in(facts: Mapping[str, Any]) -> Iterator[Rate]:
    """Every rate among facts."""
    for name, value in facts.items():
        if name.startswith(_RATE) and value:
            engine, factors, accumulates = name.removeprefix(_RATE).split(".")
            yield Rate(engine, factors, accumulates, float(value))


def bandwidths_in(facts: Mapping[str, Any]) -> Iterator[Bandwidth]:
    """Every bandwidth among facts."""
    for name, value in facts.items():
        if name.startswith(_BANDWIDTH) and value:
            level = name.removeprefix(_BANDWIDTH)
            yield Bandwidth(level, float(value), float(facts.get(f"{_NEARER}{level}", 0)))
