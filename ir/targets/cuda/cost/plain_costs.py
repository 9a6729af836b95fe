"""Analytic costs of plain kernels: how many threads go along how many iterations, and traffic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from ir.columns import Columns
from ir.dtypes import is_float
from ir.identity import by_identity
from ir.plain.accesses import arrays_in, every, nested
from ir.plain.code import (
    GROUP,
    TENSOR,
    THREAD,
    Accumulate,
    Between,
    Combine,
    If,
    Loop,
    PlainKernel,
    Spread,
    Statement,
    Write,
)
from ir.plain.pieces import Ways
from ir.plain.scaled import scaled_of
from ir.plain.strides import extent_of, statements_of, steps_of
from ir.schedule import Value
from ir.targets.cuda.cost.line_costs import lines_of
from ir.targets.cuda.cost.overlap_costs import OverlapCosts
from ir.targets.cuda.cost.product_costs import ProductCosts
from ir.targets.cuda.cost.touched import repeated, touched_bytes, written_apart
from ir.targets.cuda.plain.plain_held import asks_of, waits_of
from ir.targets.cuda.plain.plain_products import Tile, tile_of
from ir.targets.cuda.plain.plain_shape import loops_of_registers
from ir.targets.cuda.plain.plain_staged import requests_of
from ir.targets.cuda.plain.plain_step import PlainStep, array_bytes, column_bytes
from ir.targets.cuda.plain.plain_stream import Stream
from ir.targets.cuda.plain.plain_words import shares
from ir.targets.cuda.space.gathers import SECTOR
from ir.targets.cuda.space.plain import (
    AHEAD,
    BESIDE,
    FETCH,
    MMA,
    RUN,
    SHARE,
    STAGED,
    STEPS,
    TEAM,
    THREADS,
    TILES,
    PlainCudaKernel,
)

Array = NDArray[np.float64]
Table = dict[str, Array]
LANES_PER_CLOCK = 128.0
MEMORY_BYTES_PER_CLOCK = 20.0  # a processor's share
FILL_CLOCKS = 1500.0
STEP_INSTRUCTIONS = 10.0  # of an iteration, each of a warp at a time
STATEMENT_INSTRUCTIONS = 2.0
WRITTEN_INSTRUCTIONS = 0.8  # the same in a loop that is written out
WRITTEN_CLOCKS = 4.0  # of a statement of a loop that is written out
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
MET_PER_CLOCK = 80.0  # elements that memory combines, of all
ADDED_CLOCKS, ADDED_PER_CLOCK = 8.0, 32.0  # the same of sums of floats, as measured on an H200
GROUP_ADD_CLOCKS = 1.0  # of a processor, of a float that is added in shared memory
THREADS_PER_PROCESSOR = 2048.0
L2_PER_CLOCK = 16.0  # bytes into a processor, of what threads wait for
_FEW = 0.05  # of what a processor does, that the threads of one warp do at least
REQUESTS_PER_CLOCK = 0.4  # that a processor makes of memory, each for a part of a line
ASKS_PER_CLOCK, ASKING = 2.0, 0.02  # of lines ahead of loads; share of the time, at least
_NEAR = 0.35  # of the wait for memory, that for lines in L2


class PlainCosts:
    """Costs of the kernels of one phase."""

    def __init__(self, kernel: PlainCudaKernel) -> None:
        self.kernel, self.program, self.hardware = kernel, kernel.program, kernel.hardware
        windows = kernel.cuts.choices.windows
        self.overlaps = OverlapCosts(self.program, windows, self.hardware) if windows else None
        self._products: dict[tuple[int, Tile], ProductCosts] = {}  # of steps, which stay

    def clocks(self, ways: Ways, values: Mapping[str, Value]) -> float:
        """The estimate of one schedule's time, cut in some way."""
        if ways.overlap is not None and self.overlaps is not None:
            threads = int(values[self.kernel.name(THREADS)])
            return self.overlaps.clocks(ways.overlap, threads).clocks
        total = 0.0
        for step in self.kernel.steps(ways):
            said = self.kernel.settings(step, values)
            one = np.ones(1)
            numbers = (
                said.threads, said.run, said.team, said.ahead, 1, said.share, 0, said.fetch,
                said.steps, said.staged,
            )  # fmt: skip
            how = _How(*(one * number for number in numbers))
            table = self._step(step, ways, how, np.array([said.grouped]))
            total += float(table["clocks"][0])
        return total

    def table(self, columns: Columns) -> Table:
        """Features of the longest kernel, and under "clocks" and "traffic" estimates of the time
        that all of them take."""
        kernel, found = self.kernel, dict[str, Array]()
        unsaid = {RUN: 1.0, TEAM: 1.0, AHEAD: 0.0, THREADS: 0.0, BESIDE: 1.0, SHARE: 1.0,
                  STEPS: 1.0}  # fmt: skip

        def said_so(name: str) -> Array:
            if kernel.name(name) not in columns:
                return np.zeros(columns.rows)
            return columns.is_(kernel.name(name), True).astype(np.float64)

        def column(name: str) -> Array:
            if kernel.name(name) not in columns:
                return np.full(columns.rows, unsaid[name])
            return np.asarray(columns[kernel.name(name)], dtype=np.float64)

        tiles = np.zeros(columns.rows)
        if kernel.name(MMA) in columns:
            tiles = columns.lookup(kernel.name(MMA), {name: n for n, name in enumerate(TILES)})
        said = [column(name) for name in (THREADS, RUN, TEAM, AHEAD, BESIDE, SHARE)]
        how = _How(*(*said, tiles, said_so(FETCH), column(STEPS), said_so(STAGED)))
        for here, cut in kernel.cuts.rows(columns):
            panels = np.stack([how.beside[here], how.tile[here]], axis=1).astype(int)
            for count, tile in np.unique(panels, axis=0) if here.any() else ((1, 0),):
                these = here & (how.beside == count) & (how.tile == tile)
                part = columns.where(these)
                one = self._cut(cut, part, how.where(these), int(count), tile_of(TILES[tile]))
                for name, values in one.items():
                    found.setdefault(name, np.zeros(columns.rows))[these] = values
        return found

    def _cut(self, ways: Ways, columns: Columns, how: _How, count: int, tile: Tile | None) -> Table:
        """Of schedules that cut alike, and have as many points beside each other and one tile."""
        if ways.overlap is not None and self.overlaps is not None:
            return self.overlaps.table(ways.overlap, how.threads, how.run)
        whole, alone = self.kernel.whole, replace(how, team=np.ones_like(how.team))
        tables = [
            self._step(step.panel(count, tile is not None), ways, how,
                       self.kernel.grouped(step, columns), tile) if step is whole else
            self._step(step, ways, alone, self.kernel.grouped(step, columns))
            for step in self.kernel.steps(ways)
        ]  # fmt: skip
        longest = max(tables, key=lambda table: float(table["clocks"].sum()))
        sums = {
            name: sum((table[name] for table in tables[1:]), tables[0][name])
            for name in ("clocks", "traffic")
        }
        return longest | {"parts": np.full(len(how.run), np.log2(ways.pieces))} | sums

    def _step(
        self, whole: PlainStep, ways: Ways, how: _How, grouped: NDArray[np.bool_],
        tile: Tile | None = None,
    ) -> Table:  # fmt: skip
        step = whole.rest if tile else whole
        sms = float(self.hardware["sms"])
        threads = how.threads
        blocks = np.where(grouped, step.points * how.team, np.ceil(step.points / threads))
        most = np.floor(THREADS_PER_PROCESSOR / threads)
        resident = np.clip(most, 1.0, _fitting(step))
        resident = np.minimum(resident, self._rings(step, how, grouped))
        if step.may_be_alone:
            resident = np.where(grouped, resident, np.minimum(most, _fitting_alone(step, threads)))
        products = self._products_of(whole, tile) if tile else None
        waves = blocks / resident / sms
        serial = _Serial(step, how, grouped, self._rare(step, ways))
        busy = np.minimum(np.minimum(blocks * threads / 1024.0, blocks) / sms, 1.0)
        if not step.folds:  # whose threads have many words under way each
            busy = np.minimum(busy, np.maximum(resident * threads / 1024.0, _FEW))
        once = _share(step) * _touched(step)
        moved = np.where(grouped, np.maximum(once, _apart_bytes(step)), once)
        traffic = moved / MEMORY_BYTES_PER_CLOCK / sms
        issued = self._issued(step, ways, how, grouped)
        issued = issued + (step.points * products.issued if products else 0.0)
        work = issued / LANES_PER_CLOCK / sms / busy
        work = work + step.points * _added_in_groups(step) * GROUP_ADD_CLOCKS / sms
        asked, least, brought = _lines(step)
        if products:
            asked, brought = asked + products.lines[0], brought + products.lines[1]
        lines = np.maximum(asked / how.share, least)
        lines = np.maximum(lines, brought / L2_PER_CLOCK)
        lines = step.points * lines / sms / np.minimum(blocks / sms, 1.0)
        rows = step.points * self._requests(step, how) / REQUESTS_PER_CLOCK / sms
        rows = rows + step.points * self._asks(step, how) / ASKS_PER_CLOCK / sms
        work = np.maximum(work, np.where(grouped, lines, rows / np.minimum(blocks / sms, 1.0)))
        steps = serial.clocks(step.plain.body)
        steps = steps + np.where(
            grouped, LOAD_CLOCKS * whole.waits * np.where(how.fetch, _NEAR, 1.0), 0.0
        )
        steps = np.ceil(waves) * (steps + (products.clocks(threads * how.team) if products else 0))
        steps = np.maximum(steps, self._crowd(step))
        clocks = np.maximum(np.maximum(traffic / busy, work), steps) + FILL_CLOCKS
        clocks = clocks * (1.0 + ASKING * how.fetch)
        trips = serial.trips(step.plain.body)
        return {
            "threads": np.log2(threads), "blocks": np.log2(blocks), "trips": np.log2(trips),
            "resident": resident, "waves": np.log2(waves), "busy": busy, "reduced.own": how.run,
            "team": np.log2(how.team), "ahead": how.ahead, "issued": work / (traffic + 1.0),
            "beside": np.log2(how.beside), "share": np.log2(how.share),
            "multiplies": (how.tile > 0).astype(np.float64),
            "clocks": clocks, "traffic": traffic,
        }  # fmt: skip

    @staticmethod
    def _requests(step: PlainStep, how: _How) -> Array:
        """Those of a point's rows, where threads read and write words of their own; elements that
        they write one by one, where these are of rows that begin anywhere."""
        found = np.full(len(how.steps), 0.0 if step.pitches else written_apart(step.plain))
        pairs = np.stack([how.steps, how.staged], axis=1).astype(int)
        for count, staged in np.unique(pairs, axis=0) if step.pitches else ():
            here = (pairs == (count, staged)).all(axis=1)
            found[here] = requests_of(step.plain, int(count), bool(staged)) if count > 1 else 0.0
        return found

    @staticmethod
    def _asks(step: PlainStep, how: _How) -> Array:
        """How often a point asks memory ahead."""
        found = np.zeros(len(how.steps))
        for count in np.unique(how.steps[how.fetch > 0]).astype(int):
            here = (how.steps == count) & (how.fetch > 0)
            found[here] = asks_of(step.plain, int(count))
        return found

    def _products_of(self, step: PlainStep, tile: Tile) -> ProductCosts:
        key = (id(step), tile)
        if key not in self._products:
            self._products[key] = ProductCosts(step, tile)
        return self._products[key]

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
        made = step.points * _instructions(step.plain)
        usual = np.full(len(how.run), max(flops, made))
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
        arrays = {a.name: a for a in step.plain.arrays if a.place == TENSOR}
        combined = _combined(step.plain.body, frozenset(arrays))
        most, total = 0.0, 0.0
        for (name, kind), often in combined.items():
            added = kind == "sum" and is_float(arrays[name].dtype)
            each, rate = (ADDED_CLOCKS, ADDED_PER_CLOCK) if added else (MET_CLOCKS, MET_PER_CLOCK)
            most = max(most, each * step.points * often / arrays[name].size)
            total += step.points * often / rate
        return max(most, total)


