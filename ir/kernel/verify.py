"""A scheduled loop run on terms: that it means the body, and that nothing is used while it runs.

The meaning of an operation is a term of its name and of what it reads. Tensor cores read and write
at any time until they are done: what they read may not be overwritten before, nor what they write
be read. Their slots are free once, when a wait has made sure that they are done.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ir.errors import TilewrightError
from ir.kernel.body import TENSOR, THREADS, Body, Operation
from ir.kernel.synchronise import Scheduled

Term = tuple[object, ...]


class OrderError(TilewrightError):
    """An operation would use a value that is not there, or that another still uses."""


@dataclass
class Machine:
    """Values as terms, and what tensor cores still do."""

    values: dict[str, Term] = field(default_factory=dict)
    running: list[tuple[str, Operation | None, dict[str, Term]]] = field(default_factory=list)
    """Label, operation with its values in their places, and what it will have written."""
    taken: set[str] = field(default_factory=set)  # by operations of tensor cores, until they free

    def wait(self, most: int) -> None:
        while len(self.running) > most:
            _, _, results = self.running.pop(0)
            self.values |= results

    def free(self, label: str) -> None:
        """The slots of what a wait has made sure of."""
        if any(label == name for name, _, _ in self.running):
            raise OrderError(f"slots of {label} are free while it runs")
        if label not in self.taken:
            raise OrderError(f"slots of {label} are free before it is begun, or twice")
        self.taken.remove(label)

    def do(self, body: Body, number: int, iteration: int) -> None:
        one = placed(body, number, iteration)
        label = f"{one.name} of {iteration}"
        adds = one.unit == TENSOR  # in order, of two iterations at most
        begun = [other for _, other, _ in self.running if other is not None]
        if adds and sum(other.name == one.name for other in begun) > 1:
            raise OrderError(f"{label} would be the third at once")
        for name, other, _ in self.running:
            if other is None or (adds and other.name == one.name):
                continue
            for value in one.reads:
                if value in other.writes:
                    raise OrderError(f"{label} reads {value}, which {name} still writes")
            for value in one.writes:
                if value in (*other.reads, *other.writes):
                    raise OrderError(f"{label} overwrites {value}, which {name} still uses")
        before = self.values
        if one.unit != THREADS:  # sums that are still added to are as they will be
            before = before | {v: t for _, _, results in self.running for v, t in results.items()}
        read = tuple(before.get(value, (value,)) for value in one.reads)
        results: dict[str, Term] = {value: (one.name, value, read) for value in one.writes}
        if one.unit != THREADS:
            self.running.append((label, one, results))
            self.taken.add(label)
        else:
            self.values |= results


def placed(body: Body, number: int, iteration: int) -> Operation:
    """An operation with its values in the places that they have in an iteration."""
    one = body.operations[number]
    if not body.places:
        return one
    reads, writes = (
        tuple(body.in_place(value, iteration) for value in values)
        for values in (one.reads, one.writes)
    )
    return replace(one, reads=reads, writes=writes)


def meaning(body: Body, iterations: int) -> dict[str, Term]:
    """The values behind a loop that finishes every iteration before the next."""
    machine = Machine()
    for iteration in range(iterations):
        for number in range(len(body.operations)):
            machine.do(body, number, iteration)
            machine.wait(0)
    return machine.values


def run(scheduled: Scheduled, iterations: int) -> dict[str, Term]:
    """The values behind the scheduled loop; raises OrderError, which names the operations."""
    machine = Machine()
    for step in range(iterations + scheduled.order.depth):
        _run_step(scheduled, machine, step, iterations)
    machine.wait(0)
    _free(scheduled, machine, scheduled.left, iterations + scheduled.order.depth, iterations)
    if machine.taken:
        raise OrderError(f"slots of {min(machine.taken)} are never free")
    return machine.values


def _free(
    scheduled: Scheduled, machine: Machine, done: tuple[tuple[int, int], ...], step: int,
    iterations: int,
) -> None:  # fmt: skip
    """The slots of operations that were begun so many steps before `step`."""
    order = scheduled.order
    for place, age in done:
        iteration = step - age - order.stages[place]
        if 0 <= iteration < iterations:
            machine.free(f"{order.body.operations[place].name} of {iteration}")


def _run_step(scheduled: Scheduled, machine: Machine, step: int, iterations: int) -> None:
    order = scheduled.order
    for entry in scheduled.steps:
        one = order.body.operations[entry.operation]
        iteration = step - order.stages[entry.operation]
        if entry.wait is not None:
            machine.wait(entry.wait.running)
            _free(scheduled, machine, entry.wait.done, step, iterations)
        if 0 <= iteration < iterations:
            machine.do(order.body, entry.operation, iteration)
        elif one.unit == TENSOR:
            machine.running.append((one.name, None, {}))


def verify(scheduled: Scheduled) -> None:
    """Raises OrderError where a loop of some iterations does not mean its body."""
    body = scheduled.order.body
    for iterations in range(scheduled.order.depth + 4):
        wanted, found = meaning(body, iterations), run(scheduled, iterations)
        kept = {value for value in wanted if value.partition(".")[0] not in body.local}
        for value in sorted(kept):
            if wanted[value] != found.get(value):
                last = _last_writer(body, value.partition(".")[0])
                raise OrderError(f"{value} of {last.name} is another behind {iterations} blocks")


def _last_writer(body: Body, value: str) -> Operation:
    writers: Iterator[Operation] = (o for o in reversed(body.operations) if value in o.writes)
    return next(writers)
