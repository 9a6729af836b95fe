"""In which order the axes of a value between kernels lie in memory, beyond what its readers ask."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import prod

from ir.dtypes import dtype_of
from ir.ops.store import Store
from ir.program import Program
from ir.stages import is_reduction, reduced_axes
from ir.targets.cuda.build.products import (
    Product,
    for_tensor_cores,
    is_elementwise,
    memory_order,
    product_of,
)

_MANY = 32  # elements side by side, below which a row in memory is short
_TILE = 64  # rows or columns of the smallest tile


def is_for_tensor_cores(program: Program, position: int) -> bool:
    """Whether a node is a product that tensor cores can compute."""
    return position in _for_tensor_cores(program)


@lru_cache(maxsize=512)
def _for_tensor_cores(program: Program) -> frozenset[int]:
    products = (product_of(program, position) for position in range(len(program.nodes)))
    return frozenset(p.position for p in products if p and for_tensor_cores(program, p))


@lru_cache(maxsize=4096)
def order_between(program: Program, position: int) -> tuple[str, ...]:
    """The axes of a value that goes through memory: what its readers on tensor cores sum is last,
    where nothing is lost by that."""
    node = program.nodes[position]
    over: dict[str, None] = {}
    for user in program.users(position):
        product = product_of(program, user) if is_reduction(program.nodes[user]) else None
        if product is not None and for_tensor_cores(program, product):
            over.update(dict.fromkeys(_summed_order(program, product, position)))
    if not over or _reads_short(program, position, over):
        return _long_last(program, position)
    whole = _whole_sides(program, position, over)
    if whole:
        return whole
    axes = (*(a for a in node.axes if a not in over), *(a for a in over if a in node.axes))
    return _written_last(program, position, axes)


def _whole_sides(program: Program, position: int, over: Iterable[str]) -> tuple[str, ...]:
    """The axes of a value as rows and columns of the product that makes it, each as they lie in its
    operands, so that either is one axis to it; where both are of several axes, the last of which
    are no tile by themselves, and readers still sum neighbours. Empty where it is otherwise."""
    node, maker = program.nodes[position], _maker(program, position)
    if maker is None:
        return ()
    sides = [
        _lying(program, operand, side)
        for operand, side in ((maker.a, maker.rows), (maker.b, maker.columns))
    ]
    batch = tuple(axis for axis in node.axes if axis in maker.batch)
    if {*batch, *sides[0], *sides[1]} != {*node.axes}:
        return ()
    if any(len(side) < 2 or program.axes[side[-1]] >= _TILE for side in sides):
        return ()
    first, last = sides if sides[1][-1] in over else sides[::-1]
    if last[-1] not in over or program.axes[last[-1]] < _MANY:
        return ()
    return (*batch, *first, *last)


def _summed_order(program: Program, product: Product, cut: int) -> tuple[str, ...]:
    """The summed axes as they lie in the operand beside the one that is cut: both are walked."""
    axes = program.nodes[cut].axes
    own = sorted((axis for axis in product.over if axis in axes), key=axes.index)
    beside = product.b if product.a == cut else product.a
    there = program.nodes[beside].axes
    alone = [axis for axis in own if axis not in there]
    return (*alone, *memory_order(program, beside, tuple(a for a in own if a in there)))


def _lying(program: Program, operand: int, axes: tuple[str, ...]) -> tuple[str, ...]:
    """Some axes of an operand as they lie in memory: loaded, or written by another kernel."""
    if _maker(program, operand) is None:
        return memory_order(program, operand, axes)
    return tuple(axis for axis in order_between(program, operand) if axis in axes)


def _long_last(program: Program, position: int) -> tuple[str, ...]:
    """The axes of a value in memory: where the last one is short, it is behind one that is last in
    what the value is made of, or else the longest, so that neighbours are many. Of what an operand
    of tensor cores is computed, one that its kernel sums is last."""
    node = program.nodes[position]
    long = [axis for axis in node.axes if program.axes[axis] >= _MANY]
    if not long or node.axes[-1] in long:
        return node.axes
    summed = _summed_later(program, position)
    if summed:
        long = [axis for axis in long if axis in summed]
        if not long or node.axes[-1] in summed:
            return node.axes
    made = [program.nodes[arg].axes for arg in node.args if program.nodes[arg].axes]
    lasts = [axes[-1] for axes in made if axes[-1] in long]
    last = lasts[0] if lasts else max(long, key=lambda axis: program.axes[axis])
    return (*(axis for axis in node.axes if axis != last), last)


def _reads_short(program: Program, position: int, over: Iterable[str]) -> bool:
    """Whether rows of what a product sums of a value were short in memory, where its kernel writes
    long ones and the product's operand may lie either way."""
    node = program.nodes[position]
    if dtype_of(node.dtype).bits != 16 or not node.axes or node.axes[-1] in over:
        return False
    short = prod(program.axes[axis] for axis in over if axis in node.axes) < _MANY
    return short and program.axes[node.axes[-1]] >= _MANY


def _summed_later(program: Program, position: int) -> set[str]:
    """What products for tensor cores sum of operands that are elementwise made of a value."""
    pending, seen, found = [position], set[int](), set[str]()
    while pending:
        for user in program.users(pending.pop()):
            if is_for_tensor_cores(program, user):
                found.update(reduced_axes(program.nodes[user]))
            elif is_elementwise(program, user) and user not in seen:
                seen.add(user)
                pending.append(user)
    return found


def _written_last(program: Program, position: int, axes: tuple[str, ...]) -> tuple[str, ...]:
    """The same axes, one last along which the product that makes a value has neighbours, so that
    its kernel writes rows; of two, the one that its reader's results are written along. What is
    summed of a 16-bit operand need not be."""
    maker = _maker(program, position)
    if maker is None or dtype_of(program.nodes[position].dtype).bits != 16:
        return axes
    sides = ((maker.a, maker.rows), (maker.b, maker.columns))
    ends = [_lying(program, x, side)[-1] for x, side in sides if side]
    long = [axis for axis in ends if program.axes[axis] >= _MANY]
    if not long or axes[-1] in ends:
        return axes
    wanted = _written_later(program, position)
    last = next((axis for axis in long if axis in wanted), long[0])
    return (*(axis for axis in axes if axis != last), last)


def _maker(program: Program, position: int) -> Product | None:
    """The one product for tensor cores that a value is, or is made of one point by one, whatever
    else (a bias, another tensor) comes to it."""
    pending, seen, found = [position], {position}, set[int]()
    while pending:
        here = pending.pop()
        if is_for_tensor_cores(program, here):
            found.add(here)
        elif is_elementwise(program, here):
            pending += {*program.nodes[here].args} - seen
            seen.update(program.nodes[here].args)
    return product_of(program, found.pop()) if len(found) == 1 else None


def _written_later(program: Program, position: int) -> set[str]:
    """The axes that lie last where results of the products of a value are written, or that the
    next products sum of them."""
    found = set[str]()
    for user in program.users(position):
        if not is_for_tensor_cores(program, user):
            continue
        found |= _summed_later(program, user)
        pending, seen = [user], {user}
        while pending:
            for reader in program.users(pending.pop()):
                op = program.nodes[reader].op
                if isinstance(op, Store):
                    found.update(op.axes[-1:])
                elif is_elementwise(program, reader) and reader not in seen:
                    seen.add(reader)
                    pending.append(reader)
    return found
