"""Products of small batches as one with a matrix of blocks along its diagonal.

Where products of a batch sum over a few neighbours in memory each, and the batches lie side by side
(the channels of a grouped convolution), every access reads less than a sector. Some batches taken
together are one product, over all of their neighbours, with a matrix that is zero where a row and a
column are of different ones:

    sum over c of x[g, c] w[g, c, f]  =  sum over h, c of x[h, c] (w[g, c, f] where h = g, else 0)

More is multiplied, on tensor cores, that have the rate; less is read. Zeros are exact, so nothing
is rounded otherwise; factors are taken to be finite.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ir.axes import Axis
from ir.builder import Graph, cast, contract
from ir.dtypes import compute_dtype, dtype_of
from ir.errors import ProgramError
from ir.ops.base import volume
from ir.ops.load import Index, Load
from ir.ops.reduce import Contract
from ir.program import Program
from ir.rewrite.cutting import fresh
from ir.rewrite.graft import copy_node, graft
from ir.rewrite.parting import cut
from ir.tiles import Tile

NAME = "block-diagonal"
WHY = "products of several batches are one, with a matrix that is zero off the diagonal's blocks"
ROUNDING = "the same roundings, and zeros"
SECTOR = 32  # bytes that an access moves at least
LINE = 64  # bytes that batches taken together have side by side
COLUMNS = 16  # of a product that fills an instruction
ROWS = 1024  # from which what is read of the other operand counts


@dataclass(frozen=True, slots=True)
class Diagonal:
    """The program with such a product, where that was, and the share of accesses that are left."""

    program: Program
    node: int
    share: float


@dataclass(frozen=True, slots=True)
class _Batch:
    """A product whose operand `side` reads a few points of `summed` beside those of `batch`."""

    node: int
    side: int
    batch: str
    together: int
    share: float


def diagonal(program: Program) -> Diagonal | None:
    """The program with batches of its first product of this kind taken together; None without."""
    for found in _batches(program):
        try:
            return Diagonal(_made(program, found), found.node, found.share)
        except ProgramError:  # something takes the batches' axis whole
            continue
    return None


def _batches(program: Program) -> Iterator[_Batch]:
    for position, node in enumerate(program.nodes):
        if not isinstance(node.op, Contract):
            continue
        for side, arg in enumerate(node.args):
            found = _batch(program, position, side, arg)
            if found is not None:
                yield found


def _batch(program: Program, position: int, side: int, arg: int) -> _Batch | None:
    node, one = program.nodes[position], program.nodes[arg]
    other = program.nodes[node.args[1 - side]]
    if not isinstance(node.op, Contract) or not isinstance(one.op, Load) or len(one.op.index) < 2:
        return None
    batch, summed = (_alone(index) for index in one.op.index[-2:])
    both = {*one.axes} & {*other.axes} - {*node.op.over}
    if batch not in both or summed not in node.op.over or summed not in other.axes:
        return None
    spec = program.scope.tensors[one.op.tensor]
    shape = tuple(program.axes[axis] for axis in (batch, summed))
    run = program.axes[summed] * dtype_of(one.dtype).bytes
    rows = volume(program.scope, tuple({*one.axes} - {*other.axes}))
    columns = volume(program.scope, tuple({*other.axes} - {*one.axes}))
    if spec.shape[-2:] != shape or run >= SECTOR or rows < ROWS or columns >= COLUMNS:
        return None
    extent = program.axes[batch]
    fits = (n for n in range(2, extent + 1) if extent % n == 0)
    wide = (n for n in fits if n * run >= LINE and n * columns >= COLUMNS)
    together = next(wide, 0)
    return _Batch(position, side, batch, together, run / SECTOR) if together else None


def _alone(index: Index) -> str:
    """The axis that a dimension is read along, if it is one by itself."""
    plain = index.gather is None and not index.constant and len(index.terms) == 1
    return index.terms[0][0] if plain and index.terms[0][1] == 1 else ""


def _made(program: Program, found: _Batch) -> Program:
    parts = program.axes[found.batch] // found.together
    apart = cut(program, found.batch, parts)
    inner = f"{found.batch}_in"
    name = fresh(f"{found.batch}_beside", {*apart.axes})
    graph = graft(apart, extents={**apart.axes, name: found.together})
    tensor = _tensor(program, program.nodes[found.node].args[found.side])
    made: list[Tile] = []
    for position, node in enumerate(apart.nodes):
        args = [made[arg] for arg in node.args]
        source = node.args[found.side] if isinstance(node.op, Contract) else -1
        if inner in node.axes and source >= 0 and _tensor(apart, source) == tensor:
            made.append(_product(graph, apart, position, made, (found.side, inner, name)))
        else:
            made.append(copy_node(graph, apart, position, args))
    return graph.program()


def _product(
    graph: Graph, program: Program, position: int, made: list[Tile], how: tuple[int, str, str]
) -> Tile:
    """A product of batches `inner` that are summed over as `name`, too."""
    side, inner, name = how
    node, source = program.nodes[position], program.nodes[program.nodes[position].args[side]]
    assert isinstance(node.op, Contract)
    assert isinstance(source.op, Load)
    index = tuple(_renamed(one, inner, name) for one in source.op.index)
    row = graph.add(replace(source.op, index=index), *(made[arg] for arg in source.args))
    matrix = made[node.args[1 - side]]
    beside, here = (graph.iota(Axis(axis, graph.extents[axis])) for axis in (name, inner))
    block = cast(beside == here, compute_dtype(matrix.dtype))
    factors = [row, cast(matrix * block, matrix.dtype)]
    over = tuple(Axis(axis, graph.extents[axis]) for axis in (name, *node.op.over))
    return contract(factors[side], factors[1 - side], over, node.op.acc)


def _tensor(program: Program, position: int) -> str:
    """What a load reads; nothing for any other value."""
    op = program.nodes[position].op
    return op.tensor if isinstance(op, Load) else ""


def _renamed(index: Index, axis: str, name: str) -> Index:
    terms = tuple((name if one == axis else one, factor) for one, factor in index.terms)
    return replace(index, terms=terms)
