"""Elementwise ops of a program that a device computes in one pass: one with its errors, or several
in a row, of which each is read by the next alone. Knows evaluations by what they offer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ir.floors import floors
from ir.mapped_at_once import Unformed, meant_at_once, told
from ir.ops.base import Environment, Error, Op, TileArray
from ir.ops.map import Cast, Map
from ir.roundoff import ErrorModel
from ir.shifts import unfelt

if TYPE_CHECKING:
    from ir.evaluation import Evaluation

_MOST = 12  # ops that are computed with another


def with_error(
    op: Op, args: Sequence[TileArray], environment: Environment, model: ErrorModel
) -> tuple[TileArray, Error | None]:
    """An op's values, and how far they may be off: on a device in one pass, if it can be."""
    types = environment.types
    if isinstance(op, Map | Cast):
        at_once = meant_at_once(op, args, types, environment, model)
        return at_once or told(op, args, types, environment, model)
    exact = op.meaning(args, environment)
    return exact, op.error(args, types, exact, environment, model)


def in_a_row(evaluation: Evaluation, position: int) -> TileArray | None:
    """An elementwise op with those before it that it alone reads, computed as one where a device's
    library can; of much work alone: what is in a row is compiled for its program."""
    op, model = evaluation.program.nodes[position].op, evaluation.model_at(position)
    if not evaluation.chains or evaluation.noise is not None or model is None:
        return None
    if not isinstance(op, Map | Cast) or evaluation.rounds_for_outputs(position):
        return None
    whole = _unformed(evaluation, position, [_MOST])
    if whole is None or not any(isinstance(arg, Unformed) for arg in whole.args):
        return None
    found = meant_at_once(op, whole.args, whole.types, whole.environment, model)
    return found and TileArray(found[0].axes, found[0].array, found[1])


def _unformed(evaluation: Evaluation, position: int, left: list[int]) -> Unformed | None:
    """An elementwise node with its operands, those that it alone reads unformed as well, as many
    as are `left`."""
    program, model = evaluation.program, evaluation.model_at(position)
    node = program.nodes[position]
    if not isinstance(node.op, Map | Cast) or model is None:
        return None
    environment = evaluation.environment()
    environment.types = types = [program.nodes[arg].type for arg in node.args]
    if isinstance(node.op, Map):
        environment.floors = [floors(program)[arg] for arg in node.args]
    found: dict[int, TileArray | Unformed] = {}
    for arg in dict.fromkeys(node.args):
        inner = None
        if left[0] and _is_of_one(evaluation, arg, node.axes):
            left[0] -= 1
            inner = _unformed(evaluation, arg, left)
        found[arg] = inner or evaluation.value(arg)
    felt = position not in unfelt(program)
    return Unformed(node.op, [found[arg] for arg in node.args], types, felt, environment, model)


def _is_of_one(evaluation: Evaluation, position: int, axes: tuple[str, ...]) -> bool:
    """Whether a value is computed here, at as many points as the one node that reads it."""
    node = evaluation.program.nodes[position]
    here = evaluation.parent is None or evaluation.axis in node.axes
    unknown = position not in evaluation.known and position not in evaluation.left_out
    alone = len(evaluation.program.users(position)) == 1 and {*node.axes} == {*axes}
    mine = evaluation.loops.get(position) is evaluation.within
    return here and unknown and alone and mine and isinstance(node.op, Map | Cast)