@by_identity
def _touched(step: PlainStep) -> float:
    return touched_bytes(step.plain, step.points, int(step.hardware["l2_bytes"]))


@by_identity
def _lines(step: PlainStep) -> tuple[float, float, float]:
    return lines_of(step.plain)


@by_identity
def _written_out(step: PlainStep) -> frozenset[int]:
    return loops_of_registers(step.plain)


@by_identity
def _waits(step: PlainStep) -> dict[int, int]:
    """How often a step of each loop waits for memory."""
    loops = (s for s in step.plain.body if isinstance(s, Loop))
    return {id(loop): waits_of(step.plain, loop) for loop in loops}


@by_identity
def _added_in_groups(step: PlainStep) -> float:
    """How often a point adds a float to what a group has in shared memory, which is tried until
    nobody else was faster."""
    kinds = {array.name: array.dtype for array in step.plain.arrays if array.place == GROUP}
    return sum(
        often for s, often in repeated(step.plain.body, sometimes=True)
        if isinstance(s, Combine) and s.kind == "sum" and is_float(kinds.get(s.array, "i32"))
    )  # fmt: skip


def _combined(
    statements: Iterable[Statement], tensors: frozenset[str]
) -> dict[tuple[str, str], float]:
    """How often a point combines in each tensor, and how; what is stored alike by all is no
    trouble."""
    found: dict[tuple[str, str], float] = {}
    for s, often in repeated(statements, sometimes=True):
        if isinstance(s, Combine) and s.array in tensors and s.kind != "or":
            found[s.array, s.kind] = found.get((s.array, s.kind), 0.0) + often
    return found


