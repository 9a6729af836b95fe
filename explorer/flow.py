"""Candidates of one search on their way: asked for, claimed, measured, and told as they were asked.

While one group is measured the next is asked for, by a rule that knows outcomes and no time:
whatever the machine does, the same answers make the same search, so that it can be replayed and
resumed. Knows strategies, measuring and sharing by their interfaces; stores nothing.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from explorer.asking import Asker
from explorer.interrupted import Acknowledged
from explorer.measuring import Measuring
from explorer.outcome import Outcome
from explorer.sharing import Pair, Sharing
from ir.schedule import Schedule

LEAST = 8  # candidates asked for at once at a budget's end, where most may be copies of others
BARREN = 32  # groups in a row of kernels that ran before, after which a step gives up


@dataclass(frozen=True, slots=True)
class Ended:
    """The outcome of a schedule; `fresh` if it was measured now."""

    schedule: Schedule
    outcome: Outcome
    fresh: bool


@dataclass(slots=True)
class _Group:
    """What was asked for at once, and what is known of it; the groups of a search are numbered."""

    number: int
    schedules: list[Schedule]
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    @property
    def through(self) -> bool:
        return len(self.outcomes) == len(self.schedules)

    @property
    def pairs(self) -> list[Pair]:
        """What has an outcome, in the order of asking."""
        known = ((schedule, self.outcomes.get(schedule.key)) for schedule in self.schedules)
        return [(schedule, outcome) for schedule, outcome in known if outcome is not None]

    @property
    def trials(self) -> int:
        return sum(not outcome.copied for outcome in self.outcomes.values())


class Flow:
    """One for each search. `hear` is called before asking: others' trials are to be told then.
    `commit` is called before telling: what was given is to be in the store then, since others may
    ask for it again as soon as its lease is let go.

    A group is as wide as a step for each device that measures. One is asked for whenever fewer than
    the measurer's `depth` are not told yet and the budget has room; only when there is none to be
    asked for is the oldest one told, once all of it has its outcome. So a group is chosen knowing
    all but the `depth` - 1 before it.
    """

    def __init__(
        self,
        asker: Asker,
        measurer: Measuring,
        sharing: Sharing,
        past: Acknowledged,
        hear: Callable[[], None],
        commit: Callable[[], None],
    ) -> None:
        self._asker, self._measurer, self._sharing = asker, measurer, sharing
        self._past, self._hear, self._commit = past, hear, commit
        self._groups: deque[_Group] = deque()  # not told yet
        self._filling: list[Schedule] = []  # of the group that is being asked for
        self._answered: deque[Ended] = deque()  # from the past, not given yet
        self._spare: list[Schedule] = []  # asked for, and not measured
        self._widest = 0  # the largest group so far
        self._seats = 0  # of the next group
        self._given = 0  # trials so far
        self._trials = 0  # in groups that were told
        self._begun = 0  # groups so far
        self._strays = math.inf  # groups begun by which the past must have been asked for again
        self._empty = False  # whether the strategy had nothing to propose

    def step(self, count: int, ahead: float, patience: float) -> Iterator[Ended]:
        """Outcomes as they come, until `count` of them are trials or there is nothing left.

        Up to `ahead` more may have begun then. Outcomes that are copied are given, and not counted.
        What other searches measure is waited for `patience` (seconds) at most.
        """
        until = time.monotonic() + patience
        self._widest, self._empty = max(count, self._widest), False
        allowed, barren = self._given + count + ahead, 0
        while count > 0 and barren < BARREN:
            self._take_asked()
            if self._may_ask(allowed):
                self._ask(allowed)
            elif not self._asker.asking and self._groups and self._groups[0].through:
                barren = 0 if self._tell() else barren + 1
            elif (ended := self._next()) is not None:
                count -= not ended.outcome.copied
                self._given += not ended.outcome.copied
                yield ended
            elif not self._asker.asking and not self._groups and not self._more(until):
                return

    def settle(self) -> None:
        """Let go of what is under way: what has an outcome is told, the rest is kept for later."""
        self._measurer.forget()
        if self._asker.asking:
            self._spare += self._asker.asked().schedules
        self._unanswer()
        while self._groups:
            group = self._groups[0]
            self._spare += [s for s in group.schedules if s.key not in group.outcomes]
            self._tell()
        self._spare += self._filling
        self._filling = []
        self._asker.settle()
        self._commit()
        self._sharing.done()

    # --- asking ---------------------------------------------------------------------------------

    def _may_ask(self, allowed: float) -> bool:
        """Whether the next group's time has come; outcomes alone decide it."""
        idle = not self._asker.asking and not self._empty
        return idle and len(self._groups) < self._measurer.depth and self._room(allowed) > 0

    def _room(self, allowed: float) -> float:
        return allowed - self._trials - sum(len(group.schedules) for group in self._groups)

    def _ask(self, allowed: float) -> None:
        """Begin a group with what is there already, else ask for one.

        For a few seats more are asked for, since most may be copies: the others are spare.
        """
        widest = self._widest * self._measurer.abreast
        self._seats = int(min(widest, self._room(allowed)))
        size = max(self._seats, min(LEAST, widest))
        found = self._sharing.left(size)
        self._hear()
        spare, self._spare = self._spare, []
        found += self._ours(spare)
        self._hear()
        if found:
            self._begin(found)
        else:
            self._asker.ask(size, self._measurer.abreast)

    def _take_asked(self) -> None:
        """What the strategy proposed, if it has: of what others measure it is asked for more."""
        if not self._asker.ready:
            return
        proposal = self._asker.asked()
        ours = self._ours(proposal.schedules)
        self._hear()
        self._filling += ours
        short = proposal.wanted - len(ours)
        if len(proposal.schedules) == proposal.wanted and short:
            self._asker.ask(short, whole=True)
        elif self._filling:
            filled, self._filling = self._filling, []
            self._begin(filled)
        else:
            self._empty = True

    def _ours(self, asked: Sequence[Schedule]) -> list[Schedule]:
        """Of schedules asked for: what the resumed job measured, and what no other search has."""
        past = {schedule.key for schedule in asked if self._past.holds(schedule)}
        taken = self._sharing.take([schedule for schedule in asked if schedule.key not in past])
        ours = past | {schedule.key for schedule in taken}
        return [schedule for schedule in asked if schedule.key in ours]

    def _more(self, until: float) -> bool:
        """When nothing is under way: whether there is more, of the past or of other searches."""
        if self._past:
            self._tell_strays()
            return True
        found = self._sharing.wait(self._widest, until - time.monotonic())
        self._hear()
        if found:
            self._begin(found)
        return bool(found)

    # --- measuring ------------------------------------------------------------------------------

    def _begin(self, schedules: list[Schedule]) -> None:
        """Have a group measured, but for what the past answers."""
        self._begun += 1
        schedules, spare = schedules[: self._seats], schedules[self._seats :]
        self._spare += spare
        group = _Group(self._begun, schedules)
        self._groups.append(group)
        new = []
        for schedule in schedules:
            outcome = self._past.take(schedule)
            if outcome is None:
                new.append(schedule)
            else:
                group.outcomes[schedule.key] = outcome
                self._answered.append(Ended(schedule, outcome, fresh=False))
        self._measurer.begin(new)
        if self._begun >= self._strays:
            self._tell_strays()

    def _next(self) -> Ended | None:
        """The next outcome; None if first something has to be asked for, begun or told."""
        if self._answered:
            return self._answered.popleft()
        pair = self._measurer.ended(self._asker.alarm)
        if pair is None:
            assert self._asker.asking or not self._groups
            self._asker.wait()
            return None
        schedule, outcome = pair
        group = next(g for g in self._groups if self._awaited(g, schedule))
        group.outcomes[schedule.key] = outcome
        if not outcome.copied:  # the past had at most the groups that were under way with this one
            self._strays = min(self._strays, group.number + self._measurer.depth - 1)
            if self._begun >= self._strays:
                self._tell_strays()
        return Ended(schedule, outcome, fresh=True)

    @staticmethod
    def _awaited(group: _Group, schedule: Schedule) -> bool:
        return schedule.key not in group.outcomes and schedule in group.schedules

    def _tell(self) -> int:
        """Tell the strategy of the oldest group; gives the number of its trials."""
        self._commit()
        group = self._groups.popleft()
        self._trials += group.trials
        self._sharing.done(group.schedules)  # while nothing else wants this process's processor
        if group.pairs:
            self._asker.tell(*zip(*group.pairs, strict=True))
        return group.trials

    def _tell_strays(self) -> None:
        """Trials that were not asked for again (another version of a library draws otherwise)."""
        pairs = self._past.rest()
        if pairs:
            self._asker.tell(*zip(*pairs, strict=True))
            self._trials += len(pairs)
            self._answered.extend(Ended(*pair, fresh=False) for pair in pairs)

    def _unanswer(self) -> None:
        """Give back to the past what it answered and nobody was given yet."""
        answered, self._answered = self._answered, deque()
        for ended in answered:
            key = ended.schedule.key
            group = next((g for g in self._groups if key in g.outcomes), None)
            if group is None:
                self._answered.append(ended)  # a stray: told already
            else:
                del group.outcomes[key]
                self._past.keep([(ended.schedule, ended.outcome)])
