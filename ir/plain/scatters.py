"""A scatter: each point of the axes that are sent to themselves owns its part of the output."""

from __future__ import annotations

import math

import numpy as np

from ir.dtypes import is_float
from ir.errors import ProgramError
from ir.ops.read import is_itself
from ir.ops.scatter import Scatter
from ir.ops.store import Store
from ir.plain.block import Block
from ir.plain.code import Element, Number, PlainKernel, Scalar, Write
from ir.plain.scalars import both, call, convert, flat, inside, number
from ir.plain.values import Point, Values
from ir.scalar import COMBINES


def scatter_kernel(values: Values, group: list[int]) -> PlainKernel:
    """Fills the owned part with what nothing sent makes, and sends element after element."""
    program = values.program
    op, output = _checked(values, group)
    own = [axis for axis, place in zip(op.axes, op.index, strict=True) if is_itself(axis, place)]
    points = values.points(own)
    block = Block(values.names)
    shape = program.scope.tensors[output.tensor].shape
    start = _start(op.kind, values.dtype(group[0]))

    def fill(inner: Block, at: Point) -> None:
        inner.add(Write(output.tensor, flat([at[a] for a in output.axes], shape), start))

    values.looped(block, [axis for axis in output.axes if axis not in own], points, fill)
    args = program.nodes[group[0]].args
    sources = op.sources([program.nodes[arg].type for arg in args])
    values.looped(
        block,
        [axis for axis in sources if axis not in own],
        points,
        lambda inner, at: _send(values, inner, group[0], output, at),
    )
    return values.kernel(points, block)


def _send(values: Values, block: Block, position: int, output: Store, at: Point) -> None:
    """Combine one element with what it meets, if it is sent inside."""
    program, node = values.program, values.program.nodes[position]
    op = node.op
    assert isinstance(op, Scatter)
    places: dict[str, Scalar] = {}
    within: Scalar | None = None
    for axis, place in zip(op.axes, op.index, strict=True):
        found = values.place(block, place, node.args, at)
        low, high = place.bounds(program.scope)
        unknown, extent = place.gather is not None, program.axes[axis]
        found = block.named(found, "p")
        within = both(within, inside(found, extent, unknown or low < 0, unknown or high >= extent))
        places[axis] = found
    inner = block.inner() if within is not None else block
    where = flat([places[axis] for axis in output.axes], program.scope.tensors[output.tensor].shape)
    where = inner.named(where, "p")
    dtype = values.dtype(position)
    new = convert(values.value(inner, node.args[0], at), dtype)
    function = "or" if op.kind == "or" else COMBINES[op.kind].function
    sent = call(function, Element(output.tensor, where, dtype), new)
    inner.add(Write(output.tensor, where, sent))
    if within is not None:
        block.branch(within, inner)


def _start(kind: str, dtype: str) -> Number:
    """What is where nothing was sent, as `ir.ops.scatter` says."""
    if kind == "or":
        return number(False, dtype)
    value = COMBINES[kind].identity
    if math.isinf(value) and not is_float(dtype):
        bounds = np.iinfo(np.int32)
        value = int(bounds.min if value < 0 else bounds.max)
    return number(value, dtype)


def _checked(values: Values, group: list[int]) -> tuple[Scatter, Store]:
    """The scatter and where it is stored: at once, in the type that it is combined in."""
    program = values.program
    ops = [program.nodes[position].op for position in group]
    op = ops[0]
    assert isinstance(op, Scatter)
    what = f"{program.name}: scatter {op.kind} to {', '.join(op.axes)}"
    if len(group) > 1:
        raise ProgramError(f"{what}: a plain kernel computes one scatter, here are {len(group)}")
    users = [program.nodes[user].op for user in program.users(group[0])]
    stores = [op for _, op in program.stores()]
    store = stores[0]
    if len(stores) > 1 or users != stores or len(op.axes) != len(store.axes):
        raise ProgramError(f"{what}: a plain kernel stores the scatter, once, and nothing else")
    spec = program.scope.tensors[store.tensor]
    if spec.dtype != program.nodes[group[0]].dtype:
        raise ProgramError(
            f"{what}: combined in {program.nodes[group[0]].dtype}, stored as {spec.dtype}: each "
            "element sent would be rounded; store it wide, and cast what is stored"
        )
    return op, store
