"""The outcome of one trial: a typed status, and the measurement when there is one.

A frozen value that round-trips through JSON. Knows nothing of how trials are run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Literal, cast, get_args

Status = Literal[
    "ok",
    "illegal",
    "compile_error",
    "wrong_result",
    "timeout",
    "crash",
    "out_of_memory",
    "unstable",
    "below_roofline",
]
STATUSES: tuple[Status, ...] = get_args(Status)
LOAD = "foreign_load"  # the note of the share of the processors that other programs had
CROWDED = "crowded"  # the note that this left fewer processors than the kernel has threads
PROCESSORS = "processors"  # the note of how many there are
TURNS = "turns"  # the note of how many rounds a median was taken over
KERNEL = "kernel"  # the note of the kernel's own seconds, where an outcome's are of whole calls
PARTS = "parts"  # the note of what the kernels of one run take: "NAME SECONDS; NAME SECONDS"
CALL = "call"  # the note of what a call takes, where an outcome's seconds are the kernel's own
DOUBTS = (LOAD, CROWDED, PROCESSORS)
Note = tuple[str, str | int | float | bool]


@dataclass(frozen=True, slots=True)
class Outcome:
    """`seconds` is the median of `repeats` samples; both stand only where the kernel was timed.

    A `copied` outcome is that of another schedule which lowers to the same kernel: nothing ran.
    """

    status: Status
    seconds: float | None = None
    quartiles: tuple[float, float] | None = None
    repeats: int = 0
    error: float | None = None
    detail: str = ""
    compile_seconds: float = 0.0
    clock_ghz: float | None = None
    kernel_key: str = ""
    notes: tuple[Note, ...] = ()
    copied: bool = False

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def parts(self) -> tuple[tuple[str, float], ...]:
        """Names and seconds of the kernels of one run, where it is several and they were timed."""
        return parts_of(self.notes)

    def as_copy(self) -> Outcome:
        """What another schedule of this kernel is told: its verdict, which is little to keep, and
        what puts that in doubt."""
        doubtful = any(name == CROWDED for name, _ in self.notes)
        doubts = tuple(note for note in self.notes if doubtful and note[0] in DOUBTS)
        return Outcome(
            self.status, self.seconds, kernel_key=self.kernel_key, notes=doubts, copied=True
        )

    def to_json(self) -> str:
        """One line of canonical JSON."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Outcome:
        """The inverse of `to_json`; raises ValueError or TypeError for anything else."""
        data = json.loads(text)
        known = {field.name for field in fields(cls)}
        if not isinstance(data, dict) or not set(data) <= known:
            raise ValueError(f"not an outcome: {text[:80]}")
        if data.get("status") not in STATUSES:
            raise ValueError(f"unknown outcome status {data.get('status')!r}")
        outcome = cls(**data)
        quartiles = cast("tuple[float, float]", tuple(outcome.quartiles or ())) or None
        notes = tuple((name, value) for name, value in outcome.notes)
        return replace(outcome, quartiles=quartiles, notes=notes)


def parts_of(notes: Sequence[Note]) -> tuple[tuple[str, float], ...]:
    """Names and seconds of the kernels of one run, as an outcome's notes tell them."""
    told = str(dict(notes).get(PARTS, ""))
    pairs = (part.rsplit(" ", 1) for part in told.split("; ") if part)
    return tuple((name, float(seconds)) for name, seconds in pairs)


def kernel_of(outcome: Outcome) -> float | None:
    """Seconds of the kernel alone, where the outcome's are of whole calls."""
    alone = dict(outcome.notes).get(KERNEL)
    return None if alone is None else float(alone)
