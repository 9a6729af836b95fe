"""In which order the axes of a value between kernels lie in memory, beyond what its readers ask."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from ir.dtypes import dtype_of
from ir.program import Program
from ir.stages import reduced_axes
from ir.targets.cuda.build.products import for_tensor_cores, is_elementwise, product_of

_MANY = 32  # elements side by side, below which a row in memory is short


def is_for_tensor_cores(program: Program, position: int) -> bool:
    """Whether a node is a product that tensor cores can compute."""
    product = product_of(program, position)
    return product is not None and for_tensor_cores(program, product)


def long_last(program: Program, position: int) -> tuple[str, ...]:
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


def reads_short(program: Program, position: int, over: Iterable[str]) -> bool:
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
