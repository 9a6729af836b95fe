"""Dimensions that are read by two digits are two dimensions: the same bytes.

Where every load of K reads its rows at `step j + s`, s less than `step` (keys of one phase in turn,
rows of two kinds that take turns), K is a tensor of one dimension more:

    load(K, [step j + s, d])  =  load(K as (rows / step, step), [j, s, d])

so that what goes along j finds a dimension of its own. Done where j is summed and s is not, then
where s is such a dimension of another tensor, and of rows at a constant place among `step`;
elsewhere an index of two axes is one already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from ir.builder import Graph
from ir.ops.base import TensorSpec
from ir.ops.load import Index, Load
from ir.ops.reduce import Carry, Contract, Reduce
from ir.program import Program
from ir.rewrite.graft import copy_node
from ir.tiles import Tile


@dataclass(frozen=True, slots=True)
class _Cut:
    """A dimension of a tensor, how many of its points are the inner one's, and the axes that go
    along those."""

    tensor: str
    dim: int
    step: int
    places: frozenset[str]


@lru_cache(maxsize=1024)
def viewed(program: Program) -> Program:
    """The same program with a dimension for each digit by which tensors are read."""
    places = set[str]()  # axes of which some tensor has such a dimension
    while (cut := next(_cuts(program, places), None)) is not None:
        program = _apart(program, cut)
        places |= cut.places
    return program


def _cuts(program: Program, places: set[str]) -> Iterator[_Cut]:
    reads: dict[str, list[Load]] = {}
    for node in program.nodes:
        if isinstance(node.op, Load):
            reads.setdefault(node.op.tensor, []).append(node.op)
    stored = {store.tensor for _, store in program.stores()}
    summed = {
        axis
        for node in program.nodes
        if isinstance(node.op, Contract | Reduce | Carry)
        for axis in node.op.over
    }
    for spec in program.tensors:
        loads = reads.get(spec.name, [])
        if not loads or spec.name in stored or not prod(spec.shape):
            continue
        for dim, extent in enumerate(spec.shape):
            indices = [load.index[dim] for load in loads]
            last = dim == len(spec.shape) - 1
            if last and spec.packs:  # what a byte has of it stays together
                continue
            for step in sorted({abs(c) for one in indices for _, c in one.terms}, reverse=True):
                if 1 < step < extent and extent % step == 0:
                    digits = [_digits(program, one, step) for one in indices]
                    pairs = [pair for pair in digits if pair is not None]
                    if len(pairs) == len(digits) and _tells(pairs, summed, places, last):
                        inner = frozenset(axis for _, one in pairs for axis, _ in one.terms)
                        yield _Cut(spec.name, dim, step, inner)


def _digits(program: Program, index: Index, step: int) -> tuple[Index, Index] | None:
    """An index as how many times `step`, and the rest, that is never as much."""
    if index.gather is not None:
        return None
    outer = tuple((axis, c // step) for axis, c in index.terms if c % step == 0)
    inner = tuple((axis, c) for axis, c in index.terms if c % step)
    many, rest = divmod(index.constant, step)
    found = Index(outer, many), Index(inner, rest)
    low, high = found[1].bounds(program.scope)
    return found if low >= 0 and high < step else None


def _tells(
    pairs: Sequence[tuple[Index, Index]], summed: set[str], places: set[str], last: bool
) -> bool:
    """Whether some load goes along what is summed by steps, at a place that is not, or at places
    that are a dimension elsewhere; or every load has a constant place of a row."""
    for pair in pairs:
        outer, inner = ({axis for axis, _ in one.terms} for one in pair)
        if outer and inner and (inner <= places or (outer & summed and not inner & summed)):
            return True
    return not last and all(not inner.terms for _, inner in pairs)


def _apart(program: Program, cut: _Cut) -> Program:
    def spec_of(spec: TensorSpec) -> TensorSpec:
        if spec.name != cut.tensor:
            return spec
        own = (spec.shape[cut.dim] // cut.step, cut.step)
        return replace(spec, shape=(*spec.shape[: cut.dim], *own, *spec.shape[cut.dim + 1 :]))

    tensors = tuple(map(spec_of, program.tensors))
    graph = Graph.like(program.name, dict(program.extents), tensors, program.pins)
    made: list[Tile] = []
    for position, node in enumerate(program.nodes):
        args, op = [made[arg] for arg in node.args], node.op
        if isinstance(op, Load) and op.tensor == cut.tensor:
            pair = _digits(program, op.index[cut.dim], cut.step)
            assert pair is not None
            index = (*op.index[: cut.dim], *pair, *op.index[cut.dim + 1 :])
            made.append(graph.add(replace(op, index=index), *args))
        else:
            made.append(copy_node(graph, program, position, args))
    return graph.program()
