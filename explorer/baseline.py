"""The baseline of a workload: the same program, op by op, in the target's array library.

`Baseline` is what is known of it, `LibraryTimer` measures it: quickly before a search, and in turns
with the finalists. Knows worker processes by a function that asks one; no search and no store.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from explorer.disturbance import Crowd, crowd_of
from explorer.outcome import Outcome
from explorer.runtime.process import Answer, Died, Raised, Reply
from explorer.runtime.workers import Timing
from explorer.samples import examined, merged

FINALS_SECONDS = 1.5  # about what the baseline may take of the finals
_LONGEST = 200  # letters of an error: those of compilers go on with the text that they compiled
_PLAIN_ERRORS = ("Inexpressible", "MissingTarget")  # their messages are meant for people


@dataclass(frozen=True, slots=True)
class Baseline:
    """What `library` takes for the program; without a time, `why` there is none."""

    library: str = ""
    outcome: Outcome | None = None
    why: str = ""

    @property
    def seconds(self) -> float | None:
        return self.outcome.seconds if self.outcome is not None and self.outcome.ok else None

    @property
    def crowd(self) -> Crowd | None:
        """Who kept the processors busy while it was measured, if that puts its time in doubt."""
        return None if self.outcome is None else crowd_of(self.outcome)

    def to_facts(self) -> dict[str, Any]:
        """As a mapping that JSON can hold; `from_facts` is the inverse."""
        return asdict(self)

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Baseline:
        outcome = facts["outcome"]
        known = None if outcome is None else Outcome.from_json(json.dumps(outcome))
        return cls(facts["library"], known, facts["why"])


Ask = Callable[[Timing], Reply]


class LibraryTimer:
    """Measures the baseline by `ask`, which has a worker examine the library."""

    def __init__(self, ask: Ask, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._clock = clock
        self._first: Baseline | None = None
        self._turns: list[Outcome] = []
        self._noted: Baseline | None = None
        self._spent = 0.0

    @property
    def result(self) -> Baseline | None:
        """What is known: of the turns if there were some, else of the first examination."""
        if self._noted is not None:
            return self._noted
        if self._first is None or not self._turns:
            return self._first
        return Baseline(self._first.library, merged(self._turns))

    def first(self) -> Baseline:
        """Examine once, as candidates of a search are."""
        return self.hear(self._ask(Timing()))

    def hear(self, reply: Reply) -> Baseline:
        """What a worker that was asked elsewhere says, as the first examination."""
        self._first = _read(reply)
        return self._first

    @property
    def turns(self) -> int:
        """How many there were."""
        return len(self._turns)

    def note(self, noted: Callable[[Outcome], Outcome]) -> None:
        """Add to what is known what `noted` adds to an outcome; until the next turn."""
        known = self.result
        if known is not None and known.outcome is not None:
            self._noted = replace(known, outcome=noted(known.outcome))

    def turn(self, timing: Timing) -> None:
        """One turn of the finals, unless it has had what time there is, or cannot be measured."""
        known = self._first or self.first()
        if known.seconds is None or self._spent >= FINALS_SECONDS:
            return
        if not self._turns and known.seconds * timing.fewest > FINALS_SECONDS:
            return
        began = self._clock()
        found = _read(self._ask(timing))
        self._spent += self._clock() - began
        if found.outcome is not None and found.seconds is not None:
            self._noted = None
            self._turns.append(found.outcome)
        else:
            self._spent = FINALS_SECONDS


def _read(reply: Reply) -> Baseline:
    if not isinstance(reply, Answer):
        return Baseline(why=_why(reply))
    library, seen = reply.value
    outcome = examined(Outcome("ok"), seen)
    if outcome.ok:
        return Baseline(library, outcome)
    return Baseline(library, outcome, f"{library} computes something else: {outcome.detail}")


def _why(reply: Raised | Died) -> str:
    if isinstance(reply, Died):
        return reply.detail
    if reply.kind in _PLAIN_ERRORS:
        return reply.message
    first = (reply.message.strip() or "it does not say why").splitlines()[0]
    return f"{reply.kind}: {first[:_LONGEST]}"
