"""Turns of threads: short for as long as somebody wants it, and then what they were."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import pytest

from explorer.asking import Asker
from explorer.runtime.switching import TURN, short_turns
from explorer.strategies.base import make_strategy
from explorer.strategies.contract import example_space


@pytest.fixture(autouse=True)
def own() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.02)
    yield
    sys.setswitchinterval(before)


def test_the_last_who_leaves_gives_back_what_there_was() -> None:
    first, second = short_turns(), short_turns()
    with first:
        assert sys.getswitchinterval() == pytest.approx(TURN)
        second.__enter__()
    assert sys.getswitchinterval() == pytest.approx(TURN)
    second.__exit__(None, None, None)
    assert sys.getswitchinterval() == pytest.approx(0.02)


def test_shorter_turns_stay_as_they_are() -> None:
    sys.setswitchinterval(TURN / 4)
    with short_turns():
        assert sys.getswitchinterval() == pytest.approx(TURN / 4)
    assert sys.getswitchinterval() == pytest.approx(TURN / 4)


def test_a_search_has_them_while_its_strategy_has_a_thread() -> None:
    asker = Asker(make_strategy("random", example_space(), np.random.default_rng(0)))
    assert sys.getswitchinterval() == pytest.approx(TURN)
    asker.close()
    assert sys.getswitchinterval() == pytest.approx(0.02)
