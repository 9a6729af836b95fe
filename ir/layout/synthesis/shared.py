"""One shared tile: the layout on which its writers and readers agree.

Each use asks that certain digits lie first and side by side (a partial layout). Demands that begin
alike unify; every unified demand is completed to whole layouts, serving.py puts each to all uses,
and the cheapest stay. Knows no spread's origin and no other tile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ir.layout.synthesis.bulk import Boxes, Canonical
from ir.layout.synthesis.copies import matrix_run, register_accesses
from ir.layout.synthesis.digits import Space
from ir.layout.synthesis.gemm import Rejection
from ir.layout.synthesis.memory import Placement, compact, orders
from ir.layout.synthesis.problem import Tile
from ir.layout.synthesis.serving import GlobalMemo, Serving
from ir.layout.synthesis.uses import AxisOrder, GlobalUse, RegisterUse, SharedChoice, Use

LINES = (128, 64, 32, 16)


class SharedSolver:
    """Solves shared tiles of one problem, keeping the `kept` best placements of each; equal
    questions are answered once."""

    def __init__(self, space: Space, sm: int, kept: int) -> None:
        self.space, self.sm, self.kept = space, sm, kept
        self._known: dict[object, tuple[SharedChoice, ...]] = {}
        self._memo: GlobalMemo = {}
        self._refused: dict[str, Counter[Rejection]] = {}

    def solve(
        self, tile: Tile, uses: tuple[Use, ...], along: tuple[AxisOrder, ...]
    ) -> tuple[SharedChoice, ...]:
        """The cheapest placements, best first; none if no placement serves every use. `along`:
        orders in which the digits of the axes may be taken."""
        key = (tile.name, uses, along)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._solve(tile, uses, along)
        return found

    def refusal(self, name: str) -> Rejection:
        """What most often kept a placement of the tile from serving, a lack of any copy last."""
        refused = self._refused.get(name)
        if not refused:
            return Rejection("no-copy", f"{name}: no layout at all")
        return max(
            reversed(list(refused)),
            key=lambda rejection: (rejection.code != "no-copy", refused[rejection]),
        )

    def _solve(
        self, tile: Tile, uses: tuple[Use, ...], along: tuple[AxisOrder, ...]
    ) -> tuple[SharedChoice, ...]:
        found: dict[object, SharedChoice] = {}
        bound = float("inf")
        for placement in self._placements(tile, uses, along):
            for choice in self._served(tile, uses, placement, bound):
                key = (choice.placement.order, choice.placement.swizzle)
                if key not in found or choice.cycles < found[key].cycles:
                    found[key] = choice
                if len(found) >= self.kept:
                    bound = sorted(other.cycles for other in found.values())[self.kept - 1]
        ranked = sorted(found.values(), key=lambda choice: (choice.cycles, choice.placement.order))
        return tuple(ranked[: self.kept])

    def _served(
        self, tile: Tile, uses: tuple[Use, ...], placement: Placement, bound: float
    ) -> Iterator[SharedChoice]:
        """The choice with TMA where it goes; a second one without, if TMA's few swizzles leave
        conflicts."""
        for bulk in (True, False):
            serving = Serving(self.space, self.sm, tile, uses, placement, bulk, self._memo)
            choice = serving.run(bound)
            if isinstance(choice, Rejection):
                self._refused.setdefault(tile.name, Counter())[choice] += 1
            if not isinstance(choice, SharedChoice):
                return
            yield choice
            kinds = {type(decision) for decision in choice.decisions}
            if max(choice.ways, default=1) == 1 or Boxes not in kinds or Canonical in kinds:
                return

    def _placements(
        self, tile: Tile, uses: tuple[Use, ...], along: tuple[AxisOrder, ...]
    ) -> Iterator[Placement]:
        seen: set[tuple[tuple[int, ...], int]] = set()
        for placement in (
            *self._by_axes(tile, uses, along),
            *self._by_demands(tile, uses),
        ):
            if (placement.order, placement.line) not in seen:
                seen.add((placement.order, placement.line))
                yield placement

    def _by_axes(
        self, tile: Tile, uses: tuple[Use, ...], along: tuple[AxisOrder, ...]
    ) -> Iterator[Placement]:
        """One axis contiguous, whole or in rows of a swizzle atom's width, its digits counted in
        the natural order or in an instruction's. What is contiguous in global memory comes first,
        so that a good bound is there early."""
        bulk = any(not isinstance(use, RegisterUse) for use in uses)
        lines = (*LINES, 0) if bulk else (0,)
        leading = {
            self.space.axis[use.memory.order[0]]
            for use in uses
            if isinstance(use, GlobalUse) and use.memory.order
        }
        names = sorted(tile.names, key=lambda name: name not in leading)
        natural = {name: self.space.of[name] for name in tile.names}
        for order in ((), *along):
            digits = {**natural, **dict(order)}
            for contiguous in names:
                for line in lines:
                    placement = orders(self.space, tile, contiguous, digits, line)
                    if placement is not None:
                        yield placement

    def _by_demands(self, tile: Tile, uses: tuple[Use, ...]) -> Iterator[Placement]:
        """The order of a global memory that is stored in a way of its own; and what matrix copies
        ask to lie first, the rest in the natural order."""
        digits = self.space.digits(tile)
        for use in uses:
            if isinstance(use, GlobalUse) and set(use.memory.order) == set(digits):
                yield compact(self.space, use.memory.order)
            elif isinstance(use, RegisterUse):
                for run in self._runs(tile, use):
                    rest = (digit for digit in digits if digit not in run)
                    yield compact(self.space, (*run, *rest))

    def _runs(self, tile: Tile, use: RegisterUse) -> Iterator[tuple[int, ...]]:
        for access in register_accesses(
            self.space, use.spread, tile, use.load, self.sm, use.pinned
        ):
            run = matrix_run(use.spread, access, tile.bits)
            if all(self.space.radix[digit] == 2 for digit in run):
                yield run
