"""What every form of a stage shares: register tiles over the region, leaves, state, results.

The forms are `kept.py` (lanes over a kept axis), `folded.py` (lanes over a reduced axis) and
`tile_unit.py` (matrix tiles).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from ir.ops.load import Load
from ir.ops.reduce import Now, Prior
from ir.scalar import COMBINES
from ir.stages import Accumulator, Result, Stage
from ir.targets.cpu.access import Access, Position, Site
from ir.targets.cpu.evaluate import Evaluator, scalar_of
from ir.targets.cpu.nest import Builder, Index, Type, Value
from ir.targets.cpu.plan import Binding
from ir.targets.cpu.runs import RUN

if TYPE_CHECKING:
    from ir.targets.cpu.lower import Lowering, Region

FLOAT_OPS = {"sum": "fadd", "prod": "fmul", "max": "fmaximum", "min": "fminimum"}
INT_OPS = {"sum": "iadd", "prod": "imul", "max": "imax", "min": "imin"}
BIT_OPS = {"sum": "or", "prod": "and", "max": "or", "min": "and"}


@dataclass(frozen=True, slots=True)
class Strip:
    """Consecutive register tiles on one axis: `count` elements each, or one tail of `count`."""

    low: Index
    high: Index
    count: int
    guard: Value | None = None
    single: bool = False  # exactly one tile


def strips(builder: Builder, region: Region, extent: int, step: int) -> list[Strip]:
    """Full tiles, then the tail (guarded when only the last block has one)."""
    b = builder
    if region.exact:
        whole = region.size // step * step
        found = []
        if whole:
            found.append(Strip(region.low, b.add(region.low, whole), step, None, whole == step))
        if region.size % step:
            start = b.add(region.low, whole)
            found.append(Strip(start, b.add(start, 1), region.size % step, None, True))
        return found
    span = b.sub(region.high, region.low)
    middle = region.low
    found = []
    if region.size >= step:
        middle = b.add(region.low, b.mul(b.index("idiv", span, step), step))
        found.append(Strip(region.low, middle, step))
    whole, last = region.size % step, extent % region.size % step
    if whole == last:
        return found + ([Strip(middle, b.add(middle, 1), last, None, True)] if last else [])
    for count, predicate in ((whole, "eq"), (last, "ne")):
        if count:
            guard = b.compare(predicate, span, region.size)
            assert isinstance(guard, Value)
            found.append(Strip(middle, b.add(middle, 1), count, guard, True))
    return found


@contextmanager
def strip_loop(builder: Builder, axis: str, strip: Strip) -> Iterator[Index]:
    """Iterate over the tiles of a strip; yields the tile's origin."""
    with ExitStack() as stack:
        if strip.guard is not None:
            stack.enter_context(builder.branch(strip.guard))
            yield strip.low
        elif strip.single:
            yield strip.low
        else:
            loop = stack.enter_context(
                builder.loop(axis, strip.low, strip.high, strip.count, runs=False)
            )
            yield loop.variable


