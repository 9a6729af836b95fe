"""Turns at the tensor cores: every group issues alone, in order, and nobody waits for ever."""

from __future__ import annotations

import random

import pytest

from ir.errors import UsageError
from ir.kernel.body import Body
from ir.kernel.modulo import order_named
from ir.kernel.synchronise import Scheduled, synchronised
from ir.kernel.turns import DONE, FREE, ISSUED, turn_of

CHAIN = Body.parse("a: tensor() -> x\nb: threads(x) -> y\nc: tensor(y, z) -> z")
LONE = Body.parse("a: tensor() -> x\nb: threads(y) -> y")


def _scheduled(order: str) -> Scheduled:
    return synchronised(order_named(CHAIN, order))


def _events(scheduled: Scheduled, when: str, steps: int) -> list[str]:
    """What one group does: takes, issues and gives, step after step."""
    turn, found = turn_of(scheduled, when), []
    assert turn is not None
    for _ in range(steps):
        for place, step in enumerate(scheduled.steps):
            one = scheduled.order.body.operations[step.operation]
            if turn.ended and turn.give == place:
                found.append("give")
            if turn.take == place:
                found.append("take")
            if one.unit == "tensor":
                found.append(one.name)
            if not turn.ended and turn.give == place:
                found.append("give")
    return found


@pytest.mark.parametrize("order", ["straight", "c:1"])
@pytest.mark.parametrize("when", [ISSUED, DONE])
@pytest.mark.parametrize("groups", [2, 3])
def test_groups_issue_one_after_the_other(order: str, when: str, groups: int) -> None:
    scheduled = _scheduled(order)
    for seed in range(20):
        rng = random.Random(seed)
        waiting = [_events(scheduled, when, 5) for _ in range(groups)]
        passed, inside = [int(group == 0) for group in range(groups)], -1
        held: list[str] = []
        while any(waiting):
            ready = [
                group for group in range(groups)
                if waiting[group] and (waiting[group][0] != "take" or passed[group])
            ]  # fmt: skip
            assert ready, "all groups wait"
            group = rng.choice(ready)
            event = waiting[group].pop(0)
            if event == "take":
                assert inside == -1
                passed[group], inside, held = passed[group] - 1, group, []
            elif event == "give":
                assert inside == group
                assert held
                passed[(group + 1) % groups] += 1
                inside = -1
            elif inside == group:
                held.append(event)
        assert passed == [int(group == 0) for group in range(groups)]


def test_products_that_follow_each_other_share_a_turn() -> None:
    assert _events(_scheduled("c:1"), ISSUED, 1) == ["take", "a", "c", "give"]
    assert _events(_scheduled("straight"), ISSUED, 1) == ["take", "a", "give", "c"]


def test_nobody_takes_turns_unless_asked() -> None:
    assert turn_of(_scheduled("c:1"), FREE) is None


def test_a_turn_that_nothing_passes_is_refused() -> None:
    scheduled = synchronised(order_named(LONE, "straight"))
    with pytest.raises(UsageError, match="no wait in the step"):
        turn_of(scheduled, DONE)
