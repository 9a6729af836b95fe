"""Results beside the baseline and the incumbent, in words for people and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from explorer.cli.app import milliseconds

if TYPE_CHECKING:
    from explorer.baseline import Baseline
    from explorer.disturbance import Crowd
    from explorer.outcome import Outcome
    from explorer.result import JobResult


def beside_words(ours: Outcome, baseline: Baseline) -> str:
    """A kernel beside the library, or why it cannot be told."""
    from explorer.comparison import beside_baseline

    found = beside_baseline(ours, baseline)
    if found is None:
        return missing_words(baseline)
    return f"{found.words}; that takes {milliseconds(found.seconds)}"


def missing_words(baseline: Baseline) -> str:
    """That there is no baseline, and why."""
    return f"no baseline: {baseline.why}"


def ratio_words(best: float | None, baseline: Baseline | None, crowd: Crowd | None = None) -> str:
    """The best so far beside the library; empty as long as one of them is not known.

    No ratio where a `crowd` was beside the best, or one beside the library.
    """
    if best is None or baseline is None or baseline.seconds is None:
        return ""
    if crowd is not None or baseline.crowd is not None:
        return f"not comparable with {baseline.library}"
    return f"{baseline.seconds / best:.2f}x {baseline.library}"


def result_lines(result: JobResult) -> list[str]:
    """What the finals told of baseline and incumbent."""
    lines = []
    if result.beside_baseline is not None:
        seconds = milliseconds(result.beside_baseline.seconds)
        lines.append(f"{result.beside_baseline.words}; that takes {seconds}")
    before = result.beside_incumbent
    if before is not None and result.kept and before.crowd is not None:
        lines.append(f"{before.name} stays: {before.crowd.words}")
    elif before is not None and result.kept:
        noise = "" if before.noise is None else f", joint noise {100 * before.noise:.1f} %"
        lines.append(
            f"{before.name} stays: the fastest other is {before.measured:.3f}x as fast{noise}"
        )
    elif before is not None:
        lines.append(before.words)
    return lines


def result_facts(result: JobResult) -> dict[str, Any]:
    """The same for JSON."""
    known, before = result.beside_baseline, result.beside_incumbent
    return {
        "baseline": None if result.baseline is None else result.baseline.to_facts(),
        "beside_baseline": None if known is None else known.to_facts(),
        "beside_incumbent": None if before is None else before.to_facts(),
        "kept": result.kept,
    }
