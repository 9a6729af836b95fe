"""Where values live that could be stored: the ways in which a program may be cut into stages.

A computed operand that a wider reduction uses again and again is stored, or computed at every use;
one of a narrow type may be stored as it is computed with. Softmax and what is like it is one pass,
or as many as are written. `residences` lists what there is to choose from, the usual first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, combinations, islice

from ir.dtypes import dtype_of, is_float
from ir.ops.base import volume
from ir.ops.map import Cast
from ir.ops.reduce import Contract
from ir.partition import operand_choices, stage_program
from ir.program import Program
from ir.rewrite.canonical import node_key
from ir.rewrite.graft import copy_node, graft
from ir.rewrite.streaming import stream
from ir.stages import StagedProgram
from ir.tiles import Tile

USUAL = "usual"
PASSES = "passes"  # what the residence without streaming is called
TOGETHER = 2  # operands that are stored or not in one residence, beside all of them
MOST = 6  # residences of a program
ROOM, SPARE = 2**24, 4  # bytes for what is stored, and times those of the tensors
NARROW = 8  # bits of a float up to which it takes more than a shift to widen it


@dataclass(frozen=True, slots=True)
class Residence:
    """`flipped`: the operands of the program as it is cut that live elsewhere than usually."""

    name: str
    streamed: bool = True
    widened: bool = False
    flipped: frozenset[int] = frozenset()


AS_USUAL = Residence(USUAL)


@lru_cache(maxsize=256)
def residences(program: Program) -> tuple[Residence, ...]:
    """What there is to choose from; values go by their keys, which do not change with versions."""
    bases = [AS_USUAL]
    if stream(program) != program:
        bases.append(Residence(PASSES, streamed=False))
    others = chain(bases[1:], *(_flips(program, base) for base in bases))
    room = max(ROOM, SPARE * program.bytes)
    fit = (one for one in others if _stored(program, one) <= room)
    return (AS_USUAL, *islice(fit, MOST - 1))


def _stored(program: Program, residence: Residence) -> int:
    """Bytes of what stages leave for each other, at the whole extents."""
    cut = staged(program, residence)
    nodes, scope = cut.program.nodes, cut.program.scope
    return sum(
        volume(scope, nodes[node].axes) * dtype_of(nodes[node].dtype).bytes
        for node in cut.materialised
    )


def _flips(program: Program, base: Residence) -> Iterator[Residence]:
    """Each operand elsewhere, and all of them."""
    cut = _cut(program, base.streamed, widened=True)
    choices = operand_choices(cut)
    numbers = sorted(choices)
    groups = [group for size in (1, TOGETHER) for group in combinations(numbers, size)]
    if len(numbers) > TOGETHER:
        groups.append(tuple(numbers))
    for group in groups:
        words = (f"{'compute' if choices[n] else 'keep'}-{node_key(cut, n)}" for n in group)
        name = "-".join((*(() if base.streamed else (PASSES,)), *words))
        yield Residence(name, base.streamed, True, frozenset(group))


@lru_cache(maxsize=128)
def staged(program: Program, residence: Residence = AS_USUAL) -> StagedProgram:
    """The stages of a program, with values where a residence has them."""
    cut = _cut(program, residence.streamed, residence.widened)
    if not residence.flipped:
        return stage_program(cut)
    choices = operand_choices(cut)
    kept = frozenset(n for n in residence.flipped if not choices[n])
    return stage_program(cut, kept, residence.flipped - kept)


def _cut(program: Program, streamed: bool, widened: bool) -> Program:
    found = stream(program) if streamed else program
    return _widened(found) if widened else found


def _widened(program: Program) -> Program:
    """The program with narrow factors of products cast to what they are summed in."""
    graph = graft(program)
    made: list[Tile] = []
    for position, node in enumerate(program.nodes):
        args = [made[arg] for arg in node.args]
        if isinstance(node.op, Contract) and is_float(node.op.acc):
            args = [_wide(graph.add(Cast(node.op.acc), arg), arg) for arg in args]
        made.append(copy_node(graph, program, position, args))
    return graph.program()


def _wide(cast: Tile, narrow: Tile) -> Tile:
    found = dtype_of(narrow.dtype)
    return cast if found.bits <= NARROW and is_float(narrow.dtype) else narrow
