"""The states of a loop between its steps, as tiles. Knows evaluations by what they answer."""

from __future__ import annotations

from typing import Any, Protocol

from ir.ops.base import Array, Error, TileArray
from ir.ops.parts import whole
from ir.ops.recur import Before
from ir.program import Program


class Evaluates(Protocol):
    """What is known of an evaluation here."""

    program: Program
    coordinates: dict[str, Array]
    xp: Any

    def value(self, position: int) -> TileArray: ...


def first_state(evaluation: Evaluates, before: int) -> TileArray:
    """A state before the first step, with one point along the loop's axis."""
    node = evaluation.program.nodes[before]
    assert isinstance(node.op, Before)
    return _as_state(evaluation, evaluation.value(node.args[0]), node.axes)


def next_state(step: Evaluates, before: int, after: int) -> TileArray:
    """A state behind a step."""
    node = step.program.nodes[after]
    return _as_state(step, step.value(node.args[1]), step.program.nodes[before].axes)


def _as_state(evaluation: Evaluates, tile: TileArray, axes: tuple[str, ...]) -> TileArray:
    shape = (1, *(len(evaluation.coordinates[axis]) for axis in axes[1:]))
    xp, error = evaluation.xp, tile.error_over(axes)
    if error is not None:
        error = Error(*(whole(amount, shape, xp) for amount in (error.wide, error.spread)))
    return TileArray(axes, xp.broadcast_to(tile.aligned(axes), shape), error)
