"""Rebuilding a program node by node: the common ground of the rewrites. Knows no rewrite."""

from __future__ import annotations

from ir.builder import Graph
from ir.program import Program
from ir.tiles import Tile


def graft(program: Program, *, extents: dict[str, int] | None = None) -> Graph:
    """An empty graph with the axes (or `extents`), tensors and pins of `program`."""
    return Graph.like(program.name, extents or program.axes, program.tensors, program.pins)


def copy_node(graph: Graph, program: Program, position: int, args: list[Tile]) -> Tile:
    """Append the op of node `position` with new arguments."""
    return graph.add(program.nodes[position].op, *args)
