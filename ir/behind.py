"""What is elementwise behind a scatter, in the scatter's own phase.

What is combined then needs no tensor of its own where whoever combines it stores what is made of
it. Knows no target.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ir.builder import Graph
from ir.ops.load import Index, Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.scatter import Scatter
from ir.ops.store import Store
from ir.phases import Phase
from ir.program import Program
from ir.tiles import Tile

_ELEMENTWISE = (Load, Map, Cast, Constant, Iota, Store)


def behind_scatters(phases: Sequence[Phase]) -> tuple[Phase, ...]:
    """The phases, of which one that is elementwise takes in the largest scatter that it alone
    reads, at its own points."""
    found = list(phases)
    for phase in phases:
        if phase.plain or not all(isinstance(n.op, _ELEMENTWISE) for n in phase.program.nodes):
            continue
        fitting = [one for one in found if one.plain and _fits(one.program, phase, phases)]
        if fitting:
            best = max(fitting, key=lambda one: prod(_store(one.program)[1]))
            found.remove(best)
            found[found.index(phase)] = Phase(_joined(best.program, phase.program), True)
    return tuple(found)


def _store(program: Program) -> tuple[str, tuple[int, ...]]:
    """The first tensor that a program writes, and its shape."""
    store = next(op for _, op in program.stores())
    return store.tensor, program.scope.tensors[store.tensor].shape


def _fits(program: Program, phase: Phase, phases: Sequence[Phase]) -> bool:
    """Whether a program is a scatter that one phase alone reads, and of whose elements this makes
    all that it stores, each at the element's own place."""
    stores = list(program.stores())
    if len(stores) != 1:
        return False
    ((end, store),) = stores
    if not isinstance(program.nodes[program.nodes[end].args[0]].op, Scatter):
        return False
    readers = [p for p in phases if store.tensor in {spec.name for spec in p.program.inputs}]
    if readers != [phase]:
        return False
    loads = _loads(phase.program, store.tensor)
    own = tuple(Index(((axis, 1),)) for axis in store.axes)
    if any(phase.program.nodes[load].op != Load(store.tensor, own) for load in loads):
        return False
    made = set(loads)
    for position, node in enumerate(phase.program.nodes):
        if made & set(node.args):
            made.add(position)
    return all(
        position in made and set(other.axes) == set(store.axes)
        for position, other in phase.program.stores()
    )


def _loads(program: Program, tensor: str) -> list[int]:
    nodes = enumerate(program.nodes)
    return [p for p, node in nodes if isinstance(node.op, Load) and node.op.tensor == tensor]


def _joined(program: Program, behind: Program) -> Program:
    """The nodes of a scatter, and behind it those that load it."""
    name, _ = _store(program)
    tensors = {spec.name: spec for spec in (*program.tensors, *behind.tensors)}
    del tensors[name]
    graph = Graph.like(behind.name, {**program.axes, **behind.axes}, tuple(tensors.values()), ())
    made: dict[int, Tile] = {}
    for position, node in enumerate(program.nodes):
        if isinstance(node.op, Store):
            continue
        made[position] = graph.add(node.op, *(made[arg] for arg in node.args))
    (end,) = (position for position, _ in program.stores())
    loads = _loads(behind, name)
    sums, made = made[program.nodes[end].args[0]], {}
    for position, node in enumerate(behind.nodes):
        if position in loads:
            made[position] = sums
        elif isinstance(node.op, Store):
            graph.add(node.op, made[node.args[0]])
        else:
            made[position] = graph.add(node.op, *(made[arg] for arg in node.args))
    return graph.program()
