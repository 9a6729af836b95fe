"""Folds of plain kernels as loops that carry their states; long ones in bounded runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ir.merges import Apply, Term
from ir.plain.code import (
    Accumulate,
    Assign,
    Between,
    Claim,
    If,
    Let,
    Loop,
    Name,
    Scalar,
    Spread,
    Statement,
)
from ir.plain.scalars import merged
from ir.targets.cpu.evaluate import scalar_of
from ir.targets.cpu.nest import Builder, Index, Type, Value
from ir.targets.cpu.runs import RUN

Variables = dict[str, Index]


class FoldLowering:
    """Emits folds; what emits all else inherits it."""

    b: Builder

    def held(self, name: Name, value: Index) -> Index:
        """A value as a variable has it."""
        raise NotImplementedError

    def value(
        self, s: Scalar, variables: Mapping[str, Index], known: dict[int, Index] | None = None
    ) -> Value:
        """A scalar as a value of the nest."""
        raise NotImplementedError

    def _block(self, body: Iterable[Statement], variables: Variables) -> None:
        raise NotImplementedError

    def _accumulate(self, s: Accumulate, variables: Variables) -> None:
        """The first iteration stands before the loop; in it, flagged, where there are loops."""
        if self._is_long(s, variables):
            self._runs(s, variables, 0, s.extent)
            return
        names = [state.name for state in s.states]
        changed = [name for name in assigned((*s.body, *s.keep)) if name in variables]
        changed += [name for name in names if name not in changed]
        peeled = s.extent == 1 or not any(map(_has_loops, (*s.body, *s.keep)))
        start = dict(variables)
        if peeled:
            first = self._turned(0, s.extent, s.backward)
            found = self._step(s, {**start, s.variable.name: first}, True, changed)
            start.update(zip(changed, found, strict=True))
        else:
            start |= {state.name: self._zero(state) for state in s.states}
        if not peeled or s.extent > 1:
            initial = [start[name] for name in changed]
            with self.b.loop(s.variable.name, int(peeled), s.extent, 1, initial) as loop:
                here = {**start, **dict(zip(changed, loop.carried, strict=True))}
                here[s.variable.name] = self._turned(loop.variable, s.extent, s.backward)
                first_here = False if peeled else self.b.compare("eq", loop.variable, 0)
                loop.block.yields = self._step(s, here, first_here, changed)
            start.update(zip(changed, loop.results, strict=True))
        variables.update((name, start[name]) for name in changed)

    def _step(
        self, s: Accumulate, here: Variables, first: Value | bool, changed: Sequence[str]
    ) -> tuple[Index, ...]:
        """One iteration; what it leaves in the variables `changed`."""
        self._block(s.body, here)
        pairs = zip(s.states, s.values, strict=True)
        values = [self._as_state(state, self.value(value, here)) for state, value in pairs]
        if first is not True:
            given = [given_state(state) for state in s.states]
            here.update((name.name, value) for name, value in zip(given, values, strict=True))
            known: dict[int, Index] = {}
            results = [self.value(new, here, known) for new in merged(s.merge, s.states, given)]
            if isinstance(first, Value):
                both = zip(values, results, strict=True)
                results = [self.b.select(first, value, result) for value, result in both]
            values = results
        here.update((state.name, value) for state, value in zip(s.states, values, strict=True))
        self._block(s.keep, here)
        return tuple(here[name] for name in changed)

    def _as_state(self, state: Name, value: Value) -> Value:
        found = self.held(state, value)
        assert isinstance(found, Value)
        return found

    def part_of_fold(self, s: Accumulate, variables: Variables, low: Index, high: Index) -> None:
        """What some iterations come to, for who has another way for the rest."""
        self._runs(s, variables, low, high)

    def _runs(self, s: Accumulate, variables: Variables, low: Index, high: Index) -> None:
        """What iterations from `low` to before `high` come to: where they are many in bounded runs,
        each merged with what those before it came to (`runs`)."""
        if not self._is_long(s, variables):
            self._part(s, variables, low, high)
            return
        names = [state.name for state in s.states]
        parts = [Name(f"{state.name} of a run", state.dtype) for state in s.states]
        merging = replace(s, backward=False, body=(), values=tuple(parts))
        initial = [self._zero(state) for state in s.states]
        with self.b.loop(f"{s.variable.name}_run", low, high, RUN, initial, False) as loop:
            own = dict(variables)
            end = self.b.minimum(self.b.add(loop.variable, RUN), high)
            self._part(s, own, loop.variable, end)
            here = {**variables, **dict(zip(names, loop.carried, strict=True))}
            here |= {part.name: own[name] for part, name in zip(parts, names, strict=True)}
            first = self.b.compare("eq", loop.variable, low)
            loop.block.yields = self._step(merging, here, first, names)
        variables.update(zip(names, loop.results, strict=True))

    def _is_long(self, s: Accumulate, variables: Variables) -> bool:
        """Whether a fold adds up more floats than one run has, and does nothing else."""
        alone = not s.keep and not any(name in variables for name in assigned(s.body))
        single = any(state.dtype == "f32" for state in s.states)
        return s.extent > RUN and alone and single and any(map(_adds, s.merge.results))

    def _zero(self, state: Name) -> Index:
        return self.held(state, self.b.constant(0, Type(scalar_of(state.dtype))))

    def _part(self, s: Accumulate, variables: Variables, low: Index, high: Index) -> None:
        """What iterations from `low` to before `high` come to, of which there are some; the first
        one stands before the loop, or is flagged where there are loops in it."""
        names, start = [state.name for state in s.states], dict(variables)
        start.update(zip(names, map(self._zero, s.states), strict=True))
        peeled = not any(map(_has_loops, s.body)) and s.extent > RUN
        rest = low
        if peeled:
            first = self._turned(low, s.extent, s.backward)
            found = self._step(s, {**start, s.variable.name: first}, True, names)
            start.update(zip(names, found, strict=True))
            rest = self.b.add(low, 1)
        initial = [start[name] for name in names]
        with self.b.loop(s.variable.name, rest, high, 1, initial, False) as loop:
            here = {**start, **dict(zip(names, loop.carried, strict=True))}
            here[s.variable.name] = self._turned(loop.variable, s.extent, s.backward)
            first_here = False if peeled else self.b.compare("eq", loop.variable, low)
            loop.block.yields = self._step(s, here, first_here, names)
        variables.update(zip(names, loop.results, strict=True))

    def _turned(self, variable: Index, extent: int, backward: bool) -> Index:
        return self.b.sub(extent - 1, variable) if backward else variable


def _adds(term: Term) -> bool:
    """Whether a merge adds."""
    return isinstance(term, Apply) and (term.function == "add" or any(map(_adds, term.args)))


def given_state(state: Name) -> Name:
    """What one iteration gives for a state of a fold."""
    return Name(f"{state.name}'", state.dtype)


def assigned(body: Iterable[Statement]) -> list[str]:
    """Variables from before a block that it assigns, in order."""
    found: dict[str, None] = {}
    own: set[str] = set()
    for s in body:
        if isinstance(s, Let | Claim):
            own.add(s.name.name)
        elif isinstance(s, Assign):
            found |= {} if s.name.name in own else {s.name.name: None}
        else:
            found |= {name: None for name in _assigned_within(s) if name not in own}
        if isinstance(s, Accumulate):
            own |= {state.name for state in s.states}
    return list(found)


def _assigned_within(s: Statement) -> list[str]:
    if isinstance(s, If):
        return assigned(s.body) + assigned(s.other)
    if isinstance(s, Loop | Between | Spread):
        return assigned(s.body)
    return assigned((*s.body, *s.keep)) if isinstance(s, Accumulate) else []


def _has_loops(s: Statement) -> bool:
    if isinstance(s, If):
        return any(map(_has_loops, (*s.body, *s.other)))
    return isinstance(s, Loop | Between | Spread | Accumulate)
