"""A stage on one region with vector instructions: register tiles, reductions, results.

Two forms, by the lane axis: lanes over an axis that is kept (a tile of accumulators, rows x
vectors), or lanes over a reduced axis (partial sums per lane, folded at the end).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ir.errors import Refusal
from ir.ops.load import Load
from ir.ops.reduce import Now, Prior
from ir.scalar import COMBINES, LOWEST
from ir.stages import Accumulator, Result, Stage
from ir.targets.cpu.access import Access, Position, Site
from ir.targets.cpu.evaluate import Evaluator, scalar_of
from ir.targets.cpu.nest import Builder, Index, Type, Value
from ir.targets.cpu.plan import Binding, main_reduction

if TYPE_CHECKING:
    from ir.targets.cpu.lower import Lowering, Region

FLOAT_OPS = {"sum": "fadd", "prod": "fmul", "max": "fmax", "min": "fmin"}
INT_OPS = {"sum": "iadd", "prod": "imul", "max": "imax", "min": "imin"}


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
                builder.loop(axis, strip.low, strip.high, strip.count, runs=False))
            yield loop.variable


def identity(kind: str, type: Type, carried: bool) -> float:
    """What a reduction starts from. Carried extremes start finite, so that differences exist."""
    if not type.is_float:
        return {"sum": 0, "prod": 1, "max": -(2**31), "min": 2**31 - 1}[kind]
    value = COMBINES[kind].identity
    return {"max": LOWEST, "min": -LOWEST}[kind] if carried and kind in ("max", "min") else value


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
            self.b, lowering.program, self, lane=self.binding.lane, row=self.binding.row,
            lanes=self.lanes, fma=self.binding.vector.fma,
            scales=self.binding.vector.scales,
        )
        self.flags = lowering.state_flags(stage)
        self.written = {r.node for r in stage.written}
        self.own = {a.node for a in stage.accumulators}
        self._accesses: dict[int, Access] = {}

    # -- leaves

    def is_leaf(self, node: int) -> bool:
        if node in self.own or (node in self.written and not self._rereads(node)):
            return False
        op = self.nodes[node].op
        if isinstance(op, Prior):
            return node in self.plan.buffers
        return isinstance(op, Load) or node in self.plan.buffers or self._packed(node)

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

    def _nest(self, axes: list[tuple[str, int]], site: dict[str, Position], counts: dict[str, int]
              ) -> None:
        if not axes:
            self.tile(site, counts)
            return
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
        ops = FLOAT_OPS if left.type.is_float else INT_OPS
        return self.b.op(ops[accumulator.kind], left, right)

    def start(self, accumulator: Accumulator, lanes: int) -> Value:
        type = self.accumulator_type(accumulator, lanes)
        return self.b.constant(identity(accumulator.kind, type, self.carried(accumulator)), type)

    def stateful(self, accumulator: Accumulator) -> bool:
        """Whether the value lives in a buffer between blocks."""
        return accumulator.node in self.plan.buffers and self.flags.first is not True

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
        return self.b.load(Type(access.scalar, lanes), pointer, at)

    def write_state(self, node: int, value: Value, i: int, j: int) -> None:
        access = self.low.buffer_access(self.plan.buffers[node])
        pointer, at = access.pointer(self.b, self.evaluator.place(i, j))
        self.b.store(value, pointer, at)

    def bind_prior(self, accumulator: Accumulator, value: Value, i: int, j: int) -> None:
        """Make `Prior` of this accumulator known to the evaluator."""
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
        mask = 0 if access.padded else self.evaluator.masks.get(j, 0)
        if stride == value.type.bytes // value.type.lanes:
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
                    r.node == accumulator.node and not r.tensor for r in self.stage.results):
                continue
            for i, j in points:
                value = self.evaluator.bound[self.evaluator.key(accumulator.node, i, j)]
                self.write_state(accumulator.node, value, i, j)

    def _write_all(self, results: tuple[Result, ...], points: list[tuple[int, int]], lanes: int
                   ) -> None:
        saved = self.evaluator.memo
        self.evaluator.memo = dict(saved)
        for i, j in points:
            for result in results:
                self.write(result, i, j, lanes)
        self.evaluator.memo = saved


Accumulators = list[Value]


class KeptLanes(StageEmitter):
    """Lanes over a kept axis: rows x vectors accumulators per reduction (or a plain map)."""

    def tile(self, site: Site, counts: dict[str, int]) -> None:
        lane_count = counts.get(self.binding.lane, self.lanes)
        masks = self.lane_masks(lane_count) if self.binding.lane in counts else {0: 0}
        points = [(i, j) for i in range(self.rows(counts)) for j in masks]
        self.evaluator.bound = {}
        self.evaluator.at(site, masks)
        if not self.stage.accumulators:
            for result in self.stage.body_results:
                for i, j in points:
                    self.write(result, i, j, self.lanes)
            return
        values = self._begin(points)
        values = self._reduce(list(self._reduction_order()), dict(site), masks, points, values)
        self.evaluator.at(site, masks)
        self._bind(points, values)
        self.finish(points, self.lanes)

    def _bind(self, points: list[tuple[int, int]], values: Accumulators) -> None:
        source = iter(values)
        for accumulator in self.stage.accumulators:
            for i, j in points:
                self.evaluator.bound[self.evaluator.key(accumulator.node, i, j)] = next(source)

    def _begin(self, points: list[tuple[int, int]]) -> Accumulators:
        """Identity on the first block, else the rescaled state."""
        values: Accumulators = []
        for accumulator in self.stage.accumulators:
            start = self.start(accumulator, self.lanes)
            if not self.stateful(accumulator):
                values += [start] * len(points)
                for i, j in points:
                    self.bind_prior(accumulator, start, i, j)
                continue
            if self.flags.first is False:
                pairs = [self._old(accumulator, i, j, self.lanes) for i, j in points]
            else:
                pairs = self._branch_old(accumulator, points, start)
            values += [rescaled for rescaled, _ in pairs]
            for (i, j), (_, raw) in zip(points, pairs, strict=True):
                self.bind_prior(accumulator, raw, i, j)
        return values

    def _branch_old(self, accumulator: Accumulator, points: list[tuple[int, int]], start: Value
                    ) -> list[tuple[Value, Value]]:
        first = self.flags.first
        assert isinstance(first, Value)
        count = len(points)
        with self.b.branch(first) as branch:
            branch.then.yields = (start,) * (2 * count)
            self.b.otherwise(branch)
            saved = self.evaluator.memo
            self.evaluator.memo = {}
            pairs = [self._old(accumulator, i, j, self.lanes) for i, j in points]
            self.evaluator.memo = saved
            branch.other.yields = tuple([p[0] for p in pairs] + [p[1] for p in pairs])
        results = branch.results
        return list(zip(results[:count], results[count:], strict=True))

    def _reduction_order(self) -> tuple[str, ...]:
        main = main_reduction(self.plan.staged, self.stage)
        return (*(a for a in self.stage.reduce if a != main), main)

    def _reduce(self, axes: list[str], site: dict[str, Position], masks: dict[int, int],
                points: list[tuple[int, int]], values: Accumulators) -> Accumulators:
        """Loops over the reduced axes, the longest innermost."""
        axis, rest = axes[0], axes[1:]
        region, extent = self.low.regions[axis], self.low.program.axes[axis]
        depth = 1 if rest else self.binding.depth
        unroll = 1 if rest else self.binding.unroll
        if extent % (depth * unroll) or region.size % (depth * unroll):
            unroll = 1
        if region.exact and region.size <= depth:
            inner = {**site, axis: Position(region.low)}
            return self._step(rest, inner, masks, points, values)
        if not rest:
            self._hoist(site, axis)
            self.evaluator.inner = axis
        with self.b.loop(axis, region.low, region.high, depth * unroll, values) as loop:
            current: Accumulators = list(loop.carried)
            for u in range(unroll):
                inner = {**site, axis: Position(loop.variable, u * depth)}
                current = self._step(rest, inner, masks, points, current)
            loop.block.yields = tuple(current)
        self.evaluator.inner = ""
        return list(loop.results)

    def _hoist(self, site: dict[str, Position], axis: str) -> None:
        """Compute the loop-invariant part of every address before the innermost loop."""
        roots = [t for a in self.stage.accumulators for t in a.terms]
        for leaf in self.plan.staged.leaves(self.stage, roots):
            if self.is_leaf(leaf) and not self.nodes[leaf].args:
                self.evaluator.at(site, {})
                self.access(leaf).pointer(self.b, site, axis, skip=True)

    def _step(self, rest: list[str], site: dict[str, Position], masks: dict[int, int],
              points: list[tuple[int, int]], values: Accumulators) -> Accumulators:
        if rest:
            return self._reduce(rest, site, masks, points, values)
        self.evaluator.at(site, masks)
        current: Accumulators = []
        for number, accumulator in enumerate(self.stage.accumulators):
            part = values[number * len(points):(number + 1) * len(points)]
            current += self._update(accumulator, points, part)
        for result in self.stage.body_results:
            for i, j in points:
                self.write(result, i, j, self.lanes)
        return current

    def _update(self, accumulator: Accumulator, points: list[tuple[int, int]], values: Accumulators
                ) -> Accumulators:
        if self.binding.dot.name != "fma" and len(accumulator.terms) == 2:
            return [self._dot(accumulator, i, j, v) for (i, j), v in zip(points, values, strict=True)]
        return [self._accumulate(accumulator, i, j, v)
                for (i, j), v in zip(points, values, strict=True)]

    def _accumulate(self, accumulator: Accumulator, i: int, j: int, value: Value) -> Value:
        scalar = value.type.scalar
        terms = [self.evaluator.vector(t, i, j, scalar) for t in accumulator.terms]
        if self.binding.prefetch:
            self._prefetch(accumulator, i, j)
        if len(terms) == 1:
            return self.combine(accumulator, value, terms[0])
        if value.type.is_float:
            return self.evaluator.arith.fma(terms[0], terms[1], value)
        return self.b.op("iadd", value, self.b.op("imul", *terms))

    def _prefetch(self, accumulator: Accumulator, i: int, j: int) -> None:
        """Touch the lane operand `prefetch` steps of the reduction ahead (once per vector)."""
        main = main_reduction(self.plan.staged, self.stage)
        for term in accumulator.terms:
            if i or not self.is_leaf(term) or self.binding.lane not in self.nodes[term].axes:
                continue
            access = self.access(term)
            pointer, at = access.pointer(self.b, self.evaluator.place(0, j), main)
            self.b.prefetch(pointer, at + self.binding.prefetch * access.stride(main))

    def _dot(self, accumulator: Accumulator, i: int, j: int, value: Value) -> Value:
        """One dot instruction: broadcast pairs of the row operand, a vector of the lane operand."""
        dot = self.binding.dot
        lane_term, row_term = self.operands(accumulator)
        row_key, lane_key = (row_term, i, -2), (lane_term, -2, j)
        operand = Type(dot.operand, self.lanes * dot.depth)
        if row_key not in self.evaluator.memo:
            pointer, at = self.access(row_term).pointer(self.b, self.evaluator.place(i, 0),
                                                           self.evaluator.inner)
            bits = self.b.load(Type("i32"), pointer, at)
            self.evaluator.memo[row_key] = self.b.bitcast(self.b.splat(bits, self.lanes), operand)
        if lane_key not in self.evaluator.memo:
            pointer, at = self.access(lane_term).pointer(self.b, self.evaluator.place(0, j),
                                                            self.evaluator.inner)
            self.evaluator.memo[lane_key] = self.b.load(operand, pointer, at)
        return self.b.intrinsic(
            dot, value.type, value, self.evaluator.memo[row_key], self.evaluator.memo[lane_key])

    def operands(self, accumulator: Accumulator) -> tuple[int, int]:
        """(lane operand, row operand) of a product."""
        left, right = accumulator.terms
        if self.binding.lane in self.nodes[left].axes:
            return left, right
        return right, left


class FoldedLanes(StageEmitter):
    """Lanes over a reduced axis: partial results per lane, folded when the region is done."""

    def tile(self, site: Site, counts: dict[str, int]) -> None:
        rows = range(self.rows(counts))
        self.evaluator.bound = {}
        self.evaluator.at(site, {})
        carried = [self._before(a, i) for a in self.stage.accumulators for i in rows]
        lane = self.binding.lane
        others = [a for a in self.stage.reduce if a != lane]
        vectors = self.binding.vectors
        starts = [self.start(a, self.lanes) for a in self.stage.accumulators
                  for _ in rows for _ in range(vectors)]
        values = self._outer(others, dict(site), list(rows), starts)
        self.evaluator.at(site, {})
        self._close(list(rows), values, carried)
        self.finish([(i, 0) for i in rows], 0)

    def _before(self, accumulator: Accumulator, i: int) -> Value | None:
        """The rescaled state of row i, or None when this is the only block."""
        start = self.start(accumulator, 0)
        if not self.stateful(accumulator):
            self.bind_prior(accumulator, start, i, 0)
            return None
        first = self.flags.first
        if first is False:
            value, raw = self._old(accumulator, i, 0, 0)
        else:
            assert isinstance(first, Value)
            with self.b.branch(first) as branch:
                branch.then.yields = (start, start)
                self.b.otherwise(branch)
                saved, self.evaluator.memo = self.evaluator.memo, {}
                branch.other.yields = self._old(accumulator, i, 0, 0)
                self.evaluator.memo = saved
            value, raw = branch.results
        self.bind_prior(accumulator, raw, i, 0)
        return value

    def _outer(self, axes: list[str], site: dict[str, Position], rows: list[int],
               values: Accumulators) -> Accumulators:
        if not axes:
            return self._lane_strips(site, rows, values)
        region = self.low.regions[axes[0]]
        with self.b.loop(axes[0], region.low, region.high, 1, values) as loop:
            inner = {**site, axes[0]: Position(loop.variable)}
            loop.block.yields = tuple(self._outer(axes[1:], inner, rows, list(loop.carried)))
        return list(loop.results)

    def _lane_strips(self, site: dict[str, Position], rows: list[int], values: Accumulators
                     ) -> Accumulators:
        lane = self.binding.lane
        region, extent = self.low.regions[lane], self.low.program.axes[lane]
        self._bind_invariants(site, rows)
        for strip in strips(self.b, region, extent, self.binding.lane_step):
            if strip.guard is not None:
                with self.b.branch(strip.guard) as branch:
                    branch.then.yields = tuple(self._step(
                        {**site, lane: Position(strip.low)}, rows, strip.count, values))
                    self.b.otherwise(branch)
                    branch.other.yields = tuple(values)
                values = list(branch.results)
            elif strip.count < self.binding.lane_step:
                values = self._step({**site, lane: Position(strip.low)}, rows, strip.count, values)
            else:
                with self.b.loop(lane, strip.low, strip.high, strip.count, values, runs=False
                                 ) as loop:
                    loop.block.yields = tuple(self._step(
                        {**site, lane: Position(loop.variable)}, rows, strip.count,
                        list(loop.carried)))
                values = list(loop.results)
        return values

    def _bind_invariants(self, site: dict[str, Position], rows: list[int]) -> None:
        """Read what does not change along the lanes once, before the loop over them."""
        lane = self.binding.lane
        self.evaluator.at(site, {})
        roots = self.plan.staged.body_roots(self.stage)
        for leaf in self.plan.staged.leaves(self.stage, roots):
            if lane not in self.nodes[leaf].axes and leaf not in self.own:
                for i in rows:
                    key = self.evaluator.key(leaf, i, 0)
                    self.evaluator.bound[key] = self.evaluator.value(leaf, i, 0)

    def _step(self, site: dict[str, Position], rows: list[int], count: int, values: Accumulators
              ) -> Accumulators:
        masks = self.lane_masks(count)
        self.evaluator.at(site, masks)
        vectors, position, result = self.binding.vectors, 0, list(values)
        for accumulator in self.stage.accumulators:
            for i in rows:
                for j in range(vectors):
                    if j in masks:
                        result[position] = self._accumulate(accumulator, i, j, values[position])
                    position += 1
        for out in self.stage.body_results:
            for i in rows:
                for j in masks:
                    self.write(out, i, j, self.lanes)
        return result

    def _accumulate(self, accumulator: Accumulator, i: int, j: int, value: Value) -> Value:
        scalar = value.type.scalar
        terms = [self.evaluator.vector(t, i, j, scalar) for t in accumulator.terms]
        active = self.evaluator.masks.get(j, 0)
        if active:
            neutral = self.start(accumulator, self.lanes) if len(terms) == 1 else (
                self.b.constant(0, value.type))
            terms[0] = self._masked(terms[0], neutral, active)
            if len(terms) == 2:
                terms[1] = self._masked(terms[1], self.b.constant(0, value.type), active)
        if len(terms) == 1:
            return self.combine(accumulator, value, terms[0])
        if value.type.is_float:
            return self.evaluator.arith.fma(terms[0], terms[1], value)
        return self.b.op("iadd", value, self.b.op("imul", *terms))

    def _masked(self, value: Value, neutral: Value, active: int) -> Value:
        lanes = self.b.lanes(Type("i32", self.lanes))
        inside = self.b.test("lt", lanes, self.b.constant(active, lanes.type))
        return self.b.select(inside, value, neutral)

    def _close(self, rows: list[int], values: Accumulators, carried: list[Value | None]) -> None:
        vectors = self.binding.vectors
        for number, accumulator in enumerate(self.stage.accumulators):
            for i in rows:
                at = (number * len(rows) + i) * vectors
                total = values[at]
                for extra in values[at + 1: at + vectors]:
                    total = self.combine(accumulator, total, extra)
                folded = self.b.fold(accumulator.kind, total)
                before = carried[number * len(rows) + i]
                if before is not None:
                    folded = self.combine(accumulator, before, folded)
                self.evaluator.bound[self.evaluator.key(accumulator.node, i, 0)] = folded


def emit_stage(lowering: Lowering, stage: Stage) -> None:
    """Emit a stage on the current regions, by the form that its binding asks for."""
    binding = lowering.plan.bindings[stage.name]
    lowering.b.comment(f"{stage.name}: {', '.join(stage.domain)}")
    if binding.tiled:
        from ir.targets.cpu.tile_unit import TileStage

        TileStage(lowering, stage).tiles()
        return
    if binding.lane in stage.reduce:
        if binding.dot.name != "fma":
            raise Refusal("dot-lanes", f"{stage.name}: {binding.dot.name} needs lanes on a kept axis")
        FoldedLanes(lowering, stage).tiles()
        return
    KeptLanes(lowering, stage).tiles()

