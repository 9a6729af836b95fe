"""The producer of a kernel on wgmma as text: one thread that keeps rings of slots full by TMA."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ir.kernel.tile_kernel import (
    ADVANCE,
    BLOCK,
    EXPECT,
    FREE,
    Do,
    Loop,
    Role,
    Statement,
    Sync,
)
from ir.targets.cuda.build.formed import Former
from ir.targets.cuda.build.tensor_kernel import L2
from ir.targets.cuda.grid.multicast import peer_mask, peer_rank
from ir.targets.cuda.layouts.operands import OperandTile
from ir.targets.cuda.lower.tensor_ahead import ask_ahead
from ir.targets.cuda.plans.tensor_plan import REGISTER_SPLITS, Ring
from ir.targets.cuda.plans.tensor_rings import HELD
from ir.targets.cuda.text.lookups import declare_lookups, looks_along
from ir.targets.cuda.text.printer import Printer
from ir.targets.cuda.text.writer import Writer

if TYPE_CHECKING:
    from ir.targets.cuda.lower.tensor_lower import TensorLowering


class ProducerPrinter(Printer):
    """Prints the statements of one role."""

    who = "a producer"

    def __init__(self, lowering: TensorLowering) -> None:
        super().__init__(lowering.kernel, Writer(2))
        self.lowering, self.plan = lowering, lowering.plan
        self.e = lowering.evaluator(self.w, lowering.team())
        self.origins: Mapping[str, str] = {}

    def role(self, role: Role) -> Writer:
        w, plan = self.w, self.plan
        down, _ = REGISTER_SPLITS[plan.registers]
        if down:
            w.line(f"tw_registers_down<{down}>();")
        with w.block("if (tw_thread() == 0)"):
            self.lowering.state(w)
            if any(plan.passing(operand) for ring in plan.rings for operand in ring.operands):
                w.line("const u64 passing = tw_evict_first();")
            self.all(role.body)
        return w

    def loop(self, loop: Loop) -> None:
        w = self.w
        if loop.over != BLOCK:
            with self.lowering.tiles(w, self.e, draws=True):
                fixed = declare_lookups(w, self.plan.program, self._fixed, self.e.origins)
                self.e.origins |= fixed
                self.origins = self.e.origins
                self.all(loop.body)
            return
        with w.block("for (i32 block = 0; block < blocks; block++)"):
            origins = self.e.origins | self.lowering.walk_origins(w, "block")
            read = [one for one in self._operands(loop.body) if one not in self._fixed]
            self.origins = origins | declare_lookups(w, self.plan.program, read, origins)
            self.all(loop.body)
        self.origins = self.e.origins

    @property
    def _fixed(self) -> list[OperandTile]:
        """Operands whose indices are the same for all blocks of a tile."""
        every = [operand for ring in self.plan.rings for operand in ring.operands]
        looped = self.lowering.looped
        return [one for one in every if not looks_along(self.plan.program, one, looped)]

    def _operands(self, body: tuple[Statement, ...]) -> Iterator[OperandTile]:
        for one in body:
            if isinstance(one, Do):
                for name in self.kernel.operation(one.operation).takes:
                    yield from self.lowering.ring(name).operands

    def sync(self, one: Sync) -> None:
        if not one.of:
            super().sync(one)
            return
        w, ring = self.w, self.lowering.ring(one.of)
        stage, phase = f"{ring.name}_slot", f"{ring.name}_phase"
        copied, formed = self.plan.copied(ring), self.plan.formed_in(ring)
        if one.kind == FREE:
            cluster = "_cluster" if self.plan.cluster_size > 1 else ""
            barriers = [self.lowering.empty(ring, stage)] if copied else []
            barriers += [self.lowering.source_empty(ring, stage)] if formed else []
            for barrier in barriers:
                w.line(f"tw_barrier_wait{cluster}({barrier}, {phase} ^ 1);")
        elif one.kind == EXPECT:
            if copied:
                total = sum(operand.bytes for operand in copied)
                w.line(f"tw_barrier_expect({self.lowering.full(ring, stage)}, {total});")
            if formed:
                total = sum(self.plan.source_of(*one).bytes for one in formed)
                w.line(f"tw_barrier_expect({self.lowering.source_full(ring, stage)}, {total});")
        elif one.kind == ADVANCE:
            self.lowering.advance_ring(w, ring)
        else:
            self.lacks(one)

    def do(self, one: Do) -> None:
        """Start the copies of an operation."""
        operation = self.kernel.operation(one.operation)
        if any(part.by == L2 for part in operation.parts):
            ask_ahead(self.lowering, self.w, self.e)
            return
        (name,) = operation.takes
        ring = self.lowering.ring(name)
        origins = self.e.origins if name == HELD else self.origins
        there = {operand.position: operand for operand in ring.operands}
        for part in operation.parts:
            assert part.by == self.plan.copies
            operand = there[part.node]
            former = self.plan.former_of(operand)
            if former is None:
                self._copy(ring, operand, origins)
            else:
                self._copy_source(ring, operand, former, origins)

    def _copy_source(
        self, ring: Ring, operand: OperandTile, former: Former, origins: Mapping[str, str]
    ) -> None:
        """Start the copies of what an operand is formed of."""
        stage, source = f"{ring.name}_slot", self.plan.source_of(operand, former)
        to = self.lowering.source_slot(ring, operand, source, stage)
        full = self.lowering.source_full(ring, stage)
        for name, at, where in self.lowering.boxes(source, origins, True):
            arguments = [f"{to} + {at}" if at else to, f"&{name}", full, *where]
            self.w.line(f"tw_tma_load_{len(where)}d({', '.join(arguments)});")

    def _copy(self, ring: Ring, operand: OperandTile, origins: Mapping[str, str]) -> None:
        plan, stage = self.plan, f"{ring.name}_slot"
        peers = plan.peers(operand)
        place = ""
        if peers > 1:
            place = f" + {peer_rank(plan, operand)} * {operand.panel_bytes // peers}"
        for name, at, where in self.lowering.boxes(operand, origins):
            address = f"{self.lowering.slot(ring, operand, stage)}{place}"
            if at:
                address += f" + {at}"
            form, words = self._form(operand, peers)
            arguments = [address, f"&{name}", self.lowering.full(ring, stage), *words, *where]
            self.w.line(f"tw_tma_load_{len(where)}d{form}({', '.join(arguments)});")

    def _form(self, operand: OperandTile, peers: int) -> tuple[str, list[str]]:
        """The end of the wrapper's name that copies an operand, and what it takes more."""
        form, words = "", []
        if peers > 1:
            form, words = "_multicast", [peer_mask(self.plan, operand)]
        if self.plan.passing(operand):
            form, words = f"{form}_hint", [*words, "passing"]
        return form, words
