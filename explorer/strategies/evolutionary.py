"""Evolution under a learned model: the default strategy.

A population of measured schedules breeds thousands of children on paper; the model ranks them, a
diverse batch is measured, and the model is fitted again on what was told. While little is known,
most seats are filled by a second opinion, a Gaussian process that is shown a bred pool of its own.
A prior from other workloads, if there is one, ranks the first batches and has less and less to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from costmodel.model import CostModel
from costmodel.model import Settings as ModelSettings
from explorer.strategies.base import OutcomeLike
from explorer.strategies.guide import Guide, Prior, Quality
from explorer.strategies.history import (
    History,
    Neighbours,
    SeedQueue,
    Strangers,
    draw_fresh,
    keys_of,
)
from explorer.strategies.mosaic import Mosaic
from explorer.strategies.opening import Opening, Routes
from explorer.strategies.opening import Settings as OpeningSettings
from explorer.strategies.remembered import RememberedPrior, remembering
from explorer.strategies.second_opinion import SecondOpinion
from explorer.strategies.second_opinion import Settings as OpinionSettings
from explorer.strategies.worth import Worth
from ir.schedule import Schedule
from ir.space import Matrix, Space

Scores = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Settings:
    """Sizes and shares of the search; shares are of a batch."""

    elites: int = 24
    children: int = 512
    generations: int = 3
    strangers: int = 256  # random rows that join the first generation
    crossover: float = 0.5
    strength: float = 2.0  # decisions changed by a mutation, on average
    pressure: float = 4.0  # how much likelier the best parent is than the worst (log)
    immigrants_first: float = 0.15
    immigrants_last: float = 0.06
    polish_from: float = 0.5  # progress after which neighbours of the incumbent get seats
    polish: float = 0.3
    diversity: float = 0.7  # penalty for likeness, in standard deviations of the pool's scores
    seed_share: float = 0.5  # of the first batches
    seed_later: float = 0.125  # where a prior is trusted: it may have seen nothing like this space
    neglected: float = 0.0625  # for a route that is near the fastest and was hardly tried
    assembled: float = 0.125  # of what the fastest kernels of several make together
    warm_up: int = 16  # trials before the model is asked
    opening: OpeningSettings = field(default_factory=OpeningSettings)
    horizon: int = 192  # budget assumed when none is given
    refit: float = 0.08  # share by which the known kernels have to grow until the model is fitted
    model: ModelSettings = field(default_factory=ModelSettings)
    second: float = 0.75  # seats for the second opinion while it knows all that was told
    portion: int = 8  # trials asked for at once, because the second opinion learns from few
    early: int = 4  # the same until `few` were told: each of these changes more
    few: int = 64
    together: int = 4  # seats of evolution beside it that are filled at once
    bred: int = 64  # children that it is shown for each seat
    turned: float = 0.125  # of its seats, for other names beside the fastest
    hope: float = 0.25  # of success, below which what fails is not tried again for its name
    head: int = 256  # of its pool, the rows that a batch is chosen from
    near: int = 3  # of the fastest, whose neighbours it is shown
    opinion: OpinionSettings = field(default_factory=OpinionSettings)


class Evolutionary:
    """See the module's text; `Settings` holds every number."""

    def __init__(
        self,
        space: Space,
        rng: np.random.Generator,
        *,
        trials: int | None = None,
        seeds: Sequence[Schedule] = (),
        settings: Settings | None = None,
    ) -> None:
        self.space = space = remembering(space)
        self.settings = settings or Settings()
        self.history = History(space, Worth(space))
        self.guide = Guide(
            self.history, int(rng.integers(1 << 30)), self.settings.model, self.settings.warm_up
        )
        self._rng = rng
        self._budget = trials or self.settings.horizon
        self._queue = SeedQueue(self.history, rng, seeds)
        self._credit = Credit(len(space.decisions))
        self._learnt = 0  # kernels that the model was fitted on
        self._strangers = Strangers(self.space, rng)
        self._opening = Opening(
            space, rng, self.settings.opening, self._strangers.take, lambda: self._queue.own
        )
        self._owed = 0.0  # seats
        self._turns = np.zeros(len(space.decisions), dtype=np.int64)  # of decisions, see `_turned`
        self._opinion = SecondOpinion(self.history, self.settings.opinion)
        self._mosaic = Mosaic(space)
        self._routes = Routes(space)
        self._neighbours = Neighbours(self.space)
        self._legality: dict[bytes, bool] = {}  # of the best told rows

    @property
    def model(self) -> CostModel:
        """The online model."""
        return self.guide.model

    @property
    def quality(self) -> Sequence[Quality]:
        """How each batch was scored before it was learnt from."""
        return self.guide.quality

    def use_prior(self, prior: Prior) -> None:
        """Let a model from other workloads have its say; called before the first ask or tell."""
        self.guide.use_prior(RememberedPrior(prior, self.space))

    def ask(self, n: int) -> list[Schedule]:
        batch = self._assembled(n)
        if len(batch) < n:
            batch += self._neglected(
                min(n - len(batch), self._stochastic(n * self.settings.neglected))
            )
        if len(batch) < n:
            batch += self.history.asked(self._seeds(n - len(batch)))
        if len(batch) < n and self.guide.ready:
            more = self._breed if self.guide.warm else self._open
            batch += more(n - len(batch))
        if len(batch) < n:
            short = n - len(batch)
            rest = draw_fresh(self.history, self._rng, max(short, self._drawn()), short)
            rest = rest[uncommon(self.history.tally, rest, short)]
            batch += self.history.asked(rest)
        if not batch and self.history.worth is not None:
            self.history.worth = None  # nothing else is left
            return self.ask(n)
        return batch

    def _assembled(self, n: int) -> list[Schedule]:
        """What the fastest kernels of all places are together, where some were told anew."""
        rows = self._mosaic.offers()
        rows = self.history.fresh(rows[self.space.legal(rows)]) if len(rows) else rows
        return self.history.asked(rows[: max(1, round(n * self.settings.assembled))])

    def _neglected(self, count: int) -> list[Schedule]:
        """Relatives of the fastest of a route that evolution has nearly forgotten, and its seeds:
        what it was tried with may not have been its best."""
        row = self._routes.neglected() if count and self.guide.ready else None
        if row is None:
            return []
        self._learn()
        litter = self._litter(row[None], None, self.settings.bred)
        pool = np.concatenate(
            [self._routes.beside(rows, row) for rows in (self._queue.own, litter)]
        )
        return self._offer(self.history.fresh(pool[self.space.legal(pool)]), count)

    def portion(self, count: int) -> int:
        """While a prior leads, what a few trials tell of its errors is worth hearing first."""
        if self.guide.led:
            return min(count, self.settings.opening.portion)
        if not self.guide.warm or self._opinion.known < 1.0:
            return count
        settings = self.settings
        early = len(self.history) < settings.few
        return min(count, settings.early if early else settings.portion)

    def _seeds(self, n: int) -> Matrix:
        """Seeds for a batch of `n`. A prior that is trusted ranks the space's own among the rest:
        they have all seats of the first batch, which then takes no time to choose, and few later:
        those that may be fastest by how far estimates of their routes were off."""
        if self.guide.trusted:
            if not self.history.tally.any():
                return self._queue.take(n, n)
            own = self._stochastic(n * self.settings.seed_later)
            return self._queue.take(n, own, self._routes.order)
        return self._queue.take(
            n if self.guide.warm else max(1, round(n * self.settings.seed_share))
        )

    def tell(self, schedules: Sequence[Schedule], outcomes: Sequence[OutcomeLike]) -> None:
        rows, seconds = self.history.read(schedules, outcomes)
        self.guide.judge(rows, seconds)
        self.history.told(schedules, outcomes)
        self._mosaic.told(rows, seconds, outcomes)
        self._routes.told(rows, seconds)
        self._credit.settle(rows, seconds)

    def _learn(self) -> None:
        """Fit the model if there is enough that is new: outcomes of known kernels teach nothing."""
        known = self.history.kernels
        if known - self._learnt >= self.settings.refit * known:
            self.guide.learn()
            self._learnt = known

    def _drawn(self) -> int:
        """Rows to choose from while there is no model."""
        return 0 if self.guide.warm else self.settings.strangers

    def _open(self, n: int) -> list[Schedule]:
        """A batch by the prior; the last seat before the online model speaks is drawn blindly, for
        a prior may be wrong."""
        self._learn()
        best, _ = self.history.best(self.settings.elites)
        pool = self._opening.pool(best)
        last = len(self.history) + n >= self.settings.warm_up
        return self._offer(pool, n, keen=1.0 - 1.0 / n if last else 1.0)

    @property
    def _progress(self) -> float:
        return min(1.0, len(self.history) / self._budget)

    def _breed(self, n: int) -> list[Schedule]:
        """A batch: what the second opinion expects most of, and what evolution does, which takes
        its seats a few at a time: it ranks thousands of rows however few it is asked for."""
        seats = self._evolved_seats(n)
        batch = self._expected(n - seats) if seats < n else []
        return batch + self._evolved(n - len(batch)) if len(batch) < n else batch

    def _evolved_seats(self, n: int) -> int:
        """Of `n` those for evolution, as soon as it is owed enough of them."""
        share = self.second_share
        if not share:
            return n
        self._owed += n * (1.0 - share)
        seats = min(n, int(self._owed)) if self._owed >= self.settings.together else 0
        self._owed -= seats
        return seats

    @property
    def second_share(self) -> float:
        """The share of the seats that the second opinion has: less where it knows less than the
        trees, in long searches and beside a prior."""
        if not self._opinion.ready:
            return 0.0
        return self.settings.second * self._opinion.known * (1.0 - self.guide.prior_share)

    def _expected(self, count: int) -> list[Schedule]:
        """Rows that the second opinion expects to beat the best, of a pool bred for it."""
        opinion = self._opinion
        opinion.learn()
        fast, _ = self.history.best(self.settings.near)
        if not len(fast):  # all that was told lies outside of what is pinned now
            return []
        near = [self.history.fresh(rows) for rows in self._neighbours.of(fast)]
        batch = self._turned(fast, near, self._stochastic(count * self.settings.turned))
        pool = self.history.fresh(np.concatenate([*near, self._bred_pool(count)]))
        scores = opinion.score(pool)
        parents = pool[np.argsort(-scores, kind="stable")[: self.settings.elites]]
        both = np.concatenate([pool, self._litter(parents, None, self._bred(count))])
        both = self.history.fresh(both)
        scores = np.concatenate([scores, opinion.score(both[len(pool) :])])
        head = both[np.argsort(-scores, kind="stable")[: self.settings.head]]
        odds = self.guide.odds(head)
        odds[odds < self.settings.hope] = 0.0  # little is expected of much in the end: odds alone
        chosen = opinion.choose(head, odds, count - len(batch))  # would not keep it from them
        return batch + self.history.asked(head[chosen])

    def _turned(self, fast: Matrix, near: Sequence[Matrix], count: int) -> list[Schedule]:
        """Neighbours of the fastest with another name in one decision, each decision in its turn.

        What is slow wherever it was met may hold the best beside what is fast, and neither opinion
        goes where most is slow; of what is ordered, steps lead there.
        """
        columns = np.concatenate(
            [(rows != row).argmax(axis=1) for row, rows in zip(fast, near, strict=True)]
        )
        rows = np.concatenate(near)
        apt = ~self.space.shape.ordered[columns]
        rows, columns = rows[apt], columns[apt]
        hopeful = self.guide.odds(rows) >= self.settings.hope
        rows, columns = rows[hopeful], columns[hopeful]
        batch: list[Schedule] = []
        while len(batch) < count and len(rows):
            column = columns[self._turns[columns].argmin()]
            self._turns[column] += 1
            here = rows[columns == column]
            batch += self.history.asked(here[[self._opinion.score(here).argmax()]])
            rows, columns = rows[columns != column], columns[columns != column]
        return batch

    def _bred_pool(self, count: int) -> Matrix:
        """Children of the fastest, and strangers; fewer for few seats."""
        parents, seconds = self.history.best(self.settings.elites)
        litter = self._litter(parents, seconds, self._bred(count))
        strangers = self._strangers.take(self._bred(count) // 2)
        return np.concatenate([litter, strangers])

    def _bred(self, count: int) -> int:
        """Children for `count` seats."""
        return min(self.settings.children, self.settings.bred * (1 + count))

    def _evolved(self, n: int) -> list[Schedule]:
        """Immigrants, in the last part neighbours of the incumbent, and children."""
        self._learn()
        settings = self.settings
        first, last = settings.immigrants_first, settings.immigrants_last
        share = first + (last - first) * self._progress
        immigrants = self._stochastic(n * share)
        polish = round(n * settings.polish) if self._progress >= settings.polish_from else 0
        batch = self._offer(self._polish_pool(), polish) if polish else []
        wanted = max(0, n - immigrants - len(batch))
        strangers = self._strangers.take(settings.strangers)
        batch += self._offer(self._children(strangers), wanted)
        return batch + self._offer(strangers, min(immigrants, n - len(batch)), keen=0.5)

    def _stochastic(self, amount: float) -> int:
        """`amount` rounded so that its mean is kept: a small quota does not vanish."""
        return int(amount + self._rng.random())

    def _offer(self, pool: Matrix, count: int, keen: float = 1.0) -> list[Schedule]:
        """Ask fresh rows of `pool`: the best by model for `keen` of the seats, the rest blind."""
        pool = self.history.fresh(pool)
        ranked = min(len(pool), round(count * keen))
        picked = self._diverse(pool, ranked)
        batch = self.history.asked(pool[picked])
        blind = np.delete(pool, picked, axis=0)
        return batch + self.history.asked(
            blind[uncommon(self.history.tally, blind, count - ranked)]
        )

    def _diverse(self, pool: Matrix, count: int) -> NDArray[np.intp]:
        """Greedy choice by score, less a penalty for likeness to what is chosen already, and to
        what is on its way."""
        if not count:
            return np.empty(0, dtype=np.intp)
        scores = self.guide.score(pool)
        head = np.argsort(-scores, kind="stable")[: max(256, 8 * count)]
        scores, rows = scores[head].copy(), pool[head][:, self.space.shape.free]
        penalty = self.settings.diversity * float(scores.std())
        likeness = np.zeros(len(head))
        for other in self.history.pending[:, self.space.shape.free]:
            likeness = np.maximum(likeness, (rows == other).mean(axis=1))
        chosen: list[int] = []
        for _ in range(count):
            value = scores - penalty * likeness
            value[chosen] = -np.inf
            chosen.append(int(value.argmax()))
            likeness = np.maximum(likeness, (rows == rows[chosen[-1]]).mean(axis=1))
        return head[chosen]

    def _polish_pool(self) -> Matrix:
        best, _ = self.history.best(2)
        return np.concatenate([best[:0], *(self.space.neighbours(row) for row in best)])

    def _children(self, strangers: Matrix) -> Matrix:
        """Rows bred over some generations: first from measured parents, then from the promising,
        strangers among them."""
        parents, seconds = self.history.best(self.settings.elites)
        if not len(parents):
            return strangers
        pool = np.concatenate([self._litter(parents, seconds), strangers])
        for _ in range(self.settings.generations - 1):
            pool = self.history.distinct(pool)
            head = np.argsort(-self.guide.score(pool), kind="stable")[: 2 * self.settings.elites]
            pool = np.concatenate([pool, self._litter(pool[head], None)])
        return pool

    def _litter(self, parents: Matrix, seconds: Scores | None, count: int | None = None) -> Matrix:
        """Legal children of `parents`, which stand best first; what is illegal of a child is its
        mother's, as far as they have parts."""
        settings, rng = self.settings, self._rng
        count = count or settings.children
        if seconds is not None:
            legal = self._still_legal(parents)  # those told of an older run may not be
            parents, seconds = parents[legal], seconds[legal]
        if not len(parents):
            return parents
        odds = np.exp(-settings.pressure * np.arange(len(parents)) / max(1, len(parents) - 1))
        mothers, fathers = rng.choice(len(parents), size=(2, count), p=odds / odds.sum())
        crossed = self.space.crossover(rng, parents[mothers], parents[fathers])
        mixed = (rng.random(count) < settings.crossover) & (mothers != fathers)
        children = np.where(mixed[:, None], crossed, parents[mothers])
        mutants = self.space.mutate(rng, children, settings.strength, self._credit.weights)
        plain = mixed & (rng.random(count) < 0.5)
        children = np.where(plain[:, None], children, mutants)
        children = self.space.mended(children, parents[mothers])
        new = (children != parents[mothers]).any(axis=1)
        litter: Matrix = children[new]
        mothers = mothers[new]
        if seconds is not None:
            waiting = keys_of(self.history.pending)
            self._credit.note(litter, parents[mothers], seconds[mothers], waiting)
        return litter

    def _still_legal(self, rows: Matrix) -> NDArray[np.bool_]:
        """Which told rows are legal; each is looked at once, as long as it is among the best."""
        keys, known = list(keys_of(rows)), self._legality
        new = [number for number, key in enumerate(keys) if key not in known]
        found = dict(zip(new, self.space.legal(rows[new]).tolist(), strict=True)) if new else {}
        self._legality = {
            key: found[number] if number in found else known[key] for number, key in enumerate(keys)
        }
        return np.array([self._legality[key] for key in keys], dtype=np.bool_)


def uncommon(tally: NDArray[np.int64], pool: Matrix, count: int) -> NDArray[np.intp]:
    """Greedy choice of up to `count` rows of `pool` whose values are rare among those of `tally`
    (how often each value was asked: [decision, index]) and those chosen.

    What few legal schedules have (an instruction that much forbids) would else be met too late.
    """
    chosen: list[int] = []
    columns = np.arange(len(tally))
    counts = tally.astype(np.float64)
    for _ in range(min(count, len(pool))):
        rarity = (1 / (1 + counts[columns, pool])).sum(axis=1)
        rarity[chosen] = -1
        chosen.append(int(rarity.argmax()))
        counts[columns, pool[chosen[-1]]] += 1
    return np.array(chosen, dtype=np.intp)


class Credit:
    """Which decisions are worth changing: those whose changes made a measured parent faster."""

    def __init__(self, decisions: int) -> None:
        self._wins = np.ones(decisions)
        self._tries = np.full(decisions, 2.0)
        self._parents: dict[bytes, tuple[NDArray[np.bool_], float]] = {}

    @property
    def weights(self) -> NDArray[np.float64]:
        return np.asarray(self._wins / self._tries, dtype=np.float64)

    def note(
        self, children: Matrix, parents: Matrix, seconds: Scores, waiting: Iterable[bytes] = ()
    ) -> None:
        """Remember what this litter changed until it is settled, and of those before what is
        `waiting` to be told."""
        changed = children != parents
        times = seconds.tolist()
        before = {key: self._parents[key] for key in waiting if key in self._parents}
        self._parents = before | {
            key: (changed[number], times[number]) for number, key in enumerate(keys_of(children))
        }

    def settle(self, rows: Matrix, seconds: Scores) -> None:
        """Count the told children against their parents; a failure is a try without a win."""
        for key, time in zip(keys_of(rows), seconds.tolist(), strict=True):
            if key in self._parents:
                changed, before = self._parents[key]
                share = changed / max(1, int(changed.sum()))
                self._tries += share
                self._wins += share * (time < before)