@by_identity
def _fitting(step: PlainStep) -> float:
    """Blocks that fit a processor with what they have in shared memory."""
    used = sum(map(array_bytes, step.shared))
    return min(32.0, int(step.hardware["shared_bytes"]) // used) if used else 32.0


def _fitting_alone(step: PlainStep, threads: Array) -> Array:
    """The same where each thread has a column for every array of a group."""
    room = int(step.hardware["shared_bytes"])
    used = {
        count: sum(column_bytes(array, count) for array in step.columns(count))
        for count in map(int, np.unique(threads))
    }
    return np.array([max(1.0, room // max(used[int(t)], 1)) for t in threads])


@by_identity
def _share(step: PlainStep) -> float:
    """How often a step does what it is there for, as far as it says so."""
    return min((s.often for s in step.plain.body if isinstance(s, If)), default=1.0)


@by_identity
def _apart_bytes(step: PlainStep) -> float:
    """What lanes that share a fold move of tensors in which its iterations do not lie beside each
    other: a sector for each."""
    found = 0.0
    for fold, streams in zip(step.folds, step.streams, strict=True):
        apart = sum(not one.beside for one in (*streams.reads, *streams.writes))
        found += SECTOR * apart * step.points * fold.extent
    return found


@dataclass(frozen=True)
class _How:
    """Columns of what schedules say."""

    threads: Array
    run: Array
    team: Array
    ahead: Array
    beside: Array
    share: Array
    tile: Array
    fetch: Array
    steps: Array
    staged: Array

    def where(self, here: NDArray[np.bool_]) -> _How:
        return _How(*(getattr(self, field.name)[here] for field in fields(self)))


def _loads(stream: Stream, how: _How) -> Array:
    """Instructions for one element of a stream: by words, and by way of shared memory. Words of
    lanes that are farther apart than a word go one line each."""
    if not stream.beside:
        return np.full(len(how.run), 3.0)
    word = np.minimum(how.run, stream.unit)
    apart = np.where(how.ahead == 0, np.minimum(how.run / word, 8.0), 1.0)
    return np.where(how.ahead > 0, 5.0, 3.0 * apart) / word


@by_identity
def _instructions(kernel: PlainKernel) -> float:
    """Of a thread that has a point: fewer for statements that are written out, with registers for
    arrays, and none for loops of them."""
    written = loops_of_registers(kernel)

    def inside(statements: Iterable[Statement], times: float) -> Iterator[tuple[float, float]]:
        for s in statements:
            if id(s) in written:
                yield times * statements_of([s]), times * steps_of([s])
                continue
            more = extent_of(s) if isinstance(s, Loop | Between | Accumulate | Spread) else 1
            for block in nested(s):
                yield from inside(block, times * more)

    found = list(inside(kernel.body, 1.0))
    out, turns = (sum(one[n] for one in found) for n in (0, 1))
    made = STATEMENT_INSTRUCTIONS * (statements_of(kernel.body) - out) + WRITTEN_INSTRUCTIONS * out
    return max(made, STEP_INSTRUCTIONS * (1.0 + steps_of(kernel.body) - turns))


@by_identity
def _iterations(step: PlainStep) -> float:
    """Of all points together."""
    return step.points * (1.0 + steps_of(step.plain.body))


class _Serial:
    """What one thread does one after the other; `rare`: how often a condition holds."""

    def __init__(self, step: PlainStep, how: _How, grouped: NDArray[np.bool_], rare: float) -> None:
        self.meeting = np.where(how.team > 1, TEAM_CLOCKS, MEET_CLOCKS)
        self.chunk, self.run = how.threads * how.team * how.run / how.share, how.run
        self.share, self.kernel, self.steps = how.share, step.plain, how.steps
        self.written, self.loads = _written_out(step), _waits(step)
        self.near = np.where(how.fetch > 0, _NEAR, 1.0)
        self.grouped, self.rare = grouped, rare
        self.waits = LOAD_CLOCKS / (how.ahead + 1.0)
        self.alone = OWN_CLOCKS + LOAD_CLOCKS / 20.0 / how.run
        self.shared = {id(fold) for fold in step.folds}
        self.own = {array.name for array in step.plain.arrays if array.place == THREAD}
        self.own |= {array.name for array in step.shared}

    def trips(self, statements: Iterable[Statement]) -> Array:
        """Iterations, or chunks of them, one after the other."""
        found = np.ones(len(self.run))
        for statement in every(statements):
            if isinstance(statement, Loop | Between | Accumulate | Spread):
                found = found + self._trips(statement)
        return np.asarray(found, dtype=np.float64)

    def _trips(self, statement: Loop | Between | Accumulate | Spread) -> Array:
        long = np.full(len(self.run), float(extent_of(statement)))
        if isinstance(statement, Spread) or id(statement) in self.shared:
            return np.where(self.grouped, np.ceil(long / self.chunk), long)
        return long

    def clocks(self, statements: Iterable[Statement]) -> Array:
        found = np.zeros(len(self.run))
        for s in statements:
            if isinstance(s, If):
                often = s.often if s.other or s.often < 1.0 else self.rare
                found = found + often * np.max([self.clocks(block) for block in nested(s)], axis=0)
            elif isinstance(s, Loop | Between | Accumulate | Spread):
                each = sum(map(self.clocks, nested(s)), np.zeros(len(self.run)))
                if isinstance(s, Spread) and shares(self.kernel, s):
                    each = each / self.share
                each = each + (
                    self._each(s) if isinstance(s, Accumulate | Spread) else self._one_of(s)
                )
                if isinstance(s, Loop):
                    waits = LOAD_CLOCKS * self.loads.get(id(s), 0) / self.steps * self.near
                    each = each + np.where(self.grouped, 0.0, waits)
                found = found + self._trips(s) * each
            elif isinstance(s, Write) and s.array in arrays_in((s.value,)):
                found = found + (STEP_CLOCKS if s.array in self.own else AGAIN_CLOCKS)
        return np.asarray(found, dtype=np.float64)

    def _one_of(self, s: Loop | Between) -> float:
        """One iteration that waits for the one before, or of a loop that is written out."""
        return WRITTEN_CLOCKS * len(s.body) if id(s) in self.written else STEP_CLOCKS

    def _each(self, s: Accumulate | Spread) -> Array:
        """One chunk of a group, or one iteration of a thread."""
        if isinstance(s, Accumulate) and id(s) in self.shared:
            meets = self.meeting if s.keep else self.meeting / 3.0
            return np.where(self.grouped, meets + self.waits + 4.0 * self.run, self.alone)
        return np.where(self.grouped, self.meeting + self.run, self.alone)
