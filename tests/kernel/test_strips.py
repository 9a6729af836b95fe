"""Blocks in pieces: both orders mean the pieces, waits are lax, slots are freed in time."""

from __future__ import annotations

import doctest
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import ir.kernel.strip
from ir.errors import UsageError
from ir.kernel.body import TENSOR, THREADS, Body, Operation
from ir.kernel.strip import Moment, Strip, strip_orders, strip_words, verify_strip
from ir.kernel.verify import OrderError

FORMED = Body.parse(
    "form: threads(W) -> words takes ring\n"
    "multiply: tensor(words, X, sums) -> sums takes ring\n"
    "places words 2"
)


def test_examples() -> None:
    assert doctest.testmod(ir.kernel.strip).attempted
    assert not doctest.testmod(ir.kernel.strip).failed


def test_bodies_with_places_are_their_text() -> None:
    assert Body.parse(str(FORMED)) == FORMED
    with pytest.raises(UsageError, match="multiply reads words, whose places take turns"):
        Body(FORMED.operations[::-1], places=FORMED.places)
    with pytest.raises(UsageError, match="'words' is not `value count`"):
        Body.parse("places words")


def test_what_a_block_leaves_runs_beside_the_next() -> None:
    assert strip_orders(FORMED) == ("straight", "multiply:1")
    assert strip_words(FORMED, "multiply:1") == "multiply of a block beside form of the next"
    straight, through = (Strip(FORMED, 4, way) for way in (False, True))
    waits = [[m.running for m in way.moments if m.operation == 0] for way in (straight, through)]
    assert waits == [[None, 1, 1, 1], [1, 1, 1, 1]]
    assert [m.freed for m in through.moments] == [None, None, 1, None, None, None, None, None]
    assert {m.freed for m in straight.moments} == {None}
    with pytest.raises(UsageError, match="3 pieces in 2 places of words"):
        Strip(FORMED, 3, True)


def test_products_alone_free_the_block_before_when_they_are_begun() -> None:
    alone = Body.parse("multiply: tensor(A, B, sums) -> sums takes ring")
    assert strip_orders(alone) == ("straight", "multiply:1")
    assert Strip(alone, 1).end == (0, 0)
    assert Strip(alone, 1, True).end == (1, 1)
    assert strip_words(alone, "multiply:1") == "multiply of a block while the next is waited for"


@st.composite
def strips(draw: st.DrawFn) -> Strip:
    """Operands formed in turn, then products that add to sums of their own."""
    places = draw(st.integers(1, 3))
    formed = [f"words_{n}" for n in range(draw(st.integers(0, 2)))]
    some = st.lists(st.sampled_from(formed), min_size=1, unique=True) if formed else st.just([])
    rings = ("ring",) if draw(st.booleans()) else ()
    made = [Operation(f"form_{name}", THREADS, ("W",), (name,), rings) for name in formed]
    for number in range(draw(st.integers(1, 2))):
        read, sums = tuple(draw(some)), f"sums_{number}"
        made.append(Operation(f"f{number}", TENSOR, (*read, sums), (sums,), ("ring",)))
    body = Body(tuple(made), places=tuple((name, places) for name in formed))
    return Strip(body, places * draw(st.integers(1, 4)), draw(st.booleans()))


@given(strip=strips())
@settings(max_examples=55, deadline=None)
def test_every_strip_means_its_pieces(strip: Strip) -> None:
    verify_strip(strip)
    assert strip.through or not strip.pending


@given(strip=strips(), data=st.data())
@settings(max_examples=35, deadline=None)
def test_nothing_is_laxer_or_freed_sooner(strip: Strip, data: st.DataObject) -> None:
    strip = replace(strip, through=True)
    assert strip.end == (None, None) or not any("words" in v for v, _ in strip.body.places)
    several = [n for n, moment in enumerate(strip.moments) if moment.running is not None]
    assume(several)
    number = data.draw(st.sampled_from(several))
    wait = strip.moments[number].running or 0
    with pytest.raises(OrderError):
        verify_strip(_with(strip, number, running=wait + 1))
    frees = [n for n, moment in enumerate(strip.moments) if moment.freed]
    if frees:
        sooner = (strip.moments[frees[0]].freed or 0) - 1
        with pytest.raises(OrderError, match="slots of"):
            verify_strip(_with(strip, frees[0], freed=sooner))


def _with(strip: Strip, number: int, **changed: int) -> Strip:
    """The strip with another moment in place of one."""
    found = replace(strip)
    moments: list[Moment] = [*strip.moments]
    moments[number] = replace(moments[number], **changed)
    found.__dict__["moments"] = tuple(moments)
    return found
