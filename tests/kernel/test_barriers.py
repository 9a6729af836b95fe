"""Barriers and waits for copies: enough of them, and none that could be left out or laxer."""

from __future__ import annotations

import doctest
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import ir.kernel.barriers
from ir.kernel.barriers import Barrier, barriers, verify_barriers
from ir.kernel.body import COPY, THREADS, Body, Operation
from ir.kernel.modulo import Order, orders
from ir.kernel.verify import OrderError


def ahead(stages: int) -> Order:
    """Copies some blocks ahead, operands computed one block ahead of the products."""
    body = Body.parse(
        "copy: copy(W, X) -> W_tile, X_tile\n"
        "load: threads(W_tile) -> values\n"
        "form: threads(values) -> formed\n"
        "multiply: threads(formed, X_tile, sums) -> sums\n"
        "local values\n"
        f"places W_tile {stages}, X_tile {stages}, formed 2\n"
        "shared W_tile, X_tile, formed"
    )
    lag = stages - 1
    return Order(body, (0, lag - 1, lag - 1, lag), (1, 0, 3, 2))


def test_examples() -> None:
    assert doctest.testmod(ir.kernel.barriers).attempted
    assert not doctest.testmod(ir.kernel.barriers).failed


def test_bodies_that_share_are_their_text() -> None:
    body = ahead(4).body
    assert Body.parse(str(body)) == body


@pytest.mark.parametrize("stages", [3, 4, 6])
def test_one_barrier_a_block_is_enough(stages: int) -> None:
    order = ahead(stages)
    found = barriers(order)
    assert found == (Barrier(0, stages - 3),)
    verify_barriers(order, found)
    late = f"load and form {stages - 2} blocks, multiply {stages - 1} blocks"
    assert order.words() == f"{late} behind copy"


def test_what_is_forgotten_is_named() -> None:
    order = ahead(4)
    with pytest.raises(OrderError, match=r"reads W_tile\.0, which copy of 0 still writes"):
        verify_barriers(order, (Barrier(0, None),))
    with pytest.raises(OrderError, match=r"load of 0 reads W_tile\.0, which copy of 0 still"):
        verify_barriers(order, (Barrier(0, 2),))
    with pytest.raises(OrderError, match=r"meet in .* without a barrier"):
        verify_barriers(order, (Barrier(3, 0),))


@st.composite
def looped(draw: st.DrawFn) -> Order:
    """Copies, what threads make of them and of each other, in one of the orders of all that."""
    values = st.lists(st.sampled_from("abcd"), max_size=2, unique=True).map(tuple)
    made = [Operation("copy", COPY, (), tuple(draw(st.sampled_from(["a", "b", "ab"]))))]
    for number in range(draw(st.integers(1, 3))):
        made.append(Operation(f"f{number}", THREADS, draw(values), draw(values)))
    made[-1] = replace(made[-1], reads=made[0].writes)  # what is copied is read
    written = sorted({value for one in made for value in one.writes})
    first = {v: next(o for o in made if v in (*o.reads, *o.writes)) for v in written}
    turns = [(v, draw(st.integers(2, 4))) for v in written if v not in first[v].reads]
    shared = draw(st.sets(st.sampled_from("abcd"))) | {*made[0].writes}
    body = Body(tuple(made), places=tuple(turns), shared=frozenset(shared))
    return draw(st.sampled_from(orders(body, 2)))


@given(order=looped())
@settings(max_examples=55, deadline=None)
def test_every_loop_means_its_body(order: Order) -> None:
    verify_barriers(order, barriers(order))


@given(order=looped(), data=st.data())
@settings(max_examples=55, deadline=None)
def test_nothing_is_left_out_or_laxer(order: Order, data: st.DataObject) -> None:
    found = barriers(order)
    assume(found)
    number = data.draw(st.integers(0, len(found) - 1))
    with pytest.raises(OrderError):
        verify_barriers(order, (*found[:number], *found[number + 1 :]))
    running = found[number].running
    if running is not None:
        lax = replace(found[number], running=running + 1)
        with pytest.raises(OrderError):
            verify_barriers(order, (*found[:number], lax, *found[number + 1 :]))
