"""Which ways to cut a phase of plain kernels look fastest: of one program once, wherever it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from ir.program import Program
from ir.schedule import Value
from ir.target import Hardware

MOST = 6  # ways to cut among the seeds
_THREADS = (256, 512, 128)  # of a tile's block
KINDS = 4  # kinds of ways that have one of them
Cut = tuple[tuple[str, Value], ...]


def fastest_cuts(
    program: Program, hardware: Hardware, name: Callable[[str], str]
) -> list[dict[str, Value]]:
    """The ways whose first seed takes the least time, by `name` of each decision.

    Residences of a program have phases in common, which differ in how many kernels come before.
    """
    found = _fastest(program.named("phase"), hardware)
    return [{name(stem): value for stem, value in cut} for cut in found]


@lru_cache(maxsize=256)
def _fastest(program: Program, hardware: Hardware) -> tuple[Cut, ...]:
    from ir.targets.cuda.cost.plain_costs import PlainCosts
    from ir.targets.cuda.space.plain import PlainCudaKernel

    kernel = PlainCudaKernel(program, "", hardware)
    costs, first = PlainCosts(kernel), kernel.uncut_seeds()[0]
    ranked = sorted(kernel.cuts.all(), key=lambda cut: costs.clocks(kernel.cuts.ways(cut), first))
    kinds: dict[Cut, int] = {}  # of each kind of way the fastest: costs of kinds compare less well
    for number, cut in enumerate(ranked):
        kinds.setdefault(tuple(one for one in cut.items() if isinstance(one[1], bool)), number)
    chosen = dict.fromkeys((*list(kinds.values())[:KINDS], *range(len(ranked))))
    return tuple(tuple(ranked[number].items()) for number in list(chosen)[:MOST])


def tiled_seeds(
    cuts: Sequence[Mapping[str, Value]], plain: Sequence[Mapping[str, Value]],
    single: Mapping[str, Value], overlap: str, threads: str,
) -> list[dict[str, Value]]:  # fmt: skip
    """Of the ways that look fastest, in their order: `plain` step by step, `single` by tiles of
    several steps, with threads of each number."""
    found: list[dict[str, Value]] = []
    for number, cut in enumerate(cuts):
        if cut in cuts[:number]:
            continue
        if cut[overlap] == 1:
            found += [{**seed, **cut} for seed in plain]
        else:
            found += [{**single, **cut, threads: count} for count in _THREADS]
    return found
