"""Folds along one axis of the same tiles: each point of the other axes goes along it."""

from __future__ import annotations

from dataclasses import replace

from ir.errors import ProgramError
from ir.ops.base import Op
from ir.ops.fold import Fold
from ir.plain.block import Block
from ir.plain.code import Accumulate, Name, PlainKernel
from ir.plain.values import Given, Values


def fold_kernel(values: Values, group: list[int]) -> PlainKernel:
    """One accumulation, of which the group's nodes are states."""
    program = values.program
    op, args = _shared(values, group)
    axes = dict.fromkeys(axis for arg in args for axis in program.nodes[arg].axes)
    at = values.points([axis for axis in axes if axis != op.axis])
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


def _state(states: tuple[Name, ...], op: Op) -> Given:
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
