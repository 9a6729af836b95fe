"""What inputs may be: each kind is what it says, prints and parses, and is drawn alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import ir
from ir import Graph, Program, ProgramError, operator, parse, reduce, to_text
from ir.draws import Draws, normal_table
from ir.dtypes import WHOLE_BYTES, is_float, to_float
from ir.inputs import drawn_inputs
from ir.ops.base import TensorSpec
from ir.values import Values

ROWS = (50, 40)


def drawn(values: Values, dtype: str, shape: tuple[int, ...] = ROWS, seed: int = 1) -> Any:
    spec = TensorSpec("X", shape, dtype, "input", values)
    return to_float(values.draw(spec, Draws.named(seed, "X")), dtype)


@pytest.mark.parametrize("total", [2_000_003, 67_108_864, 2**31 - 1])
def test_offsets_of_many_rows_rise_to_a_large_total(total: int) -> None:
    """What they are scaled by has no room in 63 bits."""
    found = drawn(ir.offsets(total), "i32", (4_194_302,))
    assert (found[0], found[-1]) == (0, total)
    gaps = np.diff(found.astype(np.int64))
    assert gaps.min() >= 0
    assert gaps.max() < 8 * max(1, total // 4_194_301)


def test_each_kind_is_what_it_says() -> None:
    rows = np.arange(ROWS[1])
    assert drawn(ir.uniform(0.25, 0.5), "f32").min() >= 0.25
    assert set(np.unique(drawn(ir.uniform(-2, 3), "i8"))) == set(range(-2, 4))
    assert abs(drawn(ir.normal(2.0, 5.0), "f32").std() - 2.0) < 0.1
    assert drawn(ir.positive(0.5), "bf16").min() > 0
    assert -3 <= drawn(ir.decay(3.0), "f32").min() <= drawn(ir.decay(3.0), "f32").max() <= 0
    assert (drawn(ir.constant(3), "f16") == 3).all()
    np.testing.assert_allclose(drawn(ir.probabilities(), "f64").sum(1), 1, rtol=1e-12)
    assert (np.diff(drawn(ir.ascending(0, 1), "f32")) >= 0).all()
    steps = np.diff(drawn(ir.prefix_sums(1, 4), "i32"))
    assert set(np.unique(steps)) == {1, 2, 3, 4}
    assert (np.sort(drawn(ir.permutation(), "i32")) == rows).all()
    found = drawn(ir.lengths(9, 2), "i32")
    assert (found.min(), found.max()) == (2, 9)
    offsets = drawn(ir.offsets(1000, 3), "i64")
    assert (offsets[:, 0] == 0).all()
    assert (offsets[:, -1] == 1000).all()
    assert (np.diff(offsets) >= 0).all()
    assert drawn(ir.indices(7), "i32").max() == 6
    assert drawn(ir.indices(1000, 3), "i32").mean() < 350 < drawn(ir.indices(1000), "i32").mean()
    assert (drawn(ir.one_hot(), "bf16").sum(1) == 1).all()
    matrices = drawn(ir.near_identity(0.5), "f32", (40, 8, 8))
    np.testing.assert_allclose(matrices.mean(0), np.eye(8), atol=0.15)
    assert abs((matrices - np.eye(8)).std() * np.sqrt(8) - 0.5) < 0.05


@pytest.mark.parametrize("dtype", [n for n in WHOLE_BYTES if is_float(n) and n != "e8m0"])
def test_normal_numbers_are_normal(dtype: str) -> None:
    found = drawn(ir.normal(), dtype, (200, 500))
    assert abs(found.mean()) < 0.02
    assert abs(found.std() - 1) < 0.02
    assert 3.5 < found.max() < 4.6
    quantiles = np.quantile(found, [0.025, 0.16, 0.5, 0.84, 0.975])
    np.testing.assert_allclose(quantiles, [-1.96, -0.994, 0, 0.994, 1.96], atol=0.07)


def test_the_bits_are_pinned() -> None:
    """Records name a seed: what it draws must not change, nor hang on the library's version."""
    assert [int(word) for word in Draws(1).words(0, 2)] == [
        0x910A2DEC89025CC1, 0xBEEB8DA1658EEC67,
    ]  # fmt: skip
    table = normal_table()
    assert (table == -table[::-1]).all()
    assert table[0] * 2**24 == np.rint(table[0] * 2**24)


