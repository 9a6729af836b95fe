"""A stage with lanes over a reduced axis: partial results per lane, folded at the end."""

from __future__ import annotations

from ir.stages import Accumulator
from ir.targets.cpu.access import Position, Site
from ir.targets.cpu.micro import Accumulators, StageEmitter, strips
from ir.targets.cpu.nest import Type, Value


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
        starts = [
            self.start(a, self.lanes)
            for a in self.stage.accumulators
            for _ in rows
            for _ in range(vectors)
        ]
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

    def _outer(
        self, axes: list[str], site: dict[str, Position], rows: list[int], values: Accumulators
    ) -> Accumulators:
        if not axes:
            return self._lane_strips(site, rows, values)
        region = self.low.regions[axes[0]]
        with self.b.loop(axes[0], region.low, region.high, 1, values) as loop:
            inner = {**site, axes[0]: Position(loop.variable)}
            loop.block.yields = tuple(self._outer(axes[1:], inner, rows, list(loop.carried)))
        return list(loop.results)

    def _lane_strips(
        self, site: dict[str, Position], rows: list[int], values: Accumulators
    ) -> Accumulators:
        lane = self.binding.lane
        self._bind_invariants(site, rows)
        roots = self.plan.staged.body_roots(self.stage)
        with self.evaluator.prepared(roots, [(i, 0) for i in rows], lane):
            return self._lane_tiles(site, rows, values)

    def _lane_tiles(
        self, site: dict[str, Position], rows: list[int], values: Accumulators
    ) -> Accumulators:
        lane = self.binding.lane
        region, extent = self.low.regions[lane], self.low.program.axes[lane]
        for strip in strips(self.b, region, extent, self.binding.lane_step):
            if strip.guard is not None:
                with self.b.branch(strip.guard) as branch:
                    branch.then.yields = tuple(
                        self._step({**site, lane: Position(strip.low)}, rows, strip.count, values)
                    )
                    self.b.otherwise(branch)
                    branch.other.yields = tuple(values)
                values = list(branch.results)
            elif strip.count < self.binding.lane_step:
                values = self._step({**site, lane: Position(strip.low)}, rows, strip.count, values)
            else:
                with self.b.loop(
                    lane, strip.low, strip.high, strip.count, values, runs=False
                ) as loop:
                    loop.block.yields = tuple(
                        self._step(
                            {**site, lane: Position(loop.variable)},
                            rows,
                            strip.count,
                            list(loop.carried),
                        )
                    )
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

    def _step(
        self, site: dict[str, Position], rows: list[int], count: int, values: Accumulators
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
            neutral = (
                self.start(accumulator, self.lanes)
                if len(terms) == 1
                else (self.b.constant(0, value.type))
            )
            terms[0] = self._masked(terms[0], neutral, active)
            if len(terms) == 2:
                terms[1] = self._masked(terms[1], self.b.constant(0, value.type), active)
        if len(terms) == 1:
            return self.combine(accumulator, value, terms[0])
        return self.add_product(terms, value)

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
                for extra in values[at + 1 : at + vectors]:
                    total = self.combine(accumulator, total, extra)
                folded = self.b.fold(accumulator.kind, total)
                before = carried[number * len(rows) + i]
                if before is not None:
                    folded = self.combine(accumulator, before, folded)
                self.evaluator.bound[self.evaluator.key(accumulator.node, i, 0)] = folded
