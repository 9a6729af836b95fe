"""Analytic costs of plain kernels: how many threads go along how many iterations, and traffic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ir.columns import Columns
from ir.plain.accesses import arrays_in, every, nested
from ir.plain.code import Accumulate, Combine, If, Loop, Spread, Statement, Write
from ir.plain.pieces import Ways
from ir.plain.scaled import scaled_of
from ir.plain.strides import extent_of, steps_of
from ir.schedule import Value
from ir.targets.cuda.build.plain_step import PlainStep
from ir.targets.cuda.build.plain_stream import Stream
from ir.targets.cuda.space.plain import AHEAD, RUN, TEAM, THREADS, PlainCudaKernel
from ir.targets.cuda.space.plain_cuts import spec_bytes

Array = NDArray[np.float64]
Table = dict[str, Array]
LANES_PER_CLOCK = 128.0
MEMORY_BYTES_PER_CLOCK = 20.0  # a processor's share
FILL_CLOCKS = 1500.0
STEP_INSTRUCTIONS = 10.0  # of an iteration, each of a warp at a time
STEP_CLOCKS = 40.0  # of an iteration that waits for the one before
OWN_CLOCKS = 6.0  # the same where what it reads is under way before
LOAD_CLOCKS = 680.0  # from asking memory to having
OVERHEAD = 4.0  # instructions of an iteration beside its merge
MANY = 3.0  # instructions for each state where many are merged at once
LANE_TURNS = 5.0  # merges of a warp's lanes
MEET_CLOCKS = 300.0  # of a chunk's shuffles and its meeting
TEAM_CLOCKS = 2000.0  # of a meeting of several blocks
AGAIN_CLOCKS = 600.0  # of an element that is read and written again
MET_CLOCKS = 4.0  # of an element that is combined where others are
THREADS_PER_PROCESSOR = 2048.0


class PlainCosts:
    """Costs of the kernels of one phase."""

    def __init__(self, kernel: PlainCudaKernel) -> None:
        self.kernel, self.program, self.hardware = kernel, kernel.program, kernel.hardware

    def clocks(self, ways: Ways, values: Mapping[str, Value]) -> float:
        """The estimate of one schedule's time, cut in some way."""
        total = 0.0
        for step in self.kernel.steps(ways):
            said = self.kernel.settings(step, values)
            one = np.ones(1)
            how = _How(one * said.threads, one * said.run, one * said.team, one * said.ahead)
            table = self._step(step, ways, how, np.array([said.grouped]))
            total += float(table["clocks"][0])
        return total

    def table(self, columns: Columns) -> Table:
        """Features of the longest kernel, and under "clocks" and "traffic" estimates of the time
        that all of them take."""
        kernel, found = self.kernel, dict[str, Array]()
        unsaid = {RUN: 1.0, TEAM: 1.0, AHEAD: 0.0, THREADS: 0.0}

        def column(name: str) -> Array:
            if kernel.name(name) not in columns:
                return np.full(columns.rows, unsaid[name])
            return np.asarray(columns[kernel.name(name)], dtype=np.float64)

        how = _How(*map(column, (THREADS, RUN, TEAM, AHEAD)))
        for here, cut in kernel.cuts.rows(columns):
            part = columns.where(here)
            for name, values in self._cut(cut, part, how.where(here)).items():
                found.setdefault(name, np.zeros(columns.rows))[here] = values
        return found

    def _cut(self, ways: Ways, columns: Columns, how: _How) -> Table:
        """Of schedules that cut alike."""
        whole, alone = self.kernel.whole, replace(how, team=np.ones_like(how.team))
        tables = [
            self._step(step, ways, how if step is whole else alone,
                       self.kernel.grouped(step, columns))
            for step in self.kernel.steps(ways)
        ]  # fmt: skip
        longest = max(tables, key=lambda table: float(table["clocks"].sum()))
        sums = {
            name: np.sum([table[name] for table in tables], axis=0)
            for name in ("clocks", "traffic")
        }
        return longest | {"parts": np.full(len(how.run), np.log2(ways.pieces))} | sums

    def _step(self, step: PlainStep, ways: Ways, how: _How, grouped: NDArray[np.bool_]) -> Table:
        sms = float(self.hardware["sms"])
        threads = how.threads
        blocks = np.where(grouped, step.points * how.team, np.ceil(step.points / threads))
        resident = np.clip(np.floor(THREADS_PER_PROCESSOR / threads), 1.0, 32.0)
        resident = np.minimum(resident, self._rings(step, how, grouped))
        waves = blocks / resident / sms
        serial = _Serial(step, how, grouped, self._rare(step, ways))
        busy = np.minimum(blocks * threads / (1024.0 * sms), 1.0)
        moved = float(sum(map(spec_bytes, step.plain.tensors)))
        traffic = np.full(len(threads), moved / MEMORY_BYTES_PER_CLOCK / sms)
        issued = self._issued(step, ways, how, grouped)
        work = issued / LANES_PER_CLOCK / sms / busy
        steps = np.ceil(waves) * serial.clocks(step.plain.body)
        steps = np.maximum(steps, self._crowd(step))
        clocks = np.maximum(np.maximum(traffic / busy, work), steps) + FILL_CLOCKS
        trips = serial.trips(step.plain.body)
        return {
            "threads": np.log2(threads), "blocks": np.log2(blocks), "trips": np.log2(trips),
            "resident": resident, "waves": np.log2(waves), "busy": busy, "reduced.own": how.run,
            "team": np.log2(how.team), "ahead": how.ahead, "issued": work / (traffic + 1.0),
            "clocks": clocks, "traffic": traffic,
        }  # fmt: skip

    def _rings(self, step: PlainStep, how: _How, grouped: NDArray[np.bool_]) -> Array:
        """Blocks for which a processor has room in shared memory."""
        room = float(self.hardware["shared_bytes"])
        taken = np.where(grouped, step.rings(how.threads, how.run, how.ahead), 0)
        found = np.maximum(np.floor(room / np.maximum(taken, 1.0)), 1.0)
        return np.asarray(found, dtype=np.float64)

    def _issued(self, step: PlainStep, ways: Ways, how: _How, grouped: NDArray[np.bool_]) -> Array:
        """Instructions of all threads: of a shared fold those of a lane's own merges, of its
        warp's and of all warps', and of its loads."""
        here, most = _iterations(step), max(map(_iterations, self.kernel.steps(ways)))
        flops = self.program.flops * here / most
        usual = np.full(len(how.run), max(flops, here * STEP_INSTRUCTIONS))
        if not step.folds:
            return usual
        merge, found = flops / here + 2.0, np.zeros(len(how.run))
        for fold, streams in zip(step.folds, step.streams, strict=True):
            own = merge * (2.0 if fold.keep else 1.0) + OVERHEAD
            if not fold.keep and scaled_of(fold.merge) is not None:
                own = min(own, MANY * len(fold.states) + OVERHEAD)
            turns = how.threads / 32.0 + 5.0 if fold.keep else 1.0
            beside = (LANE_TURNS * (merge + 3.0) + turns * merge) / how.run
            loads = sum(_loads(one, how) for one in (*streams.reads, *streams.writes))
            found = found + (own + beside + loads) * step.points * fold.extent
        return np.where(grouped, found, usual)

    def _rare(self, step: PlainStep, ways: Ways) -> float:
        """How often one of a warp's threads owns the place of an element."""
        if ways.owners == 1:
            return 1.0
        own = self.kernel.steps(replace(ways, owners=1))[0].points
        shares = max(1.0, step.points / own)
        return min(1.0, max(1.0, 32.0 / own) / shares)

    def _crowd(self, step: PlainStep) -> float:
        """Clocks in which elements meet in the same places, one after the other."""
        met = [s for s in every(step.plain.body) if isinstance(s, Combine)]
        sizes = {array.name: array.size for array in step.plain.arrays}
        return max((MET_CLOCKS * step.points / sizes[s.array] for s in met), default=0.0)