def test_pieces_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = TensorSpec("X", (1000, 9), "f32")
    whole = ir.normal(2.0).draw(spec, Draws.named(0, "X"))
    monkeypatch.setattr("ir.draws._PIECE", 64)
    assert np.array_equal(whole, ir.normal(2.0).draw(spec, Draws.named(0, "X")))


@operator
def shaped(g: Graph, n: int) -> None:
    """Sums of values of two kinds."""
    axis = g.axis("n", n)
    steps = g.input("S", (axis,), "f32", values=ir.prefix_sums(0.5, 1.0))
    x = g.input("X", (axis,), "f32", values=ir.uniform(-1, 0.1))
    g.output("Y", reduce("sum", steps * x, over=axis))


def test_values_stand_in_the_text_and_come_back() -> None:
    program = shaped.build(n=12)
    text = to_text(program)
    assert "input S f32[12] values=prefix_sums(0.5, 1.0)" in text
    again = parse(text)
    assert again == program
    for name, array in drawn_inputs(program, 3).items():
        assert np.array_equal(array, drawn_inputs(again, 3)[name])


def _program(values: Values, dtype: str = "f32") -> Program:
    @operator
    def one(g: Graph, n: int) -> None:
        axis = g.axis("n", n)
        g.output("Y", reduce("sum", g.input("X", (axis,), dtype, values=values), over=axis))

    return one.build(n=4)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: _program(ir.permutation()), "input X: permutation.* are ints, and it is f32"),
        (lambda: _program(ir.decay(), "i32"), "are floats, and it is i32"),
        (lambda: ir.uniform(0, float("nan")), "high is nan, not finite"),
        (lambda: Values("uniform", (1,)), "1 numbers; takes low, high"),
        (lambda: Values("odd"), "unknown values 'odd': known are uniform"),
        (lambda: drawn(ir.uniform(2, 1), "f32"), "the wrong way round"),
        (lambda: drawn(ir.lengths(1, 5), "i32"), "0 <= least <= most"),
        (lambda: drawn(ir.indices(0), "i32"), "an extent is at least 1"),
        (lambda: drawn(ir.one_hot(), "f32", ()), "it is a scalar"),
        (lambda: parse("input X f32[2] values=uniform(1)"), "line 1: .*takes low, high"),
        (lambda: parse("input X f32[2] odd"), "is not values=kind"),
    ],
)
def test_refusals(make: Any, words: str) -> None:
    with pytest.raises(ProgramError, match=words):
        make()


@given(
    low=st.integers(-(1 << 40), 1 << 40), span=st.integers(1, 1 << 41),
    dtype=st.sampled_from([np.int8, np.uint8, np.int16, np.int32, np.int64]),
)  # fmt: skip
@example(low=-128, span=256, dtype=np.int8)
@example(low=0, span=1, dtype=np.uint8)
@example(low=-4, span=9, dtype=np.int8)
@example(low=0, span=1 << 16, dtype=np.int32)
@example(low=-(1 << 31), span=1 << 32, dtype=np.int32)
@example(low=0, span=(1 << 16) + 1, dtype=np.int32)
def test_integers_are_the_upper_half_of_a_product(low: int, span: int, dtype: type) -> None:
    """By whatever arithmetic, in whatever type has them."""
    draws, kind = Draws.named(1, "x"), np.iinfo(dtype)
    assume(kind.min <= low and low + span - 1 <= kind.max)
    bits = draws.bits(64 if span > 1 << 32 else 32, 16, 41).astype(object)
    wanted = bits % span if span > 1 << 32 else (bits * span) >> 32
    found = draws.whole(low, low + span - 1, 16, 41, dtype)
    assert found.dtype == dtype
    assert (found.astype(object) == wanted + low).all()
