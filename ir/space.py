"""A schedule space: decisions, named constraints, pins, and work on thousands of rows at once.

Backends fill it; strategies walk it. It knows no operator and no target beyond the name.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ir import drawing, summary, variation
from ir.columns import Column, Columns, Decision, Mask, Matrix, Tables, Watched, tables_of
from ir.errors import Refusal, UsageError
from ir.gathered import Rows
from ir.parts import Numbers, Parts, parts_of
from ir.refutation import refuted
from ir.schedule import Schedule, Value
from ir.summary import Summary
from ir.variation import Shape

if TYPE_CHECKING:
    from ir.alternatives import Alternatives

__all__ = ["Column", "Columns", "Constraint", "Decision", "Mask", "Matrix", "Space"]

Row = NDArray[np.int16]
Features = tuple[tuple[str, ...], NDArray[np.float32]]
Estimates = NDArray[np.float32]
SPARED = 0.5  # share of rows left below which those that broke a rule are left out of others


@dataclass(frozen=True, slots=True)
class Constraint:
    """A named rule. `check` is vectorised; `explain` gives the numbers for one schedule.

    `reads` names the decisions that the check depends on, which is where a broken row is redrawn.
    Left empty it is found by watching the check; name them if the check reads conditionally.
    With `when` it binds only schedules in which that decision has that value.
    """

    name: str
    needs: str
    check: Callable[[Columns], Any]
    explain: Callable[[Mapping[str, Value]], str]
    reads: tuple[str, ...] = ()
    when: tuple[str, Value] | None = None


@dataclass(frozen=True, eq=False)
class Space:
    """Every schedule of one program on one target."""

    target: str
    decisions: tuple[Decision, ...]
    constraints: tuple[Constraint, ...] = ()
    seeds: tuple[dict[str, Value], ...] = ()
    features: Callable[[Columns], Features] | None = None
    pins: tuple[tuple[str, int], ...] = ()  # (decision, domain index)
    meaning: Callable[[Columns], NDArray[np.int32]] | None = None  # see `meanings`
    alternatives: Alternatives | None = None  # the spaces that this one chooses among
    unpinned: Space | None = field(default=None, repr=False)  # from which this one was pinned
    estimate: Callable[[Columns], Estimates] | None = None  # a feature that is sooner had alone

    def __post_init__(self) -> None:
        if len(self._tables) != len(self.decisions):
            raise ValueError("two decisions share a name")

    # -- names and values ---------------------------------------------------------------------

    @cached_property
    def _tables(self) -> Tables:
        free = self.unpinned
        same = free is not None and free.decisions is self.decisions
        return free._tables if free is not None and same else tables_of(self.decisions)

    @cached_property
    def shape(self) -> Shape:
        pins = tuple((self._tables[name].position, index) for name, index in self.pins)
        return Shape(self.decisions, pins)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(decision.name for decision in self.decisions)

    @property
    def pinned(self) -> dict[str, Value]:
        return {name: self.decision(name).domain[index] for name, index in self.pins}

    @cached_property
    def size(self) -> int:
        """Schedules before constraints; what is pinned or not in force counts once."""
        if self.shape.governing:
            return sum(branch.size for branch in self.branches)
        return math.prod(int(size) for size in self.shape.sizes)

    @cached_property
    def branches(self) -> tuple[Space, ...]:
        """The space once for each value of the first free decision on which others depend; of a
        space that has one."""
        parent = self.decisions[self.shape.governing[0]]
        return tuple(self.pin({parent.name: value}) for value in parent.domain)

    def decision(self, name: str) -> Decision:
        """The decision called `name`; raises UsageError with the nearest name."""
        table = self._tables.get(name)
        if table is not None:
            return self.decisions[table.position]
        near = difflib.get_close_matches(name, self.names, n=1, cutoff=0.0)
        hint = f"; the nearest is {near[0]!r}" if near else ""
        raise UsageError(f"no decision {name!r} in this space{hint}")

    @property
    def blank(self) -> Matrix:
        """One row, of the first value of every decision."""
        return np.zeros((1, len(self.decisions)), dtype=np.int16)

    def place(self, name: str) -> int:
        """The column of a decision."""
        return self._tables[name].position

    def pin(self, pins: Mapping[str, object] | None = None, /, **named: object) -> Space:
        """The space with these decisions fixed. Domains, and so codes and features, stay.

        What a pinned decision needs to be in force is pinned with it; UsageError if it never is.
        """
        fixed = dict(self.pins)
        for name, value in {**(pins or {}), **named}.items():
            fixed[name] = self.decision(name).index(value)
        for name in list(fixed):
            self._pin_condition(self.decision(name), fixed)
        return replace(self, pins=tuple(fixed.items()), unpinned=self._free)

    def _pin_condition(self, decision: Decision, fixed: dict[str, int]) -> None:
        if decision.when is None:
            return
        parent, value = decision.when
        known = self.decision(parent)
        if fixed.setdefault(parent, known.index(value)) != known.index(value):
            pinned = known.domain[fixed[parent]]
            raise UsageError(
                f"{decision.name} is pinned, but only in force with {parent}={value}; "
                f"{parent}={pinned} is pinned too: drop one of them"
            )
        self._pin_condition(known, fixed)

    def columns(self, matrix: Matrix | Rows) -> Columns:
        return Columns(self._tables, matrix)

    def meanings(self, matrix: Matrix) -> NDArray[np.integer[Any]]:
        """Numbers by row: rows that share them lower to one kernel, as far as the backend tells.

        The reverse need not hold. A backend that tells nothing has the rows themselves.
        """
        return matrix if self.meaning is None else self.meaning(self.columns(matrix))

    def schedule(self, row: Row) -> Schedule:
        """What a row means. Of decisions about the graph, and of those that are in force with a
        value of one alone, only what differs from the program as written is said: so a schedule
        is the same text as before there was a choice."""
        values = row.tolist()
        pairs = (
            (decision.name, decision.domain[index])
            for decision, index, when in zip(self.decisions, values, self._routed, strict=True)
            if all(values[place] == code for place, code in when)
            and not (decision.routes and decision.domain[index] == decision.unsaid)
        )
        return Schedule(self.target, tuple(pairs))

    @cached_property
    def _routed(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """For each decision the values of those about the graph with which it is in force: (column,
        code)."""
        found: list[tuple[tuple[int, int], ...]] = []
        for decision in self.decisions:
            here: tuple[tuple[int, int], ...] = ()
            if decision.when is not None:
                parent = self._tables[decision.when[0]].position
                here = found[parent]
                if self.decisions[parent].routes:
                    here += ((parent, self.decisions[parent].index(decision.when[1])),)
            found.append(here)
        return tuple(found)

    def encode(self, schedule: Schedule) -> Row:
        """The row of `schedule`. UsageError if a name or value is not of this space or a pin.

        It may leave out what is not in force, what others depend on if that has an initial value,
        and what has a value unsaid: a schedule from before there was a choice stays one.
        """
        if schedule.target != self.target:
            raise UsageError(f"a schedule for {schedule.target!r} in a space for {self.target!r}")
        given = schedule.as_dict()
        for name in given:
            if name not in self._tables:
                self.decision(name)  # refuses it
        given = {**self._unsaid(given), **given}
        missing = [name for name in self.names if name not in given]
        if missing:
            raise UsageError(f"the schedule leaves open: {', '.join(missing)}")
        row = np.array([d.index(given[d.name]) for d in self.decisions], dtype=np.int16)
        for name, index in self.pins:
            if row[self._tables[name].position] != index:
                pinned = self.pinned[name]
                raise UsageError(f"{name}: {given[name]!r} where {pinned!r} is pinned")
        return row

    def _unsaid(self, given: Mapping[str, Value]) -> dict[str, Value]:
        """Values of decisions that a schedule may leave out."""
        parents = {decision.when[0] for decision in self.decisions if decision.when}
        found: dict[str, Value] = {}
        idle: set[str] = set()
        for decision in self.decisions:
            if decision.name in parents and decision.initial is not None:
                found[decision.name] = decision.initial
            if decision.unsaid is not None:
                found[decision.name] = decision.unsaid
            if decision.when is not None:
                parent, value = decision.when
                if parent in idle or {**found, **given}.get(parent, value) != value:
                    idle.add(decision.name)
                    found[decision.name] = decision.domain[0]
        return found

    # -- legality -----------------------------------------------------------------------------

    @property
    def _free(self) -> Space:
        """The space without pins, which knows what does not depend on them; a space that was given
        other constraints or seeds since is its own."""
        free = self.unpinned
        same = free is not None and free.constraints is self.constraints
        return free if free is not None and same and free.seeds is self.seeds else self

    @cached_property
    def reads(self) -> Mask:
        """For each constraint, the free decisions it depends on, but for those that govern others:
        a broken row is mended where it stands, not by leaving it for an easier part of the space.
        """
        watched = self._free._watched
        mask = np.zeros(watched.shape, np.bool_)
        free = np.setdiff1d(self.shape.free, self.shape.governing)
        mask[:, free] = watched[:, free]
        return mask

    @cached_property
    def _watched(self) -> Mask:
        """For each constraint, the decisions that it depends on."""
        columns = Watched(self._tables, self.shape.draw(np.random.default_rng(0), 64))
        mask = np.zeros((len(self.constraints), len(self.decisions)), dtype=np.bool_)
        for number, constraint in enumerate(self.constraints):
            names = set(constraint.reads)
            if not names:
                columns.asked.clear()
                constraint.check(columns)
                names = columns.asked | ({constraint.when[0]} if constraint.when else set())
            mask[number, [self._tables[name].position for name in names]] = True
        return mask

    @cached_property
    def parts(self) -> Parts:
        """What can be drawn, repaired and varied by itself."""
        return parts_of(self.reads)

    def violations(self, matrix: Matrix | Rows, rules: Numbers | None = None) -> Mask:
        """True where a row (first index) breaks a constraint (second index), of all or of some."""
        chosen = self._all_rules if rules is None else rules
        broken = np.zeros((len(matrix), len(chosen)), dtype=np.bool_)
        columns = self.columns(matrix)
        for when, places in self._together(chosen).items():
            rows = self._bound(when, columns)
            if not len(rows):
                continue
            seen = columns if len(rows) == len(matrix) else columns.where(rows)
            for place in places:
                check = self.constraints[chosen[place]].check
                broken[rows, place] = np.logical_not(check(seen))
        return broken

    @cached_property
    def _all_rules(self) -> Numbers:
        return np.arange(len(self.constraints))

    def _together(self, rules: Numbers) -> dict[tuple[str, Value] | None, list[int]]:
        """Places in a list of constraints of those that bind the same rows."""
        found: dict[tuple[str, Value] | None, list[int]] = {}
        for place, number in enumerate(rules.tolist()):
            found.setdefault(self.constraints[number].when, []).append(place)
        return found

    def _bound(self, when: tuple[str, Value] | None, columns: Columns) -> NDArray[np.intp]:
        """The rows about which constraints with this condition say something."""
        bound = np.ones(columns.rows, dtype=np.bool_)
        while when is not None:
            bound &= columns.is_(*when)
            when = self.decision(when[0]).when
        return np.flatnonzero(bound)

    def legal(self, matrix: Matrix, rules: Numbers | None = None) -> Mask:
        """Which rows satisfy every constraint, or these; later checks see only what is left."""
        legal = np.ones(len(matrix), dtype=np.bool_)
        columns = self.columns(matrix)
        chosen = self._all_rules if rules is None else rules
        for when, places in self._together(chosen).items():
            alive = self._bound(when, columns)
            alive = alive[legal[alive]]
            seen = columns if len(alive) == len(matrix) else columns.where(alive)
            passed = np.ones(len(alive), dtype=np.bool_)
            for place in places:
                if not len(alive):
                    break
                check = self.constraints[chosen[place]].check
                passed = passed & check(seen)
                left = np.count_nonzero(passed)
                if left < SPARED * len(passed):  # more is sooner looked at again than gathered
                    legal[alive] = passed
                    alive = alive[passed]
                    passed = passed[passed]
                    seen = columns.where(alive)
            legal[alive] = passed
        return legal

    def refusal(self, schedule: Schedule) -> Refusal | None:
        """Why `schedule` is illegal: the first broken constraint, with its numbers."""
        row = self.encode(schedule)
        columns = self.columns(row[None, :])
        for constraint in self.constraints:
            if len(self._bound(constraint.when, columns)) and not np.all(constraint.check(columns)):
                return Refusal(constraint.name, constraint.explain(self.schedule(row).as_dict()))
        return None

    # -- drawing and varying ------------------------------------------------------------------

    def sample(
        self, rng: np.random.Generator, rows: int, lot: int = drawing.LOT, most: int | None = None
    ) -> Matrix:
        """`rows` legal rows: independent draws, with what breaks a constraint drawn again.

        Where that is slow the rest are random walks from the rows found. Raises UsageError,
        naming the tightest constraint, when nothing legal is found. Values of a decision on which
        others depend get equal shares, however few of their rows are legal. More rows than a `lot`
        combine parts of those that are drawn. Of many branches `most` are drawn from, by chance in
        each call.
        """
        if self.shape.governing:
            return self._sample_branches(rng, rows, lot, most)
        matrix = drawing.drawn(self, rng, rows, lot)
        if rows and not self.legal(matrix[:1]).all():  # then none is
            raise UsageError(summary.nothing_legal(self, rng))
        return matrix

    def _sample_branches(
        self, rng: np.random.Generator, rows: int, lot: int, most: int | None
    ) -> Matrix:
        found: list[Matrix] = []
        problem: UsageError | None = None
        branches = [b for _, b in sorted(enumerate(self.branches), key=lambda _: rng.random())]
        count = len(branches) if most is None else min(most, len(branches))
        lot, each = max(drawing.LEAST_LOT, lot // count), most and max(1, most // count)
        idle = branches[count:]
        for number, branch in enumerate(branches[:count]):
            share = -(-(rows - number) // count)
            idle += [branch] if share < 1 else []
            try:
                found.append(branch.sample(rng, share, lot, each))
            except UsageError as error:
                problem = error
        while idle and rows and not sum(map(len, found)):  # shares went where nothing is legal
            try:
                found.append(idle.pop(0).sample(rng, rows, lot, each))
            except UsageError as error:
                problem = error
        if problem is not None and not sum(map(len, found)):
            raise problem
        matrix = np.concatenate(found)
        short = rows - len(matrix)
        if short > 0:
            matrix = np.concatenate([matrix, matrix[rng.integers(len(matrix), size=short)]])
        return np.asarray(rng.permutation(matrix)[:rows], dtype=np.int16)

    def repair(self, rng: np.random.Generator, matrix: Matrix, thrift: float = 0.0) -> Matrix:
        """Redraw decisions that broken constraints read; the rare hopeless row stays illegal.

        With `thrift`, many rows may: repair ends when a round mends less than that share.
        """
        return drawing.repaired(self, rng, matrix, thrift)

    def mutate(
        self,
        rng: np.random.Generator,
        matrix: Matrix,
        strength: float = 2.0,
        weights: NDArray[np.float64] | None = None,
    ) -> Matrix:
        """Change a geometric number of decisions, `strength` on average; may be illegal.

        `weights` (one for each decision) says how often a decision is chosen.
        """
        return variation.mutate(self.shape, rng, matrix, strength, weights)

    def crossover(self, rng: np.random.Generator, left: Matrix, right: Matrix) -> Matrix:
        """Row by row children of `left` and `right`; may be illegal."""
        return variation.crossover(self.shape, rng, left, right)

    def mended(self, children: Matrix, parents: Matrix) -> Matrix:
        """Legal children of legal `parents`, row by row: an illegal part is that of the parent."""
        return drawing.mended(self, children, parents)

    def neighbours(self, row: Row) -> Matrix:
        """Every legal row that differs from `row` in one decision."""
        sizes = self.shape.sizes
        columns = np.repeat(np.arange(sizes.size), sizes - 1)
        values = [np.delete(np.arange(sizes[c]), row[c]) for c in self.shape.free]
        matrix = np.repeat(row[None, :], columns.size, axis=0)
        if columns.size:
            matrix[np.arange(columns.size), columns] = np.concatenate(values)
        return matrix[self.legal(matrix)]

    def exhaustive(self, chunk: int = 65_536) -> Iterator[Matrix]:
        """Every legal row, in chunks, the last decision changing fastest."""
        if self.size > 2**62:
            raise UsageError(f"a space of {self.size:.1e} schedules cannot be enumerated")
        if self.shape.governing:
            for branch in self.branches:
                yield from branch.exhaustive(chunk)
            return
        free = self.shape.free
        sizes = tuple(int(size) for size in self.shape.sizes[free])
        for start in range(0, self.size, chunk):
            numbers = np.arange(start, min(start + chunk, self.size))
            matrix = self.shape.fix(np.zeros((numbers.size, len(self.decisions)), np.int16))
            if sizes:
                matrix[:, free] = np.stack(np.unravel_index(numbers, sizes), axis=1)
            yield matrix[self.legal(matrix)]

    def seed_rows(self, rng: np.random.Generator) -> Matrix:
        """The backend's seeds as legal rows: gaps filled by initial values, pins obeyed."""
        matrix = drawing.seeded(self, rng, self.seed_matrix)
        return matrix[self.legal(matrix)]

    def ready_seeds(self, rng: np.random.Generator) -> Matrix:
        """The seeds that are legal as they are, in their order; of a branch that has none those
        that can be mended, which takes a while."""
        return drawing.ready(self, rng, self.seed_matrix)

    @property
    def seed_matrix(self) -> Matrix:
        """The seeds as rows, legal or not."""
        matrix = self._free._seed_codes[self._seeds_within_pins()]
        if not len(matrix) and any(decision.initial is not None for decision in self.decisions):
            matrix = self._initial[None, :].copy()
        return self.shape.fix(matrix)

    @cached_property
    def _seed_codes(self) -> Matrix:
        """The seeds as rows, pinned or not."""
        return self._tables.filled(self.decisions, self._initial, self.seeds)

    def any_legal(self, rng: np.random.Generator, patient: bool = True) -> Row:
        """A legal row: a seed as it is, one that is repaired, or, which takes seconds where there
        is none, a draw (`patient`); UsageError if none."""
        seeds = self.seed_matrix
        found = seeds[self.legal(seeds)]
        if not len(found):
            found = self.seed_rows(rng)
        if not len(found) and (not patient or refuted(self)):
            raise UsageError(summary.nothing_legal(self, rng))
        found = found if len(found) else self.sample(rng, 1)
        return np.asarray(found[0], dtype=np.int16)

    def _seeds_within_pins(self) -> list[int]:
        """Seeds, by number, that agree with what is pinned of the decisions on which others
        depend."""
        parents = {decision.when[0] for decision in self.decisions if decision.when}
        pinned = {name: value for name, value in self.pinned.items() if name in parents}
        return [
            number for number, seed in enumerate(self.seeds)
            if all(seed.get(name, value) == value for name, value in pinned.items())
        ]  # fmt: skip

    @cached_property
    def _initial(self) -> Row:
        """The code of each decision's initial value, of its first one where it has none."""
        codes = [0 if d.initial is None else d.index(d.initial) for d in self.decisions]
        return np.array(codes, dtype=np.int16)

    def describe(self, rng: np.random.Generator) -> Summary:
        """How large the space is, and what its constraints take away."""
        return summary.described(self, rng)
