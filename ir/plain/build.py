"""Plain kernels of programs that hold folds, the top of an axis, a scatter or the states of a loop;
or nothing but tiles read at other points.

What is elementwise before these is computed where it is read, what is elementwise behind them where
it is stored.
"""

from __future__ import annotations

from collections.abc import Callable

from ir.errors import ProgramError
from ir.ops.base import Op
from ir.ops.fold import Fold
from ir.ops.read import Read
from ir.ops.recur import Before
from ir.ops.scatter import Scatter
from ir.ops.top import Top
from ir.plain.chains import chain_kernel
from ir.plain.code import PlainKernel
from ir.plain.folds import fold_choices, fold_kernels
from ir.plain.overlapped import overlapped_kernel
from ir.plain.pieces import WHOLE, Choices, Ways
from ir.plain.scatters import scatter_choices, scatter_kernels
from ir.plain.states import state_kernel
from ir.plain.tops import top_choices, top_kernels
from ir.plain.values import Values, refuse_behind
from ir.plain.windows import windows_of
from ir.program import Program
from ir.rewrite.rounded import with_rounded_states


def _of_states(values: Values, group: list[int], ways: Ways) -> PlainKernel:
    """All steps of a loop one by one, or several at a time."""
    if ways.overlap is None:
        return state_kernel(values, group)
    return overlapped_kernel(values, ways.overlap)


Maker = Callable[[Values, list[int], Ways], tuple[PlainKernel, ...]]
Chooser = Callable[[Program, list[int]], Choices]
_MAKERS: dict[type[Op], Maker] = {
    Before: lambda values, group, ways: (_of_states(values, group, ways),),
    Fold: fold_kernels,
    Top: top_kernels,
    Scatter: scatter_kernels,
    Read: lambda values, group, ways: (chain_kernel(values),),
}
_CHOICES: dict[type[Op], Chooser] = {
    Before: lambda program, group: Choices(windows=windows_of(program)),
    Fold: fold_choices,
    Top: top_choices,
    Scatter: scatter_choices,
    Read: lambda program, group: Choices(),
}


def plain_kernels(program: Program, ways: Ways = WHOLE) -> tuple[PlainKernel, ...]:
    """The kernels, one after the other, of a program with one group of folds, tops or states, or
    one scatter; `ways` says how the work is cut."""
    program = with_rounded_states(program)
    kind, group = group_of(program)
    return _MAKERS[kind](Values(program), group, ways)


def choices_of(program: Program) -> Choices:
    """How the work of a program's plain kernels may be cut."""
    kind, group = group_of(program)
    return _CHOICES[kind](program, group)


def plain_kernel(program: Program, ways: Ways = WHOLE) -> PlainKernel:
    """The kernel of a program that is not cut into pieces."""
    (kernel,) = plain_kernels(program, ways)
    return kernel


def group_of(program: Program) -> tuple[type[Op], list[int]]:
    """What a plain kernel computes: the kind of op, and the nodes."""
    kinds = {
        kind: [place for place, node in enumerate(program.nodes) if isinstance(node.op, kind)]
        for kind in _MAKERS
    }
    found = [kind for kind, places in kinds.items() if places]
    if Before in found:
        found = [Before]  # whose steps may hold others
    if len(found) > 1:
        found = [kind for kind in found if kind is not Read]
    if len(found) != 1:
        named = " and ".join(kind.name for kind in found) or "none"
        raise ProgramError(
            f"{program.name}: a plain kernel computes states, folds, tops or a scatter, and "
            f"one of these; here are {named}"
        )
    (kind,) = found
    if kind not in (Before, Read):
        refuse_behind(program, kinds[kind])
    return kind, kinds[kind]
