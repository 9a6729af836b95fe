"""A scripted device: stands in for the measurer, and answers by a rule instead of running."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Mapping, MutableSequence, Sequence
from copy import copy
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from explorer.baseline import Baseline
from explorer.outcome import Outcome
from ir.schedule import Schedule

Rule = Callable[[Schedule], Outcome]


def by_key(schedule: Schedule) -> Outcome:
    """A good outcome whose time is a fixed number between 1 and 2 ms for each schedule."""
    number = int(schedule.key[:8], 16) / 2**32
    return Outcome("ok", 1e-3 * (1 + number), (1e-3, 3e-3), 5, kernel_key=schedule.key)


class ScriptedDevice:
    """See `explorer.measuring.Measuring`; `final` answers in the finals, if it differs.

    `library` is the baseline of those who ask for one, `contested` what it is after the finals.
    """

    def __init__(
        self,
        rule: Rule = by_key,
        final: Rule | None = None,
        library: Baseline | None = None,
        contested: Baseline | None = None,
    ) -> None:
        self.rule = rule
        self.final = final or rule
        self.library, self.contested = library, contested
        self.baseline: Baseline | None = None
        self.examined: tuple[float, ...] = ()
        self.measured: MutableSequence[Schedule] = []
        self.finalists: list[Schedule] = []
        self.best: float | None = None
        self.kernels: dict[str, Outcome] = {}
        self._closed: list[bool] = []
        self.depth, self.abreast = 2, 1
        self._begun: deque[Schedule] = deque()

    def __call__(self, *arguments: Any, **options: Any) -> Self:
        """Stands in for the class as well: each has candidates of its own under way."""
        self.baseline = self.library if options.get("library") else None
        made = copy(self)
        made._begun = deque()
        return made

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def bounded_by(self, peaks: Mapping[str, Any]) -> None:
        """Every time is believed."""

    def begin(self, schedules: Sequence[Schedule]) -> None:
        self._begun.extend(schedules)

    def ended(self, alarm: int | None = None) -> tuple[Schedule, Outcome] | None:
        if not self._begun:
            return None
        schedule = self._begun.popleft()
        return schedule, self._answer(schedule)

    def forget(self) -> None:
        self._begun.clear()

    def _answer(self, schedule: Schedule) -> Outcome:
        outcome = self.rule(schedule)
        if outcome.kernel_key in self.kernels:
            return replace(self.kernels[outcome.kernel_key], copied=True)
        self.measured.append(schedule)
        if outcome.kernel_key:
            self.kernels[outcome.kernel_key] = outcome
        return outcome

    def compete(
        self, schedules: Sequence[Schedule], rounds: int, library: bool = False
    ) -> list[Outcome]:
        self.finalists[:] = schedules
        if library:
            self.baseline = self.contested or self.baseline
        return [self.final(schedule) for schedule in schedules]

    def rest(self) -> None:
        """Nothing is held."""

    def close(self) -> None:
        self._closed.append(True)

    @property
    def closed(self) -> bool:
        """Whether any of those made of it was."""
        return bool(self._closed)


def alike(schedule: Schedule) -> str:
    """A kernel key that many schedules share."""
    return hashlib.sha256(schedule.key[:1].encode()).hexdigest()
