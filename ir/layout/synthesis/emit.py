"""From a chosen candidate in digits to a Solution in text. Owns every layout text of a solution.

Decides nothing: which instruction, spread and placement there are is settled before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ir.layout.synthesis.bulk import (
    Boxes,
    Canonical,
    shared_operand,
    tma_extents,
)
from ir.layout.synthesis.candidate import Candidate
from ir.layout.synthesis.copies import Access, sectors
from ir.layout.synthesis.digits import NOBODY, Space, Spread, text
from ir.layout.synthesis.gemm import instruction_values
from ir.layout.synthesis.memory import Placement, placed_text, stage_bytes
from ir.layout.synthesis.planner import (
    ConvertDraft,
    DirectDraft,
    GemmDraft,
    MapDraft,
    Named,
    ReduceDraft,
    SharedDraft,
    StepDraft,
    scratch_bytes,
)
from ir.layout.synthesis.problem import Tile, TileProgram
from ir.layout.synthesis.reasons import reasons as why
from ir.layout.synthesis.registers import registers_needed
from ir.layout.synthesis.solution import (
    ConvertPlan,
    CopyPlan,
    DescriptorPlan,
    GemmPlan,
    MapPlan,
    Reason,
    ReducePlan,
    Solution,
    Step,
    TilePlan,
    TmaPlan,
)
from ir.layout.synthesis.uses import GlobalUse, RegisterUse, SharedChoice


def emit(
    space: Space,
    program: TileProgram,
    candidate: Candidate,
    picks: tuple[int, ...],
    refused: tuple[Reason, ...],
) -> Solution:
    """The solution that a candidate is with these placements of its shared tiles."""
    chosen = candidate.chosen(picks)
    return _Emitter(space, program, candidate, chosen).run(candidate.cycles(picks), refused)


class _Emitter:
    def __init__(
        self,
        space: Space,
        program: TileProgram,
        candidate: Candidate,
        chosen: Mapping[str, SharedChoice],
    ) -> None:
        self.space, self.program = space, program
        self.candidate, self.chosen = candidate, chosen
        self.tiles = {tile.name: tile for tile in program.tiles}

    def run(self, cycles: float, refused: tuple[Reason, ...]) -> Solution:
        draft = self.candidate.draft
        tiles = tuple(self._tiles())
        steps = tuple(self._step(step) for step in draft.steps)
        shared = sum(tile.bytes * tile.stages for tile in tiles)
        scratch = max((scratch_bytes(self.space, step) for step in draft.steps), default=0)
        return Solution(
            self.program.name,
            self.program.threads,
            tiles,
            steps,
            round(cycles, 3),
            shared + scratch,
            registers_needed(self.space, draft),
            (*why(self.space, self.program, self.candidate, self.chosen), *refused),
            self.program.bounds,
        )

    def _tiles(self) -> Iterator[TilePlan]:
        for tile in self.program.tiles:
            if tile.scope == "register":
                continue
            yield self._memory_tile(tile, self._placement(tile))
        for name, tile, spread in self.candidate.draft.versions:
            yield self._register_tile(name, tile, spread)

    def _placement(self, tile: Tile) -> Placement | None:
        return self.chosen[tile.name].placement if tile.name in self.chosen else None

    def _memory_tile(self, tile: Tile, place: Placement | None) -> TilePlan:
        if place is None:
            modes = [
                [(extent, stride)]
                for (_, extent), stride in zip(tile.axes, tile.strides, strict=False)
            ]
            layout = tile.layout or text(*modes)
            return TilePlan(tile.name, tile.name, tile.dtype, tile.axes, tile.scope, layout)
        layout = tile.layout or placed_text(self.space, place, tile)
        return TilePlan(
            tile.name, tile.name, tile.dtype, tile.axes, tile.scope, layout,
            bytes=stage_bytes(self.space, tile, place), stages=tile.stages,
            alignment=place.alignment,
        )  # fmt: skip

    def _register_tile(self, name: str, tile: Tile, spread: Spread) -> TilePlan:
        count = self.space.size(spread.values)
        layout = tile.layout if name == tile.name and tile.layout else ""
        return TilePlan(
            name, tile.name, tile.dtype, tile.axes, "register",
            layout or self.space.spread_text(spread, tile),
            registers=-(-count * tile.bits // 32),
            replicated=self.space.replicated(spread.threads),
        )  # fmt: skip

    def _step(self, step: StepDraft) -> Step:
        if isinstance(step, ConvertDraft):
            return self._convert(step)
        if isinstance(step, MapDraft):
            return self._map(step)
        if isinstance(step, ReduceDraft):
            return self._reduce(step)
        if isinstance(step, GemmDraft):
            return self._gemm(step)
        if isinstance(step, DirectDraft):
            return self._direct(step)
        return self._shared(step)

    def _map(self, step: MapDraft) -> MapPlan:
        own = step.output[1].values
        values = tuple(
            text(self.space.modes(own, self.space.value_strides(spread.values)))
            for _, spread in step.inputs
        )
        names = tuple(name for name, _ in step.inputs)
        return MapPlan(step.op, names, step.output[0], values, step.cycles)

    def _reduce(self, step: ReduceDraft) -> ReducePlan:
        space = self.space
        source, target = step.input[1], step.output[1]
        strides = space.value_strides(source.values)
        combined = [digit for digit in source.values if space.axis[digit] == step.axis]
        kept = list(target.values)
        places = [
            (place, digit)
            for place, digit in zip(space.threads, source.threads, strict=True)
            if digit != NOBODY and space.axis[digit] == step.axis
        ]
        lanes = tuple(stride for (stride, _), _ in places if stride < 32)
        digits = tuple(place for place, _ in places if place[0] >= 32)
        return ReducePlan(
            step.op, step.input[0], step.output[0],
            text(space.modes(kept, strides), space.modes(combined, strides)),
            lanes, digits, step.scratch, tuple(place for place, _ in places), step.cycles,
        )  # fmt: skip

    def _gemm(self, step: GemmDraft) -> GemmPlan:
        space, tiling = self.space, step.tiling
        row = tiling.choice.row
        repeats = tiling.repeats
        loops = tuple(space.size(repeats[letter]) for letter in "mnk")
        values = {}
        for role, spread, outer in zip("abc", step.spreads, ("mk", "nk", "mn"), strict=True):
            if spread is None:
                values[role] = ""
                continue
            strides = space.value_strides(spread.values)
            values[role] = text(
                space.modes(instruction_values(tiling, role), strides),
                space.modes(repeats[outer[0]], strides),
                space.modes(repeats[outer[1]], strides),
            )
        orders = {}
        for letter in "mnk":
            along = {digit: space.step[digit] for digit in space.of[self._axis(step.op, letter)]}
            orders[letter] = text(
                space.modes(tiling.ordered(letter), along), space.modes(repeats[letter], along)
            )
        return GemmPlan(
            step.op, row.name, tiling.choice.swapped, *step.names, (loops[0], loops[1], loops[2]),
            tiling.choice.warps, values["a"], values["b"], values["c"],
            self._descriptor(step, "a"), self._descriptor(step, "b"),
            orders["m"], orders["n"], orders["k"], step.cycles,
        )  # fmt: skip

    def _axis(self, op: int, letter: str) -> str:
        swapped = self.candidate.tilings[op].choice.swapped
        own = {"m": "n", "n": "m", "k": "k"}[letter] if swapped else letter
        return str(self.program.ops[op].attribute(own))

    def _descriptor(self, step: GemmDraft, role: str) -> DescriptorPlan | None:
        """The descriptor of a shared operand, from the decision of the tile's own solution."""
        at = "ab".index(role)
        if step.spreads[at] is not None:
            return None
        tile = self.tiles[step.names[at]]
        choice = self.chosen[tile.name]
        operand = shared_operand(step.tiling, role)
        uses = self.candidate.draft.uses[tile.name]
        form = next(
            decision
            for use, decision in zip(uses, choice.decisions, strict=True)
            if isinstance(decision, Canonical) and use.op == step.op and _same(use, operand)
        )
        in_bytes = {d: s * tile.bits // 8 for d, s in choice.placement.strides.items()}
        threads = self.space.threads[len(self.space.threads) - len(operand.groups) :]
        groups = [
            (radix, in_bytes.get(digit, 0))
            for (_, radix), digit in zip(threads, operand.groups, strict=True)
        ]
        starts = text(
            groups or [(1, 0)],
            self.space.modes(operand.row_repeats, in_bytes),
            self.space.modes(operand.k_repeats, in_bytes),
        )
        return DescriptorPlan(
            form.major,
            choice.placement.swizzle.bits,
            form.leading,
            form.stride,
            starts,
            form.word(),
        )

    def _addresses(self, access: Access, tile: Tile) -> str:
        strides = self.space.index(tile)
        return text(
            self.space.thread_modes(access.threads, strides),
            self.space.modes(access.issues, strides),
        )

    def _values(self, access: Access, spread: Spread) -> str:
        strides = self.space.value_strides(spread.values)
        return text(
            self.space.modes(access.elements, strides), self.space.modes(access.issues, strides)
        )

    def _direct(self, step: DirectDraft) -> CopyPlan:
        name, spread = step.register
        addresses = self._addresses(step.access, self.tiles[step.other])
        source, target = (step.other, name) if step.load else (name, step.other)
        return CopyPlan(
            step.op, source, target, step.access.instructions, step.access.bits,
            self.space.size(step.access.elements), self._values(step.access, spread),
            addresses if step.load else "", "" if step.load else addresses,
            self.space.size(step.access.issues), step.access.guards,
            sectors=step.sectors, cycles=step.cycles,
        )  # fmt: skip

    def _shared(self, step: SharedDraft) -> CopyPlan:
        choice = self.chosen[step.shared]
        use = self.candidate.draft.uses[step.shared][step.use]
        decision = choice.decisions[step.use]
        tile = self.tiles[step.shared]
        cycles, ways = round(choice.each[step.use], 3), choice.ways[step.use]
        if isinstance(decision, Boxes):
            assert isinstance(use, GlobalUse)
            return self._bulk(step, tile, use, choice.placement, decision, cycles)
        assert isinstance(decision, Access)
        if isinstance(use, RegisterUse):
            assert step.register is not None
            return self.register_copy(
                step.op, tile, step.register, use.load, decision, ways, cycles
            )
        assert isinstance(use, GlobalUse)
        here, there = self._addresses(decision, use.tile), self._addresses(decision, tile)
        source, target = (use.tile, tile) if use.load else (tile, use.tile)
        return CopyPlan(
            step.op, source.name, target.name, decision.instructions, decision.bits,
            self.space.size(decision.elements), "",
            here if use.load else there, there if use.load else here,
            self.space.size(decision.issues), decision.guards, ways,
            sectors(self.space, decision, use.memory, tile.bits), cycles=cycles,
        )  # fmt: skip

    def register_copy(
        self,
        op: int,
        tile: Tile,
        register: Named,
        load: bool,
        access: Access,
        ways: int,
        cycles: float,
    ) -> CopyPlan:
        name, spread = register
        addresses = self._addresses(access, tile)
        source, target = (tile.name, name) if load else (name, tile.name)
        return CopyPlan(
            op, source, target, access.instructions, access.bits,
            self.space.size(access.elements), self._values(access, spread),
            addresses if load else "", "" if load else addresses,
            self.space.size(access.issues), access.guards, ways, cycles=cycles,
        )  # fmt: skip

    def _bulk(
        self,
        step: SharedDraft,
        tile: Tile,
        use: GlobalUse,
        place: Placement,
        boxes: Boxes,
        cycles: float,
    ) -> CopyPlan:
        space = self.space
        index, strides = space.index(use.tile), use.memory.strides
        offsets = place.strides
        starts = [0]
        for digit in boxes.outer:
            step_bytes = offsets[digit] * tile.bits // 8
            starts = [s + step_bytes * at for at in range(space.radix[digit]) for s in starts]
        inner = [digit for dim in boxes.dims for digit in dim]
        plan = TmaPlan(
            tma_extents(space, boxes),
            tuple(strides[dim[0]] for dim in boxes.dims),
            text(space.modes(inner, index)),
            text(space.modes(boxes.outer, index)),
            tuple(starts),
            place.swizzle.bits,
            tile.size * tile.bits // 8,
        )
        source, target = (use.tile, tile) if use.load else (tile, use.tile)
        return CopyPlan(
            step.op, source.name, target.name, ("tma.load" if use.load else "tma.store",),
            128, space.size(inner), issues=boxes.count(space), tma=plan, cycles=cycles,
        )  # fmt: skip

    def _convert(self, step: ConvertDraft) -> ConvertPlan:
        plan = step.conversion
        scratch = store = load = None
        if plan.through is not None:
            choice = plan.through
            tile = Tile(f"{step.target[0]}__scratch", step.tile.dtype, step.tile.axes, "shared")
            scratch = self._memory_tile(tile, choice.placement)
            first, second = choice.decisions
            assert isinstance(first, Access)
            assert isinstance(second, Access)
            store = self.register_copy(
                step.op, tile, step.source, False, first, choice.ways[0], choice.each[0]
            )
            load = self.register_copy(
                step.op, tile, step.target, True, second, choice.ways[1], choice.each[1]
            )
        return ConvertPlan(
            step.op, step.source[0], step.target[0], plan.price_class, step.why,
            plan.moves, scratch, store, load, round(plan.cycles, 3),
        )  # fmt: skip


def _same(use: object, operand: object) -> bool:
    return getattr(use, "operand", None) == operand
