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
from ir.builder import cast, contract
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
    beside = Axis(name, found.together)
    here = graph.iota(Axis(inner, found.together))
    made: list[Tile] = []
    for position, node in enumerate(apart.nodes):
        args = [made[arg] for arg in node.args]
        load = apart.nodes[node.args[found.side]].op if isinstance(node.op, Contract) else None
        own = isinstance(load, Load) and inner in node.axes and _is_found(program, found, load)
        if own and isinstance(node.op, Contract) and isinstance(load, Load):
            source = apart.nodes[node.args[found.side]]
            index = tuple(_renamed(one, inner, name) for one in load.index)
            args[found.side] = graph.add(
                replace(load, index=index), *(made[arg] for arg in source.args)
            )
            matrix = args[1 - found.side]
            own_block = cast(graph.iota(beside) == here, compute_dtype(matrix.dtype))
            args[1 - found.side] = cast(matrix * own_block, matrix.dtype)
            over = tuple(Axis(axis, graph.extents[axis]) for axis in (name, *node.op.over))
            made.append(contract(args[0], args[1], over, node.op.acc))
        else:
            made.append(copy_node(graph, apart, position, args))
    return graph.program()


def _is_found(program: Program, found: _Batch, load: Load) -> bool:
    """Whether a load is of the operand whose batches are taken together."""
    op = program.nodes[program.nodes[found.node].args[found.side]].op
    return isinstance(op, Load) and op.tensor == load.tensor


def _renamed(index: Index, axis: str, name: str) -> Index:
    terms = tuple((name if one == axis else one, factor) for one, factor in index.terms)
    return replace(index, terms=terms)
