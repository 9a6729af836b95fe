"""Outcomes from samples: medians and quartiles of one examination, and of several in turns."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from explorer.outcome import KERNEL, PARTS, TURNS, Outcome
from explorer.runtime.workers import Examination


def examined(outcome: Outcome, seen: Examination) -> Outcome:
    """The outcome with what an examination told; with times where it was right."""
    outcome = replace(
        outcome,
        status=seen.status,
        detail=seen.detail,
        error=seen.error,
        clock_ghz=seen.clock_ghz,
    )
    if seen.status != "ok":
        return outcome
    if seen.kernel is not None:
        outcome = replace(outcome, notes=(*outcome.notes, (KERNEL, seen.kernel)))
    if len(seen.parts) > 1:
        told = "; ".join(f"{name} {seconds:.4g}" for name, seconds in seen.parts)
        outcome = replace(outcome, notes=(*outcome.notes, (PARTS, told)))
    return with_samples(outcome, seen.samples)


def with_samples(outcome: Outcome, samples: Sequence[float]) -> Outcome:
    """The outcome with median, quartiles and count of `samples`."""
    if len(samples) < 2:
        quartiles = (samples[0], samples[0])
    else:
        low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
        quartiles = (low, high)
    return replace(
        outcome, seconds=statistics.median(samples), quartiles=quartiles, repeats=len(samples)
    )


def merged(outcomes: Sequence[Outcome]) -> Outcome:
    """One outcome of many turns: the first failure, or the median of the turns' medians."""
    for outcome in outcomes:
        if not outcome.ok:
            return outcome
    medians = [outcome.seconds for outcome in outcomes if outcome.seconds is not None]
    found = with_samples(outcomes[-1], medians)
    repeats = sum(outcome.repeats for outcome in outcomes)
    alone = [float(dict(outcome.notes)[KERNEL]) for outcome in outcomes if _calls(outcome)]
    notes = tuple(note for note in found.notes if note[0] != KERNEL)
    notes += ((KERNEL, statistics.median(alone)),) if alone else ()
    return replace(found, repeats=repeats, notes=(*notes, (TURNS, len(outcomes))))


def _calls(outcome: Outcome) -> bool:
    """Whether its seconds are of whole calls."""
    return KERNEL in dict(outcome.notes)
