"""Loads that run ahead: every step's are asked for once, waited for, and taken once, in order."""

from __future__ import annotations

import doctest
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ir.kernel.passes.load_ahead
import ir.kernel.passes.waits
from ir.kernel.body import COPY
from ir.kernel.passes import LoadAhead, Pass, Waits, after_each
from ir.kernel.passes.load_ahead import CP_ASYNC, WORDS
from ir.kernel.tile_kernel import (
    ADVANCE,
    BARRIER,
    BEFORE,
    BLOCK,
    BLOCKS,
    COMMIT_COPIES,
    COPIED,
    TILE,
    Alloc,
    At,
    Do,
    If,
    KernelError,
    Loop,
    Scope,
    Statement,
    Sync,
    TileKernel,
)

TWO_RUNS = """
kernel softmax
registers X: bf16[n 512] of 0
op prefetch: copy(X) ->
  copy 0 by l2
op first: threads() -> W
  map 1
op load.0: copy(X) -> X
  copy 0
op reduce.2: threads(X, max_2) -> max_2
  reduce 2
op load.1: copy(X) -> X
  copy 0
op store.3: threads(X, max_2) ->
  store 3
for block from 0 to 2
  if left >= 1
    do prefetch
do first later never
for block from 0 to blocks
  do load.0
  do reduce.2
for block from 0 to blocks
  do load.1
  do store.3
"""
TILES = """
kernel rows
registers X: bf16[n 512] of 0
registers W: bf16[n 512] of 1
op load: copy(X, W) -> X, W
  copy 0
  copy 1
op store.2: threads(X, W) ->
  store 2
for tile
  do load
  do store.2
"""
LOADS = """
kernel two
registers X: bf16[n 512] of 0
registers Y: bf16[n 512] of 1
op load.x: copy(X) -> X
  copy 0
op load.y: copy(Y) -> Y
  copy 1
for block from 0 to blocks
  do load.x
  do load.y
"""
KERNELS = {"two runs": TWO_RUNS, "tiles": TILES, "two loads": LOADS}


def _passes(depth: int, by: str) -> tuple[Pass, ...]:
    return (LoadAhead(depth, by), Waits(early=True, exchanges=True))


@dataclass
class Thread:
    """One thread that runs a kernel's statements for so many steps of every main loop.

    `waiting` are slots by tile: the step whose words are there. Copies of a group come in at the
    last moment, when somebody waits for them.
    """

    kernel: TileKernel
    steps: int
    waiting: dict[tuple[str, int], int] = field(default_factory=dict)
    present: dict[str, int] = field(default_factory=dict)  # slots by ring
    open: list[tuple[str, int, int]] = field(default_factory=list)  # copies of no group yet
    groups: list[list[tuple[str, int, int]]] = field(default_factory=list)
    used: set[tuple[str, int]] = field(default_factory=set)  # slots from asking to taking
    asked: dict[str, list[int]] = field(default_factory=dict)
    taken: dict[str, list[int]] = field(default_factory=dict)

    def run(self, body: Iterable[Statement], step: int = 0) -> None:
        for one in body:
            self.statement(one, step)

    def statement(self, one: Statement, step: int) -> None:
        if isinstance(one, Loop):
            assert one.step == 1
            for each in range(one.first.value(0, self.steps), one.end.value(0, self.steps)):
                self.run(one.body, each)
        elif isinstance(one, Scope):
            self.run(one.body, step)
        elif isinstance(one, If):
            if one.when.holds(step, self.steps):
                self.run(one.body, step)
        elif isinstance(one, Alloc):
            self.present |= dict.fromkeys(one.names, 0)
        elif isinstance(one, Sync):
            self.sync(one)
        else:
            assert isinstance(one, Do)
            self.do(one, one.at.value(step, self.steps))

    def sync(self, one: Sync) -> None:
        if one.kind == COMMIT_COPIES:
            self.groups.append(self.open)
            self.open = []
        elif one.kind == COPIED:
            while len(self.groups) > one.number:
                self.arrive(self.groups.pop(0))
        elif one.kind == ADVANCE:
            self.present[one.of] = (self.present[one.of] + 1) % self.kernel.ring(one.of).slots
        else:
            assert one.kind in (BARRIER, BEFORE)

    def arrive(self, copies: list[tuple[str, int, int]]) -> None:
        for tile, slot, step in copies:
            self.waiting[tile, slot] = step

    def do(self, one: Do, step: int) -> None:
        operation = self.kernel.operation(one.operation)
        word = one.operation.partition(".")[0]
        if word not in ("ask", "take"):
            return
        assert 0 <= step < self.steps
        ring = operation.takes[0] if operation.takes else ""
        slots = self.kernel.ring(ring).slots if ring else 1
        if operation.unit == COPY:
            copies = [(tile, step % slots, step) for tile in operation.writes]
            self.asked.setdefault(one.operation, []).append(step)
            for tile, slot, _ in copies:
                assert (tile, slot) not in self.used, "a slot is filled that was not taken"
                self.used.add((tile, slot))
            if ring:
                self.open += copies
            else:
                self.arrive(copies)
            return
        if ring:
            assert self.present[ring] == step % slots
        for tile in operation.reads:
            assert self.waiting.pop((tile, step % slots)) == step
            self.used.remove((tile, step % slots))
        self.taken.setdefault(one.operation, []).append(step)


