"""A stage with lanes over a kept axis: rows x vectors accumulators a reduction, or a plain map."""

from __future__ import annotations

from ir.rewrite.domain import Condition, live_range
from ir.stages import Accumulator
from ir.targets.cpu.access import Position, Site
from ir.targets.cpu.evaluate import scalar_of
from ir.targets.cpu.instructions import MOVED
from ir.targets.cpu.micro import Accumulators, StageEmitter
from ir.targets.cpu.nest import Index, Type, Value
from ir.targets.cpu.plan import main_reduction


class KeptLanes(StageEmitter):
    """Lanes over a kept axis: rows x vectors accumulators per reduction (or a plain map)."""

    _sums: Accumulators | None = None  # of the lanes of this column of register tiles

    def _nest(
        self, axes: list[tuple[str, int]], site: dict[str, Position], counts: dict[str, int]
    ) -> None:
        """Where rows go by behind the same lanes, these are summed once for all."""
        rows_alone = [axis for axis, _ in axes] == [self.binding.row]
        if not (rows_alone and self.binding.dot.moved and not self._narrows()):
            super()._nest(axes, site, counts)
            return
        masks = self.lane_masks(counts.get(self.binding.lane, self.lanes))
        sums, row = self._no_sums(masks), self.binding.row
        first = {**site, row: Position(self.low.regions[row].low)}
        self.evaluator.at(first, masks)
        self._sums = self._reduce(list(self._reduction_order()), first, masks, [], sums)
        super()._nest(axes, site, counts)
        self._sums = None

    def _narrows(self) -> bool:
        """Whether the reduction leaves out what matters to no row."""
        program, reduced = self.low.program, self.stage.reduce
        return any(self._is_told(c, axis) for axis in reduced for c in live_range(program, axis))

    def _no_sums(self, masks: dict[int, int]) -> Accumulators:
        """Zeros for the sums of the lanes of each product."""
        return [
            self.b.constant(0, self.accumulator_type(accumulator, self.lanes))
            for accumulator in self.stage.accumulators
            for _ in masks
        ]

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
        values, before = self._begin(points)
        if self.binding.dot.moved and self._sums is None:
            values += self._no_sums(masks)
        values = self._reduce(list(self._reduction_order()), dict(site), masks, points, values)
        self.evaluator.at(site, masks)
        if self.binding.dot.moved:
            values = self._moved_back(masks, points, values + (self._sums or []))
        self._bind(points, self._behind(before, points, values))
        self.finish(points, self.lanes)

    def _bind(self, points: list[tuple[int, int]], values: Accumulators) -> None:
        source = iter(values)
        for accumulator in self.stage.accumulators:
            for i, j in points:
                self.evaluator.bound[self.evaluator.key(accumulator.node, i, j)] = next(source)

    def _begin(self, points: list[tuple[int, int]]) -> tuple[Accumulators, dict[int, Accumulators]]:
        """Identity on the first block, else the rescaled state; and the states that are added
        behind the block instead, by accumulator."""
        values: Accumulators = []
        before: dict[int, Accumulators] = {}
        for accumulator in self.stage.accumulators:
            start = self.start(accumulator, self.lanes)
            states = [(start, start)] * len(points)
            if self.stateful(accumulator) and not self._is_late(accumulator):
                states = self._states(accumulator, points)
            rescaled = [value for value, _ in states]
            if self.apart(accumulator):
                before[accumulator.node] = rescaled
                rescaled = [start] * len(points)
            values += rescaled
            for (i, j), (_, raw) in zip(points, states, strict=True):
                self.bind_prior(accumulator, raw, i, j)
        return values, before

    def _is_late(self, accumulator: Accumulator) -> bool:
        """Whether its state is not asked for before the block is done."""
        scaled = accumulator.factor is not None or accumulator.addend is not None
        return self.apart(accumulator) and not scaled and not self.carried(accumulator)

    def _behind(
        self, before: dict[int, Accumulators], points: list[tuple[int, int]], values: Accumulators
    ) -> Accumulators:
        """What blocks come to, with the states that were not what they began with."""
        found, count = list(values), len(points)
        for number, accumulator in enumerate(self.stage.accumulators):
            states = before.get(accumulator.node, [])
            if self._is_late(accumulator):
                states = [value for value, _ in self._states(accumulator, points)]
            for at, state in enumerate(states, number * count):
                found[at] = self.b.op("fadd", state, found[at])
        return found

    def _states(
        self, accumulator: Accumulator, points: list[tuple[int, int]]
    ) -> list[tuple[Value, Value]]:
        """(rescaled state, raw state) of every point; the identity on the first block."""
        if self.flags.first is False:
            return [self._old(accumulator, i, j, self.lanes) for i, j in points]
        return self._branch_old(accumulator, points, self.start(accumulator, self.lanes))

    def _branch_old(
        self, accumulator: Accumulator, points: list[tuple[int, int]], start: Value
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

    def _reduce(
        self,
        axes: list[str],
        site: dict[str, Position],
        masks: dict[int, int],
        points: list[tuple[int, int]],
        values: Accumulators,
    ) -> Accumulators:
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
        self.evaluator.at(site, masks)
        roots = () if rest else self.plan.staged.body_roots(self.stage)
        low, high = self._read_bounds(axis, points, depth * unroll)
        runs = low is region.low and high is region.high
        with (
            self.evaluator.prepared(roots, points, axis),
            self.b.loop(axis, low, high, depth * unroll, values, runs=runs) as loop,
        ):
            current: Accumulators = list(loop.carried)
            for u in range(unroll):
                inner = {**site, axis: Position(loop.variable, u * depth)}
                current = self._step(rest, inner, masks, points, current)
            loop.block.yields = tuple(current)
        self.evaluator.inner = ""
        return list(loop.results)

    def _read_bounds(
        self, axis: str, points: list[tuple[int, int]], step: int
    ) -> tuple[Index, Index]:
        """The range of a loop, narrowed to what matters to any row where tensors tell: lengths of
        sequences, and where they begin. Nothing may be stored of what is left out."""
        region, b = self.low.regions[axis], self.b
        low, high = region.low, region.high
        if self.stage.body_results:
            return low, high
        rows = sorted({i for i, _ in points})
        for condition in live_range(self.low.program, axis):
            coefficient = dict(condition.terms).get(axis, 0)
            if abs(coefficient) != 1:
                continue
            if self._is_told(condition, axis):
                rests = [self._rest(condition, axis, i) for i in rows]
            elif points and self._is_told(condition, axis, (self.binding.lane,)):
                rests = [self._most(condition, axis, *point) for point in points]
            else:
                continue
            most = rests[0]
            for rest in rests[1:]:
                most = b.maximum(most, rest)
            if coefficient < 0:
                high = b.minimum(high, b.add(most, 1))
                continue
            start = b.maximum(b.sub(b.sub(0, most), region.low), 0)
            whole = b.mul(b.index("idiv", start, step), step)
            low, high = b.add(region.low, whole), b.minimum(high, region.high)
        return low, high

    def _is_told(self, condition: Condition, axis: str, beside: tuple[str, ...] = ()) -> bool:
        """Whether a condition reads what all lanes have in common, before the loop; or what each
        has by itself along the axes `beside`."""
        own = {self.binding.lane, *self.stage.reduce} - {axis, *beside}
        axes = {name for name, _ in condition.terms} - {axis}
        read = {name for node, _ in condition.reads for name in self.nodes[node].axes}
        return bool(condition.reads) and not (axes | read) & own and axis not in read

    def _rest(self, condition: Condition, axis: str, i: int) -> Index:
        """The sum of a condition without the axis, for row i."""
        total: Index = condition.constant
        for name, coefficient in condition.terms:
            if name != axis:
                here = self.b.convert(self.evaluator.first(name, i, 0), "i64")
                total = self.b.add(total, self.b.mul(here, coefficient))
        for node, coefficient in condition.reads:
            value = self.b.convert(self.evaluator.value(node, i, 0), "i64")
            total = self.b.add(total, self.b.mul(value, coefficient))
        return total

    def _most(self, condition: Condition, axis: str, i: int, j: int) -> Index:
        """The largest sum of a condition without the axis, of the lanes of row i, vector j."""
        b, lanes = self.b, Type("i64", self.lanes)
        total = b.splat(b.constant(condition.constant, Type("i64")), self.lanes)
        parts = [
            (self.evaluator.coordinate(name, i, j), c)
            for name, c in condition.terms
            if name != axis
        ]
        parts += [(self.evaluator.value(node, i, j), c) for node, c in condition.reads]
        for value, coefficient in parts:
            wide = b.convert(value, "i64")
            whole = wide if wide.type.lanes else b.splat(wide, self.lanes)
            total = b.op("iadd", total, b.op("imul", whole, b.constant(coefficient, lanes)))
        return b.fold("max", total)

    def _hoist(self, site: dict[str, Position], axis: str) -> None:
        """Compute the loop-invariant part of every address before the innermost loop."""
        roots = [t for a in self.stage.accumulators for t in a.terms]
        for leaf in self.plan.staged.leaves(self.stage, roots):
            if self.is_leaf(leaf) and not self.nodes[leaf].args:
                self.evaluator.at(site, {})
                self.access(leaf).pointer(self.b, site, axis, skip=True)

    def _step(
        self,
        rest: list[str],
        site: dict[str, Position],
        masks: dict[int, int],
        points: list[tuple[int, int]],
        values: Accumulators,
    ) -> Accumulators:
        if rest:
            return self._reduce(rest, site, masks, points, values)
        self.evaluator.at(site, masks)
        current: Accumulators = []
        for number, accumulator in enumerate(self.stage.accumulators):
            part = values[number * len(points) : (number + 1) * len(points)]
            current += self._update(accumulator, points, part)
        sums = iter(values[len(current) :])  # of the lanes, where they are summed beside
        for accumulator in self.stage.accumulators:
            pairs = zip(masks, sums, strict=False)  # none, or as many as the accumulator has lanes
            current += [self._add_lanes(accumulator, j, s) for j, s in pairs]
        for result in self.stage.body_results:
            for i, j in points:
                self.write(result, i, j, self.lanes)
        return current

    def _update(
        self, accumulator: Accumulator, points: list[tuple[int, int]], values: Accumulators
    ) -> Accumulators:
        if self.binding.dot.name != "fma" and len(accumulator.terms) == 2:
            return [
                self._dot(accumulator, i, j, v) for (i, j), v in zip(points, values, strict=True)
            ]
        return [
            self._accumulate(accumulator, i, j, v) for (i, j), v in zip(points, values, strict=True)
        ]

    def _accumulate(self, accumulator: Accumulator, i: int, j: int, value: Value) -> Value:
        scalar = value.type.scalar
        terms = [self.evaluator.vector(t, i, j, scalar) for t in accumulator.terms]
        if self.binding.prefetch:
            self._prefetch(accumulator, i, j)
        if len(terms) == 1:
            return self.combine(accumulator, value, terms[0])
        return self.add_product(terms, value)

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
        row_term = self.operands(accumulator)[1]
        row_key = (row_term, i, -2)
        count = self.lanes * dot.depth
        if row_key not in self.evaluator.memo:
            pointer, at = self.access(row_term).pointer(
                self.b, self.evaluator.place(i, 0), self.evaluator.inner
            )
            bits = self.b.load(Type("i32"), pointer, at)
            self.evaluator.memo[row_key] = self.b.bitcast(
                self.b.splat(bits, self.lanes), Type(scalar_of(dot.row), count)
            )
        factors = (self.evaluator.memo[row_key], self._lanes_of(accumulator, j))
        return self.b.intrinsic(
            dot, value.type, value, *(reversed(factors) if dot.lane_first else factors)
        )

    def _lanes_of(self, accumulator: Accumulator, j: int) -> Value:
        """Vector j of the lane operand of a product by dot instructions."""
        dot, lane_term = self.binding.dot, self.operands(accumulator)[0]
        key = (lane_term, -2, j)
        if key not in self.evaluator.memo:
            pointer, at = self.access(lane_term).pointer(
                self.b, self.evaluator.place(0, j), self.evaluator.inner
            )
            self.evaluator.memo[key] = self.b.load(
                Type(scalar_of(dot.lane), self.lanes * dot.depth), pointer, at
            )
        return self.evaluator.memo[key]

    def _add_lanes(self, accumulator: Accumulator, j: int, value: Value) -> Value:
        """value + MOVED times the sum of the lane operand's vector j."""
        lanes = self._lanes_of(accumulator, j)
        moved = self.b.constant(-MOVED, lanes.type)  # unsigned: MOVED
        return self.b.intrinsic(self.binding.dot, value.type, value, moved, lanes)

    def _moved_back(
        self, masks: dict[int, int], points: list[tuple[int, int]], values: Accumulators
    ) -> Accumulators:
        """The sums of products without what moving the row operand has put there."""
        count = len(points)
        sums = iter(values[count * len(self.stage.accumulators) :])
        found: Accumulators = []
        for number in range(len(self.stage.accumulators)):
            of = {j: next(sums) for j in masks}
            part = values[number * count : (number + 1) * count]
            found += [
                self.b.op("isub", value, of[j]) for (_, j), value in zip(points, part, strict=True)
            ]
        return found

    def operands(self, accumulator: Accumulator) -> tuple[int, int]:
        """(lane operand, row operand) of a product."""
        left, right = accumulator.terms
        if self.binding.lane in self.nodes[left].axes:
            return left, right
        return right, left
