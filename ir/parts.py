"""Parts of a space: constraints that can be met apart from each other, as those of many kernels.

Found by what constraints read, so a part is a kernel, or less. Knows no target.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from ir.columns import Mask

LEAST = 4  # decisions of each of two parts, for one that joins them to be held

Numbers = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Constraints, by number, and the columns of the decisions that they alone read."""

    rules: Numbers
    columns: Numbers


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """Every part of a space. Several of them may read the columns that are `held`; constraints that
    read nothing free, or only what governs, are `loose`."""

    each: tuple[Part, ...]
    held: Numbers
    loose: Numbers

    @property
    def whole(self) -> Part:
        """All of them as one, which has the columns held besides."""
        rules = [part.rules for part in self.each]
        columns = [*(part.columns for part in self.each), self.held]
        return Part(np.sort(np.concatenate([self.held[:0], *rules])),
                    np.sort(np.concatenate(columns)))  # fmt: skip


def parts_of(reads: Mask) -> Parts:
    """The parts under constraints (first index) that read decisions (second index).

    A decision that alone joins what would be parts is held: a choice of the whole program, say, of
    which every kernel takes note. Most of what a branch of a large space could read is not free.
    """
    rules = np.flatnonzero(reads.any(axis=1))
    own = reads[rules]
    columns = np.flatnonzero(own.any(axis=0))
    own = own[:, columns]
    held = _held(own)
    own[:, held] = False
    found = [
        Part(rules[tied], columns[own[tied].any(axis=0)])
        for tied in (np.array(numbers, np.intp) for numbers in _tied(own))
    ]
    loose = np.ones(len(reads), np.bool_)
    loose[rules[own.any(axis=1)]] = False
    return Parts(tuple(found), columns[held], np.flatnonzero(loose))


def groups_of(reads: Mask) -> list[list[int]]:
    """Constraints, by number, grouped so that no decision is read by two groups."""
    return sorted(
        [*_tied(reads), *([rule] for rule in np.flatnonzero(~reads.any(axis=1)).tolist())]
    )


def _tied(reads: Mask) -> list[list[int]]:
    """The groups of constraints that read anything."""
    found = [
        sorted(node for node in nodes if isinstance(node, int))
        for nodes in nx.connected_components(_graph(reads))
    ]
    return sorted(found)


def _graph(reads: Mask) -> nx.Graph:
    """Constraints that read anything, as their numbers, tied to what they read: tuples of a
    number."""
    rules, columns = np.nonzero(reads)
    return nx.Graph(
        (rule, (column,)) for rule, column in zip(rules.tolist(), columns.tolist(), strict=True)
    )


def _held(reads: Mask) -> list[int]:
    """Decisions that join what would be parts, found in each group of constraints by itself: what
    falls apart without one is looked at again, and nothing else is."""
    counts = reads.sum(axis=0).tolist()
    held: list[int] = []
    left = _pieces(_graph(reads))
    while left:
        piece = left.pop()
        joint = _joint(piece, counts)
        if joint is not None:
            held.append(joint)
            piece.remove_node((joint,))
            left += _pieces(piece)
    return sorted(held)


def _pieces(graph: nx.Graph) -> list[nx.Graph]:
    """What hangs together and may be two parts, each as a graph of its own."""
    pieces = [nodes for nodes in nx.connected_components(graph) if len(nodes) > 2 * LEAST]
    return [graph.subgraph(nodes).copy() for nodes in pieces]


def _joint(graph: nx.Graph, counts: list[int]) -> int | None:
    """The decision without which the largest part is smallest, if that leaves two worth the name;
    of several the one read most."""
    best: tuple[int, int, int] | None = None
    for column, sizes in _parted(graph):
        if len(sizes) > 1 and sorted(sizes)[-2] >= LEAST:
            found = (max(sizes), -counts[column], column)
            best = found if best is None else min(best, found)
    return None if best is None else best[2]


def _parted(graph: nx.Graph) -> Iterator[tuple[int, list[int]]]:
    """Decisions without which what hangs together falls apart, and how many decisions each piece
    would have: what lies behind each block of the tree of blocks that meet in single nodes.

    (Harary, Graph Theory, 1969, chapter 4.)
    """
    blocks = list(nx.biconnected_components(graph))
    joints = set(nx.articulation_points(graph))
    tree = nx.Graph()
    weights: dict[Any, int] = {joint: int(isinstance(joint, tuple)) for joint in joints}
    for number, block in enumerate(blocks):
        name = ("block", number)
        weights[name] = sum(isinstance(node, tuple) for node in block - joints)
        tree.add_edges_from((name, joint) for joint in block & joints)
    for nodes in list(nx.connected_components(tree)):
        root = next(iter(nodes))
        below = {node: weights[node] for node in nodes}
        parents = dict(nx.bfs_predecessors(tree, root))
        for node in reversed(parents):  # the farthest first
            below[parents[node]] += below[node]
        for joint in nodes & joints:
            if not isinstance(joint, tuple):
                continue
            sizes = [below[near] for near in tree[joint] if parents.get(near) == joint]
            if joint in parents:
                sizes.append(below[root] - below[joint])
            yield joint[0], sizes
