"""Linear layouts over F2: laws of the algebra, compared with tables."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ir.layout import f2
from ir.layout.errors import LayoutError
from ir.layout.linear import Linear
from ir.layout.movement import movement, table_movement
from tests.layout.random_layouts import attempt

NAMES = ("register", "lane", "warp")


@st.composite
def linears(draw: st.DrawFn, out_bits: int | None = None) -> Linear:
    """Any matrix of up to six columns in three inputs."""
    bits = draw(st.integers(1, 6)) if out_bits is None else out_bits
    basis = st.integers(0, (1 << bits) - 1)
    split = draw(st.integers(0, bits))
    inputs = tuple((name, tuple(draw(st.lists(basis, max_size=2)))) for name in NAMES)
    return Linear(inputs, (("m", split), ("n", bits - split)))


@st.composite
def invertibles(draw: st.DrawFn, bits: int = 5) -> Linear:
    """An invertible matrix: a permutation and some additions of columns."""
    columns = [1 << bit for bit in draw(st.permutations(range(bits)))]
    pairs = st.tuples(st.integers(0, bits - 1), st.integers(0, bits - 1))
    for target, source in draw(st.lists(pairs, max_size=8)):
        if target != source:
            columns[target] ^= columns[source]
    low = draw(st.integers(0, bits))
    return Linear.from_columns(columns, (("register", low), ("lane", bits - low)), (("i", bits),))


@given(linears(), st.integers(0, 63), st.integers(0, 63))
def test_it_is_linear(layout: Linear, left: int, right: int) -> None:
    a, b = left % layout.size, right % layout.size
    assert layout(a) ^ layout(b) == layout(a ^ b)
    assert layout(0) == 0
    assert Linear.parse(str(layout)) == layout


@given(linears())
def test_tables_and_names_agree(layout: Linear) -> None:
    table = layout.offsets()
    assert table.tolist() == [layout(i) for i in range(layout.size)]
    assert np.array_equal(layout(np.arange(layout.size)), table)
    shapes = [1 << bits for _, bits in layout.dimensions]
    grid = np.indices(shapes[::-1])[::-1]
    parts = layout.apply(**{name: grid[i].reshape(-1) for i, name in enumerate(NAMES)})
    low = layout.bits("m")
    assert np.array_equal(np.asarray(parts["m"]) | np.asarray(parts["n"]) << low, table)


@given(linears())
def test_rank_and_kernel(layout: Linear) -> None:
    table = layout.offsets()
    assert 1 << layout.rank == len(set(table.tolist()))
    assert layout.is_injective == (len(set(table.tolist())) == table.size)
    assert layout.is_surjective == (len(set(table.tolist())) == 1 << layout.out_bits)
    kernel = layout.kernel()
    assert all(layout(vector) == 0 for vector in kernel)
    assert 1 << len(kernel) == np.count_nonzero(table == 0)


@given(invertibles())
def test_exact_inverse(layout: Linear) -> None:
    inverse = layout.inverse()
    assert [inverse(layout(i)) for i in range(layout.size)] == list(range(layout.size))
    identity = layout.compose(inverse)
    assert identity.columns == tuple(1 << bit for bit in range(layout.in_bits))


@given(linears())
def test_inverses_of_what_is_not_square(layout: Linear) -> None:
    if layout.is_injective:
        left = layout.left_inverse()
        assert [left(layout(i)) for i in range(layout.size)] == list(range(layout.size))
    if layout.is_surjective:
        right = layout.right_inverse()
        values = range(1 << layout.out_bits)
        assert [layout(right(value)) for value in values] == list(values)
    if not (layout.is_injective and layout.is_surjective):
        with pytest.raises(LayoutError, match="rank") as caught:
            layout.inverse()
        assert caught.value.code == "not-invertible"


@given(linears(4), linears(4))
def test_solve_is_right_or_refused(have: Linear, want: Linear) -> None:
    want = Linear(want.inputs, have.outputs)
    solution = attempt(have.solve, want)
    if isinstance(solution, LayoutError):
        assert solution.code == "no-solution"
        assert not set(want.offsets().tolist()) <= set(have.offsets().tolist())
        return
    for i in range(want.size):
        assert have(solution(i)) == want(i)


@given(invertibles(4), linears(4))
def test_composition_is_function_composition(outer: Linear, inner: Linear) -> None:
    outer = outer.reshape(inputs=(("m", inner.bits("m")), ("n", inner.bits("n"))))
    both = outer.compose(inner)
    assert [both(i) for i in range(inner.size)] == [outer(inner(i)) for i in range(inner.size)]


@given(linears(), linears())
def test_products_divide_back(tile: Linear, rest: Linear) -> None:
    whole = tile.product(rest)
    assert whole.size == tile.size * rest.size
    assert whole.divide_left(tile).same_function(rest)


def test_division_is_refused_with_the_basis() -> None:
    tile = Linear((("lane", (1, 2)),), (("m", 2),))
    with pytest.raises(LayoutError, match=r"lane\[1\] = 4, the tile has 2") as caught:
        Linear((("lane", (1, 4, 2)),), (("m", 3),)).divide_left(tile)
    assert caught.value.code == "not-divisible"


@given(linears())
def test_orders_of_names_do_not_change_the_function(layout: Linear) -> None:
    other = layout.transpose(NAMES[::-1], ("n", "m"))
    assert other.same_function(layout)
    assert other.transpose(NAMES, ("m", "n")) == layout
    renamed = layout.rename(lane="thread")
    assert renamed.bases("thread") == layout.bases("lane")
    with pytest.raises(LayoutError, match="no dimension 'lane'"):
        renamed.bases("lane")


@pytest.mark.parametrize(
    ("build", "code"),
    [
        (lambda: Linear((("a", (4,)),), (("m", 2),)), "linear-basis"),
        (lambda: Linear((("a", ()), ("a", ())), ()), "linear-dimension"),
        (lambda: Linear((), (("m", -1),)), "linear-dimension"),
        (lambda: Linear((), (("m", 63),)), "linear-dimension"),
        (lambda: Linear.parse("lane=1,x -> m:1"), "linear-syntax"),
        (lambda: Linear.parse("nonsense"), "linear-syntax"),
        (lambda: Linear.identity(2).apply(offset=4), "coordinate-range"),
        (lambda: Linear.identity(2).apply(other=1), "unknown-dimension"),
        (lambda: Linear.identity(2)(7), "coordinate-range"),
    ],
)
def test_refused(build, code: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(LayoutError) as caught:
        build()
    assert caught.value.code == code


@given(st.lists(st.integers(0, 63), max_size=6), st.lists(st.integers(0, 63), max_size=6))
def test_spans(left: list[int], right: list[int]) -> None:
    def span(vectors: tuple[int, ...] | list[int]) -> set[int]:
        found = {0}
        for vector in vectors:
            found |= {vector ^ other for other in found}
        return found

    assert 1 << f2.rank(left) == len(span(left))
    assert span(f2.intersection(tuple(left), tuple(right))) == span(left) & span(right)
    rest = f2.complement(left, 6)
    assert len(span([*left, *rest])) == 64
    assert f2.rank([*left, *rest]) == 6
    assert len(rest) == 6 - f2.rank(left)
    assert span(f2.independent(left)) == span(left)
    for vector in f2.annihilator(tuple(left), 6):
        assert all((vector & other).bit_count() % 2 == 0 for other in left)


@given(invertibles(), invertibles())
def test_movement_says_which_bits_must_move(source: Linear, target: Linear) -> None:
    """A conversion by the map is right; without lanes moving, every lane keeps its own set."""
    found = movement(source, target)
    dims = dict(found.map.outputs)
    assume(dims.get("register") is not None)
    padded = dict(found.map.dimensions)

    def element(layout: Linear, register: int, lane: int) -> int:
        return int(
            layout.apply(
                register=register % (1 << dict(layout.dimensions)["register"]),
                lane=lane % (1 << dict(layout.dimensions)["lane"]),
            )["i"]
        )

    for register in range(1 << padded["register"]):
        for lane in range(1 << padded.get("lane", 0)):
            place = found.map.apply(register=register, lane=lane)
            assert element(source, int(place["register"]), int(place["lane"])) == element(
                target, register, lane
            )
            if found.kind in ("none", "register"):
                assert place["lane"] == lane


def test_movement_kinds() -> None:
    rows = Linear((("register", (1, 2)), ("lane", (4, 8))), (("i", 4),))
    swapped = Linear((("register", (2, 1)), ("lane", (4, 8))), (("i", 4),))
    crossed = Linear((("register", (1, 4)), ("lane", (2, 8))), (("i", 4),))
    assert movement(rows, rows).kind == "none"
    assert movement(rows, swapped).kind == "register"
    assert (movement(rows, crossed).kind, movement(rows, crossed).exchanges) == ("lane", 1)
    warps = Linear((("register", (1,)), ("warp", (2,))), (("i", 2),))
    other = Linear((("register", (2,)), ("warp", (1,))), (("i", 2),))
    assert movement(warps, other).kind == "warp"
    same = rows.offsets().reshape(4, 4).T
    assert table_movement(same, same) in ("none", "register")
