"""What a kernel computes, in numpy: roles run beside each other, tensor cores as late as they may.

A kernel without synchronisation means its operations in order, on whatever block each names. One
with synchronisation is run as hardware runs it: slots of rings are overwritten when they are filled
again, products read their operands and write their sums only when somebody has waited for them, and
a role that waits goes on when another one lets it. What is synchronised wrongly comes out wrong, or
nobody goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ir.carries import reads
from ir.dtypes import is_float
from ir.handed import addends_of
from ir.kernel.body import (
    CONVERT,
    COPIES,
    CORRECT,
    FINISH,
    GET,
    LEAVE,
    MAP,
    MMA,
    REDUCE,
    START,
    STORE,
    TENSOR,
    Operation,
    Part,
)
from ir.kernel.tile_kernel import (
    ADVANCE,
    AWAIT,
    BLOCK,
    COMMIT,
    FREE,
    FULL,
    PUBLISH,
    RELEASE,
    Alloc,
    At,
    Do,
    If,
    KernelError,
    Loop,
    Role,
    Statement,
    Sync,
    TileKernel,
)
from ir.kernel.tiling import Tiling
from ir.ops.base import Array, Environment, TileArray
from ir.ops.fold import Fold
from ir.ops.load import Load
from ir.ops.reduce import Carry, Contract, Prior, Reduce
from ir.ops.store import Store
from ir.program import Program
from ir.scalar import COMBINES, running_bound

OF_TILE = -1  # the block of what is the same for all of a tile
Values = dict[int, TileArray]
Step = Iterator[str]  # of a role: what it waits for; nothing where it has gone on


def run(
    kernel: TileKernel, program: Program, inputs: Mapping[str, Array], tiling: Tiling,
    late: bool = True, last: bool = False,
) -> dict[str, Array]:  # fmt: skip
    """The outputs, unrounded; raises KernelError where nobody goes on, or reads what is not there.

    `late`: products read and write when they are waited for, else when they are issued. `last`: the
    last role is ahead of the others, else the first one.
    """
    outputs = {
        spec.name: np.zeros(spec.shape, np.float64 if is_float(spec.dtype) else np.int64)
        for spec in program.tensors if spec.role == "output"
    }  # fmt: skip
    machine = _Machine(kernel, program, inputs, outputs, tiling, late)
    roles = [one for one in kernel.body if isinstance(one, Role)]
    bodies = [role.body for role in roles] or [kernel.body]
    steps = [_Thread(machine, body).run() for body in bodies]
    try:
        _side_by_side(kernel.name, steps[::-1] if last else steps)
    except (ValueError, KeyError) as error:
        raise KernelError(f"kernel {kernel.name}: a value of another tile is read") from error
    return outputs


def _side_by_side(name: str, roles: list[Step]) -> None:
    """Every role as far as it can, the first one ahead: others take a step where it waits."""
    waiting: dict[int, str] = {}
    while roles:
        for number, role in enumerate(roles):
            waits = next(role, None)
            if waits is None:
                del roles[number]
                waiting.clear()
                break
            if not waits:
                waiting.clear()
                break
            waiting[number] = waits
        else:
            raise KernelError(f"kernel {name}: nobody goes on: {'; '.join(waiting.values())}")


@dataclass
class _Slots:
    """A ring: what each slot holds, how often slots were filled and freed, whose turn is next."""

    count: int
    held: list[Values] = field(default_factory=list)
    filled: int = 0
    freed: int = 0
    by_block: dict[tuple[int, int], Values] = field(default_factory=dict)


@dataclass
class _Machine:
    """What roles share."""

    kernel: TileKernel
    program: Program
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    tiling: Tiling
    late: bool
    rings: dict[str, _Slots] = field(default_factory=dict)
    pieces: dict[str, int] = field(default_factory=dict)  # the last one of each operation
    made: set[int] = field(default_factory=set)  # by tensor cores alone

    def __post_init__(self) -> None:
        for ring in self.kernel.rings:
            self.rings[ring.name] = _Slots(ring.slots, [{} for _ in range(ring.slots)])
        self.ideal = not any(isinstance(one, Sync) for one in self.kernel.statements())
        parts = (part for one in self.kernel.operations for part in one.parts)
        self.made = {part.node for part in parts if part.kind == MMA}
        for one in self.kernel.statements():
            if isinstance(one, Do) and one.piece is not None:
                last = self.pieces.get(one.operation, 0)
                self.pieces[one.operation] = max(one.piece, last)

    def environment(self, points: Mapping[str, Array]) -> Environment:
        return Environment(self.program.scope, self.inputs, points)


class _Thread:
    """One role: its values, its place in every ring, what tensor cores still do for it."""

    def __init__(self, machine: _Machine, body: tuple[Statement, ...]) -> None:
        self.machine, self.kernel, self.program = machine, machine.kernel, machine.program
        self.nodes, self.body = machine.program.nodes, body
        self.values: Values = {}
        self.states: set[int] = set()
        self.of_block: set[int] = set()  # what is left for one block
        self.pieces: dict[int, Values] = {}  # sums by how many blocks later theirs is
        self.used = dict.fromkeys(machine.rings, 0)  # slots of each ring that were left behind
        self.seen = dict.fromkeys(machine.rings, 0)  # slots of each ring that were waited for
        self.running: deque[list[Callable[[], None]]] = deque()
        self.issued: list[Callable[[], None]] = []
        self.points: dict[str, Array] = {}
        self.block = self.blocks = self.tile = 0

    # -- statements

    def run(self) -> Step:
        yield from self._all(self.body)

    def _all(self, body: tuple[Statement, ...]) -> Step:
        for one in body:
            if isinstance(one, Sync):
                yield from self._sync(one)
            elif isinstance(one, Do):
                self._do(one)
            elif isinstance(one, Loop):
                yield from self._loop(one)
            elif isinstance(one, If):
                if one.when.holds(self.block, self.blocks):
                    yield from self._all(one.body)
            elif not isinstance(one, Alloc):
                yield from self._all(one.body)
            yield ""

    def _loop(self, loop: Loop) -> Step:
        tiling, program = self.machine.tiling, self.program
        if loop.over != BLOCK:
            for points in tiling.grid(program):
                self.points, self.values, self.states = points, {}, set()
                self.tile += 1
                self.blocks = tiling.blocks(program)
                yield from self._all(loop.body)
            return
        if loop.first != At(BLOCK):  # else where the loop before has ended
            self.block = loop.first.value(self.block, self.blocks)
        while self.block + loop.step <= loop.end.value(self.block, self.blocks):
            yield from self._all(loop.body)
            for node in self.of_block:
                self.values.pop(node, None)
            self.block += loop.step

    # -- what synchronises

    def _sync(self, one: Sync) -> Step:
        if one.kind == COMMIT:
            self.running.append(self.issued)
            self.issued = []
        elif one.kind == AWAIT:
            while len(self.running) > one.number:
                for act in self.running.popleft():
                    act()
        elif one.of in self.machine.rings:
            yield from self._ring(one)

    def _ring(self, one: Sync) -> Step:
        slots = self.machine.rings[one.of]
        if one.kind == FULL:
            while slots.filled <= self.used[one.of]:
                yield f"{one} of slot {self.used[one.of]}"
            self.seen[one.of] = self.used[one.of] + 1
        elif one.kind == FREE:
            while self.used[one.of] - slots.freed >= slots.count:
                yield f"{one} of slot {self.used[one.of]}"
        elif one.kind == PUBLISH:
            slots.filled = self.used[one.of] + 1
        elif one.kind == ADVANCE:
            self.used[one.of] += 1
        elif one.kind == RELEASE:
            if self.used[one.of] - one.number != slots.freed:
                raise KernelError(f"kernel {self.kernel.name}: {one} out of order")
            slots.freed += 1

    # -- operations

    def _do(self, one: Do) -> None:
        operation = self.kernel.operation(one.operation)
        block = one.at.value(self.block, self.blocks)
        later = one.later.holds(self.block, self.blocks)
        if any(part.kind == COPIES for part in operation.parts):
            if operation.takes:  # else it only asks a cache
                self._copy(operation, block, self._points(block))
            return
        if one.piece is not None and one.piece < self.machine.pieces[one.operation]:
            return  # all of it is done with its last piece
        points = self._points(block)
        if operation.unit == TENSOR:
            slots = self._slots(operation, one.back)

            def act() -> None:
                there = self._held(slots, block)
                self._multiply(operation, points, later, there, one.at.number)

            beside = self.machine.late and not self.machine.ideal and not operation.in_order
            self.issued.append(act) if beside else act()
        else:
            filled = self._filled(operation)
            there = {} if filled else self._held(self._slots(operation, one.back), block)
            self.values |= self.pieces.pop(one.at.number, {}) if one.piece is not None else {}
            for part in operation.parts:
                self._part(part, points, later, there)
            for ring in filled:
                self._fill(ring, operation, block)

    def _filled(self, operation: Operation) -> list[str]:
        """Rings of which threads fill a slot."""
        return [
            ring.name for ring in self.kernel.rings
            if ring.name in self.kernel.relayed and {*ring.tiles} & {*operation.writes}
        ]  # fmt: skip

    def _fill(self, ring: str, operation: Operation, block: int) -> None:
        """Leave what others read."""
        slots = self.machine.rings[ring]
        parts = (part for part in operation.parts if part.kind in (CONVERT, LEAVE))
        found = {part.node: self.values[part.node] for part in parts}
        slots.by_block[self.tile, block] = found
        slots.held[self.used[ring] % slots.count] = found

    def _copy(self, operation: Operation, block: int, points: Mapping[str, Array]) -> None:
        found = {part.node: self._load(part.node, points) for part in operation.parts}
        for ring in operation.takes:
            slots = self.machine.rings[ring]
            for key in (block, OF_TILE):
                slots.by_block[self.tile, key] = found
            slots.held[self.used[ring] % slots.count] = found
            slots.filled = self.used[ring] + 1

    def _slots(self, operation: Operation, back: int) -> list[tuple[str, int]]:
        """Slots of which an operation reads tiles, known when it begins: those that it takes last,
        since a tile may be in two rings."""
        found = [
            ring for ring in self.kernel.rings
            if ring.name in operation.takes or {*ring.tiles} & {*operation.reads}
        ]  # fmt: skip
        found.sort(key=lambda ring: ring.name in operation.takes)
        shared = self.kernel.shared_rings & {*operation.takes}
        uses = {ring.name: self.used[ring.name] - back * (ring.name in shared) for ring in found}
        for ring in found:
            used = uses[ring.name]
            if not self.machine.ideal and self.seen[ring.name] <= used:
                kernel = self.kernel.name
                raise KernelError(
                    f"kernel {kernel}: {operation.name} does not wait for {ring.name}"
                )
        return [(ring.name, uses[ring.name] % ring.slots) for ring in found]

    def _held(self, slots: list[tuple[str, int]], block: int) -> Values:
        """Tiles that are in slots now; raises KernelError where there are none yet."""
        found: Values = {}
        for name, place in slots:
            ring = self.machine.rings[name]
            there = ring.held[place]
            if self.machine.ideal:
                whole = ring.by_block.get((self.tile, OF_TILE), there)
                there = ring.by_block.get((self.tile, block), whole)
            if not there:
                raise KernelError(f"kernel {self.kernel.name}: a slot of {name} is read empty")
            found |= there
        return found

    def _multiply(
        self, operation: Operation, points: Mapping[str, Array], later: bool, there: Values,
        ahead: int,
    ) -> None:  # fmt: skip
        """What tensor cores do, with what is in registers and slots when they do it.

        Sums that begin anew have registers of their own in each of the blocks of a step.
        """
        for part in operation.parts:
            partial = self._reduced(part.node, points, there)
            goes_on = part.node in self.states
            if goes_on and (later or self._cleared(part.node)):
                partial = self._combined(part.node, self.values[part.node], partial)
            self.values[part.node] = partial
            if not goes_on:
                self.pieces.setdefault(ahead, {})[part.node] = partial

    def _cleared(self, position: int) -> bool:
        """Whether a sum is there ahead of its products: it is corrected on its way."""
        return isinstance(self.nodes[position].op, Carry)

    def _part(
        self, part: Part, points: Mapping[str, Array], later: bool, there: Values
    ) -> None:  # fmt: skip
        node = part.node
        if part.kind in (MAP, CONVERT):
            self.values[node] = self._value(node, points, there, fresh=True)
        elif part.kind in (LEAVE, GET):
            self.values[node] = there[node] if part.kind == GET else self._value(node, points, {})
            self.of_block |= {node} - self.states
        elif part.kind == START:
            self.states.add(node)
            self.values[node] = self._identity(node, points)
        elif part.kind == REDUCE:
            self._advance(node, points, there)
        elif part.kind == CORRECT and isinstance(self.nodes[node].op, Fold):
            self._hand_on(node, points, there)
        elif part.kind == CORRECT:
            if later:
                self.values[node] = self._corrected(node, points, there)
        elif part.kind == STORE:
            self._store(node, points)
        elif part.kind not in (FINISH, MMA):
            raise KernelError(f"kernel {self.kernel.name}: nothing means {part}")

    # -- values

    def _points(self, block: int) -> dict[str, Array]:
        return {**self.points, **self.machine.tiling.block(self.program, block)}

    def _load(self, position: int, points: Mapping[str, Array]) -> TileArray:
        node = self.nodes[position]
        args = [self._value(arg, points, {}) for arg in node.args]
        return self._ordered(position, node.op.meaning(args, self._environment(points, node.args)))

    def _environment(self, points: Mapping[str, Array], args: tuple[int, ...]) -> Environment:
        environment = self.machine.environment(points)
        environment.types = [self.nodes[arg].type for arg in args]
        return environment

    def _value(
        self, position: int, points: Mapping[str, Array], there: Values, fresh: bool = False
    ) -> TileArray:
        """A node's value: as it is in registers, in shared memory, or made of its arguments."""
        if position in self.values and not fresh:
            return self.values[position]
        if position in there:
            return there[position]
        if position in self.machine.made:
            raise KernelError(
                f"kernel {self.kernel.name}: sums {position} are read before they are"
            )
        node = self.nodes[position]
        if isinstance(node.op, Load):
            return self._load(position, points)
        if isinstance(node.op, (Reduce, Contract, Carry)):
            return self._reduced(position, points, there)
        args = [self._value(arg, points, there) for arg in node.args]
        with np.errstate(all="ignore"):
            meant = node.op.meaning(args, self._environment(points, node.args))
        return self._ordered(position, meant)

    def _ordered(self, position: int, tile: TileArray) -> TileArray:
        axes = self.nodes[position].axes
        if tile.axes == axes or set(tile.axes) != set(axes):
            return tile
        return TileArray(axes, tile.aligned(axes))

    def _reduced(self, position: int, points: Mapping[str, Array], there: Values) -> TileArray:
        """What one block comes to."""
        node = self.nodes[position]
        if isinstance(node.op, Contract):
            args = [self._value(arg, points, there) for arg in node.args]
            meant = node.op.meaning(args, self._environment(points, node.args))
            return self._ordered(position, meant)
        body = self._value(node.args[0], points, there)
        assert isinstance(node.op, (Reduce, Carry))
        over = node.op.over
        kind = node.op.kind
        found = Reduce(kind, over).meaning([body], self._environment(points, node.args[:1]))
        return self._ordered(position, found)

    def _combined(self, position: int, state: TileArray, partial: TileArray) -> TileArray:
        kind, axes = getattr(self.nodes[position].op, "kind", "sum"), self.nodes[position].axes
        function = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[kind]
        with np.errstate(all="ignore"):
            return TileArray(axes, function(state.aligned(axes), partial.aligned(axes)))

    def _identity(self, position: int, points: Mapping[str, Array]) -> TileArray:
        node = self.nodes[position]
        kind = getattr(node.op, "kind", "sum")
        value: Any = COMBINES[kind].identity
        if not is_float(node.dtype):
            value = np.clip(value, -(2.0**62), 2.0**62)
        shape = tuple(len(points[axis]) for axis in node.axes)
        return TileArray(node.axes, np.full(shape, value, np.float64))

    def _advance(self, position: int, points: Mapping[str, Array], there: Values) -> None:
        """Combine a block into a state; what reads it before and after sees that."""
        carried = isinstance(self.nodes[position].op, Carry)
        readers = reads(self.program, (position,))[position] if carried else []
        for reader in readers:
            if isinstance(self.nodes[reader].op, Prior):
                self.values[reader] = self._finite(position)
        state = self._corrected(position, points, there)
        block = self._reduced(position, points, there)
        self.values[position] = self._combined(position, state, block)
        for reader in readers:
            if not isinstance(self.nodes[reader].op, Prior):
                self.values[reader] = self._finite(position)

    def _corrected(self, position: int, points: Mapping[str, Array], there: Values) -> TileArray:
        node, state = self.nodes[position], self.values[position]
        if not isinstance(node.op, Carry):
            return state
        extra = list(node.args[1:])
        axes, array = node.axes, state.aligned(node.axes)
        if node.op.factor:
            factor = self._value(extra.pop(0), points, there)
            array = self._finite(position).aligned(axes) * factor.aligned(axes)
        if node.op.addend:
            array = array + self._value(extra.pop(0), points, there).aligned(axes)
        return TileArray(axes, array)

    def _hand_on(self, state: int, points: Mapping[str, Array], there: Values) -> None:
        """Scale the sums that are a state which is handed on."""
        factor, whole = self.nodes[state].args
        scale = self._value(factor, points, there)
        for one in addends_of(self.program, whole):
            axes = self.nodes[one].axes
            scaled = self.values[one].aligned(axes) * scale.aligned(axes)
            self.values[one] = TileArray(axes, scaled)

    def _finite(self, position: int) -> TileArray:
        """A state as others read it."""
        node, state = self.nodes[position], self.values[position]
        bound = running_bound(getattr(node.op, "kind", "sum"), node.dtype)
        if bound is None:
            return state
        function = np.maximum if COMBINES[bound[0]].function == "max" else np.minimum
        return TileArray(state.axes, function(state.array, bound[1]))

    def _store(self, position: int, points: Mapping[str, Array]) -> None:
        node = self.nodes[position]
        assert isinstance(node.op, Store)
        tile = self._value(node.args[0], points, {})
        own = [points[axis] for axis in node.op.axes]
        values = np.broadcast_to(tile.aligned(node.op.axes), tuple(map(len, own)))
        where = np.ix_(*own)
        self.machine.outputs[node.op.tensor][where] = values
