"""The program: a frozen graph of tile ops over named axes, with a networkx DiGraph underneath.

Knows no target, schedule or concrete operator. Building is `ir.builder`'s, meaning `ir.oracle`'s.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ir.dtypes import dtype_of
from ir.errors import ProgramError
from ir.ops.base import Op, Scope, TensorSpec, TileType
from ir.ops.store import Store

if TYPE_CHECKING:
    import networkx as nx

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")

Pin = tuple[str, str | int | bool]


@dataclass(frozen=True, slots=True)
class Node:
    """One op application. `args` are positions of earlier nodes in the program."""

    op: Op
    args: tuple[int, ...]
    type: TileType

    @property
    def axes(self) -> tuple[str, ...]:
        return self.type.axes

    @property
    def dtype(self) -> str:
        return self.type.dtype


@dataclass(frozen=True)
class Program:
    """Tile dataflow. `extents` are (axis, extent) pairs; nodes are in topological order."""

    name: str
    extents: tuple[tuple[str, int], ...]
    tensors: tuple[TensorSpec, ...]
    nodes: tuple[Node, ...]
    pins: tuple[Pin, ...] = ()

    def __post_init__(self) -> None:
        names = [self.name, *(axis for axis, _ in self.extents), *(t.name for t in self.tensors)]
        for name in names:
            if not _WORD.fullmatch(name):
                raise ProgramError(
                    f"{self.name}: {name!r} is not a name (letters, digits, _ and .)"
                )
        for axis, extent in self.extents:
            if extent < 1:
                raise ProgramError(f"{self.name}: axis {axis} has extent {extent}; needs >= 1")
        for position, node in enumerate(self.nodes):
            if any(not 0 <= arg < position for arg in node.args):
                raise ProgramError(f"{self.name}: node {position} ({node.op.name}) reads ahead")
            args = [self.nodes[arg].type for arg in node.args]
            if node.op.infer(args, self.scope) != node.type:
                what = f"node {position} ({node.op.name})"
                raise ProgramError(f"{self.name}: {what} has a wrong type")

    @cached_property
    def axes(self) -> dict[str, int]:
        return dict(self.extents)

    @cached_property
    def scope(self) -> Scope:
        return Scope(self.axes, {spec.name: spec for spec in self.tensors})

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return tuple(spec for spec in self.tensors if spec.role == "input")

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return tuple(spec for spec in self.tensors if spec.role == "output")

    @cached_property
    def graph(self) -> nx.DiGraph:
        """The dataflow graph; node attributes `node`, edge attributes `position`."""
        import networkx as nx  # takes longer than most programs need it for

        graph = nx.DiGraph()
        for position, node in enumerate(self.nodes):
            graph.add_node(position, node=node)
            for slot, arg in enumerate(node.args):
                graph.add_edge(arg, position, position=slot)
        return graph

    def users(self, position: int) -> tuple[int, ...]:
        """Positions of the nodes that read node `position`."""
        return tuple(self.graph.successors(position))

    def stores(self) -> Iterator[tuple[int, Store]]:
        """Positions and ops of the outputs."""
        for position, node in enumerate(self.nodes):
            if isinstance(node.op, Store):
                yield position, node.op

    @cached_property
    def flops(self) -> int:
        """Arithmetic operations of one run, counted op by op at the whole extents."""
        return sum(
            node.op.flops([self.nodes[arg].type for arg in node.args], node.type, self.scope)
            for node in self.nodes
        )

    @cached_property
    def bytes(self) -> int:
        """Compulsory memory traffic: every tensor once."""
        total = 0
        for spec in self.tensors:
            size = dtype_of(spec.dtype).bytes
            for extent in spec.shape:
                size *= extent
            total += size
        return total

    @cached_property
    def key(self) -> str:
        """Structural hash: names of nodes do not matter, names of axes and tensors do."""
        return hashlib.sha256(str(self).encode()).hexdigest()

    def __str__(self) -> str:
        from ir.text import to_text

        return to_text(self)
