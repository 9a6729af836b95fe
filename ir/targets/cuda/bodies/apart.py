"""Chains whose weights a warp group of its own makes: what it and those that multiply leave each
other.

It has the inner products, what threads make of them, and the states of these; the others have the
sums. Computed operands, the factors that correct sums and, behind the loop, the states go through
shared memory, so that threads of the one compute while tensor cores multiply for the others (warp
specialisation of softmax: Shah et al., "FlashAttention-3", 2024; here also for any other chain).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from ir.dtypes import dtype_of
from ir.kernel.body import (
    CONVERT,
    GET,
    LEAVE,
    REDUCE,
    THREADS,
    Operation,
    Part,
)
from ir.ops.reduce import Carry
from ir.targets.cuda.bodies.tensor_bodies import (
    BETWEEN,
    FOLD,
    OUTER,
    body_of,
    is_chained,
    main_pass,
    words_name,
)
from ir.targets.cuda.build.roles import Roles
from ir.targets.cuda.text.naming import value_name
from ir.targets.cuda.text.passes import find_passes, needed

WEIGHTS = "weights"  # the decision, and the ring of what is left
WEIGH, TALLY, RESCALE = "weigh", "tally", "rescale"
WORD = 32  # bits of what is left for a row


def states_of(roles: Roles) -> tuple[int, ...]:
    """The states of a chain beside its sums, in the order in which they advance."""
    sums = {product.position for product in roles.outer}
    return tuple(p for p in main_pass(roles).reductions if p not in sums)


@lru_cache(maxsize=512)
def states_read(roles: Roles) -> tuple[int, ...]:
    """Those of which something behind the loop is made."""
    program, states = roles.program, states_of(roles)
    stop = frozenset((*states, *(product.position for product in roles.outer)))
    roots = tuple(arg for position, _ in program.stores() for arg in program.nodes[position].args)
    seen = {*roots, *needed(program, tuple(r for r in roots if r not in stop), stop)}
    return tuple(state for state in states if state in seen)


def factors_of(roles: Roles) -> tuple[int, ...]:
    """By what sums are corrected, each once."""
    sums = (roles.program.nodes[product.position] for product in roles.outer)
    found = (factor for one in sums if isinstance(one.op, Carry) for factor in one.args[1:])
    return tuple(dict.fromkeys(found))


@lru_cache(maxsize=512)
def apart_problem(roles: Roles) -> str:
    """Why no group of its own may make a chain's weights; empty if one may. `roles` are those of a
    program that is streamed."""
    if not is_chained(roles) or roles.computed or roles.begins or roles.handed is not None:
        return "nothing is made between products"
    looped, around = frozenset(roles.walked), frozenset(roles.around)
    runs = find_passes(roles.program, looped, around).passes
    if len(runs) != 1 or main_pass(roles).stores:
        return "its blocks are gone through more than once, or stored"
    rows = {*roles.rows, *roles.batch}
    for position in (*states_of(roles), *factors_of(roles)):
        node = roles.program.nodes[position]
        if not {*node.axes} <= rows or dtype_of(node.dtype).bits != WORD:
            return f"{value_name(roles.program, position)} is no number of a row"
    return ""


def left_words(roles: Roles) -> int:
    """The most values of a row that are left at a time."""
    return max(len(factors_of(roles)), len(states_read(roles)))


def left_name(roles: Roles, position: int) -> str:
    """What a value is called where it is left."""
    return f"{value_name(roles.program, position)}_left"


def apart_operations(roles: Roles) -> tuple[Operation, ...]:
    """The operations of a block: the weights are left with the factors, and these are read by what
    corrects the sums. What nobody waits for comes behind."""
    body, found, late = body_of(roles), list[Operation](), tuple[Part, ...]()
    urgent = _urgent(roles)
    factors = factors_of(roles)
    left = tuple(left_name(roles, factor) for factor in factors)
    for one in body.operations:
        if one.name == OUTER:
            one = replace(one, takes=(*one.takes, WEIGHTS))
        if one.name == BETWEEN:
            first = tuple(p for p in one.parts if p.kind != REDUCE or p.node in urgent)
            late = tuple(part for part in one.parts if part not in first)
            tallied = {value_name(roles.program, part.node) for part in late}
            writes = tuple(name for name in one.writes if name not in tallied)
            one = replace(one, parts=first, writes=writes)
        if one.name != FOLD:
            found.append(one)
            continue
        laid = tuple(part for part in one.parts if part.kind == CONVERT)
        corrected = tuple(part for part in one.parts if part.kind != CONVERT)
        words = tuple(words_name(roles.program, part.node) for part in laid)
        sums = tuple(value_name(roles.program, part.node) for part in corrected)
        leaves = tuple(Part(LEAVE, factor) for factor in factors)
        gets = tuple(Part(GET, factor) for factor in factors)
        reads = tuple(name for name in one.reads if name not in sums)
        weigh = Operation(WEIGH, one.unit, reads, (*words, *left), (WEIGHTS,), (*laid, *leaves))
        again = Operation(
            RESCALE, one.unit, (*left, *sums), sums, (WEIGHTS,), (*gets, *corrected)
        )  # fmt: skip
        found += [weigh, *_tally(roles, late), again]
    return tuple(found)


def _tally(roles: Roles, late: tuple[Part, ...]) -> Iterator[Operation]:
    if late:
        names = tuple(value_name(roles.program, part.node) for part in late)
        yield Operation(TALLY, THREADS, names, names, (), late)


def _urgent(roles: Roles) -> set[int]:
    """What the weights and the factors of a block are made of."""
    roots = (*factors_of(roles), *(product.a for product in roles.outer))
    return {*needed(roles.program, roots, frozenset())}
