"""From one spread of a tile to another: renamed registers, exchanges within warps, or shared
memory.

Owns which moves do it and what they cost. A bit of the lane and a bit of the value change places by
select, shuffle, select (arXiv 2505.23819); what crosses warps goes through memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ir.layout.errors import LayoutError
from ir.layout.synthesis import cost
from ir.layout.synthesis.digits import LANE_DIGITS, NOBODY, Space, Spread, text
from ir.layout.synthesis.memory import LINE
from ir.layout.synthesis.problem import Tile
from ir.layout.synthesis.shared import SharedSolver
from ir.layout.synthesis.solution import Move
from ir.layout.synthesis.uses import RegisterUse, SharedChoice


@dataclass(frozen=True, slots=True)
class Conversion:
    """How the elements get from `source` to `target`: moves, or a shared tile (`through`)."""

    price_class: str
    cycles: float
    moves: tuple[Move, ...] = ()
    through: SharedChoice | None = None


class Converter:
    """Plans conversions of one problem; equal questions are answered once."""

    def __init__(self, space: Space, solver: SharedSolver) -> None:
        self.space, self.solver = space, solver
        self._known: dict[tuple[str, Spread, Spread], Conversion] = {}

    def plan(self, tile: Tile, source: Spread, target: Spread) -> Conversion:
        """The cheapest conversion of `tile`; LayoutError "no-copy" for one of 4-bit elements that
        no access of whole bytes can take apart."""
        key = (tile.name, source, target)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._plan(tile, source, target)
        return found

    def least(self, tile: Tile, source: Spread, target: Spread) -> float:
        """Cycles that a conversion cannot go below, without planning it."""
        key = (tile.name, source, target)
        if key in self._known:
            return self._known[key].cycles
        if source.threads == target.threads:
            return 0.0
        crosses = source.threads[LANE_DIGITS:] != target.threads[LANE_DIGITS:]
        return self._memory_floor(tile) if crosses and NOBODY not in source.threads else 0.0

    def _memory_floor(self, tile: Tile) -> float:
        """A round trip through memory without any conflict."""
        waits = cost.LATENCY["shared"] + 2 * cost.LATENCY["barrier"]
        return 2 * tile.size * tile.bits / 8 / LINE + waits

    def _plan(self, tile: Tile, source: Spread, target: Spread) -> Conversion:
        warp = _Warp(self.space, source, target)
        inside = warp.run()
        through = None
        if inside is None:
            through = self._through_memory(tile, source, target)
        else:
            shuffles = [move for move in inside if move.kind != "rename"]
            if not shuffles:
                return Conversion("rename", self._renaming(tile, source, target), inside)
            cycles = cost.moves(self.space, warp.exchanged * tile.bits, warp.permuted * tile.bits)
            cycles += cost.LATENCY["shuffle"] * len(shuffles)
            if cycles > self._memory_floor(tile):
                through = self._through_memory(tile, source, target)
            if through is None or cycles <= through.cycles:
                return Conversion("shuffle", cycles, inside)
        return through

    def _renaming(self, tile: Tile, source: Spread, target: Spread) -> float:
        """Free for whole registers; a permutation of bytes where neighbours change."""
        if tile.bits >= 32 or source.values[:1] == target.values[:1]:
            return 0.0
        registers = self.space.size(target.values) * tile.bits / 32
        return cost.elementwise(self.space, 1, registers * 2)

    def _through_memory(self, tile: Tile, source: Spread, target: Spread) -> Conversion:
        uses = (
            RegisterUse(-1, source, False),
            RegisterUse(-1, target, True),
        )
        scratch = Tile(f"{tile.name}__scratch", tile.dtype, tile.axes, "shared")
        choices = self.solver.solve(scratch, uses, ())
        if not choices:
            refused = self.solver.refusal(scratch.name)
            raise LayoutError(refused.code, f"conversion of {tile.name}: {refused.text}")
        waits = cost.LATENCY["shared"] + 2 * cost.LATENCY["barrier"]
        return Conversion("shared", choices[0].cycles + waits, (), choices[0])


class _Warp:
    """Moves within warps, slot by slot; the state is a spread that changes with every move. Values
    added by a rename that repeats elements are numbered by digits past the tile's own."""

    def __init__(self, space: Space, source: Spread, target: Spread) -> None:
        self.space, self.target = space, target
        self.threads, self.values = list(source.threads), list(source.values)
        self.moves: list[Move] = []
        self.exchanged = self.permuted = 0  # values of a thread, summed over the moves

    def run(self) -> tuple[Move, ...] | None:
        """The moves in order; None where elements cross warps."""
        self._permute()
        for at, wanted in enumerate(self.target.threads):
            if self.threads[at] == wanted:
                continue
            own = at < LANE_DIGITS
            if wanted == NOBODY:
                if not own:
                    return None
                self._spread_out(at)
            elif wanted in self.values and self.threads[at] == NOBODY:
                self._select(at, wanted)
            elif own and wanted in self.values:
                self._exchange(at, wanted)
            else:
                return None
        if tuple(self.threads) != self.target.threads:
            return None
        if self.values != list(self.target.values):
            if set(self.values) != set(self.target.values):
                return None
            self._rename(self.target.values)
        return tuple(self.moves)

    def _strides(self, values: Sequence[int]) -> dict[int, int]:
        return self.space.value_strides(values)

    def _rename(self, values: Sequence[int], chosen: dict[int, int] | None = None) -> None:
        """New value order; `chosen`: thread slot -> digit whose value the thread's own bit
        picks."""
        strides = self._strides(self.values)
        threads = [
            (radix, strides[chosen[at]] if chosen and at in chosen else 0)
            for at, (_, radix) in enumerate(self.space.threads)
        ]
        modes = [(self.space.radix[digit], strides[digit]) for digit in values]
        self.moves.append(Move("rename", text(threads, modes)))
        self.values = list(values)

    def _select(self, at: int, digit: int) -> None:
        """All threads along the slot hold both; each keeps its own half."""
        if self.space.radix[digit] != self.space.threads[at][1]:
            return
        self._rename([item for item in self.values if item != digit], {at: digit})
        self.threads[at] = digit

    def _exchange(self, at: int, digit: int) -> None:
        stride = self._strides(self.values)[digit]
        self.moves.append(Move("exchange", "", 1 << at, stride))
        self.exchanged += self.space.size(self.values)
        self.values[self.values.index(digit)] = self.threads[at]
        self.threads[at] = digit

    def _permute(self) -> None:
        """Bring every digit that is wanted on some lane bit from another there, in one move; the
        other lane bits stay where they can."""
        wanted = self.target.threads[:LANE_DIGITS]
        here = self.threads[:LANE_DIGITS]
        source = {at: here.index(d) for at, d in enumerate(wanted) if d != NOBODY and d in here}
        free = [at for at in range(LANE_DIGITS) if at not in source.values()]
        for at in range(LANE_DIGITS):
            if at not in source:
                source[at] = at if at in free else free[0]
                free.remove(source[at])
        if all(at == place for at, place in source.items()):
            return
        modes = [
            (radix, 1 << source[at] if at in source else stride)
            for at, (stride, radix) in enumerate(self.space.threads)
        ]
        self.moves.append(Move("lanes", text(modes)))
        self.permuted += self.space.size(self.values)
        self.threads[:LANE_DIGITS] = [here[source[at]] for at in range(LANE_DIGITS)]

    def _spread_out(self, at: int) -> None:
        """Every lane along the slot shall hold both halves: values are repeated, then one copy of
        each changes places with the lane bit."""
        held = self.threads[at]
        strides = self._strides(self.values)
        modes = [(self.space.radix[digit], strides[digit]) for digit in self.values]
        threads = [(radix, 0) for _, radix in self.space.threads]
        self.moves.append(Move("rename", text(threads, [*modes, (2, 0)])))
        size = self.space.size(self.values)
        self.moves.append(Move("exchange", "", 1 << at, size))
        self.exchanged += 2 * size
        self.values.append(held)
        self.threads[at] = NOBODY
