"""Which outputs one kernel can hold: by the axes that they have, and by what is summed for them."""

from __future__ import annotations

from ir.ops.load import Load
from ir.program import Program
from ir.stages import is_reduction, reduced_axes
from ir.targets.cuda.build.orders import is_for_tensor_cores


def store_groups(
    program: Program, stores: list[int], joined: bool, beside: bool, known: frozenset[int]
) -> list[list[int]]:
    """Stores that one kernel can hold: those over the same axes, made of sums along some of the
    same (a block would deal its threads to axes that have nothing to do with each other).

    If `joined`, over some of these as well, where both are made of a reduction that is not `known`;
    if `beside`, also where such a one is over the axes that are left of the others'.
    """
    alike: dict[frozenset[str], list[int]] = {}
    for store in stores:
        alike.setdefault(frozenset(program.nodes[store].axes), []).append(store)
    groups = [(axes, one) for axes, own in alike.items() for one in _meeting(program, own, known)]
    if not joined:
        return [group for _, group in groups]
    found: list[tuple[frozenset[str], list[int]]] = []
    for axes, group in sorted(groups, key=lambda pair: (-len(pair[0]), pair[1])):
        sources = reductions_behind(program, group, known)
        for wider, others in found:
            shared = sources & reductions_behind(program, others, known)
            if axes < wider and (shared or (beside and _sums_rest(program, sources, wider - axes))):
                others.extend(group)
                break
        else:
            found.append((axes, group))
    return [sorted(group) for _, group in found]


def _meeting(program: Program, stores: list[int], known: frozenset[int]) -> list[list[int]]:
    """Stores in groups, each of which has summed axes in common with another; those without sums
    are in the first."""
    over = {
        store: {
            a
            for n in reductions_behind(program, [store], known)
            for a in reduced_axes(program.nodes[n])
        }
        for store in stores
    }
    groups: list[list[int]] = []
    for store in (store for store in stores if over[store]):
        meets = [group for group in groups if any(over[store] & over[other] for other in group)]
        groups = [*(g for g in groups if g not in meets), [*(n for g in meets for n in g), store]]
    plain = [store for store in stores if not over[store]]
    first, *rest = sorted(map(sorted, groups)) or [[]]
    return [sorted([*first, *plain]), *rest]


def _sums_rest(program: Program, reductions: set[int], rest: frozenset[str]) -> bool:
    return any(rest == {*reduced_axes(program.nodes[position])} for position in reductions)


def has_stores_beside(program: Program) -> bool:
    """Whether some outputs are made of what is reduced over the other axes of others, so that one
    kernel can read what both are made of once."""
    stores = [position for position, _ in program.stores()]
    ways = (store_groups(program, stores, True, beside, frozenset()) for beside in (False, True))
    return len({len(groups) for groups in ways}) > 1


def reductions_behind(program: Program, stores: list[int], known: frozenset[int]) -> set[int]:
    """Reductions that outputs are made of, those behind others too, up to values in memory."""
    roots = (program.nodes[store].args[0] for store in stores)
    found = set[int]().union(*(_behind(program, root, known) for root in roots))
    return {node for node in found if is_reduction(program.nodes[node])}


def outputs_alongside(program: Program, cuts: list[int], stored: frozenset[int]) -> list[int]:
    """Outputs that are reduced over the same axes of the same elements as the values of `cuts`, and
    made of nothing that is `stored`: the kernel of these reads for both."""
    nodes = program.nodes
    behind = set[int]().union(*(_behind(program, cut, stored - {cut}) for cut in cuts))
    if any(is_for_tensor_cores(program, n) for n in behind):
        return []
    sums, loads = _sums_and_loads(program, behind)
    axes = {frozenset(nodes[cut].axes) for cut in cuts}
    found = []
    for position, store in program.stores():
        own = _behind(program, nodes[position].args[0], frozenset())
        theirs = _sums_and_loads(program, own)
        alone = not own & stored and theirs[0] and frozenset(store.axes) in axes
        if alone and theirs[0] <= sums and theirs[1] <= loads:
            found.append(position)
    return found


def _behind(program: Program, root: int, known: frozenset[int]) -> set[int]:
    """Nodes that a value is made of, itself among them, up to values in memory."""
    found, pending = set[int](), [root]
    while pending:
        here = pending.pop()
        if here not in found and here not in known:
            found.add(here)
            pending.extend(program.nodes[here].args)
    return found


def _sums_and_loads(program: Program, nodes: set[int]) -> tuple[set[frozenset[str]], set[Load]]:
    """The axes that reductions go along, and what is read."""
    sums = {
        frozenset(reduced_axes(program.nodes[n])) for n in nodes if is_reduction(program.nodes[n])
    }
    return sums, {op for n in nodes if isinstance(op := program.nodes[n].op, Load)}
