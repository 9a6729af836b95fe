"""A complete choice in digits, before any text: what the search compares. Data only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ir.layout.synthesis.digits import Spread
from ir.layout.synthesis.gemm import Tiling
from ir.layout.synthesis.planner import Draft
from ir.layout.synthesis.thread_values import Origin
from ir.layout.synthesis.uses import SharedChoice


@dataclass(frozen=True, slots=True)
class Candidate:
    """The planned ops, where the spreads come from, and for each shared tile its best placements,
    the cheapest first."""

    draft: Draft
    spreads: Mapping[str, Spread]
    origins: Mapping[str, Origin]
    tilings: Mapping[int, Tiling]
    shared: Mapping[str, tuple[SharedChoice, ...]]

    def variants(self) -> Iterator[tuple[int, ...]]:
        """The best placement of every shared tile, and each other one with the rest best."""
        sizes = [len(choices) for choices in self.shared.values()]
        best = (0,) * len(sizes)
        yield best
        for at, size in enumerate(sizes):
            for pick in range(1, size):
                yield (*best[:at], pick, *best[at + 1 :])

    def cycles(self, picks: tuple[int, ...]) -> float:
        chosen = zip(self.shared.values(), picks, strict=True)
        return self.draft.cycles + sum(choices[pick].cycles for choices, pick in chosen)

    def chosen(self, picks: tuple[int, ...]) -> dict[str, SharedChoice]:
        """Shared tile -> its choice."""
        pairs = zip(self.shared.items(), picks, strict=True)
        return {name: choices[pick] for (name, choices), pick in pairs}
