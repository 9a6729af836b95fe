"""What a strategy has asked and been told, as matrices: shared by all strategies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from explorer.disturbance import trust
from explorer.strategies.base import OutcomeLike
from explorer.strategies.growing import Growing
from explorer.strategies.opening import first_rows
from explorer.strategies.seen import Seen
from explorer.strategies.worth import Worth
from ir.drawing import recombined, worth_recombining
from ir.schedule import Schedule
from ir.space import Matrix, Row, Space

LOT, DEALS = 1_024, 4  # random rows drawn at once, and how often each is shown
LOTS = 4  # made of the parts of those that were drawn
BRANCHES = 8  # that are drawn from at a time: more take long to begin with
LARGE = 1 << 20  # decisions of all seeds, beyond which mending them takes long to begin with
MOST_SEEDS = 24
MOST_PENDING = 64  # rows asked and not told that are remembered: the last ones
MOST_ENCODED = 256  # of those, the rows that need not be made from their schedules again


class History:
    """Rows seen, and for the told ones time and success. A kernel counts once among the best.

    Rows of one meaning (see `Space.meanings`) are one: who has seen one of them has seen all. Of a
    told schedule it keeps its row, its time and the number of its kernel, and no object.
    """

    def __init__(self, space: Space, worth: Worth | None = None) -> None:
        self.space, self.worth = space, worth
        self._open = replace(space, pins=())  # records made under other pins still teach
        self._seen = Seen()  # meanings
        self._rows = Growing(np.int16, len(space.decisions))
        self._seconds = Growing(np.float64)
        self._trust = Growing(np.float32)
        self._kernels = Growing(np.int32)  # the number of each told row's kernel
        self._numbers: dict[str | bytes, int] = {}  # of kernels, in the order of telling
        self._pending: dict[bytes, Row] = {}  # in the order of asking
        self._encoded: dict[str, Row] = {}  # rows of schedules asked and not told, by their keys
        widest = max((len(decision.domain) for decision in space.decisions), default=0)
        self.tally = np.zeros((len(space.decisions), widest), dtype=np.int64)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def rows(self) -> Matrix:
        """Told rows, in the order of telling."""
        return self._rows.values

    @property
    def kernels(self) -> int:
        """How many kernels were told of; a schedule that failed before it was one counts, too."""
        return len(self._numbers)

    @property
    def kernel_numbers(self) -> NDArray[np.int32]:
        """The kernel of each told row, counted in the order in which they were told first."""
        return self._kernels.values

    @property
    def seconds(self) -> NDArray[np.float64]:
        """Times of the told rows; NaN for failures."""
        return self._seconds.values

    @property
    def trust(self) -> NDArray[np.float32]:
        """What the told outcomes weigh: less where other programs disturbed the measurement."""
        return self._trust.values

    @property
    def ok(self) -> NDArray[np.bool_]:
        return np.isfinite(self.seconds)

    @property
    def pending(self) -> Matrix:
        """Rows asked and not told yet, the last `MOST_PENDING`: they may be measured just now."""
        rows = list(self._pending.values())
        return np.array(rows, dtype=np.int16).reshape(len(rows), len(self.space.decisions))

    def asked(self, matrix: Matrix) -> list[Schedule]:
        """Note that these rows are on their way, and give them as schedules.

        `tally` counts what was asked: [decision, index into its domain].
        """
        self._pending.update(zip(keys_of(matrix), matrix, strict=True))
        for key in list(self._pending)[:-MOST_PENDING]:
            del self._pending[key]
        np.add.at(self.tally, (np.arange(len(self.tally)), matrix), 1)
        self._seen.add(self.space.meanings(matrix))
        schedules = [self.space.schedule(row) for row in matrix]
        self._encoded.update(zip((schedule.key for schedule in schedules), matrix, strict=True))
        while len(self._encoded) > MOST_ENCODED:
            del self._encoded[next(iter(self._encoded))]
        return schedules

    def read(
        self, schedules: Sequence[Schedule], outcomes: Sequence[OutcomeLike]
    ) -> tuple[Matrix, NDArray[np.float64]]:
        """Rows of schedules, and their times: NaN for failures."""
        rows = [self._row(schedule) for schedule in schedules]
        seconds = [
            outcome.seconds if outcome.status == "ok" and outcome.seconds is not None else np.nan
            for outcome in outcomes
        ]
        matrix = np.array(rows, dtype=np.int16).reshape(len(rows), len(self.space.decisions))
        return matrix, np.array(seconds, dtype=np.float64)

    def _row(self, schedule: Schedule) -> Row:
        """The row of a schedule, which is known as long as it is awaited."""
        known = self._encoded.get(schedule.key)
        return self._open.encode(schedule) if known is None else known

    def told(self, schedules: Sequence[Schedule], outcomes: Sequence[OutcomeLike]) -> Matrix:
        """Keep the outcomes; gives the rows of the schedules."""
        matrix, seconds = self.read(schedules, outcomes)
        self._seen.add(self.space.meanings(matrix))
        self._rows.extend(matrix)
        self._seconds.extend(seconds)
        self._trust.extend([trust(outcome) for outcome in outcomes])
        numbers = self._numbers
        keys = list(keys_of(matrix))
        for schedule, key in zip(schedules, keys, strict=True):
            self._pending.pop(key, None)
            self._encoded.pop(schedule.key, None)
        pairs = zip(keys, outcomes, strict=True)
        kernels = [outcome.kernel_key or key for key, outcome in pairs]
        self._kernels.extend([numbers.setdefault(kernel, len(numbers)) for kernel in kernels])
        return matrix

    def fresh(self, matrix: Matrix) -> Matrix:
        """The `new` rows; of these those alone that have `worth`."""
        return self._worthy(self.new(matrix))

    def new(self, matrix: Matrix) -> Matrix:
        """The rows neither asked nor told, one of each meaning."""
        return matrix[self._seen.fresh(self.space.meanings(matrix))]

    def _worthy(self, new: Matrix) -> Matrix:
        if self.worth is None:
            return new
        told = np.flatnonzero(self.ok)
        fastest = self.rows[told[self.seconds[told].argmin()]] if len(told) else None
        return new[self.worth(new, fastest)]

    def distinct(self, matrix: Matrix) -> Matrix:
        """One row of each meaning."""
        return matrix[Seen().fresh(self.space.meanings(matrix))]

    def best(self, count: int) -> tuple[Matrix, NDArray[np.float64]]:
        """The fastest rows within the pins, one for each kernel, and their times."""
        seconds, rows, kernels = self.seconds, self.rows, self.kernel_numbers
        chosen: dict[int, int] = {}
        for number in np.argsort(seconds, kind="stable").tolist():
            if len(chosen) >= count or not np.isfinite(seconds[number]):
                break
            if self.within_pins(rows[number]):
                chosen.setdefault(int(kernels[number]), number)
        index = list(chosen.values())
        return rows[index], seconds[index]

    def within_pins(self, row: Row) -> bool:
        """Whether a told row has what is pinned now."""
        return all(row[column] == index for column, index in self.space.shape.pins)


class SeedQueue:
    """Seeds waiting for their turn: the caller's first, then, if wanted, the space's own, those of
    all routes in turn.

    Of the caller's, the first `most` have one, so that the search is left its budget.
    """

    def __init__(
        self,
        history: History,
        rng: np.random.Generator,
        seeds: Sequence[Schedule],
        *,
        own: bool = True,
        most: int | None = MOST_SEEDS,
    ) -> None:
        space = history.space
        rows = [space.encode(schedule) for schedule in seeds]
        matrix = np.array(rows, dtype=np.int16).reshape(len(rows), len(space.decisions))
        self._history = history
        self._given = matrix[space.legal(matrix)][:most]
        self._rng, self._wanted = rng, own
        self._mended = True  # whether seeds that had to be mended are among what is left
        self._begun = False

    @cached_property
    def own(self) -> Matrix:
        """The space's own in their order, made when they may have a turn: it takes a while. Of a
        large space those that are legal as they are; `take` has the others later."""
        if not self._wanted:
            return self._given[:0]
        space, rng = self._history.space, self._rng
        self._mended = space.seed_matrix.size <= LARGE
        rows = space.seed_rows(rng) if self._mended else space.ready_seeds(rng)
        return first_rows(space, rows)

    @cached_property
    def _own(self) -> Matrix:
        """Of these, what is left."""
        return self.own

    def take(
        self, count: int, own: int | None = None, order: Callable[[Matrix], Matrix] | None = None
    ) -> Matrix:
        """Up to `count` seeds that have not been measured yet, `own` of the space's at most, by
        `order` if there is one; from the second time on of all that can be made legal."""
        given = self._history.new(self._given)  # whatever is thought of them
        seats = max(0, count - len(given))
        seats = seats if own is None else min(own, seats)
        mine = self._fresh(given, self._own)
        if not self._mended and seats and (self._begun or len(mine) < seats):
            space, self._mended = self._history.space, True
            mine = self._fresh(given, first_rows(space, space.seed_rows(self._rng)))
        self._begun = True
        mine = order(mine) if order is not None and seats else mine
        self._given, self._own = given[count:], mine[seats:]
        return np.concatenate([given[:count], mine[:seats]])

    def _fresh(self, given: Matrix, own: Matrix) -> Matrix:
        """Those of the space's own that are neither known nor given."""
        rest = self._history.new(np.concatenate([given, own]))[len(given) :]
        return self._history.fresh(rest)


