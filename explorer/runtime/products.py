"""Sums of products in a program, and their operands as matrices, for array libraries.

A product becomes one call on three-dimensional views (batch, rows, depth) and (batch, depth,
columns). Knows axes and strides; no library.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from explorer.runtime.base import Array
from ir.ops.map import Cast, Map
from ir.ops.reduce import Contract, Reduce
from ir.ops.store import Store
from ir.program import Program


@dataclass(frozen=True, slots=True)
class Product:
    """The sum over `over` of left * right, whose axes are batch, rows and columns.

    `left` and `right` are positions of nodes. `behind` are those of the casts and of the store that
    alone read the product, where its axes are in the order in which it is stored.
    """

    left: int
    right: int
    over: tuple[str, ...]
    batch: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    behind: tuple[int, ...] = ()

    @property
    def axes(self) -> tuple[str, ...]:
        """Of the result, in the order in which it is computed."""
        return self.batch + self.rows + self.columns


@dataclass(frozen=True, slots=True)
class Value:
    """An array whose dimensions are the named `axes`; `dtype` says how elements are stored."""

    axes: tuple[str, ...]
    array: Array
    dtype: str

    def aligned(self, axes: Sequence[str]) -> Array:
        """A view with one dimension for each of `axes`, of extent 1 where the value has none."""
        order = [self.axes.index(axis) for axis in axes if axis in self.axes]
        moved = self.array.transpose(order)
        return moved[tuple(slice(None) if axis in self.axes else None for axis in axes)]

    def matrices(self, *groups: tuple[str, ...]) -> Array:
        """One dimension for each group of axes; a view where strides allow, else a copy."""
        extents = dict(zip(self.axes, self.array.shape, strict=True))
        shape = tuple(prod(extents.get(axis, 1) for axis in group) for group in groups)
        return self.aligned([axis for group in groups for axis in group]).reshape(shape)


def product_at(program: Program, position: int) -> Product | None:
    """The node as a product: a contraction, or a sum over a product with rows and columns."""
    node = program.nodes[position]
    if isinstance(node.op, Contract):
        return _product(program, position, node.args, node.op.over)
    if not isinstance(node.op, Reduce) or node.op.kind != "sum":
        return None
    body = program.nodes[node.args[0]]
    if not isinstance(body.op, Map) or body.op.function != "mul":
        return None
    found = _product(program, position, body.args, node.op.over)
    return found if found.rows and found.columns else None


def _product(
    program: Program, position: int, args: tuple[int, ...], over: tuple[str, ...]
) -> Product:
    left, right = args
    mine, others = program.nodes[left].axes, program.nodes[right].axes
    behind = _to_store(program, position)
    order = program.nodes[behind[-1] if behind else position].axes
    batch = tuple(axis for axis in order if axis in mine and axis in others)
    rows = tuple(axis for axis in order if axis in mine and axis not in others)
    columns = tuple(axis for axis in order if axis in others and axis not in mine)
    found = Product(left, right, over, batch, rows, columns)
    turned = Product(right, left, over, batch, columns, rows)
    fitting = [one for one in (found, turned) if behind and one.axes == order]
    return replace(fitting[0], behind=behind) if fitting else found


def _to_store(program: Program, position: int) -> tuple[int, ...]:
    """Casts and, last, the store that are a node's only readers one after another; or nothing."""
    found: list[int] = []
    while len(users := program.users(position)) == 1:
        (position,) = users
        found.append(position)
        op = program.nodes[position].op
        if isinstance(op, Store):
            return tuple(found)
        if not isinstance(op, Cast):
            break
    return ()