@dataclass(frozen=True)
class _How:
    """Columns of what schedules say."""

    threads: Array
    run: Array
    team: Array
    ahead: Array

    def where(self, here: NDArray[np.bool_]) -> _How:
        return _How(self.threads[here], self.run[here], self.team[here], self.ahead[here])


def _loads(stream: Stream, how: _How) -> Array:
    """Instructions for one element of a stream: by words, and by way of shared memory. Words of
    lanes that are farther apart than a word go one line each."""
    if not stream.beside:
        return np.full(len(how.run), 3.0)
    word = np.minimum(how.run, stream.unit)
    apart = np.where(how.ahead == 0, np.minimum(how.run / word, 8.0), 1.0)
    return np.where(how.ahead > 0, 5.0, 3.0 * apart) / word


def _iterations(step: PlainStep) -> float:
    """Of all points together."""
    return step.points * (1.0 + steps_of(step.plain.body))


class _Serial:
    """What one thread does one after the other; `rare`: how often a condition holds."""

    def __init__(self, step: PlainStep, how: _How, grouped: NDArray[np.bool_], rare: float) -> None:
        self.meeting = np.where(how.team > 1, TEAM_CLOCKS, MEET_CLOCKS)
        self.chunk, self.run = how.threads * how.team * how.run, how.run
        self.grouped, self.rare = grouped, rare
        self.waits = LOAD_CLOCKS / (how.ahead + 1.0)
        self.own = OWN_CLOCKS + LOAD_CLOCKS / 20.0 / how.run
        self.shared = {id(fold) for fold in step.folds}

    def trips(self, statements: Iterable[Statement]) -> Array:
        """Iterations, or chunks of them, one after the other."""
        found = np.ones(len(self.run))
        for statement in every(statements):
            if isinstance(statement, Loop | Accumulate | Spread):
                found = found + self._trips(statement)
        return np.asarray(found, dtype=np.float64)

    def _trips(self, statement: Loop | Accumulate | Spread) -> Array:
        long = np.full(len(self.run), float(extent_of(statement)))
        if isinstance(statement, Spread) or id(statement) in self.shared:
            return np.where(self.grouped, np.ceil(long / self.chunk), long)
        return long

    def clocks(self, statements: Iterable[Statement]) -> Array:
        found = np.zeros(len(self.run))
        for s in statements:
            if isinstance(s, If):
                often = 1.0 if s.other else self.rare
                found = found + often * np.max([self.clocks(block) for block in nested(s)], axis=0)
            elif isinstance(s, Loop | Accumulate | Spread):
                each = np.sum([self.clocks(block) for block in nested(s)], axis=0)
                each = each + (STEP_CLOCKS if isinstance(s, Loop) else self._each(s))
                found = found + self._trips(s) * each
            elif isinstance(s, Write) and s.array in arrays_in((s.value,)):
                found = found + AGAIN_CLOCKS
        return np.asarray(found, dtype=np.float64)

    def _each(self, s: Accumulate | Spread) -> Array:
        """One chunk of a group, or one iteration of a thread."""
        if isinstance(s, Accumulate) and id(s) in self.shared:
            meets = self.meeting if s.keep else self.meeting / 3.0
            return np.where(self.grouped, meets + self.waits + 4.0 * self.run, self.own)
        return np.where(self.grouped, self.meeting + self.run, self.own)
