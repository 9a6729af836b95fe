"""Symbolic addresses: equal to the layouts at every point, and as short as their fields allow."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ir.layout import addresses, expressions, tree
from ir.layout.addresses import address, coordinate, swizzled
from ir.layout.errors import LayoutError
from ir.layout.expressions import (
    Expression,
    constant,
    evaluated,
    exclusive,
    quotient,
    remainder,
    scaled,
    total,
    variable,
)
from ir.layout.instructions import find
from ir.layout.instructions.rows import MatrixRow
from ir.layout.layout import Layout
from ir.layout.printing import summand
from ir.layout.swizzle import Composed, Swizzle, parse
from tests.layout.random_layouts import layouts, ordered, power_layouts

NAMES = ("t", "v", "w")


def ran(value: Expression, **values: np.ndarray) -> np.ndarray:
    """The C text, evaluated: it has no negative values, so division is Python's."""
    text = str(value).replace("/", "//")
    found = eval(text, {"__builtins__": {}}, values)
    shape = np.broadcast_shapes(*(own.shape for own in values.values()))
    return np.broadcast_to(np.asarray(found, dtype=np.int64), shape)


def grid(*extents: int) -> dict[str, np.ndarray]:
    axes = np.meshgrid(*map(np.arange, extents), indexing="ij")
    return {name: axis.reshape(-1) for name, axis in zip(NAMES, axes, strict=False)}


def holds(value: Expression, wanted: np.ndarray, points: dict[str, np.ndarray]) -> None:
    """Value, text and ranges agree with what is wanted."""
    assert np.array_equal(evaluated(value, **points), wanted), str(value)
    assert np.array_equal(ran(value, **points), wanted), str(value)
    assert value.low <= wanted.min()
    assert wanted.max() <= value.high
    assert not (wanted & ~value.bits).any()


@settings(max_examples=165)
@given(st.one_of(layouts(), power_layouts(), ordered()))
def test_an_index_is_a_variable(layout: Layout) -> None:
    points = grid(layout.size)
    holds(address(layout, variable("t", layout.size)), layout.offsets(), points)


@settings(max_examples=165)
@given(
    st.one_of(power_layouts(), ordered()),
    st.integers(0, 4), st.integers(0, 6), st.integers(-5, 5), st.integers(0, 40),
)  # fmt: skip
def test_threads_and_values_through_a_swizzle(
    layout: Layout, bits: int, base: int, shift: int, offset: int
) -> None:
    """One variable for each top mode; the swizzle acts on what the modes come to together."""
    assume(abs(shift) >= bits and layout.rank <= 3)
    composed = Composed(Swizzle(bits, base, shift), offset, layout)
    extents = [mode.size for mode in layout.modes]
    points = grid(*extents)
    places = [variable(name, e) for name, e in zip(NAMES, extents, strict=False)]
    index = sum(p * prod(extents[:n]) for n, p in enumerate(points.values()))
    assert isinstance(index, np.ndarray)
    holds(address(composed, *places), composed.at(index), points)


@settings(max_examples=165)
@given(ordered(), st.integers(1, 9), st.integers(1, 9))
def test_indices_made_of_two_variables(layout: Layout, inner: int, step: int) -> None:
    """Indices beyond the size go on along the last mode, as they do in layouts."""
    index = total(variable("t", inner), scaled(variable("v", 5), step))
    points = grid(inner, 5)
    wanted = layout.at(points["t"] + points["v"] * step)
    holds(address(layout, index), wanted, points)


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["sum", "scale", "quotient", "remainder", "xor"]),
              st.integers(1, 40), st.integers(0, 2)),
    max_size=7,
)  # fmt: skip


@settings(max_examples=220)
@given(OPERATIONS, st.sampled_from([(8, 4, 3), (32, 3, 2), (7, 5, 4), (16, 16, 1)]))
def test_any_expression_is_what_was_built(
    steps: list[tuple[str, int, int]], extents: tuple[int, int, int]
) -> None:
    points = grid(*extents)
    own = [variable(name, extent) for name, extent in zip(NAMES, extents, strict=True)]
    value, wanted = own[0], points["t"]
    for kind, number, which in steps:
        other, array = own[which], points[NAMES[which]]
        if kind == "sum":
            value, wanted = total(value, scaled(other, number)), wanted + array * number
        elif kind == "scale":
            value, wanted = scaled(value, number % 9), wanted * (number % 9)
        elif kind == "quotient":
            value, wanted = quotient(value, number), wanted // number
        elif kind == "remainder":
            value, wanted = remainder(value, number), wanted % number
        else:
            value = exclusive(value, scaled(other, number))
            wanted = wanted ^ array * number
    holds(value, wanted, points)


