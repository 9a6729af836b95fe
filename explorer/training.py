"""From records to what a cost model learns from: stores and exports read, spaces rebuilt for the
machines that measured. Knows no operator and no target.
"""

from __future__ import annotations

import json
import lzma
import shutil
import statistics
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from costmodel.dataset import Group
from costmodel.features import trait_names, traits
from costmodel.saved import TrainedModel, load_model, shipped_model
from explorer.disturbance import trust
from explorer.plan import NO_MODEL
from explorer.recall import DAMNING, FINAL, noted, open_store, quiet_records
from explorer.workload import Workload
from ir.errors import TilewrightError, UsageError
from ir.schedule import Schedule
from ir.space import Row, Space
from ir.target import Hardware
from records import Record, Store, import_records

COMPARED = 5  # kernels with finals from which the scales of finals and searches are compared
DISTURBED = 1.25  # times what the search told, from which finals ran beside other work
WELL_KNOWN = 30  # kernels measured in finals from which a workload teaches with its whole weight


def read_groups(sources: Sequence[str], target: str | None = None) -> list[Group]:
    """One group for each workload, machine and code generator in stores and exports (.jsonl,
    .jsonl.xz).

    Raises UsageError where there is none; records that this version cannot read are passed over.
    """
    found: dict[tuple[str, ...], list[Record]] = {}
    for source in sources:
        with _opened(source) as store:
            for record in store.records(target=target) if target else store.records():
                key = (
                    record.target,
                    record.operator,
                    record.extents,
                    record.hardware,
                    record.generator,
                )
                found.setdefault(key, []).append(record)
    groups = [group for records in found.values() if (group := group_of(records)) is not None]
    if not groups:
        what = f" for target {target}" if target else ""
        raise UsageError(f"{', '.join(sources)}: no trial{what} that this version can read")
    return groups


@contextmanager
def _opened(source: str) -> Iterator[Store]:
    """A store as it is, or an export read into a store of its own."""
    if "://" not in source and not Path(source).exists():
        raise UsageError(f"no records at {source}: name a store or an export")
    if not source.endswith((".jsonl", ".jsonl.xz")):
        with open_store(source) as store:
            yield store
        return
    with tempfile.TemporaryDirectory() as folder, open_store(":memory:") as store:
        plain = Path(source)
        if source.endswith(".xz"):
            plain = Path(folder) / "export.jsonl"
            _unpack(Path(source), plain)
        import_records(store, plain)
        yield store


def _unpack(source: Path, goal: Path) -> None:
    try:
        with lzma.open(source) as packed, open(goal, "wb") as stream:
            shutil.copyfileobj(packed, stream)
    except (OSError, lzma.LZMAError, EOFError) as error:
        raise UsageError(f"cannot unpack {source} ({error}): fetch the file again") from None


def group_of(records: Sequence[Record]) -> Group | None:
    """The kernels of one workload on one machine; None if its operator or space is gone."""
    first = records[0]
    try:
        workload = Workload.of(first.operator, json.loads(first.extents), first.target)
        space = workload.backend.space(workload.program, hardware_of(first))
    except (TilewrightError, OSError):
        return None
    rows, seconds, confirmed, trusts = _kernels(space, records)
    if not rows:
        return None
    matrix = np.array(rows, dtype=np.int16)
    again = {record.kernel_key for record in records if record.strategy == FINAL}
    return Group(
        first.operator, first.extents, first.target, trait_names(space), traits(space, matrix),
        np.array(seconds), 1.0 if len(again) >= WELL_KNOWN else 0.5, np.array(confirmed),
        np.array(trusts),
    )  # fmt: skip


def hardware_of(record: Record) -> Hardware:
    """The machine that measured a record."""
    facts = json.loads(record.hardware_facts)
    isa = tuple(facts.pop("isa", ()))
    name = record.hardware.removeprefix(f"{record.target}:").removesuffix(f":{record.threads}")
    return Hardware(record.target, name, isa, record.threads, tuple(sorted(facts.items())))


