"""Kernels of programs that were tried before, in another place of a list of kernels.

Whether a kernel has a legal schedule, and whether any can be lowered, does not depend on what the
program and its tensors are called. Ways to cut a program and places where values live have most
kernels in common, by other numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar

from ir.columns import Decision
from ir.errors import Refusal
from ir.identity import by_identity
from ir.ops.base import Op
from ir.ops.load import Load
from ir.ops.store import Store
from ir.program import Program
from ir.schedule import Value

MOST = 4096  # kernels that are remembered
MOST_SEEDS = 512  # those whose seeds are

K = TypeVar("K", bound=Any)  # a kernel: of a program, on a card


def once(probe: Callable[[K], None]) -> Callable[[K], None]:
    """`probe`, which raises Refusal for a kernel that there is none of, not asked twice about
    kernels that are alike."""
    known: dict[Hashable, Refusal | None] = {}

    @wraps(probe)
    def remembered(kernel: K) -> None:
        key = alike(kernel)
        if key not in known:
            if len(known) >= MOST:
                known.clear()
            try:
                probe(kernel)
                refusal = None
            except Refusal as problem:
                refusal = problem.with_traceback(None)
            known[key] = refusal
        else:
            refusal = known[key]
        if refusal is not None:
            raise refusal

    return remembered


_seeds: dict[Hashable, tuple[tuple[tuple[int, Value], ...], ...]] = {}


def seeds_once(kernel: Any, decisions: Sequence[Decision]) -> tuple[dict[str, Value], ...]:
    """The seeds of a kernel, by the names of its decisions: those of kernels that are alike are
    made once."""
    key, names = alike(kernel), [decision.name for decision in decisions]
    known = _seeds.get(key)
    if known is not None:
        return tuple({names[place]: value for place, value in seed} for seed in known)
    found = tuple(kernel.seeds())
    places = {name: place for place, name in enumerate(names)}
    if len(_seeds) >= MOST_SEEDS:
        _seeds.clear()
    _seeds[key] = tuple(tuple((places[n], value) for n, value in one.items()) for one in found)
    return found


def alike(kernel: Any) -> Hashable:
    """What kernels that differ in names alone have in common. Those of others may say what tensors
    are called, too."""
    formed = getattr(kernel, "formed", ())
    program = _exact(kernel.program) if formed else _numbered(kernel.program)
    return type(kernel), program, kernel.hardware, formed


def _exact(program: Program) -> Hashable:
    return program.extents, program.tensors, program.nodes, program.pins


@by_identity
def _numbered(program: Program) -> Hashable:
    """A program whose tensors are called by their numbers."""
    numbers = {spec.name: str(number) for number, spec in enumerate(program.tensors)}

    def named(op: Op) -> Op:
        return replace(op, tensor=numbers[op.tensor]) if isinstance(op, Load | Store) else op

    tensors = tuple(replace(spec, name=numbers[spec.name]) for spec in program.tensors)
    nodes = tuple((named(node.op), node.args, node.type) for node in program.nodes)
    return program.extents, tensors, nodes, program.pins
