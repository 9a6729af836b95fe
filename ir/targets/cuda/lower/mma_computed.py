"""Operands that are computed on the way: loaded, evaluated in registers, packed for ldmatrix.

What they are made of comes straight from memory, or, where copies can fetch it, from raw tiles
that wait in shared memory for as many blocks as there are stages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ir.layout.expressions import scaled, variable
from ir.targets.cuda.build.products import loads_of
from ir.targets.cuda.layouts.mma_operands import StageTile
from ir.targets.cuda.layouts.vectors import VECTOR_BYTES, neighbours
from ir.targets.cuda.plans.mma_fill import fill_frame
from ir.targets.cuda.plans.mma_plan import MmaPlan
from ir.targets.cuda.plans.sides import Side
from ir.targets.cuda.text import scalars
from ir.targets.cuda.text.evaluate import Evaluator
from ir.targets.cuda.text.registers import Fragment, Point, Team, spread, times
from ir.targets.cuda.text.writer import Writer


class FillEvaluator(Evaluator):
    """Forms an operand's points in the threads that write them.

    `raw` has the raw tiles by load, `slots` the addresses of those that are read now.
    """

    walked: tuple[str, ...] = ()
    raw: Mapping[int, StageTile] = {}
    slots: Mapping[int, str] = {}

    def ragged(self, axis: str) -> bool:
        """Blocks behind the last one may be asked for; they are loaded as zeros."""
        return axis == self.walked[0] or super().ragged(axis)

    def local(self, axis: str, point: Point) -> str:
        """Place of a point along the tile's axis, as text."""
        parts = [p for p in (self._thread_parts.get(axis), self.step(axis, point)) if p]
        return " + ".join(parts) or "0"

    def number(self, side: Side, point: Point) -> str:
        """A point's place along a side of the tile."""
        parts = []
        for axis, tile, inner in side.spans():
            place = self.local(axis, point) if tile > 1 else "0"
            if place != "0":
                parts.append(times(f"({place})", inner) if inner > 1 else f"({place})")
        return " + ".join(parts) or "0"

    def place(self, tile: StageTile, slot: str, point: Point) -> str:
        """Declare a point's place in a tile; returns its address."""
        places = []
        for side in (tile.outer, tile.inner):
            name = self.w.name("place")
            self.w.line(f"const u32 {name} = {self.number(side, point)};")
            places.append(variable(name, side.size))
        line, inner = places
        return f"{slot} + ({tile.byte(line, scaled(inner, tile.size))})"

    def _load(self, position: int) -> Fragment:
        """From the raw tile, where there is one."""
        if position not in self.raw:
            return super()._load(position)
        tile, node = self.raw[position], self.nodes[position]
        fragment = self.new(tile.stem, node.axes, node.dtype)
        slot = self.slots[position]
        width = self._together(tile, fragment)
        self.read_shared(fragment, node.dtype, width, lambda point: self.place(tile, slot, point))
        return fragment

    def _together(self, tile: StageTile, fragment: Fragment) -> int:
        """Neighbours in a line of the raw tile that one thread reads at once."""
        first = fragment.digits[0] if fragment.digits else None
        if first is None or first.stride != 1 or first.axis != tile.inner.tiled[-1]:
            return 1
        registers = tuple((d.size, d.stride) for d in self.frame.own((first.axis,)))
        threads = tuple((d.size, d.stride(first.axis)) for d in self.frame.threads)
        line = min(VECTOR_BYTES, tile.width)
        return min(first.size, neighbours(tile.dtype, registers, threads, line))


class Computed:
    """Values formed from loads in registers, packed, and stored for ldmatrix."""

    def __init__(
        self, plan: MmaPlan, tile: StageTile, w: Writer, origins: Mapping[str, str]
    ) -> None:
        self.plan, self.tile, self.w = plan, tile, w
        self.node = plan.program.nodes[tile.position]
        frame, self.run = fill_frame(plan, tile)
        active = f"(thread % {frame.team})" if frame.team < plan.threads else "thread"
        team = Team(active, frame.team, "tw_sync();", "tw_shared_base()")
        self.e = FillEvaluator(plan.program, w, frame, plan.tiles, team)
        self.e.walked = plan.roles.walked
        self.e.origins |= origins
        self.e.raw = {raw.position: raw for raw in plan.raw(tile)}
        self.leaves = loads_of(plan.program, tile.position)
        self.kept: dict[int, Fragment] = {}

    def declare(self, kept: Iterable[int]) -> None:
        """Declare what stays the same over the walk; load `kept`, which does too."""
        self.e.declare_threads()
        for leaf in kept:
            self.e.fragment(leaf)
        self.kept = dict(self.e.values)

    def start(self, walk: Mapping[str, str], slots: Mapping[int, str]) -> None:
        """Load what the block at the origins `walk` is made of; `slots` are its raw tiles'."""
        self.e.origins |= walk
        self.e.slots = slots
        self.e.values = dict(self.kept)
        for leaf in self.leaves:
            self.e.fragment(leaf)

    def finish(self, slot: str) -> None:
        """Evaluate the block that was started last and write it to `slot`."""
        e, tile, w = self.e, self.tile, self.w
        e.ready(tile.position, self.node.axes)
        axes = (axis for side in (tile.free, tile.depth) for axis in side.tiled)
        rest = [d for d in e.own(axes) if d not in self.run]
        points = 1
        for digit in self.run:
            points *= digit.size
        per = min(points, max(1, 16 // tile.size))
        active = e.frame.team < self.plan.threads
        with w.block(f"if (thread < {e.frame.team})" if active else ""), e.each(rest) as point:
            for start in range(0, points, per):
                places = [
                    Point({**point.digits, **spread(self.run, start + i)}) for i in range(per)
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
        to = self.e.place(tile, slot, point)
        size = len(values) * tile.size
        if size < 4:
            for i, value in enumerate(values):
                word, behind = scalars.to_storage(value, tile.dtype), f" + {i}" if i else ""
                w.line(f"tw_store_shared_{tile.size}({to}{behind}, {word});")
            return
        each = 4 // tile.size
        words = [
            scalars.pack_word(values[i : i + each], tile.dtype) for i in range(0, len(values), each)
        ]
        if size == 16:
            w.line(f"tw_store_shared_16({to}, tw_vec16{{{{{', '.join(words)}}}}});")
        else:
            w.line(f"tw_store_shared_{size}({to}, {', '.join(words)});")
