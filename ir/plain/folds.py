"""Folds along one axis of the same tiles: each point of the other axes goes along it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ir.errors import ProgramError
from ir.ops.base import Op
from ir.ops.fold import Fold
from ir.plain.block import Block
from ir.plain.code import Accumulate, Name, PlainKernel, Scalar
from ir.plain.folds_cut import Columns, PiecedFold, other_axes
from ir.plain.pieces import Choices, Ways
from ir.plain.values import Given, Values
from ir.program import Program


def fold_kernels(values: Values, group: list[int], ways: Ways) -> tuple[PlainKernel, ...]:
    """One accumulation, of which the group's nodes are states; or several, of pieces of the axis,
    or of many neighbours at a time."""
    op, args = _shared(values, group)
    inner = _inner_axis(values.program, group, op, args) if ways.inner else None
    if inner is not None:
        return (Columns(values, group, op, args, inner, ways).kernel(),)
    if min(ways.pieces, values.program.axes[op.axis]) > 1:
        return PiecedFold(values, group, op, args, ways.pieces).kernels()
    return (_fold_kernel(values, group, op, args),)


def fold_choices(program: Program, group: list[int]) -> Choices:
    """How a fold may be cut."""
    op, args = _shared(Values(program), group)
    inner = _inner_axis(program, group, op, args)
    return Choices(program.axes[op.axis], inner=inner is not None)


def _inner_axis(program: Program, group: list[int], op: Fold, args: tuple[int, ...]) -> str | None:
    """The axis that varies fastest in what is folded and in what is stored, if the fold is along
    another one."""
    behind = Values(program).behind(group)
    stores = tuple(program.stores())
    tiles = [program.nodes[arg].axes for arg in args if set(program.nodes[arg].axes) - {op.axis}]
    found = {axes[-1] for axes in (*tiles, *(store.axes or ("",) for _, store in stores))}
    if len(found) != 1 or {at for at, _ in stores} != set(behind):
        return None
    (axis,) = found
    return axis if axis and axis != op.axis else None


def _fold_kernel(values: Values, group: list[int], op: Fold, args: tuple[int, ...]) -> PlainKernel:
    program = values.program
    at = values.points(other_axes(program, op, args))
    variable = Name(values.names.fresh(f"i_{op.axis}"))
    here = {**at, op.axis: variable}
    states = tuple(Name(values.names.fresh("state"), values.dtype(arg)) for arg in args)
    block = Block(values.names)
    body, kept = block.inner(), block.inner()
    made = tuple(values.value(body, arg, here) for arg in args)
    for position in group:
        values.given[position] = _state(states, program.nodes[position].op)
    early = values.behind(group) if op.keep else []
    for position in early:
        values.store(kept, position, here)
    extent, merge = program.axes[op.axis], op.how
    block.add(Accumulate(variable, extent, op.backward, body.body, made, states, merge, kept.body))
    for position, _ in program.stores():
        if position not in early:
            values.store(block, position, at)
    return values.kernel(at, block)


def _state(states: Sequence[Scalar], op: Op) -> Given:
    assert isinstance(op, Fold)
    state = states[op.part]
    return lambda block, at: state


def _shared(values: Values, group: list[int]) -> tuple[Fold, tuple[int, ...]]:
    """The fold and its arguments, which all of the group have but for the state they name."""
    found: set[tuple[Fold, tuple[int, ...]]] = set()
    for position in group:
        node = values.program.nodes[position]
        assert isinstance(node.op, Fold)
        found.add((replace(node.op, part=0), node.args))
    if len(found) > 1:
        axes = ", ".join(sorted({op.axis for op, _ in found}))
        raise ProgramError(
            f"{values.program.name}: {len(found)} different folds, over {axes}: a plain kernel "
            "computes the states of one"
        )
    return found.pop()
