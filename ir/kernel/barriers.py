"""Barriers of a loop whose threads share values, with the waits for their copies, derived.

Every thread copies for itself, and waits for its own copies alone; what another one made may be
read, and what another one reads overwritten, behind a barrier of all. Copies are done in the order
in which they were begun, and what they bring is read. Knows no tensor cores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations

from ir.kernel.body import COPY, THREADS, Body, Operation, conflicts
from ir.kernel.modulo import Order
from ir.kernel.verify import Machine, OrderError, Term, meaning, placed

MOST = 64  # copies that nobody waits for are forgotten


@dataclass(frozen=True, slots=True)
class Barrier:
    """Ahead of operation number `place` of a step. `running`: groups of copies, a step's each,
    that may still run; None if none has to be done."""

    place: int
    running: int | None


@dataclass(frozen=True, slots=True)
class _Pair:
    """Operation `after` of a step sees what `before` did so many steps earlier, both as numbers in
    the order of a step."""

    before: int
    after: int
    steps: int

    def behind(self, place: int) -> int | None:
        """How many steps before that of `after` the last barrier ahead of `place` is that is
        between the two; None if none is."""
        if place <= self.after and (self.steps > 0 or place > self.before):
            return 0
        if self.steps > 1 or (self.steps == 1 and place > self.before):
            return 1
        return None


def barriers(order: Order) -> tuple[Barrier, ...]:
    """The fewest barriers of a step, each as early as may be, with the laxest waits.

    >>> from ir.kernel.modulo import order_named
    >>> body = Body.parse("a: copy(X) -> x\\nb: threads(x, s) -> s\\nplaces x 4\\nshared x")
    >>> barriers(order_named(body, "b:3", 3))
    (Barrier(place=0, running=2),)
    """
    pairs = tuple(_pairs(order))
    every = range(len(order.places))
    for count in range(len(every) + 1):
        for chosen in combinations(every, count):
            if all(any(pair.behind(p) is not None for p in chosen) for pair in pairs):
                return tuple(_with_waits(order, pairs, chosen))
    raise OrderError(f"order {order}: no barriers make it right")


def _pairs(order: Order) -> Iterator[_Pair]:
    body, number = order.body, {place: n for n, place in enumerate(order.places)}
    for d in body.dependences:
        one, other = body.operations[d.before], body.operations[d.after]
        if d.before != d.after and conflicts(one, other) & body.shared:
            steps = d.distance + order.stages[d.after] - order.stages[d.before]
            yield _Pair(number[d.before], number[d.after], steps)


def _with_waits(
    order: Order, pairs: tuple[_Pair, ...], chosen: tuple[int, ...]
) -> Iterator[Barrier]:
    """Each copy is waited for at the last barrier ahead of who needs it, if not before."""
    needed: dict[int, set[tuple[int, int]]] = {place: set() for place in chosen}
    for pair in pairs:
        if order.body.operations[order.places[pair.before]].unit == COPY:
            between = ((pair.behind(place), place) for place in chosen)
            back, place = min((b, -place) for b, place in between if b is not None)
            needed[-place].add((pair.before, pair.steps - back))
    running: tuple[tuple[int, int], ...] = ()  # copies and how many steps ago they were begun
    while True:  # until a step leaves running what it began with
        found, queue = _one_step(order, needed, running)
        left = tuple((copy, age + 1) for copy, age in queue)
        if left == running:
            yield from (Barrier(place, found.get(place)) for place in chosen)
            return
        running = left


def _one_step(
    order: Order, needed: dict[int, set[tuple[int, int]]], queue: tuple[tuple[int, int], ...]
) -> tuple[dict[int, int], tuple[tuple[int, int], ...]]:
    """How many groups may run behind the waits of a step, and what runs when it ends."""
    found: dict[int, int] = {}
    for number, place in enumerate(order.places):
        due = [n for n, copy in enumerate(queue) if copy in needed.get(number, ())]
        if due:
            found[number] = len(queue) - max(due) - 1
            queue = queue[max(due) + 1 :]
        if order.body.operations[place].unit == COPY:
            queue = (*queue, (number, 0))
    return found, queue[-MOST:]


@dataclass
class Team(Machine):
    """Threads of a block; `recent`: what they did to shared values since they last met."""

    recent: list[tuple[str, Operation]] = field(default_factory=list)

    def wait(self, most: int) -> None:
        many = max(0, len(self.running) - most)
        self.recent += [(name, one) for name, one, _ in self.running[:many] if one is not None]
        super().wait(most)

    def meet(self) -> None:
        self.recent.clear()

    def do(self, body: Body, number: int, iteration: int) -> None:
        one = placed(body, number, iteration)
        for name, other in self.recent:
            met = {value.partition(".")[0] for value in conflicts(one, other)} & body.shared
            if met and one.name != other.name:
                value, label = min(met), f"{one.name} of {iteration}"
                raise OrderError(f"{label} and {name} meet in {value} without a barrier")
        super().do(body, number, iteration)
        if one.unit == THREADS:
            self.recent.append((f"{one.name} of {iteration}", one))


def verify_barriers(order: Order, found: tuple[Barrier, ...]) -> None:
    """Raises OrderError where a loop of some iterations does not mean its body."""
    ahead = {barrier.place: barrier for barrier in found}
    for iterations in range(order.depth + 5):
        team = Team()
        for step in range(iterations + order.depth):
            _run_step(order, ahead, team, step, iterations)
        team.wait(0)
        wanted = meaning(order.body, iterations)
        for value in sorted(wanted):
            if value.partition(".")[0] not in order.body.local:
                _same(value, wanted[value], team.values.get(value))


def _run_step(
    order: Order, ahead: dict[int, Barrier], team: Team, step: int, iterations: int
) -> None:
    for number, place in enumerate(order.places):
        if number in ahead:
            barrier = ahead[number]
            if barrier.running is not None:
                team.wait(barrier.running)
            team.meet()
        iteration = step - order.stages[place]
        if 0 <= iteration < iterations:
            team.do(order.body, place, iteration)
        elif order.body.operations[place].unit == COPY:  # an empty group, so that counts are alike
            team.running.append((order.body.operations[place].name, None, {}))


def _same(value: str, wanted: Term, found: Term | None) -> None:
    if wanted != found:
        raise OrderError(f"{value} is another behind the loop")
