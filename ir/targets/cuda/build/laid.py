"""Inputs of products laid anew: copies with their dimensions in an order that tensor cores take.

An image with its channels ahead of its rows is contiguous along what a window moves along; taps
behind the channels of a weight are three numbers long. No bulk copy makes tiles of these. Behind
one pass through memory each is contiguous along one plain axis, and all else is as ever. Knows no
schedule.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ir.builder import Graph
from ir.dtypes import dtype_of
from ir.ops.base import TensorSpec
from ir.ops.load import Index, Load
from ir.ops.store import Store
from ir.program import LONGEST_NAME, Program
from ir.rewrite.graft import copy_node
from ir.targets.cuda.build.orders import is_for_tensor_cores
from ir.targets.cuda.build.products import STRIDE_UNIT, Product, product_of
from ir.tiles import Tile

MOVABLE = 2  # bytes of elements that products take along any axis


@dataclass(frozen=True, slots=True)
class _Order:
    """The dimensions of a tensor in another order, and the tensor that has them so."""

    tensor: str
    dimensions: tuple[int, ...]
    laid: TensorSpec


def laid_anew(program: Program, taken: frozenset[str]) -> tuple[Program, ...]:
    """Copies of inputs, by names that are not `taken`, and the program that reads them; it alone
    where its products take all operands as they are."""
    orders: dict[int, _Order] = {}
    known: dict[tuple[str, tuple[int, ...]], _Order] = {}
    for position in range(len(program.nodes)):
        product = product_of(program, position) if is_for_tensor_cores(program, position) else None
        for load, dimensions in _unfit(program, product) if product else ():
            op = program.nodes[load].op
            assert isinstance(op, Load)
            key = (op.tensor, dimensions)
            if key not in known:
                known[key] = _order(program, *key, taken | {o.laid.name for o in known.values()})
            orders[load] = known[key]
    if not orders:
        return (program,)
    copies = [_copy(program, one, number) for number, one in enumerate(known.values())]
    return (*copies, _reading(program, orders))


def _unfit(program: Program, product: Product) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Operands that are contiguous along no plain axis, and the order in which each is."""
    operands = dict.fromkeys((product.a, product.b))
    ops = {x: op for x in operands if isinstance(op := program.nodes[x].op, Load)}
    moving = {axis for op in ops.values() for one in op.index for axis in _window(one)}
    for x, op in ops.items():
        spec = program.scope.tensors[op.tensor]
        if spec.role != "input" or spec.packs or any(one.gather is not None for one in op.index):
            continue
        size = dtype_of(spec.dtype).bytes
        able = {
            dim: axis
            for dim, axis in _plain(op)
            if axis not in moving
            and (size == MOVABLE or axis in product.over)
            and program.axes[axis] * size >= STRIDE_UNIT
        }
        last = len(op.index) - 1
        if able and last not in able:
            longest = max(able, key=lambda dim: program.axes[able[dim]])
            summed = [dim for dim, axis in able.items() if axis in product.over]
            best = summed[-1] if summed else longest
            yield x, (*(dim for dim in range(last + 1) if dim != best), best)


def _plain(op: Load) -> Iterator[tuple[int, str]]:
    """The dimensions that go along one axis, point by point from its start, and that axis."""
    for dim, one in enumerate(op.index):
        if len(one.terms) == 1 and one == Index(((one.terms[0][0], 1),)):
            yield dim, one.terms[0][0]


def _window(index: Index) -> tuple[str, ...]:
    """The axes that move along a dimension together."""
    return tuple(axis for axis, _ in index.terms) if len(index.terms) > 1 else ()


def _order(
    program: Program, tensor: str, dimensions: tuple[int, ...], taken: frozenset[str]
) -> _Order:
    spec = program.scope.tensors[tensor]
    name = f"laid_{tensor}"[:LONGEST_NAME]
    while name in taken or name in program.scope.tensors:
        name = f"laid_{name}"[:LONGEST_NAME]
    unit = max(1, STRIDE_UNIT // dtype_of(spec.dtype).bytes)
    *outer, last = (spec.shape[dim] for dim in dimensions)
    return _Order(
        tensor, dimensions, TensorSpec(name, (*outer, -(-last // unit) * unit), spec.dtype, "input")
    )


def _copy(program: Program, order: _Order, number: int) -> Program:
    """What writes a tensor anew."""
    spec = program.scope.tensors[order.tensor]
    axes = tuple(f"d{dim}" for dim in range(len(spec.shape)))
    end = f"_laid{number}"
    tensors = (replace(spec, role="input"), replace(order.laid, role="output"))
    extents = dict(zip(axes, spec.shape, strict=True))
    graph = Graph.like(f"{program.name[: LONGEST_NAME - len(end)]}{end}", extents, tensors, ())
    read = graph.add(Load(spec.name, tuple(Index(((axis, 1),)) for axis in axes)))
    graph.add(Store(order.laid.name, tuple(axes[dim] for dim in order.dimensions)), read)
    return graph.program()


def _reading(program: Program, orders: dict[int, _Order]) -> Program:
    """The program with these loads of what was laid anew."""
    left = {
        node.op.tensor
        for position, node in enumerate(program.nodes)
        if isinstance(node.op, Load) and position not in orders
    }
    laid = {order.laid.name: order.laid for order in orders.values()}
    gone = {order.tensor for order in orders.values()} - left
    kept = tuple(spec for spec in program.tensors if spec.name not in gone)
    graph = Graph.like(program.name, program.axes, (*kept, *laid.values()), program.pins)
    made: list[Tile] = []
    for position, node in enumerate(program.nodes):
        order = orders.get(position)
        if order is not None and isinstance(node.op, Load):
            index = tuple(node.op.index[dim] for dim in order.dimensions)
            made.append(graph.add(replace(node.op, tensor=order.laid.name, index=index)))
        else:
            made.append(copy_node(graph, program, position, [made[arg] for arg in node.args]))
    return graph.program()
