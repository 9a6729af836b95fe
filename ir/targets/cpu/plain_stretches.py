"""Folds of what is dear to compute, a stretch of their axis at a time.

What a stretch gives is computed in vectors and left in a thread's own memory, as little as stays in
its first cache; the states go along it there, and what is kept of them is written in vectors again.
The first stretch is the short one, so that vectors that reach past it are those of the next, which
come behind. Of an axis that is one stretch, the last vector begins earlier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ir.dtypes import is_float
from ir.plain.accesses import assigned, every, scalars_of
from ir.plain.code import (
    Accumulate,
    Array,
    Call,
    Convert,
    Let,
    Loop,
    PlainKernel,
    Scalar,
    Statement,
    Write,
)
from ir.plain.scalars import merged
from ir.plain.strides import Walk, elements
from ir.targets.cpu.evaluate import scalar_of
from ir.targets.cpu.nest import BIT, NEAR, Index, Type, Value
from ir.targets.cpu.plain_any_lanes import Stretch
from ir.targets.cpu.plain_folds import given_state
from ir.targets.cpu.plain_held import Held, held_arrays, held_name
from ir.targets.cpu.plain_scan_lanes import ROOM, ScanLanes
from ir.targets.cpu.plan import round_up

if TYPE_CHECKING:
    from ir.targets.cpu.plain import PlainLowering

LONGEST = 1024  # coordinates of a stretch
_FEWEST = 4  # lanes of a vector
_DEAR = 8  # operations on scalars that take longer than the way through memory
_MERGED = 4  # of a merge of whole numbers that are worth lanes
_LONG = {"div": 4, "sqrt": 4, "rsqrt": 4, "shl": 3, "shr": 3}
_SIMPLE = frozenset(
    ("add", "sub", "mul", "max", "min", "neg", "abs", "lt", "le", "eq", "where", "and", "or",
     "not", "bitand", "bitor", "xor", "floor", "ceil", "trunc", "round", "bitcast")
)  # fmt: skip


# --- what is dear ---------------------------------------------------------------------------------


def is_stretched(s: Accumulate) -> bool:
    """Whether a fold is worth vectors of its own: it is dear, or goes on long by a merge that is,
    and what is read lies close together along the axis."""
    return is_apart(s) and s.extent >= _FEWEST and (_is_dear(s) or _is_merged(s)) and is_near(s)


def _is_dear(s: Accumulate) -> bool:
    """Whether what is folded, or what is made of the states, takes long."""
    scalars = [scalar for one in (*every(s.body), s) for scalar in scalars_of(one)]
    kept = [scalar for one in every(s.keep) for scalar in scalars_of(one)]
    return max(_operations(scalars), _operations(kept)) >= _DEAR


def _is_merged(s: Accumulate) -> bool:
    """Whether states that are kept at each of many points wait for those before: floats do at any
    operation."""
    new = merged(s.merge, s.states, [given_state(state) for state in s.states])
    waits = any(is_float(state.dtype) for state in s.states) or _operations(new) >= _MERGED
    return bool(s.keep) and s.extent > LONGEST and waits


def is_apart(s: Accumulate) -> bool:
    """Whether iterations of a fold have nothing but states in common, and no loops."""
    inside = list(every((*s.body, *s.keep)))
    own = {one.name.name for one in inside if isinstance(one, Let)}
    return not any(isinstance(one, Loop | Accumulate) for one in inside) and not (
        assigned(inside) - own
    )


def is_near(s: Accumulate) -> bool:
    """Whether elements are read a few apart at most."""
    scalars = [scalar for one in (*every(s.body), s) for scalar in scalars_of(one)]
    changing = assigned(s.body)
    lets = {one.name.name: one.value for one in every(s.body) if isinstance(one, Let)}
    known = {name: value for name, value in lets.items() if name not in changing}
    walk = Walk(s.variable.name, known, changing)
    strides = [walk.stride(element.index) for element in elements(scalars)]
    return all(stride is not None and abs(stride) <= NEAR for stride in strides)


def _operations(scalars: Iterable[Scalar]) -> int:
    """Operations, but for those of indices, by what they take."""
    found = 0
    for scalar in scalars:
        if isinstance(scalar, Call) and scalar.function in _SIMPLE:
            found += (scalar.dtype != "i64") + _operations(scalar.args)
        elif isinstance(scalar, Call):
            found += _LONG.get(scalar.function, _DEAR) + _operations(scalar.args)
        elif isinstance(scalar, Convert):
            found += (scalar.to != scalar.dtype) + _operations((scalar.arg,))
    return found


def stretch_arrays(kernel: PlainKernel) -> tuple[Array, ...]:
    """Where states lie, as far as any fold of a kernel has to."""
    return held_arrays(kernel, is_stretched, lambda s: min(LONGEST, s.extent) + ROOM)


# --- a fold ---------------------------------------------------------------------------------------


class Stretches(Held):
    """A fold along an axis: `step` coordinates at a time, of the first of `count` stretches what
    is left. Positions are counted from where the fold begins."""

    def __init__(
        self, lowering: PlainLowering, s: Accumulate, variables: Mapping[str, Index], lanes: int
    ) -> None:
        super().__init__(lowering, s, variables)
        self.lanes = next(n for n in (lanes, lanes // 2, _FEWEST, 1) if n <= s.extent)
        self.step = min(LONGEST, round_up(s.extent, self.lanes))
        self.count = -(-s.extent // self.step)
        states = [state.name for state in s.states]
        self.folded = Stretch(lowering, s, s.body, variables, self.lanes)
        self.kept = Stretch(lowering, s, s.keep, variables, self.lanes, states)
        near = all(abs(self.kept.walk.stride(w.index) or 0) <= NEAR for w in _writes(s.keep))
        self.keeps = bool(s.keep) and near and self.kept.fits() and self.kept.everywhere

        self.scans = ScanLanes(lowering, s, variables, lanes)
        self.scans.size = self.step

    def fits(self) -> bool:
        return self.folded.fits() and self.folded.values_fit(self.s.values)

    @property
    def together(self) -> bool:
        """Whether the states of whole stretches are found in lanes."""
        return self.count > 1 and self.keeps and self.scans.fits()

    def run(self) -> tuple[Value, ...]:
        """Emit all of it; what the states are in the end."""
        if self.count == 1:
            return self._stretch(0, self.s.extent, None)
        first = self.s.extent - (self.count - 1) * self.step
        zeros = [self.b.constant(0, Type(scalar_of(state.dtype))) for state in self.s.states]
        if self.together:
            begun = self._stretch(0, first, None)
            with self.b.loop("stretch", first, self.s.extent, self.step, begun) as loop:
                loop.block.yields = self._scanned_together(loop.variable, loop.carried)
            return loop.results
        with self.b.loop("stretch", 0, self.count, 1, zeros) as loop:
            high = self.b.add(self.b.mul(loop.variable, self.step), first)
            low = self.b.maximum(self.b.sub(high, self.step), 0)
            loop.block.yields = self._stretch(low, high, loop.carried)
        return loop.results

    def _scanned_together(self, low: Index, before: Sequence[Value]) -> tuple[Value, ...]:
        """A whole stretch, whose states are found in lanes."""
        high = self.b.add(low, self.step)
        self._vectors(low, high, self._fold_vector)
        found = self.scans.scan(before)
        self._vectors(low, high, self._keep_vector)
        return found

    def _stretch(
        self, low: Index, high: Index, before: Sequence[Value] | None
    ) -> tuple[Value, ...]:
        self._vectors(low, high, self._fold_vector)
        begun = self._begun(low, before)
        start = self.b.maximum(low, 1) if self.s.keep else self.b.add(low, 1)
        with self.b.loop("i", start, high, 1, begun, runs=False) as loop:
            loop.block.yields = self._scanned(loop.variable, low, loop.carried)
        if self.keeps:
            self._vectors(low, high, self._keep_vector)
        if self.s.keep or before is None:
            return loop.results
        return self._joined(low, before, loop.results)

    def _joined(
        self, low: Index, before: Sequence[Value], own: Sequence[Value]
    ) -> tuple[Value, ...]:
        """What a stretch by itself comes to, behind those before it: sums of it stay near it."""
        begins = self.b.compare("eq", low, 0)
        assert isinstance(begins, Value)
        pairs = zip(own, self.merged(before, own), strict=True)
        return tuple(self.b.select(begins, alone, both) for alone, both in pairs)

    # --- vectors ------------------------------------------------------------------------------

    def _vectors(self, low: Index, high: Index, emit: Callable[[Index, Index], None]) -> None:
        """`emit` for all vectors of a stretch: where each begins along the axis and in memory."""
        lanes, extent = self.lanes, self.s.extent
        count = self.b.index("idiv", self.b.add(self.b.sub(high, low), lanes - 1), lanes)
        end = self.b.add(low, self.b.mul(count, lanes))
        with self.b.loop(self.s.variable.name, low, end, lanes) as loop:
            place: Index = loop.variable
            if self.count == 1 and extent % lanes:
                place = self.b.minimum(place, extent - lanes)
            slot = self.b.sub(place, low)
            if self.s.backward:
                place = self.b.sub(extent - lanes, place)
                slot = self.b.sub(self.step - lanes, slot)
            emit(place, slot)

    def _fold_vector(self, place: Index, slot: Index) -> None:
        """What is folded at neighbours, one by one where some of them are beyond conditions."""
        folded = self.folded
        within = [
            self.b.compare("le", folded.first, place),
            self.b.compare("le", self.b.add(place, self.lanes), folded.end),
        ]
        if folded.everywhere:
            self._fold_together(place, slot)
            return
        asked = [w if isinstance(w, Value) else self.b.constant(w, BIT) for w in within]
        with self.b.branch(self.b.op("and", *asked)) as branch:
            self._fold_together(place, slot)
            self.b.otherwise(branch)
            with self.b.loop("lane", 0, self.lanes, 1) as loop:
                here = dict(self.variables)
                here[self.s.variable.name] = self.b.add(place, loop.variable)
                self.lowering.statements(self.s.body, here)
                values = [self.lowering.value(value, here) for value in self.s.values]
                self.hold(values, self.b.add(slot, loop.variable))

    def _fold_together(self, place: Index, slot: Index) -> None:
        self.folded.at(place, {})
        self.hold([self.folded.vector(value) for value in self.s.values], slot)

    def _keep_vector(self, place: Index, slot: Index) -> None:
        names = [state.name for state in self.s.states]
        held = self.held_at(slot, self.lanes)
        self.kept.at(place, dict(zip(names, held, strict=True)))

    # --- one after the other ------------------------------------------------------------------

    def _begun(self, low: Index, before: Sequence[Value] | None) -> tuple[Value, ...]:
        """The states behind the first element, or what they were before this stretch, where they
        are kept."""
        if before is None or not self.s.keep:
            return self._first()
        begins = self.b.compare("eq", low, 0)
        assert isinstance(begins, Value)
        with self.b.branch(begins) as branch:
            branch.then.yields = self._first()
            self.b.otherwise(branch)
            branch.other.yields = tuple(before)
        return branch.results

    def _first(self) -> tuple[Value, ...]:
        states = self.held_at(self._slot(0, 0))
        self._keep(0, states)
        return tuple(states)

    def _scanned(self, i: Index, low: Index, states: Sequence[Value]) -> tuple[Value, ...]:
        """The states behind one more element."""
        slot = self._slot(i, low)
        found = self.merged(states, self.held_at(slot))
        if self.keeps:
            self.hold(found, slot)
        self._keep(i, found)
        return tuple(found)

    def _keep(self, i: Index, states: Sequence[Value]) -> None:
        """What is kept at a position, if not in vectors."""
        if self.keeps:
            return
        here = dict(self.variables)
        here |= {name.name: value for name, value in zip(self.s.states, states, strict=True)}
        here[self.s.variable.name] = self.b.sub(self.s.extent - 1, i) if self.s.backward else i
        self.lowering.statements(self.s.keep, here)

    # --- memory -------------------------------------------------------------------------------

    def _slot(self, i: Index, low: Index) -> Index:
        """Where the element of a position lies."""
        slot = self.b.sub(i, low)
        return self.b.sub(self.step - 1, slot) if self.s.backward else slot


def _writes(body: Iterable[Statement]) -> list[Write]:
    return [s for s in every(body) if isinstance(s, Write)]


def stretched(
    lowering: PlainLowering, s: Accumulate, variables: dict[str, Index], lanes: int
) -> bool:
    """Emit a fold of what is dear a stretch at a time, where that can be; whether it was."""
    if held_name(len(s.states) - 1) not in lowering.bases or not is_stretched(s):
        return False
    found = Stretches(lowering, s, variables, lanes)
    if not found.fits() or not (found.together or _is_dear(s)):
        return False
    variables.update(zip((state.name for state in s.states), found.run(), strict=True))
    return True
