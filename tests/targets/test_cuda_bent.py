"""Windows whose indices bend back at the edges of a tensor: repeated, mirrored, wrapped around."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from ir import Graph, indices, maximum, minimum, reduce, where
from ir.bends import bends
from ir.program import Program
from ir.targets.cuda.layouts.bent import plain_access
from ir.targets.cuda.space.block_shape import BlockShape
from ir.tiles import Tile
from tests.cuda.run import needs_compiler
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.formed import kernel_problems
from tests.targets.test_cuda_windows import pinned

Bending = Callable[[Tile, int], Tile]


def _mirrored(u: Tile, n: int) -> Tile:
    u = where(u < 0, -u, u)
    return where(u > n - 1, 2 * (n - 1) - u, u)


BENDS: Mapping[str, Bending] = {
    "repeated": lambda u, n: minimum(maximum(u, 0), n - 1),
    "wrapped": lambda u, n: u % n,
    "chosen": lambda u, n: where(u < 0, u + n, where(u >= n, u - n, u)),
    "mirrored": _mirrored,
    "symmetric": lambda u, n: where(u < 0, -1 - u, where(u >= n, 2 * n - 1 - u, u)),
}
OTHERS: Mapping[str, Bending] = {
    "backwards": lambda u, n: n - 1 - minimum(maximum(u, 0), n - 1),  # no plain index inside
    "halved": lambda u, n: maximum(u, 0) // 2,
    "squared": lambda u, n: minimum(u * u, n - 1),
}


def boxes(
    bend: Bending, h: int, w: int, dtype: str = "f32", taps: int = 3, step: int = 1
) -> Program:
    """Weighted sums of boxes of an image, of every `step` points."""
    g = Graph("boxes")
    y, x, p, q = g.axes(y=h // step, x=w // step, p=taps, q=taps)
    image, r = g.tensor("I", (h, w), dtype), taps // 2
    value = image[
        bend(g.iota(y) * step + g.iota(p) - r, h), bend(g.iota(x) * step + g.iota(q) - r, w)
    ]
    weights = g.input("K", (p, q), "f32")
    g.output("O", reduce("sum", value * weights, over=(p, q)), "f32", (y, x))
    return g.program()


def cross(bend: Bending, h: int, w: int) -> Program:
    """A step of heat, by loads of their own."""
    g = Graph("cross")
    y, x = g.axes(y=h, x=w)
    image = g.tensor("I", (h, w), "f32")

    def at(down: int, across: int) -> Tile:
        return image[bend(g.iota(y) + down, h), bend(g.iota(x) + across, w)]

    around = at(1, 0) + at(-1, 0) + at(0, 1) + at(0, -1)
    g.output("O", image[y, x] + 0.1 * (around - 4 * image[y, x]), "f32", (y, x))
    return g.program()


@pytest.mark.parametrize("name", BENDS)
def test_an_index_that_bends_is_a_sum_of_axes_inside(name: str) -> None:
    program = boxes(BENDS[name], 12, 16)
    ((position, found),) = bends(program).items()
    assert {number: dict(bend.of.terms) for number, bend in found.items()} == {
        0: {"y": 1, "p": 1}, 1: {"x": 1, "q": 1},
    }  # fmt: skip
    for number, extent in ((0, 12), (1, 16)):
        there = np.arange(-1, extent + 1)
        assert np.array_equal(found[number].values(program, 0, extent - 1), there[1:-1])
        ends = found[number].values(program, -1, extent)
        assert ends.min() >= 0
        assert ends.max() < extent
    assert plain_access(program, position).plain


@pytest.mark.parametrize("name", OTHERS)
def test_others_do_not(name: str) -> None:
    assert not bends(boxes(OTHERS[name], 12, 16))


def test_neither_do_data() -> None:
    g = Graph("data")
    i, j = g.axes(i=6, j=8)
    place = maximum(g.input("at", (i,), "i32", indices(9)) + g.iota(j) - 8, 0)
    g.output("Y", g.tensor("X", (9,), "f32")[place], "f32", (i, j))
    assert not bends(g.program())


def test_what_bends_is_read_by_vectors() -> None:
    program = cross(BENDS["repeated"], 64, 512)
    own: dict[str, object] = {"own.x": 4, "vector": 4, "own.y": 4, "tile.y": 4, "ahead": 0}
    text = BACKEND.lower(program, pinned(program, own), HARDWARE).text("cuda")
    assert text.split("//@ kernel")[1].count("tw_read_16(") >= 1
    assert "else {" in text.split("//@ kernel")[1]


def test_lanes_do_not_go_along_a_short_window() -> None:
    g = Graph("pooled")
    y, x, p, q = g.axes(y=16, x=64, p=5, q=5)
    image = g.tensor("I", (32, 128), "f16", fill=0)
    value = image[2 * y + p - 2, 2 * x + q - 2]
    g.output("O", reduce("max", value, over=(p, q)), "f16", (y, x))
    assert BlockShape(g.program()).lanes[0] == "x"


CASES: tuple[Callable[[], Program], ...] = (
    *(lambda bend=bend: boxes(bend, 12, 16) for bend in BENDS.values()),
    *(lambda bend=bend: cross(bend, 9, 21) for bend in BENDS.values()),
    lambda: boxes(BENDS["mirrored"], 11, 19, "u8", 5),
    lambda: boxes(BENDS["repeated"], 14, 22, "f16", 5, 2),
    lambda: boxes(BENDS["wrapped"], 10, 24, "bf16"),
)


@needs_compiler
@pytest.mark.parametrize("case", range(len(CASES)))
def test_kernels_of_it_are_right(case: int) -> None:
    assert not kernel_problems(CASES[case]())
