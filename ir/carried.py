"""The states of streamed reductions from one block of their axis to the next, as tiles. Knows
evaluations by what they answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ir.carries import carry_at, reads
from ir.dtypes import is_float
from ir.ops.base import TileArray
from ir.ops.reduce import Prior, start_of
from ir.program import Program
from ir.scalar import COMBINES, running_bound


class Streams(Protocol):
    """What is known of an evaluation of one block here."""

    program: Program
    known: dict[int, TileArray]
    xp: Any

    def value(self, position: int) -> TileArray: ...

    def reduced(self, position: int, kind: str, over: tuple[str, ...]) -> TileArray: ...

    def applied(self, function: str, args: Sequence[TileArray], dtype: str) -> TileArray: ...


def advanced(
    block: Streams, members: Sequence[int], states: Mapping[int, TileArray]
) -> dict[int, TileArray]:
    """The states after one block; `states` is empty before the first."""
    moved: dict[int, TileArray] = {}
    readers = reads(block.program, members)
    for member in members:
        before = states.get(member) or _identity(block.program, member, block.xp)
        for reader in readers[member]:
            if isinstance(block.program.nodes[reader].op, Prior):
                block.known[reader] = _running(block, member, before)
    for member in members:
        with np.errstate(all="ignore"):
            moved[member] = _behind(block, member, states.get(member))
        for reader in readers[member]:
            if not isinstance(block.program.nodes[reader].op, Prior):
                block.known[reader] = _running(block, member, moved[member])
    return moved


def _running(block: Streams, member: int, state: TileArray) -> TileArray:
    """A state as others read it: an extreme of nothing but -inf (or inf) as a finite number."""
    dtype = block.program.nodes[member].dtype
    bound = running_bound(carry_at(block.program, member).kind, dtype)
    if bound is None:
        return state
    finite = TileArray((), block.xp.asarray(bound[1]))
    return block.applied(COMBINES[bound[0]].function, (state, finite), dtype)


def _behind(block: Streams, member: int, state: TileArray | None) -> TileArray:
    node, op = block.program.nodes[member], carry_at(block.program, member)
    body = block.reduced(member, op.kind, op.over)
    before = state or _identity(block.program, member, block.xp)
    if state is not None:
        extra = iter(node.args[1:])
        if op.factor:
            before = _running(block, member, before)
            before = block.applied("mul", (before, block.value(next(extra))), node.dtype)
        if op.addend:
            before = block.applied("add", (before, block.value(next(extra))), node.dtype)
    after = block.applied(COMBINES[op.kind].function, (before, body), node.dtype)
    error = after.error_over(node.axes)
    return TileArray(node.axes, after.aligned(node.axes), error)


def _identity(program: Program, member: int, xp: Any = np) -> TileArray:
    """What a state starts from; what reads it finds the finite number nearest to that."""
    kind, dtype = carry_at(program, member).kind, program.nodes[member].dtype
    value: Any = COMBINES[kind].identity if is_float(dtype) else start_of(kind, dtype)
    return TileArray((), xp.asarray(value))
