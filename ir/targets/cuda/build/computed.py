"""Operands that are computed in the registers of the threads that multiply them.

What they are made of: raw tiles, which TMA brings to shared memory as it brings plain operands, and
small values, which threads read from memory themselves. Knows no schedule and no text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from ir.dtypes import dtype_of
from ir.ops.load import Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.reduce import Carry
from ir.program import Program
from ir.stages import is_reduction
from ir.targets.cuda.build.products import Product, copy_problem, loads_of, lookup_problem, volume
from ir.targets.cuda.layouts.access import load_access
from ir.targets.cuda.layouts.operands import Joined, joined

TYPES = ("bf16", "f16")  # of operands that registers hold
SMALL = 16  # points of an operand for each of a load that threads may read from memory
WORD = 4  # bytes that an element of a raw tile may have
WHOLE = 64  # most points of the inner summed axes that a tile has whole


def register_problem(program: Program, product: Product, position: int) -> str:
    """Why an operand of a product cannot be computed in registers; empty if it can.

    Reductions count as loads: they are cut off.
    """
    node = program.nodes[position]
    if node.dtype not in TYPES:
        return f"operands from registers are {' or '.join(TYPES)}, not {node.dtype}"
    if isinstance(program.nodes[product.position].op, Carry):
        return "its product is corrected on its way"
    if not {*product.over} & read_along(program, product):
        return "nothing that is read varies along what is summed"
    for here in _below(program, position):
        one = program.nodes[here]
        if isinstance(one.op, Load):
            problem = lookup_problem(program, here, one.op)
            if problem:
                return f"{one.op.tensor}: {problem}"
        elif not isinstance(one.op, Map | Cast | Constant | Iota) and not is_reduction(one):
            return f"{one.op.name} is not computed point by point"
    return ""


def read_along(program: Program, product: Product) -> set[str]:
    """The axes along which what a product's operands are made of varies where it is copied."""
    loads = (load for x in (product.a, product.b) for load in large_loads(program, x))
    return {axis for load in loads for axis in program.nodes[load].axes}


def walked_order(program: Program, product: Product, walked: tuple[str, ...]) -> tuple[str, ...]:
    """What is summed as it lies in the memory of b, the slowest first, around that what nothing is
    read along (the parts of numbers)."""
    read = read_along(program, product)
    ordered = by_stride(program, product.b, walked)
    return (*(a for a in ordered if a not in read), *(a for a in ordered if a in read))


def _below(program: Program, position: int) -> set[int]:
    """A value and what it is made of, not looking behind reductions."""
    return {*program.behind([position], lambda here: is_reduction(program.nodes[here]))}


def below(program: Program, position: int) -> frozenset[int]:
    """A value and all that it is made of up to loads and reductions."""
    return frozenset(_below(program, position))


def raw_loads(
    program: Program, position: int, rows: tuple[str, ...], walk: Walk
) -> tuple[int, ...]:
    """The loads of a computed operand that wait in shared memory.

    They vary along the walk, and their lines run along the rows or the main walked axis. A small
    load that lacks the axes inside that has lines too short to be worth a copy.
    """
    found = []
    large = large_loads(program, position)
    for load in loads_of(program, position):
        node = program.nodes[load]
        varies = {walk.main, *walk.whole} & set(node.axes)
        if not varies or fetch_problem(program, load, walk) or dtype_of(node.dtype).bytes > WORD:
            continue
        line = run_axes(program, load, walk)
        whole = load in large or set(walk.whole) <= set(line)
        if line and (line[0] in rows or (line[0] == walk.main and whole)):
            found.append(load)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Walk:
    """The axis along which blocks of the sum follow each other, and those inside it."""

    main: str
    whole: tuple[str, ...]


@lru_cache(maxsize=4096)
def dimensions_of(program: Program, position: int, walk: Walk) -> tuple[Joined, ...]:
    """The dimensions of a load with the walk's inner axes joined to the main one."""
    op = program.nodes[position].op
    assert isinstance(op, Load)
    some = {walk.main: 0, **{axis: program.axes[axis] for axis in walk.whole}}
    return joined(op, program.scope.tensors[op.tensor], some, program.axes)


def fetch_problem(program: Program, position: int, walk: Walk) -> str:
    """Why TMA cannot copy the tiles of a walk; empty if it can."""
    if not isinstance(program.nodes[position].op, Load):
        return "it is computed"
    seen = tuple((d.index, d.extent) for d in dimensions_of(program, position, walk))
    return copy_problem(program, position, seen) or walk_problem(program, position, walk)


def find_walk(program: Program, walked: tuple[str, ...], loads: Sequence[int]) -> Walk:
    """How summed axes are walked, so that TMA copies the tiles of `loads`.

    As many inner axes as may be are in every tile whole: blocks are then cut at any multiple.
    """
    for first in range(1, len(walked)):
        walk = Walk(walked[first - 1], walked[first:])
        extents = [program.axes[axis] for axis in walk.whole]
        powers = all(extent & (extent - 1) == 0 for extent in extents)
        short = powers and prod(extents) <= WHOLE
        if short and not any(fetch_problem(program, load, walk) for load in loads):
            return walk
    return Walk(walked[-1], ())


def large_loads(program: Program, position: int) -> tuple[int, ...]:
    """Loads of a computed operand that threads should not read from memory themselves."""
    points = volume(program, program.nodes[position].axes)
    return tuple(
        load
        for load in sorted(_below(program, position))
        if isinstance(program.nodes[load].op, Load)
        and volume(program, program.nodes[load].axes) * SMALL > points
    )


def run_axes(program: Program, position: int, walk: Walk) -> tuple[str, ...]:
    """The axes that the points of a load's lines count."""
    last = dimensions_of(program, position, walk)[-1]
    first = [axis for axis, coefficient in last.index.terms if coefficient == 1]
    return (*first, *(axis for axis, _ in last.whole))


def walk_problem(program: Program, position: int, walk: Walk) -> str:
    """Why a load's points do not follow each other as blocks of the sum count them."""
    own = [axis for axis in walk.whole if axis in program.nodes[position].axes]
    for d in dimensions_of(program, position, walk):
        inside = [axis for axis, _ in d.whole]
        if inside == own and (not own or (walk.main, 1) in d.index.terms):
            return ""
    return f"{', '.join(own)} does not lie inside {walk.main} in memory"


def by_stride(program: Program, position: int, axes: tuple[str, ...]) -> tuple[str, ...]:
    """Axes as they lie in the memory of a load, the slowest first."""
    op = program.nodes[position].op
    assert isinstance(op, Load)
    access = load_access(op, program.scope.tensors[op.tensor])
    return tuple(sorted(axes, key=lambda axis: -access.stride(axis)))
