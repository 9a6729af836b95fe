"""What the phases of one kernel share: the function, its operands, the workspace, the threads.

A workspace begins with the tensors between phases; behind them lie the shared part and each
thread's own, which all phases use one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass

from ir.dtypes import dtype_of
from ir.kernel import Argument
from ir.ops.base import TensorSpec
from ir.targets.cpu.nest import Builder, Index, Type, Value
from ir.targets.cpu.plan import round_up

PAGE = 4096
TICKETS = 64  # counters of the pool by which threads share iterations out


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes of workspace that a phase needs: shared by all threads, and for each of its own."""

    shared: int
    private: int


class Frame:
    """The function under construction; `pointers` are those of all tensors, by name.

    `temps` are the tensors between phases, each with its place in bytes.
    """

    def __init__(
        self,
        name: str,
        tensors: Sequence[TensorSpec],
        temps: Sequence[tuple[TensorSpec, int]],
        rooms: Sequence[Room],
        count: int,
    ) -> None:
        self.b = Builder(name)
        thread, threads, args, self.team = self.b.function.parameters
        self.thread: Index = thread
        self.threads: Index = threads
        self.count = count
        self._slots = 0
        between, behind, private = _layout(temps, rooms)
        total = max(behind + private * count, PAGE)
        self.arguments = (
            *(Argument(s.name, s.shape, s.dtype, s.role, s.packs) for s in tensors),
            Argument("workspace", (total,), "u8", "workspace"),
        )
        self.pointers = {
            a.name: self.b.load(Type("ptr"), args, 8 * i) for i, a in enumerate(self.arguments)
        }
        base = self.pointers["workspace"]
        for spec, place in temps:
            self.pointers[spec.name] = self.b.emit("offset", Type("ptr"), base, place)
        for known, pointer in self.pointers.items():
            pointer.name = known
        own = self.b.add(behind, self.b.mul(self.thread, private))
        self.private = self.b.offset(base, own)
        self.shared = self.b.offset(base, between)

    def within(
        self,
        pointers: Mapping[str, Value],
        temps: Sequence[tuple[TensorSpec, int]],
        rooms: Sequence[Room],
    ) -> Frame:
        """The frame of what one thread does by itself, with operands of its own and its workspace
        in what is that thread's: `alone` says how much that takes."""
        between, behind, _ = _layout(temps, rooms)
        found = copy(self)
        found.thread, found.threads, found.count = 0, 1, 1
        found.pointers = dict(pointers)
        for spec, place in temps:
            found.pointers[spec.name] = self.b.emit("offset", Type("ptr"), self.private, place)
        found.shared = self.b.offset(self.private, between)
        found.private = self.b.offset(self.private, behind)
        return found

    def barrier(self) -> None:
        """No thread goes on before all are here."""
        if self.count > 1:
            self.b.call("tilewright_barrier", None, self.team)

    @contextmanager
    def iterations(self, total: Index, chunk: str, once: bool) -> Iterator[Index]:
        """This thread's share of `total` iterations, dealt out as `chunk` says; `once`: the
        kernel comes here one time only, as counters need."""
        if self.count == 1:
            with self.b.loop("task", 0, total, 1) as tasks:
                yield tasks.variable
        elif chunk == "dynamic" and once and self._slots < TICKETS:
            slot, self._slots = self._slots, self._slots + 1
            with self.b.loop("turn", 0, total, 1):
                ticket = self.b.call("tilewright_ticket", Type("i64"), self.team, slot)
                mine = self.b.compare("lt", ticket, total)
                assert isinstance(mine, Value)
                with self.b.branch(mine):
                    yield ticket
        elif chunk == "cyclic":
            with self.dealt("task", 0, total, 1) as task:
                yield task
        else:
            low = self.b.index("idiv", self.b.mul(self.thread, total), self.threads)
            above = self.b.mul(self.b.add(self.thread, 1), total)
            high = self.b.index("idiv", above, self.threads)
            with self.b.loop("task", low, high, 1, runs=False) as tasks:
                yield tasks.variable

    @contextmanager
    def dealt(self, name: str, low: Index, high: Index, step: int) -> Iterator[Index]:
        """Every n-th step of [low, high) for this one of the n threads that really run."""
        b = self.b
        count = b.index("idiv", b.add(b.sub(high, low), step - 1), step)
        spare = b.sub(b.sub(self.threads, 1), self.thread)
        mine = b.index("idiv", b.add(count, spare), self.threads)
        with b.loop(name, 0, mine, 1, runs=False) as turns:
            ticket = b.add(self.thread, b.mul(turns.variable, self.threads))
            yield b.add(low, b.mul(ticket, step))


def alone(temps: Sequence[tuple[TensorSpec, int]], rooms: Sequence[Room]) -> Room:
    """What a thread needs that does by itself what has these temporaries and rooms."""
    _, behind, private = _layout(temps, rooms)
    return Room(0, round_up(behind + private, PAGE))


def _layout(temps: Sequence[tuple[TensorSpec, int]], rooms: Sequence[Room]) -> tuple[int, int, int]:
    """Where the shared part begins, where threads' own parts do, and the bytes of each of those."""
    between = max((place + bytes_of(spec) for spec, place in temps), default=0)
    between = round_up(between, PAGE)
    behind = between + max(room.shared for room in rooms)
    return between, behind, max(room.private for room in rooms)


@dataclass(frozen=True, slots=True)
class Planned:
    """One candidate of a part: the workspace that it needs, and what emits it."""

    room: Room
    emit: Callable[[Frame], None]


def bytes_of(spec: TensorSpec) -> int:
    """Bytes of a tensor."""
    return math.prod(spec.shape) * dtype_of(spec.dtype).bytes
