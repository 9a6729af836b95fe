"""The text of one plain kernel: its arrays, its points handed to threads or blocks, its body."""

from __future__ import annotations

from collections.abc import Sequence

from ir.plain.accesses import every
from ir.plain.code import Accumulate, Array, Between, Loop
from ir.plain.pieces import parts_in
from ir.program import Program
from ir.targets.cuda.grid.merging import ARRIVALS
from ir.targets.cuda.grid.overlap import await_kernel_before
from ir.targets.cuda.launch import Launch, Parameter, Room
from ir.targets.cuda.layouts.frame import WARP
from ir.targets.cuda.plain.plain_fold import scratch_bytes
from ir.targets.cuda.plain.plain_step import (
    UNIT,
    PlainStep,
    Settings,
    array_bytes,
    column_bytes,
)
from ir.targets.cuda.plain.plain_text import MOST_I32, Group, PlainText
from ir.targets.cuda.plain.plain_weights import all_weights
from ir.targets.cuda.space.plain_cuts import spec_bytes
from ir.targets.cuda.text import scalars
from ir.targets.cuda.text.writer import Writer

_AT_ONCE = 4  # points of a thread that has many
_LOOPS = (Loop, Between, Accumulate)


class PlainLowering:
    """One schedule of a plain kernel on its way to text."""

    def __init__(self, step: PlainStep, program: Program, settings: Settings, name: str) -> None:
        self.step, self.program, self.name, self.w = step, program, name, Writer()
        self.threads, self.grouped, self.team = settings.threads, settings.grouped, settings.team
        self.grid = step.grid(self.threads, self.grouped, self.team)
        self.meets = self.team > 1 or step.rounds > 1  # whose blocks wait for each other
        self.early = settings.early and not self.meets  # the driver takes one or the other
        group = None
        self.ring = step.ring_start(self.threads)
        self.ahead = step.ahead(self.threads, settings.run, settings.ahead) if self.grouped else 0
        if self.grouped:
            group = Group(
                self.threads, settings.run, self.team, self.ahead, self.ring, settings.share,
                settings.tile, settings.fetch,
            )  # fmt: skip
        alone = self.grouped and self.team == 1
        shared = frozenset(array.name for array in step.shared) if alone else frozenset[str]()
        pitch = step.pitches[settings.steps] if settings.staged else 0
        self.text = PlainText(
            step.plain, self.w, group, settings.run, shared, settings.steps, settings.fetch, pitch
        )
        self.run_length = settings.run
        self.tensors = [self.text.names[spec.name] for spec in step.plain.tensors]

    def run(self) -> Launch:
        w = self.w
        if self.team > 1:
            w.line(f"const i32 thread = tw_block_x() % {self.team} * {self.threads} + tw_thread();")
            w.line(f"const i32 point = tw_block_x() / {self.team};")
        else:
            w.line("const i32 thread = tw_thread();")
        if self.meets:
            w.line("u32 met = 0;")
        shared, room = self._arrays()
        await_kernel_before(w, self.early)
        if self.grouped:
            self._blocks()
        else:
            self._threads()
        parts = {spec.name: spec for spec in parts_in(self.program, (self.step.plain,))}
        names = [
            f"{self.program.name}.{spec.name}" if spec.name in parts else spec.name
            for spec in self.step.plain.tensors
        ]
        rooms = [
            Room(f"{self.program.name}.{spec.name}", spec_bytes(spec))
            for spec in parts.values()
            if spec.role == "output"
        ]
        if room:
            rooms.append(Room(f"{self.name}.room", room * (self.grid // self.team)))
            names.append(rooms[-1].argument)
        if self.meets:
            counters = self.step.points if self.team > 1 else 1
            rooms.append(Room(f"{self.name}.{ARRIVALS}", 4 * counters, clean=True))
            names.append(rooms[-1].argument)
        text = f"{self._head(bool(room))} {{\n{w.text}}}\n"
        return Launch(
            self.name, text, self.grid, self.threads, shared, tuple(map(Parameter, names)),
            rooms=tuple(rooms), early=self.early, cooperative=self.meets,
        )  # fmt: skip

    def _head(self, room: bool) -> str:
        parameters = []
        for spec, name in zip(self.step.plain.tensors, self.tensors, strict=True):
            constness = "const " if spec.role == "input" else ""
            parameters.append(f"{constness}{scalars.STORAGE[spec.dtype]}* __restrict__ {name}")
        parameters += ["u8* room"] if room else []
        bounds = f"__launch_bounds__({self.threads})"
        if self.meets:
            parameters.append(f"u32* {ARRIVALS}")
            bounds = f"__launch_bounds__({self.threads}, {self._each})"
        return f"TW_KERNEL {bounds} {self.name}({', '.join(parameters)})"

    # -- memory

    def _arrays(self) -> tuple[int, int]:
        """Declare arrays that are no tensors; bytes of shared memory, and of a block's room."""
        kernel = self.step
        if not self.grouped:
            return max(self._columns(), self.text.pitch * self.threads), 0
        if self.team > 1:
            room = sum(map(array_bytes, (*kernel.shared, *kernel.spilled)))
            self._declare((*kernel.shared, *kernel.spilled), f"room + (i64)point * {room}", 0)
            for array in kernel.local:
                self._declare_local(array)
            return self._weights(), room
        start = scratch_bytes(kernel.folds, self.threads)
        shared = self._declare(kernel.shared, "tw_shared_base()", start)
        room = sum(map(array_bytes, kernel.spilled))
        self._declare(kernel.spilled, f"room + (i64)tw_block_x() * {room}", 0)
        for array in kernel.local:
            self._declare_local(array)
        return shared + kernel.ring_bytes(self.threads, self.run_length, self.ahead), room

    def _weights(self) -> int:
        """Shared memory of a team's block: of its folds, and of what all steps multiply by."""
        kernel, scratch = self.step, scratch_bytes(self.step.folds, self.threads)
        start = -(-scratch // UNIT) * UNIT
        room = int(kernel.hardware["shared_bytes"]) // self._each - start
        group = self.text.group
        tile = group.tile if group else None
        self.text.weights = all_weights(kernel.plain, tile, self.team, start, room)
        taken = sum(one.bytes for one in self.text.weights.values())
        return start + taken if taken else scratch

    @property
    def _each(self) -> int:
        """Blocks of teams that a processor surely has at a time."""
        return -(-self.grid // int(self.step.hardware["sms"]))

    def _columns(self) -> int:
        """Arrays of threads that have points of their own: what a group would share lies in shared
        memory side by side, as far as it fits. Bytes of that."""
        columns, start = self.step.columns(self.threads), 0
        for array in (*self.step.shared, *self.step.spilled, *self.step.local):
            if array not in columns:
                self._declare_local(array)
                continue
            kind, name = scalars.STORAGE[array.dtype], self.text.names[array.name]
            base = f"({kind}*)(tw_shared_base() + {start}) + thread"
            self.w.line(f"const tw_column<{kind}, {self.threads}> {name} = {{{base}}};")
            start += column_bytes(array, self.threads)
        return start

    def _declare(self, arrays: Sequence[Array], base: str, start: int) -> int:
        """Arrays one behind the other; where the last one ends."""
        for array in arrays:
            kind, name = scalars.STORAGE[array.dtype], self.text.names[array.name]
            self.w.line(f"{kind}* {name} = ({kind}*)({base} + {start});")
            start += array_bytes(array)
        return start

    def _declare_local(self, array: Array) -> None:
        kind, name = scalars.STORAGE[array.dtype], self.text.names[array.name]
        self.w.line(f"{kind} {name}[{array.size}];")

    # -- points

    def _blocks(self) -> None:
        """A block for each point, or for several, one after the other; or several for each."""
        if self.step.rounds > 1:
            self._rounds()
            return
        w, points = self.w, self.step.points
        if self.step.folds:
            own = "tw_thread()" if self.team > 1 else "thread"
            w.line(f"const i32 lane = {own} % {WARP}, warp = {own} / {WARP};")
            w.line("i32 slot = 0;" if self.threads > WARP else "")
        if self.team > 1:
            self._point()
            last = f"tw_count({ARRIVALS} + point) == met + {self.team - 1}"
            w.line(f"if (tw_thread() == 0 && {last}) {ARRIVALS}[point] = 0;")
            return
        if self.grid == points:
            w.line("const i32 point = tw_block_x();")
            self._point()
            return
        kind = "i32" if points + self.grid <= MOST_I32 else "i64"
        self.text.begin_again()
        with w.block(f"for ({kind} point = tw_block_x(); point < {points}; point += {self.grid})"):
            self._point()

    def _rounds(self) -> None:
        """All points several times; blocks meet in between."""
        w, grid = self.w, self.grid
        assert self.step.plain.rounds is not None
        name, count = self.step.plain.rounds
        own = self.text.names[name.name]
        self.text.begin_again()
        with w.block(f"for (i64 {own} = 0; {own} < {count}; {own}++)"):
            with w.block(f"if ({own})"):
                w.line("tw_sync();")
                with w.block("if (thread == 0)"):
                    w.line(f"met += {grid};")
                    w.line(f"tw_count({ARRIVALS});")
                    w.line(f"tw_await({ARRIVALS}, met);")
                w.line("tw_sync();")
            points = self.step.points
            kind = "i32" if points + grid <= MOST_I32 else "i64"
            with w.block(f"for ({kind} point = tw_block_x(); point < {points}; point += {grid})"):
                self._point()
        last = f"tw_count({ARRIVALS}) == met + {grid - 1}"
        w.line(f"if (thread == 0 && {last}) {ARRIVALS}[0] = 0;")

    def _threads(self) -> None:
        """A thread for each point, or for several."""
        points, together = self.step.points, self.grid * self.threads
        kind = "i32" if points + together <= MOST_I32 else "i64"
        start = f"tw_block_x() * {self.threads} + thread"
        start = f"(i64){start}" if kind == "i64" else start
        if together >= points:
            self.w.line(f"const {kind} point = {start};")
            with self.w.block(f"if (point < {points})"):
                self._point()
            return
        looped = any(isinstance(s, _LOOPS) for s in every(self.step.plain.body))
        if not looped:  # reads of several points are under way at a time
            self.w.line(f"#pragma unroll {_AT_ONCE}")
        head = f"for ({kind} point = {start}; point < {points}; point += {together})"
        with self.w.block(head):
            self._point()

    def _point(self) -> None:
        self.text.coordinates(self.step.plain.points, "point")
        for weights in self.text.weights.values():
            weights.copy(self.text)
        self.text.run(self.step.plain.body)
