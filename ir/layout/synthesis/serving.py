"""One placement of a shared tile put to all of its uses: instructions, swizzle, price.

Every use takes the widest instruction that the placement allows. Proposes no placement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ir.layout.swizzle import Swizzle
from ir.layout.synthesis import cost
from ir.layout.synthesis.bulk import Boxes, Canonical, canonical, tma_boxes
from ir.layout.synthesis.copies import (
    Access,
    matrix_run,
    phase_of,
    register_accesses,
    sectors,
    transfers,
    unaligned,
    vector_accesses,
)
from ir.layout.synthesis.digits import Space
from ir.layout.synthesis.gemm import Rejection
from ir.layout.synthesis.memory import Placement, best_swizzle
from ir.layout.synthesis.problem import Tile
from ir.layout.synthesis.uses import Decision, GlobalUse, OperandUse, RegisterUse, SharedChoice, Use

MODES = {0: 0, 16: 0, 32: 1, 64: 2, 128: 3}
"""Bytes of the swizzle atom's row -> bits of its swizzle."""


Told = tuple[tuple[int, Rejection], ...]
GlobalMemo = dict[object, tuple[Access | Boxes | Rejection, Told]]
"""What a copy with global memory can do on a placement: that does not depend on other uses."""


class Serving:
    """The answers of one tile's uses on one placement. Without `bulk`, TMA is left out, and with it
    the limit to its four swizzles."""

    def __init__(
        self,
        space: Space,
        sm: int,
        tile: Tile,
        uses: tuple[Use, ...],
        placement: Placement,
        bulk: bool,
        memo: GlobalMemo,
    ) -> None:
        self.space, self.sm, self.tile, self.uses = space, sm, tile, uses
        self.placement, self.bulk, self.memo = placement, bulk, memo
        self.rejections: list[tuple[int, Rejection]] = []
        if self._for_wgmma() and not tile.layout:
            self.placement = replace(placement, swizzle=Swizzle(MODES[placement.line], 4, 3))

    def run(self, bound: float) -> SharedChoice | Rejection | None:
        """The choice, or why one use cannot be served; None if it costs more than `bound` even
        without a conflict."""
        found: dict[int, Decision] = {}
        least = 0.0
        for number in self._strictest_first:
            use = self.uses[number]
            decision = self._decide(use)
            if isinstance(decision, Rejection):
                return decision
            found[number] = decision
            least += self._price(use, decision, 1.0)[0]
            if least > bound:
                return None
        decisions = [found[number] for number in range(len(self.uses))]
        if not self.tile.layout and not self._for_wgmma():
            swizzle = self._swizzle(decisions)
            self.placement = replace(self.placement, swizzle=swizzle)
        priced = [self._price(use, d) for use, d in zip(self.uses, decisions, strict=True)]
        return SharedChoice(
            self.placement,
            tuple(decisions),
            sum(cycles for cycles, _ in priced),
            tuple(cycles for cycles, _ in priced),
            tuple(ways for _, ways in priced),
            tuple(self.rejections),
        )

    @property
    def _strictest_first(self) -> list[int]:
        """Uses in the order in which they are asked: descriptors have the fewest forms."""
        return sorted(
            range(len(self.uses)), key=lambda at: not isinstance(self.uses[at], OperandUse)
        )

    def _for_wgmma(self) -> bool:
        return any(isinstance(use, OperandUse) for use in self.uses)

    def _swizzle(self, decisions: Sequence[Decision]) -> Swizzle:
        """The swizzle with the fewest conflicts; TMA has none, and the one as wide as its rows."""
        phases = [
            phase_of(self.space, decision, self.placement, self.tile.bits)
            for use, decision in zip(self.uses, decisions, strict=True)
            if isinstance(decision, Access) and not isinstance(use, OperandUse)
        ]
        inner = [
            self.space.size(decision.dims[0]) * self.tile.bits // 8
            for decision in decisions
            if isinstance(decision, Boxes)
        ]
        allowed = None
        if inner:
            wide = [bits for bits in (1, 2, 3) if all(size == 16 << bits for size in inner)]
            allowed = [Swizzle(bits, 4, 3) for bits in wide]
        return best_swizzle(phases, allowed)[0]

    def _decide(self, use: Use) -> Decision | Rejection:
        if isinstance(use, OperandUse):
            form = canonical(self.space, self.tile, self.placement, use.operand, use.majors)
            if isinstance(form, Rejection):
                self.rejections.append((use.op, form))
            return form
        return self._register(use) if isinstance(use, RegisterUse) else self._known(use)

    def _known(self, use: GlobalUse) -> Access | Boxes | Rejection:
        place = self.placement
        key = (self.tile.name, use.op, place.order, place.swizzle, place.line, self.bulk)
        found = self.memo.get(key)
        if found is None:
            before = len(self.rejections)
            answer = self._global(use)
            self.memo[key] = (answer, tuple(self.rejections[before:]))
            return answer
        self.rejections += found[1]
        return found[0]

    def _register(self, use: RegisterUse) -> Access | Rejection:
        space, tile, place = self.space, self.tile, self.placement
        candidates: list[Access] = []
        for access in register_accesses(space, use.spread, tile, use.load, self.sm, use.pinned):
            run = matrix_run(use.spread, access, tile.bits)
            if place.leads(run) and place.aligned(len(run), tile.bits):
                candidates.append(access)
                break
        plain = vector_accesses(space, use.spread, tile, place, use.load, use.pinned)
        whole = (each for each in plain if place.aligned(len(each.elements), tile.bits))
        first = next(whole, None)
        candidates += [] if first is None else [first]
        if not candidates:
            return self._none(use, f"registers and a layout with {self._first()} side by side")
        return min(candidates, key=self._least)

    def _least(self, access: Access) -> tuple[float, int]:
        """Cycles without conflicts; of equals the wider."""
        issues = self.space.size(access.issues)
        return cost.shared_access(self.space, issues, max(1, access.bits // 32), 1), -access.bits

    def _global(self, use: GlobalUse) -> Access | Boxes | Rejection:
        space, tile, place = self.space, self.tile, self.placement
        if not use.pinned or use.pinned.startswith("tma"):
            boxes = self._boxes(use)
            if isinstance(boxes, Boxes):
                return boxes
            self.rejections.append((use.op, boxes))
            if use.pinned:
                return boxes
        last: Rejection | None = None
        for access in transfers(space, tile, place, use.memory, use.load, use.pinned):
            last = unaligned(space, use.tile, use.memory, access)
            if last is None:
                return access
            self.rejections.append((use.op, last))
        return last or self._none(
            use, f"{use.tile.name} and a layout with {self._first()} side by side"
        )

    def _boxes(self, use: GlobalUse) -> Boxes | Rejection:
        tile = self.tile
        if self.sm < 90:
            return Rejection("target", f"{tile.name}: TMA needs sm_90, the target is sm_{self.sm}")
        if not self.bulk:
            return Rejection(
                "tma-swizzle",
                f"{tile.name}: the 4 swizzles of TMA leave bank conflicts, another avoids them",
            )
        return tma_boxes(self.space, tile, use.memory, use.tile, self.placement)

    def _first(self) -> str:
        """The first digits of the layout, in words."""
        space = self.space
        return ", ".join(
            f"{space.axis[digit]}+{space.step[digit]}" for digit in self.placement.order[:3]
        )

    def _none(self, use: RegisterUse | GlobalUse, what: str) -> Rejection:
        name = use.pinned or "instruction"
        found = Rejection(
            "no-copy", f"{self.tile.name}: no {name} goes between {what}, op {use.op}"
        )
        self.rejections.append((use.op, found))
        return found

    def _price(self, use: Use, decision: Decision, assumed: float = 0.0) -> tuple[float, int]:
        """Cycles and the worst conflict ways; `assumed` rounds instead of counted ones if given."""
        space, bits = self.space, self.tile.bits
        if isinstance(decision, Canonical) or isinstance(use, OperandUse):
            return 0.0, 1
        if isinstance(decision, Boxes):
            inner = space.size(decision.dims[0]) * bits // 8
            moved = cost.bulk(self.tile.size * bits // 8, decision.count(space), inner)
            return moved, 1
        ways, rounds = 1, assumed
        if not assumed:
            phase = phase_of(space, decision, self.placement, bits)
            swizzle = self.placement.swizzle
            ways, rounds = phase.ways(swizzle), phase.rounds(swizzle)
        issues = space.size(decision.issues)
        cycles = cost.shared_access(space, issues, max(1, decision.bits // 32), rounds)
        if isinstance(use, GlobalUse):
            touched = sectors(space, decision, use.memory, bits)
            cycles += cost.global_access(space, issues, touched, len(decision.instructions))
        return cycles, ways
