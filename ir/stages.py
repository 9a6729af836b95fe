"""Stages: the fused pieces of a program that a target lowers one tile at a time.

A stage has a domain (axes), reduces over some of them, and writes results. `partition.py` finds
them. Knows no target and no schedule.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from ir.ops.load import Load
from ir.ops.reduce import Carry, Contract, Now, Prior, Reduce
from ir.program import Node, Program


@dataclass(frozen=True, slots=True)
class Accumulator:
    """One reduction of a stage: combine `kind` over the product of `terms` (one term: itself)."""

    node: int
    kind: str
    terms: tuple[int, ...]
    dtype: str
    factor: int | None = None
    addend: int | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """A value that a stage writes: to output `tensor`, or (None) to a buffer for later stages."""

    node: int
    axes: tuple[str, ...]
    tensor: str | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """`body_results` are written at every point of the domain, `results` once reduced.

    `running` results (they read Now or Prior) are due after every block of a carried axis.
    """

    name: str
    domain: tuple[str, ...]
    reduce: tuple[str, ...]
    accumulators: tuple[Accumulator, ...]
    body_results: tuple[Result, ...]
    results: tuple[Result, ...]
    running: tuple[Result, ...] = ()

    @property
    def parallel(self) -> tuple[str, ...]:
        """Axes of the domain that are not reduced."""
        return tuple(axis for axis in self.domain if axis not in self.reduce)

    @property
    def written(self) -> tuple[Result, ...]:
        return self.body_results + self.results + self.running


@dataclass(frozen=True, slots=True)
class Use:
    """How stage `user` reads node `node` of an earlier stage.

    `final`: the finished value (not a running one). `late`: only in results, not in the body.
    """

    node: int
    final: bool
    late: bool


@dataclass(frozen=True)
class StagedProgram:
    """A program and its stages in executable order."""

    program: Program
    stages: tuple[Stage, ...]

    @cached_property
    def producer(self) -> dict[int, int]:
        """Node -> position of the stage that materialises it (accumulators included)."""
        table: dict[int, int] = {}
        for position, stage in enumerate(self.stages):
            for accumulator in stage.accumulators:
                table[accumulator.node] = position
            for result in stage.written:
                if not result.tensor or result.node not in self.materialised:
                    table[result.node] = position
        return table

    @cached_property
    def materialised(self) -> frozenset[int]:
        """Nodes that live in a buffer."""
        return frozenset(
            result.node for stage in self.stages for result in stage.written if not result.tensor
        )

    def carried(self, node: int) -> frozenset[str]:
        """Axes along whose blocks a value changes (see `carried_axes`)."""
        return carried_axes(self.program, node, self._carried)

    @cached_property
    def _carried(self) -> dict[int, frozenset[str]]:
        return {}

    @cached_property
    def runs(self) -> dict[tuple[tuple[int, ...], str], list[tuple[bool, list[int]]]]:
        """Which of some stages share a loop over an axis, as far as a planner has found it."""
        return {}

    def leaves(self, stage: Stage, roots: Iterable[int]) -> tuple[int, ...]:
        """Nodes at which the inlined expressions of `roots` end: loads, buffers, accumulators."""
        own = {a.node for a in stage.accumulators}
        found: dict[int, None] = {}
        written = {r.node for r in stage.written if not r.tensor}
        pending = list(roots)
        seen: set[int] = set()
        while pending:
            position = pending.pop()
            if position in seen:
                continue
            seen.add(position)
            node = self.program.nodes[position]
            stop = position in own or (position in self.materialised and position not in written)
            if stop or not node.args or isinstance(node.op, (Load, Now)):
                found[position] = None
                pending.extend(node.args if isinstance(node.op, Load) else ())
            else:
                pending.extend(node.args)
        return tuple(found)

    def body_roots(self, stage: Stage) -> tuple[int, ...]:
        terms = [term for a in stage.accumulators for term in a.terms]
        return tuple(terms + [r.node for r in stage.body_results])

    def late_roots(self, stage: Stage) -> tuple[int, ...]:
        extra = [n for a in stage.accumulators for n in (a.factor, a.addend) if n is not None]
        return tuple([r.node for r in stage.results + stage.running] + extra)

    @cached_property
    def uses(self) -> tuple[dict[int, list[Use]], ...]:
        """For each stage: position of an earlier stage -> how it is read."""
        return tuple(self._uses(position) for position in range(len(self.stages)))

    def _uses(self, position: int) -> dict[int, list[Use]]:
        stage = self.stages[position]
        table: dict[int, list[Use]] = {}
        for late, roots in ((False, self.body_roots(stage)), (True, self.late_roots(stage))):
            for leaf in self.leaves(stage, roots):
                node = self.program.nodes[leaf]
                running = isinstance(node.op, Now)
                source = node.args[0] if running else leaf
                owner = self.producer.get(source)
                if owner is not None and owner != position:
                    table.setdefault(owner, []).append(Use(leaf, not running, late))
        return table


def is_reduction(node: Node) -> bool:
    return isinstance(node.op, (Contract, Reduce, Carry))


def reduced_axes(node: Node) -> tuple[str, ...]:
    """The axes that a reduction node combines over."""
    if isinstance(node.op, Carry):
        return node.op.over
    assert isinstance(node.op, (Contract, Reduce))
    return node.op.over


def carried_axes(program: Program, node: int, known: dict[int, frozenset[str]]) -> frozenset[str]:
    """Axes along whose blocks a value changes because it is made of running ones (Now, Prior).

    `known` keeps answers between calls on one program.
    """
    if node not in known:
        here = program.nodes[node]
        if isinstance(here.op, (Now, Prior)):
            known[node] = frozenset(reduced_axes(program.nodes[here.args[0]]))
        elif is_reduction(here) or isinstance(here.op, Load):
            known[node] = frozenset()
        else:
            known[node] = frozenset().union(*(carried_axes(program, a, known) for a in here.args))
    return known[node]
