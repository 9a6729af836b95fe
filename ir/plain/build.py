"""Plain kernels of programs that hold folds, the top of an axis, a scatter or the states of a loop.

What is elementwise before these is computed where it is read, what is elementwise behind them where
it is stored.
"""

from __future__ import annotations

from collections.abc import Callable

from ir.errors import ProgramError
from ir.ops.base import Op
from ir.ops.fold import Fold
from ir.ops.recur import Before
from ir.ops.scatter import Scatter
from ir.ops.top import Top
from ir.plain.code import PlainKernel
from ir.plain.folds import fold_kernel
from ir.plain.scatters import scatter_kernel
from ir.plain.states import state_kernel
from ir.plain.tops import top_kernel
from ir.plain.values import Values, refuse_behind
from ir.program import Program

Maker = Callable[[Values, list[int]], PlainKernel]
_MAKERS: dict[type[Op], Maker] = {
    Before: state_kernel,
    Fold: fold_kernel,
    Top: top_kernel,
    Scatter: scatter_kernel,
}


def plain_kernel(program: Program, owners: int = 1) -> PlainKernel:
    """The kernel of a program with one group of folds, tops or states, or one scatter.

    `owners` is how many points a scatter may make where its axes give fewer: each goes through all
    that is sent, so that many pay where threads are many.
    """
    kinds = {
        kind: [place for place, node in enumerate(program.nodes) if isinstance(node.op, kind)]
        for kind in _MAKERS
    }
    found = [kind for kind, places in kinds.items() if places]
    if Before in found:
        found = [Before]  # whose steps may hold others
    if len(found) != 1:
        named = " and ".join(kind.name for kind in found) or "none"
        raise ProgramError(
            f"{program.name}: a plain kernel computes states, folds, tops or a scatter, and "
            f"one of these; here are {named}"
        )
    (kind,) = found
    if kind is not Before:
        refuse_behind(program, kinds[kind])
    if kind is Scatter:
        return scatter_kernel(Values(program), kinds[kind], owners)
    return _MAKERS[kind](Values(program), kinds[kind])
