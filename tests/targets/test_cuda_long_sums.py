"""Block kernels of very long sums: none in which a thread adds up more than is safe in f32."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, operator, reduce, rsqrt
from ir.inputs import random_inputs
from ir.program import Program
from ir.space import Space
from ir.target import get_backend
from ir.targets.cuda.rows.hardware import known_hardware
from ir.targets.cuda.space.block_rules import MOST_TERMS
from tests.emulator.emulate import compiler
from tests.judging import bounds_of
from tests.targets.test_cuda_emulated import problems


@operator
def squares(g: Graph, n: int, kind: str = "sum", dtype: str = "f32") -> None:
    """What all squares come to."""
    (axis,) = g.axes(n=n)
    x = g.input("X", (axis,), dtype)
    g.output("S", reduce(kind, x * x, over=axis))


def space_of(n: int, kind: str = "sum", dtype: str = "f32") -> Space:
    program = squares.build(n=n, kind=kind, dtype=dtype)
    return get_backend("cuda").space(program, known_hardware("h200"))


def rules(space: Space) -> list[str]:
    return [rule.name for rule in space.constraints if rule.name.endswith("terms")]


def test_a_thread_adds_up_few_numbers() -> None:
    n = 1 << 27
    space = space_of(n)
    rng = np.random.default_rng(0)
    rows = [*space.seed_rows(rng), *space.sample(rng, 100)]
    chosen = [space.schedule(row) for row in rows]
    terms = [n // int(s["tile.n"]) * int(s["own.n"]) // int(s.get("parts", 1) or 1) for s in chosen]
    assert len(terms) > 100
    assert max(terms) <= MOST_TERMS


@pytest.mark.parametrize(
    ("n", "kind", "dtype"),
    [(MOST_TERMS, "sum", "f32"), (1 << 27, "max", "f32"), (1 << 27, "sum", "f64")],
)
def test_short_sums_extremes_and_doubles_are_free(n: int, kind: str, dtype: str) -> None:
    assert rules(space_of(n, kind, dtype)) == []
    assert rules(space_of(1 << 27)) != []


@operator
def whole_norm(g: Graph, a: int, b: int, c: int) -> None:
    """A tensor divided by the root of all of its squares."""
    i, j, k = g.axes(a=a, b=b, c=c)
    x = g.input("X", (i, j, k), "f32")
    g.output("Y", x * rsqrt(reduce("sum", x * x, over=(i, j, k)) + 1e-9))


@operator
def pair_sum(g: Graph, n: int) -> None:
    """What all pairs of points come to."""
    i, j = g.axes(i=n, j=n)
    apart = g.input("X", (i,), "f32") - g.input("Y", (j,), "f32")
    g.output("E", reduce("sum", apart * apart, over=(i, j)))


NORMS = ((521, 1021, 509), (1021, 509, 257), (257, 509, 509))
LONG = [*(whole_norm.build(a=a, b=b, c=c) for a, b, c in NORMS), pair_sum.build(n=131071)]


@pytest.mark.parametrize("program", LONG, ids=["gigabyte", "half", "quarter", "pairs"])
def test_sums_along_several_axes_of_any_extent_have_schedules(program: Program) -> None:
    space = get_backend("cuda").space(program, known_hardware("h200"))
    rows = space.seed_rows(np.random.default_rng(0))
    assert space.features is not None
    names, table = space.features(space.columns(rows))
    memory = program is not LONG[-1]
    assert table[:, names.index("total.estimate")].min() < 1.5 or not memory


@operator
def totals(g: Graph, n: int, d: int, dtype: str) -> None:
    """Sums and extremes of columns, those of another tensor in f32 beside them."""
    i, j = g.axes(n=n, d=d)
    x, y = g.input("X", (i, j), dtype), g.input("Y", (i, j), "f32")
    g.output("S", reduce("sum", x, over=i))
    g.output("M", reduce("max", x, over=i))
    g.output("T", reduce("sum", y, over=i))


@pytest.mark.parametrize("dtype", ["f64", "i64"])
def test_wide_sums_have_a_block_for_every_processor(dtype: str) -> None:
    program = squares.build(n=134217689, dtype=dtype)
    space = get_backend("cuda").space(program, known_hardware("h200"))
    rows = space.seed_rows(np.random.default_rng(0))
    assert space.features is not None
    names, table = space.features(space.columns(rows))
    assert table[:, names.index("total.estimate")].min() < 0.5


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("dtype", ["f64", "i64", "f32"])
def test_parts_of_any_width_are_added(dtype: str) -> None:
    program, hardware = totals.build(n=517, d=3, dtype=dtype), known_hardware("h200")
    space = get_backend("cuda").space(program, hardware).pin(parts=4)
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted = bounds_of(program, inputs)
    for mode, row in enumerate(space.sample(np.random.default_rng(2), 3)):
        kernel = get_backend("cuda").lower(program, space.schedule(row), hardware)
        assert not problems(program, kernel, inputs, wanted, 5 * mode)