@given(st.sampled_from(sorted(KERNELS)), st.integers(1, 6), st.integers(0, 12), st.booleans())
def test_steps_are_asked_for_once_and_taken_in_order(
    name: str, depth: int, steps: int, words: bool
) -> None:
    built = TileKernel.parse(KERNELS[name])
    depth, by = (1, WORDS) if words else (depth, CP_ASYNC)
    (*_, (_, kernel)) = after_each(built, _passes(depth, by))
    thread = Thread(kernel, steps)
    thread.run(kernel.body)
    every = list(range(steps)) if steps else []
    loads = [one.name.removeprefix("load") for one in built.operations if "load" in one.name]
    for load in loads:
        assert thread.asked.get(f"ask{load}", []) == every
        assert thread.taken.get(f"take{load}", []) == every
    assert not thread.used
    assert not thread.groups
    assert not thread.open


@pytest.mark.parametrize("module", [ir.kernel.passes.load_ahead, ir.kernel.passes.waits])
def test_examples(module: ModuleType) -> None:
    assert doctest.testmod(module).attempted
    assert not doctest.testmod(module).failed


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("depth", "by"), [(1, CP_ASYNC), (3, CP_ASYNC), (1, WORDS)])
def test_a_kernel_parses_to_itself_behind_each_pass(name: str, depth: int, by: str) -> None:
    for _, kernel in after_each(TileKernel.parse(KERNELS[name]), _passes(depth, by)):
        again = TileKernel.parse(str(kernel))
        assert again == kernel
        assert str(again) == str(kernel)


def test_only_the_last_pass_synchronises() -> None:
    kernels = [kernel for _, kernel in after_each(TileKernel.parse(TILES), _passes(2, CP_ASYNC))]
    syncs = [[str(s) for s in one.statements() if isinstance(s, Sync)] for one in kernels]
    assert syncs == [[], [], [
        "sync kernel-before", "sync commit-copies", "sync copied 1", "sync commit-copies",
        "sync advance ahead", "sync barrier exchanged", "sync copied",
    ]]  # fmt: skip


def test_prefetches_do_not_wait_for_the_kernel_before() -> None:
    (*_, (_, kernel)) = after_each(TileKernel.parse(TWO_RUNS), _passes(2, CP_ASYNC))
    assert [str(one) for one in kernel.body[:3]] == [
        "for block from 0 to 2", "sync kernel-before", "do first later never",
    ]  # fmt: skip


def test_a_loop_over_tiles_begins_with_the_first_tiles() -> None:
    (*_, (_, kernel)) = after_each(TileKernel.parse(TILES), _passes(3, CP_ASYNC))
    _, registers, filled, main, _ = kernel.body
    assert str(registers) == "registers ahead"
    assert isinstance(filled, Loop)
    assert isinstance(main, Loop)
    assert str(filled) == "for tile from 0 to 3"
    assert (main.over, main.end) == (TILE, At(BLOCKS))
    assert [str(one) for one in main.body[1:3]] == ["do take", "if left >= 4"]


def test_copies_of_others_stay_where_they_are() -> None:
    built = TileKernel.parse("""
kernel product
op fetch: copy(A) -> a takes r
  copy 0 by tma
for block from 0 to blocks
  do fetch""")
    assert LoadAhead(2, CP_ASYNC)(built) == built


def test_what_is_left_is_a_condition() -> None:
    with pytest.raises(KernelError, match="'right >= 2' is no condition"):
        TileKernel.parse("kernel k\nif right >= 2\n  do a")
    (one,) = TileKernel.parse("kernel k\nif left >= 2\n  do a of tile+1").body
    assert isinstance(one, If)
    assert [one.when.holds(step, 3) for step in range(3)] == [True, True, False]
    assert one.body == (Do("a", At(TILE, 1)),)
    assert At(BLOCK, 1) != At(TILE, 1)


def test_threads_meet_before_another_ring_takes_the_place_of_one() -> None:
    kernel = TileKernel.parse(TWO_RUNS)
    for one in _passes(3, CP_ASYNC):
        kernel = one(kernel)
    text = str(kernel)
    meeting = "sync barrier overlaid"
    assert text.count(meeting) == 1
    first, second = text.index("registers ahead.0"), text.index("registers ahead.1")
    assert first < text.index(meeting) < second


def test_one_ring_needs_no_meeting() -> None:
    kernel = TileKernel.parse(TILES)
    for one in _passes(3, CP_ASYNC):
        kernel = one(kernel)
    assert "overlaid" not in str(kernel)
