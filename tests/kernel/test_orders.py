"""Loop bodies: their text, the orders of their steps, and waits that a verifier agrees with."""

from __future__ import annotations

import doctest
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ir.kernel.body
import ir.kernel.modulo
import ir.kernel.synchronise
from ir.errors import UsageError
from ir.kernel.body import TENSOR, THREADS, Body, Operation
from ir.kernel.modulo import order_named, orders
from ir.kernel.synchronise import Scheduled, Step, Wait, synchronised
from ir.kernel.verify import OrderError, meaning, run, verify

STREAMED = Body.parse(
    """
    inner: tensor() -> s takes keys
    between: threads(s, m) -> m, p, moved
    fold: threads(p, moved, o) -> o, words
    outer: tensor(words, o) -> o takes values
    local moved, p
    """.replace("    ", "")
)


@pytest.mark.parametrize(
    "module",
    [ir.kernel.body, ir.kernel.modulo, ir.kernel.synchronise],
    ids=lambda m: m.__name__,
)
def test_examples(module: object) -> None:
    assert doctest.testmod(module).attempted  # type: ignore[arg-type]
    assert not doctest.testmod(module).failed  # type: ignore[arg-type]


def test_a_body_is_its_text() -> None:
    assert Body.parse(str(STREAMED)) == STREAMED
    assert hash(Body.parse(str(STREAMED))) == hash(STREAMED)
    with pytest.raises(UsageError, match="`name: unit"):
        Body.parse("inner tensor s")
    with pytest.raises(UsageError, match="twice"):
        Body.parse("a: threads() -> x\na: threads() -> y")
    with pytest.raises(UsageError, match="no unit 'warp'"):
        Body.parse("a: warp() -> x")


def test_orders_of_a_streamed_chain() -> None:
    found = {str(order): synchronised(order) for order in orders(STREAMED)}
    assert list(found) == ["straight", "outer:1", "between:1,fold:1,outer:1"]
    waits = {
        name: [
            (STREAMED.operations[s.operation].name, s.wait and s.wait.running) for s in one.steps
        ]
        for name, one in found.items()
    }
    assert waits["straight"] == [("inner", None), ("between", 0), ("fold", None), ("outer", None)]
    late = [("inner", None), ("outer", None), ("between", 1), ("fold", 0)]
    assert waits["outer:1"] == late
    ahead = [("between", 1), ("inner", None), ("fold", 1), ("outer", None)]
    assert waits["between:1,fold:1,outer:1"] == ahead
    assert [one.left for one in found.values()] == [((3, 1),), (), ((0, 1), (3, 1))]
    assert "outer of a block in the step of" in order_named(STREAMED, "outer:1").words()


@st.composite
def bodies(draw: st.DrawFn) -> Body:
    values = st.lists(st.sampled_from("abcde"), max_size=3, unique=True).map(tuple)
    made = []
    for number in range(draw(st.integers(1, 4))):
        unit = draw(st.sampled_from([TENSOR, THREADS]))
        made.append(Operation(f"f{number}", unit, draw(values), draw(values)))
    written = {value for one in made for value in one.writes}
    turns = [(value, 2) for value in sorted(written) if draw(st.booleans())]
    first = {v: next(o for o in made if v in (*o.reads, *o.writes)) for v, _ in turns}
    return Body(tuple(made), places=tuple((v, n) for v, n in turns if v not in first[v].reads))


@given(body=bodies(), depth=st.integers(1, 2))
@settings(max_examples=80, deadline=None)
def test_every_order_means_its_body(body: Body, depth: int) -> None:
    found = orders(body, depth)
    assert found[0].depth == 0
    assert len({str(order) for order in found}) == len(found)
    for order in found:
        verify(synchronised(order))
        assert sorted(order.places) == list(range(len(body.operations)))


@given(body=bodies())
@settings(max_examples=55, deadline=None)
def test_no_wait_is_stricter_than_it_must_be(body: Body) -> None:
    for order in orders(body):
        whole = synchronised(order)
        for number, step in enumerate(whole.steps):
            if step.wait is not None:
                for lax in (None, replace(step.wait, running=step.wait.running + 1)):
                    with pytest.raises(OrderError):
                        _all(_with(whole, number, lax))


def _with(whole: Scheduled, number: int, wait: Wait | None) -> Scheduled:
    steps = [*whole.steps]
    steps[number] = Step(steps[number].operation, wait)
    return replace(whole, steps=tuple(steps))


def _all(whole: Scheduled) -> None:
    verify(whole)


def test_wrong_orders_are_refused_by_name() -> None:
    order = order_named(STREAMED, "outer:1")
    whole = synchronised(order)
    with pytest.raises(OrderError, match="between of 0 reads s, which inner of 0 still writes"):
        run(_with(whole, 2, Wait(2, ())), 3)
    swapped = replace(whole, steps=(whole.steps[1], *whole.steps[2:], whole.steps[0]))
    with pytest.raises(OrderError):
        verify(swapped)
    early = replace(order, stages=(0, 0, 1, 1))
    with pytest.raises(OrderError):
        verify(replace(whole, order=early))


def test_slots_that_are_freed_wrongly_are_refused() -> None:
    """Sooner, twice, or never: the wait itself is right."""
    whole = synchronised(order_named(STREAMED, "outer:1"))
    (inner, outer) = (step.wait for step in whole.steps if step.wait is not None)
    cases = {
        "slots of outer of 0 are free while it runs": (2, replace(inner, done=outer.done)),
        "slots of inner of 0 are free before it is begun, or twice": (
            3, replace(outer, done=inner.done)
        ),
        "slots of inner of 0 are never free": (2, replace(inner, done=())),
    }  # fmt: skip
    for words, (number, wait) in cases.items():
        with pytest.raises(OrderError, match=words):
            verify(_with(whole, number, wait))


def test_what_a_loop_leaves() -> None:
    assert meaning(STREAMED, 0) == {}
    assert run(synchronised(order_named(STREAMED, "straight")), 2) == meaning(STREAMED, 2)
