"""Shared memory of a kernel on tensor cores: rings, buffers, barriers, in this order, in bytes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ir.targets.cuda.bodies.apart import left_words
from ir.targets.cuda.grid import drawing
from ir.targets.cuda.layouts.operands import LINE
from ir.targets.cuda.layouts.synthesised import ROWS

if TYPE_CHECKING:
    from ir.targets.cuda.plans.tensor_plan import Plan

ALIGN = 1024
WORD = 4  # bytes of what is left for a row


@dataclass(frozen=True)
class SharedMemory:
    """Where the parts of one block's shared memory begin, and how many bytes they take."""

    plan: Plan

    @cached_property
    def offsets(self) -> dict[str, int]:
        """Where rings, the store buffers, the scratch and the barriers begin."""
        found, at = {}, 0
        for ring in self.plan.rings:
            for operand in ring.operands:
                found[f"{ring.name}.{operand.position}"] = at
                at += -(-operand.pitch * ring.stages // ALIGN) * ALIGN
            for operand, former in self.plan.formed_in(ring):
                found[f"source.{operand.position}"] = at
                pitch = self.plan.source_of(operand, former).pitch
                at += -(-pitch * ring.stages // ALIGN) * ALIGN
        if self.plan.shared_words:
            found["words"] = at
            slots = max(1, self.plan.weights)
            at += -(-self.words_pitch * slots // ALIGN) * ALIGN
        if self.plan.exchanges:
            found["exchange"] = at if self.plan.processors else 0
            at = max(at, found["exchange"] + self.exchange_bytes)
        found["store"] = at
        at += self.store_bytes
        found["barriers"] = at
        at += 16 * sum(ring.stages for ring in self.plan.every_ring)
        found["sources"] = at
        at += 16 * sum(ring.stages for ring in self.plan.rings if self.plan.formed_in(ring))
        if self.plan.dynamic:
            found["draws"] = at
            at += drawing.BYTES
        if self.plan.parts > 1:
            found["arrived"] = at
            at += 16 * self.plan.consumers
        if self.plan.apart:
            found["left"] = at
            at += self.left_pitch * self.plan.weights
        found["scratch"] = at
        return found

    @property
    def _words(self) -> tuple[int, ...]:
        """Computed operands, each once."""
        return tuple(dict.fromkeys(product.a for product in self.plan.roles.outer))

    def words_at(self, position: int) -> int:
        """Where a computed operand begins in shared memory."""
        return self.offsets["words"] + self._words.index(position) * self.plan.words.bytes

    @property
    def words_pitch(self) -> int:
        """Bytes of all computed operands of a block."""
        return self.plan.words.bytes * len(self._words)

    @property
    def left_pitch(self) -> int:
        """Bytes of what is left beside these: of each row factors, or states."""
        return left_words(self.plan.roles) * WORD * self.plan.tile_rows

    def left_at(self, number: int) -> int:
        """Where a value begins that is the so many-th to be left at a time."""
        return self.offsets["left"] + number * WORD * self.plan.tile_rows

    @property
    def store_slot_bytes(self) -> int:
        """One buffer of a warp group: a panel on its way out."""
        if self.plan.epilogue == "direct":
            return 0
        lines = (
            self.plan.own_columns * self.plan.lines_of_rows if self.plan.store_transposed else ROWS
        )
        return -(-lines * LINE // ALIGN) * ALIGN

    @property
    def exchange_bytes(self) -> int:
        """Partial sums of a tile that other blocks finish; over the rings where a block has one
        tile."""
        others = self.plan.parts - 1
        sums = 4 * self.plan.tile_rows * self.plan.tile_columns * len(self.plan.roles.sums)
        return -(-sums * others // self.plan.parts // ALIGN) * ALIGN

    @property
    def store_bytes(self) -> int:
        return self.store_slot_bytes * self.plan.epilogue_slots * self.plan.consumers

    def scratch_bytes(self, registers: int) -> int:
        return (
            registers
            * self.plan.frame.team
            * 8
            * (1 if self.plan.cooperative else self.plan.consumers)
        )
