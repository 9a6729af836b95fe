"""What a product's kernel computes behind it: which values between kernels need none of their own.

A product whose readers are all computed point by point into values that go through memory anyway is
computed in their kernel, and stays in registers; so do the gate and the values of a gradient, which
two products make together. What is made point by point of a product in memory is one more output of
that product's kernel; so is what else is reduced of a product that both are made of. Knows no
engine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import networkx as nx

from ir.program import Program
from ir.stages import is_reduction
from ir.targets.cuda.build.boundaries import alike
from ir.targets.cuda.build.orders import is_for_tensor_cores
from ir.targets.cuda.build.products import is_elementwise

Groups = dict[int, frozenset[int]]  # of each value in memory, those that its kernel computes


def by_epilogues(program: Program, nodes: Iterable[int]) -> list[list[int]]:
    """Values that go through memory by kernels, in order, without those that need not."""
    groups: Groups = {node: frozenset({node}) for node in nodes}
    for node in sorted(groups):
        ends = _ends(program, node, groups)
        if ends and _has_product(program, node, groups):
            without = {other: group for other, group in groups.items() if other != node}
            groups = _joined(program, without, ends) or groups
    for node in sorted(groups):
        if not _made_of(program, {node}, groups):
            beside = _product_before(program, node, groups)
            groups = (_joined(program, groups, {beside, node}) if beside else None) or groups
    for node in sorted(groups):
        wider = _reduced_beside(program, node, groups)
        groups = (_with(program, groups, {wider, node}) if wider is not None else None) or groups
    return [sorted(group) for group in _ordered(program, groups) or ()]


def shares_product(program: Program, node: int, others: Iterable[int]) -> bool:
    """Whether a value is made of a product for tensor cores that is one of `others`, or that one of
    them is made of."""

    def products(one: int) -> set[int]:
        behind = program.behind([one], lambda _: False)
        return {n for n in behind if is_for_tensor_cores(program, n)}

    own = products(node) - {node}
    return any(own & products(other) for other in others)


def _reduced_beside(program: Program, node: int, groups: Groups) -> int | None:
    """The first value in memory over more axes than another that is made of a product which that is
    made of as well, up to what is in memory before either."""
    own, axes = _made_of(program, {node}, groups), {*program.nodes[node].axes}
    shared = {product for product in own if is_for_tensor_cores(program, product)}
    for other in sorted(groups):
        if axes < {*program.nodes[other].axes} and shared & _made_of(program, {other}, groups):
            return other
    return None


def _ends(program: Program, node: int, known: Collection[int]) -> set[int]:
    """The values in memory that all readers of one are on the way to, point by point; none if one
    leads elsewhere."""
    axes, found = {*program.nodes[node].axes}, set[int]()
    pending, seen = [node], set[int]()
    while pending:
        for user in program.users(pending.pop()):
            if not is_elementwise(program, user) or {*program.nodes[user].axes} != axes:
                return set()
            if user in known:
                found.add(user)
            elif user not in seen:
                pending.append(user)
            seen.add(user)
    return found


def _joined(program: Program, groups: Groups, nodes: set[int]) -> Groups | None:
    """The groups with those of `nodes` as one, if a kernel can have that one."""
    whole = frozenset[int]().union(*(groups[node] for node in nodes))
    products = _made_of(program, whole, groups)
    if not products or not alike(program, tuple(sorted(products))):
        return None
    if not all(is_for_tensor_cores(program, product) for product in products):
        return None
    return _with(program, groups, whole)


def _with(program: Program, groups: Groups, nodes: Collection[int]) -> Groups | None:
    """The groups with those of `nodes` as one, if there is an order of kernels then."""
    whole = frozenset[int]().union(*(groups[node] for node in nodes))
    found = groups | dict.fromkeys(whole, whole)
    return found if _ordered(program, found) is not None else None


def _has_product(program: Program, node: int, groups: Groups) -> bool:
    made = _made_of(program, {node}, groups)
    return bool(made) and all(is_for_tensor_cores(program, product) for product in made)


def _product_before(program: Program, node: int, groups: Groups) -> int | None:
    """Of the values in memory that one is made of, over the same axes, the last one of a product's
    kernel."""
    axes = {*program.nodes[node].axes}
    reads = (
        other
        for other in _read(program, {node}, groups)
        if {*program.nodes[other].axes} == axes and _has_product(program, other, groups)
    )
    return max(reads, default=None)


def _made_of(program: Program, nodes: Collection[int], known: Collection[int]) -> set[int]:
    """The reductions behind values, up to others in memory."""
    behind = _behind(program, nodes, known)
    return {n for n in behind if is_reduction(program.nodes[n]) and (n in nodes or n not in known)}


def _read(program: Program, nodes: Collection[int], known: Collection[int]) -> set[int]:
    """The values in memory that a kernel of some others reads."""
    return {n for n in _behind(program, nodes, known) if n in known and n not in nodes}


def _behind(program: Program, nodes: Collection[int], known: Collection[int]) -> list[int]:
    return program.behind(nodes, lambda here: here in known and here not in nodes)


def _ordered(program: Program, groups: Groups) -> list[frozenset[int]] | None:
    """The kernels in an order in which each finds what it reads; None if there is none."""
    graph = nx.DiGraph()
    for group in set(groups.values()):
        graph.add_node(group)
        graph.add_edges_from((groups[one], group) for one in _read(program, group, groups))
    if not nx.is_directed_acyclic_graph(graph):
        return None
    return list(nx.lexicographical_topological_sort(graph, key=min))
