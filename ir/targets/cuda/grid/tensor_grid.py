"""The grid of a kernel on wgmma: its tiles, how many there are, and where each begins."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ir.targets.cuda.grid.batching import BESIDE, along_rows
from ir.targets.cuda.grid.dealing import declare_dealt, growth
from ir.targets.cuda.grid.hilbert import hilbert_order
from ir.targets.cuda.grid.raster import declare_place
from ir.targets.cuda.grid.stream_k import Stream
from ir.targets.cuda.grid.tensor_merge import stream_of, whole_waves
from ir.targets.cuda.plans.tensor_plan import Plan
from ir.targets.cuda.text.writer import Writer


class TensorGrid:
    """Tiles of one plan; `order` is the table of places that the kernel `name` needs, if any."""

    def __init__(self, plan: Plan, axes: Mapping[str, int], name: str) -> None:
        self.plan, self.axes, self.name = plan, axes, name
        self.order = ""
        self.stream: Stream | None = stream_of(plan, self.total(), *self.counts()[1:])

    def counts(self) -> tuple[list[tuple[str, int]], int, int]:
        """Batches, and cluster tiles along rows and along columns."""
        plan, axes = self.plan, self.axes
        rows = columns = 1
        for number, axis in enumerate(plan.roles.rows):
            count = -(-axes[axis] // plan.tiles[axis])
            if number == len(plan.roles.rows) - 1:
                count = -(-count // plan.cluster[0])
            rows *= count
        if not plan.roles.inner:
            for axis in plan.roles.columns:
                count = -(-axes[axis] // plan.tiles[axis])
                columns *= -(-count // plan.cluster[1]) if axis == plan.column_axis else count
        return [(axis, axes[axis]) for axis in plan.roles.batch], rows, columns

    def total(self) -> int:
        """Tiles of clusters; parts of a sum that meet elsewhere than in a cluster count."""
        batches, rows, columns = self.counts()
        total = rows * columns * self.plan.parts // self.plan.cluster_parts
        for _, extent in batches:
            total *= extent
        return total

    def blocks(self) -> int:
        """Blocks to launch."""
        clusters = self.total()
        if self.stream is not None:
            clusters = self.stream.clusters
        elif self.plan.processors:
            there = self.plan.processors // self.plan.cluster_blocks
            clusters = min(clusters, whole_waves(self.plan, there))
        return clusters * self.plan.cluster_blocks

    def decode(self, w: Writer, tile: str) -> dict[str, str]:
        """Declare the origins of a cluster tile's part that is this CTA's."""
        batches, rows, columns = self.counts()
        number, row, column = self._place(w, tile, prod(n for _, n in batches), rows, columns)
        origins: dict[str, str] = {}
        for axis, extent in reversed(batches):
            origin = w.name(f"{axis}_first")
            w.line(f"const i32 {origin} = {number} % {extent};")
            w.line(f"{number} /= {extent};")
            origins[axis] = origin
        self._split_rows(w, row, origins)
        self._split_columns(w, column, origins)
        return origins

    def _place(
        self, w: Writer, tile: str, batches: int, rows: int, columns: int
    ) -> tuple[str, str, str]:
        """A tile's batch, row and column: batch after batch by the raster, or dealt."""
        plan = self.plan
        if plan.deal:
            last = plan.roles.rows[-1]
            tiles = -(-self.axes[last] // plan.tiles[last])
            steps = -(-tiles // plan.cluster[0])
            grows = growth(plan.program, plan.roles) > 0
            counts = (steps, rows // steps, columns)
            return declare_dealt(w, tile, plan.deal, batches, counts, grows)
        if plan.batches == BESIDE:
            return self._place_beside(w, tile, batches, rows, columns)
        number, rest = "", tile
        if plan.roles.batch:
            number, rest = w.name("batch"), w.name("rest")
            w.line(f"i32 {number} = {tile} / {rows * columns};")
            w.line(f"const i32 {rest} = {tile} % {rows * columns};")
        return number, *self._raster(w, rest, rows, columns)

    def _place_beside(
        self, w: Writer, tile: str, batches: int, rows: int, columns: int
    ) -> tuple[str, str, str]:
        """The raster goes over all batches, as further rows or columns."""
        number = w.name("batch")
        if along_rows(self.plan.program, self.plan.roles):
            line, column = self._raster(w, tile, batches * rows, columns)
            w.line(f"i32 {number} = {line} / {rows};")
            return number, f"{line} % {rows}", column
        row, line = self._raster(w, tile, rows, batches * columns)
        w.line(f"i32 {number} = {line} / {columns};")
        return number, row, f"{line} % {columns}"

    def _raster(self, w: Writer, tile: str, rows: int, columns: int) -> tuple[str, str]:
        if self.plan.raster != "hilbert" or columns == 1 or rows == 1:
            order = "rows" if self.plan.raster == "hilbert" else self.plan.raster
            return declare_place(w, order, tile, rows, columns)
        row, column, place = w.name("row"), w.name("column"), w.name("place")
        pairs = hilbert_order(rows, columns)
        self.order = ", ".join(str(one << 16 | other) for one, other in pairs)
        w.line(f"const u32 {place} = {self.name}_order[{tile}];")
        w.line(f"const i32 {row} = {place} >> 16, {column} = {place} & 0xffff;")
        return row, column

    def _split_rows(self, w: Writer, row: str, origins: dict[str, str]) -> None:
        plan, axes = self.plan, self.axes
        rest = row
        for number, axis in enumerate(reversed(plan.roles.rows)):
            count = -(-axes[axis] // plan.tiles[axis])
            index = rest
            if not number and plan.cluster[0] > 1:
                count = -(-count // plan.cluster[0])
                index = f"(({rest}) % {count} * {plan.cluster[0]} + rank % {plan.cluster[0]})"
            elif len(plan.roles.rows) > 1:
                index = f"(({rest}) % {count})"
            origin = w.name(f"{axis}_first")
            w.line(f"const i32 {origin} = {index} * {plan.tiles[axis]};")
            origins[axis] = origin
            rest = f"({rest}) / {count}"

    def _split_columns(self, w: Writer, column: str, origins: dict[str, str]) -> None:
        plan, axes = self.plan, self.axes
        if plan.roles.inner:
            return
        rest = column
        for axis in reversed(plan.roles.columns):
            count = -(-axes[axis] // plan.tiles[axis])
            index = f"({rest})"
            if axis == plan.column_axis and plan.cluster[1] > 1:
                count = -(-count // plan.cluster[1])
                index = f"(({rest}) % {count} * {plan.cluster[1]} + rank / {plan.cluster[0]})"
            elif len(plan.roles.columns) > 1:
                index = f"(({rest}) % {count})"
            origin = w.name(f"{axis}_first")
            w.line(f"const i32 {origin} = {index} * {plan.tiles[axis]};")
            origins[axis] = origin
            rest = f"({rest}) / {count}"
