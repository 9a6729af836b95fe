"""The values of a program's nodes at some coordinates, each computed when it is asked for.

Streamed reductions go block by block, states step by step. On the arrays of numpy, or of a library
like it; with how far a right kernel may be off, or with drawn roundings, if that is asked. Knows no
schedule and no target.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from ir.carried import advanced
from ir.carries import carry_at, chained_carries, running_nodes
from ir.coarsest import coarsest
from ir.dtypes import is_float
from ir.errors import ProgramError
from ir.floors import floors
from ir.in_a_row import in_a_row, with_error
from ir.loops import Carried, handed_on, loops_by_node, read_outside
from ir.ops.base import Array, Environment, Error, Op, TileArray
from ir.ops.fold import Exact, Fold
from ir.ops.load import Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.parts import joined, part_of, without_first
from ir.ops.reduce import Carry, Contract, Reduce
from ir.ops.scatter import Scatter, Share
from ir.ops.store import Store
from ir.oracle_parts import Operands, formed, fused, slices_of, states_of
from ir.perturbed import Noise
from ir.program import Program
from ir.propagation import mapped
from ir.propagation_sums import Summands, reduced, sum_error
from ir.roundoff import ErrorModel
from ir.scalar import COMBINES
from ir.shifts import unfelt
from ir.steps import first_state, next_state

PIECE = 8 << 20  # bytes that one intermediate of one piece may take
MANY, LITTLE = 256, 1 << 16  # steps, and elements that each computes, that are worth a host's time
STEPS = 64  # of a loop, of which what no state needs is computed at once


def exact_dtype(name: str) -> type:
    if name == "bool":
        return np.bool_
    return np.float64 if is_float(name) else np.int64


def steps_of(elements: int) -> int:
    """Of how many steps so many elements each are kept."""
    return max(1, min(STEPS, PIECE // (8 * max(1, elements))))


class Evaluation:
    """Values of nodes at some coordinates. A narrowed evaluation asks its parent for the values
    that do not vary over the narrowed axis, so that they are computed once."""

    def __init__(
        self, program: Program, arrays: Mapping[str, Array], coordinates: dict[str, Array],
        block: int, model: ErrorModel | None = None, xp: Any = np, rounds: bool = False,
        room: int = 4 * PIECE,
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
        self.parent: Evaluation | None = None
        self.axis = ""
        self.cut: frozenset[str] = frozenset()  # axes of which this has a part
        self.noise: Noise | None = None  # roundings are drawn, see `sampled`
        self.still: Evaluation | None = None  # without them, for what none of them moves
        self.placed: dict[int, tuple[Array, Array]] = {}  # coordinates as arrays of `xp`
        self.left_out: frozenset[int] = frozenset()  # what zeros stand for, see `tried`
        self.running: frozenset[int] = frozenset()
        self.within: Carried | None = None  # the loop of which this is a step, or part of one
        self.chains = False  # whether elementwise ops in a row are computed as one
        self.frees = False  # whether values that nobody will ask for any more are let go
        self.through: set[int] = set()  # nodes that need their operands no more
        self.busy: set[int] = set()
        self.folded: dict[int, Exact] = {}  # exact states that all runs have

    def narrowed(self, axis: str, part: slice, running: frozenset[int] = frozenset()) -> Evaluation:
        """The same at a part of `axis`; nodes in `running` have values of their own there."""
        coordinates = {**self.coordinates, axis: self.coordinates[axis][part]}
        child = Evaluation(
            self.program, self.arrays, coordinates, self.block, self.model, self.xp, self.rounds,
            self.room,
        )  # fmt: skip
        child.parent, child.axis, child.running = self, axis, running
        child.left_out, child.noise, child.placed = self.left_out, self.noise, self.placed
        child.within, child.frees = self.within, self.frees and not running
        child.cut, child.chains = self.cut | {axis}, self.chains and not running
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
            elif loop is not None and loop is not self.within:
                self.known.update(self._step_by_step(loop))
            if position not in self.known:
                self.known[position] = self._compute(position)
                self._let_go(position)
        return self.known[position]

    def _let_go(self, position: int) -> None:
        """Forget what this node alone still needed: pieces of many intermediates take more room
        than a device has."""
        if not self.frees:
            return
        self.through.update(self._together(position))
        pending = [arg for node in self._together(position) for arg in self._args(node)]
        while pending:
            arg = pending.pop()
            if not self.through.issuperset(self.program.users(arg)):
                continue
            self.known.pop(arg, None)
            if arg not in self.through:  # never formed, or in parts
                self.through.add(arg)
                pending += self._args(arg)

    def _args(self, position: int) -> tuple[int, ...]:
        return self.program.nodes[position].args

    def stays(self, position: int) -> bool:
        """Whether a value is elementwise made of inputs, and exact."""
        elementwise = isinstance(self.program.nodes[position].op, (Load, Map, Cast, Constant, Iota))
        args = self.program.nodes[position].args
        if not elementwise or not all(map(self.stays, args)) or fused(self.program, position):
            return False
        return self.value(position).error is None

    def alone(self, position: int) -> TileArray:
        """The value of a node of zeros in the place of all others, inside a loop or not."""
        self.left_out = frozenset(range(len(self.program.nodes))) - {position}
        return self._compute(position)

    def _compute(self, position: int) -> TileArray:
        """The value of a node that neither streams nor steps, its axes in the order of its type.
        All states of a fold are computed at once."""
        operands, together = Operands(self, position), self._together(position)
        parts = operands.parts()
        if len(parts) > 1:
            axis, tiles = parts[0].axis, list[list[TileArray]]()
            while parts:  # of which none stays longer than it is needed
                part = parts.pop(0)
                tiles.append([part.value(state) for state in together])
            axes = self.program.nodes[position].axes
            found = [joined(each, axis, axes, self.xp) for each in zip(*tiles, strict=True)]
        elif isinstance(self.program.nodes[position].op, Fold):
            found = self._folded(together)
        else:
            found = [self._found(position, operands.turns())]
        for state, tile in zip(together, found, strict=True):
            self.known[state] = self._in_order(state, tile)
        return self.known[position]

    def _together(self, position: int) -> list[int]:
        """The states of a fold that have the same roundoffs; of what is no fold, the node alone."""
        states = states_of(self.program, position)
        model = self.model_at(position)
        return [state for state in states if self.model_at(state) == model]

    def _in_order(self, position: int, found: TileArray) -> TileArray:
        axes = self.program.nodes[position].axes
        if found.axes == axes or set(found.axes) != set(axes):
            return found
        return TileArray(axes, found.aligned(axes), found.error_over(axes))

    def _in_turns(self, position: int, op: Reduce, turns: list[Evaluation]) -> TileArray:
        """A reduction of what is evaluated part by part along an axis that it is over."""
        body, dtype = self.program.nodes[position].args[0], self.program.nodes[position].dtype
        summands: list[Summands] = []
        total: TileArray | None = None
        while turns:
            tile = turns.pop(0).value(body)
            part = op.meaning((tile,), self.environment())
            if op.kind == "sum":
                summands.append(Summands.of(tile, dtype, op.over))
                sums = part.array if total is None else total.array + part.array
                total = TileArray(part.axes, sums)
                continue
            if self.model is not None:
                terms = tile.array.size // max(1, part.array.size)
                error = reduced(op.kind, tile, part, dtype, op.over, terms, self.model)
                part = TileArray(part.axes, part.array, error)
            function = COMBINES[op.kind].function
            total = part if total is None else self.applied(function, (total, part), dtype)
        assert total is not None
        if op.kind != "sum" or self.model is None:
            return total
        terms = math.prod(len(self.coordinates[axis]) for axis in op.over)
        error = sum_error(summands, total, dtype, terms, self.model)
        if self.noise is not None:
            return self.noise.moved(total, error, f"reduce of {(body,)}")
        return TileArray(total.axes, total.array, error)

    def _received(self, position: int, op: Scatter, turns: list[Evaluation]) -> TileArray:
        """What is sent, evaluated part by part along an axis of the points that are."""
        args = self._args(position)
        types = [self.program.nodes[arg].type for arg in args]
        share: Share | None = None
        while turns:
            turn = turns.pop(0)
            environment = turn.environment()
            environment.types = types
            found = op.share([turn.value(arg) for arg in args], types, environment)
            share = found if share is None else share.joined(found)
        assert share is not None
        exact, model = TileArray(op.axes, share.array), self.model_at(position)
        if model is None:
            return exact
        error = share.error(types, model)
        if self.noise is not None:
            return self.noise.moved(exact, error, f"{op.name} of {args}")
        return TileArray(exact.axes, exact.array, error)

    def _zeros(self, position: int) -> TileArray:
        """What is computed elsewhere, as far as it has a shape."""
        node, xp = self.program.nodes[position], self.xp
        shape = tuple(len(self.coordinates[axis]) for axis in node.axes)
        error = Error(xp.zeros(shape), xp.zeros(shape)) if is_float(node.dtype) else None
        return TileArray(node.axes, xp.zeros(shape, exact_dtype(node.dtype)), error)

    def _found(self, position: int, turns: list[Evaluation] | None = None) -> TileArray:
        node = self.program.nodes[position]
        shape = tuple(len(self.coordinates[axis]) for axis in node.axes)
        if 0 in shape:
            return TileArray(node.axes, self.xp.zeros(shape, exact_dtype(node.dtype)))
        if isinstance(node.op, Reduce):
            meant = (
                self._in_turns(position, node.op, turns)
                if turns
                else self.reduced(position, node.op.kind, node.op.over)
            )
        elif isinstance(node.op, Scatter) and turns:
            meant = self._received(position, node.op, turns)
        else:
            meant = in_a_row(self, position) or self._meant(
                node.op, node.args, self.model_at(position)
            )
        meant = self._felt(position, meant)
        if self.rounds_for_outputs(position):
            return TileArray(meant.axes, meant.array, self.value(node.args[0]).error)
        return meant

    def _felt(self, position: int, meant: TileArray) -> TileArray:
        """A value without its error where that cancels."""
        if self.model is not None and position in unfelt(self.program):
            return TileArray(meant.axes, meant.array)
        return meant

    def _folded(self, states: Sequence[int]) -> list[TileArray]:
        """Some states of a fold."""
        node = self.program.nodes[states[0]]
        shape = tuple(len(self.coordinates[axis]) for axis in node.axes)
        if 0 in shape:
            kinds = (exact_dtype(self.program.nodes[state].dtype) for state in states)
            return [TileArray(node.axes, self.xp.zeros(shape, kind)) for kind in kinds]
        found = self._all_states(states[0])
        parts = (self.program.nodes[state].op for state in states)
        numbers = [op.part for op in parts if isinstance(op, Fold)]
        return [self._felt(*pair) for pair in zip(states, (found[n] for n in numbers), strict=True)]

    def _all_states(self, position: int) -> list[TileArray]:
        """Those of a fold, with what each may be off, or moved by drawn roundings."""
        node = self.program.nodes[position]
        assert isinstance(node.op, Fold)
        types = [self.program.nodes[arg].type for arg in node.args]
        environment, model = self.environment(), self.model_at(position)
        if self.noise is None or model is None:
            args = [self.value(arg) for arg in node.args]
            return node.op.states(args, types, environment, model)
        around = self if self.still is None else self.still
        alike = [arg for arg in node.args if around is not self and around.stays(arg)]
        args = [(around if arg in alike else self).value(arg) for arg in node.args]
        kept = around.folded if len(alike) == len(node.args) else {}
        if position not in kept:
            kept[position] = node.op.exact(args, environment)
        name = f"{node.op.name} of {node.args}"
        return node.op.drawn(args, types, kept[position], environment, model, self.noise, name)

    def rounds_for_outputs(self, position: int) -> bool:
        """Whether a node rounds for outputs alone, whose own rounding is known exactly."""
        nodes = self.program.nodes
        users = (nodes[user].op for user in self.program.users(position))
        rounds = isinstance(nodes[position].op, Cast) and is_float(nodes[position].dtype)
        return rounds and all(isinstance(op, Store) for op in users)

    def model_at(self, position: int) -> ErrorModel | None:
        """The roundoffs at a node: functions that narrow outputs alone are made of may be coarse,
        whatever other outputs there are."""
        if self.model is None or not self.model.mixed:
            return self.model
        return replace(self.model, coarsest=coarsest(self.program)[position])

    def _meant(
        self, op: Op, positions: Sequence[int], model: ErrorModel | None = None
    ) -> TileArray:
        """An op's meaning at those operands, and how far it may be off."""
        model = model or self.model
        args = [self.value(position) for position in positions]
        types = [self.program.nodes[position].type for position in positions]
        environment = self.environment()
        environment.types = types
        if model is not None and isinstance(op, Map):
            environment.floors = [floors(self.program)[position] for position in positions]
        if model is None:
            return op.meaning(args, environment)
        exact, error = with_error(op, args, environment, model)
        name = f"{op.name} of {positions}"
        if self.noise is not None:
            return self.noise.moved(exact, error, name)
        return TileArray(exact.axes, exact.array, error)

    def environment(self) -> Environment:
        """What ops are asked with here."""
        return Environment(
            self.program.scope, self.arrays, self.coordinates, self.model, self.xp, self.rounds,
            placed=self.placed,
        )  # fmt: skip

    def reduced(self, position: int, kind: str, over: tuple[str, ...]) -> TileArray:
        """The first operand of a reduction, reduced; a product is summed without forming it."""
        node = self.program.nodes[position]
        body = node.args[0]
        if kind == "sum" and fused(self.program, body) and body not in self.known:
            return self._meant(Contract(over, node.dtype), self.program.nodes[body].args)
        return self._meant(Reduce(kind, over), (body,))

    def applied(self, function: str, args: Sequence[TileArray], dtype: str) -> TileArray:
        """A scalar function of tiles, with its error."""
        exact = Map(function).meaning(args, self.environment())
        if self.model is None:
            return exact
        error = mapped(function, args, exact, dtype, self.model)
        if self.noise is not None:
            return self.noise.moved(exact, error, function)
        return TileArray(exact.axes, exact.array, error)

    def _step_by_step(self, loop: Carried) -> dict[int, TileArray]:
        """What others read of a loop: the values at all its points, and the states at the end; of a
        product that only sums read, its operands.

        Step after step it computes what the next state needs; what else is inside, of some steps
        at once. Of little a step takes a device as long as its launches: that is done on the host.
        """
        if self.xp is not np and self._is_short(loop):
            return {p: carried(tile, self.xp.asarray) for p, tile in self._on_host(loop).items()}
        states = {b: first_state(self, b) for b, _ in loop.states}
        nodes, steps = self.program.nodes, len(self.coordinates[loop.axis])
        reads = formed(self.program, loop, read_outside(self.program, loop))
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

    def _is_short(self, loop: Carried) -> bool:
        """Whether a loop has many steps, each of few elements."""
        nodes, steps = self.program.nodes, len(self.coordinates[loop.axis])
        sizes = (
            math.prod(len(self.coordinates[a]) for a in nodes[p].axes if a != loop.axis)
            for p in loop.nodes
        )
        return steps >= MANY and sum(sizes) <= LITTLE

    def _on_host(self, loop: Carried) -> dict[int, TileArray]:
        return _Host(self)._step_by_step(loop)

    def _steps_at_once(self, axis: str, handed: Sequence[int]) -> int:
        """Of how many steps the values that are handed on are kept."""
        sizes = (
            math.prod(len(self.coordinates[a]) for a in self.program.nodes[p].axes if a != axis)
            for p in handed
        )
        return steps_of(sum(sizes))

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
        return TileArray(node.axes, self.xp.full(shape, value, exact_dtype(node.dtype)))


