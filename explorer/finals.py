"""Who is measured again at the end of a search, and how often.

Times of a search are few runs each, in whatever state the device was: enough to rank kinds of
kernels, not the best of them. So the fastest and those unlike them run a heat, and the heat's best
the finals, all in turns. Knows spaces; nothing of measuring.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ir.schedule import Schedule
from ir.space import Space

FINALISTS = 6
HEAT_SIZE = 24
SECONDS = 10.0  # about what the finals may take at most; fewer finalists if kernels are slow
SHARE, LEAST = 0.5, 2.0  # of what the search took to measure, and what they may take anyway
HEAT_SHARE = 0.4  # of that for the heat
RUNS_A_TURN = 9  # checks and samples of one finalist in one round
ROUNDS = 5
_FEWEST = 2  # finalists, so that a time that was luck has another beside it
WITHIN = 1.3  # times the best: slower candidates have no hope
HOPELESS = 2.0  # times the best, from which there is no turn in the finals either
UNLIKE = 0.5  # of the best time that being wholly unlike all chosen ones is worth

Ranked = Sequence[tuple[float, Schedule]]


def allowed(measuring: float) -> float:
    """Seconds that the finals of a search may take that spent so many on measuring."""
    return min(SECONDS, max(LEAST, SHARE * measuring))


def finals_size(seconds: float, beside: float = 0.0, within: float = SECONDS) -> tuple[int, int]:
    """Finalists and rounds for kernels that take `seconds`, all `within` some; at least two and
    two.

    `beside` is what a turn takes besides its runs: large outputs are judged for longer than they
    are made.
    """
    turns = within / (RUNS_A_TURN * seconds + beside)
    rounds = max(2, min(ROUNDS, int(turns / FINALISTS)))
    return max(_FEWEST, min(FINALISTS, int(turns / rounds))), rounds


def chosen_finalists(
    space: Space,
    ranked: Ranked,
    again: Callable[[list[Schedule]], Ranked],
    beside: float = 0.0,
    within: float = SECONDS,
) -> tuple[list[Schedule], int]:
    """Who runs the finals of a search, and in how many rounds.

    `ranked` (seconds, fastest first) is what the search found, one schedule for each kernel;
    `again` measures the schedules of a heat, and gives those that were right, fastest first. Of few
    kernels half may run: the others are beaten. `beside` and `within` as of `finals_size`.
    """
    tried = heat(space, ranked, beside, within)
    if tried:
        ranked = again(tried) or ranked
    best = ranked[0][0]
    count, rounds = finals_size(best, beside, within)
    hopeful = sum(seconds < HOPELESS * best for seconds, _ in ranked)
    count = min(count, max(_FEWEST, min(hopeful, len(ranked) // 2)))
    return [schedule for _, schedule in ranked[:count]], rounds


def heat(
    space: Space, ranked: Ranked, beside: float = 0.0, within: float = SECONDS
) -> list[Schedule]:
    """The schedules of a heat out of `ranked` (seconds, fastest first); none if it is no use.

    Chosen greedily by time and by likeness, the share of decisions that agree, of those that vary
    here: a search leaves many copies of one kernel at the top that differ in little.
    """
    best = ranked[0][0]
    hopeful = [pair for pair in ranked if pair[0] <= WITHIN * best]
    turns = HEAT_SHARE * within / (RUNS_A_TURN * best + beside)
    count = min(HEAT_SIZE, int(turns), len(hopeful))
    if count <= finals_size(best, beside, within)[0]:
        return []
    rows = np.array([space.encode(schedule) for _, schedule in hopeful])
    rows = rows[:, (rows != rows[0]).any(axis=0)]
    lag = np.array([seconds / best - 1.0 for seconds, _ in hopeful])
    chosen = [0]
    likeness = (rows == rows[0]).mean(axis=1)
    while len(chosen) < count:
        cost = lag + UNLIKE * likeness
        cost[chosen] = np.inf
        chosen.append(int(cost.argmin()))
        likeness = np.maximum(likeness, (rows == rows[chosen[-1]]).mean(axis=1))
    return [hopeful[number][1] for number in chosen]
