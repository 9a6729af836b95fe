"""A point of a plain kernel by all threads: they share its loops, and meet where one of them needs
what another wrote (`ir.plain.meetings`).

All threads run alike what stands outside of `Spread`; there one writes for all. Of a fold each has
a part, and all put the parts together in their order. A group's arrays are in what threads share.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from math import prod

from ir.dtypes import dtype_of
from ir.plain.accesses import every
from ir.plain.code import (
    GROUP,
    THREAD,
    Accumulate,
    Array,
    Assign,
    Between,
    Claim,
    Combine,
    Element,
    If,
    Let,
    Loop,
    PlainKernel,
    Spread,
    Statement,
    Write,
)
from ir.plain.meetings import Access, Order, accesses_here, accesses_of, anywhere
from ir.plain.scalars import times
from ir.plain.strides import steps_of
from ir.targets.cpu.evaluate import scalar_of
from ir.targets.cpu.frame import Frame
from ir.targets.cpu.instructions import VectorRow
from ir.targets.cpu.nest import Index, Type, Value
from ir.targets.cpu.plain import LINE, PlainLowering, Variables
from ir.targets.cpu.plan import round_up

_ROWS = 4  # of a shared loop, for each thread, from which whole rows are shared out
_LONG = 64  # iterations of a fold and of the loops in it, for each thread, that are worth parts


def can_share(kernel: PlainKernel) -> bool:
    """Whether threads may share the loops of a point: where none of them takes turns in memory."""
    statements = list(every(kernel.body))
    apart = not any(isinstance(s, Claim | Combine) for s in statements)
    kept = any(isinstance(s, Accumulate) and s.keep for s in statements)
    return kernel.cooperative and apart and not kept and any(map(_is_wide, statements))


def _is_wide(s: Statement) -> bool:
    return isinstance(s, Spread) and prod(extent for _, extent in s.variables) > 1


def meetings(body: Iterable[Statement]) -> float:
    """How often threads meet at most."""
    found = 0.0
    for s in body:
        if isinstance(s, Spread | Accumulate):
            found += 1.0
        elif isinstance(s, Loop | Between):
            found += (s.extent if isinstance(s, Loop) else s.often) * meetings(s.body)
        elif isinstance(s, If):
            found += max(meetings(s.body), meetings(s.other))
    return found


def shared_arrays(kernel: PlainKernel, threads: int) -> list[tuple[Array, int]]:
    """What a group has, and parts of folds, where each is in what threads share."""
    slots = max((len(s.states) for s in every(kernel.body) if isinstance(s, Accumulate)), default=0)
    parts = [Array(_slot(number), "i64", LINE // 8 * threads) for number in range(slots)]
    found, place = [], 0
    for array in (*(one for one in kernel.arrays if one.place == GROUP), *parts):
        found.append((array, place))
        place += round_up(array.size * dtype_of(array.dtype).bytes, LINE)
    return found


def shared_bytes(kernel: PlainKernel, threads: int) -> int:
    """How much that is."""
    return max((p + a.size * dtype_of(a.dtype).bytes for a, p in shared_arrays(kernel, threads)),
               default=0)  # fmt: skip


def _slot(number: int) -> str:
    return f"parts of state {number}"


class TeamLowering(PlainLowering):
    """Lowers a kernel whose points all threads compute together, one after the other; a group's
    arrays begin at byte `start` of what they share."""

    shares = True

    def __init__(
        self,
        kernel: PlainKernel,
        frame: Frame,
        vector: VectorRow,
        start: int,
        parts: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(kernel, frame, vector, parts)
        for array, place in shared_arrays(kernel, frame.count):
            self.bases[array.name] = frame.b.offset(frame.shared, start + place)
        self.own = frozenset(array.name for array in kernel.arrays if array.place == THREAD)
        self.order = Order(kernel.body, self.own)
        self.together = True
        self.parts_read = False  # perhaps, since all met

    def run(self, chunk: str) -> None:
        points = prod(extent for _, extent in self.kernel.points)
        self.b.comment(f"{self.kernel.name}: {points} points, each by all threads")
        if points > 1:
            self._again(self.kernel.body)
        with self.b.loop("point", 0, points, 1) as loop:
            point: Index = loop.variable if points > 1 else 0
            variables: Variables = {}
            for name, extent in reversed(self.kernel.points):
                variables[name.name] = self.b.index("irem", point, extent) if extent > 1 else 0
                point = self.b.index("idiv", point, extent)
            self._block(self.kernel.body, variables)

    # --- meetings -----------------------------------------------------------------------------

    def _meet(self) -> None:
        self.frame.barrier()
        self.order.met()
        self.parts_read = False

    def _meet_before(self, accesses: Iterable[Access]) -> None:
        """All threads meet if they have to before accesses that are made next."""
        found = tuple(accesses)
        if self.order.clashes(found):
            self._meet()
        self.order.note(found)

    def _again(self, body: Iterable[Statement]) -> None:
        """Statements are run several times: what threads were at then, they may be at now."""
        self.order.note(accesses_of(body))
        self.parts_read = True

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """What each thread does for itself."""
        before, self.together = self.together, False
        yield
        self.together = before

    @contextmanager
    def _one(self) -> Iterator[None]:
        """What one thread does for all."""
        first = self.b.compare("eq", self.frame.thread, 0)
        if isinstance(first, Value):
            with self.b.branch(first):
                yield
        else:
            yield

    # --- statements ---------------------------------------------------------------------------

    def _statement(self, s: Statement, variables: Variables) -> None:
        if self.together and isinstance(s, Let | Assign | If | Between):
            self._meet_before(accesses_here(s))
        super()._statement(s, variables)

    def _write(self, s: Write, variables: Variables) -> None:
        if not self.together or s.array in self.own:
            super()._write(s, variables)
            return
        accesses = tuple(accesses_here(s))
        self._meet_before(access for access in accesses if not access.writes)
        array = self.arrays[s.array]
        where = self.address(array, s.index, variables)
        value = self._stored(array, s.value, variables)
        if self.order.clashes(accesses):  # all read what the value is made of, then one writes
            self._meet()
        with self._one():
            self.b.store(value, where)
        self.order.note(accesses)

    def _side(
        self, body: Iterable[Statement], variables: Variables, changed: Iterable[str]
    ) -> tuple[Index, ...]:
        """All threads go the same way, perhaps not this one."""
        with self.order.perhaps():
            found = super()._side(body, variables, changed)
        self.parts_read = True
        return found

    def _loop(self, s: Loop, variables: Variables) -> None:
        """What writes nothing is done by each thread alike, without meeting in it."""
        if self.together and not any(
            isinstance(one, Spread | Write | Accumulate) for one in every(s.body)
        ):
            self._meet_before(anywhere((s,)))
            with self._alone():
                super()._loop(s, variables)
        else:
            super()._loop(s, variables)

    def _iterated(self, s: Loop | Between, first: Index, end: Index, variables: Variables) -> None:
        if not self.together:
            super()._iterated(s, first, end, variables)
            return
        self._again(s.body)
        with self.order.perhaps() if isinstance(s, Between) else nullcontext():
            super()._iterated(s, first, end, variables)

    # --- shared loops -------------------------------------------------------------------------

    def _spread(self, s: Spread, variables: Variables) -> None:
        if not self.together:
            super()._spread(s, variables)
            return
        self._meet_before(accesses_of((s,)))
        with self._alone():
            if _is_wide(s):
                super()._spread(s, variables)
                return
            here = {**variables, **{name.name: 0 for name, _ in s.variables}}
            with self._one():
                self._block(s.body, here)

    @contextmanager
    def _rows(self, s: Spread, variables: Variables) -> Iterator[tuple[Variables, Index, Index]]:
        """Rows in runs, a run for each thread; of few rows a part each. Who has what depends on the
        extents alone."""
        *outer, (_, extent) = s.variables
        rows = prod(count for _, count in outer)
        if rows < _ROWS * self.frame.count:
            low, high = (
                self.b.mul(end, self.lanes) for end in self._share(-(-extent // self.lanes))
            )
            with super()._rows(s, variables) as (here, _, _):
                yield here, self.b.minimum(low, extent), self.b.minimum(high, extent)
            return
        low, high = self._share(rows)
        with self.b.loop("row", low, high, 1, runs=False) as loop:
            here = dict(variables)
            row: Index = loop.variable
            for name, count in reversed(outer):
                here[name.name] = self.b.index("irem", row, count) if count > 1 else 0
                row = self.b.index("idiv", row, count)
            yield here, 0, extent

    def _share(self, count: int) -> tuple[Index, Index]:
        """A thread's part of so many."""
        thread, threads = self.frame.thread, self.frame.threads
        above = self.b.mul(self.b.add(thread, 1), count)
        return (
            self.b.index("idiv", self.b.mul(thread, count), threads),
            self.b.index("idiv", above, threads),
        )

    def _accumulate(self, s: Accumulate, variables: Variables) -> None:
        if not self.together:
            super()._accumulate(s, variables)
            return
        self._meet_before(anywhere((s,)))
        with self._alone():
            few = s.extent < self.frame.count
            if few or s.extent * (1.0 + steps_of(s.body)) < _LONG * self.frame.count:
                super()._accumulate(s, variables)
                return
            here = dict(variables)
            self._part(s, here, *self._share(s.extent))
            if self.parts_read:
                self._meet()
            here[s.variable.name] = self.frame.thread
            slots = [self._slot(s, number) for number in range(len(s.states))]
            for slot, state in zip(slots, s.states, strict=True):
                super()._write(Write(slot.array, slot.index, state), here)
            self._meet()
            merging = replace(s, backward=False, body=(), values=tuple(slots))
            self._part(merging, variables, 0, self.frame.threads)
            self.parts_read = True

    def _slot(self, s: Accumulate, number: int) -> Element:
        """Where the thread that the fold's variable counts has left a state."""
        dtype = s.states[number].dtype
        self.arrays[_slot(number)] = Array(_slot(number), dtype, 0)
        return Element(_slot(number), times(s.variable, LINE // dtype_of(dtype).bytes), dtype)

    def _part(self, s: Accumulate, variables: Variables, low: Index, high: Index) -> None:
        """What iterations from `low` to before `high` come to, of which there are some."""
        start = dict(variables)
        for state in s.states:
            start[state.name] = self.b.constant(0, Type(scalar_of(state.dtype)))
        names = [state.name for state in s.states]
        initial = [start[name] for name in names]
        with self.b.loop(s.variable.name, low, high, 1, initial, False) as loop:
            here = {**start, **dict(zip(names, loop.carried, strict=True))}
            here[s.variable.name] = self._turned(loop.variable, s.extent, s.backward)
            first = self.b.compare("eq", loop.variable, low)
            loop.block.yields = self._step(s, here, first, names)
        variables.update(zip(names, loop.results, strict=True))
