"""Copies operands into packed buffers (panels, interleaved, zero-padded) and pads tensors."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ir.ops.load import Load
from ir.targets.cpu.access import Access, Position
from ir.targets.cpu.evaluate import Evaluator, scalar_of
from ir.targets.cpu.instructions import MOVED
from ir.targets.cpu.micro import StageEmitter, strip_loop, strips
from ir.targets.cpu.nest import Index, Type, Value
from ir.targets.cpu.pads import Pad
from ir.targets.cpu.plan import Buffer, Pack, main_reduction, round_up

if TYPE_CHECKING:
    from ir.targets.cpu.lower import Lowering, Region


class _Packer(StageEmitter):
    """Evaluates an operand along its packed lane axis and stores it to the packed buffer."""

    def __init__(self, lowering: Lowering, pack: Pack, shared: bool) -> None:
        super().__init__(lowering, pack.stage)
        self.pack = pack
        self.shared = shared and lowering.plan.threads > 1
        axes = self.nodes[pack.node].axes
        self.main = main_reduction(lowering.plan.staged, pack.stage)
        self.vector_axis = self.binding.lane if self.binding.lane in axes else self.main
        self.by_lane = self.binding.lane in axes
        self.depth = self.binding.dot.depth if self.by_lane else 1
        self.evaluator = Evaluator(
            self.b,
            lowering.program,
            self,
            lane=self.vector_axis,
            row="",
            lanes=self.lanes,
            fma=self.binding.vector.fma,
            scales=self.binding.vector.scales,
        )
        self.target = lowering.buffer_access(pack.buffer)
        self.scalar = _stored(self.target.scalar)

    def _packed(self, node: int) -> bool:
        """What other operands are packed of may not be there yet: all is read where it lies."""
        return False

    def is_leaf(self, node: int) -> bool:
        return not self._own_pack(node) and super().is_leaf(node)

    def _own_pack(self, node: int) -> bool:
        """The packed node itself is computed here unless it is memory of its own."""
        here = node == self.pack.node
        stored = isinstance(self.nodes[node].op, Load) or node in self.plan.buffers
        return here and not stored

    def access(self, node: int) -> Access:
        if node not in self._accesses:
            stored = self.plan.buffers.get(node)
            known = self.low.buffer_access(stored) if stored else self.low.tensor_access(node)
            self._accesses[node] = known
        return self._accesses[node]

    def run(self) -> None:
        axes = [a for a in self.nodes[self.pack.node].axes if a != self.vector_axis]
        if self.by_lane and self.main in axes:
            axes.remove(self.main)
            axes.append(self.main)
        with ExitStack() as stack:
            self._loops(stack, axes, {}, self.shared)

    def _size(self, axis: str) -> int:
        """Padded size of the packed region on `axis`, in elements."""
        size = 1
        for name, count, unit in self.pack.buffer.digits:
            if name == axis:
                size = max(size, count * unit)
        return size

    def _loops(
        self, stack: ExitStack, axes: list[str], site: dict[str, Position], share: bool
    ) -> None:
        if not axes:
            self._line(site, share)
            return
        axis = axes[0]
        region = self.low.regions[axis]
        step = self.depth if axis == self.main else 1
        low, high = region.low, region.high
        if axis == self.main and self.by_lane:
            high = self.b.add(low, self._padded(axis, step))
        if share and region.size > 1:
            with self.low.frame.dealt(axis, low, high, step) as here:
                self._loops(stack, axes[1:], {**site, axis: Position(here)}, False)
            return
        with self.b.loop(axis, low, high, step) as loop:
            self._loops(stack, axes[1:], {**site, axis: Position(loop.variable)}, share)

    def _padded(self, axis: str, step: int) -> Index:
        """Length of the region, rounded up to what the instruction consumes."""
        region = self.low.regions[axis]
        unit = self.binding.depth
        if region.exact:
            return round_up(region.size, unit)
        span = self.b.sub(region.high, region.low)
        blocks = self.b.index("idiv", self.b.add(span, unit - 1), unit)
        return self.b.mul(blocks, unit)

    def _line(self, site: dict[str, Position], share: bool) -> None:
        """All vectors along the vector axis; the tail is filled up with zeros."""
        axis = self.vector_axis
        region, extent = self.low.regions[axis], self.low.program.axes[axis]
        step = self.lanes
        for strip in strips(self.b, region, extent, step):
            if share and strip.guard is None and strip.count == step:
                with self.low.frame.dealt(axis, strip.low, strip.high, step) as here:
                    self._vector(site, here, step)
                continue
            with strip_loop(self.b, axis, strip) as origin:
                self._vector(site, origin, strip.count)
                if strip.count < step:
                    self._zeros(site, origin)
        if not self.by_lane and extent % step == 0 and extent % self.binding.depth:
            self._zeros_behind(site, region, extent)

    def _zeros_behind(self, site: dict[str, Position], region: Region, extent: int) -> None:
        """Zeros beyond an extent of whole vectors, if this is the region that ends there."""
        ends = region.size == extent if region.exact else self.b.compare("eq", region.high, extent)
        if isinstance(ends, Value):
            with self.b.branch(ends):
                self._zeros(site, extent)
        elif ends:
            self._zeros(site, extent)

    def _zeros(self, site: dict[str, Position], origin: Index) -> None:
        """Zero what the instruction reads beyond the vector at `origin`, which holds the tail, or
        from `origin` on where the extent has no such tail."""
        unit = self.binding.lane_step if self.by_lane else self.binding.depth
        if self.by_lane and self.binding.tiled:
            unit = self.lanes
        size, axis = self._size(self.vector_axis), self.vector_axis
        extent = self.low.program.axes[axis]
        beyond = round_up(extent % unit, self.lanes)
        while beyond < unit and extent % unit and beyond < size:
            place = self.b.add(origin, beyond - extent % unit // self.lanes * self.lanes)
            zero = self.b.constant(0, Type(self.scalar, self.lanes * self.depth))
            pointer, at = self.target.pointer(
                self.b, {**site, axis: Position(place)}, anywhere=axis
            )
            self.b.store(zero, pointer, at)
            beyond += self.lanes

    def _vector(self, site: dict[str, Position], origin: Index, count: int) -> None:
        """One vector of `depth` consecutive reduction elements, interleaved."""
        axis = self.vector_axis
        here = {**site, axis: Position(origin)}
        masks = {0: count % self.lanes}
        value = self._pairs(here, masks)
        if value is None:
            parts = [self._part(here, masks, d) for d in range(self.depth)]
            value = self._interleaved(parts)
        if self.binding.dot.moved and not self.by_lane:
            value = self.b.op("xor", value, self.b.constant(-MOVED, value.type))
        pointer, at = self.target.pointer(self.b, here, anywhere=self.vector_axis)
        self.b.store(value, pointer, at)

    def _pairs(self, site: dict[str, Position], masks: dict[int, int]) -> Value | None:
        """Gather whole groups of `depth` elements where they lie together in memory."""
        node = self.pack.node
        scalar = Type(self.scalar)
        group = scalar.bytes * self.depth
        extent = self.low.program.axes.get(self.main, 1)
        if self.depth == 1 or group != 4 or extent % self.depth:
            return None
        if not self.is_leaf(node) or self.looks_up(node):
            return None
        source = self.access(node)
        if source.scalar != self.scalar or source.stride(self.main) != scalar.bytes:
            return None
        return self._where_inside(site, 0, lambda: self._groups(source, site, masks))

    def _groups(self, source: Access, site: dict[str, Position], masks: dict[int, int]) -> Value:
        self.evaluator.at(site, masks)
        pointer, at = source.pointer(self.b, self.evaluator.place(0, 0))
        stride = source.stride(self.vector_axis)
        words = self.b.gather(Type("i32", self.lanes), pointer, stride, at, masks[0])
        return self.b.bitcast(words, Type(self.scalar, self.lanes * self.depth))

    def _part(self, site: dict[str, Position], masks: dict[int, int], d: int) -> Value:
        """Element d of each group, zero outside the extents."""
        main, scalar = self.main, self.scalar
        shifted = dict(site)
        if self.by_lane and main in site:
            shifted[main] = Position(site[main].origin, d)
            return self._where_inside(shifted, d, lambda: self._plain(shifted, masks, scalar))
        return self._plain(shifted, masks, scalar)

    def _plain(self, site: dict[str, Position], masks: dict[int, int], scalar: str) -> Value:
        self.evaluator.at(site, masks)
        value = self.evaluator.vector(self.pack.node, 0, 0, scalar)
        if masks[0]:
            zero = self.b.constant(0, value.type)
            lanes = self.b.lanes(Type("i32", self.lanes))
            inside = self.b.test("lt", lanes, self.b.constant(masks[0], lanes.type))
            value = self.b.select(inside, value, zero)
        return value

    def _where_inside(self, site: dict[str, Position], d: int, value: Callable[[], Value]) -> Value:
        """`value()`, or zeros beyond the extent of the reduction axis (which is padded)."""
        if self.low.program.axes.get(self.main, 1) % self.binding.depth == 0:
            return value()
        inside = self.b.compare(
            "lt", self.b.add(site[self.main].origin, d), self.low.regions[self.main].high
        )
        if isinstance(inside, bool):
            count = self.lanes * (self.depth if self.depth > 1 else 1)
            return value() if inside else self.b.constant(0, Type(self.scalar, count))
        with self.b.branch(inside) as branch:
            found = value()
            branch.then.yields = (found,)
            self.b.otherwise(branch)
            branch.other.yields = (self.b.constant(0, found.type),)
        return branch.results[0]

    def _interleaved(self, parts: list[Value]) -> Value:
        if len(parts) == 1:
            return parts[0]
        if len(parts) == 2:
            return self.b.interleave(parts)
        even, odd = self._interleaved(parts[0::2]), self._interleaved(parts[1::2])
        return self.b.interleave((even, odd))


def _stored(scalar: str) -> str:
    """The scalar as it lies in memory: a truth value takes a byte."""
    return "i8" if scalar == "i1" else scalar


def emit_pack(lowering: Lowering, pack: Pack, shared: bool) -> None:
    """Pack an operand for the current regions; threads share the work if `shared`."""
    lowering.b.comment(f"pack {pack.buffer.name}")
    _Packer(lowering, pack, shared).run()


def emit_pad(lowering: Lowering, pad: Pad, base: Value) -> None:
    """Copy a tensor into its padded buffer; rows are dealt out to the threads."""
    scalar = Type(_stored(scalar_of(pad.dtype)))
    lanes = 16
    rows = pad.elements // pad.shape[-1]
    with lowering.frame.dealt("row", 0, rows, 1) as row:
        _pad_row(lowering, pad, base, row, scalar, lanes)


def _pad_row(
    lowering: Lowering, pad: Pad, base: Value, row: Index, scalar: Type, lanes: int
) -> None:
    b = lowering.b
    width = pad.shape[-1]
    target = b.offset(base, b.mul(row, width * scalar.bytes))
    _fill(lowering, target, width, pad.fill, scalar, lanes)
    source: Index = 0
    rest: Index = row
    inside: Value | None = None
    scale = pad.inner[-1] * scalar.bytes
    for dim in reversed(range(len(pad.shape) - 1)):
        digit = b.sub(b.index("irem", rest, pad.shape[dim]), pad.before[dim])
        rest = b.index("idiv", rest, pad.shape[dim])
        for predicate, bound in (("ge", 0), ("lt", pad.inner[dim])):
            test = b.compare(predicate, digit, bound)
            assert isinstance(test, Value)
            inside = test if inside is None else b.op("and", inside, test)
        source = b.add(source, b.mul(digit, scale))
        scale *= pad.inner[dim]
    pointer = lowering.pointers[pad.tensor]
    at = pad.before[-1] * scalar.bytes
    if inside is None:
        _copy(lowering, b.offset(pointer, source), target, at, pad.inner[-1], scalar, lanes)
        return
    with b.branch(inside):
        _copy(lowering, b.offset(pointer, source), target, at, pad.inner[-1], scalar, lanes)


def _fill(
    lowering: Lowering, target: Value, count: int, fill: float, scalar: Type, lanes: int
) -> None:
    b = lowering.b
    value = b.constant(fill, Type(scalar.scalar, lanes))
    whole = count // lanes * lanes
    if whole:
        with b.loop("i", 0, whole, lanes) as loop:
            b.store(value, b.offset(target, b.mul(loop.variable, scalar.bytes)))
    if count % lanes:
        b.store(value, target, whole * scalar.bytes, count % lanes)


def _copy(
    lowering: Lowering, source: Value, target: Value, at: int, count: int, scalar: Type, lanes: int
) -> None:
    b = lowering.b
    type = Type(scalar.scalar, lanes)
    whole = count // lanes * lanes
    if whole:
        with b.loop("i", 0, whole, lanes) as loop:
            offset = b.mul(loop.variable, scalar.bytes)
            b.store(b.load(type, b.offset(source, offset)), b.offset(target, offset), at)
    if count % lanes:
        tail = whole * scalar.bytes
        b.store(b.load(type, source, tail, count % lanes), target, at + tail, count % lanes)


__all__ = ["Buffer", "emit_pack", "emit_pad"]
