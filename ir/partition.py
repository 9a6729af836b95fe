"""Partition of a program into stages.

Maps are inlined into the stage that uses them. A value is materialised where recomputing it would
repeat work over an axis that it does not have, where a reduction ends, and, without the cheap maps
behind it, where others read it over the same points. Knows no target and no schedule.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from math import prod

import networkx as nx

from ir.ops.load import Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.reduce import Carry, Contract, Now, Prior, Reduce
from ir.ops.store import Store
from ir.program import Program
from ir.scalar import scalar_function
from ir.stages import (
    Accumulator,
    Result,
    Stage,
    StagedProgram,
    carried_axes,
    is_reduction,
    reduced_axes,
)

SIMPLE = 2  # operations that an operand of a wider reduction may repeat at every use
CHEAP = 4  # operations that a reader over the same points may repeat
COSTLY = 8  # operations from which a function counts as a series
AGAIN = 4  # uses of an operand from which it may be worth storing


def stage_program(
    program: Program, kept: frozenset[int] = frozenset(), computed: frozenset[int] = frozenset()
) -> StagedProgram:
    """Partition `program` (streamed or not) into stages.

    Of operands of reductions, `kept` are stored and `computed` are not, whatever the rule says.
    """
    return _Partition(program, kept, computed).run()


def operand_choices(program: Program) -> dict[int, bool]:
    """The operands of reductions that may be stored, or computed at every use; whether they are
    stored unless it is said."""
    return _Partition(program).choices()


class _Partition:
    def __init__(
        self,
        program: Program,
        kept: frozenset[int] = frozenset(),
        computed: frozenset[int] = frozenset(),
    ) -> None:
        self.program = program
        self.kept, self.computed = kept, computed
        self.nodes = program.nodes
        self.order = {axis: i for i, axis in enumerate(self._axis_order())}
        self.absorbed = self._absorbed()
        self._known: dict[int, set[int]] = {}
        self._costs: dict[int, int] = {}
        self._bares: dict[int, bool] = {}
        self._ended: dict[int, set[int]] = {}
        self._running_axes: dict[int, frozenset[str]] = {}
        self.before = self._reduction_order()

    def _axis_order(self) -> list[str]:
        stored = [axis for _, store in self.program.stores() for axis in store.axes]
        return list(dict.fromkeys([*stored, *self.program.axes]))

    def sort(self, axes: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(set(axes), key=self.order.__getitem__))

    def domain(self, position: int) -> frozenset[str]:
        """Iteration domain of a reduction."""
        node = self.nodes[position]
        count = 1 if isinstance(node.op, Carry) else len(node.args)
        axes: set[str] = set()
        for arg in node.args[:count]:
            axes.update(self.nodes[arg].axes)
        return frozenset(axes)

    def accumulator(self, position: int) -> Accumulator:
        node = self.nodes[position]
        if isinstance(node.op, Contract):
            return Accumulator(position, "sum", node.args, node.op.acc)
        assert isinstance(node.op, (Reduce, Carry))
        body = node.args[0]
        terms: tuple[int, ...] = (body,)
        inner = self.nodes[body]
        if node.op.kind == "sum" and body in self.absorbed:
            terms = inner.args
        extra = list(node.args[1:])
        factor = extra.pop(0) if isinstance(node.op, Carry) and node.op.factor else None
        addend = extra.pop(0) if isinstance(node.op, Carry) and node.op.addend else None
        return Accumulator(position, node.op.kind, terms, node.dtype, factor, addend)

    def _absorbed(self) -> set[int]:
        """Products that only sums read: their factors are the terms of accumulators."""
        found = set()
        for position, node in enumerate(self.nodes):
            users = [self.nodes[u] for u in self.program.users(position)]
            product = isinstance(node.op, Map) and node.op.function == "mul"
            sums = all(
                isinstance(u.op, (Reduce, Carry)) and u.op.kind == "sum" and u.args[0] == position
                for u in users
            )
            if product and users and sums:
                found.add(position)
        return found

    def simple(self, position: int) -> bool:
        """Cheap to repeat: a load, a constant, a coordinate, or a short expression of these."""
        return self._cost(position) <= SIMPLE

    def _cost(self, position: int) -> int:
        if position not in self._costs:
            self._costs[position] = self._cost_of(position)
        return self._costs[position]

    def _cost_of(self, position: int) -> int:
        node = self.nodes[position]
        if isinstance(node.op, (Load, Constant, Iota, Now, Prior)) or is_reduction(node):
            return 0
        own = 0
        if isinstance(node.op, Map):
            own = scalar_function(node.op.function).flops
        return own + sum(self._cost(arg) for arg in node.args)

    def forced(self) -> set[int]:
        """Maps that must be materialised: costly operands of a wider reduction, rescalings."""
        found: set[int] = set()
        for position, node in enumerate(self.nodes):
            if not is_reduction(node):
                continue
            accumulator, domain = self.accumulator(position), self.domain(position)
            for term in accumulator.terms:
                if not self.simple(term) and frozenset(self.nodes[term].axes) != domain:
                    found.add(term)
            for extra in (accumulator.factor, accumulator.addend):
                if extra is not None and self._cost(extra) > 0:
                    found.add(extra)
        found = found - self.computed | self.kept
        return {p for p in found if not is_reduction(self.nodes[p])}

    @cached_property
    def apart(self) -> frozenset[int]:
        """Maps of running values that have a stage of their own."""
        return frozenset(p for p in self.forced() if self._by_rows(p))

    def choices(self) -> dict[int, bool]:
        """Computed operands that wider reductions use again and again."""
        forced = self.forced()
        found: dict[int, bool] = {}
        for position, node in enumerate(self.nodes):
            if not is_reduction(node):
                continue
            domain = self.domain(position)
            for term in self.accumulator(position).terms:
                op, axes = self.nodes[term].op, frozenset(self.nodes[term].axes)
                again = prod(self.program.axes[axis] for axis in domain - axes)
                plain = isinstance(op, (Map, Cast)) and axes and not self._is_running(term)
                if plain and again >= AGAIN and (term not in forced or self._cost(term) <= COSTLY):
                    found[term] = term in forced
        return found

    def groups(self) -> list[list[int]]:
        """Reductions, siblings (same domain, same axes, independent) together."""
        closure = nx.transitive_closure_dag(self.program.graph)
        groups: list[list[int]] = []
        for position, node in enumerate(self.nodes):
            if not is_reduction(node):
                continue
            key = (self.domain(position), frozenset(reduced_axes(node)))
            for group in groups:
                first = self.nodes[group[0]]
                same = (self.domain(group[0]), frozenset(reduced_axes(first))) == key
                if same and not any(closure.has_edge(other, position) for other in group):
                    group.append(position)
                    break
            else:
                groups.append([position])
        return groups

    def closure(self, group: list[int], taken: set[int]) -> list[int]:
        """Maps computable from the group's results at its own points, in order."""
        parallel = frozenset(self.domain(group[0])) - set(reduced_axes(self.nodes[group[0]]))
        inside = set(group)
        behind = set[int]()  # made of what a stage of its own computes from the group's results
        found: list[int] = []
        for position, node in enumerate(self.nodes):
            if position in taken or is_reduction(node):
                continue
            if isinstance(node.op, (Now, Prior)):
                if node.args[0] in group:
                    inside.add(position)
                continue
            if not isinstance(node.op, (Map, Cast, Store)):
                continue
            if not behind.isdisjoint(node.args):
                behind.add(position)
                continue
            if not any(arg in inside for arg in node.args) or frozenset(node.axes) != parallel:
                continue
            if position in self.absorbed or self._by_rows(position):
                if position in self.apart:
                    behind.add(position)
                continue
            if not self._finished(position, group):
                continue
            inside.add(position)
            found.append(position)
        return self._without_repeatable(found)

    def _by_rows(self, position: int) -> bool:
        """A costly map of running values: a stage of its own runs its vectors along rows."""
        op = self.nodes[position].op
        costly = isinstance(op, Map) and scalar_function(op.function).flops > COSTLY
        return costly and self._is_running(position)

    def _without_repeatable(self, found: list[int]) -> list[int]:
        """A closure without the maps at its end that readers over the same points may repeat.

        What is stored then is the bare reduction, in the form that its instruction leaves it.
        """
        kept = list(found)
        for position in reversed(found):
            users = self.program.users(position)
            if users and not set(users) & set(kept) and self._repeatable(position):
                kept.remove(position)
        return kept

    def _repeatable(self, position: int) -> bool:
        """A cheap map of one reduction and constants whose readers all run over its own axes."""
        node = self.nodes[position]
        if not isinstance(node.op, Map) or not self._bare(position):
            return False
        return self._cost(position) <= CHEAP and self._read_alike(position, frozenset(node.axes))

    def _bare(self, position: int) -> bool:
        """Whether a value is made of finished reductions, coordinates and constants alone."""
        if position not in self._bares:
            node = self.nodes[position]
            plain = is_reduction(node) or isinstance(node.op, (Constant, Iota))
            inner = isinstance(node.op, Map) and all(self._bare(arg) for arg in node.args)
            self._bares[position] = plain or inner
        return self._bares[position]

    def _read_alike(self, position: int, axes: frozenset[str]) -> bool:
        """Whether every reader, up to the next value in memory, runs over the points `axes`."""
        for user in self.program.users(position):
            node = self.nodes[user]
            reads = self.domain(user) if is_reduction(node) else frozenset(node.axes)
            if reads != axes or not (is_reduction(node) or isinstance(node.op, (Map, Cast))):
                return False
            ends = is_reduction(node) or self._cost(user) > COSTLY
            if not ends and not self._read_alike(user, axes):
                return False
        return True

    def _reductions(self, position: int) -> set[int]:
        """All reductions that a node depends on."""
        known = self._known
        if position not in known:
            result: set[int] = {position} if is_reduction(self.nodes[position]) else set()
            for arg in self.nodes[position].args:
                result |= self._reductions(arg)
            known[position] = result
        return known[position]

    def _finished(self, position: int, group: list[int]) -> bool:
        """Whether every reduction that a node needs can be finished before the group's results.

        What is new is noted as an order between stages, so that two groups never wait for each
        other.
        """
        known = set(group)
        for member in group:
            known |= self._reductions(member)
        extra = self._reductions(position) - known
        if any(nx.has_path(self.before, member, e) for e in extra for member in group):
            return False
        self.before.add_edges_from((e, member) for e in extra for member in group)
        return True

    def _reduction_order(self) -> nx.DiGraph:
        """Which reduction needs which."""
        graph = nx.DiGraph()
        for position, node in enumerate(self.nodes):
            if is_reduction(node):
                graph.add_node(position)
                needed = self._reductions(position) - {position}
                graph.add_edges_from((other, position) for other in needed)
        return graph

    def run(self) -> StagedProgram:
        stages: list[Stage] = []
        taken: set[int] = set()
        forced = self.forced()
        groups = self.groups()
        for group in groups:  # siblings run together: what one needs, all need
            edges = [(e, m) for e in nx.ancestors(self.before, group[0]) for m in group]
            for member in group[1:]:
                edges += [(e, m) for e in nx.ancestors(self.before, member) for m in group]
            self.before.add_edges_from((e, m) for e, m in edges if e not in group)
            self.before.add_edges_from(
                (m, d)
                for g in group
                for d in tuple(self.before.successors(g))
                for m in group
                if d not in group
            )
        for group in groups:
            closure = self.closure(group, taken)
            taken.update(closure)
            stages.append(self._reduction_stage(group, closure, len(stages)))
        done = {r.node for stage in stages for r in stage.written if r.tensor is None}
        stored = {r.tensor for stage in stages for r in stage.written if r.tensor}
        self._needed_buffers(stages, forced, done, taken)
        rest = [p for p in sorted(forced) if p not in done and p not in taken]
        maps = [Result(p, self.sort(self.nodes[p].axes)) for p in rest]
        for _, store in self.program.stores():
            if store.tensor not in stored:
                source = next(n.args[0] for n in self.nodes if n.op == store)
                maps.append(Result(source, store.axes, store.tensor))
        for result in maps:
            self._place_map(stages, result)
        return StagedProgram(self.program, self._ordered(stages))

    def _needed_buffers(
        self, stages: list[Stage], forced: set[int], done: set[int], taken: set[int]
    ) -> None:
        """Forced maps inside a closure become results of that stage."""
        for i, stage in enumerate(stages):
            own = {a.node for a in stage.accumulators}
            extra = [p for p in sorted(forced & taken - done) if self._depends(p, own)]
            for p in extra:
                result = Result(p, self.sort(self.nodes[p].axes))
                if self._is_running(p):
                    stage = replace(stage, running=(*stage.running, result))
                else:
                    stage = replace(stage, results=(*stage.results, result))
                done.add(p)
            stages[i] = stage

    def _depends(self, position: int, own: set[int]) -> bool:
        """Whether a closure member belongs to the stage that owns the accumulators `own`."""
        return bool(self._reductions(position) & own)

    def _is_running(self, position: int) -> bool:
        return bool(self._carried(position))

    def _carried(self, position: int) -> frozenset[str]:
        return carried_axes(self.program, position, self._running_axes)

    def _reduction_stage(self, group: list[int], closure: list[int], number: int) -> Stage:
        inside = set(group) | set(closure)
        results: list[Result] = []
        running: list[Result] = []
        for position in [*group, *closure]:
            node = self.nodes[position]
            if isinstance(node.op, Store):
                results.append(Result(node.args[0], node.op.axes, node.op.tensor))
                continue
            users = [u for u in self.program.users(position) if u not in inside]
            plain = [u for u in users if not isinstance(self.nodes[u].op, (Now, Prior))]
            carried = [u for u in users if u not in plain and self._escapes(u, inside)]
            result = Result(position, self.sort(node.axes))
            if self._is_running(position) and plain:
                running.append(result)
            elif plain or carried:
                results.append(result)
        running += self._priors(group, inside)
        domain = self.sort(self.domain(group[0]))
        reduce = self.sort(reduced_axes(self.nodes[group[0]]))
        accumulators = tuple(self.accumulator(position) for position in group)
        return Stage(f"s{number}", domain, reduce, accumulators, (), tuple(results), tuple(running))

    def _priors(self, group: list[int], inside: set[int]) -> list[Result]:
        """Prior values of the group that other stages read."""
        found = []
        for position, node in enumerate(self.nodes):
            ours = isinstance(node.op, Prior) and node.args[0] in group
            if ours and self._escapes(position, inside):
                found.append(Result(position, self.sort(node.axes)))
        return found

    def _escapes(self, position: int, inside: set[int]) -> bool:
        return any(user not in inside for user in self.program.users(position))

    def _place_map(self, stages: list[Stage], result: Result) -> None:
        """Join a stage over the same domain if neither needs the other; else a stage of its own."""
        domain = frozenset(result.axes)
        for i, stage in enumerate(stages):
            independent = not self._needs(result.node, stage) and not self._feeds(
                result.node, stage
            )
            if frozenset(stage.domain) == domain and independent and self._placeable(result, stage):
                joined = replace(stage, body_results=(*stage.body_results, result))
                if self._acyclic([*stages[:i], joined, *stages[i + 1 :]]):
                    stages[i] = joined
                    return
        name = f"s{len(stages)}"
        stages.append(Stage(name, self.sort(domain), (), (), (result,), ()))

    def _placeable(self, result: Result, stage: Stage) -> bool:
        """A body result must need nothing that comes after the stage: same inputs as its body."""
        if not stage.accumulators:
            return True
        if not self._carried(result.node) <= set(stage.domain):
            return False
        terms = [term for accumulator in stage.accumulators for term in accumulator.terms]
        return all(
            of(result.node) <= frozenset().union(*map(of, terms))
            for of in (self._reductions, self._ends)
        )

    def _ends(self, position: int) -> set[int]:
        """The reductions whose end values a node depends on, not those that it sees running."""
        if position not in self._ended:
            node = self.nodes[position]
            found = {position} if is_reduction(node) else set()
            for arg in () if isinstance(node.op, (Now, Prior)) else node.args:
                found |= self._ends(arg)
            self._ended[position] = found
        return self._ended[position]

    def _needs(self, position: int, stage: Stage) -> bool:
        return bool(self._reductions(position) & {a.node for a in stage.accumulators})

    def _feeds(self, position: int, stage: Stage) -> bool:
        roots = [t for a in stage.accumulators for t in a.terms]
        roots += [r.node for r in stage.written]
        pending, seen = list(roots), set()
        while pending:
            current = pending.pop()
            if current == position and stage.accumulators:
                return current not in {t for a in stage.accumulators for t in a.terms} or (
                    frozenset(self.nodes[position].axes) != frozenset(stage.domain)
                )
            if current not in seen:
                seen.add(current)
                pending.extend(self.nodes[current].args)
        return False

    def _acyclic(self, stages: list[Stage]) -> bool:
        """Whether no stage waits for itself by way of others."""
        return bool(nx.is_directed_acyclic_graph(self._waits(stages)))

    def _waits(self, stages: list[Stage]) -> nx.DiGraph:
        """Which stage reads what another writes."""
        graph = nx.DiGraph()
        graph.add_nodes_from(range(len(stages)))
        for user, table in enumerate(StagedProgram(self.program, tuple(stages)).uses):
            graph.add_edges_from((owner, user) for owner in table)
        return graph

    def _ordered(self, stages: list[Stage]) -> tuple[Stage, ...]:
        graph = self._waits(stages)
        first = {i: min((r.node for r in s.written), default=0) for i, s in enumerate(stages)}
        order = list(nx.lexicographical_topological_sort(graph, key=lambda i: first[i]))
        return tuple(replace(stages[i], name=f"s{n}") for n, i in enumerate(order))
