"""Who runs in the finals: the fastest, and those unlike them; none that is hopeless."""

from __future__ import annotations

import numpy as np
import pytest

from explorer.finals import HEAT, WITHIN, finals_size, heat
from ir.columns import Decision
from ir.schedule import Schedule
from ir.space import Space

SPACE = Space(
    "toy",
    tuple(Decision(name, tuple(range(8)), "tile", "a", "test") for name in "abcd"),
)  # fmt: skip


def schedule(*values: int) -> Schedule:
    return Schedule("toy", tuple(zip("abcd", values, strict=True)))


def test_a_heat_has_candidates_unlike_the_fastest() -> None:
    """Forty near copies of the best do not keep out another kind that is little slower."""
    copies = [(1e-3 * (1 + n / 1000), schedule(1, 2, n % 8, n // 8)) for n in range(40)]
    others = [(1.05e-3, schedule(5, 6, 7, 7)), (1.2e-3, schedule(3, 0, 6, 6))]
    ranked = sorted(copies + others, key=lambda pair: pair[0])
    chosen = heat(SPACE, ranked)
    assert len(chosen) == HEAT == len(set(chosen))
    assert chosen[0] == ranked[0][1]
    assert {one for _, one in others} <= set(chosen)


def test_hopeless_candidates_are_left_out() -> None:
    ranked = [(1e-3 * (1 + n / 10), schedule(n, 0, 0, 0)) for n in range(8)]
    ranked += [(1e-3, schedule(0, n, 1, 1)) for n in range(8)]
    ranked.sort(key=lambda pair: pair[0])
    times = {one: seconds for seconds, one in ranked}
    assert max(times[one] for one in heat(SPACE, ranked)) <= WITHIN * 1e-3


@pytest.mark.parametrize(("count", "seconds"), [(6, 1e-4), (40, 0.5)])
def test_no_heat_where_all_are_finalists_or_kernels_are_slow(count: int, seconds: float) -> None:
    rng = np.random.default_rng(0)
    rows = {tuple(row) for row in rng.integers(0, 8, (count, 4)).tolist()}
    assert not heat(SPACE, [(seconds, schedule(*row)) for row in rows])


def test_slow_kernels_have_few_turns() -> None:
    assert finals_size(1e-5) == (6, 5)
    assert finals_size(1.0) == (2, 2)