class Strangers:
    """Random rows of a space, drawn `LOT` at a time and dealt `DEALS` times in other orders: what
    was shown and not chosen is as good a stranger as any, and drawing is dear.

    Where a space has parts, some lots are made of those that were drawn before.
    """

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self._space, self._rng = space, rng
        self._drawn = self._lot = self._left = np.empty((0, len(space.decisions)), dtype=np.int16)
        self._lots = self._deals = 0
        self._of_each = LOTS if worth_recombining(space) else 1

    def take(self, count: int) -> Matrix:
        """`count` legal rows."""
        while count > len(self._left):
            if not self._deals:
                self._lot, self._deals = self._another(max(LOT, count)), DEALS
            self._deals -= 1
            self._left = np.concatenate([self._left, self._rng.permutation(self._lot)])
        taken, self._left = self._left[:count], self._left[count:]
        return taken

    def _another(self, size: int) -> Matrix:
        drawn = self._lots % self._of_each == 0
        self._lots += 1
        if not drawn:
            return recombined(self._space, self._rng, self._drawn, size)
        self._drawn = self._space.sample(self._rng, size, most=BRANCHES)
        return self._drawn


class Neighbours:
    """The neighbours of rows, kept for those asked about last."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._known: dict[bytes, Matrix] = {}

    def of(self, rows: Matrix) -> list[Matrix]:
        """For each row every legal one that differs from it in one decision."""
        keys = list(keys_of(rows))
        known = self._known
        self._known = {
            key: known[key] if key in known else self._space.neighbours(row)
            for key, row in zip(keys, rows, strict=True)
        }
        return [self._known[key] for key in keys]


def keys_of(matrix: Matrix) -> Iterable[bytes]:
    """The bytes of each row."""
    data = np.ascontiguousarray(matrix)
    width = data.shape[1] * data.itemsize
    text = data.tobytes()
    return (text[start : start + width] for start in range(0, len(text), width))


def draw_fresh(
    history: History, rng: np.random.Generator, count: int, enough: int | None = None
) -> Matrix:
    """Up to `count` new random rows, `enough` of which will do; fewer when several draws in a row
    bring nothing new."""
    found = history.fresh(history.space.sample(rng, count, most=BRANCHES))
    for _ in range(8):
        if len(found) >= (count if enough is None else enough):
            break
        more = history.space.sample(rng, max(64, 4 * count), most=BRANCHES)
        found = history.fresh(np.concatenate([found, more]))
    if len(found) < count and history.space.size <= 1 << 16:
        rest = np.concatenate(list(history.space.exhaustive()))
        found = history.fresh(np.concatenate([found, rng.permutation(rest)]))
    return found[:count]
