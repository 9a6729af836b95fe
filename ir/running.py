"""Which values run along a carried axis, and where they may be read: inside its loop alone.

A running value (`Now`, `Prior`) is that of a moment between blocks. What is made of it depends on
how the axis is cut into blocks, until a carry along that axis takes it up with its correction.
"""

from __future__ import annotations

from collections.abc import Sequence

from ir.errors import ProgramError
from ir.ops.base import Op
from ir.ops.reduce import Carry, Contract, Now, Reduce
from ir.ops.store import Store


def refuse_escapes(steps: Sequence[tuple[Op, tuple[int, ...]]]) -> None:
    """Raises ProgramError where a result would depend on the blocks. `steps` are ops and args."""
    running: list[frozenset[str]] = []
    for op, args in steps:
        found = frozenset[str]().union(*(running[arg] for arg in args))
        if isinstance(op, Now):
            state = steps[args[0]][0]
            if not isinstance(state, Carry):
                raise ProgramError(f"{op.name}: takes what carry(...) returns, not {state.name}")
            found |= {state.axis}
        elif isinstance(op, Carry):
            found -= {op.axis}
        elif isinstance(op, (Contract, Reduce)) and found & set(op.over):
            raise ProgramError(f"{op.name}: {_why(found & set(op.over), 'carry(...) corrects it')}")
        elif isinstance(op, Store) and found:
            raise ProgramError(f"store {op.tensor}: {_why(found, 'store what carry(...) returns')}")
        running.append(found)


def _why(axes: frozenset[str], instead: str) -> str:
    named = ", ".join(sorted(axes))
    return f"the value runs along {named} (now, prior), so it depends on the blocks; {instead}"
