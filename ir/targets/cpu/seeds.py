"""Schedules from which searches of the CPU target start: known plans for loops, panels and tiles.

They name no operator: what they leave open takes its initial value, what does not fit is refused
by the constraints.
"""

from __future__ import annotations

import math

from ir.ops.reduce import Carry
from ir.schedule import Value
from ir.targets.cpu.decisions import Decisions

_MANY = 4  # points for each thread, from which they keep all busy
# Rows that are read side by side, elements of each that are read at a time, rows touched ahead.
# Prefetchers keep up with few rows; where much is done with a row, more of them save loads and
# stores of what is added up.
_WALKS = ((8, 2048, 0), (16, 2048, 4), (64, 1024, 4))


class Seeds:
    """Starting schedules: register tiles that reach peak, under three plans for the loops."""

    def __init__(self, decisions: Decisions) -> None:
        self.decisions = decisions
        self.names = {d.name: d for d in decisions.found}

    def all(self) -> tuple[dict[str, Value], ...]:
        """Every seed; what it leaves open takes its initial value."""
        tiles = [self._tile(*t) for t in ((8, 3, 2), (6, 4, 2), (14, 2, 2), (12, 2, 1))]
        if not any(shape.product for shape in self.decisions.shapes):
            tiles = [self._rows(r, v) for r, v in ((1, 4), (4, 1), (1, 8), (8, 1))]
        plans = (
            self._blocked(),
            self._prepacked(),
            *self._both_packed(),
            *self._panelled(),
            self._in_place(),
            *self._walked(),
            *self._striped(),
            *self._streaming(),
            self._whole(64),
            self._whole(16),
        )
        found = [{**tile, **plan} for plan in plans for tile in tiles[: 2 if plan else 4]]
        return (*self._apart(tiles[0]), *found)

    def _put(self, seed: dict[str, Value], name: str, wanted: int) -> None:
        """The value of an ordered decision nearest below `wanted`."""
        if name in self.names:
            values = [v for v in self.names[name].domain if isinstance(v, int)]
            seed[name] = max((v for v in values if v <= wanted), default=values[0])

    def _put_rows(self, seed: dict[str, Value], stage: str, wanted: int) -> None:
        """So many rows, one where no axis gives any."""
        row = self.names.get(f"row.{stage}")
        self._put(seed, f"rows.{stage}", wanted if row is not None and row.initial else 1)

    def _tile(self, rows: int, vectors: int, tiles: int) -> dict[str, Value]:
        seed: dict[str, Value] = {}
        for shape in self.decisions.shapes:
            if not shape.product:
                continue
            stage, count = shape.stage.name, len(shape.stage.accumulators)
            unit = shape.instructions[-1].kind == "tile"
            r = (1 if count > 1 else tiles) if unit else max(1, rows // count)
            wide = self.decisions.vector.registers > 16
            along = self.names[f"row.{stage}"].initial if f"row.{stage}" in self.names else ""
            there = self.decisions.extents.get(str(along), r)
            self._put_rows(seed, stage, min(r, there))
            across = -(
                -self.decisions.extents.get(shape.lanes[0], 1) // self.decisions.vector.lanes
            )
            several = 2 if unit or not wide else vectors
            self._put(seed, f"vectors.{stage}", min(several, across))
        return seed

    def _rows(self, rows: int, vectors: int) -> dict[str, Value]:
        seed: dict[str, Value] = {}
        for shape in self.decisions.shapes:
            self._put_rows(seed, shape.stage.name, rows)
            self._put(seed, f"vectors.{shape.stage.name}", vectors)
        return seed

    def _apart(self, tile: dict[str, Value]) -> tuple[dict[str, Value], ...]:
        """For few points: parts of what is reduced, one for each thread, as it lies and packed."""
        threads = self.decisions.hardware.threads
        points = math.prod(self.decisions.extents[axis] for axis in self.decisions.shared)
        if "split" not in self.names or points >= _MANY * threads:
            return ()
        first = {"split": self.names["split"].domain[1]}
        return tuple({**tile, **plan, **first} for plan in (self._in_place(), self._blocked()))

    def _blocked(self) -> dict[str, Value]:
        return {}

    def _prepacked(self) -> dict[str, Value]:
        """Lane operands packed once for everything, row operands in place, reductions whole."""
        seed: dict[str, Value] = {}
        for axis in self.decisions.blocked:
            extent = self.decisions.extents[axis]
            lane = any(axis == shape.lanes[0] for shape in self.decisions.shapes)
            whole = lane or self.decisions.only_reduced(axis)
            self._put(seed, f"tile.{axis}.1", extent if whole else self._rows_in_cache())
            self._put(seed, f"tile.{axis}.0", 24 if lane else extent if whole else 8)
        for shape in self.decisions.shapes:
            if not shape.product:
                continue
            stage = shape.stage.name
            seed["stream"] = True
            for operand in shape.operands:
                if f"pack.{stage}.{operand.name}" in self.names:
                    packed = shape.lanes[0] in operand.axes
                    in_place = "no" if shape.instructions[-1].name == "fma" else "1"
                    seed[f"pack.{stage}.{operand.name}"] = "2" if packed else in_place
            self._put(seed, f"prefetch.{stage}", 16)
        lanes = [shape.lanes[0] for shape in self.decisions.shapes if shape.product]
        inner = sorted(self.decisions.blocked, key=lambda axis: axis not in lanes)
        if "order.0" in self.names and lanes:  # a panel stays while the rows go by
            seed["order.0"] = " ".join(inner)
        return seed

    def _both_packed(self) -> tuple[dict[str, Value], ...]:
        """As prepacked, with twice the rows, packed as well: in place they lie on many pages."""
        seed = self._prepacked()
        rows = [name for name, value in seed.items() if name.startswith("pack.") and value == "no"]
        for axis in self.decisions.blocked:
            lane = any(axis == shape.lanes[0] for shape in self.decisions.shapes)
            if not (lane or self.decisions.only_reduced(axis)):
                self._put(seed, f"tile.{axis}.1", min(256, 2 * self._rows_in_cache()))
        for shape in self.decisions.shapes:
            self._put(seed, f"unroll.{shape.stage.name}", 4)
        return (seed | dict.fromkeys(rows, "1"),) if rows else ()

    def _panelled(self) -> tuple[dict[str, Value], ...]:
        """For long reductions: blocks of them outermost, all lanes packed, few rows at a time."""
        axes = self.decisions.blocked
        products = [shape for shape in self.decisions.shapes if shape.product]
        reduced = [a for a in axes if self.decisions.only_reduced(a)]
        lanes = [a for a in axes if any(a == s.lanes[0] for s in products) and a not in reduced]
        rows = [a for a in axes if a not in reduced and a not in lanes]
        if not (products and reduced and lanes and rows):
            return ()
        seed: dict[str, Value] = {"stream": True}
        for axis in axes:
            extent = self.decisions.extents[axis]
            sizes = (2048, 1024) if axis in reduced else (extent, 24) if axis in lanes else (64, 8)
            for level, size in zip((1, 0), sizes, strict=True):
                self._put(seed, f"tile.{axis}.{level}", min(size, extent))
        for shape in products:
            self._put(seed, f"prefetch.{shape.stage.name}", 16)
            for operand in shape.operands:
                if f"pack.{shape.stage.name}.{operand.name}" in self.names:
                    seed[f"pack.{shape.stage.name}.{operand.name}"] = "1"
        outer = " ".join([*self.decisions.outer, *reduced, *lanes, *rows])
        seed |= {"order.1": outer, "order.0": " ".join([*lanes, *reduced, *rows])}
        return (seed,)

    def _rows_in_cache(self) -> int:
        """Rows, 128 at most, that with all their reduced elements fill half of the L2 cache."""
        extents = self.decisions.extents
        length = max(
            (math.prod(extents[a] for a in s.stage.reduce) for s in self.decisions.shapes),
            default=1,
        )
        return min(128, max(8, self.decisions.hardware["l2_bytes"] // 2 // (4 * length)))

    def _in_place(self) -> dict[str, Value]:
        """Nothing packed: wide rows of the lane operand stream through, touched ahead."""
        seed: dict[str, Value] = {}
        for axis in self.decisions.blocked:
            extent = self.decisions.extents[axis]
            reduced = self.decisions.only_reduced(axis)
            self._put(seed, f"tile.{axis}.1", extent if reduced else extent // 2)
            self._put(seed, f"tile.{axis}.0", 128 if reduced else 1024)
        for shape in self.decisions.shapes:
            stage = shape.stage.name
            if shape.instructions[-1].name == "fma":
                for operand in shape.operands:
                    if f"pack.{stage}.{operand.name}" in self.names:
                        seed[f"pack.{stage}.{operand.name}"] = "no"
            self._put(seed, f"prefetch.{stage}", 8)
        return seed

    def _walked(self) -> tuple[dict[str, Value], ...]:
        """For few rows: the lane operand is read once, in its own order, some rows of it at a time.

        A stretch of a row is a page or two, and the rows of a block are as many pages as a core can
        follow; what is added up meanwhile stays in the cache.
        """
        axes = self.decisions.blocked
        products = [s for s in self.decisions.shapes if s.product]
        reduced = [a for a in axes if self.decisions.only_reduced(a)]
        lanes = [a for a in axes if any(a == s.lanes[0] for s in products) and a not in reduced]
        rows = [a for a in axes if a not in reduced and a not in lanes]
        if not (products and reduced and lanes):
            return ()
        half = self.decisions.hardware["l2_bytes"] // 2
        points = math.prod(self.decisions.extents[a] for a in rows)
        return tuple(
            self._walk(reduced, lanes, rows, walk)
            for walk in _WALKS
            if 4 * walk[1] * points <= half
        )

    def _walk(
        self, reduced: list[str], lanes: list[str], rows: list[str], walk: tuple[int, int, int]
    ) -> dict[str, Value]:
        extents, threads = self.decisions.extents, self.decisions.hardware.threads
        followed, stretch, ahead = walk
        seed: dict[str, Value] = {"stream": False}
        for axis in self.decisions.blocked:
            share = min(stretch, max(64, extents[axis] // threads))
            size = followed if axis in reduced else share if axis in lanes else 64
            for level in (0, 1):
                self._put(seed, f"tile.{axis}.{level}", min(size, extents[axis]))
        for shape in [s for s in self.decisions.shapes if s.product]:
            name = shape.stage.name
            self._put(seed, f"prefetch.{name}", ahead)
            self._put(seed, f"unroll.{name}", 4)
            for operand in shape.operands:
                if f"pack.{name}.{operand.name}" in self.names:
                    walked = shape.lanes[0] in operand.axes
                    seed[f"pack.{name}.{operand.name}"] = "no" if walked else "0"
        order = [*lanes, *reduced, *rows]
        outer = " ".join([*self.decisions.outer, *order])
        if "parallel" in self.names and lanes[0] in self.names["parallel"].domain:
            seed["parallel"] = lanes[0]
        return seed | {"order.1": outer, "order.0": " ".join(order)}

    def _striped(self) -> tuple[dict[str, Value], ...]:
        """For matrix tiles: each thread's rows against panels of lanes, reductions whole."""
        products = [s for s in self.decisions.shapes if s.product]
        tiled = [s for s in products if s.instructions[-1].kind == "tile"]
        if not tiled:
            return ()
        seed: dict[str, Value] = {"stream": True}
        for axis in self.decisions.blocked:
            extent = self.decisions.extents[axis]
            lane = any(axis == shape.lanes[0] for shape in tiled)
            whole = self.decisions.only_reduced(axis)
            share = -(-extent // self.decisions.hardware.threads)
            self._put(seed, f"tile.{axis}.1", extent if whole else 256 if lane else share)
            self._put(seed, f"tile.{axis}.0", 384 if whole else 32)
        for shape in products:
            for operand in shape.operands:
                name = f"pack.{shape.stage.name}.{operand.name}"
                if name in self.names:
                    seed[name] = "1" if shape.lanes[0] in operand.axes else "no"
        return (seed,)

    def _streaming(self) -> tuple[dict[str, Value], ...]:
        """For carried axes: blocks of them pass by some rows at a time, those masked out do not."""
        nodes = self.decisions.staged.program.nodes
        carried = {node.op.axis for node in nodes if isinstance(node.op, Carry)}
        if not carried & set(self.decisions.blocked):
            return ()
        found = []
        for rows, block in ((64, 256), (32, 512)):
            seed = self._whole(rows)
            for axis in carried & set(self.decisions.blocked):
                self._put(seed, f"tile.{axis}.1", block)
                self._put(seed, f"tile.{axis}.0", block)
            seed["stream"] = False
            found.append(seed)
        return tuple(found)

    def _whole(self, block: int) -> dict[str, Value]:
        """Shared axes in small blocks, all others whole; results bypass the cache."""
        seed: dict[str, Value] = {"stream": True}
        for axis in self.decisions.blocked:
            extent = self.decisions.extents[axis]
            size = block if axis in self.decisions.shared else extent
            for level in (0, 1):
                self._put(seed, f"tile.{axis}.{level}", size)
        return seed


def seeds(decisions: Decisions) -> tuple[dict[str, Value], ...]:
    """Starting schedules for the search."""
    return Seeds(decisions).all()
