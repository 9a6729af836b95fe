"""The meaning of a program, in float64 and int64: what every kernel is checked against.

Evaluates on demand, in pieces along output axes so that intermediates stay small, and streamed
reductions block by block; on the arrays of numpy, or of a library like it where the data is. Says
for each element, if asked, how far a right kernel may be off. Knows no schedule and no target.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from ir.coarsest import coarsest
from ir.dtypes import is_float, numpy_dtype
from ir.errors import UsageError
from ir.evaluation import PIECE, Evaluation, exact_dtype, steps_of
from ir.inputs import random_inputs
from ir.loops import entangled, loops_by_node, loops_of, one_by_one, read_outside
from ir.ops.base import Array, TileArray
from ir.ops.fold import Fold
from ir.ops.load import Index, Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.read import Read
from ir.ops.recur import Before, Recur
from ir.ops.reduce import Carry, Contract, Now, Reduce
from ir.ops.store import Store
from ir.oracle_parts import fused, of_output, read_by_one, slices_of
from ir.perturbed import COPIES, REACHES, RUNS, Noise, beside, distance
from ir.program import Program
from ir.propagation import reach
from ir.roundoff import ErrorModel
from ir.scalar import scalar_function

__all__ = ["Answer", "answers", "evaluate", "random_inputs", "reduced_axes", "sampled"]

_PIECE = PIECE  # bytes that one intermediate of one piece may take
_MUCH = 1 << 34  # numbers of which as few as can be are formed
SEVERAL = 4  # times that room, up to which outputs are evaluated together


@dataclass(frozen=True, slots=True)
class Answer:
    """The exact elements of an output, and how far each of a right kernel's may be from it."""

    value: Array
    reach: Array


def evaluate(
    program: Program,
    inputs: Mapping[str, Array],
    restrict: Mapping[str, Array] | None = None,
    *,
    block: int = 0,
    rounds: bool = False,
) -> dict[str, Array]:
    """The outputs for `inputs` (in storage dtype), unrounded: float64, int64 or bool.

    `restrict` gives, for some output axes, the sorted indices to evaluate; the results have only
    these. Of an axis along which states go step by step, `stepped_axes`, it may give the first few:
    what is there at the end of the axis is then what is there behind them. `block` is the block
    along streamed axes (0: a third, so that states are rescaled). With `rounds`, casts to narrow
    floats on the way round.
    """
    _check_inputs(program, inputs)
    coordinates = _coordinates(program, restrict or {})
    whole = Evaluation(program, inputs, coordinates, block, rounds=rounds)
    whole.frees = True
    results = _empty(program, coordinates, np, {})

    def keep(position: int, tensor: str, index: tuple[slice, ...], tile: TileArray) -> None:
        results[tensor][index] = tile.array

    _fill(whole, _pieces(program, coordinates, _PIECE), {}, keep)
    return results


def answers(
    program: Program,
    inputs: Mapping[str, Array],
    model: ErrorModel,
    restrict: Mapping[str, Array] | None = None,
    *,
    xp: Any = np,
    room: int = 4 * _PIECE,
) -> dict[str, Answer]:
    """The outputs as `evaluate` gives them, on the arrays of `xp`, and what each may be off.

    What rounding to the output's own type adds is not in it. `room` is how many bytes one
    intermediate may take.
    """
    _check_inputs(program, inputs)
    coordinates = _coordinates(program, restrict or {})
    values = _empty(program, coordinates, xp, {})
    reaches = _empty(program, coordinates, xp, dict.fromkeys(values, np.float32))

    def keep(position: int, tensor: str, index: tuple[slice, ...], tile: TileArray) -> None:
        values[tensor][index] = tile.array
        with np.errstate(over="ignore"):
            reaches[tensor][index] = 0.0 if tile.error is None else reach(tile.error)

    apart = _coarser_alone(program) if model.mixed else ()
    for part in chain(_apart(program, coordinates, room), apart):
        whole = Evaluation(part, inputs, coordinates, 0, model, xp, room=room)
        whole.frees, whole.chains = True, _made(part, coordinates) > _MUCH
        _fill(whole, _pieces(part, coordinates, room), {}, keep)
    return {name: Answer(values[name], reaches[name]) for name in values}


