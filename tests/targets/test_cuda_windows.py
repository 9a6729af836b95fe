"""Windows: elements that several points of a thread read are loaded once, in every kernel right."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from costmodel.features import IDEAL
from explorer.strategies.opening import ESTIMATE
from ir import Graph, cast, operator, reduce
from ir.inputs import random_inputs
from ir.ops.load import Load
from ir.program import Program
from ir.schedule import Schedule
from ir.targets.cuda.layouts.access import load_access
from ir.targets.cuda.layouts.frame import Digit
from ir.targets.cuda.layouts.windows import Window, alike, spans, windows
from ir.targets.cuda.space.block_shape import BlockShape
from tests.emulator.emulate import compiler
from tests.few import draws
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems


@operator
def moving(g: Graph, t: int, c: int, width: int, step: int = 1) -> None:
    """Sums over a box that moves, every `step` points, and what is left of them."""
    i, j, w = g.axes(i=t // step, j=c, w=width)
    x = g.tensor("X", (t, c), "bf16", fill=0)
    total = reduce("sum", cast(x[i * step + w - width // 2, j], "f32"), over=w)
    g.output("Y", cast(x[i * step, j], "f32") - total / width, "bf16", (i, j))


@operator
def gradient(g: Graph, m: int, n: int) -> None:
    """The size of the gradient, and the element before in a row, backwards."""
    i, j = g.axes(i=m, j=n)
    x = g.tensor("X", (m, n), "f32", fill=2.0)
    down, across = x[i + 1, j] - x[i - 1, j], x[i, j + 1] - x[i, j - 1]
    g.output("Y", down * down + across * across + x[i - 1, j - 1], "f32", (i, j))


@operator
def backwards(g: Graph, t: int, width: int) -> None:
    """A filter whose taps go against the points."""
    i, w = g.axes(i=t, w=width)
    x, taps = g.tensor("X", (t,), "f32", fill=0), g.input("W", (w,), "f32")
    g.output("Y", reduce("sum", x[i - w] * taps, over=w), "f32", (i,))


@operator
def wavelet(g: Graph, m: int, n: int) -> None:
    """Sums and differences of neighbours, two by two."""
    i, j = g.axes(i=m, j=n)
    x = g.tensor("X", (m, 2 * n), "f32")
    first, second = x[i, 2 * j], x[i, 2 * j + 1]
    g.output("S", first + second, "f32", (i, j))
    g.output("D", first - second, "f32", (i, j))


@operator
def grey(g: Graph, m: int, n: int, dtype: str = "u8") -> None:
    """The brightness of pixels of three colours."""
    i, j = g.axes(i=m, j=n)
    x = g.tensor("X", (m, n, 3), dtype)
    red, green, blue = (cast(x[i, j, c], "f32") for c in range(3))
    g.output("Y", 0.3 * red + 0.6 * green + 0.1 * blue, "f32", (i, j))


@operator
def every_other(g: Graph, m: int, n: int) -> None:
    """Half of the points of each row, the first of the tensor left out."""
    i, j = g.axes(i=m, j=n)
    x = g.tensor("X", (m, 2 * n + 1), "f32")
    g.output("Y", x[i, 2 * j + 1] * 2.0, "f32", (i, j))


@operator
def scaled(g: Graph, m: int, n: int) -> None:
    """Pairs of points, and a number for all of them."""
    i, j = g.axes(i=m, j=n)
    x = g.tensor("X", (m, 2 * n), "bf16")
    g.output("Y", (x[i, 2 * j] - x[i, 2 * j + 1]) * g.input("s", (), "f32"), "f32", (i, j))


def found(program: Program, *digits: Digit) -> tuple[Window, ...]:
    """Windows of a thread with these digits."""
    result: list[Window] = []
    for group in alike(program):
        accesses = {}
        for position in group:
            op = program.nodes[position].op
            assert isinstance(op, Load)
            accesses[position] = load_access(op, program.scope.tensors[op.tensor])
        axes = program.nodes[group[0]].axes
        result += windows(accesses, [digit for digit in digits if digit.axis in axes])
    return tuple(result)


def test_taps_and_points_share_a_row_of_elements() -> None:
    (window,) = found(moving.build(t=64, c=16, width=9), Digit("i", 4, 1), Digit("w", 8, 1))
    assert [side.count for side in window.sides] == [4 + 8 - 1, 1]
    assert window.weights()[1] == {Digit("i", 4, 1): 1, Digit("w", 8, 1): 1}


def test_points_that_are_apart_share_nothing() -> None:
    assert not found(moving.build(t=64, c=16, width=9), Digit("i", 4, 16), Digit("w", 8, 1))
    assert not found(moving.build(t=64, c=16, width=9), Digit("i", 4, 1))


def test_strides_are_steps_of_a_window() -> None:
    (window,) = found(moving.build(t=64, c=16, width=5, step=2), Digit("i", 4, 1), Digit("w", 4, 1))
    assert window.sides[0].count == 2 * 3 + 3 + 1
    assert window.weights()[1][Digit("i", 4, 1)] == 2


def test_shifted_loads_are_one_box() -> None:
    (window,) = found(gradient.build(m=8, n=16), Digit("i", 2, 1), Digit("j", 4, 1))
    assert [side.count for side in window.sides] == [4, 6]
    assert len(window.loads) == 5
    starts = sorted(window.start(load) for load in window.loads)
    assert starts == [0, 1, 6, 8, 13]  # of loads from above on, by rows of six


def test_single_points_of_a_cross_share_nothing() -> None:
    assert not found(gradient.build(m=8, n=16))


def test_taps_that_go_backwards_begin_below() -> None:
    (window,) = found(backwards.build(t=32, width=4), Digit("i", 4, 1), Digit("w", 4, 1))
    assert (window.sides[0].least, window.sides[0].count) == (-3, 7)
    assert window.weights()[1] == {Digit("i", 4, 1): 1, Digit("w", 4, 1): -1}
    assert window.start(window.loads[0]) == 3


def test_rows_are_vectors_and_single_elements_at_their_ends() -> None:
    (window,) = found(gradient.build(m=8, n=16), Digit("i", 2, 1), Digit("j", 4, 1))
    assert spans(window, 4) == [(-1, [0]), (0, [1, 2, 3, 4]), (4, [5])]
    assert spans(window, 1) == [(n - 1, [n]) for n in range(6)]


def test_points_that_lie_a_few_elements_apart_are_read_as_neighbours() -> None:
    """A colour of pixels is no neighbour of the next pixel's; all three colours together are."""
    for program, own, call, reads in (
        (wavelet.build(m=64, n=512), 4, "tw_read_16(", 2),
        (grey.build(m=64, n=512, dtype="f32"), 4, "tw_read_16(", 3),
        (grey.build(m=64, n=512), 4, "tw_read_4(", 3),
        (every_other.build(m=64, n=512), 4, "tw_read_16(", 0),  # rows begin anywhere
    ):
        pins: dict[str, object] = {"own.j": own, "vector": 4, "tile.j": own * 32, "own.i": 1}
        text = BACKEND.lower(program, pinned(program, pins | {"ahead": 0}), HARDWARE).text("cuda")
        assert text.split("//@ kernel")[1].count(call) == reads, program.name


