"""Conversions between shape:stride and F2: the same function, or a refusal with numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir.layout import tree
from ir.layout.convert import Mixed, to_layout, to_linear, to_mixed
from ir.layout.errors import LayoutError
from ir.layout.layout import Layout
from ir.layout.linear import Linear
from ir.layout.swizzle import Composed, Swizzle, parse
from tests.layout.random_layouts import attempt, layouts, power_layouts

many = settings(max_examples=300)


@many
@given(st.one_of(power_layouts(), layouts()))
def test_linear_is_the_same_function_or_refused(layout: Layout) -> None:
    linear = attempt(to_linear, layout)
    if isinstance(linear, LayoutError):
        assert linear.code == "not-linear"
        assert not _is_linear(layout)
        return
    assert np.array_equal(linear.offsets(), layout.offsets())


def _is_linear(layout: Layout) -> bool:
    """Brute force: f(a ^ b) = f(a) ^ f(b) on a power-of-two domain."""
    table = layout.offsets()
    size = table.size
    if size & (size - 1):
        return False
    a, b = np.meshgrid(np.arange(size), np.arange(size))
    return bool(np.array_equal(table[a ^ b], table[a] ^ table[b])) and all(
        extent & (extent - 1) == 0 for extent, _ in layout.flat()
    )


def test_modes_become_named_inputs() -> None:
    fragment = Layout.parse("((4,8),(2,2,2)):((32,1),(16,8,128))")
    linear = to_linear(fragment, ("thread", "value"), "index")
    assert str(linear) == "thread=32,64,1,2,4 value=16,8,128 -> index:8"
    assert to_layout(linear) == Layout.parse("((4,8),(2,2,2)):((32,1),(16,8,128))")
    with pytest.raises(LayoutError, match="3 names for 2 modes"):
        to_linear(fragment, ("a", "b", "c"))


@pytest.mark.parametrize(
    ("swizzle", "bases"),
    [
        ("S(3,4,3)", (1, 2, 4, 8, 16, 32, 64, 144, 288, 576)),
        ("S(3,3,3)", (1, 2, 4, 8, 16, 32, 72, 144, 288)),
    ],
)
def test_documented_swizzle_bases(swizzle: str, bases: tuple[int, ...]) -> None:
    layout = parse(f"{swizzle} o 0 o {1 << len(bases)}:1")
    assert to_linear(layout).columns == bases


@many
@given(
    st.permutations(range(9)),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 2),
    st.sampled_from([1, -1]),
)
def test_swizzled_permutations_round_trip(
    order: list[int], bits: int, base: int, more: int, sign: int
) -> None:
    columns = [1 << bit for bit in order]
    plain = to_layout(Linear.from_columns(columns, (("index", 9),), (("offset", 9),)))
    assert isinstance(plain, Layout)
    swizzle = Swizzle(bits, base, (bits + more) * sign)
    layout = Composed(swizzle, 0, plain)
    linear = to_linear(layout)
    back = to_layout(linear)
    assert np.array_equal(back.offsets(), layout.offsets())
    assert to_linear(back).same_function(linear)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("(3,8):(1,4)", "extent 3 is no power of two"),
        ("(4,8):(1,6)", "modes 4:1 and 8:6 both reach bit 1"),
        ("(4,4):(1,2)", "modes 4:1 and 4:2 both reach bit 1"),
        ("(2,4):(8,-1)", "stride -1 is below 0"),
        ("(2,2):(1,1)", "both reach bit 0"),
        ("S(1,0,1) o 1 o 4:1", "adds 1 before the swizzle"),
    ],
)
def test_refusals_name_the_numbers(text: str, says: str) -> None:
    with pytest.raises(LayoutError, match=says) as caught:
        to_linear(parse(text))
    assert caught.value.code == "not-linear"


def test_general_matrices_have_no_layout() -> None:
    linear = Linear.from_columns((1, 3, 7, 8), (("index", 4),), (("offset", 4),))
    with pytest.raises(LayoutError, match="column 3 has 2 bits") as caught:
        to_layout(linear)
    assert caught.value.code == "no-layout"


@many
@given(layouts())
def test_mixed_is_the_same_function(layout: Layout) -> None:
    mixed = to_mixed(layout)
    assert np.array_equal(mixed.offsets(), layout.offsets())
    names = tuple(f"i{n}" for n in range(layout.rank))
    by_mode = to_mixed(layout, names)
    assert [extent for _, extent in by_mode.extents] == [m.size for m in layout.modes]
    assert np.array_equal(by_mode.offsets(), layout.offsets())


@pytest.mark.parametrize("n", [24, 40, 80, 168, 216, 248])
def test_odd_wgmma_widths_keep_their_odd_factor_outside(n: int) -> None:
    """The accumulator of m64nN: everything but N / 8 is bits."""
    layout = Layout.parse(f"((4,8,4),(2,2,{n // 8})):((128,1,16),(64,8,512))")
    mixed = to_mixed(layout, ("thread", "value"))
    odd = n // 8
    while odd % 2 == 0:
        odd //= 2
    assert mixed.outer[0].size == 1
    assert mixed.outer[1].size == odd
    assert np.array_equal(mixed.offsets(), layout.offsets())
    thread, value = np.arange(128)[:, None], np.arange(n // 2)[None, :]
    assert np.array_equal(
        mixed.apply(thread=thread, value=value), layout.offsets().reshape(n // 2, 128).T
    )


def test_mixed_refuses_what_lies_outside() -> None:
    mixed = to_mixed(Layout((24, 8)), ("m", "n"))
    assert mixed.extents == (("m", 24), ("n", 8))
    with pytest.raises(LayoutError, match="m from 24 to 24, legal are 0 to 23"):
        mixed.apply(m=24)
    with pytest.raises(LayoutError, match="no input 'k': m, n"):
        mixed.apply(k=0)
    with pytest.raises(LayoutError, match="1 outer layouts for 2 inputs"):
        Mixed(mixed.core, mixed.outer[:1])


@given(power_layouts())
def test_mixed_of_powers_has_nothing_outside(layout: Layout) -> None:
    strides = [s << b for e, s in layout.flat() if s for b in range(e.bit_length() - 1)]
    mixed = to_mixed(layout)
    if len(set(strides)) == len(strides):
        assert tree.product(mixed.outer[0].shape) == 1
