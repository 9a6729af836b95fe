"""Kernels that another tuner recorded: found in a file or store, and searched as workloads.

No operator of ours is behind them, so there is no program, nothing to lower, run or export.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn

from explorer.recall import Where, existing_store, store_exists, verdict_of
from explorer.recorded_space import RecordedSpace, recorded_space, schedules_of
from explorer.replay import Recording, refuse_missing, spanned
from explorer.sources import opened
from explorer.workload import Workload
from ir.errors import UsageError
from ir.kernel import Kernel, Standalone
from ir.program import LONGEST_NAME, Program
from ir.registry import operator_names
from ir.schedule import Schedule
from ir.space import Space
from ir.target import Backend, Hardware
from records import Address, Record
from records.documents import is_document
from records.foreign import FOREIGN

ANY = "-"  # in the place of a name: whatever the file holds
CARD = "card"  # the word that chooses among cards
SHOWN = 3  # kernels named where one is to be chosen


@dataclass(slots=True)
class RecordedBackend:
    """See `ir.target.Backend`; it has one space, and lowers nothing."""

    name: str
    generator: str
    recorded: RecordedSpace
    kernel: str

    def hardware(self, threads: int | None = None) -> Hardware:
        return self._refuse("run")

    def space(self, program: Program, hardware: Hardware) -> Space:
        return self.recorded

    def lower(
        self, program: Program, schedule: Schedule, hardware: Hardware, full: bool = False
    ) -> Kernel:
        return self._refuse("build")

    def standalone(self, kernel: Kernel, symbol: str = "") -> Standalone:
        return self._refuse("export")

    def _refuse(self, what: str) -> NoReturn:
        raise UsageError(nothing_to(what, self.kernel, self.name))


@dataclass(frozen=True)
class RecordedKernel(Workload):
    """A workload without a program: that is empty, and bears its name."""

    behind: RecordedBackend | None = None

    @cached_property
    def backend(self) -> Backend:
        assert self.behind is not None
        return self.behind


def nothing_to(what: str, kernel: str, form: str) -> str:
    """The refusal of what only kernels of ours can do."""
    return (
        f"{kernel} was recorded by another tuner ({form}): there are its times alone, and "
        f"nothing to {what}; `tilewright tune {kernel} --replay RECORDS` searches them"
    )


def refuse_recorded(name: str, what: str, records: Where | None = None) -> None:
    """Raises UsageError if `name` is that of a kernel which another tuner recorded."""
    if name in operator_names() or not store_exists(records):
        return
    with existing_store(records) as store:
        forms = {row.target for row in store.workloads() if row.operator == name}
    for form in sorted(forms & set(FOREIGN)):
        raise UsageError(nothing_to(what, name, form))


def recording_of(name: str | None, words: Mapping[str, object], source: Where) -> Recording | None:
    """What `source` holds of a kernel that another tuner recorded; None if it holds none.

    `name` is the kernel's, or of any (None, "-") if there is only one; where the file does not say
    what its kernel is called, `name` does. `words` choose by `card` and by what is recorded of the
    problem. Raises UsageError where several are left, or none.
    """
    wanted = None if name in (None, ANY) else name
    address = Address.of(source)
    records = _foreign(address, wanted)
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.workload, record.generator), []).append(record)
    if not groups and name == ANY:
        raise UsageError(f"{address}: no kernel of another tuner is recorded there; name one")
    if not groups:
        return None
    return _recording(_chosen(list(groups.values()), wanted, words, address), address)


def _foreign(address: Address, wanted: str | None) -> Sequence[Record]:
    """All trials of other tuners; none where an operator of ours is meant."""
    from records.exchange import foreign_records

    refuse_missing(address)
    if address.path is not None and is_document(address.path):
        found = foreign_records(address.path, operator=wanted)
        if found == []:
            raise UsageError(f"{address}: it holds no results, so there is nothing to search")
        if found is not None:
            return found
    with opened(address) as store:
        rows = store.workloads()
        if any(row.target not in FOREIGN and row.operator == wanted for row in rows):
            return ()
        forms = sorted({row.target for row in rows} & set(FOREIGN))
        return [record for form in forms for record in store.records(target=form)]


def _chosen(
    groups: Sequence[Sequence[Record]],
    wanted: str | None,
    words: Mapping[str, object],
    address: Address,
) -> Sequence[Record]:
    """The trials of the one kernel that is meant; raises UsageError."""
    by_name = [g for g in groups if wanted in (None, g[0].operator)]
    if not by_name:
        raise UsageError(f"{address}: no kernel {wanted!r} is recorded there; {_listed(groups)}")
    left = [g for g in by_name if _fits(g[0], words)]
    if not left:
        said = " ".join(f"{name}={value}" for name, value in words.items())
        raise UsageError(f"{address}: nothing with {said} is recorded there; {_listed(by_name)}")
    if len(left) > 1:
        several = len({g[0].operator for g in left}) > 1
        what = "their name" if several else f"{CARD}=..., or by what else is told of it"
        raise UsageError(
            f"{address}: {len(left)} kernels are recorded there, name one by {what}: "
            f"{_listed(left)}"
        )
    return left[0]


def _fits(record: Record, words: Mapping[str, object]) -> bool:
    told = {**json.loads(record.extents), CARD: record.hardware}
    return all(str(told.get(name)) == str(value) for name, value in words.items())


def _listed(groups: Sequence[Sequence[Record]]) -> str:
    titles = sorted({_title(group[0]) for group in groups})
    more = f" and {len(titles) - SHOWN} more" if len(titles) > SHOWN else ""
    return f"there is {', '.join(titles[:SHOWN])}{more}"


def _title(record: Record) -> str:
    """As the command line takes it."""
    words = " ".join(f"{name}={value}" for name, value in _arguments(record))
    return f"{record.operator} {words}"


def _arguments(record: Record) -> tuple[tuple[str, str | int | float], ...]:
    return (*json.loads(record.extents).items(), (CARD, record.hardware))


def _recording(records: Sequence[Record], address: Address) -> Recording:
    first = records[0]
    configurations = [json.loads(record.schedule)["values"] for record in records]
    try:
        space = recorded_space(first.target, configurations)
    except UsageError as error:
        raise UsageError(f"{address}: {error}") from None
    trials: dict[Schedule, list[Record]] = {}
    for record, schedule in zip(records, schedules_of(space, configurations), strict=True):
        trials.setdefault(schedule, []).append(record)
    kernel = RecordedKernel(
        first.operator,
        _arguments(first),
        first.target,
        given=_empty(first.operator),
        machine=Hardware(first.target, first.hardware, (), first.threads, ()),
        behind=RecordedBackend(first.target, first.generator, space, first.operator),
    )
    return Recording(kernel, {schedule: verdict_of(found) for schedule, found in trials.items()})


def _empty(name: str) -> Program:
    """A program of that name as far as programs may be called so; it computes nothing."""
    letters = re.sub(r"[^A-Za-z0-9_.]", "_", name)[:LONGEST_NAME]
    return Program(letters if letters[:1].isalpha() else f"_{letters}"[:LONGEST_NAME], (), (), ())


def seeds_of(
    kernel: RecordedKernel, source: Where, pins: Mapping[str, object] | None = None
) -> tuple[Schedule, ...]:
    """What `source` has of the kernel on whatever card, the fastest first, as far as it was
    recorded here too; raises UsageError for nothing of use."""
    found = recording_of(kernel.operator, {}, source)
    if found is None:
        raise UsageError(f"{Address.of(source)}: no kernel of another tuner is recorded there")
    ranked = found.fastest_first()
    space = kernel.space(pins)
    here = [s for s in spanned(space, ranked) if space.refusal(s) is None]
    if not here:
        raise UsageError(
            f"{Address.of(source)}: none of {len(ranked)} configurations was recorded of "
            f"{kernel.operator} here"
        )
    return tuple(here)