def test_an_estimate_counts_sectors_once_for_all_loads_of_a_window() -> None:
    """Half and half of pairs take as long as as many neighbours do."""
    g = Graph("plain")
    i, j = g.axes(i=4096, j=8192)
    g.output("S", g.input("X", (i, j), "f32") * 2.0, "f32", (i, j))
    times = []
    for program in (wavelet.build(m=4096, n=4096), g.program()):
        space = BACKEND.space(program, HARDWARE)
        assert space.features is not None
        names, table = space.features(space.columns(space.seed_rows(np.random.default_rng(0))))
        told = [names.index(name) for name in (IDEAL, ESTIMATE)]
        times.append(float(np.exp2(table[:, told].sum(axis=1)).min()))
    assert times[0] < 1.5 * times[1]


PINS: dict[str, dict[str, object]] = {
    "moving": {"residence": "usual", "own.i": 4, "tile.i": 4, "own.j": 8, "vector": 8,
               "own.w": 16, "tile.w": 16, "ahead": 0},
    "gradient": {"own.j": 4, "vector": 4, "own.i": 4, "tile.i": 4, "ahead": 0},
}  # fmt: skip


def pinned(program: Program, pins: dict[str, object]) -> Schedule:
    space = BACKEND.space(program, HARDWARE)
    names = {decision.name for decision in space.decisions}
    space = space.pin({name: value for name, value in pins.items() if name in names})
    return space.schedule(space.any_legal(np.random.default_rng(0)))


def test_each_element_is_read_once() -> None:
    program = moving.build(t=256, c=512, width=9)
    text = BACKEND.lower(program, pinned(program, PINS["moving"]), HARDWARE).text("cuda")
    assert "i < 19" in text.replace("_2", "")  # 4 points and 16 taps of which 9 are summed
    assert text.split("//@ kernel")[1].count("tw_read_16(") == 1
    program = gradient.build(m=64, n=512)
    text = BACKEND.lower(program, pinned(program, PINS["gradient"]), HARDWARE).text("cuda")
    assert text.split("//@ kernel")[1].count("tw_read_16(") == 1
    assert "[36]" in text  # six rows of six


CASES: tuple[Callable[[], Program], ...] = (
    lambda: moving.build(t=37, c=24, width=9),
    lambda: moving.build(t=40, c=16, width=5, step=2),
    lambda: gradient.build(m=11, n=32),
    lambda: gradient.build(m=9, n=21),
    lambda: backwards.build(t=75, width=7),
    lambda: wavelet.build(m=7, n=37),
    lambda: wavelet.build(m=8, n=64),
    lambda: grey.build(m=5, n=43),
    lambda: grey.build(m=4, n=128, dtype="f32"),
    lambda: every_other.build(m=5, n=70),
    lambda: scaled.build(m=5, n=70),
)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("number", range(len(CASES)))
@draws(3, 6)
@pytest.mark.alike(2)
def test_windowed_kernels_mean_their_program(number: int, count: int) -> None:
    program = CASES[number]()
    rng = np.random.default_rng(number)
    inputs = random_inputs(program, rng)
    wanted = bounds_of(program, inputs)
    space = BACKEND.space(program, HARDWARE)
    for row in (*space.seed_rows(rng)[-count:], *space.sample(rng, count)):
        schedule = space.schedule(row)
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        assert not problems(program, kernel, inputs, wanted, int(rng.integers(16))), schedule


def test_lanes_are_along_the_long_axis_of_a_window() -> None:
    """Weights that lie along the short one, and were read first, do not matter."""
    g = Graph("mixed")
    i, j, s = g.axes(i=64, j=512, s=5)
    w = g.input("W", (i, s), "f32")
    x = g.tensor("X", (64, 512), "f32", fill=0)
    g.output("Y", reduce("sum", w * x[i, j + s - 2], over=s), "f32", (i, j))
    assert BlockShape(g.program()).lanes == ("j", "s")
