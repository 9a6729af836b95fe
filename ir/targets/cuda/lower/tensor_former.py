"""Warp groups that form operands as text: they make tiles of copied ones, beside the products.

They go through the producer's statements: what it copies a source for, they form of it. Each thread
makes 16 bytes of a tile at a time, point by point as any evaluator does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import prod

from ir.kernel.tile_kernel import ADVANCE, BLOCK, EXPECT, FREE, Do, Loop, Role, Sync
from ir.layout.addresses import coordinate
from ir.layout.expressions import ZERO, Expression, scaled, total, variable
from ir.ops.load import Load
from ir.targets.cuda.build.formed import Former
from ir.targets.cuda.build.tensor_kernel import L2
from ir.targets.cuda.layouts.frame import GROUP, WARP, Frame
from ir.targets.cuda.layouts.operands import OperandTile
from ir.targets.cuda.lower.tensor_producer import ProducerPrinter
from ir.targets.cuda.plans.forming import CHUNK
from ir.targets.cuda.plans.planning import FORMER_REGISTERS
from ir.targets.cuda.plans.tensor_plan import REGISTER_SPLITS, Ring
from ir.targets.cuda.plans.tensor_rings import HELD
from ir.targets.cuda.text import scalars
from ir.targets.cuda.text.evaluate import Evaluator
from ir.targets.cuda.text.packed import HALVES, PackedWords
from ir.targets.cuda.text.registers import Point, Team
from ir.targets.cuda.text.writer import Writer

TOGETHER = 4  # chunks that it reads before it makes the first
UNROLLED = 32  # chunks of a tile that are not looped over


class FormerPrinter(ProducerPrinter):
    """Prints the statements of the producer, as those see them who form what it copied."""

    who = "a group of formers"

    def role(self, role: Role) -> Writer:
        if self.plan.formed:
            self.w.reserve("former", "chunk")
            self.w.line(f"const i32 former = tw_thread() - {GROUP * (1 + self.plan.consumers)};")
            if REGISTER_SPLITS[self.plan.registers][0]:
                self.w.line(f"tw_registers_down<{FORMER_REGISTERS}>();")
            for dtype in sorted({former.dtype for former in self.plan.formed} & HALVES.keys()):
                start = HALVES[dtype].start
                self.w.line(f"const u32 start_{dtype} = tw_kept({start << 16 | start:#x}u);")
            self.lowering.state(self.w)
            self.all(role.body)
        return self.w

    def loop(self, loop: Loop) -> None:
        if loop.over != BLOCK:
            with self.lowering.tiles(self.w, self.e):
                self.origins = self.e.origins
                self.all(loop.body)
            return
        with self.w.block("for (i32 block = 0; block < blocks; block++)"):
            self.origins = self.e.origins | self.lowering.walk_origins(self.w, "block")
            self.all(loop.body)
        self.origins = self.e.origins

    def sync(self, one: Sync) -> None:
        if not one.of:
            super().sync(one)
            return
        ring = self.lowering.ring(one.of)
        stage, phase = f"{ring.name}_slot", f"{ring.name}_phase"
        if not self.plan.formed_in(ring) or one.kind == EXPECT:
            return
        if one.kind == FREE:
            self.w.line(f"tw_barrier_wait({self.lowering.empty(ring, stage)}, {phase} ^ 1);")
        elif one.kind == ADVANCE:
            self._hand_over(ring, stage)
            self.lowering.advance_ring(self.w, ring)
        else:
            self.lacks(one)

    def _hand_over(self, ring: Ring, stage: str) -> None:
        """Warp by warp: what is formed may be multiplied, and its source be copied anew."""
        self.w.line("tw_fence_async();")
        self.w.line("tw_sync_warp();")
        with self.w.block(f"if (former % {WARP} == 0)"):
            self.w.line(f"tw_barrier_arrive({self.lowering.full(ring, stage)});")
            self.w.line(f"tw_barrier_arrive({self.lowering.source_empty(ring, stage)});")

    def do(self, one: Do) -> None:
        operation = self.kernel.operation(one.operation)
        if any(part.by == L2 for part in operation.parts):
            return
        (name,) = operation.takes
        ring = self.lowering.ring(name)
        formed = self.plan.formed_in(ring)
        if formed:
            full = self.lowering.source_full(ring, f"{name}_slot")
            self.w.line(f"tw_barrier_wait({full}, {name}_phase);")
        origins = self.e.origins if name == HELD else self.origins
        for operand, former in formed:
            _Tile(self, ring, operand, former, origins).form()


class _Tile:
    """One operand's tile, and what it is formed of."""

    def __init__(
        self, printer: FormerPrinter, ring: Ring, operand: OperandTile, former: Former,
        origins: Mapping[str, str],
    ) -> None:  # fmt: skip
        self.lowering, self.plan, self.w = printer.lowering, printer.plan, printer.w
        self.ring, self.operand, self.former, self.origins = ring, operand, former, origins
        self.program = former.program
        self.source = self.plan.source_of(operand, former)
        self.each = CHUNK // operand.size  # points of a chunk
        self.run = operand.run[-1][0]  # along which they are neighbours
        team = Team("former", GROUP, "", "")
        self.e = Evaluator(self.program, self.w, Frame((), ()), self.plan.tiles, team)

    def form(self) -> None:
        """All chunks of the tile: a few are read before the first of them is made."""
        count, threads = prod(self._counts.values()), GROUP * self.plan.formers
        stage = f"{self.ring.name}_slot"
        to, origin = self.w.name("formed"), self.w.name("source")
        self.w.line(f"const u32 {to} = {self.lowering.slot(self.ring, self.operand, stage)};")
        at = self.lowering.source_slot(self.ring, self.operand, self.source, stage)
        self.w.line(f"const u32 {origin} = {at};")
        turns, rest = divmod(count, threads)
        if rest or turns > UNROLLED:
            head = f"for (i32 chunk = former; chunk < {count}; chunk += {threads})"
            with self.w.block(head):
                self._chunks([variable("chunk", count)], to, origin)
            return
        numbers = [Expression(turn * threads) for turn in range(turns)]
        chunks = [total(variable("former", threads), number) for number in numbers]
        for first in range(0, turns, TOGETHER):
            self._chunks(chunks[first : first + TOGETHER], to, origin)

    def _chunks(self, chunks: Sequence[Expression], to: str, origin: str) -> None:
        places = [self._places(chunk) for chunk in chunks]
        read = [self._copied(place, origin) for place in places]
        for place, copied in zip(places, read, strict=True):
            self._chunk(place, copied, to)

    def _chunk(self, place: Mapping[str, Expression], copied: list[str], to: str) -> None:
        """One chunk of the tile, made of as many points of the source."""
        words = self.w.name("words")
        self.w.line(f"tw_vec16 {words} = {{}};")
        inside = " && ".join(self._inside(place))
        with self.w.block(f"if ({inside})" if inside else ""):
            for number, word in enumerate(self._words(place, copied)):
                self.w.line(f"{words}.w[{number}] = {word};")
        line, point = self.operand.place(lambda axis: place.get(axis, ZERO))
        where = self.operand.offset(line, point)
        self.w.line(f"tw_store_shared_16({to} + ({where}), {words});")

    @property
    def _counts(self) -> dict[str, int]:
        """Chunks along each axis, the contiguous one last."""
        tiles = {axis: points for axis, points in self.operand.tiles if points > 1}
        others = {axis: points for axis, points in tiles.items() if axis != self.run}
        return {**others, self.run: tiles.get(self.run, 1) // self.each}

    def _places(self, chunk: Expression) -> dict[str, Expression]:
        """Where a chunk begins in the tile, along each axis."""
        axes, counts = zip(*reversed(self._counts.items()), strict=True)
        found = dict(zip(axes, coordinate(chunk, counts), strict=True))
        return found | {self.run: scaled(found[self.run], self.each)}

    def _inside(self, place: Mapping[str, Expression]) -> Iterator[str]:
        """What must hold for the chunk to lie in the tensor: what is formed outside is 0."""
        for axis, at in place.items():
            if self.program.axes[axis] % self.plan.tiles[axis]:
                yield f"{self._coordinate(axis, at)} < {self.program.axes[axis]}"

    def _coordinate(self, axis: str, at: Expression) -> str:
        origin = self.origins.get(axis, "0")
        return f"({at})" if origin == "0" else f"({origin} + ({at}))"

    def _words(self, place: Mapping[str, Expression], copied: list[str]) -> Iterator[str]:
        """The chunk's 32-bit words."""
        root, dtype = self.former.root, self.operand.spec.dtype
        shared, per_word = self._small(place, None), max(1, 4 // self.operand.size)
        size, kind = self.source.size, self.source.spec.dtype
        points = [scalars.unpack(copied[n * size // 4], n, kind) for n in range(self.each)]
        memos = [
            {**shared, **self._small(place, number), self.former.load: point}
            for number, point in enumerate(points)
        ]
        for start in range(0, self.each, per_word):
            some = memos[start : start + per_word]
            pair = copied[start * size // 4] if size == 1 else ""
            moved = f"{pair} >> 16" if pair and start % 4 else pair
            word = self._packed(some, moved) if dtype in HALVES else ""
            if not word:
                kind = self.program.nodes[root].dtype
                texts = [self.e.scalar(root, Point({}), memo) for memo in some]
                word = scalars.pack_word([scalars.convert(t, kind, dtype) for t in texts], dtype)
            yield word

    def _packed(self, memos: Sequence[dict[int, str]], pair: str) -> str:
        """A word of two numbers computed in halves, where these are exact; empty if it is not.
        `pair`: both as they lie in the source, in bytes."""
        half = HALVES[self.operand.spec.dtype]

        def value(here: int, place: int) -> str:
            return self.e.scalar(here, Point({}), memos[place])

        def raw(here: int) -> str:
            return pair if here == self.former.load else ""

        packed = PackedWords(self.program, half, self.w, value, f"start_{half.name}", raw)
        return packed.word(self.former.root)

    def _copied(self, place: Mapping[str, Expression], origin: str) -> list[str]:
        """The words of the source that a chunk is made of."""
        size = self.source.size
        step = min(CHUNK, self.each * size)
        found = []
        for start in range(0, self.each, step // size):
            line, point = self.source.place(partial(self._at, place, number=start))
            name = self.w.name("copied")
            address = f"{origin} + ({self.source.offset(line, point)})"
            kind = scalars.vector_type(step)
            self.w.line(f"const {kind} {name} = tw_load_shared_{step}({address});")
            found += [f"{name}.w[{n}]" for n in range(step // 4)] if step > 4 else [name]
        return found

    def _small(self, place: Mapping[str, Expression], number: int | None) -> dict[int, str]:
        """Values that threads read from memory: of a whole chunk, or of one of its points."""
        found, run = dict[int, str](), self.run
        for position, node in enumerate(self.program.nodes):
            if not isinstance(node.op, Load) or position == self.former.load:
                continue
            if (run in node.axes) != (number is not None):
                continue
            access = self.e.access(position)
            places = {axis: self._at(place, axis, number or 0) for axis in node.axes}
            parts = [
                f"(i64){self._coordinate(axis, at)} * {access.stride(axis)}"
                for axis, at in places.items()
            ]
            parts += [str(access.constant)] if access.constant else []
            raw = f"{self.w.pointer(access.tensor)}[{' + '.join(parts) or '0'}]"
            name = self.w.name("small")
            kind = scalars.register_type(node.dtype)
            self.w.line(f"const {kind} {name} = {scalars.from_storage(raw, node.dtype)};")
            found[position] = name
        return found

    def _at(self, place: Mapping[str, Expression], axis: str, number: int) -> Expression:
        at = place.get(axis, ZERO)
        return total(at, Expression(number)) if axis == self.run and number else at
