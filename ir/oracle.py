"""The meaning of a program, in float64 and int64: what every kernel is checked against.

Evaluates on demand, in pieces along output axes so that intermediates stay small, and streamed
reductions block by block; on the arrays of numpy, or of a library like it where the data is. Says
for each element, if asked, how far a right kernel may be off. Knows no schedule and no target.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ir.carried import advanced
from ir.carries import carry_at, chained_carries, running_nodes
from ir.dtypes import is_float, numpy_dtype
from ir.errors import ProgramError, UsageError
from ir.floors import floors
from ir.inputs import random_inputs
from ir.loops import Carried, entangled, handed_on, loops_by_node, loops_of, read_outside
from ir.ops.base import Array, Environment, Error, Op, TileArray
from ir.ops.load import Index, Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.parts import joined, part_of, without_first
from ir.ops.read import Read
from ir.ops.recur import Before, Recur
from ir.ops.reduce import Carry, Contract, Now, Reduce
from ir.ops.store import Store
from ir.oracle_parts import Operands, fused, slices_of
from ir.perturbed import COPIES, REACHES, RUNS, Noise, distance
from ir.program import Program
from ir.propagation import mapped, reach
from ir.roundoff import ErrorModel
from ir.scalar import COMBINES
from ir.shifts import unfelt
from ir.steps import first_state, next_state

__all__ = ["Answer", "answers", "evaluate", "random_inputs", "reduced_axes"]

_PIECE = 8 << 20  # bytes that one intermediate of one piece may take
_STEPS = 64  # of a loop, of which what no state needs is computed at once


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
    whole = _Evaluation(program, inputs, coordinates, block, rounds=rounds)
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
    whole = _Evaluation(program, inputs, coordinates, 0, model, xp, room=room)
    values = _empty(program, coordinates, xp, {})
    reaches = _empty(program, coordinates, xp, dict.fromkeys(values, np.float32))

    def keep(position: int, tensor: str, index: tuple[slice, ...], tile: TileArray) -> None:
        values[tensor][index] = tile.array
        reaches[tensor][index] = 0.0 if tile.error is None else reach(tile.error)

    _fill(whole, _pieces(program, coordinates, room), {}, keep)
    return {name: Answer(values[name], reaches[name]) for name in values}


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

    Where all outputs have an axis along which points stand alone, a run has several of each.
    """
    coordinates = _coordinates(program, restrict or {})
    axis = _alone(program, coordinates)
    copies = COPIES if axis else 1
    if axis:
        coordinates[axis] = np.repeat(coordinates[axis], copies)
    worst = {name: xp.zeros(array.shape) for name, array in exact.items()}
    dims = {store.tensor: store.axes.index(axis) for _, store in program.stores() if axis}
    for run in range(RUNS // copies):
        whole = _Evaluation(program, inputs, coordinates, 0, model, xp, room=room)
        whole.noise = Noise(run, xp)
        found = _empty(program, coordinates, xp, {})

        def keep(
            position: int, tensor: str, index: tuple[slice, ...], tile: TileArray,
            found: dict[str, Array] = found,
        ) -> None:  # fmt: skip
            found[tensor][index] = tile.array

        _fill(whole, _pieces(program, coordinates, room), {}, keep)
        for name, array in found.items():
            dim = dims.get(name, 0)
            for number in range(copies):
                part = array[(slice(None),) * dim + (slice(number, None, copies),)]
                part = array if not axis else part
                worst[name] = np.maximum(worst[name], distance(part, exact[name]))
    return {name: REACHES * array for name, array in worst.items()}


def _alone(program: Program, coordinates: Mapping[str, Array]) -> str:
    """The longest axis that all that is computed has, and along which nothing is reduced, moved or
    stepped; empty where there is none. What lacks it would have one rounding for all copies."""
    plain = Load | Map | Cast | Store | Reduce | Contract | Before | Recur
    bound = {*reduced_axes(program), *stepped_axes(program)}
    for node in program.nodes:
        if isinstance(node.op, Read):
            axes = program.nodes[node.args[0]].axes
            moved = zip(axes, node.op.index, strict=True)
            bound |= {axis for axis, index in moved if index != Index(((axis, 1),))}
            bound |= {*node.axes} - {*axes}
        elif not isinstance(node.op, plain):
            bound |= {*node.axes}
    computed = [
        {*node.axes} for node in program.nodes
        if not isinstance(node.op, Load | Constant | Iota) and is_float(node.dtype)
    ]  # fmt: skip
    free = set.intersection(*computed) - bound if computed else set[str]()
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
    prepares when it meets an operation for the first time.

    None that steps or streams, that is summed without being formed, or that has, or is made of
    what has, more than `most` elements.
    """
    coordinates = _coordinates(program, restrict)
    sizes = [math.prod(len(coordinates[axis]) for axis in node.axes) for node in program.nodes]
    running = {n for n, node in enumerate(program.nodes) if isinstance(node.op, Carry | Now)}
    others = {*loops_by_node(program)} | running
    for position in range(len(program.nodes))[share]:
        node = program.nodes[position]
        large = max(sizes[place] for place in (position, *node.args)) > most
        if large or position in others or fused(program, position):
            continue
        alone = _Evaluation(program, inputs, coordinates, 0, model, xp)
        alone.left_out = frozenset(range(len(program.nodes))) - {position}
        tile = alone.value(position)
        if isinstance(node.op, Store):
            _empty(program, coordinates, xp, {})[node.op.tensor][...] = tile.array
            if tile.error is not None:
                reach(tile.error)


def _empty(
    program: Program, coordinates: Mapping[str, Array], xp: Any, dtypes: Mapping[str, type]
) -> dict[str, Array]:
    """Room for each output at the coordinates asked for."""
    return {
        store.tensor: xp.empty(
            tuple(len(coordinates[axis]) for axis in store.axes),
            dtypes.get(store.tensor) or _exact_dtype(program.scope.tensors[store.tensor].dtype),
        )
        for _, store in program.stores()
    }


def _exact_dtype(name: str) -> type:
    if name == "bool":
        return np.bool_
    return np.float64 if is_float(name) else np.int64


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
    return each * min(lengths[along], _steps_of(each)) if along and along in axes else each


def _steps_of(elements: int) -> int:
    """Of how many steps so many elements each are kept."""
    return max(1, min(_STEPS, _PIECE // (8 * max(1, elements))))


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
    evaluation: _Evaluation,
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


# --- evaluation on demand ---------------------------------------------------------------------


class _Evaluation:
    """Values of nodes at some coordinates. A narrowed evaluation asks its parent for the values
    that do not vary over the narrowed axis, so that they are computed once."""

    def __init__(
        self, program: Program, arrays: Mapping[str, Array], coordinates: dict[str, Array],
        block: int, model: ErrorModel | None = None, xp: Any = np, rounds: bool = False,
        room: int = 4 * _PIECE,
    ) -> None:  # fmt: skip
        self.program = program
        self.room = room
        self.arrays = arrays
        self.coordinates = coordinates
        self.block = block
        self.model = model
        self.xp = xp
        self.rounds = rounds
        self.known: dict[int, TileArray] = {}
        self.parent: _Evaluation | None = None
        self.axis = ""
        self.noise: Noise | None = None  # roundings are drawn, see `sampled`
        self.left_out: frozenset[int] = frozenset()  # what zeros stand for, see `tried`
        self.running: frozenset[int] = frozenset()
        self.busy: set[int] = set()

    def narrowed(
        self, axis: str, part: slice, running: frozenset[int] = frozenset()
    ) -> _Evaluation:
        """The same at a part of `axis`; nodes in `running` have values of their own there."""
        coordinates = {**self.coordinates, axis: self.coordinates[axis][part]}
        child = _Evaluation(
            self.program, self.arrays, coordinates, self.block, self.model, self.xp, self.rounds,
            self.room,
        )  # fmt: skip
        child.parent, child.axis, child.running = self, axis, running
        child.left_out, child.noise = self.left_out, self.noise
        return child

    @cached_property
    def loops(self) -> dict[int, Carried]:
        """The loop that computes a node, of those that one does."""
        return loops_by_node(self.program) if self.parent is None else self.parent.loops

    def value(self, position: int) -> TileArray:
        if position not in self.known:
            node = self.program.nodes[position]
            own = self.axis in node.axes or position in self.running
            if self.parent is not None and not own:
                return self.parent.value(position)
            loop = self.loops.get(position)
            if position in self.left_out:
                self.known[position] = self._zeros(position)
            elif isinstance(node.op, Carry):
                self._stream(position)
            elif loop is not None:
                self.known.update(self._step_by_step(loop))
            else:
                self.known[position] = self._compute(position)
        return self.known[position]

    def _compute(self, position: int) -> TileArray:
        """The value of a node that neither streams nor steps, its axes in the order of its type."""
        parts = Operands(self, position).parts()
        if len(parts) > 1:
            tiles = [part.value(position) for part in parts]
            return joined(tiles, parts[0].axis, self.program.nodes[position].axes, self.xp)
        found, axes = self._found(position), self.program.nodes[position].axes
        if found.axes == axes or set(found.axes) != set(axes):
            return found
        return TileArray(axes, found.aligned(axes), found.error_over(axes))

    def _zeros(self, position: int) -> TileArray:
        """What is computed elsewhere, as far as it has a shape."""
        node, xp = self.program.nodes[position], self.xp
        shape = tuple(len(self.coordinates[axis]) for axis in node.axes)
        error = Error(xp.zeros(shape), xp.zeros(shape)) if is_float(node.dtype) else None
        return TileArray(node.axes, xp.zeros(shape, _exact_dtype(node.dtype)), error)

    def _found(self, position: int) -> TileArray:
        node = self.program.nodes[position]
        shape = tuple(len(self.coordinates[axis]) for axis in node.axes)
        if 0 in shape:
            return TileArray(node.axes, self.xp.zeros(shape, _exact_dtype(node.dtype)))
        if isinstance(node.op, Reduce):
            meant = self.reduced(position, node.op.kind, node.op.over)
        else:
            meant = self._meant(node.op, node.args)
        if self.model is not None and position in unfelt(self.program):
            return TileArray(meant.axes, meant.array)
        if self._rounds_for_outputs(position):
            return TileArray(meant.axes, meant.array, self.value(node.args[0]).error)
        return meant

    def _rounds_for_outputs(self, position: int) -> bool:
        """Whether a node rounds for outputs alone, whose own rounding is known exactly."""
        nodes = self.program.nodes
        users = (nodes[user].op for user in self.program.users(position))
        rounds = isinstance(nodes[position].op, Cast) and is_float(nodes[position].dtype)
        return rounds and all(isinstance(op, Store) for op in users)

    def _meant(self, op: Op, positions: Sequence[int]) -> TileArray:
        """An op's meaning at those operands, and how far it may be off."""
        args = [self.value(position) for position in positions]
        types = [self.program.nodes[position].type for position in positions]
        environment = self._environment()
        environment.types = types
        if self.model is not None and isinstance(op, Map):
            environment.floors = [floors(self.program)[position] for position in positions]
        exact = op.meaning(args, environment)
        if self.model is None:
            return exact
        error = op.error(args, types, exact, environment, self.model)
        if self.noise is not None:
            return self.noise.moved(exact, error, f"{op.name} of {positions}")
        return TileArray(exact.axes, exact.array, error)

    def _environment(self) -> Environment:
        return Environment(
            self.program.scope, self.arrays, self.coordinates, self.model, self.xp, self.rounds
        )

    def reduced(self, position: int, kind: str, over: tuple[str, ...]) -> TileArray:
        """The first operand of a reduction, reduced; a product is summed without forming it."""
        node = self.program.nodes[position]
        body = node.args[0]
        if kind == "sum" and fused(self.program, body) and body not in self.known:
            return self._meant(Contract(over, node.dtype), self.program.nodes[body].args)
        return self._meant(Reduce(kind, over), (body,))

    def applied(self, function: str, args: Sequence[TileArray], dtype: str) -> TileArray:
        """A scalar function of tiles, with its error."""
        exact = Map(function).meaning(args, self._environment())
        if self.model is None:
            return exact
        error = mapped(function, args, exact, dtype, self.model)
        if self.noise is not None:
            return self.noise.moved(exact, error, function)
        return TileArray(exact.axes, exact.array, error)

    def _step_by_step(self, loop: Carried) -> dict[int, TileArray]:
        """What others read of a loop: the values at all its points, and the states at the end.

        Step after step it computes what the next state needs; what else is inside, of some steps
        at once.
        """
        states = {b: first_state(self, b) for b, _ in loop.states}
        nodes, steps = self.program.nodes, len(self.coordinates[loop.axis])
        reads = read_outside(self.program, loop)
        handed = handed_on(self.program, loop)
        found: dict[int, list[TileArray]] = {position: [] for position in reads}
        for part in slices_of(steps, math.ceil(steps / self._steps_at_once(loop.axis, handed))):
            held: dict[int, list[TileArray]] = {position: [] for position in handed}
            for point in range(part.start, part.stop):
                step = _Steps(self, loop, slice(point, point + 1), states)
                for position in handed:
                    held[position].append(step.value(position))
                with np.errstate(all="ignore"):
                    states = {b: next_state(step, b, after) for b, after in loop.states}
            known = {p: joined(held[p], loop.axis, nodes[p].axes, self.xp) for p in handed}
            together = _Steps(self, loop, part, known)
            for position in reads:
                found[position].append(together.value(position))
        ends = {after: without_first(states[b]) for b, after in loop.states}
        if not steps:  # whose values have no element
            return ends | {position: self._found(position) for position in reads}
        return ends | {p: joined(found[p], loop.axis, nodes[p].axes, self.xp) for p in reads}

    def _steps_at_once(self, axis: str, handed: Sequence[int]) -> int:
        """Of how many steps the values that are handed on are kept."""
        sizes = (
            math.prod(len(self.coordinates[a]) for a in self.program.nodes[p].axes if a != axis)
            for p in handed
        )
        return _steps_of(sum(sizes))

    def _stream(self, position: int) -> None:
        """Evaluate all carries that advance together with the one at `position`."""
        members = chained_carries(self.program, position)
        axis = carry_at(self.program, position).axis
        if self.busy & set(members):
            raise ProgramError(f"{self.program.name}: a carry over {axis} needs its own end value")
        self.busy.update(members)
        running = running_nodes(self.program, members)
        length = len(self.coordinates[axis])
        step = self.block or max(1, math.ceil(length / 3))
        states = {} if length else {member: self._untouched(member) for member in members}
        for part in slices_of(length, math.ceil(length / step)):
            child = self.narrowed(axis, part, running)
            states = advanced(child, members, states)
        self.known.update(states)
        self.busy.difference_update(members)

    def _untouched(self, member: int) -> TileArray:
        """The state of a carry along an axis without a point."""
        node = self.program.nodes[member]
        value = COMBINES[carry_at(self.program, member).kind].identity
        shape = tuple(len(self.coordinates[axis]) for axis in node.axes)
        return TileArray(node.axes, self.xp.full(shape, value, _exact_dtype(node.dtype)))


class _Steps(_Evaluation):
    """What is inside a loop at some points of its axis, where `known` is: the states, for one."""

    def __init__(
        self, around: _Evaluation, loop: Carried, place: slice, known: Mapping[int, TileArray]
    ) -> None:
        coordinates = {**around.coordinates, loop.axis: around.coordinates[loop.axis][place]}
        super().__init__(
            around.program, around.arrays, coordinates, around.block, around.model, around.xp,
            around.rounds, around.room,
        )  # fmt: skip
        self.around, self.loop, self.place = around, loop, place
        self.noise = around.noise
        self.known.update(known)

    @cached_property
    def loops(self) -> dict[int, Carried]:
        return self.around.loops

    def value(self, position: int) -> TileArray:
        if position not in self.known:
            if position in self.loop.inside:
                self.known[position] = self._compute(position)
            else:
                tile = self.around.value(position)
                self.known[position] = part_of(tile, self.loop.axis, self.place)
        return self.known[position]
