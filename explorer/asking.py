"""A strategy on a thread of its own, so that it proposes and learns while others measure.

What it is told and asked is done in the order of the calls, one at a time, so that its proposals
follow from outcomes alone. Knows strategies; no measuring and no records.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from explorer.runtime.blas import one_thread
from explorer.runtime.switching import short_turns
from explorer.strategies.base import OutcomeLike, Strategy
from explorer.strategies.guide import Guided
from ir.schedule import Schedule

Told = tuple[Sequence[Schedule], Sequence[OutcomeLike]]


@dataclass(frozen=True, slots=True)
class Proposal:
    """What was proposed, and how many were asked for: fewer are all that are left."""

    schedules: list[Schedule]
    wanted: int


class Asker:
    """Asks and tells `strategy`; `close` it. What a strategy raises is raised by `asked`.

    Until then the BLAS of this process has one thread, and its threads take short turns.
    """

    def __init__(self, strategy: Strategy) -> None:
        self._held = ExitStack()
        self._held.enter_context(one_thread())
        self._held.enter_context(short_turns())
        self._strategy = strategy
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="strategy")
        self._new: list[Told] = []  # for the next question
        self._told: list[Future[None]] = []
        self._asked: Future[Proposal] | None = None
        self._bell, self._rope = os.pipe()
        os.set_blocking(self._bell, False)

    def tell(self, schedules: Sequence[Schedule], outcomes: Sequence[OutcomeLike]) -> None:
        """Outcomes of schedules; does not wait. The strategy hears of them when it is asked: until
        then nothing that it computes is in the way of who tells."""
        self._new.append((schedules, outcomes))

    def ask(self, count: int, abreast: int = 1, whole: bool = False) -> None:
        """Begin to ask for up to `count`, unless `whole` as many as the strategy wants of them for
        each of those that measure `abreast`."""
        assert self._asked is None
        self._silence()
        self._pass_on()
        self._asked = self._thread.submit(self._ask, count, abreast, whole)
        self._asked.add_done_callback(lambda _: os.write(self._rope, b"."))

    def _ask(self, count: int, abreast: int, whole: bool) -> Proposal:
        if isinstance(self._strategy, Guided) and not whole:
            each = self._strategy.portion(-(-count // abreast))
            count = min(count, abreast * each)
        return Proposal(self._strategy.ask(count), count)

    @property
    def asking(self) -> bool:
        """Whether `asked` has not been called for the last `ask`."""
        return self._asked is not None

    @property
    def ready(self) -> bool:
        """Whether `asked` would not wait."""
        return self._asked is not None and self._asked.done()

    @property
    def alarm(self) -> int | None:
        """A descriptor that can be read once there is an answer; None if nothing was asked."""
        return None if self._asked is None else self._bell

    def asked(self) -> Proposal:
        """The answer, waited for."""
        assert self._asked is not None
        found = self._asked.result()
        self._asked = None
        self._check()
        return found

    def _silence(self) -> None:
        """Take what was rung before, if it was."""
        with suppress(BlockingIOError):
            os.read(self._bell, 64)

    def wait(self) -> None:
        """Until there is an answer."""
        if self._asked is not None:
            wait((self._asked,))

    def settle(self) -> None:
        """Until the strategy knows all that it was told."""
        self._pass_on()
        wait(self._told)
        self._check()

    def _pass_on(self) -> None:
        new, self._new = self._new, []
        self._told += [self._thread.submit(self._strategy.tell, *told) for told in new]

    def _check(self) -> None:
        done = [told for told in self._told if told.done()]
        self._told = [told for told in self._told if not told.done()]
        for told in done:
            told.result()

    def close(self) -> None:
        """End the thread, when it has finished what it is at."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._held.close()
        for end in (self._bell, self._rope):
            os.close(end)