def _kernels(
    space: Space, records: Sequence[Record]
) -> tuple[list[Row], list[float], list[bool], list[float]]:
    """Of every kernel (schedules may share one) a row, a time (NaN for failures), whether finals
    confirm it, and what it weighs: where all of its trials were disturbed, little."""
    kernels: dict[str, list[Record]] = {}
    for record in records:
        kernels.setdefault(record.kernel_key or record.schedule_key, []).append(record)
    scale = _scale([_undisturbed(trials) for trials in kernels.values()])
    rows, seconds, confirmed, trusts = [], [], [], []
    for found in kernels.values():
        trials = _undisturbed(found)
        try:
            rows.append(space.encode(_completed(space, Schedule.from_json(trials[0].schedule))))
        except UsageError:
            continue  # of a space that this version no longer spans
        seconds.append(_seconds(trials, scale))
        confirmed.append(_confirmed(trials, scale))
        trusts.append(max(trust(noted(trial)) for trial in trials))
    return rows, seconds, confirmed, trusts


def _undisturbed(trials: Sequence[Record]) -> Sequence[Record]:
    """Times that other programs disturbed say nothing beside others; that it failed stands."""
    calm = set(map(id, quiet_records(trial for trial in trials if trial.ok)))
    return [trial for trial in trials if not trial.ok or id(trial) in calm]


def _completed(space: Space, schedule: Schedule) -> Schedule:
    """A schedule of a version with fewer decisions: what it does not say takes the first value,
    which by convention is what was done before there was a choice."""
    given = schedule.as_dict()
    for decision in space.decisions:
        parent, value = decision.when or ("", None)
        if decision.name not in given and (not parent or given.get(parent) == value):
            given[decision.name] = decision.domain[0]
    return Schedule.of(schedule.target, given)


def _times(trials: Sequence[Record]) -> tuple[list[float], list[float]]:
    """Seconds of a kernel in finals, and in searches."""
    good = [trial for trial in trials if trial.ok and trial.seconds is not None]
    finals = [trial.seconds for trial in good if trial.strategy == FINAL and trial.seconds]
    return finals, [trial.seconds for trial in good if trial.strategy != FINAL and trial.seconds]


def _scale(kernels: Iterable[Sequence[Record]]) -> float:
    """Finals over searches, as the lower quartile over kernels that have both.

    A device that has run for long has other clocks than one in a burst: without this the finalists
    seem slower than those that they beat. Other work only ever adds, hence not the median.
    """
    ratios = []
    for trials in kernels:
        finals, searched = _times(trials)
        if finals and searched:
            ratios.append(statistics.median(finals) / statistics.median(searched))
    return float(np.quantile(ratios, 0.25)) if len(ratios) >= COMPARED else 1.0


def _seconds(trials: Sequence[Record], scale: float) -> float:
    """The median of the finals, unless they were disturbed, else of the search brought to the
    finals' `scale`; NaN if the kernel failed or once was wrong."""
    finals, searched = _times(trials)
    if any(trial.status in DAMNING for trial in trials) or not finals + searched:
        return float("nan")
    return _middle(finals) if _confirmed(trials, scale) else scale * _middle(searched)


def _confirmed(trials: Sequence[Record], scale: float) -> bool:
    """Whether a kernel was in finals, and these were not disturbed."""
    finals, searched = _times(trials)
    return bool(finals) and _middle(finals) <= DISTURBED * scale * _middle(searched)


def _middle(seconds: Sequence[float]) -> float:
    """The median; infinite where there is nothing."""
    return statistics.median(seconds) if seconds else float("inf")


def prior_for(space: Space, model: str | Path | None) -> TrainedModel | None:
    """The model that a search starts with: a file, "none", or (None) the package's own.

    A file that does not fit the space raises UsageError; the package's own is then passed over.
    """
    if model is None:
        shipped = shipped_model(space.target)
        return shipped if shipped is not None and shipped.fits(space) else None
    if str(model) == NO_MODEL:
        return None
    trained = load_model(Path(model))
    trained.require(space)
    return trained


def by_target(groups: Sequence[Group]) -> Mapping[str, list[Group]]:
    """Groups of each target."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        found.setdefault(group.target, []).append(group)
    return found
