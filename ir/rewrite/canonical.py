"""The canonical form of a program: equal for programs that differ in the order of nodes, and of the
operands of sums and products, alone."""

from __future__ import annotations

import hashlib

from ir.ops.map import Map
from ir.ops.reduce import Contract, Reduce
from ir.ops.store import Store
from ir.program import Node, Program
from ir.rewrite.patterns import SWAPS


def canonical(program: Program) -> str:
    """A hash of what is stored, of what it is made of, and of the extents."""
    known = _keys(program)
    read = {arg for node in program.nodes for arg in node.args}
    stores = sorted(
        known[position] for position, node in enumerate(program.nodes)
        if isinstance(node.op, Store) or position not in read
    )  # fmt: skip
    used = {axis for node in program.nodes for axis in node.axes}
    extents = sorted((axis, extent) for axis, extent in program.extents if axis in used)
    return _hashed(str(extents), str(program.tensors), *stores)


def node_key(program: Program, position: int) -> str:
    """A short name of a value by what it is made of."""
    return _keys(program)[position][:6]


def _keys(program: Program) -> list[str]:
    known: list[str] = []
    for node in program.nodes:
        args = [known[arg] for arg in node.args]
        head = node.op.function if isinstance(node.op, Map) else node.op.name
        if head in SWAPS:
            args.sort()
        known.append(_hashed(_named(node), node.dtype, *args))
    return known


def _named(node: Node) -> str:
    if isinstance(node.op, Contract | Reduce):
        rest = node.op.kind if isinstance(node.op, Reduce) else node.op.acc
        return f"{node.op.name} {rest} {sorted(node.op.over)}"
    return repr(node.op)


def _hashed(*parts: str) -> str:
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()
