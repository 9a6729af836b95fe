"""The search: instructions and warps for every gemm, in both directions of solving permutations,
then spreads, conversions and shared layouts; the cheapest complete candidates become solutions.

Owns the order of decisions and the bounds. Each part's own choice is made in its own module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice, product
from math import prod

from ir.layout.errors import LayoutError
from ir.layout.instructions import ROWS, find
from ir.layout.instructions.rows import minimal_sm
from ir.layout.synthesis import cost
from ir.layout.synthesis.candidate import Candidate
from ir.layout.synthesis.conversion import Converter
from ir.layout.synthesis.digits import Space
from ir.layout.synthesis.emit import emit
from ir.layout.synthesis.extents import extended
from ir.layout.synthesis.gemm import (
    Choice,
    Mapper,
    Tiling,
    axes_of,
    candidate_rows,
    choices,
    operand_spread,
    roles,
)
from ir.layout.synthesis.memory import LINE, shared_bytes
from ir.layout.synthesis.planner import Draft, Planner, scratch_bytes
from ir.layout.synthesis.problem import Tile, TileOp, TileProgram
from ir.layout.synthesis.registers import registers_needed
from ir.layout.synthesis.shared import SharedSolver
from ir.layout.synthesis.solution import Reason, Solution
from ir.layout.synthesis.thread_values import ELEMENTWISE, Origin, Spreads, memories
from ir.layout.synthesis.uses import AxisOrder, SharedChoice

KEPT = {1: 10, 2: 5, 3: 3}
"""Choices kept for each gemm, by the number of gemms."""
COMBINATIONS = 20
PLACEMENTS = 4
"""Placements of a shared tile that solutions may differ in."""


def synthesise(problem: TileProgram, limit: int = 8) -> tuple[Solution, ...]:
    """Up to `limit` solutions, the cheapest first; the same problem gives the same solutions.

    LayoutError with a reason code and the numbers if there is none: no instruction fits a gemm or a
    copy, the tiles do not fit the registers or shared memory, a pin contradicts the rest.
    """
    if limit < 1:
        raise LayoutError("limit", f"{problem.name}: {limit} solutions asked, needs at least 1")
    return _Search(extended(problem), limit).run()


class _Search:
    def __init__(self, program: TileProgram, limit: int) -> None:
        self.program, self.limit = program, limit
        self.space = Space(program)
        self.sm = minimal_sm(program.target)
        if not self.sm:
            raise LayoutError("target", f"{program.name}: target {program.target!r}, needs sm_NN")
        self.memories = memories(self.space, program)
        self.solver = SharedSolver(self.space, self.sm, min(PLACEMENTS, limit))
        self.converter = Converter(self.space, self.solver)
        self.reasons: list[Reason] = []
        self.failures: list[LayoutError] = []
        self.found: list[Candidate] = []
        self.totals: list[float] = []
        self.seen: set[object] = set()
        self.read_once = _read_once(program)
        self.floor = sum(map(cost.global_floor, _transfers(program)))
        self.rest = sum(cost.floor(self.space, program, op) for op in program.ops)
        _check_pins(program)

    def run(self) -> tuple[Solution, ...]:
        for combination in self._combinations():
            least = self.floor + self.rest + sum(self._score(choice) for choice in combination)
            if least > self._bound():
                continue
            for backwards in (False, True) if len(combination) > 1 else (False,):
                self._attempt(combination, backwards)
        if not self.found:
            raise self.failures[0]
        ranked: list[tuple[float, int, tuple[int, ...], Candidate]] = []
        for position, candidate in enumerate(self.found):
            for picks in candidate.variants():
                ranked.append((candidate.cycles(picks), position, picks, candidate))
        ranked.sort(key=lambda item: item[:3])
        return tuple(
            emit(self.space, self.program, candidate, picks, tuple(self.reasons))
            for _, _, picks, candidate in islice(ranked, self.limit)
        )

    def _bound(self) -> float:
        """Cycles above which a candidate cannot be among the solutions any more."""
        return self.totals[-1] if len(self.totals) >= self.limit else float("inf")

    def _keep(self, candidate: Candidate) -> None:
        self.found.append(candidate)
        totals = [candidate.cycles(picks) for picks in candidate.variants()]
        self.totals = sorted(self.totals + totals)[: self.limit]

    def _combinations(self) -> Iterator[tuple[Choice, ...]]:
        """Choices for all gemms together, the cheapest sums first."""
        gemms = [at for at, op in enumerate(self.program.ops) if op.kind == "gemm"]
        lists = [self._choices(at, KEPT.get(len(gemms), 2)) for at in gemms]
        everything = sorted(
            product(*(enumerate(options) for options in lists)),
            key=lambda picks: (
                len({(choice.warps, choice.swapped) for _, choice in picks}),
                sum(self._score(choice) + self._crossing(choice) for _, choice in picks),
                tuple(place for place, _ in picks),
            ),
        )
        for picks in everything[:COMBINATIONS]:
            yield tuple(choice for _, choice in picks)

    def _choices(self, position: int, kept: int) -> list[Choice]:
        op = self.program.ops[position]
        family = dict(self.program.pins.instructions).get(position, "")
        pinned = dict(self.program.pins.swapped).get(position)
        found, refused = candidate_rows(self.program, op, self.sm, family, pinned)
        output = op.outputs[0]
        self.reasons += [Reason(output, "refused", position, why.code, why.text) for why in refused]
        if not found:
            none = f"no {family or 'instruction'} is on sm_{self.sm}"
            texts = "; ".join(why.text for why in refused) or none
            code = refused[-1].code if refused else "no-instruction"
            raise LayoutError(code, f"{self.program.name}: op {position}: {texts}")
        options = choices(self.space, self.program, position, found)
        if not options:
            raise LayoutError("warp-division", self._undivided(position, found[0][0].name))
        scored = sorted(
            options,
            key=lambda choice: (self._score(choice) + self._crossing(choice), choice.row.name),
        )
        widened = [wide for choice in scored[:kept] for wide in self._widened(choice)]
        return widened[: 2 * kept]

    def _undivided(self, position: int, name: str) -> str:
        op = self.program.ops[position]
        extents = dict(self.program.tile(op.outputs[0]).axes)
        warps = self.program.threads // 32
        pinned = dict(self.program.pins.warps).get(position)
        how = f"pinned as {pinned[0]} x {pinned[1]}" if pinned else "in any way"
        return (
            f"{self.program.name}: op {position}: {warps} warps {how} do not divide "
            f"{extents} into whole {name}"
        )

    def _score(self, choice: Choice) -> float:
        """Cycles that no solution with this choice goes below, for its products and their reads."""
        op, row = self.program.ops[choice.op], choice.row
        a, _, c = roles(self.program, op, choice.swapped)
        extent = dict(a.axes)[str(op.attribute("k"))]
        issues = c.size * extent / (row.m * row.n * row.k) / prod(choice.warps)
        return cost.matrix(self.space, row, 1) * issues + self._reading(choice)

    def _reading(self, choice: Choice) -> float:
        """Reading the operands that are copied for this gemm alone from shared memory, once for
        each warp along the other axis."""
        a, b, _ = roles(self.program, self.program.ops[choice.op], choice.swapped)
        return sum(
            tile.size * tile.bits / 8 * times / LINE
            for tile, times in ((a, choice.warps[1]), (b, choice.warps[0]))
            if tile.name in self.read_once
        )

    def _crossing(self, choice: Choice) -> float:
        """A round trip through memory if warps divide an axis of the accumulator along which it is
        reduced or summed over by another gemm: a guess, to try others first."""
        op = self.program.ops[choice.op]
        along = {"m": choice.warps[0], "n": choice.warps[1]}
        axes = axes_of(op, choice.swapped)
        reached, summed = {op.outputs[0]}, set[str]()
        for other in self.program.ops[choice.op + 1 :]:
            if not reached & set(other.inputs):
                continue
            if other.kind in ELEMENTWISE:
                reached.add(other.outputs[0])
            summed |= {str(value) for key, value in other.attributes if key in ("axis", "k")}
        if not any(count > 1 and axes[letter] in summed for letter, count in along.items()):
            return 0.0
        tile = self.program.tile(op.outputs[0])
        return 2 * tile.size * tile.bits / 8 / LINE

    def _widened(self, choice: Choice) -> list[Choice]:
        """The choice, and with k permuted so that one lane's share of an operand that comes narrow
        from memory, or straight from global memory, lies side by side."""
        op = self.program.ops[choice.op]
        widths: set[int] = set()
        for tile in roles(self.program, op, choice.swapped)[:2]:
            if tile.scope != "register":
                continue
            loaded = self._loaded(tile.name)
            if loaded is None:
                continue
            bits = self.program.tile(loaded.outputs[0]).bits
            if bits != tile.bits or self.program.tile(loaded.inputs[0]).scope == "global":
                widths.add((128 // bits).bit_length() - 1)
        return [choice] + [
            Choice(choice.op, choice.row, choice.swapped, choice.slots, choice.warps, wide)
            for wide in sorted(widths, reverse=True)
        ]

    def _loaded(self, name: str) -> TileOp | None:
        """The copy by which an operand's elements came into registers, through elementwise ops that
        keep their places; None if they were computed there."""
        for _ in self.program.ops:
            maker = next((op for op in self.program.ops if name in op.outputs), None)
            if maker is None or maker.kind == "copy":
                return maker
            axes = set(self.program.tile(name).names)
            whole = [i for i in maker.inputs if set(self.program.tile(i).names) == axes]
            if maker.kind not in ELEMENTWISE or not whole or whole[0] == name:
                return None
            name = whole[0]
        return None

    def _attempt(self, combination: tuple[Choice, ...], backwards: bool) -> None:
        """Add one complete candidate, or note why there is none."""
        spreads = Spreads(self.space, self.program, self.memories)
        for tile in self.program.tiles:
            if tile.scope == "register" and tile.layout:
                spreads.set(tile.name, self.space.read_spread(tile), -1, "pinned by the author")
        tilings: dict[int, Tiling] = {}
        spreads.propagate()
        for choice in reversed(combination) if backwards else combination:
            tiling = Mapper(self.space, self.program, choice).solve(spreads.known)
            if tiling is None:
                self._fail("digit-map", f"{choice.row.name} does not fit op {choice.op}'s digits")
                return
            tilings[choice.op] = tiling
            self._anchor(spreads, tiling)
            spreads.propagate()
        spreads.anchor_copies()
        key = _key(spreads, tilings)
        if key not in self.seen:
            self.seen.add(key)
            candidate = self._complete(spreads, tilings)
            if candidate is not None:
                self._keep(candidate)

    def _fail(self, code: str, text: str) -> None:
        self.failures.append(LayoutError(code, f"{self.program.name}: {text}"))

    def _anchor(self, spreads: Spreads, tiling: Tiling) -> None:
        """The instruction's own spreads for its register operands; where the owners are right
        already, only the order of their values follows the instruction."""
        row = tiling.choice.row
        for role, name in zip("abc", tiling.tiles, strict=True):
            tile = self.program.tile(name)
            if tile.scope != "register":
                continue
            wanted = operand_spread(tiling, role)
            known = spreads.known.get(name)
            if known is None:
                warps = " x ".join(map(str, tiling.choice.warps))
                text = f"{role.upper()} operand of {row.name}, {warps} along its m and n"
                spreads.set(name, wanted, tiling.choice.op, text)
            elif not tile.layout and known.same_owners(wanted) and role != "c":
                spreads.known[name] = wanted
                text = f"{spreads.origin[name].text}; it is {role.upper()} of {row.name} as it is"
                spreads.origin[name] = Origin(spreads.origin[name].op, text)

    def _complete(self, spreads: Spreads, tilings: Mapping[int, Tiling]) -> Candidate | None:
        program, bound = self.program, self._bound()
        floor = self.floor + sum(self._reading(tiling.choice) for tiling in tilings.values())
        try:
            draft = Planner(
                self.space,
                program,
                spreads.known,
                tilings,
                self.memories,
                self.converter,
                bound - floor,
            ).run()
        except LayoutError as error:
            self.failures.append(error)
            return None
        if draft is None:
            return None
        needed = registers_needed(self.space, draft)
        if needed > program.registers:
            self._fail(
                "registers",
                f"{needed} registers of a thread are live at once, there are {program.registers}",
            )
            return None
        solved: dict[str, tuple[SharedChoice, ...]] = {}
        spent = draft.cycles
        for name, uses in draft.uses.items():
            tile = program.tile(name)
            found = self.solver.solve(tile, tuple(uses), self._along(name, tilings))
            if not found:
                self._no_layout(name)
                return None
            solved[name] = found
            spent += found[0].cycles
            if spent > bound:
                return None
        if not self._fits(draft, solved):
            return None
        return Candidate(draft, dict(spreads.known), dict(spreads.origin), dict(tilings), solved)

    def _fits(self, draft: Draft, solved: Mapping[str, tuple[SharedChoice, ...]]) -> bool:
        """Whether tiles and the scratch of the hungriest step fit shared memory together."""
        tiles = sum(
            shared_bytes(self.space, self.program.tile(name), found[0].placement)
            for name, found in solved.items()
        )
        scratch = max((scratch_bytes(self.space, step) for step in draft.steps), default=0)
        there = self.program.shared_bytes
        if tiles + scratch > there:
            text = f"{tiles + scratch:,} B of shared memory needed ({scratch:,} B scratch)"
            self._fail("shared-memory", f"{text}, {there:,} B there")
        return tiles + scratch <= there

    def _no_layout(self, name: str) -> None:
        refused = self.solver.refusal(name)
        self._fail(
            refused.code, f"no layout of {name} serves all its readers and writers: {refused.text}"
        )

    def _along(self, name: str, tilings: Mapping[int, Tiling]) -> tuple[AxisOrder, ...]:
        """Orders of the tile's axes in which some instruction counts them."""
        axes = set(self.program.tile(name).names)
        found = []
        for position, tiling in tilings.items():
            op = self.program.ops[position]
            mine = {
                name,
                *(o.outputs[0] for o in self.program.ops if o.kind == "copy" and name in o.inputs),
            }
            if not mine & set(op.inputs):
                continue
            named = {"m": "n", "n": "m", "k": "k"} if tiling.choice.swapped else None
            entry = []
            for letter in "mnk":
                axis = str(op.attribute(named[letter] if named else letter))
                if axis in axes:
                    entry.append((axis, tiling.whole(letter)))
            found.append(tuple(entry))
        return tuple(dict.fromkeys(found))


