"""Copies ahead of a loop, and where threads meet: what is done, in which order, behind what."""

from __future__ import annotations

import doctest
from dataclasses import replace
from types import ModuleType

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import ir.kernel.passes.ahead
import ir.kernel.passes.meet
import ir.kernel.tile_kernel
from ir.kernel.body import COPY, MAP, THREADS, Body, Operation, Part
from ir.kernel.modulo import Order, orders
from ir.kernel.passes import Ahead, Meet, after_each
from ir.kernel.tile_kernel import BLOCK, Do, KernelError, Loop, Sync, TileKernel, walk
from ir.kernel.verify import OrderError, meaning
from tests.kernel.running import events, values

STAGED = Body.parse(
    "copy: copy(W, X) -> W_tile, X_tile\n"
    "load: threads(W_tile) -> values\n"
    "form: threads(values) -> formed\n"
    "multiply: threads(formed, X_tile, sums) -> sums\n"
    "local values\n"
    "places W_tile 4, X_tile 4, formed 2\n"
    "shared W_tile, X_tile, formed"
)
LATE = Order(STAGED, (0, 2, 2, 3), (1, 0, 3, 2))
DIRECT = Body.parse(
    "copy: copy(X) -> X_tile\n"
    "load: threads(V, W) -> values\n"
    "form: threads(values) -> formed\n"
    "multiply: threads(formed, X_tile, sums) -> sums\n"
    "local values\n"
    "places X_tile 3, formed 3\n"
    "shared X_tile, formed"
)


def kernel_of(body: Body, parts: int = 0) -> TileKernel:
    """One block after the other; threads' operations have so many parts."""
    made = tuple(
        replace(one, parts=tuple(Part(MAP, n) for n in range(parts)) if one.unit == THREADS else ())
        for one in body.operations
    )
    loop = Loop(BLOCK, tuple(Do(one.name) for one in made))
    return TileKernel("k", operations=made, body=(loop,))


def lines(kernel: TileKernel) -> list[str]:
    """Its statements."""
    found = str(kernel).splitlines()
    heads = [n for n, line in enumerate(found) if line.startswith(("op ", "  map"))]
    return found[max(heads) + 1 :]


