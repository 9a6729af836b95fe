"""Tiles of unequal main loops: each is dealt once, the longest first, and means the program."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ir import Graph, cast, contract, where
from ir.inputs import random_inputs
from ir.program import Program
from ir.targets.cuda.grid.dealing import declare_dealt
from ir.targets.cuda.text.writer import Writer
from tests.emulator.emulate import compiler
from tests.few import draws
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, built
from tests.targets.test_cuda_emulated import problems


def _triangular(upper: bool) -> Program:
    """A product with a triangular matrix, of which half is not read."""
    g = Graph("triangular")
    m, n, k = g.axes(m=320, n=72, k=320)
    a, b = g.input("A", (m, k), "bf16"), g.input("B", (n, k), "bf16")
    inside = g.iota(k) >= m if upper else g.iota(k) <= m
    masked = cast(where(inside, a, 0.0), "bf16")
    g.output("C", cast(contract(masked, b, over=k), "bf16"))
    return g.program()


ATTENTION = {"b": 5, "heads": 2, "kv_heads": 1, "sq": 264, "d": 64, "dtype": "bf16"}
CAUSAL = built("attention", {**ATTENTION, "causal": True})


def _place(deal: int, batches: int, counts: tuple[int, int, int], tile: int) -> tuple[int, ...]:
    """What the text says of one tile."""
    w = Writer()
    names = declare_dealt(w, "tile", deal, batches, counts, True)
    found = {"tile": tile}
    for line in w.lines:
        name, text = re.fullmatch(r"\s*(?:const )?i32 (\w+) = (.*);", line).groups()  # type: ignore[union-attr]
        found[name] = eval(text.replace("/", "//"), {"min": min}, found)
    return tuple(found[name] for name in names)


@given(
    st.sampled_from([1, 4, 16]), st.integers(1, 40),
    st.tuples(st.integers(1, 7), st.integers(1, 3), st.integers(1, 3)),
)  # fmt: skip
def test_each_tile_is_dealt_once_and_the_longest_first(
    deal: int, batches: int, counts: tuple[int, int, int]
) -> None:
    steps, others, columns = counts
    total = batches * steps * others * columns
    places = [_place(deal, batches, counts, tile) for tile in range(total)]
    every = {
        (b, r, c) for b in range(batches) for r in range(steps * others) for c in range(columns)
    }
    assert set(places) == every
    for section in range(0, batches, deal):
        here = [row % steps for batch, row, _ in places if section <= batch < section + deal]
        assert here == sorted(here, reverse=True)


def test_it_is_a_choice_where_tiles_are_unequal() -> None:
    equal = BACKEND.space(built("attention", ATTENTION), HARDWARE)
    near = {**ATTENTION, "causal": True, "window": 100}
    window = BACKEND.space(built("attention", near), HARDWARE)
    assert not any(name.startswith("deal") for space in (equal, window) for name in space.names)
    assert BACKEND.space(CAUSAL, HARDWARE).decision("deal").domain == (0, 1, 4)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("deal", [1, 4])
@draws(1, 2)
@pytest.mark.alike(2)
def test_dealt_attention_means_the_program(deal: int, count: int) -> None:
    inputs = random_inputs(CAUSAL, np.random.default_rng(1))
    wanted = bounds_of(CAUSAL, inputs)
    space = BACKEND.space(CAUSAL, HARDWARE).pin({"deal": deal})
    for number, row in enumerate(space.sample(np.random.default_rng(2), count)):
        schedule = space.schedule(row)
        kernel = BACKEND.lower(CAUSAL, schedule, HARDWARE)
        assert not problems(CAUSAL, kernel, inputs, wanted, (15, 0)[number]), schedule.to_json()


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("upper", [False, True])
def test_dealt_products_mean_the_program(upper: bool) -> None:
    program = _triangular(upper)
    space = BACKEND.space(program, HARDWARE)
    names = [name for name in space.names if name.split(".")[-1] == "deal"]
    assert names
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted = bounds_of(program, inputs)
    space = space.pin({names[0]: 1})
    for number, row in enumerate(space.sample(np.random.default_rng(2), 2)):
        schedule = space.schedule(row)
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        assert not problems(program, kernel, inputs, wanted, (0, 6)[number]), schedule.to_json()
