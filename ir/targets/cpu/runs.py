"""Long sums in bounded runs: no accumulator of f32 takes more than `RUN` terms one after the other.

A sum that has grown to 2^20 times its terms loses of each what is below its last place, and always
to the same side. So a loop that does nothing to a carried value but add to it goes in runs: each
begins with zero, and what it comes to is added to a total (blocked summation: Higham, Accuracy and
Stability of Numerical Algorithms, 4.2; Blanchard, Higham and Mary, doi:10.1137/19M1257780).

Works on finished nests, whatever emitted them: knows no program, schedule or stage.

    for (i = 0; i < n; i += s) c = c + x[i]
    becomes
    for (j = 0; j < n; j += s r) { for (i = j, p = 0; i < min(j + s r, n); i += s) p = p + x[i]
                                   c = c + p }
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from ir.targets.cpu.instructions import DotRow
from ir.targets.cpu.nest import (
    I64,
    Block,
    Branch,
    Builder,
    Index,
    Instruction,
    Loop,
    Operand,
    Type,
    Value,
)

RUN = 1 << 12
Place = tuple[Loop | Branch, int]  # what a result comes out of, and which it is


def in_runs(builder: Builder) -> None:
    """Every long sum of the builder's function in runs."""
    Runs(builder).block(builder.function.block)


class _Way:
    """From a value back to what it is more than: of each value on the way how many terms it has
    more (None where it is anything else), and how often it is taken."""

    def __init__(self, start: Value) -> None:
        self.known: dict[int, float | None] = {start.id: 0.0}
        self.taken: Counter[int] = Counter()


