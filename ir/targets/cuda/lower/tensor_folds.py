"""The pass of products that begin anew at every point of some axes, and of their folds.

Where a block has all that is summed between two points, what it is folded with is loaded a step
before, and its products take 64 rows after the other. In pairs, the second ones run while what came
of the first is folded: sums of an earlier step are never read while products run, for which ptxas
would make them wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ir.ops.load import Load
from ir.targets.cuda.build.tensor_plan import Plan
from ir.targets.cuda.build.tensor_rings import HELD
from ir.targets.cuda.text import scalars
from ir.targets.cuda.text.loops import Loop
from ir.targets.cuda.text.passes import Pass, needed
from ir.targets.cuda.text.registers import Fragment

if TYPE_CHECKING:
    from ir.targets.cuda.lower.tensor_consumer import TensorBody


@dataclass(frozen=True, slots=True)
class Unit:
    """Products of 64 rows: of how many blocks later, which rows of the block, whether its last."""

    ahead: int
    rows: int
    last: bool


def groups_of(rows: int, blocks: int, together: int) -> list[list[Unit]]:
    """The products of so many blocks of so many times 64 rows, those that run together."""
    units = [Unit(b, r, r == rows - 1) for b in range(blocks) for r in range(rows)]
    return [units[first : first + together] for first in range(0, len(units), together)]


def steps_of(plan: Plan) -> tuple[str, ...]:
    """A step of the loop, for people."""
    return tuple(_steps(plan))


def _steps(plan: Plan) -> Iterator[str]:
    rings = [ring.name for ring in plan.rings if ring.name != HELD]
    if plan.fresh > 1:
        yield from (f"wait for {ring} of j" for ring in rings)
        yield "multiply of j"
        yield f"wait until 0 products run; free {', '.join(f'{ring} of j' for ring in rings)}"
        yield f"fold of j, where it is the last of {plan.fresh}"
        return
    together = 2 if plan.paired else 1
    for group in groups_of(plan.row_blocks, 1 if plan.row_blocks % together == 0 else 2, together):
        for unit in group:
            yield from (f"wait for {ring} of {_name(unit)}" for ring in rings if not unit.rows)
            yield f"multiply rows {unit.rows} of {_name(unit)}"
        for number, unit in enumerate(group):
            free = ", ".join(f"{ring} of {_name(unit)}" for ring in rings if unit.last)
            running = len(group) - 1 - number
            many = f"{running} product runs" if running == 1 else f"{running} products run"
            yield f"wait until {many}" + (f"; free {free}" if free else "")
            yield f"fold rows {unit.rows} of {_name(unit)}"


def _name(unit: Unit) -> str:
    return f"j+{unit.ahead}" if unit.ahead else "j"


class FoldingPass:
    """Emits one pass; `run` adds it to the kernel's body."""

    def __init__(self, body: TensorBody, number: int, one: Pass) -> None:
        self.body, self.t, self.e, self.w = body, body.t, body.e, body.e.w
        self.plan, self.lowering, self.number, self.one = body.plan, body.lowering, number, one
        self.products = list(self.t.outer.values())
        self.folds = [position for position in one.reductions if position not in self.t.outer]
        self.states: dict[int, Fragment] = {}
        self.end = ""  # the last block's number, as text

    def run(self, loop: Loop) -> None:
        at_once = self.plan.fresh == 1
        kept = self.folds if at_once else self.one.reductions
        self.states = {position: self.body.open(position) for position in kept}
        with self.e.repeating(True):
            if at_once:
                self._blocks()
            else:
                self._long(loop)
        for position in self.folds:
            self.body.close(position, self.states[position])

    # -- several blocks between two points

    def _long(self, loop: Loop) -> None:
        e, fresh = self.e, self.plan.fresh
        with loop(self.number), e.scope():
            for position in self.t.outer:
                self.body.advance(position, self.states[position])
            with self.w.block(f"if (block % {fresh} == {fresh - 1})"), e.scope():
                for position in self.t.outer:
                    self.t.hold(self.states[position])
                    e.values[position] = self.states[position]
                self._fold()

    def _fold(self) -> None:
        for position in self.folds:
            self.body.advance(position, self.states[position])

    # -- every block is of one point

    def _blocks(self) -> None:
        """The loop, one block or two in a step, and the block that pairs leave over.

        What a step folds with is loaded a step before.
        """
        together = 2 if self.plan.paired else 1
        blocks = 1 if self.plan.row_blocks % together == 0 else 2
        w = self.w
        self.end = w.name("last_block")
        w.line(f"const i32 {self.end} = max(blocks - 1, 0);")
        following = [self._loaded(f"min({number}, {self.end})")[1] for number in range(blocks)]
        if blocks == 1:
            with w.block("for (i32 block = 0; block < blocks; block++)"):
                self._step(following, together)
        else:
            w.line("i32 block = 0;")
            with w.block("for (; block + 1 < blocks; block += 2)"):
                self._step(following, together)
            with w.block("if (block < blocks)"):
                self._step(following[:1], together)
        self.lowering.uses[self.number] = self.t.rings_of(self.products)
        self.body.leave(self.number)

    def _step(self, following: Sequence[Mapping[int, Fragment]], together: int) -> None:
        """As many blocks as something is loaded for, so many products at a time."""
        blocks = len(following)
        with self.e.scope():
            beside = []
            for number, values in enumerate(following):
                place = f"(block + {number})" if number else "block"
                origins = self.lowering.walk_origins(self.w, place)
                beside.append((origins, {p: self._copied(p, one) for p, one in values.items()}))
            for number, values in enumerate(following):
                _, loaded = self._loaded(f"min(block + {blocks + number}, {self.end})")
                for position, one in values.items():
                    self._assign(one, loaded[position])
            for group in groups_of(self.plan.row_blocks, blocks, together):
                self._group(group, beside)

    def _loaded(self, place: str) -> tuple[dict[str, str], dict[int, Fragment]]:
        """The origins of a block, and what is loaded for its folds."""
        origins = self.lowering.walk_origins(self.w, place)
        with self._at(origins, {}):
            before = {*self.e.values}
            self._load_beside()
            return origins, {p: one for p, one in self.e.values.items() if p not in before}

    def _copied(self, position: int, one: Fragment) -> Fragment:
        kind = scalars.register_type(self.body.nodes[position].dtype)
        found = replace(one, name=self.w.name(f"{one.name}_here"))
        self.w.line(f"{kind} {found.name}[{one.count}];")
        self._assign(found, one)
        return found

    def _assign(self, target: Fragment, source: Fragment) -> None:
        with self.e.each(target.digits) as point:
            places = (self.e.element(one, point) for one in (target, source))
            self.w.line(f"{' = '.join(places)};")

    @contextmanager
    def _at(self, origins: Mapping[str, str], values: Mapping[int, Fragment]) -> Iterator[None]:
        e, saved = self.e, self.e.origins
        with e.scope():
            e.origins = {**saved, **origins}
            e.values.update(values)
            yield
        e.origins = saved

    def _load_beside(self) -> None:
        """Load what products are folded with, but for what is as large as they are."""
        known = frozenset((*self.e.values, *self.t.outer))
        roots = tuple(arg for position in self.folds for arg in self.body.nodes[position].args)
        roles = self.plan.roles
        for position in needed(self.body.program, roots, known):
            node = self.body.nodes[position]
            wide = {*roles.rows, *roles.columns} <= {*node.axes}
            if isinstance(node.op, Load) and position not in known and not wide:
                self.e.fragment(position)

    def _group(
        self, group: Sequence[Unit], beside: Sequence[tuple[dict[str, str], dict[int, Fragment]]]
    ) -> None:
        rings, w = self.t.rings_of(self.products), self.w
        sums = []
        with w.block(""):
            for unit in group:
                if unit.ahead and not unit.rows:
                    for ring in rings:
                        self.lowering.advance_ring(w, ring)
                if not unit.rows:
                    for ring in rings:
                        self.t.wait_full(ring)
                sums.append(self._issue(unit))
            last = group[-1]
            for number, (unit, own) in enumerate(zip(group, sums, strict=True)):
                w.line(f"tw_wgmma_wait<{len(group) - 1 - number}>();")
                if unit.last:
                    for ring in rings:
                        back = last.ahead - unit.ahead
                        slot = f"(({ring.name}_slot + {ring.stages - back}) % {ring.stages})"
                        here = slot if back else self.lowering.present(ring)
                        self.lowering.release(w, ring, here)
                with self._at(*beside[unit.ahead]), self.e.at(self.plan.places_of(unit.rows)):
                    for product, fragment in zip(self.products, own, strict=True):
                        self.t.hold(fragment, 1)
                        self.e.values[product.position] = fragment
                    with w.block(""):
                        self._fold()
            if last.last:
                for ring in rings:
                    self.lowering.advance_ring(w, ring)

    def _issue(self, unit: Unit) -> list[Fragment]:
        """Begin the products of some rows; where their sums will be."""
        with self.e.at(self.plan.places_of(unit.rows)):
            sums = [self.t.accumulator(product, 1) for product in self.products]
            self.w.line("tw_wgmma_fence();")
            for product, fragment in zip(self.products, sums, strict=True):
                self.t.multiply(product, fragment, "0", only=unit.rows)
            self.w.line("tw_wgmma_commit();")
        return sums