def _made(program: Program, coordinates: Mapping[str, Array]) -> int:
    """How many numbers the nodes of a program have at some coordinates."""
    lengths = {axis: len(points) for axis, points in coordinates.items()}
    return sum(math.prod(lengths[axis] for axis in node.axes) for node in program.nodes)


def _coarser_alone(program: Program) -> Iterator[Program]:
    """What narrow outputs are made of by themselves, where functions are that wide ones, or states,
    are made of as well: the kernel of such an output may have coarse ones of its own."""
    for position, _ in program.stores():
        alone = of_output(program, position)
        pending, seen = [position], {position}
        while pending:
            args = {*program.nodes[pending.pop()].args} - seen
            pending += args
            seen |= args
        if _coarse(alone, range(len(alone.nodes))) > _coarse(program, seen):
            yield alone


def _coarse(program: Program, nodes: Iterable[int]) -> int:
    """How many of these are functions that may be coarse."""
    units = coarsest(program)
    ops = (program.nodes[node].op for node in nodes if units[node])
    return sum(isinstance(op, Map) and scalar_function(op.function).ulps > 2 for op in ops)


def sampled(
    program: Program,
    inputs: Mapping[str, Array],
    model: ErrorModel,
    exact: Mapping[str, Array],
    restrict: Mapping[str, Array] | None = None,
    *,
    xp: Any = np,
    room: int = 4 * _PIECE,
) -> dict[str, Array]:
    """How far outputs may be off the `exact` ones, by runs with drawn roundings.

    Where all outputs have an axis along which points stand alone, a run has several of each. Where
    numbers are compared or stepped, half of the runs have roundings as much larger as the distances
    of the others are taken for: a choice that so many runs make alike may still be another's.
    """
    coordinates = _coordinates(program, restrict or {})
    axis = _alone(program, coordinates)
    scales = (1.0, REACHES) if _chooses(program) else (1.0,)
    together = RUNS // len(scales) if one_by_one(program) else COPIES  # a step takes as long
    copies = together if axis else 1
    if axis:
        coordinates[axis] = np.repeat(coordinates[axis], copies)
    worst = {name: xp.zeros(array.shape) for name, array in exact.items()}
    dims = {store.tensor: store.axes.index(axis) for _, store in program.stores() if axis}
    for part in _apart(program, coordinates, room):
        still = Evaluation(part, inputs, coordinates, 0, model, xp, room=room)
        for run in range(RUNS // copies):
            scale = scales[run % len(scales)]
            for name, array in _run(still, Noise(run, xp, scale, RUNS // copies)).items():
                runs = [array]
                if axis:
                    before = (slice(None),) * dims[name]
                    runs = [array[*before, number::copies] for number in range(copies)]
                for one in runs:
                    apart = REACHES / scale * distance(one, exact[name])
                    worst[name] = np.maximum(worst[name], apart)
    return {name: beside(array) for name, array in worst.items()}


def _run(still: Evaluation, noise: Noise) -> dict[str, Array]:
    """Outputs with drawn roundings; what they do not move is found in `still`, where all is one
    piece."""
    program, coordinates, room = still.program, still.coordinates, still.room
    found = _empty(program, coordinates, still.xp, {})

    def keep(position: int, tensor: str, index: tuple[slice, ...], tile: TileArray) -> None:
        found[tensor][index] = tile.array

    plan = _pieces(program, coordinates, room)
    whole = Evaluation(program, still.arrays, coordinates, 0, still.model, still.xp, room=room)
    whole.noise, whole.still, whole.frees = noise, None if plan else still, True
    _fill(whole, plan, {}, keep)
    return found


def _chooses(program: Program) -> bool:
    """Whether floats are compared, or moved by whole steps."""
    nodes = program.nodes
    return any(
        (function.compares or function.steps) and any(is_float(nodes[a].dtype) for a in node.args)
        for node in nodes
        if isinstance(node.op, Map) and (function := scalar_function(node.op.function))
    )


def _alone(program: Program, coordinates: Mapping[str, Array]) -> str:
    """The longest axis that all that is computed or stored has, and along which nothing is reduced,
    moved or stepped; empty where there is none. What lacks it would have one rounding for all."""
    plain = Load | Map | Cast | Store | Reduce | Contract | Before | Recur
    bound = {*reduced_axes(program), *stepped_axes(program)}
    for node in program.nodes:
        if isinstance(node.op, Read):
            axes = program.nodes[node.args[0]].axes
            moved = zip(axes, node.op.index, strict=True)
            bound |= {axis for axis, index in moved if index != Index(((axis, 1),))}
            bound |= {*node.axes} - {*axes}
        elif isinstance(node.op, Fold):
            bound |= {node.op.axis}
        elif not isinstance(node.op, plain):
            bound |= {*node.axes}
    computed = [
        {*node.axes} for node in program.nodes
        if not isinstance(node.op, Load | Constant | Iota) and is_float(node.dtype)
    ]  # fmt: skip
    stored = [{*store.axes} for _, store in program.stores()]
    free = set.intersection(*computed, *stored) - bound if computed else set[str]()
    return max(sorted(free), key=lambda axis: len(coordinates[axis]), default="")


def tried(
    program: Program,
    inputs: Mapping[str, Array],
    model: ErrorModel,
    restrict: Mapping[str, Array],
    share: slice,
    *,
    xp: Any,
    most: int,
) -> None:
    """Evaluate a share of the nodes, of zeros in the place of all others: for what a library
    prepares when it meets an operation for the first time. What is inside a loop is evaluated for
    one of its steps, and where there are loops or folds, roundings are drawn as well.

    None that streams, that is summed without being formed, or that has, or is made of what has,
    more than `most` elements.
    """
    coordinates, loops = _coordinates(program, restrict), loops_by_node(program)
    folds = any(isinstance(node.op, Fold) for node in program.nodes)
    noises = (None, Noise(0, xp)) if loops or folds else (None,)
    passed = (Carry, Now, Before, Recur)
    for position in range(len(program.nodes))[::-1][share]:  # whoever evaluates all begins in front
        node, loop = program.nodes[position], loops.get(position)
        here = coordinates if loop is None else {**coordinates, loop.axis: np.arange(1)}
        sizes = (
            math.prod(len(here[axis]) for axis in program.nodes[place].axes)
            for place in (position, *node.args)
        )
        if isinstance(node.op, passed) or max(sizes) > most or fused(program, position):
            continue
        for noise in noises:
            alone = Evaluation(program, inputs, here, 0, model, xp)
            alone.noise = noise
            tile = alone.alone(position)
        if isinstance(node.op, Store):
            _empty(program, here, xp, {})[node.op.tensor][...] = tile.array
            if tile.error is not None:
                reach(tile.error)


def _empty(
    program: Program, coordinates: Mapping[str, Array], xp: Any, dtypes: Mapping[str, type]
) -> dict[str, Array]:
    """Room for each output at the coordinates asked for."""
    return {
        store.tensor: xp.empty(
            tuple(len(coordinates[axis]) for axis in store.axes),
            dtypes.get(store.tensor) or exact_dtype(program.scope.tensors[store.tensor].dtype),
        )
        for _, store in program.stores()
    }


def _check_inputs(program: Program, inputs: Mapping[str, Array]) -> None:
    for spec in program.inputs:
        if spec.name not in inputs:
            raise UsageError(f"{program.name}: input {spec.name} is missing")
        given = inputs[spec.name]
        if given.size != math.prod(spec.shape) or given.dtype != numpy_dtype(spec.dtype):
            raise UsageError(
                f"{program.name}: input {spec.name} is {given.dtype}{given.shape}, "
                f"needs {numpy_dtype(spec.dtype)}{spec.shape}"
            )


def reduced_axes(program: Program) -> frozenset[str]:
    """Axes that some node combines over, or reads elsewhere: each point needs the others."""
    return frozenset(axis for node in program.nodes for axis in entangled(program, node))


def stepped_axes(program: Program) -> frozenset[str]:
    """Axes of loops along which nothing else needs more than one point."""
    others = (n for n in program.nodes if not isinstance(n.op, Before | Recur))
    axes = frozenset(loop.axis for loop in loops_of(program))
    return axes - {axis for node in others for axis in entangled(program, node)}


def _coordinates(program: Program, restrict: Mapping[str, Array]) -> dict[str, Array]:
    stored = {axis for _, store in program.stores() for axis in store.axes}
    stepped = stepped_axes(program)
    free = (stored - reduced_axes(program)) | stepped
    for axis, indices in restrict.items():
        first = axis not in stepped or np.array_equal(indices, np.arange(len(indices)))
        if axis not in free or not first:
            known = ", ".join(sorted(free)) or "none"
            raise UsageError(f"{program.name}: cannot restrict axis {axis!r}; these can: {known}")
    return {
        axis: np.asarray(restrict[axis] if axis in restrict else np.arange(extent), dtype=np.int64)
        for axis, extent in program.extents
    }


# --- pieces -----------------------------------------------------------------------------------


def pieces_of(program: Program, restrict: Mapping[str, Array], room: int) -> int:
    """In how many pieces `answers` evaluates, each of which takes all steps of a loop."""
    return math.prod(count for _, count in _pieces(program, _coordinates(program, restrict), room))


def _apart(program: Program, coordinates: Mapping[str, Array], room: int) -> Iterator[Program]:
    """The program, or where its outputs have no axis along which it could be cut to what has room,
    what each of them is made of."""
    stores = [position for position, _ in program.stores()]
    lengths = {axis: len(values) for axis, values in coordinates.items()}
    for axis, count in _pieces(program, coordinates, room):
        lengths[axis] = math.ceil(lengths[axis] / count)
    formed = (n for n in _formed(program, with_inputs=False) if not read_by_one(program, n))
    sizes = (8 * _at_once(program.nodes[node].axes, None, lengths) for node in formed)
    largest = max(sizes, default=0)
    if len(stores) == 1 or largest <= SEVERAL * room or loops_of(program):
        yield program
        return
    yield from (of_output(program, store) for store in stores)


def _pieces(program: Program, coordinates: Mapping[str, Array], room: int) -> list[tuple[str, int]]:
    """(axis, number of pieces) such that intermediates of one piece stay below the limit.

    What a loop makes and nobody else reads is there for some steps at a time.
    """
    stores = [store.axes for _, store in program.stores()]
    reduced = reduced_axes(program)
    common = [axis for axis in stores[0] if all(axis in axes for axes in stores)]
    lengths = {axis: len(values) for axis, values in coordinates.items()}
    passing = {
        position: loop.axis
        for loop in loops_of(program)
        for position in loop.inside - set(read_outside(program, loop))
    }
    plan: list[tuple[str, int]] = []
    for axis in (axis for axis in common if axis not in reduced):
        tiles = [
            (program.nodes[i].axes, passing.get(i)) for i in _formed(program, with_inputs=not plan)
        ]
        sizes = [_at_once(axes, along, lengths) for axes, along in tiles if axis in axes]
        count = min(lengths[axis], math.ceil(8 * max(sizes, default=0) / room))
        if count > 1:
            plan.append((axis, count))
            lengths[axis] = math.ceil(lengths[axis] / count)
    return plan


def _at_once(axes: Sequence[str], along: str | None, lengths: Mapping[str, int]) -> int:
    """Elements of a tile that are there at a time; `along` a loop's axis, of some steps."""
    each = math.prod(lengths[axis] for axis in axes if axis != along)
    return each * min(lengths[along], steps_of(each)) if along and along in axes else each


def _formed(program: Program, with_inputs: bool) -> Iterator[int]:
    """Nodes that take memory of their own; a tensor read whole takes that once at most."""
    for position, node in enumerate(program.nodes):
        if isinstance(node.op, Load) and not with_inputs:
            size = math.prod(program.scope.tensors[node.op.tensor].shape)
            if math.prod(program.axes[axis] for axis in node.axes) <= size:
                continue
        if not fused(program, position):
            yield position


def _fill(
    evaluation: Evaluation,
    plan: Sequence[tuple[str, int]],
    where: Mapping[str, slice],
    keep: Callable[[int, str, tuple[slice, ...], TileArray], None],
) -> None:
    """Evaluate piece by piece, and give each piece of each output to `keep`."""
    if not plan:
        for position, store in evaluation.program.stores():
            index = tuple(where.get(axis, slice(None)) for axis in store.axes)
            keep(position, store.tensor, index, evaluation.value(position))
        return
    axis, count = plan[0]
    for part in slices_of(len(evaluation.coordinates[axis]), count):
        piece = evaluation.narrowed(axis, part)
        _fill(piece, plan[1:], {**where, axis: part}, keep)
