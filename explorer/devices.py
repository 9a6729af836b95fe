"""Which devices measure: their numbers as people write them, and processors where these are shared.

On a target whose devices are apart they are its cards. On one that computes on this machine's
processors a device is as many of them as a kernel has threads: the first alone has the machine for
itself, several measure at a time, and times are those of a machine that others use as well.
Knows targets and machines; no measuring.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ir.errors import UsageError
from ir.target import HasDevices

if TYPE_CHECKING:
    from explorer.workload import Workload

ALL = "all"
FIRST = "0"
_NUMBERS = re.compile(r"\d{1,4}(,\d{1,4})*\Z")


@dataclass(frozen=True, slots=True)
class Devices:
    """Numbers of devices, and the processors of each where that matters; `spare` are no device's.

    The first one measures finals and the library.
    """

    numbers: tuple[int, ...] = (0,)
    processors: tuple[tuple[int, ...], ...] = ()
    spare: tuple[int, ...] = ()

    @property
    def divided(self) -> bool:
        """Whether several share this machine's processors."""
        return bool(self.processors)

    def processors_of(self, place: int) -> tuple[int, ...]:
        """Those of the device at a place among `numbers`; none if it may have all."""
        return self.processors[place] if self.processors else ()


def refuse_wrong(words: str) -> None:
    """Raises UsageError for what names no devices anywhere."""
    if words != ALL and not _NUMBERS.match(words):
        raise UsageError(f"devices={words!r}: give numbers, as 0,1, or all")
    if words != ALL and len(set(words.split(","))) < len(words.split(",")):
        raise UsageError(f"devices={words!r}: a device stands there twice")


def devices_of(words: str, workload: Workload) -> Devices:
    """The devices that `words` ("0,1", "all") name for a workload; raises UsageError."""
    from explorer.runtime.base import get_runtime

    refuse_wrong(words)
    numbers = None if words == ALL else tuple(map(int, words.split(",")))
    if numbers == (0,):
        return Devices()
    if get_runtime(workload.target).exclusive:
        return _groups(numbers, workload.hardware.threads)
    return Devices(_cards(numbers, workload))


def _cards(numbers: tuple[int, ...] | None, workload: Workload) -> tuple[int, ...]:
    """Cards of one kind: times of different ones do not compare."""
    backend = workload.backend
    if not isinstance(backend, HasDevices):
        raise UsageError(f"target {workload.target} has one device: leave --devices out")
    names = backend.device_names()
    chosen = tuple(range(len(names))) if numbers is None else numbers
    for number in chosen:
        if number >= len(names):
            raise UsageError(
                f"no device {number}: {len(names)} visible to target {workload.target}, numbered "
                "from 0"
            )
    kinds = {names[number] for number in (0, *chosen)}
    if len(kinds) > 1:
        raise UsageError(
            f"devices of several kinds ({', '.join(sorted(kinds))}): their times do not compare; "
            "name those of the first one's kind"
        )
    return chosen


def _groups(numbers: tuple[int, ...] | None, threads: int) -> Devices:
    """Groups of processors; what is left over compiles."""
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    most = len(usable) // threads
    if numbers is None:
        numbers = tuple(range(max(1, most - (len(usable) == most * threads and most > 1))))
    if max(numbers) >= most:
        raise UsageError(
            f"no device {max(numbers)}: of {len(usable)} processors, {threads} for each kernel, "
            f"that makes {most}; give fewer --threads"
        )
    groups = tuple(tuple(usable[n * threads : (n + 1) * threads]) for n in numbers)
    taken = {processor for group in groups for processor in group}
    return Devices(numbers, groups, tuple(p for p in usable if p not in taken))
