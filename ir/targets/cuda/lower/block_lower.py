"""The text of one block kernel: a tile a block or persistent blocks, loops, what is ahead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from ir.ops.load import Load
from ir.program import Program
from ir.schedule import Value
from ir.targets.cuda.build.readers import read_again
from ir.targets.cuda.grid.merging import ARRIVALS, SHARES
from ir.targets.cuda.grid.overlap import await_kernel_before, starts_early
from ir.targets.cuda.launch import Launch, Parameter, Room
from ir.targets.cuda.layouts.frame import Share, blocked
from ir.targets.cuda.lower.block_parts import FLAG_BYTES, Parts
from ir.targets.cuda.space.block_options import REGISTERS, options_of
from ir.targets.cuda.text import scalars
from ir.targets.cuda.text.ahead import Ahead, NextInRegisters, can_be_ahead
from ir.targets.cuda.text.bounds import loop_bounds
from ir.targets.cuda.text.evaluate import Evaluator
from ir.targets.cuda.text.loops import TileBody
from ir.targets.cuda.text.naming import text_name
from ir.targets.cuda.text.passes import find_passes, needed
from ir.targets.cuda.text.registers import SCRATCH_BYTES, Team
from ir.targets.cuda.text.writer import Writer

if TYPE_CHECKING:
    from ir.targets.cuda.space.block import BlockKernel

SCRATCH_ROOM = 32 << 10  # bytes in which reductions after one another have places of their own


class BlockLowering:
    """One schedule of a block kernel on its way to text."""

    def __init__(self, kernel: BlockKernel, values: Mapping[str, Value], name: str) -> None:
        self.kernel, self.name = kernel, name
        shape, axes = kernel.shape, kernel.program.axes
        self.tiles = {a: int(values[kernel.name(f"tile.{a}")]) for a in axes}
        own = {a: int(values[kernel.name(f"own.{a}")]) for a in axes}
        lanes, vector = str(values[kernel.name("lanes")]), int(values[kernel.name("vector")])
        order = [lanes, *(axis for axis in axes if axis != lanes)]
        self.frame = blocked(
            Share(a, self.tiles[a], own[a], vector if a == lanes else 1) for a in order
        )
        self.looped = frozenset(a for a in shape.reduced if self.tiles[a] < axes[a])
        self.free = tuple(a for a in axes if a not in shape.reduced)
        self.program = shape.streamed(self.looped)
        self.w = Writer()
        self.early = starts_early(values)
        self.options = options_of(values, kernel.name)
        counts = [-(-axes[axis] // self.tiles[axis]) for axis in self.free]
        self.total = 1
        for count in counts:
            self.total *= count
        self.varying = {a for a, count in zip(self.free, counts, strict=True) if count > 1}
        walkers = self.options.walkers * kernel.hardware["sms"]
        self.grid = min(self.total, walkers) if walkers else self.total * self.options.parts
        self.e = self._evaluator()
        self.body = TileBody(self.e, find_passes(self.program, self.looped), self.looped)
        self.body.stream = self.options.stream
        self.rooms: tuple[Room, ...] = ()

    def _evaluator(self) -> Evaluator:
        team = Team("thread", self.frame.team, "tw_sync();", "tw_shared_base()")
        evaluator = Evaluator(self.program, self.w, self.frame, self.tiles, team)
        evaluator.room = SCRATCH_ROOM
        evaluator.alone = True
        if self.options.keep:
            evaluator.kept = read_again(self.program)
        return evaluator

    def run(self) -> Launch:
        e, w = self.e, self.w
        before = self._ring_bytes() + (FLAG_BYTES if self.options.parts > 1 else 0)
        if before:
            e.team = replace(e.team, scratch=f"tw_shared_base() + {before}")
        w.line("const i32 thread = tw_thread();")
        e.declare_threads()
        if self.options.walkers:
            self._each_tile()
        elif self.options.parts > 1:
            self._share_loop()
        else:
            self._origins("tw_block_x()")
            self._begin()
            self._body()
        shared = before + e.scratch_registers * self.frame.team * SCRATCH_BYTES
        words = [f"u32* {name}" for name in (SHARES, ARRIVALS)[: len(self.rooms)]]
        head = kernel_head(
            self.program, self.name, self.frame.team, "", self.options.walkers, words
        )
        text = f"{head} {{\n{w.text}}}\n"
        names = [spec.name for spec in self.program.tensors]
        names += [room.argument for room in self.rooms]
        return Launch(
            self.name, text, self.grid, self.frame.team, shared, tuple(map(Parameter, names)),
            rooms=self.rooms, early=self.early,
        )  # fmt: skip

    def _begin(self) -> None:
        """What comes before the first access to memory."""
        if self.early and self.options.prefetch:
            self._prefetch()
        await_kernel_before(self.w, self.early)

    def _body(self) -> None:
        if self.options.first:
            self.body.load_first()
        self.body.emit(self._loop)

    # -- tiles

    def _origins(self, number: str) -> None:
        """Declare where tile `number` starts, the last axis fastest."""
        rest = number
        for axis in reversed(self.free):
            count = -(-self.program.axes[axis] // self.tiles[axis])
            if count == 1:
                continue
            here, origin = self.w.name(f"{axis}_tile"), self.w.name(f"{axis}_first")
            self.w.line(f"const i32 {here} = ({rest}) % {count};")
            self.w.line(f"const i32 {origin} = {here} * {self.tiles[axis]};")
            rest = f"({rest}) / {count}"
            self.e.origins[axis] = origin

    @contextmanager
    def _elsewhere(self, number: str) -> Iterator[None]:
        """What is written inside is about another tile."""
        saved = dict(self.e.origins)
        with self.w.block(f"if ({number} < {self.total})"):
            self._origins(number)
            yield
        self.e.origins = saved

    def _each_tile(self) -> None:
        """A loop over tiles, as many apart as there are blocks."""
        w, e = self.w, self.e
        w.line("const i32 block = tw_block_x();")
        self._begin()
        if self.options.first:
            self._load_for_all()
        ring = self._tile_ring()
        if ring is not None:
            ring.begin()
            with ring.first("step") as step, self._elsewhere(f"block + {step} * {self.grid}"):
                ring.copy(step)
        head = f"for (i32 tile = block; tile < {self.total}; tile += {self.grid})"
        with w.block(head), e.scope():
            self._origins("tile")
            if ring is not None:
                ring.take()
                with self._elsewhere(f"tile + {ring.depth * self.grid}"):
                    ring.copy("slot")
                ring.turn()
            self._body()
            if e.exchanges == 1 or e.shared_place:
                w.line(e.team.sync)
        if ring is not None:
            ring.end()

    def _load_for_all(self) -> None:
        """Form the loads that are the same for all tiles."""
        for position, node in enumerate(self.program.nodes):
            fixed = not (self.varying | self.looped) & set(node.axes)
            if isinstance(node.op, Load) and not node.args and fixed:
                self.e.fragment(position)

    def _share_loop(self) -> None:
        """One part of a tile's main loop; the last block of a tile adds the parts and stores."""
        w = self.w
        w.reserve(SHARES, ARRIVALS)
        w.line(f"const i32 tile = tw_block_x() % {self.total};")
        w.line(f"const i32 part = tw_block_x() / {self.total};")
        self._origins("tile")
        self._begin()
        if self.options.first:
            self.body.load_first()
        self.body.run_passes(self._loop)
        flag = f"tw_shared_base() + {self._ring_bytes()}"
        parts = Parts(self.e, self.options.parts, self.total, "tile", "part", flag)
        results = self.body.passes.passes[0].reductions
        self.rooms = parts.rooms(self.name, results)
        with parts.last(results):
            self.body.finish()

    def _bounds(self, axis: str) -> tuple[str, str]:
        """First point and end of this block's main loop along an axis, as text."""
        low, high = loop_bounds(self.e, axis)
        count, tile = self.options.parts, self.tiles[axis]
        if count == 1:
            return low, high
        points = -(-self.program.axes[axis] // (tile * count)) * tile
        return f"max({low}, part * {points})", f"min({high}, (part + 1) * {points})"

    # -- what is ahead

    def _prefetch(self) -> None:
        """Ask for the first steps of what no other block reads."""
        main = self._main_axis()
        with self.w.unrolled("step", self.options.prefetch):
            if self.options.walkers:
                with self._elsewhere(f"block + step * {self.grid}"):
                    self._ask()
            elif main:
                low, high = self._bounds(main)
                with self._at_step(main, f"{low} + step * {self.tiles[main]}", high):
                    self._ask()
            else:
                self._ask()

    def _ask(self) -> None:
        for position, node in enumerate(self.program.nodes):
            if isinstance(node.op, Load) and self.e.read_once(position):
                self.e.prefetch(position)

    @contextmanager
    def _at_step(self, axis: str, start: str, high: str) -> Iterator[None]:
        """What is written inside is about the block of a main loop that begins at `start`."""
        saved = dict(self.e.origins)
        variable = self.w.name(f"{axis}_later")
        self.w.line(f"const i32 {variable} = {start};")
        with self.w.block(f"if ({variable} < {high})"):
            self.e.origins[axis] = variable
            yield
        self.e.origins = saved

    def _main_axis(self) -> str:
        """The axis of the main loop, if it is one."""
        return next(iter(self.looped)) if len(self.looped) == 1 else ""

    def _tile_ring(self) -> Ahead | NextInRegisters | None:
        if self.looped or not self.options.walkers:
            return None
        loads = [p for p, node in enumerate(self.program.nodes) if self.varying & set(node.axes)]
        return self._ring(loads)

    def _main_ring(self, number: int) -> Ahead | NextInRegisters | None:
        axis = self._main_axis()
        if not axis:
            return None
        one = self.body.passes.passes[number]
        roots = tuple(r for p in one.reductions for r in self.program.nodes[p].args) + one.stores
        inside = needed(self.program, roots, frozenset(one.reductions))
        return self._ring([p for p in inside if axis in self.program.nodes[p].axes])

    def _ring(self, positions: Sequence[int]) -> Ahead | NextInRegisters | None:
        loads = [position for position in positions if can_be_ahead(self.e, position)]
        if not loads or not self.options.ahead:
            return None
        if self.options.waits == REGISTERS:
            return NextInRegisters(self.e, loads)
        return Ahead(self.e, loads, self.options.ahead)

    def _ring_bytes(self) -> int:
        """Shared memory of the largest ring."""
        count = len(self.body.passes.passes) if self.looped else 0
        rings = [self._tile_ring(), *(self._main_ring(number) for number in range(count))]
        return max((ring.bytes for ring in rings if ring is not None), default=0)

    # -- main loops

    @contextmanager
    def _loop(self, number: int) -> Iterator[None]:
        """The loops of one pass over the axes of the main loop."""
        ring = self._main_ring(number)
        later = []
        with ExitStack() as stack:
            for axis in self.program.axes:
                if axis not in self.looped:
                    continue
                low, high = self._bounds(axis)
                tile = self.tiles[axis]
                if ring is not None:
                    stack.enter_context(self.w.block(""))
                    ring.begin()
                    with (
                        ring.first("step") as step,
                        self._at_step(axis, f"{low} + {step} * {tile}", high),
                    ):
                        ring.copy(step)
                    stack.callback(ring.end)
                variable = self.w.name(f"{axis}_at")
                head = f"for (i32 {variable} = {low}; {variable} < {high}; {variable} += {tile})"
                stack.enter_context(self.w.block(head))
                self.e.origins[axis] = variable
                later.append(f"{variable} != {low}")
                if ring is not None:
                    stack.enter_context(self.e.scope())
                    ring.take()
                    with self._at_step(axis, f"{variable} + {ring.depth * tile}", high):
                        ring.copy("slot")
                    ring.turn()
            self.body.later = " || ".join(later)
            yield


def kernel_head(
    program: Program,
    name: str,
    threads: int,
    extra: str,
    resident: int = 0,
    more: Sequence[str] = (),
) -> str:
    """The signature of a kernel on plain pointers, then `more` parameters.

    With `resident`, it may take registers as long as so many blocks fit a processor.
    """
    parameters = []
    for spec in program.tensors:
        constness = "const " if spec.role == "input" else ""
        storage = scalars.STORAGE[spec.dtype]
        parameters.append(f"{constness}{storage}* __restrict__ {text_name(spec.name)}")
    bounds = f"__launch_bounds__({threads}{f', {resident}' if resident else ''})"
    return f"TW_KERNEL {bounds} {extra}{name}({', '.join([*parameters, *more])})"
