"""How one operand's tile of a block gets into shared memory: copied unchanged by cp.async, or
loaded, evaluated and written by threads.

Either way a filler has three parts: what is declared once, what starts before a block is
multiplied, and what is finished after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ir.dtypes import dtype_of
from ir.ops.load import Load
from ir.targets.cuda import scalars
from ir.targets.cuda.evaluate import Evaluator
from ir.targets.cuda.frame import Digit, Frame
from ir.targets.cuda.mma_operands import StageTile
from ir.targets.cuda.mma_plan import MmaPlan
from ir.targets.cuda.mma_roles import largest_load
from ir.targets.cuda.registers import Fragment, Point, Team, times
from ir.targets.cuda.writer import Writer

RUN = 32  # most neighbouring points of an operand that one thread computes
KEPT = 16  # most registers of a load that is kept over the walk


class Filler(Protocol):
    """Fills one operand's tiles."""

    tile: StageTile

    def declare(self) -> None: ...

    def start(self, walk: Mapping[str, str], slot: str) -> None:
        """Begin to fill `slot` with the block at the origins `walk`."""

    def finish(self, slot: str) -> None:
        """What remains to be done for the block that was begun last."""


class Copies:
    """Chunks by cp.async, the rest of what reaches over an end filled with zeros."""

    def __init__(
        self, plan: MmaPlan, tile: StageTile, w: Writer, origins: Mapping[str, str]
    ) -> None:
        self.plan, self.tile, self.w, self.origins = plan, tile, w, origins
        assert tile.access is not None
        self.access = tile.access
        self.extents = plan.program.axes
        self.stem = w.name(f"{tile.access.tensor}_copy")
        self.per = tile.piece // tile.size
        self.total = tile.lines * tile.pieces
        self.regular = plan.threads % tile.pieces == 0 and len(tile.outer.tiled) <= 1
        self.lines = plan.threads // tile.pieces if self.regular else 0

    def declare(self) -> None:
        if not self.regular:
            return
        w, stem, pieces = self.w, self.stem, self.tile.pieces
        w.line(f"const i32 {stem}_line = thread / {pieces}, {stem}_piece = thread % {pieces};")
        local = self._local(f"{stem}_line", f"{stem}_piece")
        storage = scalars.STORAGE[self.access.dtype]
        where = self._offset(local, self.origins)
        w.line(f"const {storage}* {stem}_from = {self.access.tensor} + ({where});")
        w.line(f"const u32 {stem}_to = {self._place(f'{stem}_line', f'{stem}_piece')};")

    def _local(self, line: str, piece: str) -> dict[str, str]:
        start = piece if self.per == 1 else f"({piece} * {self.per})"
        return {**self.tile.outer.coordinates(line), **self.tile.inner.coordinates(start)}

    def _offset(self, local: Mapping[str, str], origins: Mapping[str, str]) -> str:
        """Elements from the tensor's start to a piece, as text."""
        parts = []
        for axis in dict.fromkeys(a for d in self.access.dimensions for a, _ in d.terms):
            for place in (origins.get(axis, "0"), local.get(axis, "0")):
                if place != "0":
                    parts.append(f"(i64){place} * {self.access.stride(axis)}")
        if self.access.constant:
            parts.append(str(self.access.constant))
        return " + ".join(parts) or "0"

    def _place(self, line: str, piece: str) -> str:
        """Byte offset of a piece in the tile, as text."""
        tile = self.tile
        byte = times(piece, tile.piece)
        panels = tile.inner.size * tile.size // tile.width
        name = self.w.name(f"{self.stem}_at")
        within = f"({byte}) % {tile.width}" if panels > 1 else byte
        self.w.line(f"const u32 {name} = {line} * {tile.width} + {within};")
        panel = f" + ({byte}) / {tile.width} * {tile.panel_bytes}" if panels > 1 else ""
        return f"{tile.swizzled(name)}{panel}"

    def start(self, walk: Mapping[str, str], slot: str) -> None:
        w, stem = self.w, self.stem
        passes = -(-self.total // self.plan.threads)
        if self.regular:
            w.line(f"const i64 {stem}_walk = {self._offset({}, walk)};")
        turn = w.name("turn")
        with w.unrolled(turn, passes):
            whole = passes * self.plan.threads == self.total
            guard = f"thread + {turn} * {self.plan.threads} < {self.total}"
            with w.block("" if whole else f"if ({guard})"):
                self._piece(turn, walk, slot)

    def _piece(self, turn: str, walk: Mapping[str, str], slot: str) -> None:
        w, stem, tile = self.w, self.stem, self.tile
        origins = {**self.origins, **walk}
        if self.regular:
            line = f"({stem}_line + {turn} * {self.lines})"
            local = self._local(line, f"{stem}_piece")
            axis = tile.outer.tiled[0] if tile.outer.tiled else ""
            step = self.lines * self.access.stride(axis) if axis else 0
            source = f"{stem}_from + {stem}_walk + {turn} * (i64){step}"
            if self.lines % 8 == 0:
                place = f"{stem}_to + {turn} * {self.lines * tile.width}"
            else:
                place = self._place(line, f"{stem}_piece")
        else:
            number = w.name("number")
            w.line(f"const i32 {number} = thread + {turn} * {self.plan.threads};")
            line, piece = f"({number} / {tile.pieces})", f"({number} % {tile.pieces})"
            local = self._local(line, piece)
            source = f"{self.access.tensor} + ({self._offset(local, origins)})"
            place = self._place(line, piece)
        self._copy(f"{slot} + {place}", source, local, origins)

    def _copy(
        self, to: str, source: str, local: Mapping[str, str], origins: Mapping[str, str]
    ) -> None:
        bytes_, conditions = self._valid(local, origins)
        inside = " && ".join(conditions)
        if self.tile.piece < 4:
            value = f"tw_load_{self.tile.piece}({source})"
            value = f"({inside} ? {value} : 0u)" if inside else value
            self.w.line(f"tw_store_shared_{self.tile.piece}({to}, {value});")
            return
        count = f"({inside} ? {bytes_} : 0)" if inside else bytes_
        self.w.line(f"tw_copy_async_{self.tile.piece}({to}, {source}, {count});")

    def _valid(self, local: Mapping[str, str], origins: Mapping[str, str]) -> tuple[str, list[str]]:
        """Bytes of a piece that are inside the tensor, and conditions for there to be any."""

        def coordinate(axis: str) -> str:
            parts = [p for p in (origins.get(axis, "0"), local.get(axis, "0")) if p != "0"]
            return " + ".join(parts) or "0"

        conditions, valid = [], str(self.tile.piece)
        for axis in dict.fromkeys(a for d in self.access.dimensions for a, _ in d.terms):
            extent = self.extents[axis]
            if extent % self.plan.tiles[axis] == 0:
                continue
            left = self._left(axis, coordinate(axis), local) if axis == self.tile.run[-1] else ""
            if left:
                valid = left
            else:
                conditions.append(f"{coordinate(axis)} < {extent}")
        for number in self.tile.bounded:
            d = self.access.dimensions[number]
            index = " + ".join(f"({coordinate(a)}) * {c}" for a, c in d.terms)
            conditions.append(f"(u32)({index} + {d.constant}) < {d.extent}u")
        return valid, conditions

    def _left(self, axis: str, coordinate: str, local: Mapping[str, str]) -> str:
        """Bytes up to the end of a piece's axis, where an end may lie inside a piece."""
        inner = 1
        for other in self.tile.run[:-1]:
            inner *= self.plan.tiles[other]
        extent = self.extents[axis]
        if extent * inner % self.per == 0:
            return ""
        ahead = f"({extent} - ({coordinate})) * {inner * self.tile.size}"
        return f"(u32)max(min({ahead}, {self.tile.piece}), 0)"

    def finish(self, slot: str) -> None:
        return


class FillEvaluator(Evaluator):
    """Forms an operand's points in the threads that write them."""

    def ragged(self, axis: str) -> bool:
        """Blocks behind the last one may be asked for; they are loaded as zeros."""
        return axis == self.walked[0] or super().ragged(axis)

    walked: tuple[str, ...] = ()

    def local(self, axis: str, point: Point) -> str:
        """Place of a point along the tile's axis, as text."""
        parts = [p for p in (self._thread_parts.get(axis), self.step(axis, point)) if p]
        return " + ".join(parts) or "0"


class Computed:
    """Values formed from loads in registers, packed, and stored for ldmatrix."""

    def __init__(
        self, plan: MmaPlan, tile: StageTile, w: Writer, origins: Mapping[str, str]
    ) -> None:
        self.plan, self.tile, self.w = plan, tile, w
        self.node = plan.program.nodes[tile.position]
        frame, self.run = fill_frame(plan, tile)
        team = Team("thread", frame.team, "tw_sync();", "tw_shared_base()")
        self.e = FillEvaluator(plan.program, w, frame, plan.tiles, team)
        self.e.walked = plan.roles.walked
        self.e.origins |= origins
        self.leaves = self._leaves()
        self.kept: dict[int, Fragment] = {}

    def _leaves(self) -> list[int]:
        found: list[int] = []
        pending = [self.tile.position]
        while pending:
            here = pending.pop()
            node = self.plan.program.nodes[here]
            if isinstance(node.op, Load) and here not in found:
                found.append(here)
            pending.extend(node.args if not isinstance(node.op, Load) else ())
        return sorted(found)

    def declare(self) -> None:
        self.e.declare_threads()
        walked = set(self.plan.roles.walked)
        for leaf in self.leaves:
            axes = self.plan.program.nodes[leaf].axes
            if not walked & set(axes) and self.e.frame.count(axes) <= KEPT:
                self.e.fragment(leaf)
        self.kept = dict(self.e.values)

    def start(self, walk: Mapping[str, str], slot: str) -> None:
        self.e.origins |= walk
        self.e.values = dict(self.kept)
        for leaf in self.leaves:
            self.e.fragment(leaf)

    def finish(self, slot: str) -> None:
        e, tile, w = self.e, self.tile, self.w
        e._ready(tile.position, self.node.axes)
        rest = [d for d in e.own(self.node.axes) if d not in self.run]
        points = 1
        for digit in self.run:
            points *= digit.size
        per = min(points, max(1, 16 // tile.size))
        active = e.frame.team < self.plan.threads
        with w.block(f"if (thread < {e.frame.team})" if active else ""), e.each(rest) as point:
            for start in range(0, points, per):
                places = [
                    Point({**point.digits, **_spread(self.run, start + i)}) for i in range(per)
                ]
                values = [self._value(place) for place in places]
                self._store(values, places[0], slot)

    def _value(self, point: Point) -> str:
        value = self.e.scalar(self.tile.position, point, {})
        ragged = [
            axis for axis in self.plan.roles.walked
            if self.plan.program.axes[axis] % self.plan.tiles[axis]
        ]  # fmt: skip
        inside = [
            f"{self.e.coordinate(axis, point)} < {self.plan.program.axes[axis]}" for axis in ragged
        ]
        return f"({' && '.join(inside)} ? {value} : 0)" if inside else value

    def _store(self, values: list[str], point: Point, slot: str) -> None:
        tile, w = self.tile, self.w
        line, inner = self._number(tile.outer, point), self._number(tile.inner, point)
        byte, at = w.name("byte"), w.name("at")
        w.line(f"const u32 {byte} = ({inner}) * {tile.size};")
        w.line(f"const u32 {at} = ({line}) * {tile.width} + {byte} % {tile.width};")
        to = f"{slot} + {byte} / {tile.width} * {tile.panel_bytes} + {tile.swizzled(at)}"
        size = len(values) * tile.size
        if size < 4:
            for value in values:
                word = scalars.to_storage(value, tile.dtype)
                w.line(f"tw_store_shared_{tile.size}({to}, {word});")
            return
        each = 4 // tile.size
        words = [
            scalars.pack_word(values[i : i + each], tile.dtype) for i in range(0, len(values), each)
        ]
        if size == 16:
            w.line(f"tw_store_shared_16({to}, tw_vec16{{{{{', '.join(words)}}}}});")
        else:
            w.line(f"tw_store_shared_{size}({to}, {', '.join(words)});")

    def _number(self, side: object, point: Point) -> str:
        """A point's place along a side of the tile."""
        from ir.targets.cuda.sides import Side

        assert isinstance(side, Side)
        parts = []
        for axis, tile, inner in side.spans():
            place = self.e.local(axis, point) if tile > 1 else "0"
            if place != "0":
                parts.append(times(f"({place})", inner) if inner > 1 else f"({place})")
        return " + ".join(parts) or "0"


def fill_frame(plan: MmaPlan, tile: StageTile) -> tuple[Frame, list[Digit]]:
    """How threads share the points of a computed tile, and a thread's neighbours in a line.

    Neighbouring threads lie where the largest load of the operand is contiguous.
    """
    inner, outer = tile.inner, tile.outer
    share = max(1, inner.size * outer.size // plan.threads)
    op = largest_load(plan.program, tile.position)
    last = {axis for axis, c in op.index[-1].terms if c == 1} if op and op.index else set()
    if last & set(outer.tiled) and not last & set(inner.tiled):
        run = min(share, inner.size, max(1, 4 // tile.size))
        across = min(share // run, outer.size, 4)
        first, second = outer, inner
        sizes = (across, run)
    else:
        run = min(share, inner.size, RUN)
        first, second = inner, outer
        sizes = (run, 1)
    registers = [*first.digits(sizes[0], 1), *second.digits(sizes[1], 1)]
    left = plan.threads
    lanes = min(left, first.size // sizes[0])
    lines = min(left // lanes, second.size // sizes[1])
    threads = [*first.threads(lanes, sizes[0]), *second.threads(lines, sizes[1])]
    registers += first.digits(first.size // sizes[0] // lanes, sizes[0] * lanes)
    registers += second.digits(second.size // sizes[1] // lines, sizes[1] * lines)
    return Frame(tuple(registers), tuple(threads)), inner.digits(run, 1)


def filler(plan: MmaPlan, tile: StageTile, w: Writer, origins: Mapping[str, str]) -> Filler:
    return (Copies if tile.copied else Computed)(plan, tile, w, origins)


def computed_registers(plan: MmaPlan) -> int:
    """Registers that the points of computed tiles take in one thread, at most."""
    return sum(
        max(1, tile.inner.size * tile.lines // plan.threads)
        for tile in plan.operands
        if not tile.copied
    )


def _spread(digits: list[Digit], number: int) -> dict[Digit, str]:
    """The values of mixed-radix digits that make `number`."""
    found = {}
    for digit in digits:
        found[digit] = str(number % digit.size)
        number //= digit.size
    return found


def element_bytes(dtype: str) -> int:
    return dtype_of(dtype).bytes
