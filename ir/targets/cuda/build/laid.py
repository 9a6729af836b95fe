"""Inputs and outputs of products laid anew: with their dimensions in an order that they take.

An image with its channels ahead of its rows is contiguous along what a window moves along; taps
behind the channels of a weight are three numbers long. No bulk copy makes tiles of these. Behind
one pass through memory each is contiguous along one plain axis, and all else is as ever. So is what
an operand is scaled with along its sum: a step of each head lies beside those of other heads, where
a tile has one of them.

An output whose neighbours in memory are of several batches (products of the blocks of a matrix,
which lie beside each other) gets one number of each line from each product. Written as the products
have it, and once more from there, it is whole lines twice. Knows no schedule.
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
from ir.targets.cuda.build.computed import below, large_loads
from ir.targets.cuda.build.orders import is_for_tensor_cores
from ir.targets.cuda.build.products import (
    STRIDE_UNIT,
    Product,
    product_of,
)
from ir.tiles import Tile

MOVABLE = 2  # bytes of elements that products take along any axis


@dataclass(frozen=True, slots=True)
class Order:
    """The dimensions of a tensor in another order, and the tensor that has them so."""

    tensor: str
    dimensions: tuple[int, ...]
    laid: TensorSpec


Known = dict[tuple[str, tuple[int, ...]], Order]


def laid_anew(program: Program, taken: frozenset[str], known: Known) -> tuple[Program, ...]:
    """Copies of inputs, by names that are not `taken`, and the program that reads them; it alone
    where its products take all operands as they are. Copies that are `known` are there, what is
    copied becomes known."""
    orders: dict[int, Order] = {}
    new: Known = {}
    for position in range(len(program.nodes)):
        product = product_of(program, position) if is_for_tensor_cores(program, position) else None
        found = (*_unfit(program, product), *_apart(program, product)) if product else ()
        for load, dimensions in found:
            op = program.nodes[load].op
            assert isinstance(op, Load)
            key = (op.tensor, dimensions)
            if key not in known:
                names = {order.laid.name for order in known.values()}
                known[key] = new[key] = _order(program, *key, taken | names)
            orders[load] = known[key]
    if not orders:
        return (program,)
    copies = [_copy(program, one, number) for number, one in enumerate(new.values())]
    return (*copies, _reading(program, orders))


def outputs_anew(program: Program, taken: frozenset[str]) -> tuple[Program, ...]:
    """The program with outputs of products as these have them, by names that are not `taken`, and
    what copies these; it alone where they lie so."""
    orders = {
        store.tensor: axes
        for position, store in program.stores()
        if (axes := _in_lines(program, position, store)) is not None
    }
    found: dict[str, TensorSpec] = {}
    copies: list[Program] = []
    for _, store in program.stores():
        if store.tensor not in orders:
            continue
        spec, axes = program.scope.tensors[store.tensor], orders[store.tensor]
        name = _fresh("made_", store.tensor, {*taken, *found, *program.scope.tensors})
        shape = program.scope.shape(axes)
        found[store.tensor] = made = TensorSpec(name, shape, spec.dtype, "output")
        extents = {axis: program.axes[axis] for axis in axes}
        end = f"_made{len(copies)}"
        both = (replace(made, role="input"), spec)
        graph = Graph.like(f"{program.name[: LONGEST_NAME - len(end)]}{end}", extents, both, ())
        read = graph.add(Load(name, tuple(Index(((axis, 1),)) for axis in axes)))
        graph.add(store, read)
        copies.append(graph.program())
    if not copies:
        return (program,)
    tensors = tuple(found.get(spec.name, spec) for spec in program.tensors)
    graph, tiles = Graph.like(program.name, program.axes, tensors, program.pins), list[Tile]()
    for position, node in enumerate(program.nodes):
        args, op = [tiles[arg] for arg in node.args], node.op
        if isinstance(op, Store) and op.tensor in found:
            tiles.append(graph.add(Store(found[op.tensor].name, orders[op.tensor]), *args))
        else:
            tiles.append(copy_node(graph, program, position, args))
    return (graph.program(), *copies)


def _in_lines(program: Program, position: int, store: Store) -> tuple[str, ...] | None:
    """The axes of an output with its products' batches first; None where it ends with an axis of
    theirs, or is made of none for tensor cores."""
    behind = program.behind(program.nodes[position].args, lambda p: False)
    products = [
        product
        for node in sorted(behind, reverse=True)
        if is_for_tensor_cores(program, node) and (product := product_of(program, node))
    ]
    wide = [axis for axis in store.axes if program.axes[axis] > 1]
    if not products or not wide or wide[-1] not in products[0].batch:
        return None
    batch = [axis for axis in store.axes if axis in products[0].batch]
    rest = [axis for axis in store.axes if axis not in batch]
    return (*batch, *rest) if any(program.axes[axis] > 1 for axis in rest) else None


def _fresh(prefix: str, name: str, taken: set[str]) -> str:
    """A name behind a prefix, or several, that is not taken."""
    name = f"{prefix}{name}"[:LONGEST_NAME]
    while name in taken:
        name = f"{prefix}{name}"[:LONGEST_NAME]
    return name


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


def _apart(program: Program, product: Product) -> Iterator[tuple[int, tuple[int, ...]]]:
    """What computed operands read along the sum in lines that lie across it and are none of their
    own, and the order in which a line lies along it."""
    for x in (product.a, product.b):
        if isinstance(program.nodes[x].op, Load):
            continue
        large = large_loads(program, x)
        own = {axis for load in large for axis in _line(program, load)}
        for load in sorted(below(program, x)):
            op = program.nodes[load].op
            if not isinstance(op, Load):
                continue
            spec = program.scope.tensors[op.tensor]
            size = dtype_of(spec.dtype).bytes
            summed = [
                dim for dim, axis in _plain(op)
                if axis in product.over and program.axes[axis] * size >= STRIDE_UNIT
            ]  # fmt: skip
            told = op.fill is not None or any(one.gather is not None for one in op.index)
            if load in large or not summed or told or {*product.over, *own} & _line(program, load):
                continue
            dims = range(len(op.index))
            yield load, (*(dim for dim in dims if dim != summed[-1]), summed[-1])


def _line(program: Program, load: int) -> set[str]:
    """The axes along which a load's neighbours in memory lie."""
    op = program.nodes[load].op
    index = op.index[-1:] if isinstance(op, Load) else ()
    return {axis for one in index for axis, _ in one.terms if program.axes[axis] > 1}


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
) -> Order:
    spec = program.scope.tensors[tensor]
    name = _fresh("laid_", tensor, {*taken, *program.scope.tensors})
    unit = max(1, STRIDE_UNIT // dtype_of(spec.dtype).bytes)
    *outer, last = (spec.shape[dim] for dim in dimensions)
    return Order(
        tensor, dimensions, TensorSpec(name, (*outer, -(-last // unit) * unit), spec.dtype, "input")
    )


def _copy(program: Program, order: Order, number: int) -> Program:
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


def _reading(program: Program, orders: dict[int, Order]) -> Program:
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
