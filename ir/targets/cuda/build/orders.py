"""In which order the axes of a value between kernels lie in memory, beyond what its readers ask."""

from __future__ import annotations

from ir.program import Program
from ir.targets.cuda.build.products import for_tensor_cores, is_elementwise, product_of

_MANY = 32  # elements side by side, below which a row in memory is short


def is_for_tensor_cores(program: Program, position: int) -> bool:
    """Whether a node is a product that tensor cores can compute."""
    product = product_of(program, position)
    return product is not None and for_tensor_cores(program, product)


def long_last(program: Program, position: int) -> tuple[str, ...]:
    """The axes of a value in memory: where the last one is short, it is behind one that is last in
    what the value is made of, or else the longest, so that neighbours are many. What an operand of
    tensor cores is computed of stays as its kernel sums."""
    node = program.nodes[position]
    long = [axis for axis in node.axes if program.axes[axis] >= _MANY]
    if not long or node.axes[-1] in long or _makes_operand(program, position):
        return node.axes
    made = [program.nodes[arg].axes for arg in node.args if program.nodes[arg].axes]
    lasts = [axes[-1] for axes in made if axes[-1] in long]
    last = lasts[0] if lasts else max(long, key=lambda axis: program.axes[axis])
    return (*(axis for axis in node.axes if axis != last), last)


def _makes_operand(program: Program, position: int) -> bool:
    """Whether a product for tensor cores has an operand that is elementwise made of a value."""
    pending, seen = [position], set[int]()
    while pending:
        for user in program.users(pending.pop()):
            if is_for_tensor_cores(program, user):
                return True
            if is_elementwise(program, user) and user not in seen:
                seen.add(user)
                pending.append(user)
    return False
