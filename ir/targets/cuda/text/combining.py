"""How the threads that hold parts of a sum combine them: in a warp, in a block, in a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from ir.layout.expressions import quotient, remainder, variable
from ir.ops.reduce import Carry, Contract, Reduce
from ir.scalar import COMBINES
from ir.targets.cuda.build.readers import only_stored
from ir.targets.cuda.layouts.meetings import meetings
from ir.targets.cuda.text import scalars
from ir.targets.cuda.text.registers import SCRATCH_BYTES, Fragment, number_of
from ir.targets.cuda.text.transfers import Transfers


class Combining(Transfers):
    """Combines partial results of one kernel body."""

    room = 0  # bytes of shared memory in which reductions across warps need not share a place
    alone = False  # whether results that are only stored are combined by those who store them
    spread = ""  # the axis whose points the blocks of a cluster share
    blocks = 1  # how many they are

    @cached_property
    def only_stored(self) -> frozenset[int]:
        return only_stored(self.program)

    def combine(self, kind: str, left: str, right: str, dtype: str) -> str:
        return scalars.apply(COMBINES[kind].function, dtype, [left, right], dtype)

    def kind(self, position: int) -> str:
        op = self.nodes[position].op
        return op.kind if isinstance(op, (Reduce, Carry)) else "sum"

    def body(self, position: int) -> tuple[int, ...]:
        """The tiles whose product (or the one tile that) is combined."""
        node = self.nodes[position]
        return node.args if isinstance(node.op, Contract) else node.args[:1]

    def gone(self, position: int) -> frozenset[str]:
        """Axes of a reduction's body that its result lacks."""
        body = {a for root in self.body(position) for a in self.nodes[root].axes}
        return frozenset(body - set(self.nodes[position].axes))

    def all_reduce(self, position: int, partial: Fragment) -> None:
        """Combine the partial results of the threads that share a point."""
        for meeting in meetings(self.frame, self.gone(position)):
            if meeting.lanes:
                self._shuffle(position, partial, meeting.lanes)
            for weight, size in meeting.across:
                self._exchange(position, partial, weight, size)
        if self.spread in self.gone(position):
            self._across_blocks(position, partial)

    def _shuffle(self, position: int, partial: Fragment, masks: Sequence[int]) -> None:
        """Between the lanes of a warp."""
        kind = scalars.register_type(self.nodes[position].dtype)
        kind = "i32" if kind == "bool" else kind
        with self.each(partial.digits) as point:
            target = self.element(partial, point)
            for mask in masks:
                other = self.w.name("other")
                self.w.line(f"const {kind} {other} = tw_shuffle_{kind}({target}, {mask});")
                dtype = self.nodes[position].dtype
                text = self.combine(self.kind(position), target, other, dtype)
                self.w.line(f"{target} = {text};")

    def crossing(self, count: int, dtype: str) -> int:
        """Registers of `SCRATCH_BYTES` that so many of a type take where they cross warps."""
        return count

    def _exchange(self, position: int, partial: Fragment, weight: int, size: int) -> None:
        """Across warps, through shared memory."""
        kind = scalars.register_type(self.nodes[position].dtype)
        start, fresh = self._place(self.crossing(partial.count, self.nodes[position].dtype))
        team, thread = self.team, self.team.thread
        with self.w.block(""):
            scratch = self.w.name("scratch")
            where = f"{team.scratch} + {start}" if start else team.scratch
            self.w.line(f"{kind}* {scratch} = ({kind}*)({where});")
            if not fresh:
                self.w.line("tw_cluster_sync();" if self.spread else team.sync)
            with self.each(partial.digits) as point:
                place = f"({number_of(partial.digits, point)}) * {team.size} + {thread}"
                self.w.line(f"{scratch}[{place}] = {self.element(partial, point)};")
            self.w.line(team.sync)
            own = self.w.name("own")
            first = self.w.name("first")
            number = variable(thread, self.frame.team)
            self.w.line(f"const i32 {own} = {remainder(quotient(number, weight), size)};")
            self.w.line(f"const i32 {first} = {thread} - {own} * {weight};")
            if not (self.alone and position in self.only_stored):
                self._gather_parts(position, partial, scratch, first, weight, size)
                return
            if partial.count > 1:
                self._share_rows(position, partial, scratch, (own, first), weight, size)
            with self.w.block(f"if ({own} == 0)"):
                parts = 1 if partial.count > 1 else size
                self._gather_parts(position, partial, scratch, first, weight, parts)

    def _share_rows(
        self, position: int, partial: Fragment, scratch: str, names: tuple[str, str],
        weight: int, size: int,
    ) -> None:  # fmt: skip
        """Combine what the threads that share a point wrote, each of them other registers."""
        own, first = names
        kind, dtype, team = self.kind(position), self.nodes[position].dtype, self.team.size
        head = f"for (i32 row = {own}; row < {partial.count}; row += {size})"
        with self.w.block(head):
            place = f"{scratch}[row * {team} + {first}]"
            self.w.line(f"{scalars.register_type(dtype)} sum = {place};")
            with self.w.unrolled("step", size - 1):
                other = f"{scratch}[row * {team} + {first} + (step + 1) * {weight}]"
                self.w.line(f"sum = {self.combine(kind, 'sum', other, dtype)};")
            self.w.line(f"{place} = sum;")
        self.w.line(self.team.sync)

    def _gather_parts(
        self, position: int, partial: Fragment, scratch: str, first: str, weight: int, size: int
    ) -> None:
        """Combine what the threads that share a point wrote, in the order of their numbers."""
        kind, dtype = self.kind(position), self.nodes[position].dtype
        with self.each(partial.digits) as point:
            target = self.element(partial, point)
            place = f"({number_of(partial.digits, point)}) * {self.team.size} + {first}"
            values = [f"{scratch}[{place} + {step * weight}]" for step in range(size)]
            text = values[0]
            for value in values[1:]:
                text = self.combine(kind, text, value, dtype)
            self.w.line(f"{target} = {text};")

    def _place(self, count: int) -> tuple[int, bool]:
        """First byte of a scratch place of `count` registers; whether nobody may still read there.

        Places are only as many as there is room for.
        """
        self.exchanges += 1
        size = self.team.size * SCRATCH_BYTES
        start = self.scratch_registers * size
        if start + count * size > self.room:
            self.scratch_registers = max(self.scratch_registers, count)
            self.shared_place = True
            return 0, False
        self.scratch_registers += count
        return start, not self.looping

    def _across_blocks(self, position: int, partial: Fragment) -> None:
        """Between the blocks of a cluster: each reads what all have, in the order of their ranks.

        Nobody may still read what is overwritten, in this block or another, nor end before others
        have read.
        """
        node = self.nodes[position]
        start, fresh = self._place(self.crossing(partial.count, node.dtype))
        if not fresh:
            self.w.line("tw_cluster_sync();")
        where, only = f"{self.team.scratch} + {start}", self.first_holder(node.axes)
        with self.w.block(f"if ({only})" if only else ""), self.each(partial.digits) as point:
            place = f"{where} + 4 * ({self.place_in_tile(node.axes, point)})"
            self.w.line(f"*(u32*)({place}) = tw_word({self.element(partial, point)});")
        self.w.line("tw_cluster_sync();")
        real = scalars.register_type(node.dtype) == "f32"
        with self.each(partial.digits) as point:
            target, there = self.element(partial, point), self.w.name("there")
            place = f"4 * ({self.place_in_tile(node.axes, point)})"
            self.w.line(f"const u32 {there} = tw_shared_address({where}) + {place};")
            words = (f"tw_load_cluster_4({there}, {rank})" for rank in range(self.blocks))
            values = [f"tw_float({word})" if real else f"(i32){word}" for word in words]
            text = values[0]
            for value in values[1:]:
                text = self.combine(self.kind(position), text, value, node.dtype)
            self.w.line(f"{target} = {text};")
