"""Which values go through memory on a card beyond what an engine asks for: `residence`.

As it is usually cut, a program has as few kernels as each engine allows: what is reduced is
computed again by every block that needs it, and products that no kernel holds together are left to
plain units. Where points are few or products many, more kernels with less to do each are faster:
every reduction in one of its own, and in memory what all of its readers read. Knows no decision.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from ir.ops.load import Load
from ir.ops.reduce import Carry
from ir.ops.store import Store
from ir.phases import Phase, phases_of
from ir.program import Program
from ir.rewrite.joining import joined_axes
from ir.stages import is_reduction
from ir.targets.cuda.cut import boundary_of, is_for_tensor_cores, stored_at
from ir.targets.cuda.products import depends_on_reduction, product_of

USUAL = "usual"
SUMS, PRODUCTS, STORED = "sums-stored", "products-stored", "all-stored"
"""Reductions that are no products for tensor cores, those that are, and both."""
OPERANDS = "operands-stored"
"""Factors of products for tensor cores that are computed of nothing reduced."""
JOINED = "axes-joined"
"""Nothing more than usually; axes that always go together are one, as they are in all but usual."""


@lru_cache(maxsize=512)
def pieces_of(program: Program, residence: str) -> tuple[Phase, ...]:
    """The phases of a program, those with reductions cut where the residence has values in memory;
    raises KeyError for a residence that there is none of."""
    phases = phases_of(program)
    if residence == USUAL:
        return phases
    found: list[Phase] = []
    taken = {spec.name for phase in phases for spec in phase.program.tensors}
    for phase in phases:
        if phase.plain:
            found.append(phase)
            continue
        nodes = _stored(phase.program, residence)
        parts = stored_at(phase.program, nodes, frozenset(taken))
        taken |= {spec.name for part in parts for spec in part.tensors}
        found += [Phase(joined_axes(part), False) for part in parts]
    return tuple(found)


@lru_cache(maxsize=256)
def residences(program: Program) -> tuple[str, ...]:
    """Those that differ, the usual one first."""
    found = {pieces_of(program, USUAL): USUAL}
    for name in (JOINED, OPERANDS, SUMS, PRODUCTS, STORED):
        found.setdefault(pieces_of(program, name), name)
    return tuple(found.values())


def _stored(program: Program, residence: str) -> set[int]:
    """Where values of reductions end that go through memory, but for those that are outputs."""
    if residence == JOINED:
        return set()
    if any(isinstance(node.op, Carry) for node in program.nodes):
        return set()  # what is streamed is whole in no place
    if residence == OPERANDS:
        return set(_computed_factors(program))
    wanted = {SUMS: (False,), PRODUCTS: (True,), STORED: (False, True)}[residence]
    ends = (
        boundary_of(program, position)
        for position in _reductions(program)
        if is_for_tensor_cores(program, position) in wanted
    )
    return {end for end in ends if not _is_output(program, end)}


def _computed_factors(program: Program) -> Iterable[int]:
    for position in _reductions(program):
        product = product_of(program, position)
        if product is None or not is_for_tensor_cores(program, position):
            continue
        for factor in (product.a, product.b):
            computed = not isinstance(program.nodes[factor].op, Load)
            if computed and not depends_on_reduction(program, factor):
                yield factor


def _reductions(program: Program) -> Iterable[int]:
    return (position for position, node in enumerate(program.nodes) if is_reduction(node))


def _is_output(program: Program, position: int) -> bool:
    """Whether nothing reads a value but what stores it."""
    return all(isinstance(program.nodes[user].op, Store) for user in program.users(position))
