"""Choices of a block kernel beside its tile: what is held, and when memory is asked for what.

A schedule from before there was such a choice means its first value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from ir.columns import Decision
from ir.dtypes import dtype_of
from ir.ops.load import Load
from ir.program import Program
from ir.schedule import Value
from ir.target import Hardware
from ir.targets.cuda.build.readers import loaded_late, read_again
from ir.targets.cuda.grid.overlap import PREFETCH
from ir.targets.cuda.layouts.access import load_access
from ir.targets.cuda.lower.block_parts import shared_loops
from ir.targets.cuda.space.block_clusters import NONE, SPREAD, spread_axes
from ir.targets.cuda.text.transfers import LEAST_COPY

KEEP, LOADS, STORES = "keep", "loads", "stores"
WALKERS, AHEAD, PARTS = "walkers", "ahead", "parts"
PARTS_USUAL, PARTS_MORE = (1, 2, 4, 8, 16, 32, 64), (128, 256)
MAX_TILE = 1 << 15
FEW = 16  # elements of outputs for each processor, below which their sums may have more parts
LONG, MIDDLING = 1 << 19, 128  # points of a sum, and such elements where it has as many
WAITS, SHARED, REGISTERS = "waits", "shared", "registers"
NEEDED, FIRST = "needed", "first"
PLAIN, STREAM = "plain", "stream"

Name = Callable[[str], str]


def power_above(extent: int) -> int:
    """The least power of two that is no less."""
    return 1 << max(0, extent - 1).bit_length()


@dataclass(frozen=True, slots=True)
class Options:
    """The choices of one schedule."""

    keep: bool
    first: bool
    stream: bool
    prefetch: int
    walkers: int
    ahead: int
    waits: str
    parts: int
    spread: str


def options_of(values: Mapping[str, Value], name: Name) -> Options:
    return Options(
        keep=bool(values.get(name(KEEP), False)),
        first=values.get(name(LOADS), NEEDED) == FIRST,
        stream=values.get(name(STORES), PLAIN) == STREAM,
        prefetch=int(values.get(name(PREFETCH), 0)),
        walkers=int(values.get(name(WALKERS), 0)),
        ahead=int(values.get(name(AHEAD), 0)),
        waits=str(values.get(name(WAITS), SHARED)),
        parts=int(values.get(name(PARTS), 1)),
        spread=spread_of(values, name),
    )


def spread_of(values: Mapping[str, Value], name: Name) -> str:
    """The summed axis that the blocks of a cluster share; empty for none."""
    axis = str(values.get(name(SPREAD), NONE))
    return "" if axis == NONE else axis


def option_decisions(program: Program, hardware: Hardware, name: Name, axis: str) -> list[Decision]:
    """The choices that make a difference to this program on this card; `axis` owns them."""
    found = []

    def offer(stem: str, domain: tuple[Value, ...], group: str, why: str) -> None:
        first = domain[0]
        found.append(Decision(name(stem), domain, group, axis, why, first, unsaid=first))

    if read_again(program):
        offer(KEEP, (False, True), "binding",
              "holding values that are read again, rather than computing them again")  # fmt: skip
    if loaded_late(program):
        offer(LOADS, (NEEDED, FIRST), "pipeline",
              "loads that no reduction waits for: where needed, or before all")  # fmt: skip
    offer(STORES, (PLAIN, STREAM), "epilogue",
          "whether what is written is the first to leave the L2 cache")  # fmt: skip
    offer(WALKERS, (0, 1, 2, 3, 4, 6, 8), "order",
          "blocks of a processor that walk the tiles; 0: a block for each tile")  # fmt: skip
    if any(copies_words(program, position) for position in range(len(program.nodes))):
        offer(AHEAD, (0, 1, 2, 3, 4, 6), "pipeline",
              "steps of a walk whose loads are under way")  # fmt: skip
        offer(WAITS, (SHARED, REGISTERS), "pipeline",
              "where the loads of later steps wait")  # fmt: skip
    if shared_loops(program):
        offer(PARTS, parts_of(program, hardware), "split",
              "blocks that share a walk; the last of them to arrive adds the parts")  # fmt: skip
    spread = spread_axes(program) if hardware["major"] >= 9 else ()
    if spread:
        offer(SPREAD, (NONE, *spread), "split",
              "a summed axis that the blocks of a cluster hold, each a tile of it")  # fmt: skip
    if hardware["major"] >= 9 and any(isinstance(node.op, Load) for node in program.nodes):
        offer(PREFETCH, (0, 1, 2, 4), "pipeline",
              "first steps that are asked for while the kernel before still runs")  # fmt: skip
    return found


def parts_of(program: Program, hardware: Hardware) -> tuple[int, ...]:
    """Of how many parts a sum may be: of more where outputs are few, or sums so long that it pays
    for blocks of products, too, that have many points each."""
    points, longest = (
        stored_points(program),
        max(map(program.axes.__getitem__, shared_loops(program))),
    )
    few = points < (MIDDLING if longest >= LONG else FEW) * int(hardware["sms"])
    return (*PARTS_USUAL, *PARTS_MORE) if few else PARTS_USUAL


def stored_points(program: Program) -> int:
    """Elements of the largest output."""
    return max(prod(program.axes[axis] for axis in store.axes) for _, store in program.stores())


def copies_words(program: Program, position: int) -> bool:
    """Whether some schedule copies a load in 4 bytes or more at a time, as cp.async needs."""
    op = program.nodes[position].op
    if not isinstance(op, Load) or program.nodes[position].args or not op.index:
        return False
    spec = program.scope.tensors[op.tensor]
    size = dtype_of(spec.dtype).bytes
    if size >= LEAST_COPY:
        return size == LEAST_COPY
    access, width = load_access(op, spec), LEAST_COPY // size
    steps = [d.stride * c for d in access.dimensions for _, c in d.terms if d.stride * c > 1]
    steps += [access.dimensions[-1].extent, access.constant]
    return all(step % width == 0 for step in steps)


def chosen(
    options: Sequence[Decision], name: Name, changed: Mapping[str, Value]
) -> dict[str, Value]:
    """Values to start from: what is held and streamed pays nearly everywhere, depth where said."""
    usual: dict[str, Value] = {KEEP: True, LOADS: FIRST, STORES: STREAM}
    wanted = {name(stem): value for stem, value in {**usual, **changed}.items()}
    return {option.name: wanted.get(option.name, option.domain[0]) for option in options}
