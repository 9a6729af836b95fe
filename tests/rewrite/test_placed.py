"""Where the largest of products stands, by two numbers of 32 bits: the same places and values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ir import Graph, argmax, argmin, cast, contract, reduce, top
from ir.inputs import random_inputs
from ir.ops.reduce import Reduce
from ir.oracle import evaluate
from ir.program import Program
from ir.rewrite.forms import forms_of
from ir.rewrite.placed import rewritten
from ir.rewrite.work import Rates
from ir.targets.cuda.build.kernels import kernels_of
from tests.cuda.run import needs_compiler
from tests.targets.cuda_cases import HARDWARE
from tests.targets.formed import form_problems


def nearest(m: int = 19, n: int = 48, d: int = 16, dtype: str = "bf16") -> Program:
    g = Graph("nearest")
    mm, nn, dd = g.axes(m=m, n=n, d=d)
    x, y = g.input("X", (mm, dd), dtype), g.input("Y", (nn, dd), dtype)
    own = reduce("sum", cast(y, "f32") * cast(y, "f32"), over=dd)
    g.output("I", argmin(own - contract(x, y, over=dd) * 2.0, nn), "i32", (mm,))
    return g.program()


def likest(m: int = 19, n: int = 1024, d: int = 16) -> Program:
    """The largest product, where it stands, and its distance from a bound."""
    g = Graph("likest")
    mm, nn, dd, one = g.axes(m=m, n=n, d=d, one=1)
    s = contract(g.input("X", (mm, dd), "f32"), g.input("Y", (nn, dd), "f32"), over=dd)
    values, places = top(s, nn, one)
    g.output("V", values, "f32", (mm, one))
    g.output("I", places, "i32", (mm, one))
    return g.program()


def whole(m: int = 19, n: int = 1280, d: int = 16) -> Program:
    g = Graph("whole")
    mm, nn, dd = g.axes(m=m, n=n, d=d)
    s = contract(g.input("X", (mm, dd), "i8"), g.input("Y", (nn, dd), "i8"), over=dd)
    g.output("I", argmax(s, nn), "i32", (mm,))
    return g.program()


def made(program: Program) -> Program:
    found = rewritten(program)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("build", [nearest, likest, whole])
def test_places_are_the_same(build: Callable[[], Program]) -> None:
    program = build()
    inputs = random_inputs(program, np.random.default_rng(3))
    wanted, had = evaluate(program, inputs), evaluate(made(program), inputs)
    for name in wanted:
        np.testing.assert_array_equal(had[name], wanted[name], err_msg=name)


@pytest.mark.parametrize("n", [48, 1024])
def test_ties_and_numbers_that_are_none_stand_where_they_stood(n: int) -> None:
    program = likest(m=40, n=n, d=1)
    rng = np.random.default_rng(n)
    drawn = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0], np.float32)
    for share in (0.0, 0.1, 1.0):
        some = rng.integers(-2, 2, (n, 1)).astype(np.float32)
        odd = rng.choice(drawn, (n, 1))
        inputs = {
            "X": rng.choice(drawn[-4:], (40, 1)),
            "Y": np.where(rng.random((n, 1)) < share, odd, some),
        }
        with np.errstate(invalid="ignore"):
            wanted, had = evaluate(program, inputs), evaluate(made(program), inputs)
        for name in wanted:
            np.testing.assert_array_equal(had[name], wanted[name], err_msg=name)


def test_nothing_has_more_than_32_bits() -> None:
    for program in (nearest(), likest(), whole()):
        kinds = {n.dtype for n in made(program).nodes if isinstance(n.op, Reduce)}
        assert kinds <= {"f32", "i32"}


def test_rows_that_are_no_products_stay() -> None:
    g = Graph("rows")
    a, b = g.axes(a=8, b=64)
    g.output("I", argmax(g.input("V", (a, b), "f32"), b), "i32", (a,))
    assert rewritten(g.program()) is None
    assert rewritten(nearest(n=1031)) is None  # a prime: no equal parts


@pytest.mark.parametrize(("m", "n"), [(65536, 256), (262144, 8192)])
def test_it_is_offered_and_its_products_stay_in_their_tiles(m: int, n: int) -> None:
    program = nearest(m=m, n=n, d=64)
    rates = Rates({"bf16": 9e14}, other=6e13, bytes=4e12)
    names = [form.name for form in forms_of(program, rates).offered]
    assert any(name.startswith("placed") for name in names), names
    kernels = kernels_of(made(program), HARDWARE, "wgmma", "sums-stored" if n > 256 else "usual")
    (tensor,) = (kernel for kernel in kernels if kernel.kind == "tensor")
    assert all(spec.shape in ((m,), (n // 256, m)) for spec in tensor.program.outputs)


@needs_compiler
@pytest.mark.parametrize(
    ("build", "residence"),
    [(nearest, "usual"), (nearest, "sums-stored"), (likest, "sums-stored"), (whole, "sums-stored")],
)
@pytest.mark.alike(2)
def test_their_kernels_are_right(build: Callable[[], Program], residence: str) -> None:
    program = build()
    assert form_problems(program, made(program), residence) == []
