"""From records to what a cost model learns from: stores and exports read, spaces rebuilt for the
machines that measured. Knows no operator and no target.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from costmodel.dataset import Group
from costmodel.features import trait_names, traits
from costmodel.saved import TrainedModel, load_model, shipped_model
from costmodel.shelf import OnDisk, Shelf
from explorer.disturbance import trust
from explorer.plan import NO_MODEL
from explorer.rebuilding import buildable, machine_of, of_record
from explorer.recall import DAMNING, FINAL, Where, kernel_seconds, noted, quiet_records
from explorer.result import SHIPPED, HeadStart
from explorer.runtime.base import get_runtime
from explorer.sources import opened
from explorer.workload import Workload, memories_of
from ir.errors import TilewrightError, UsageError
from ir.schedule import Schedule
from ir.space import Row, Space
from records import Address, Record
from records.tellings import KindCount

if TYPE_CHECKING:
    from records import Store
    from records.rows import Selection

COMPARED = 5  # kernels with finals from which the scales of finals and searches are compared
DISTURBED = 1.25  # times what the search told, from which finals ran beside other work
WELL_KNOWN = 30  # kernels measured in finals from which a workload teaches with its whole weight


def read_groups(
    sources: Sequence[Where],
    target: str | None = None,
    operators: Sequence[str] = (),
    shelf: Shelf | None = None,
) -> list[Group]:
    """One group for each workload, machine, generator and memory in stores and exports (.jsonl,
    .jsonl.xz).

    Records are read one group at a time, and with a `shelf` their features go there. Programs are
    those that the sources carry, built in, or of the files `operators`. Raises UsageError where
    there is none; records that this version cannot read are passed over.
    """
    with ExitStack() as open_sources:
        stores = [open_sources.enter_context(opened(source)) for source in sources]
        kinds = {kind for store in stores for kind in _kinds(store, target)}
        built: dict[Kind, Workload | None] = {}
        groups = [
            shelved
            for kind in sorted(kinds)
            if (shelved := _shelved(_group(stores, kind, built, operators), shelf))
        ]
    if not groups:
        wanted = f" for target {target}" if target else ""
        places = ", ".join(str(Address.of(source)) for source in sources)
        raise UsageError(f"{places}: no trial{wanted} that this version can read")
    return groups


Kind = tuple[str, ...]  # target, operator, extents, workload; hardware, generator, memory


def _kinds(store: Store, target: str | None) -> Iterator[Kind]:
    """What a store's trials are of, those of each kind comparable with each other."""
    for row in store.tally(KindCount):
        if target in (None, row.target):
            yield tuple(row[:-1])


def _group(
    stores: Sequence[Store],
    kind: Kind,
    built: dict[Kind, Workload | None],
    operators: Sequence[str],
) -> Group | None:
    """The trials of a kind in all stores; None where its program, or its space, is gone."""
    target, operator, extents, workload, hardware, generator, memory = kind
    selection: Selection = {"target": target, "operator": operator, "workload": workload}
    selection |= {"hardware": hardware, "generator": generator, "memory": memory}
    trials: list[Record] = []
    for store in stores:
        found = [record for record in store.records(**selection) if record.extents == extents]
        if found and built.get(kind[:4]) is None:
            built[kind[:4]] = buildable(store, of_record(found[0]), operators)
        trials += found
    named = built.get(kind[:4])
    return group_of(named, trials) if named and trials else None


def _shelved(group: Group | None, shelf: Shelf | None) -> Group | None:
    """The group with its features on the shelf, if there is one."""
    if group is None or shelf is None or isinstance(group.features, OnDisk):
        return group
    return replace(group, features=shelf.put(group.features))


def group_of(workload: Workload, records: Sequence[Record]) -> Group | None:
    """The kernels of one workload on one machine; None if its space is gone.

    Other memory than searches usually time weighs half: it says less of what they will find.
    """
    first = records[0]
    try:
        space = workload.space_on(machine_of(first))
    except (TilewrightError, OSError):
        return None
    rows, seconds, confirmed, trusts = _kernels(space, records)
    if not rows:
        return None
    matrix = np.array(rows, dtype=np.int16)
    again = {record.kernel_key for record in records if record.strategy == FINAL}
    kinds = memories_of(first.target)
    weight = (1.0 if len(again) >= WELL_KNOWN else 0.5) * (1.0 if first.memory == kinds[0] else 0.5)
    return Group(
        first.operator, first.extents, first.target, trait_names(space), traits(space, matrix),
        np.array(seconds), weight, np.array(confirmed), np.array(trusts),
        first.memory if len(kinds) > 1 else "",
    )  # fmt: skip


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
    known = frozenset(space.names)
    for found in kernels.values():
        trials = _undisturbed(found)
        schedule = Schedule.from_json(trials[0].schedule)
        if not known.issuperset(schedule.as_dict()):
            continue  # thousands of these: `encode` looks for the nearest name each time
        try:
            rows.append(space.encode(_completed(space, schedule)))
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
    told = [(trial.strategy, kernel_seconds(trial)) for trial in trials if trial.ok]
    finals = [seconds for strategy, seconds in told if strategy == FINAL and seconds]
    return finals, [seconds for strategy, seconds in told if strategy != FINAL and seconds]


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


def read_early(target: str, built: threading.Event) -> None:
    """Begin to read the model that comes with the package, beside what else a search begins with:
    it is unpacked while others compute.

    XGBoost is imported where a device apart from the processors takes longer to start, once the
    search's space is `built`: an import takes turns with what else this process computes. Elsewhere
    it is not, and the first batch needs no trees.
    """

    def read() -> None:
        with suppress(TilewrightError):  # whoever uses it is told
            if shipped_model(target) is not None and not get_runtime(target).exclusive:
                built.wait()
                import_module("xgboost")

    threading.Thread(target=read, name="model", daemon=True).start()


def head_start(space: Space, model: str | Path | None, *, guided: bool = True) -> HeadStart:
    """Where the model that `prior_for` gives comes from, or why a search has none.

    A strategy that is not `guided` uses none.
    """
    if not guided:
        return HeadStart(why="the strategy uses none")
    if model is not None:
        none = str(model) == NO_MODEL
        return HeadStart(why="none was asked for") if none else HeadStart(str(model))
    shipped = shipped_model(space.target)
    if shipped is None:
        return HeadStart(why=f"none is installed for target {space.target}")
    if not shipped.fits(space):
        return HeadStart(why="the one installed knows other features than this version: train one")
    return HeadStart(SHIPPED)


def by_target(groups: Sequence[Group]) -> Mapping[str, list[Group]]:
    """Groups of each target."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        found.setdefault(group.target, []).append(group)
    return found