class _Host(Evaluation):
    """What another evaluation knows, as arrays of numpy."""

    def __init__(self, around: Evaluation) -> None:
        super().__init__(
            around.program, around.arrays, around.coordinates, around.block, around.model, np,
            around.rounds, around.room,
        )  # fmt: skip
        self.around = around
        self.noise = around.noise and replace(around.noise, xp=np)

    @cached_property
    def loops(self) -> dict[int, Carried]:
        return self.around.loops

    def value(self, position: int) -> TileArray:
        if position not in self.known:
            self.known[position] = carried(self.around.value(position), self.around.xp.asnumpy)
        return self.known[position]


def carried(tile: TileArray, to: Callable[[Array], Array]) -> TileArray:
    """A tile whose arrays are elsewhere."""
    error = tile.error
    if error is not None:
        amounts = (error.wide, error.spread)
        error = Error(*(one if isinstance(one, float) else to(one) for one in amounts))
    return TileArray(tile.axes, to(tile.array), error)


class _Steps(Evaluation):
    """What is inside a loop at some points of its axis, where `known` is: the states, for one."""

    def __init__(
        self, around: Evaluation, loop: Carried, place: slice, known: Mapping[int, TileArray]
    ) -> None:
        coordinates = {**around.coordinates, loop.axis: around.coordinates[loop.axis][place]}
        super().__init__(
            around.program, around.arrays, coordinates, around.block, around.model, around.xp,
            around.rounds, around.room,
        )  # fmt: skip
        self.around, self.loop, self.place, self.within = around, loop, place, loop
        self.noise, self.placed, self.chains = around.noise, around.placed, around.chains
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
