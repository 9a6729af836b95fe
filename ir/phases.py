"""Phases of a program: what is computed behind what, because it is read at other points.

A fold, the top of an axis, a scatter, a state along an axis and a computed tile that is read
elsewhere need values that are whole in memory. So a program that has any of them becomes several,
joined by tensors: each is either free of these ops, for a target to lower as ever, or one of them
with what is elementwise before it, which a plain kernel computes. Knows no target.
"""

from __future__ import annotations

from dataclasses import dataclass

from ir.program import Program


@dataclass(frozen=True, slots=True)
class Phase:
    """One program of several, run in order.

    Its outputs are the whole program's outputs, or tensors that later phases have as inputs.
    `plain`: it holds folds, tops or scatters of one argument list, or the states of one loop, and a
    plain kernel (`ir.plain.build`) computes it.
    """

    program: Program
    plain: bool


def phases_of(program: Program) -> tuple[Phase, ...]:
    """The phases of a program in order; of most there is one, which is the program itself."""
    raise NotImplementedError