def identity(kind: str, type: Type) -> float:
    """What a reduction starts from."""
    if type.scalar == "i1":
        return {"or": 0, "and": 1}[BIT_OPS[kind]]
    if not type.is_float:
        most = 1 << (8 * type.of(type.scalar).bytes // max(1, type.lanes) - 1)
        return {"sum": 0, "prod": 1, "max": -most, "min": most - 1}[kind]
    return COMBINES[kind].identity


class StageEmitter:
    """One stage on the current regions."""

    def __init__(self, lowering: Lowering, stage: Stage) -> None:
        self.low = lowering
        self.b = lowering.b
        self.stage = stage
        self.plan = lowering.plan
        self.nodes = lowering.program.nodes
        self.binding: Binding = self.plan.bindings[stage.name]
        self.lanes = self.binding.vector.lanes
        self.evaluator = Evaluator(
            self.b,
            lowering.program,
            self,
            lane=self.binding.lane,
            row=self.binding.row,
            lanes=self.lanes,
            fma=self.binding.vector.fma,
            scales=self.binding.vector.scales,
        )
        self.flags = lowering.state_flags(stage)
        self.written = {r.node for r in stage.written if not r.tensor}
        self.own = {a.node for a in stage.accumulators}
        self._accesses: dict[int, Access] = {}

    # -- leaves

    def is_leaf(self, node: int) -> bool:
        op = self.nodes[node].op
        if isinstance(op, Load):  # also where the stage is a copy, which writes what it loads
            return True
        if node in self.own or (node in self.written and not self._rereads(node)):
            return False
        if isinstance(op, Prior):
            return node in self.plan.buffers
        return node in self.plan.buffers or self._packed(node)

    def looks_up(self, node: int) -> bool:
        """Whether a load is read at indices that tiles hold, not from what was packed of it."""
        here = self.nodes[node]
        return isinstance(here.op, Load) and bool(here.args) and not self._packed(node)

    def _rereads(self, node: int) -> bool:
        return False

    def _packed(self, node: int) -> bool:
        return (self.stage.name, node) in self.plan.packs

    def access(self, node: int) -> Access:
        known = self._accesses.get(node)
        if known is None:
            pack = self.plan.packs.get((self.stage.name, node))
            if pack is not None:
                known = self.low.buffer_access(pack.buffer)
            elif node in self.plan.buffers:
                known = self.low.buffer_access(self.plan.buffers[node])
            else:
                known = self.low.tensor_access(node)
            self._accesses[node] = known
        return known

    # -- the loops over register tiles

    def tiles(self) -> None:
        """Loops over all kept axes; the last two are the register tile's."""
        binding, stage = self.binding, self.stage
        kept = [a for a in stage.parallel if a not in (binding.lane, binding.row)]
        micro = []
        if binding.row:
            micro.append((binding.row, binding.row_step))
        if binding.lane in stage.parallel:
            micro.append((binding.lane, binding.lane_step))
        if not binding.lanes_inner:
            micro.reverse()
        self._nest([(a, 1) for a in kept] + micro, {}, {})

    def _nest(
        self, axes: list[tuple[str, int]], site: dict[str, Position], counts: dict[str, int]
    ) -> None:
        if not axes:
            self.tile(site, counts)
            return
        axis, rest = axes[0][0], axes[1:]
        roots = () if rest else self.plan.staged.body_roots(self.stage)
        self.evaluator.at(site, {})
        rows = self.rows(counts)
        few = rows if 4 * rows <= self.binding.vector.registers else 0  # two registers for each
        with self.evaluator.prepared(roots, [(i, 0) for i in range(few)], axis):
            self._strips(axes, site, counts)

    def _strips(
        self, axes: list[tuple[str, int]], site: dict[str, Position], counts: dict[str, int]
    ) -> None:
        """The register tiles along the first axis, and along the others in each."""
        (axis, step), rest = axes[0], axes[1:]
        region, extent = self.low.regions[axis], self.low.program.axes[axis]
        for strip in strips(self.b, region, extent, step):
            with strip_loop(self.b, axis, strip) as origin:
                self._nest(rest, {**site, axis: Position(origin)}, {**counts, axis: strip.count})

    # -- one register tile

    def tile(self, site: Site, counts: dict[str, int]) -> None:
        raise NotImplementedError

    def rows(self, counts: dict[str, int]) -> int:
        return counts.get(self.binding.row, 1)

    def lane_masks(self, count: int) -> dict[int, int]:
        """Vector number -> active lanes (0: all) for `count` elements along the lane axis."""
        vectors = -(-count // self.lanes)
        return {j: (count % self.lanes if j == vectors - 1 else 0) for j in range(vectors)}

    def accumulator_type(self, accumulator: Accumulator, lanes: int) -> Type:
        return Type(scalar_of(accumulator.dtype), lanes)

    def carried(self, accumulator: Accumulator) -> bool:
        """Whether others read its running value."""
        return any(
            isinstance(n.op, (Now, Prior)) and n.args[0] == accumulator.node for n in self.nodes
        )

    def combine(self, accumulator: Accumulator, left: Value, right: Value) -> Value:
        bits = BIT_OPS if left.type.scalar == "i1" else INT_OPS
        ops = FLOAT_OPS if left.type.is_float else bits
        return self.b.op(ops[accumulator.kind], left, right)

    def add_product(self, terms: list[Value], value: Value) -> Value:
        """value + left * right; of truth values: or, and."""
        if value.type.is_float:
            return self.evaluator.arith.fma(terms[0], terms[1], value)
        times, plus = ("and", "or") if value.type.scalar == "i1" else ("imul", "iadd")
        return self.b.op(plus, value, self.b.op(times, *terms))

    def start(self, accumulator: Accumulator, lanes: int) -> Value:
        type = self.accumulator_type(accumulator, lanes)
        return self.b.constant(identity(accumulator.kind, type), type)

    def stateful(self, accumulator: Accumulator) -> bool:
        """Whether the value lives in a buffer between blocks."""
        return accumulator.node in self.plan.buffers and self.flags.first is not True

    def apart(self, accumulator: Accumulator) -> bool:
        """Whether what a block adds up is added to the state as one: a long sum in bounded runs."""
        extents = self.low.program.axes
        terms = prod(extents[axis] for axis in self.stage.reduce)
        single = accumulator.kind == "sum" and scalar_of(accumulator.dtype) == "f32"
        return single and terms > RUN and self.stateful(accumulator)

    def previous(self, accumulator: Accumulator, i: int, j: int, lanes: int) -> Value:
        """The state left by earlier blocks, rescaled."""
        value, _ = self._old(accumulator, i, j, lanes)
        return value

    def _old(self, accumulator: Accumulator, i: int, j: int, lanes: int) -> tuple[Value, Value]:
        """(rescaled state, raw state)."""
        raw = self.read_state(accumulator.node, i, j, lanes)
        value = raw
        scalar = raw.type.scalar
        if accumulator.factor is not None:
            value = self.evaluator.running(accumulator.kind, value)
            value = self.b.op("fmul", value, self._shaped(accumulator.factor, i, j, lanes, scalar))
        if accumulator.addend is not None:
            value = self.b.op("fadd", value, self._shaped(accumulator.addend, i, j, lanes, scalar))
        return value, raw

    def _shaped(self, node: int, i: int, j: int, lanes: int, scalar: str) -> Value:
        if lanes:
            return self.evaluator.vector(node, i, j, scalar)
        return self.evaluator.convert(self.evaluator.value(node, i, j), scalar)

    def read_state(self, node: int, i: int, j: int, lanes: int) -> Value:
        access = self.low.buffer_access(self.plan.buffers[node])
        pointer, at = access.pointer(self.b, self.evaluator.place(i, j))
        if access.scalar != "i1":
            return self.b.load(Type(access.scalar, lanes), pointer, at)
        stored = self.b.load(Type("i8", lanes), pointer, at)
        return self.b.test("ne", stored, self.b.constant(0, stored.type))

    def write_state(self, node: int, value: Value, i: int, j: int) -> None:
        access = self.low.buffer_access(self.plan.buffers[node])
        pointer, at = access.pointer(self.b, self.evaluator.place(i, j))
        self.b.store(self._storable(value), pointer, at)

    def bind_prior(self, accumulator: Accumulator, value: Value, i: int, j: int) -> None:
        """Make `Prior` of this accumulator known to the evaluator."""
        value = self.evaluator.running(accumulator.kind, value)
        for position, node in enumerate(self.nodes):
            if isinstance(node.op, Prior) and node.args[0] == accumulator.node:
                self.evaluator.bound[self.evaluator.key(position, i, j)] = value

    # -- results

    def write(self, result: Result, i: int, j: int, lanes: int) -> None:
        """Store one vector (or scalar) of a result."""
        if result.tensor is not None:
            access = self.low.output_access(result.tensor, result.axes)
            dtype = self.low.program.scope.tensors[result.tensor].dtype
        else:
            access = self.low.buffer_access(self.plan.buffers[result.node])
            dtype = self.plan.buffers[result.node].dtype
        scalar = scalar_of(dtype)
        pointer, at = access.pointer(self.b, self.evaluator.place(i, j))
        stride = access.stride(self.binding.lane) if lanes else 0
        if stride == 0:
            value = self.evaluator.convert(self.evaluator.value(result.node, i, j), scalar)
            self.b.store(self._storable(value), pointer, at)
            return
        value = self._storable(self.evaluator.vector(result.node, i, j, scalar))
        mask = self.evaluator.masks.get(j, 0)
        if stride == value.type.bytes // value.type.lanes:
            mask = 0 if access.padded else mask
            self.b.store(value, pointer, at, mask, self._streams(result, mask))
        else:
            self.b.scatter(value, pointer, stride, at, mask)

    def _storable(self, value: Value) -> Value:
        return self.b.convert(value, "i8", True) if value.type.scalar == "i1" else value

    def _streams(self, result: Result, mask: int) -> bool:
        """Streaming stores need whole, aligned vectors."""
        if not self.plan.stream or result.tensor is None or mask:
            return False
        spec = self.low.program.scope.tensors[result.tensor]
        row_bytes = spec.shape[-1] * Type(scalar_of(spec.dtype)).bytes
        width = self.lanes * Type(scalar_of(spec.dtype)).bytes
        return result.axes[-1] == self.binding.lane and row_bytes % width == 0

    def finish(self, points: list[tuple[int, int]], lanes: int) -> None:
        """Write state and results for accumulators bound at `points`."""
        last = self.flags.last
        for i, j in points:
            for result in self.stage.running:
                self.write(result, i, j, lanes)
        if last is True:
            self._write_all(self.stage.results, points, lanes)
        elif last is not False:
            with self.b.branch(last) as branch:
                plain = tuple(r for r in self.stage.results if r.tensor or r.node not in self.own)
                self._write_all(plain, points, lanes)
                del branch
        kept = [a for a in self.stage.accumulators if a.node in self.plan.buffers]
        for accumulator in kept:
            if last is True and any(
                r.node == accumulator.node and not r.tensor for r in self.stage.results
            ):
                continue
            for i, j in points:
                value = self.evaluator.bound[self.evaluator.key(accumulator.node, i, j)]
                self.write_state(accumulator.node, value, i, j)

    def _write_all(
        self, results: tuple[Result, ...], points: list[tuple[int, int]], lanes: int
    ) -> None:
        saved = self.evaluator.memo
        self.evaluator.memo = dict(saved)
        for i, j in points:
            for result in results:
                self.write(result, i, j, lanes)
        self.evaluator.memo = saved


Accumulators = list[Value]
