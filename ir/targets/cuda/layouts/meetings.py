"""How threads that hold parts of one result meet, as the layout synthesis finds it.

A block's threads are posed digit by digit, each an axis of its own; axes of a result's parts are
reduced one after the other. Emits nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from ir.layout.algebra import coalesce, from_modes
from ir.layout.layout import Layout, concat
from ir.layout.synthesis import ReducePlan, Tile, TileOp, TileProgram, synthesise
from ir.targets.cuda.layouts.frame import WARP, Frame

Axes = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Meeting:
    """`lanes`: masks by which threads of a warp differ that combine what they have, one after the
    other; `across`: (weight, size) of the digits of threads that do so through shared memory."""

    lanes: tuple[int, ...]
    across: tuple[tuple[int, int], ...]


def meetings(frame: Frame, gone: Iterable[str]) -> tuple[Meeting, ...]:
    """How the parts of a sum over the axes `gone` meet, digit by digit of the frame's threads."""
    over = frozenset(gone)
    digits = tuple(
        (digit.size, any(digit.stride(axis) for axis in over)) for digit in frame.threads
    )
    return _meetings(digits) if any(summed for _, summed in digits) else ()


@lru_cache(maxsize=1024)
def _meetings(digits: tuple[tuple[int, bool], ...]) -> tuple[Meeting, ...]:
    axes: Axes = tuple((f"digit_{number}", size) for number, (size, _) in enumerate(digits))
    summed = [axis for axis, (_, gone) in zip(axes, digits, strict=True) if gone]
    team = prod(size for size, _ in digits)
    own, idle = Layout(tuple(size for size, _ in digits)), WARP // min(WARP, team)
    held = concat(from_modes([*own.flat(), (idle, 0)]), Layout(1, 0))
    one = ("one", 1)  # what is left of a tile that is reduced along all axes
    tiles = [Tile("parts", "f32", (one, *axes), "register", layout=str(held))]
    ops = [TileOp("fill", (), ("parts",), (("value", 0),))]
    for axis in summed:
        left = tuple(other for other in tiles[-1].axes if other != axis)
        facts = (("axis", axis[0]), ("fn", "sum"))
        tiles.append(Tile(f"without_{axis[0]}", "f32", left, "register"))
        ops.append(TileOp("reduce", (tiles[-2].name,), (tiles[-1].name,), facts))
    steps = synthesise(TileProgram("meetings", team * idle, tuple(tiles), tuple(ops)), 1)[0].steps
    return tuple(_meeting(step) for step in steps if isinstance(step, ReducePlan))


def _meeting(step: ReducePlan) -> Meeting:
    across = coalesce(from_modes((size, weight) for weight, size in step.digits))
    return Meeting(step.lanes, tuple((w, size) for size, w in across.flat() if size > 1))
