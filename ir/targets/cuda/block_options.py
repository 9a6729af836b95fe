"""Choices of a block kernel beside its tile: what is held, and when memory is asked for what.

A schedule from before there was such a choice means its first value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ir.columns import Decision
from ir.ops.load import Load
from ir.program import Program
from ir.schedule import Value
from ir.target import Hardware
from ir.targets.cuda.readers import loaded_late, read_again

KEEP, LOADS, PREFETCH = "keep", "loads", "prefetch"
NEEDED, FIRST = "needed", "first"

Name = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Options:
    """The choices of one schedule."""

    keep: bool
    first: bool
    prefetch: bool


def options_of(values: Mapping[str, Value], name: Name) -> Options:
    return Options(
        keep=bool(values.get(name(KEEP), False)),
        first=values.get(name(LOADS), NEEDED) == FIRST,
        prefetch=bool(values.get(name(PREFETCH), False)),
    )


def option_decisions(program: Program, hardware: Hardware, name: Name, axis: str) -> list[Decision]:
    """The choices that make a difference to this program on this card; `axis` owns them."""
    found = []

    def offer(stem: str, domain: tuple[Value, ...], group: str, why: str) -> None:
        first = domain[0]
        found.append(Decision(name(stem), domain, group, axis, why, first, before=first))

    if read_again(program):
        offer(KEEP, (False, True), "binding",
              "holding values that are read again, rather than computing them again")  # fmt: skip
    if loaded_late(program):
        offer(LOADS, (NEEDED, FIRST), "pipeline",
              "loads that no reduction waits for: where they are needed, or before all")  # fmt: skip
    if hardware["major"] >= 9 and any(isinstance(node.op, Load) for node in program.nodes):
        offer(PREFETCH, (False, True), "pipeline",
              "asking for the first tile while the kernel before still runs")  # fmt: skip
    return found
