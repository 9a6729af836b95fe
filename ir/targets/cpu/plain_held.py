"""States of folds in a thread's own memory: where they lie, written and read, and merged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ir.dtypes import compute_dtype, dtype_of
from ir.plain.accesses import every
from ir.plain.code import THREAD, Accumulate, Array, Name, PlainKernel
from ir.plain.scalars import merged
from ir.targets.cpu.evaluate import scalar_of
from ir.targets.cpu.nest import Index, Type, Value
from ir.targets.cpu.plain_any_lanes import Stretch
from ir.targets.cpu.plain_folds import given_state
from ir.targets.cpu.plan import round_up

if TYPE_CHECKING:
    from ir.targets.cpu.plain import PlainLowering


def held_name(number: int) -> str:
    """The array of a state."""
    return f"stretch of state {number}"


def held_arrays(
    kernel: PlainKernel, wanted: Callable[[Accumulate], bool], size: Callable[[Accumulate], int]
) -> tuple[Array, ...]:
    """Where the states of the folds that want it lie: all folds have the same."""
    folds = [s for s in every(kernel.body) if isinstance(s, Accumulate) and wanted(s)]
    count = max((len(s.states) for s in folds), default=0)
    most = round_up(max(map(size, folds), default=0), 64)
    return tuple(Array(held_name(number), "i64", most, THREAD) for number in range(count))


MOST_LANES = 8  # of a vector of states: squares of more do not stay in registers


class Held:
    """A fold's states in memory, each in an array of its own."""

    def __init__(
        self, lowering: PlainLowering, s: Accumulate, variables: Mapping[str, Index]
    ) -> None:
        self.lowering, self.b, self.s, self.variables = lowering, lowering.b, s, variables
        self.given = [given_state(state) for state in s.states]
        self.new = merged(s.merge, s.states, self.given)

    def hold(self, values: Sequence[Value], slot: Index) -> None:
        """Write what states have, elements or vectors."""
        for number, value in enumerate(values):
            self.store(number, self.stored(value), slot)

    def held_at(self, slot: Index, lanes: int = 0) -> list[Value]:
        """What states have there."""
        states = enumerate(self.s.states)
        return [self.meant(state, self.load(number, slot, lanes)) for number, state in states]

    def stored(self, value: Value) -> Value:
        """A value as memory has it."""
        return self.b.convert(value, "i8", True) if value.type.scalar == "i1" else value

    def meant(self, state: Name, value: Value) -> Value:
        """What memory has as the value of a state."""
        if state.dtype != "bool":
            return value
        return self.b.test("ne", value, self.b.constant(0, value.type))

    def load(self, number: int, slot: Index, lanes: int) -> Value:
        dtype = self.s.states[number].dtype
        type = Type("i8" if dtype == "bool" else scalar_of(dtype), lanes)
        return self.b.load(type, self._where(number, slot))

    def store(self, number: int, value: Value, slot: Index) -> None:
        self.b.store(value, self._where(number, slot))

    def _where(self, number: int, slot: Index) -> Value:
        size = dtype_of(compute_dtype(self.s.states[number].dtype)).bytes
        return self.b.offset(self.lowering.bases[held_name(number)], self.b.mul(slot, size))

    def merged(self, before: Sequence[Value], more: Sequence[Value]) -> list[Value]:
        """The states behind some others."""
        here = dict(self.variables)
        here |= {name.name: value for name, value in zip(self.given, more, strict=True)}
        here |= {name.name: value for name, value in zip(self.s.states, before, strict=True)}
        known: dict[int, Index] = {}
        return [self.lowering.value(value, here, known) for value in self.new]


class HeldLanes(Held):
    """States of several runs of neighbours beside each other, in `groups` vectors of `lanes`; in
    memory each run lies by itself."""

    groups = 2

    def __init__(
        self, lowering: PlainLowering, s: Accumulate, variables: Mapping[str, Index], lanes: int
    ) -> None:
        super().__init__(lowering, s, variables)
        self.lanes, self.count = min(lanes, MOST_LANES), len(s.states)
        names = [name.name for name in (*s.states, *self.given)]
        self.merging = Stretch(lowering, s, (), variables, self.lanes, names)

    @property
    def wide(self) -> int:
        """How many runs there are."""
        return self.groups * self.lanes

    @property
    def square(self) -> int:
        """Elements of a vector of runs and as many neighbours of each."""
        return self.lanes * self.lanes

    def merged_lanes(self, before: Sequence[Value], more: Sequence[Value]) -> list[Value]:
        """Vectors of states behind others, all as memory has them."""
        sides = (self.s.states, before), (self.given, more)
        vectors = {
            name.name: self.meant(name, value)
            for names, values in sides
            for name, value in zip(names, values, strict=True)
        }
        return [self.stored(value) for value in self.merging.together(self.new, vectors)]

    def row(self, slot: Index) -> list[Value]:
        """Vectors of all states as memory has them."""
        return [self.load(number, slot, self.lanes) for number in range(self.count)]

    def turn_over(self, number: int, slots: Sequence[Index], to: Index) -> None:
        """Write rows as columns, one behind the other: halves are interleaved as often as there
        are bits in a row's number."""
        rows = [self.load(number, slot, self.lanes) for slot in slots]
        while len(rows) > 1:
            half = len(rows) // 2
            rows = [self.b.interleave(pair) for pair in zip(rows[:half], rows[half:], strict=True)]
        self.store(number, rows[0], to)