@pytest.mark.parametrize("module", [
    ir.kernel.passes.ahead, ir.kernel.passes.meet, ir.kernel.tile_kernel,
])  # fmt: skip
def test_examples(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert found.attempted
    assert not found.failed


def test_what_is_computed_of_copies_is_a_step_ahead() -> None:
    kernel = Meet(LATE, True)(Ahead(LATE)(kernel_of(STAGED)))
    assert lines(kernel) == [
        "sync kernel-before",
        "for block from 0 to 3",
        "  if left >= 1",
        "    do copy",
        "  sync commit-copies",
        "sync copied 2",
        "sync barrier",
        "scope ahead 2",
        "  do load of 0 later never",
        "  do form of 0 later never",
        "for block from 0 to blocks order load:2,form:2,multiply:3",
        "  sync copied 1",
        "  sync barrier",
        "  do load of block+1 later always",
        "  if left >= 4",
        "    do copy of block+3 later always",
        "  sync commit-copies",
        "  do multiply",
        "  do form of block+1 later always",
        "sync copied",
    ]


def test_what_is_handed_on_ahead_is_done_part_by_part() -> None:
    order = Order(DIRECT, (0, 0, 0, 2), (1, 0, 3, 2))
    kernel = Ahead(order, 9, 9)(kernel_of(DIRECT, parts=2))
    assert lines(kernel)[:6] == [
        "for block from 0 to 2",
        "  do copy",
        "  do load piece 0",
        "  do form piece 0",
        "  do load piece 1",
        "  do form piece 1",
    ]
    assert lines(Ahead(order, 9, 9)(kernel_of(DIRECT, parts=1)))[2:4] == ["  do load", "  do form"]


def test_a_short_loop_has_all_groups_of_copies() -> None:
    kernel = Meet(LATE)(Ahead(LATE, 1, 1)(kernel_of(STAGED)))
    assert lines(kernel)[:7] == [
        "for block from 0 to 1",
        "  do copy",
        "  sync commit-copies",
        "sync commit-copies",
        "sync commit-copies",
        "sync copied 2",
        "sync barrier",
    ]


def test_all_meet_where_others_made_what_is_read_behind_the_loop() -> None:
    made = kernel_of(STAGED)
    more = (
        Operation("finish", THREADS, ("sums",), ("staged", "W_tile", "X_tile")),
        Operation("store", THREADS, ("staged",), ()),
    )
    tiles = TileKernel.parse("kernel t\nshared staged: f32[m 16] of 7").tiles
    body = (*made.body, *(Do(one.name) for one in more))
    made = replace(made, tiles=tiles, operations=(*made.operations, *more), body=body)
    found = lines(Meet(LATE)(Ahead(LATE)(made)))
    assert found[-5:] == ["sync copied", "sync barrier", "do finish", "sync barrier", "do store"]


@pytest.mark.parametrize("number", range(3))
def test_a_kernel_prints_and_parses_to_itself(number: int) -> None:
    behind = tuple(after_each(kernel_of(STAGED, 2), (Ahead(LATE), Meet(LATE, True))))
    name, kernel = behind[number]
    assert name == ("build", "ahead", "meet")[number]
    assert TileKernel.parse(str(kernel)) == kernel


def test_what_cannot_run_ahead_is_refused() -> None:
    late = Body.parse("a: threads() -> y\ncopy: copy() -> x\nb: threads(x, s) -> s\nplaces x 2")
    with pytest.raises(KernelError, match="copy is not what begins a block"):
        Ahead(Order(late, (0, 0, 1), (0, 1, 2)))(kernel_of(late))
    few = replace(STAGED, places=(("W_tile", 2), ("X_tile", 4), ("formed", 2)))
    with pytest.raises(KernelError, match=r"W_tile has 2 places, copy fills 3 ahead of load"):
        Ahead(replace(LATE, body=few))(kernel_of(few))
    with pytest.raises(KernelError, match="0 loops over copy, "):
        Ahead(LATE)(kernel_of(STAGED).with_body(()))
    near = Order(STAGED, (0, 0, 0, 1), (0, 1, 2, 3))
    with pytest.raises(KernelError, match="what begins a block is shared"):
        Meet(near)(Ahead(near)(kernel_of(STAGED)))


def test_a_wait_or_barrier_that_is_missing_is_noticed() -> None:
    kernel = Meet(LATE)(Ahead(LATE)(kernel_of(STAGED)))
    text = str(kernel)
    for missing in ("sync copied 2\n", "  sync copied 1\n", "  sync barrier\n"):
        spoilt = TileKernel.parse(text.replace(missing, "", 1))
        with pytest.raises(OrderError):
            values(spoilt, STAGED, 6)


# -- drawn loops


@st.composite
def looped(draw: st.DrawFn) -> Order:
    """A copy, what threads make of it and of each other, in one of the orders of all that."""
    names = st.lists(st.sampled_from("abcd"), max_size=2, unique=True).map(tuple)
    made = [Operation("copy", COPY, (), tuple(draw(st.sampled_from(["a", "b", "ab"]))))]
    for number in range(draw(st.integers(1, 3))):
        made.append(Operation(f"f{number}", THREADS, draw(names), draw(names)))
    last = tuple(dict.fromkeys((*made[0].writes, *made[-1].reads, "s")))
    made[-1] = replace(made[-1], reads=last, writes=("s",))
    written = sorted({value for one in made for value in one.writes})
    first = {v: next(o for o in made if v in (*o.reads, *o.writes)) for v in written}
    turns = [(v, draw(st.integers(2, 4))) for v in written if v not in first[v].reads]
    shared = draw(st.sets(st.sampled_from("abcd"))) | {*made[0].writes}
    body = Body(tuple(made), places=tuple(turns), shared=frozenset(shared))
    found = [order for order in orders(body, 3) if order.stages[0] == 0 and order.depth]
    assume(found)
    return draw(st.sampled_from(found))


@st.composite
def ahead(draw: st.DrawFn) -> tuple[Ahead, int]:
    """The pass for a drawn order, and how many blocks there are."""
    order, blocks = draw(looped()), draw(st.integers(0, 7))
    known = draw(st.booleans())
    return Ahead(order, blocks, blocks) if known else Ahead(order), blocks


def made_ahead(found: Ahead) -> TileKernel:
    try:
        return found(kernel_of(found.order.body))
    except KernelError:
        assume(False)
        raise


@given(drawn=ahead())
@settings(max_examples=55, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_every_operation_of_every_block_is_done_once(drawn: tuple[Ahead, int]) -> None:
    found, blocks = drawn
    body = found.order.body
    kernel = made_ahead(found)
    assert TileKernel.parse(str(kernel)) == kernel
    passing = body.local | {value for value, _ in body.places}
    for one in body.operations:
        every = [event for event in events(kernel.body, blocks) if not isinstance(event, Sync)]
        done = [block for do, block in every if do.operation == one.name]
        assert [block for block in done if block < blocks] == list(range(blocks))
        assert len(done) == blocks or (one.unit == THREADS and {*one.writes} <= passing)


@given(drawn=ahead())
@settings(max_examples=55, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_every_loop_means_its_body(drawn: tuple[Ahead, int]) -> None:
    found, blocks = drawn
    body, kernel = found.order.body, made_ahead(found)
    try:
        met = Meet(found.order)(kernel)
    except KernelError:
        assume(False)
        raise
    assert not any(isinstance(one, Sync) for one in walk(kernel.body))
    wanted, there = meaning(body, blocks), values(met, body, blocks)
    turns = dict(body.places)
    for value in wanted:
        if value.partition(".")[0] not in turns:
            assert there.get(value) == wanted[value], value
