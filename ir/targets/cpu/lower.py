"""Turns a plan into part of a nest function: loops, regions, barriers, workspace.

Stage bodies are `micro.py`'s and `tile_unit.py`'s; packing is `packing.py`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce

from ir.dtypes import dtype_of
from ir.ops.load import Load
from ir.program import Program
from ir.rewrite.domain import Condition, live_gap, live_range
from ir.stages import Stage
from ir.targets.cpu import packing
from ir.targets.cpu.access import Access, Digit
from ir.targets.cpu.emit import emit_stage
from ir.targets.cpu.evaluate import scalar_of
from ir.targets.cpu.frame import PAGE, Frame, Room
from ir.targets.cpu.nest import Index, Type, Value
from ir.targets.cpu.pads import pads_of, reads_padded
from ir.targets.cpu.plan import (
    Buffer,
    Item,
    Leaf,
    Loop,
    Pack,
    Plan,
    all_buffers,
    round_up,
    workspace_bytes,
)
from ir.targets.cpu.told import most_read

Flag = bool | Value
TILE_SCRATCH = 16384  # bytes per thread for the accumulators of a tile unit


@dataclass(frozen=True, slots=True)
class Region:
    """Part of an axis: [low, high); at most `size` long, exactly so if `exact`."""

    low: Index
    high: Index
    size: int
    exact: bool


@dataclass(frozen=True, slots=True)
class Blocks:
    """Whether the current block of a reduced axis is the first, and the last."""

    first: Flag
    last: Flag


class Lowering:
    """State of one lowering. Public attributes are read by the stage emitters."""

    def __init__(self, plan: Plan, frame: Frame) -> None:
        self.plan, self.frame = plan, frame
        self.program: Program = plan.staged.program
        self.b, self.thread, self.pointers = frame.b, frame.thread, frame.pointers
        self.regions: dict[str, Region] = {}
        self.blocks: dict[str, Blocks] = {}
        self.open: dict[Loop, Index] = {}
        self.pads = pads_of(self.program)
        self.conditions: Mapping[str, tuple[Condition, ...]] = {
            axis: live_range(self.program, axis) for axis in self._reduced()
        }
        gaps = {axis: live_gap(self.program, axis) for axis in self._reduced()}
        self.gaps = {axis: gap for axis, gap in gaps.items() if gap is not None}
        self.bases = {id(b): self._base(b) for b in all_buffers(plan)}
        self.pad_bases = self._place_pads()
        self.tile_scratch = self.b.offset(frame.private, room_of(plan).private - TILE_SCRATCH)

    def _reduced(self) -> tuple[str, ...]:
        return tuple({axis for stage in self.plan.staged.stages for axis in stage.reduce})

    # -- workspace

    def _base(self, buffer: Buffer) -> Value:
        """Pointer to a buffer: this thread's own copy if it is private."""
        own = self.frame.private if buffer.private else self.frame.shared
        return self.b.offset(own, buffer.offset)

    def _place_pads(self) -> dict[tuple[str, float | None], Value]:
        found, offset = {}, workspace_bytes(self.plan, False)
        for key, pad in self.pads.items():
            found[key] = self.b.offset(self.frame.shared, offset)
            offset += round_up(pad.bytes, PAGE)
        return found

    # -- accesses

    def tensor_access(self, node: int) -> Access:
        """Access of a load node in its tensor (or in the padded copy where it reads outside)."""
        op = self.program.nodes[node].op
        assert isinstance(op, Load)
        spec = self.program.scope.tensors[op.tensor]
        base, shape, shift = self.pointers[op.tensor], spec.shape, (0,) * len(spec.shape)
        pad = self.pads.get((op.tensor, op.fill))
        if pad is not None and reads_padded(op):
            base = self.pad_bases[(op.tensor, op.fill)]
            shape, shift = pad.shape, pad.before
        element = dtype_of(spec.dtype).bytes
        strides: dict[str, int] = {}
        constant, step, steps = 0, element, [0] * len(shape)
        for dim in reversed(range(len(shape))):
            index, steps[dim] = op.index[dim], step
            for axis, coefficient in index.terms:
                strides[axis] = strides.get(axis, 0) + coefficient * step
            constant += (index.constant + shift[dim]) * step
            step *= shape[dim]
        digits = {axis: (Digit(1, stride),) for axis, stride in strides.items()}
        scalar = scalar_of(spec.dtype)
        return Access(base, scalar, digits, {}, constant, steps=tuple(steps))

    def output_access(self, tensor: str, axes: tuple[str, ...]) -> Access:
        """Access of an output tensor stored over `axes`."""
        spec = self.program.scope.tensors[tensor]
        digits, step = {}, dtype_of(spec.dtype).bytes
        for dim in reversed(range(len(axes))):
            digits[axes[dim]] = (Digit(1, step),)
            step *= spec.shape[dim]
        return Access(self.pointers[tensor], scalar_of(spec.dtype), digits, {})

    def buffer_access(self, buffer: Buffer) -> Access:
        """Access of a buffer at the loops that are open now."""
        scalar = scalar_of(buffer.dtype)
        element = Type(scalar).bytes
        digits: dict[str, tuple[Digit, ...]] = {}
        step = element
        for axis, size, unit in reversed(buffer.digits):
            digits[axis] = (Digit(unit, step), *digits.get(axis, ()))
            step *= size
        base = self.bases[id(buffer)]
        lows = {axis: self.low_at(axis, buffer.path) for axis in digits}
        return Access(base, scalar, digits, lows, padded=True)

    def low_at(self, axis: str, path: tuple[Loop, ...]) -> Index:
        """Where the region of `axis` starts inside the loops `path`."""
        low: Index = 0
        for loop in path:
            if loop.axis == axis:
                low = self.open[loop]
        return low

    # -- the tree

    def run(self) -> None:
        """Emit everything."""
        for axis, extent in self.program.axes.items():
            self.regions[axis] = Region(0, extent, extent, True)
            self.blocks[axis] = Blocks(True, True)
        with self._tile_unit():
            for key, pad in self.pads.items():
                packing.emit_pad(self, pad, self.pad_bases[key])
            if self.pads:
                self.barrier()
            self._items(self.plan.items, None)

    @contextmanager
    def _tile_unit(self) -> Iterator[None]:
        from ir.targets.cpu import tile_unit

        used = any(binding.tiled for binding in self.plan.bindings.values())
        if used:
            tile_unit.configure(self)
        yield
        if used:
            tile_unit.release(self)

    def barrier(self) -> None:
        self.frame.barrier()

    def _items(self, items: list[Item], parent: Loop | None) -> None:
        serial = parent is None or not parent.in_parallel
        for number, item in enumerate(items):
            if isinstance(item, Pack):
                packing.emit_pack(self, item, shared=serial)
            elif isinstance(item, Leaf):
                self._leaf(item, serial)
            else:
                self._loop(item)
            last = number + 1 == len(items)
            if serial and (not last or (parent is not None and self._needs_barrier(items))):
                self.barrier()

    def _needs_barrier(self, items: list[Item]) -> bool:
        """At the end of a serial loop's body: shared buffers are written again next time."""
        return len(items) > 1 or not isinstance(items[0], Loop)

    def _leaf(self, leaf: Leaf, serial: bool) -> None:
        if serial and self.plan.threads > 1:
            only = self.b.compare("eq", self.thread, 0)
            assert isinstance(only, Value)
            with self.b.branch(only):
                emit_stage(self, leaf.stage)
        else:
            emit_stage(self, leaf.stage)

    def _loop(self, loop: Loop) -> None:
        if loop.parallel and not (loop.parent and loop.parent.parallel):
            self._parallel(loop)
            return
        low, high = self._bounds(loop)
        region = self.regions[loop.axis]
        runs = region.exact or loop.block >= 1
        gap = self._gap(loop, low, high)
        end = high if gap is None else self.b.sub(high, gap[1])
        with self.b.loop(loop.axis, low, end, loop.block, runs=runs) as inner:
            origin: Index = inner.variable
            if gap is not None:
                past = self.b.add(self.b.sub(origin, gap[0]), 1)
                beyond = self.b.minimum(self.b.maximum(past, 0), 1)
                origin = self.b.add(origin, self.b.mul(gap[1], beyond))
            self._enter(loop, origin, low, high)

    def _gap(self, loop: Loop, low: Index, high: Index) -> tuple[Index, Index] | None:
        """Where a loop leaves out blocks that matter to nothing (masks), and so many points; its
        first block and its last one are there."""
        gap = self.gaps.get(loop.axis)
        if gap is None or not self._matters(loop):
            return None
        b, block = self.b, loop.block
        ends = [b.add(self._largest(one, loop.axis), 1) for one in gap.near]
        begins = [b.sub(0, self._largest(one, loop.axis)) for one in gap.far]
        end, begin = reduce(b.maximum, ends), reduce(b.minimum, begins)
        near = b.index("idiv", b.add(b.maximum(b.sub(end, low), 1), block - 1), block)
        last = b.index("idiv", b.sub(b.sub(high, 1), low), block)
        far = b.minimum(b.index("idiv", b.maximum(b.sub(begin, low), 0), block), last)
        gone = b.mul(b.maximum(b.sub(far, near), 0), block)
        return b.add(low, b.mul(near, block)), gone

    def _enter(
        self,
        loop: Loop,
        origin: Index,
        low: Index,
        high: Index,
        body: Callable[[], None] | None = None,
    ) -> None:
        """Emit a loop's items (or `body`) at `origin`; [low, high) are the loop's bounds."""
        saved = self.regions[loop.axis], self.blocks[loop.axis]
        region, blocks = saved
        exact = region.exact and region.size % loop.block == 0
        end = self.b.add(origin, loop.block)
        if not exact:
            end = self.b.minimum(end, region.high)
        self.regions[loop.axis] = Region(origin, end, min(loop.block, region.size), exact)
        if any(loop.axis in stage.reduce for stage in self.plan.staged.stages):
            first = self.b.compare("eq", origin, low)
            last = self.b.compare("ge", self.b.add(origin, loop.block), high)
            self.blocks[loop.axis] = Blocks(
                self.both(blocks.first, first), self.both(blocks.last, last)
            )
        self.open[loop] = origin
        if body is None:
            self._items(loop.items, loop)
        else:
            body()
        del self.open[loop]
        self.regions[loop.axis], self.blocks[loop.axis] = saved

    def both(self, left: Flag, right: Flag) -> Flag:
        """Logical and, folded."""
        if left is True or right is False:
            return right
        if right is True or left is False:
            return left
        assert isinstance(left, Value)
        assert isinstance(right, Value)
        return self.b.op("and", left, right)

    # -- bounds

    def _bounds(self, loop: Loop) -> tuple[Index, Index]:
        """The loop's range, narrowed to where its points matter (masks), by whole blocks."""
        region = self.regions[loop.axis]
        low, high = region.low, region.high
        for condition in self._usable(loop):
            coefficient = dict(condition.terms).get(loop.axis, 0)
            if abs(coefficient) != 1:
                continue
            told = most_read(self, condition)
            if told is None:
                continue
            rest = self.b.add(self._largest(condition, loop.axis), told)
            if coefficient < 0:
                high = self.b.minimum(high, self.b.add(rest, 1))
            else:
                start = self.b.maximum(self.b.sub(self.b.sub(0, rest), region.low), 0)
                blocks = self.b.index("idiv", start, loop.block)
                low = self.b.maximum(low, self.b.add(region.low, self.b.mul(blocks, loop.block)))
        gap = self.gaps.get(loop.axis)
        if gap is not None and gap.last and self._matters(loop):
            ends = [self._largest(one, loop.axis) for one in (*gap.near, *gap.last)]
            high = self.b.minimum(high, self.b.add(reduce(self.b.maximum, ends), 1))
        if high is not region.high or low is not region.low:
            limit = self.b.index(
                "idiv", self.b.sub(self.b.sub(region.high, 1), region.low), loop.block
            )
            low = self.b.minimum(low, self.b.add(region.low, self.b.mul(limit, loop.block)))
            high = self.b.maximum(high, self.b.add(low, 1))
        return low, high

    def _usable(self, loop: Loop) -> tuple[Condition, ...]:
        """Conditions that hold for everything inside a loop: not where its points are stored."""
        conditions = self.conditions.get(loop.axis, ())
        return conditions if self._matters(loop) else ()

    def _matters(self, loop: Loop) -> bool:
        """Whether nothing is stored over a loop, so that points of it may be left out."""
        for leaf in self.plan.leaves.values():
            stage = leaf.stage
            stored = any(r.tensor for r in stage.written)
            kept = loop.axis in stage.parallel
            if loop in leaf.path() and kept and stored:
                return False
        return True

    def _largest(self, condition: Condition, axis: str) -> Index:
        """Largest value over the current regions of the condition without `axis`."""
        total: Index = condition.constant
        for other, coefficient in condition.terms:
            if other == axis:
                continue
            region = self.regions[other]
            end = self.b.sub(region.high, 1) if coefficient > 0 else region.low
            total = self.b.add(total, self.b.mul(end, coefficient))
        return total

    # -- threads

    def _parallel(self, loop: Loop) -> None:
        loops = [loop]
        while (
            len(loops[-1].items) == 1
            and isinstance(loops[-1].items[0], Loop)
            and (loops[-1].items[0].parallel)
        ):
            loops.append(loops[-1].items[0])
        trips = [self._trips(each) for each in loops]
        total: Index = 1
        for trip in trips:
            total = self.b.mul(total, trip)
        with self.frame.iterations(total, self.plan.chunk, loop.parent is None) as ticket:
            self._unflatten(loops, trips, ticket)

    def _trips(self, loop: Loop) -> Index:
        region = self.regions[loop.axis]
        span = self.b.sub(region.high, region.low)
        return self.b.index("idiv", self.b.add(span, loop.block - 1), loop.block)

    def _unflatten(self, loops: list[Loop], trips: list[Index], ticket: Index) -> None:
        loop, rest = loops[0], loops[1:]
        inner: Index = 1
        for trip in trips[1:]:
            inner = self.b.mul(inner, trip)
        here = self.b.index("idiv", ticket, inner)
        region = self.regions[loop.axis]
        origin = self.b.add(region.low, self.b.mul(here, loop.block))
        if not rest:
            self._enter(loop, origin, region.low, region.high)
            return
        remainder = self.b.index("irem", ticket, inner)
        self._enter(
            loop,
            origin,
            region.low,
            region.high,
            lambda: self._unflatten(rest, trips[1:], remainder),
        )

    # -- what stage emitters ask

    def state_flags(self, stage: Stage) -> Blocks:
        """Whether this block is the first, and the last, of the stage's whole reduction."""
        first: Flag = True
        last: Flag = True
        for axis in stage.reduce:
            first = self.both(first, self.blocks[axis].first)
            last = self.both(last, self.blocks[axis].last)
        return Blocks(first, last)

    @property
    def work_buffers(self) -> list[Buffer]:
        return all_buffers(self.plan)


def room_of(plan: Plan) -> Room:
    """The workspace of a plan."""
    pads = sum(round_up(pad.bytes, PAGE) for pad in pads_of(plan.staged.program).values())
    shared, private = (workspace_bytes(plan, private) for private in (False, True))
    return Room(shared + pads, private + TILE_SCRATCH)
