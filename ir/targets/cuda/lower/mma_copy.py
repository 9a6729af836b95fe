"""How a tile is copied from memory to shared memory: by cp.async, with zeros at ragged ends."""

from __future__ import annotations

from collections.abc import Mapping

from ir.layout.expressions import ZERO, Expression, quotient, scaled, variable
from ir.targets.cuda.layouts.copied import copied
from ir.targets.cuda.layouts.lanes import place
from ir.targets.cuda.layouts.mma_operands import StageTile
from ir.targets.cuda.plans.mma_plan import MmaPlan
from ir.targets.cuda.text import scalars
from ir.targets.cuda.text.writer import Writer


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
        self.held = copied(tile.dtype, tile.inner.size, tile.lines, plan.threads, tile.piece)
        whole = all(step.axis == 1 for step in self.held.values)  # threads have lines, turn by turn
        self.regular = whole and len(tile.outer.tiled) <= 1
        self.lines = plan.threads // tile.pieces if self.regular else 0

    def declare(self) -> None:
        if not self.regular:
            return
        w, stem = self.w, self.stem
        self._declare_place(f"{stem}_line", f"{stem}_piece", ZERO)
        local = self._local(f"{stem}_line", f"{stem}_piece")
        storage = scalars.STORAGE[self.access.dtype]
        where = self._offset(local, self.origins)
        w.line(f"const {storage}* {stem}_from = {self.access.tensor} + ({where});")
        w.line(f"const u32 {stem}_to = {self._place(f'{stem}_line', f'{stem}_piece')};")

    def _declare_place(self, line: str, piece: str, turn: Expression) -> None:
        """Declare which piece of which line this thread copies in a turn."""
        start, own = place(self.held, turn, variable("thread", self.plan.threads))
        self.w.line(f"const i32 {line} = {own}, {piece} = {quotient(start, self.per)};")

    def _local(self, line: str, piece: str) -> dict[str, str]:
        start = piece if self.per == 1 else f"({piece} * {self.per})"
        return {**self.tile.outer.coordinates(line), **self.tile.inner.coordinates(start)}

    def _offset(self, local: Mapping[str, str], origins: Mapping[str, str]) -> str:
        """Elements from the tensor's start to a piece, as text."""
        parts = self._steps(local, origins)
        if self.access.constant:
            parts.append(str(self.access.constant))
        return " + ".join(parts) or "0"

    def _steps(self, local: Mapping[str, str], origins: Mapping[str, str]) -> list[str]:
        """The part of an offset that coordinates make."""
        parts = []
        for axis in dict.fromkeys(a for d in self.access.dimensions for a, _ in d.terms):
            for own in (origins.get(axis, "0"), local.get(axis, "0")):
                if own != "0":
                    parts.append(f"(i64){own} * {self.access.stride(axis)}")
        return parts

    def _place(self, line: str, piece: str) -> str:
        """Byte offset of a piece in the tile, as text; right for those that there are."""
        tile = self.tile
        byte = scaled(variable(piece, tile.pieces), tile.piece)
        return f"({tile.byte(variable(line, tile.lines), byte)})"

    def start(self, walk: Mapping[str, str], slot: str) -> None:
        w, stem = self.w, self.stem
        passes = -(-self.total // self.plan.threads)
        if self.regular:
            w.line(f"const i64 {stem}_walk = {' + '.join(self._steps({}, walk)) or '0'};")
        turn = w.name("turn")
        with w.unrolled(turn, passes):
            whole = passes * self.plan.threads == self.total
            guard = f"thread + {turn} * {self.plan.threads} < {self.total}"
            with w.block("" if whole else f"if ({guard})"):
                self._piece(turn, passes, walk, slot)

    def _piece(self, turn: str, turns: int, walk: Mapping[str, str], slot: str) -> None:
        w, stem, tile = self.w, self.stem, self.tile
        origins = {**self.origins, **walk}
        if self.regular:
            line = f"({stem}_line + {turn} * {self.lines})"
            local = self._local(line, f"{stem}_piece")
            axis = tile.outer.tiled[0] if tile.outer.tiled else ""
            step = self.lines * self.access.stride(axis) if axis else 0
            source = f"{stem}_from + {stem}_walk + {turn} * (i64){step}"
            further = tile.memory.start(self.lines, 0)
            if further % tile.memory.pattern == 0:
                target = f"{stem}_to + {turn} * {further}"
            else:
                target = self._place(line, f"{stem}_piece")
        else:
            line, piece = w.name("line"), w.name("piece")
            self._declare_place(line, piece, variable(turn, turns))
            local = self._local(line, piece)
            source = f"{self.access.tensor} + ({self._offset(local, origins)})"
            target = self._place(line, piece)
        self._copy(f"{slot} + {target}", source, local, origins)

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