class Runs:
    """The rewrite of one function."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.made: dict[int, Instruction] = {}
        self.places: dict[int, Place] = {}
        self.variables: dict[int, Loop] = {}
        self.uses: Counter[int] = Counter()
        self._note(builder.function.block)

    def _note(self, block: Block) -> None:
        for item in block.body:
            if isinstance(item, Instruction):
                self.uses.update(value.id for value in _values(item.args))
                if item.result is not None:
                    self.made[item.result.id] = item
            elif isinstance(item, Loop):
                self.uses.update(v.id for v in _values((*item.initial, item.low, item.high)))
                self.variables[item.variable.id] = item
                self.places.update((r.id, (item, n)) for n, r in enumerate(item.results))
                self._note(item.block)
            elif isinstance(item, Branch):
                self.uses[item.condition.id] += 1
                self.places.update((r.id, (item, n)) for n, r in enumerate(item.results))
                self._note(item.then)
                self._note(item.other)
        self.uses.update(value.id for value in _values(block.yields))

    # -- the rewrite

    def block(self, block: Block) -> None:
        """Loops of a block, and of what is in it, the outermost first."""
        body: list[Instruction | Loop | Branch] = []
        for item in block.body:
            before: list[Instruction] = []
            if isinstance(item, Branch):
                self.block(item.then)
                self.block(item.other)
            elif isinstance(item, Loop):
                item, before = self._loop(item)
            body += [*before, item]  # type: ignore[list-item]
        block.body[:] = body

    def _loop(self, loop: Loop) -> tuple[Loop, list[Instruction]]:
        """A loop, or what takes its place behind some constants."""
        terms = {n: self.terms(loop, n) for n in range(len(loop.carried))}
        terms = {n: count for n, count in terms.items() if count}
        once, trips = max(terms.values(), default=0), self.trips(loop)
        self.block(loop.block)
        if once and once <= RUN < once * trips < math.inf:
            return self._split(loop, frozenset(terms), int(RUN // once))
        return loop, []

    def _split(
        self, loop: Loop, sums: frozenset[int], trips: int
    ) -> tuple[Loop, list[Instruction]]:
        """A loop over runs of so many iterations, of which each begins the sums with zero."""
        fresh, step = self.builder.fresh, trips * loop.step
        start = fresh(I64, loop.variable.name)
        totals = tuple(fresh(value.type, "t") for value in loop.carried)
        outer = Loop(
            start, loop.low, loop.high, step, loop.initial, totals, loop.results, loop.runs
        )
        zeros, first = self._zeros(loop, sums)
        parts = tuple(fresh(value.type, "p") for value in loop.carried)
        ahead, end = self._end(start, step, loop.high)
        loop.low, loop.high, loop.runs = start, end, True
        loop.initial = tuple(first.get(n, total) for n, total in enumerate(totals))
        loop.results = parts
        pairs = {n: (totals[n], parts[n]) for n in sorted(sums)}
        added = {n: Instruction("fadd", fresh(p[1].type), p, {}) for n, p in pairs.items()}
        outer.block.body += [*ahead, loop, *added.values()]
        found = [added[n].result if n in sums else part for n, part in enumerate(parts)]
        outer.block.yields = tuple(value for value in found if value is not None)
        return outer, zeros

    def _zeros(
        self, loop: Loop, sums: frozenset[int]
    ) -> tuple[list[Instruction], dict[int, Value]]:
        """What the sums of a run begin with."""
        made: dict[Type, Instruction] = {}
        first: dict[int, Value] = {}
        for n in sorted(sums):
            type = loop.carried[n].type
            if type not in made:
                made[type] = Instruction("constant", self.builder.fresh(type), (0.0,), {})
            zero = made[type].result
            assert zero is not None
            first[n] = zero
        return list(made.values()), first

    def _end(self, start: Value, step: int, high: Index) -> tuple[list[Instruction], Value]:
        """Where a run ends."""
        last = Instruction("iadd", self.builder.fresh(I64), (start, step), {})
        end = Instruction("imin", self.builder.fresh(I64), (last.result, high), {})
        assert end.result is not None
        return [last, end], end.result

    # -- what is a sum

    def terms(self, loop: Loop, number: int) -> float:
        """How many terms an iteration adds to a carried value of f32 that nothing else is done
        with; 0 if it is none."""
        carried = loop.carried[number]
        if carried.type.scalar != "f32":
            return 0
        way = _Way(carried)
        found = self._added(loop.block.yields[number], way)
        alone = all(self.uses[value] == count for value, count in way.taken.items())
        return found if found and alone else 0

    def _added(self, value: Operand, way: _Way) -> float | None:
        """How many terms a value has more than where the way leads to."""
        if not isinstance(value, Value):
            return None
        if value.id not in way.known:
            way.known[value.id] = self._found(value, way)
        found = way.known[value.id]
        if found is not None:
            way.taken[value.id] += 1
        return found

    def _found(self, value: Value, way: _Way) -> float | None:
        if value.id in self.places:
            return self._of_place(*self.places[value.id], way)
        for source in _added_to(self.made.get(value.id)):
            before = self._added(source, way)
            if before is not None:
                return before + 1
        return None

    def _of_place(self, item: Loop | Branch, number: int, way: _Way) -> float | None:
        if isinstance(item, Branch):
            sides = [self._added(side.yields[number], way) for side in (item.then, item.other)]
            known = [side for side in sides if side is not None]
            return max(known) if len(known) == 2 else None
        within = self.terms(item, number)
        before = self._added(item.initial[number], way) if within else None
        return None if before is None else before + within * self.trips(item)

    # -- how long loops are

    def trips(self, loop: Loop) -> float:
        """How often a loop's body runs at most; infinite where that is not known."""
        span = self._span(loop.low, loop.high)
        return -(-span // loop.step) if span < math.inf else math.inf

    def _span(self, low: Index, high: Index) -> float:
        """How far `high` is beyond `low` at most; no index is below zero."""
        whole = self._most(high) - (low if isinstance(low, int) else 0)
        made = self.made.get(high.id) if isinstance(high, Value) else None
        if high is low or made is None:
            return 0.0 if high is low else whole
        left, right = (made.args[0], made.args[1]) if len(made.args) == 2 else (0, 0)
        if made.op == "imin":
            return min(self._span(low, left), self._span(low, right))
        if made.op == "isub":
            return min(whole, self._span(low, left))
        if made.op == "iadd" and low in (left, right):
            return min(whole, self._most(right if left is low else left))
        return whole

    def _most(self, index: Index) -> float:
        """The largest that an index may be."""
        if isinstance(index, int):
            return index
        if index.id in self.variables:
            return max(0.0, self._most(self.variables[index.id].high) - 1)
        made = self.made.get(index.id)
        if made is None or made.op not in ("imin", "imax", "iadd", "isub", "imul", "idiv"):
            return math.inf
        left, right = made.args
        if made.op == "isub":
            return self._span(right, left)
        if made.op == "idiv":
            return self._most(left) // right if isinstance(right, int) else self._most(left)
        sides = self._most(left), self._most(right)
        if made.op == "imul":
            return math.prod(sides) if all(sides) else 0.0
        return {"imin": min, "imax": max}.get(made.op, sum)(sides)


def _values(items: object) -> Iterator[Value]:
    """The values among operands."""
    if isinstance(items, Value):
        yield items
    elif isinstance(items, tuple | list):
        for item in items:
            yield from _values(item)


def _added_to(made: Instruction | None) -> tuple[Operand, ...]:
    """The operands to which an instruction adds others."""
    if made is None:
        return ()
    if made.op == "fadd":
        return made.args
    if made.op == "fma":
        return made.args[2:]
    row = made.attrs.get("row")
    vector = isinstance(row, DotRow) and row.kind == "vector" and row.acc == "f32"
    return made.args[:1] if made.op == "intrinsic" and vector else ()
