"""One pass over the ops with all spreads known: where two derivations of a tile disagree, the
cheapest conversion goes in; register-to-global copies get their instructions; everything gets its
price.

Owns drafts, which hold digits instead of text. Shared tiles are only listed here, with what their
writers and readers ask; shared.py solves them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ir.layout.errors import LayoutError
from ir.layout.synthesis import cost
from ir.layout.synthesis.bulk import shared_operand
from ir.layout.synthesis.conversion import Conversion, Converter
from ir.layout.synthesis.copies import Access, sectors, unaligned, vector_accesses
from ir.layout.synthesis.digits import LANE_DIGITS, NOBODY, Space, Spread
from ir.layout.synthesis.gemm import Rejection, Tiling, operand_spread, packed_alike
from ir.layout.synthesis.memory import Placement, stage_bytes
from ir.layout.synthesis.problem import Tile, TileOp, TileProgram
from ir.layout.synthesis.uses import GlobalUse, OperandUse, RegisterUse, Use

Named = tuple[str, Spread]


@dataclass(frozen=True, slots=True)
class ConvertDraft:
    op: int
    tile: Tile
    source: Named
    target: Named
    conversion: Conversion
    why: str


@dataclass(frozen=True, slots=True)
class MapDraft:
    op: int
    inputs: tuple[Named, ...]
    output: Named
    cycles: float


@dataclass(frozen=True, slots=True)
class ReduceDraft:
    op: int
    input: Named
    output: Named
    axis: str
    scratch: int
    cycles: float


@dataclass(frozen=True, slots=True)
class GemmDraft:
    op: int
    tiling: Tiling
    names: tuple[str, str, str]
    spreads: tuple[Spread | None, Spread | None, Spread]
    cycles: float


@dataclass(frozen=True, slots=True)
class DirectDraft:
    """A copy between registers and global memory."""

    op: int
    register: Named
    other: str
    load: bool
    access: Access
    sectors: int
    cycles: float


@dataclass(frozen=True, slots=True)
class SharedDraft:
    """A copy that touches the shared tile `shared`; which of its uses is `use`."""

    op: int
    shared: str
    use: int
    register: Named | None
    load: bool


StepDraft = ConvertDraft | MapDraft | ReduceDraft | GemmDraft | DirectDraft | SharedDraft


@dataclass(slots=True)
class Draft:
    """A planned program before its shared tiles are solved."""

    steps: list[StepDraft] = field(default_factory=list)
    versions: list[tuple[str, Tile, Spread]] = field(default_factory=list)
    uses: dict[str, list[Use]] = field(default_factory=dict)
    rejections: list[tuple[str, int, Rejection]] = field(default_factory=list)
    cycles: float = 0.0


def scratch_bytes(space: Space, step: StepDraft) -> int:
    """Bytes of shared memory that one step needs beside the tiles."""
    if isinstance(step, ReduceDraft):
        return step.scratch
    if isinstance(step, ConvertDraft) and step.conversion.through is not None:
        return stage_bytes(space, step.tile, step.conversion.through.placement)
    return 0


class TooDear(Exception):
    """The plan costs more than the bound of the search."""


class Planner:
    """Plans one choice of spreads and tilings. Raises LayoutError where a pin cannot be kept."""

    def __init__(
        self,
        space: Space,
        program: TileProgram,
        spreads: Mapping[str, Spread],
        tilings: Mapping[int, Tiling],
        memories: Mapping[str, Placement],
        converter: Converter,
        bound: float = float("inf"),
    ) -> None:
        self.space, self.program, self.spreads = space, program, spreads
        self.tilings, self.memories, self.converter = tilings, memories, converter
        self.bound = bound
        self.tiles = {tile.name: tile for tile in program.tiles}
        self.pins = dict(program.pins.instructions)
        self.live: dict[str, list[Named]] = {}
        self.draft = Draft()
        self._made: dict[str, int] = {}

    def run(self) -> Draft | None:
        """The plan; None as soon as it costs more than the bound."""
        for tile in self.program.tiles:
            if tile.scope == "register":
                self.draft.versions.append((tile.name, tile, self.spreads[tile.name]))
                self.live[tile.name] = [(tile.name, self.spreads[tile.name])]
            elif tile.scope == "shared":
                self.draft.uses[tile.name] = []
        try:
            for position, op in enumerate(self.program.ops):
                self._step(position, op)
        except TooDear:
            return None
        return self.draft

    def _step(self, position: int, op: TileOp) -> None:
        if op.kind == "gemm":
            self._gemm(position)
        elif op.kind == "reduce":
            self._reduce(position, op)
        elif op.kind == "copy":
            self._copy(position, op)
        else:
            self._map(position, op)

    def _add(self, step: StepDraft, cycles: float) -> None:
        self.draft.steps.append(step)
        self.draft.cycles += cycles
        if self.draft.cycles > self.bound:
            raise TooDear

    def _written(self, name: str) -> None:
        """The tile has new contents: earlier conversions of it are stale."""
        self.live[name] = [(name, self.spreads[name])]

    def _version(self, tile: Tile, spread: Spread) -> Named:
        """A new register tile that will hold `tile` otherwise."""
        count = self._made[tile.name] = self._made.get(tile.name, 0) + 1
        named = (f"{tile.name}__{count}", spread)
        self.draft.versions.append((named[0], tile, spread))
        return named

    def _convert(self, op: int, tile: Tile, source: Named, target: Named, why: str) -> None:
        floor = self.converter.least(tile, source[1], target[1])
        if self.draft.cycles + floor > self.bound:
            raise TooDear
        plan = self.converter.plan(tile, source[1], target[1])
        draft = ConvertDraft(op, tile, source, target, plan, why)
        self._add(draft, plan.cycles)

    def _held(self, tile: Tile, wanted: Spread, exact: bool) -> tuple[Named | None, float]:
        """A live version that serves `wanted`, or None and the price of the cheapest conversion."""
        for named in self.live[tile.name]:
            if named[1].same_owners(wanted) and (not exact or named[1].values == wanted.values):
                return named, 0.0
        main = self.live[tile.name][0]
        floor = self.converter.least(tile, main[1], wanted)
        if self.draft.cycles + floor > self.bound:
            return None, floor
        return None, self.converter.plan(tile, main[1], wanted).cycles

    def _obtain(self, op: int, tile: Tile, wanted: Spread, why: str) -> Named:
        """A version of `tile` spread as wanted (values in any order), made if there is none."""
        found, _ = self._held(tile, wanted, False)
        return found or self._converted(op, tile, wanted, why)

    def _converted(self, op: int, tile: Tile, wanted: Spread, why: str) -> Named:
        """A new version of `tile`, spread as wanted."""
        made = self._version(tile, wanted)
        self._convert(op, tile, self.live[tile.name][0], made, why)
        self.live[tile.name].append(made)
        return made

    def _map(self, position: int, op: TileOp) -> None:
        output = self.tiles[op.outputs[0]]
        main = self.spreads[output.name]
        spread = self._cheapest(op, output, main)
        inputs = tuple(
            self._obtain(
                position,
                self.tiles[name],
                self.space.project(spread, self.tiles[name]),
                f"{op.kind} at op {position} works where {output.name} lies",
            )
            for name in op.inputs
        )
        per_element = cost.expression(str(op.attribute("expression", "x")))
        cycles = cost.elementwise(self.space, self.space.size(spread.values), per_element)
        self._put(position, output, spread, lambda named: MapDraft(position, inputs, named, cycles))

    def _cheapest(self, op: TileOp, output: Tile, main: Spread) -> Spread:
        """Where an elementwise op works: at its output's owners or at those of an input."""
        options = [main]
        for name in op.inputs:
            if len(self.tiles[name].axes) == len(output.axes):
                options += [spread for _, spread in self.live[name]]
        best, least = main, float("inf")
        for option in dict.fromkeys(options):
            price = sum(
                self._held(tile, self.space.project(option, tile), False)[1]
                for tile in (self.tiles[name] for name in op.inputs)
            )
            if not option.same_owners(main):
                price += self.converter.plan(output, option, main).cycles
            if price < least:
                best, least = option, price
            if not least:
                break
        return main if best.same_owners(main) else best

    def _put(self, position: int, output: Tile, spread: Spread, make: object) -> None:
        """Emit a step that writes `output` spread so; convert to its own spread after, if it
        must."""
        assert callable(make)
        main = (output.name, self.spreads[output.name])
        if spread.same_owners(main[1]):
            step = make(main)
            self._add(step, step.cycles)
            self._written(output.name)
            return
        made = self._version(output, spread)
        step = make(made)
        self._add(step, step.cycles)
        kind = self.program.ops[position].kind
        self._convert(position, output, made, main, f"{kind} at op {position} writes it elsewhere")
        self._written(output.name)
        self.live[output.name].append(made)

    def _reduce(self, position: int, op: TileOp) -> None:
        source, output = self.tiles[op.inputs[0]], self.tiles[op.outputs[0]]
        named = self.live[source.name][0]
        axis = str(op.attribute("axis"))
        spread = self.space.project(named[1], output)
        cycles = self._reduce_cycles(named[1], output, axis)
        scratch = self._reduce_scratch(named[1], output, axis)
        self._put(
            position,
            output,
            spread,
            lambda target: ReduceDraft(position, named, target, axis, scratch, cycles),
        )

    def _reduce_cycles(self, spread: Spread, output: Tile, axis: str) -> float:
        space = self.space
        kept = space.size(d for d in spread.values if space.axis[d] != axis)
        cycles = cost.elementwise(space, space.size(spread.values), 1.0)
        lanes = sum(d != NOBODY and space.axis[d] == axis for d in spread.threads[:LANE_DIGITS])
        cycles += lanes * (cost.elementwise(space, kept, 4.0) + cost.LATENCY["shuffle"])
        if any(d != NOBODY and space.axis[d] == axis for d in spread.threads[LANE_DIGITS:]):
            waves = cost.shared_access(space, kept, 1, 1)
            cycles += 2 * waves + 2 * cost.LATENCY["barrier"] + cost.LATENCY["shared"]
        return cycles

    def _reduce_scratch(self, spread: Spread, output: Tile, axis: str) -> int:
        """Bytes in which warps along the axis leave their parts of every element."""
        space, parts = self.space, 1
        for (_, radix), digit in zip(space.threads, spread.threads, strict=True):
            crosses = digit in spread.threads[LANE_DIGITS:] and digit != NOBODY
            parts *= radix if crosses and space.axis[digit] == axis else 1
        return parts * output.size * output.bits // 8 if parts > 1 else 0

    def _gemm(self, position: int) -> None:
        tiling = self.tilings[position]
        row = tiling.choice.row
        names: list[str] = []
        spreads: list[Spread | None] = []
        for role, name in zip("ab", tiling.tiles[:2], strict=True):
            tile = self.tiles[name]
            if tile.scope == "shared":
                use = OperandUse(position, shared_operand(tiling, role), self._majors(tiling, role))
                self.draft.uses[name].append(use)
                names.append(name)
                spreads.append(None)
                continue
            named = self._operand(position, tile, tiling, role)
            names.append(named[0])
            spreads.append(named[1])
        issues = 1
        for letter in "mnk":
            issues *= self.space.size(tiling.repeats[letter])
        cycles = cost.matrix(self.space, row, issues)
        self._accumulate(position, tiling, (names[0], names[1]), (spreads[0], spreads[1]), cycles)

    def _majors(self, tiling: Tiling, role: str) -> tuple[str, ...]:
        row = tiling.choice.row
        return (row.a if role == "a" else row.b).majors

    def _operand(self, position: int, tile: Tile, tiling: Tiling, role: str) -> Named:
        wanted = operand_spread(tiling, role)
        for named in self.live[tile.name]:
            if named[1].same_owners(wanted) and packed_alike(tiling, role, named[1], tile.bits):
                return named
        why = f"{tiling.choice.row.name} at op {position} wants its {role} operand so"
        return self._converted(position, tile, wanted, why)

    def _accumulate(
        self,
        position: int,
        tiling: Tiling,
        names: tuple[str, str],
        spreads: tuple[Spread | None, Spread | None],
        cycles: float,
    ) -> None:
        tile = self.tiles[tiling.tiles[2]]
        main = self.live[tile.name][0]
        wanted = operand_spread(tiling, "c")
        fits = main[1].same_owners(wanted) and packed_alike(tiling, "c", main[1], tile.bits)
        why = f"{tiling.choice.row.name} at op {position} accumulates so"
        named = main if fits else self._converted(position, tile, wanted, why)
        draft = GemmDraft(position, tiling, (*names, named[0]), (*spreads, named[1]), cycles)
        self._add(draft, cycles)
        if not fits:
            self._convert(position, tile, named, main, f"{tile.name} lies elsewhere")
        self._written(tile.name)

    def _copy(self, position: int, op: TileOp) -> None:
        source, target = self.tiles[op.inputs[0]], self.tiles[op.outputs[0]]
        if "shared" in (source.scope, target.scope):
            self._with_shared(position, source, target)
        else:
            self._direct(position, source, target)
        if target.scope == "register":
            self._written(target.name)

    def _direct(self, position: int, source: Tile, target: Tile) -> None:
        load = source.scope == "global"
        memory, register = (source, target) if load else (target, source)
        named = (target.name, self.spreads[target.name]) if load else self.live[source.name][0]
        place = self.memories[memory.name]
        pinned = self.pins.get(position, "")
        for access in vector_accesses(self.space, named[1], register, place, load, pinned):
            refused = unaligned(self.space, memory, place, access)
            if refused is None:
                count = sectors(self.space, access, place, memory.bits)
                issues = self.space.size(access.issues)
                cycles = cost.global_access(self.space, issues, count)
                draft = DirectDraft(position, named, memory.name, load, access, count, cycles)
                self._add(draft, cycles)
                return
            self.draft.rejections.append((memory.name, position, refused))
        raise LayoutError(
            "no-copy",
            f"{self.program.name}: op {position}: no {pinned or 'load or store'} moves "
            f"{register.name} of {register.bits}-bit elements to or from {memory.name}"
            f"{memory.axes} as its layout and alignment of {memory.alignment} B are",
        )

    def _with_shared(self, position: int, source: Tile, target: Tile) -> None:
        shared, other = (source, target) if source.scope == "shared" else (target, source)
        uses = self.draft.uses[shared.name]
        pinned = self.pins.get(position, "")
        register: Named | None = None
        use: Use
        if other.scope == "register":
            load = shared is source
            register = (other.name, self.spreads[other.name]) if load else self.live[other.name][0]
            use = RegisterUse(position, register[1], load, pinned)
        else:
            load = shared is target
            use = GlobalUse(position, other, self.memories[other.name], load, pinned)
        self.draft.steps.append(SharedDraft(position, shared.name, len(uses), register, load))
        uses.append(use)
