"""Passes: in which run over the looped axes each reduction and store of a kernel happens.

A reduction over the looped axes is finished after its pass; what needs its final value waits for
the next one. Carries read each other's running values within one pass.
"""

from __future__ import annotations

from dataclasses import dataclass

from ir.errors import Refusal
from ir.ops.reduce import Now, Prior
from ir.ops.store import Store
from ir.program import Program
from ir.stages import is_reduction, reduced_axes


@dataclass(frozen=True, slots=True)
class Pass:
    """Reductions and stores (nodes) of one run over the looped axes, in program order."""

    reductions: tuple[int, ...]
    stores: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Passes:
    """All passes, and the stores that follow them."""

    passes: tuple[Pass, ...]
    after: tuple[int, ...]


def find_passes(
    program: Program, looped: frozenset[str], around: frozenset[str] = frozenset()
) -> Passes:
    """The passes over `looped`; Refusal where a reduction loops over a part of these axes.

    Reductions over all but the `around` axes begin anew at each point of these, or go on; what is
    made of them is reduced along these, or stored, in the same, only, pass.
    """
    first: dict[int, int] = {}  # node -> the first pass in which it can be formed
    own: dict[int, int] = {}  # reduction -> its pass
    for position, node in enumerate(program.nodes):
        needs = max((first[arg] for arg in node.args), default=0)
        if isinstance(node.op, (Now, Prior)):
            if node.args[0] not in own:
                raise Refusal("loops", f"node {position} reads a state of another main loop")
            first[position] = own[node.args[0]]
        elif is_reduction(node) and (along := looped & {*reduced_axes(node)}):
            fresh = bool(around) and along == looped - around
            if along != (around or looped) and not fresh:
                raise Refusal("loops", f"node {position} reduces over a part of the looped axes")
            own[position] = needs
            first[position] = needs if fresh else needs + 1
        else:
            first[position] = needs
    stores = [p for p, node in enumerate(program.nodes) if isinstance(node.op, Store)]
    varying = [p for p in stores if looped & set(program.nodes[p].axes)]
    for store in varying:
        along = looped & {*program.nodes[store].axes}
        if along not in (looped, around):
            raise Refusal("loops", f"store {store} varies over a part of the looped axes")
    count = max([own[p] for p in own] + [first[p] for p in varying], default=-1) + 1
    if around and count > 1:
        raise Refusal("loops", f"{count} passes over products that begin anew in each")
    passes = tuple(
        Pass(
            tuple(p for p in own if own[p] == number),
            tuple(p for p in varying if first[p] == number),
        )
        for number in range(count)
    )
    return Passes(passes, tuple(p for p in stores if p not in varying))


def needed(program: Program, roots: tuple[int, ...], stop: frozenset[int]) -> tuple[int, ...]:
    """Nodes that `roots` are made of, in program order, not looking behind `stop`."""
    found: set[int] = set()
    pending = list(roots)
    while pending:
        position = pending.pop()
        if position in found:
            continue
        found.add(position)
        if position not in stop or position in roots:
            pending.extend(program.nodes[position].args)
    return tuple(sorted(found))


def runs_behind(program: Program, position: int) -> bool:
    """Whether a value is made of what a loop's states are while it runs."""
    seen: set[int] = set()
    pending = [position]
    while pending:
        here = pending.pop()
        if here in seen:
            continue
        seen.add(here)
        if isinstance(program.nodes[here].op, (Now, Prior)):
            return True
        pending.extend(program.nodes[here].args)
    return False


def meets(program: Program, reductions: tuple[int, ...], looped: frozenset[str]) -> bool:
    """Whether a step over `looped` reduces anything else than `reductions` combine over all steps,
    or reads what these are by then: threads that share it have to meet."""
    sums = {p: node for p, node in enumerate(program.nodes) if is_reduction(node)}
    before = frozenset(p for p, node in sums.items() if looped & {*reduced_axes(node)})
    for position in needed(program, reductions, before):
        node = program.nodes[position]
        within = position in sums and position not in before and looped & {*node.axes}
        if within or isinstance(node.op, (Now, Prior)):
            return True
    return False
