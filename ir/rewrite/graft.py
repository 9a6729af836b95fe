"""Rebuilding a program node by node: the common ground of the rewrites. Knows no rewrite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ir.builder import Graph
from ir.ops.read import Read
from ir.program import Program
from ir.tiles import Tile


def graft(program: Program, *, extents: dict[str, int] | None = None) -> Graph:
    """An empty graph with the axes (or `extents`), tensors and pins of `program`."""
    return Graph.like(program.name, extents or program.axes, program.tensors, program.pins)


def copy_node(graph: Graph, program: Program, position: int, args: list[Tile]) -> Tile:
    """Append the op of node `position` with new arguments, whose axes may be in another order."""
    node = program.nodes[position]
    if isinstance(node.op, Read):
        return graph.add(read_as(node.op, program.nodes[node.args[0]].axes, args[0]), *args)
    return graph.add(node.op, *args)


def read_as(op: Read, axes: Sequence[str], tile: Tile) -> Read:
    """A read of a tile over `axes` as one of the same tile with its axes in another order."""
    index = dict(zip(axes, op.index, strict=True))
    return replace(op, index=tuple(index[axis] for axis in tile.axes))
