"""A box of a tensor map copied by threads: what TMA does, by cp.async in chunks of 16 bytes.

The same lines in the same places, and zeros for what lies outside the tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import prod

from ir.errors import Refusal
from ir.layout.expressions import (
    ZERO,
    Expression,
    constant,
    quotient,
    remainder,
    scaled,
    total,
    variable,
)
from ir.layout.instructions.descriptor import CHUNK
from ir.layout.printing import summand, text
from ir.targets.cuda.layouts.copied import copied
from ir.targets.cuda.layouts.lanes import place
from ir.targets.cuda.layouts.operands import OperandTile
from ir.targets.cuda.plans.tensor_plan import GROUP, Plan
from ir.targets.cuda.text import scalars
from ir.targets.cuda.text.naming import text_name
from ir.targets.cuda.text.writer import Writer

PROMOTION = 256  # as a tensor map has to say: copies by threads leave it to the L2 cache


class BoxCopy:
    """The copies of one operand's tile, by the first group of a block."""

    def __init__(self, plan: Plan, operand: OperandTile, w: Writer) -> None:
        self.plan, self.operand, self.w = plan, operand, w
        parameter = operand.parameter(1, PROMOTION)
        self.dims, self.box = parameter.dims, parameter.box
        self.strides = (1, *(stride // operand.size for stride in parameter.strides))
        self.chunks = self.box[0] * operand.size // CHUNK
        if not self.chunks or GROUP % self.chunks:
            raise Refusal("copy", f"{operand.spec.name}: lines of {self.box[0]} points")
        self.step = GROUP // self.chunks  # lines that all threads copy at once
        lines = max(self.lines, self.step)
        held = copied(operand.spec.dtype, self.box[0], lines, GROUP, CHUNK)
        self.point, self.own_line = place(held, ZERO, variable("thread", GROUP))
        problem = self._unaligned()
        if problem:
            raise Refusal("copy", f"{operand.spec.name}: {problem}")

    def _unaligned(self) -> str:
        """Why chunks would not begin where 16 bytes do; empty if they do."""
        index, size = self.operand.dimensions[-1].index, self.operand.size
        moved = [(axis, c) for axis, c in index.terms if axis != self.operand.contiguous]
        steps = [index.constant, *(c * self.plan.tiles[axis] for axis, c in moved)]
        if index.gather is not None or any(step * size % CHUNK for step in steps):
            return "lines do not begin at whole chunks"
        return ""

    # -- where a thread's chunk is

    @cached_property
    def lines(self) -> int:
        """Lines of a box."""
        return prod(self.box[1:])

    def declare(self) -> None:
        """Declare this thread's part of every place, once for the kernel."""
        w, stem, tile = self.w, self.operand.spec.name, self.operand
        self.line, self.to, self.of = (
            w.name(f"{stem}_{part}") for part in ("line", "to", "of")
        )  # fmt: skip
        w.line(f"const i32 {self.line} = {text(self.own_line)};")
        line = variable(self.line, self.step)
        byte = scaled(self.point, tile.size)
        w.line(f"const u32 {self.to} = {text(tile.memory.offset(line, byte))};")
        of = text(self.point)
        if self._alone is not None:
            of = f"({of}) + (i64){self.line} * {self.strides[self._alone]}"
        w.line(f"const i64 {self.of} = {of};")

    @cached_property
    def _alone(self) -> int | None:
        """The one dimension along which lines lie, if there is one."""
        found = [n for n, points in enumerate(self.box) if n and points > 1]
        return found[0] if len(found) == 1 else None

    def _places(self, first: int) -> dict[int, Expression]:
        """How far the line of this thread is along each dimension, `first` lines on."""
        line = total(variable(self.line, self.step), constant(first))
        if self._alone is not None:
            return {self._alone: line}
        found, inner = dict[int, Expression](), 1
        for number, points in enumerate(self.box):
            if number and points > 1:
                found[number] = remainder(quotient(line, inner), points)
                inner *= points
        return found

    # -- copies

    def start(self, slot: str, at: int, where: Sequence[str], piece: int) -> None:
        """Start the copies of one box: `at` bytes behind the `slot`, from coordinates `where` on.
        `piece`: which of the boxes of a panel it is."""
        w, stem = self.w, self.operand.spec.name
        with w.block(""):
            base, source = w.name(f"{stem}_box"), w.name(f"{stem}_from")
            panel = at // self.operand.panel_bytes * self.operand.panel_bytes
            w.line(f"const u32 {base} = {slot}{f' + {panel}' if panel else ''};")
            parts = [
                f"(i64)({place}) * {stride}" if stride > 1 else f"({place})"
                for place, stride in zip(where, self.strides, strict=True)
                if place != "0"
            ]
            kind = scalars.STORAGE[self.operand.spec.dtype]
            start = " + ".join([w.pointer(text_name(self.operand.spec.name)), self.of, *parts])
            w.line(f"const {kind}* {source} = {start};")
            for first in range(0, self.lines, self.step):
                self._chunk(base, source, where, first, piece * self.lines)

    def _chunk(
        self, base: str, source: str, where: Sequence[str], first: int, before: int
    ) -> None:  # fmt: skip
        """This thread's chunk of the lines from `first` on, `before` of which a panel has more."""
        w, places = self.w, self._places(first)
        if self._alone is not None:
            further = str(first * self.strides[self._alone])
        else:
            steps = (f"(i64)({text(place)}) * {self.strides[n]}" for n, place in places.items())
            further = " + ".join(steps)
        to = f"{base} + {self._target(before + first)}"
        count = self._count(where, places)
        head = ""
        if first + self.step > self.lines:
            head = f"if ({self.line} < {self.lines - first})"
        with w.block(head):
            at = f"{source} + {further}" if further != "0" else source
            w.line(f"tw_copy_async_16({to}, {at}, {count});")

    def _target(self, first: int) -> str:
        """Where the chunk goes, behind the panel's first byte: that of the thread's own line moved
        by whole lines, which share no bit with it where they are as many as all threads copy."""
        if first % self.step == 0:
            exchanged, added = self.operand.memory.moved(constant(first), ZERO)
            own = f"({self.to} ^ {text(exchanged)})" if exchanged != ZERO else self.to
            return own + (f" + {summand(added)}" if added != ZERO else "")
        byte = scaled(self.point, self.operand.size)
        line = total(variable(self.line, self.step), constant(first))
        return f"({text(self.operand.memory.offset(line, byte))})"

    def _count(self, where: Sequence[str], places: Mapping[int, Expression]) -> str:
        """Bytes of a chunk that are read: the others become zeros."""
        conditions = [
            f"(u32)({where[number]} + {summand(places.get(number, ZERO))}) < {extent}"
            for number, extent in enumerate(self.dims)
            if number and not self._inside(number)
        ]
        count = str(CHUNK)
        if not self._inside(0):
            at = f"({where[0]} + {summand(self.point)})"
            count = f"min(max(({self.dims[0]} - {at}) * {self.operand.size}, 0), {CHUNK})"
            if self._before:  # whole chunks, as the tensor begins at one
                conditions.append(f"{at} >= 0")
        inside = " && ".join(conditions)
        return f"({inside} ? {count} : 0)" if inside else count

    @property
    def _before(self) -> bool:
        """Whether lines may begin before the tensor does."""
        index = self.operand.dimensions[-1].index
        return index.constant < 0 or any(c < 0 for _, c in index.terms)

    def _inside(self, number: int) -> bool:
        """Whether no box reaches over an end of a dimension."""
        tile, plan = self.operand, self.plan
        if tile.order or (number == 0 and tile.length % tile.panel_points):
            return False
        dimension = tile.dimensions[-1 - number]
        index, factor = dimension.index, dimension.factor
        last = index.constant + factor - 1
        for axis, c in index.terms:
            extent = plan.program.axes[axis]
            if c < 0 or extent % plan.tiles[axis]:
                return False
            last += c * factor * (extent - 1)
        return index.gather is None and index.constant >= 0 and last < self.dims[number]