def _key(spreads: Spreads, tilings: Mapping[int, Tiling]) -> object:
    """Equal for choices that come to the same."""
    return tuple(sorted(spreads.known.items(), key=lambda item: item[0])), tuple(
        (at, t.choice.row.name, t.choice.swapped, tuple(sorted(t.place.items())), t.warp)
        for at, t in sorted(tilings.items())
    )


def _transfers(program: TileProgram) -> Iterator[Tile]:
    """Global tiles that are copied to or from shared memory."""
    for op in program.ops:
        tiles = [program.tile(name) for name in (*op.inputs, *op.outputs)]
        if op.kind == "copy" and {tile.scope for tile in tiles} == {"global", "shared"}:
            yield next(tile for tile in tiles if tile.scope == "global")


def _read_once(program: TileProgram) -> set[str]:
    """Register tiles copied from shared memory for one gemm alone."""
    found: set[str] = set()
    for op in program.ops:
        name = op.outputs[0]
        readers = [reader.kind for reader in program.ops if name in reader.inputs]
        alone = op.kind == "copy" and readers == ["gemm"]
        if alone and program.tile(op.inputs[0]).scope == "shared":
            found.add(name)
    return found


def _check_pins(program: TileProgram) -> None:
    """Every pinned instruction is one, or a family of some."""
    for _, name in program.pins.instructions:
        if name not in ROWS and not any(known.startswith(name + ".") for known in ROWS):
            find(name)
