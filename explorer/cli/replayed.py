"""What a replayed search shows of its recording, and where its best stands in that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from explorer.cli.app import milliseconds
from ir.printable import printable

if TYPE_CHECKING:
    from explorer.replay import Recording


def recording_words(recording: Recording) -> str:
    """What is replayed: of what, how much, how much of it was right."""
    workload, times = recording.workload, recording.times
    words = " ".join(f"{name}={value}" for name, value in workload.arguments)
    best = f", the best {milliseconds(times[0])}" if times else ""
    return (
        f"replays {printable(f'{workload.operator} {words}'.strip())}: "
        f"{len(recording.outcomes):,} configurations, {len(times):,} of them right{best}"
    )


def rank_words(recording: Recording, seconds: float) -> str:
    """Where a time stands among those recorded."""
    facts = recorded_facts(recording, seconds)
    return (
        f"number {facts['rank']:,} of {facts['right']:,} recorded, "
        f"{seconds / facts['best_seconds']:.3f} times the best"
    )


def recorded_facts(recording: Recording, seconds: float) -> dict[str, Any]:
    """The same for programs."""
    times = recording.times
    return {
        "configurations": len(recording.outcomes),
        "right": len(times),
        "best_seconds": times[0] if times else None,
        "rank": recording.rank(seconds),
    }
