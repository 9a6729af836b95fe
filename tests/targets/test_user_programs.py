"""Programs of kinds that no other file knows, of the ops for order and places: against references
that share nothing with the oracle, and on both targets."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer.measure import Measurer
from ir import (
    Graph,
    cast,
    evaluate,
    exp,
    lookup,
    minimum,
    operator,
    random_inputs,
    recur,
    reduce,
    where,
)
from ir.dtypes import to_float
from ir.packs import unpack
from ir.values import uniform
from tests.emulator.emulate import compiler
from tests.targets.test_unforeseen import CPU, CUDA, HOPPER, emulated

Arrays = Mapping[str, np.ndarray]


def _crc_table() -> list[int]:
    table = list(range(256))
    for _ in range(8):
        table = [entry >> 1 ^ (0xEDB88320 if entry & 1 else 0) for entry in table]
    return table


@operator
def crc(g: Graph, m: int, n: int) -> None:
    """CRC-32 of rows of bytes: a state that a table of constants steps."""
    row, place = g.axes(m=m, n=n)
    state = g.state(place, (row,), first=0xFFFFFFFF, dtype="u32")
    index = (state ^ g.input("X", (row, place), "u8")) & 255
    after = cast(lookup(_crc_table(), index, "u32") ^ (state >> 8), "i64")
    g.output("Y", recur(state, after) ^ 0xFFFFFFFF, "u32")


def _crc(x: Arrays) -> dict[str, Any]:
    return {"Y": [zlib.crc32(row.tobytes()) for row in x["X"]]}


@operator
def edit_distance(g: Graph, m: int, n: int) -> None:
    """How many changes, insertions and deletions make B of the first letters of A, row by row."""
    i, j = g.axes(m=m, n=n)
    letters = uniform(0, 3)
    a, b = g.input("A", (i,), "i32", letters), g.input("B", (j,), "i32", letters)
    row = g.state(i, (j,), first=g.iota(j) + 1, dtype="i32")
    left = where(g.iota(j) == 0, g.iota(i), row.at({j: j - 1}, fill=0))
    changed = minimum(row + 1, left + where(a == b, g.constant(0, "i32"), 1))
    other = g.axis("other", n)  # letters inserted behind the one at `other`
    inserted = where(other <= g.iota(j), changed.at({j: other}) + (g.iota(j) - g.iota(other)), 999)
    first = g.coordinate(i + 1) + g.coordinate(j + 1)
    g.output("Y", recur(row, minimum(reduce("min", inserted, other), first)))


def _edit_distance(x: Arrays) -> dict[str, Any]:
    row = list(range(len(x["B"]) + 1))
    for number, letter in enumerate(x["A"], 1):
        after = [number]
        for place, other in enumerate(x["B"], 1):
            cheapest = min(row[place] + 1, after[-1] + 1, row[place - 1] + (letter != other))
            after.append(cheapest)
        row = after
    return {"Y": row[1:]}


@operator
def narrow_softmax(g: Graph, m: int, blocks: int) -> None:
    """Softmax of rows as 4-bit numbers, blocks of eight of which share a power of two."""
    row, block, place = g.axes(m=m, blocks=blocks, eight=8)
    x = g.tensor("X", (m, blocks * 8), "f32")[row, block * 8 + place]
    weights = exp(x - reduce("max", reduce("max", x, place), block))
    shares = weights / reduce("sum", reduce("sum", weights, place), block)
    scale = cast(reduce("max", shares, place) / 7.0, "e8m0")
    g.output("scale", scale)
    g.output("Q", round(shares / cast(scale, "f32")), "i4", (row, block, place))


def _narrow_softmax(x: Arrays) -> dict[str, Any]:
    weights = np.exp(x["X"].astype(np.float64))
    shares = (weights / weights.sum(1, keepdims=True)).reshape(len(weights), -1, 8)
    most = shares.max(2) / 7
    below = 2.0 ** np.floor(np.log2(most))
    scale = np.where(most < 1.5 * below, below, 2 * below)
    return {"Q": np.clip(np.rint(shares / scale[..., None]), -8, 7), "scale": scale}


CASES: tuple[tuple[Any, dict[str, int], Callable[[Arrays], dict[str, Any]]], ...] = (
    (crc, {"m": 3, "n": 13}, _crc),
    (edit_distance, {"m": 6, "n": 9}, _edit_distance),
    (narrow_softmax, {"m": 3, "blocks": 3}, _narrow_softmax),
)
each_program = pytest.mark.parametrize("number", range(len(CASES)), ids=[c[0].name for c in CASES])


@each_program
def test_it_means_what_its_reference_does(number: int) -> None:
    one, arguments, reference = CASES[number]
    program = one.build(**arguments)
    inputs = random_inputs(program, np.random.default_rng(number))
    found = evaluate(program, inputs)
    for name, wanted in reference(inputs).items():
        spec = program.scope.tensors[name]
        got = unpack(found[name], spec.packs) if spec.packs else found[name]
        np.testing.assert_allclose(to_float(got, "f64"), wanted, rtol=1e-12)


@each_program
def test_kernels_of_this_machine_are_right(number: int, code_cache: Path) -> None:
    one, arguments, _ = CASES[number]
    program, hardware = one.build(**arguments), CPU.hardware(2)
    space = CPU.space(program, hardware)
    schedules = [space.schedule(row) for row in space.sample(np.random.default_rng(1), 2)]
    with Measurer(program, "cpu", hardware, cache_dir=code_cache) as measurer:
        assert [o.detail for o in measurer.measure(schedules) if not o.ok] == []


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler to emulate with")
@each_program
def test_emulated_kernels_are_right(number: int) -> None:
    one, arguments, _ = CASES[number]
    program = one.build(**arguments)
    space = CUDA.space(program, HOPPER)
    (row,) = space.sample(np.random.default_rng(2), 1)
    assert emulated(program, space.schedule(row), HOPPER) == []