def test_a_variable_that_steps() -> None:
    """What an origin is a multiple of needs no division."""
    origin = variable("origin", 4096, 64)
    assert str(quotient(total(origin, variable("t", 64)), 64)) == "origin >> 6"
    assert str(remainder(total(origin, variable("t", 64)), 64)) == "t"
    assert variable("origin", 64, 64) == expressions.ZERO


def test_ranges_take_divisions_away() -> None:
    t = variable("t", 32)
    assert str(quotient(remainder(t, 32), 4)) == "t >> 2"
    assert str(remainder(t, 32)) == "t"
    assert str(quotient(t, 32)) == "0"
    assert str(total(scaled(quotient(t, 7), 7), remainder(t, 7))) == "t"
    assert str(remainder(total(scaled(t, 8), variable("v", 8)), 16)) == "((t << 3) & 8) + v"
    assert str(exclusive(scaled(t, 8), variable("v", 8))) == "t * 8 + v"


def fragment(name: str, role: str, thread: Expression) -> tuple[str, ...]:
    """The coordinates of a thread's values in an operand of an instruction."""
    row = find(name)
    assert isinstance(row, MatrixRow)
    operand = getattr(row, role)
    value = variable("v", operand.layout.mode(1).size)
    return tuple(map(str, coordinate(address(operand.layout, thread, value), operand.extents)))


def test_accumulators_of_wgmma() -> None:
    """Two neighbours, eight rows further the next two, then eight columns further."""
    rows, columns = fragment("wgmma.m64n64k16.bf16.ss", "c", variable("thread", 128))
    assert rows == "((thread >> 1) & 48) + ((v << 2) & 8) + ((thread >> 2) & 7)"
    assert columns == "((v << 1) & 56) + ((thread << 1) & 6) + (v & 1)"


def test_operands_of_mma() -> None:
    rows, columns = fragment("mma.m16n8k16.bf16", "a", variable("lane", 32))
    assert rows == "((v << 2) & 8) + (lane >> 2)"
    assert columns == "((v << 1) & 8) + ((lane << 1) & 6) + (v & 1)"


def test_lines_of_128_bytes_behind_their_swizzle() -> None:
    """The chunk that lane % 16 and lane / 16 ask for, as ldmatrix addresses it."""
    tile = parse("S(3,4,3) o 0 o (64,128):(128,1)")
    lane = variable("lane", 32)
    line, byte = remainder(lane, 16), scaled(quotient(lane, 16), 16)
    found = address(tile, line, byte)
    points = {"lane": np.arange(32)}
    wanted = [tile((t % 16, t // 16 * 16)) for t in range(32)]
    holds(found, np.array(wanted), points)
    assert str(found) == "((lane << 7) & 1920) + ((lane >> 4) ^ (lane & 7)) * 16"
    step = swizzled(Swizzle(3, 4, 3), total(scaled(line, 128), byte, constant(32)))
    assert str(step) == "((lane << 7) & 1920) + ((lane & 7) ^ ((lane >> 4) + 2)) * 16"


def test_what_may_be_negative_has_no_fields() -> None:
    t = variable("t", 8)
    behind = total(t, constant(-4))
    assert (behind.low, behind.high, behind.bits) == (-4, 3, -1)
    with pytest.raises(LayoutError, match="may be -4"):
        quotient(behind, 2)
    with pytest.raises(LayoutError, match="may be -4"):
        exclusive(behind, t)
    with pytest.raises(LayoutError, match="2 parts for 3 modes"):
        address(Layout((2, 2, 2)), t, t)
    with pytest.raises(LayoutError, match="no value for t"):
        evaluated(t, v=np.arange(3))


@given(ordered())
def test_coordinates_of_offsets(layout: Layout) -> None:
    """The coordinate of a compact tile's index."""
    shape = tree.flatten(layout.shape)
    found = coordinate(variable("t", layout.size), shape)
    points = grid(layout.size)
    rest = points["t"]
    for part, extent in zip(found[:-1], shape[:-1], strict=True):
        holds(part, rest % extent, points)
        rest = rest // extent
    holds(found[-1], rest, points)


def test_docstrings() -> None:
    import doctest

    for module in (addresses, expressions):
        assert doctest.testmod(module).failed == 0


def test_texts_that_are_added_keep_their_meaning() -> None:
    """One field alone is masked behind a sum, unless it is enclosed."""
    number = variable("i", 16)
    masked = scaled(remainder(quotient(number, 2), 2), 1024)
    for value in (masked, number, scaled(number, 3), total(masked, number)):
        for at in range(16):
            added = eval(f"5 + {summand(value)} + 7", {"__builtins__": {}}, {"i": at})
            assert added == 12 + value.at(i=at)
