"""The first few of a long axis are found in its parts: the same places and values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ir import Graph, cast, contract, exp, log, reduce, top
from ir.ops.reduce import Reduce
from ir.oracle import evaluate
from ir.program import Program
from ir.rewrite.forms import forms_of
from ir.rewrite.keyed import rewritten as keyed
from ir.rewrite.tiered import PART, read_again, rewritten
from ir.rewrite.work import Rates
from ir.targets.cuda.build.kernels import kernels_of
from tests.cuda.run import needs_compiler
from tests.targets.cuda_cases import HARDWARE
from tests.targets.formed import form_problems

NAN, INF = float("nan"), float("inf")


def rows(n: int, count: int, least: bool = False) -> Program:
    g = Graph("rows")
    a, b, k = g.axes(a=6, b=n, k=count)
    values, places = top(g.input("V", (a, b), "f32"), b, k, least=least)
    g.output("T", values, "f32", (a, k))
    g.output("I", places, "i32", (a, k))
    return g.program()


def nearest(m: int = 19, n: int = 1024, d: int = 16) -> Program:
    g = Graph("nearest")
    mm, nn, dd, k = g.axes(m=m, n=n, d=d, k=3)
    x, y = g.input("X", (mm, dd), "bf16"), g.input("Y", (nn, dd), "bf16")
    own = reduce("sum", cast(y, "f32") * cast(y, "f32"), over=dd)
    values, places = top(own - contract(x, y, over=dd) * 2.0, nn, k, least=True)
    g.output("D", values, "f32", (mm, k))
    g.output("I", places, "i32", (mm, k))
    return g.program()


def words(b: int = 3, v: int = 1280) -> Program:
    g = Graph("words")
    bb, vv, k = g.axes(b=b, v=v, k=4)
    x = cast(g.input("X", (bb, vv), "bf16"), "f32")
    most = reduce("max", x, over=vv)
    total = log(reduce("sum", exp(x - most), over=vv)) + most
    values, places = top(x - total, vv, k)
    g.output("P", values, "f32", (bb, k))
    g.output("I", places, "i32", (bb, k))
    return g.program()


def tiered(program: Program) -> Program:
    made = keyed(program)
    assert made is not None
    found = rewritten(made[1])
    assert found is not None
    return found[1]


@pytest.mark.parametrize("least", [False, True])
@pytest.mark.parametrize(("n", "count"), [(1024, 2), (1152, 8), (2560, 5)])
def test_ties_and_numbers_that_are_none_stand_where_they_stood(
    n: int, count: int, least: bool
) -> None:
    program = rows(n, count, least)
    made = tiered(program)
    rng = np.random.default_rng(n)
    drawn = np.array([NAN, -NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0], np.float32)
    for share in (0.0, 0.1, 1.0):
        values = rng.choice(drawn, (6, n))
        plain = rng.integers(-9, 9, (6, n)).astype(np.float32)
        inputs = {"V": np.where(rng.random((6, n)) < share, values, plain)}
        wanted, had = evaluate(program, inputs), evaluate(made, inputs)
        for name in wanted:
            np.testing.assert_array_equal(had[name], wanted[name], err_msg=name)


def test_parts_are_no_longer_than_a_tile_and_left_alone_then() -> None:
    made = tiered(rows(8192, 4))
    over = [made.axes[a] for n in made.nodes if isinstance(n.op, Reduce) for a in n.op.over]
    assert over.count(PART) == 4
    assert rewritten(made) is None


@pytest.mark.parametrize("n", [512, 1031])  # short, and a prime
def test_short_rows_and_those_without_equal_parts_stay(n: int) -> None:
    made = keyed(rows(n, 4))
    assert made is not None
    assert rewritten(made[1]) is None


def test_one_maximum_needs_no_parts() -> None:
    made = keyed(rows(8192, 1))
    assert made is not None
    assert rewritten(made[1]) is None


def test_rows_that_are_not_held_are_read_again() -> None:
    short, long, product = (keyed(p) for p in (rows(4096, 3), rows(65536, 3), nearest()))
    assert short is not None
    assert long is not None
    assert product is not None
    assert read_again(short[1]) == 0
    assert read_again(long[1]) == 2 * 4 * 6 * 65536
    assert read_again(product[1]) == 2 * 4 * 19 * 1024


def test_products_have_their_first_few_before_they_are_stored() -> None:
    program = nearest(m=4096, n=65536, d=128)
    rates = Rates({"bf16": 9e14}, other=6e13, bytes=4e12)
    names = [form.name for form in forms_of(program, rates).offered]
    assert any(name.startswith("tiered") for name in names), names
    kernels = kernels_of(tiered(program), HARDWARE, "wgmma", "sums-stored")
    (tensor,) = (kernel for kernel in kernels if kernel.kind == "tensor")
    assert [spec.shape for spec in tensor.program.outputs] == [(256, 4096)] * 3


@needs_compiler
@pytest.mark.parametrize("residence", ["usual", "sums-stored"])
@pytest.mark.parametrize("build", [nearest, words], ids=["nearest", "words"])
@pytest.mark.alike(2)
def test_their_kernels_are_right(build: Callable[[], Program], residence: str) -> None:
    program = build()
    assert form_problems(program, tiered(program), residence) == []
