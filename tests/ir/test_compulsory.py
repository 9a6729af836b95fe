"""What no right kernel can leave out: bytes and products of programs of many kinds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings

from ir import (
    Graph,
    argmax,
    cast,
    contract,
    cumulative,
    exp,
    maximum,
    operator,
    reduce,
    scatter,
    top,
    where,
)
from ir.compulsory import Compulsory, compulsory
from ir.dtypes import dtype_of, is_float
from ir.oracle import evaluate, random_inputs
from ir.program import Program
from ir.registry import load_operator
from tests.ir.programs import programs

M, N, K = 6, 8, 10


def _of(body: Callable[..., None], **extents: int) -> Compulsory:
    return compulsory(operator(body).build(**extents))


def _whole(program: Program) -> bool:
    return compulsory(program).bytes == program.bytes


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("matmul", {"m": M, "n": N, "k": K}),
        ("matmul", {"m": M, "n": N, "k": K, "dtype": "bf16", "tb": True}),
        ("matmul_bias_act", {"m": M, "n": N, "k": K}),
        ("gated_mlp", {"m": M, "n": N, "k": K}),
        ("scaled_matmul", {"m": M, "n": N, "k": K}),
        ("softmax", {"m": M, "n": N}),
        ("layernorm", {"m": M, "n": N}),
        ("rmsnorm", {"m": M, "n": N}),
        ("row_max", {"m": M, "n": N}),
        ("attention", {"b": 1, "heads": 2, "sq": N, "d": K}),
        ("gaussian", {"n": N, "d": K}),
    ],
)
def test_dense_programs_read_all_and_write_all(name: str, arguments: dict[str, Any]) -> None:
    assert _whole(load_operator(name).build(**arguments))


@pytest.mark.parametrize("option", [{"causal": True}, {"window": 2}])
def test_masked_attention_may_skip_keys_and_products(option: dict[str, Any]) -> None:
    program = load_operator("attention").build(b=1, heads=1, sq=N, d=K, **option)
    found = compulsory(program)
    assert found.products == ()
    assert (found.read, found.written) == (0, 4 * N * K)


def _operations(found: Compulsory) -> list[list[int]]:
    return [[product.operations for product in group] for group in found.products]


@pytest.mark.parametrize(
    ("name", "arguments", "operations"),
    [
        ("matmul", {"m": M, "n": N, "k": K}, [[2 * M * N * K]]),
        ("matmul_bias_act", {"m": M, "n": N, "k": K}, [[2 * M * N * K]]),
        ("attention", {"b": 1, "heads": 2, "sq": N, "d": K}, [[4 * N * N * K]] * 2),
        ("softmax", {"m": M, "n": N}, []),
        # windows: a transform needs fewer products
        ("conv2d", {"n": 1, "h": 6, "w": 6, "c": 4, "f": 4, "r": 3, "s": 3}, []),
    ],
)
def test_products_of_our_operators(
    name: str, arguments: dict[str, Any], operations: list[list[int]]
) -> None:
    assert _operations(compulsory(load_operator(name).build(**arguments))) == operations


def _three(g: Graph, m: int, n: int, k: int) -> tuple[Any, ...]:
    mm, nn, kk = g.axes(m=m, n=n, k=k)
    a, b = g.input("A", (mm, kk), "f32"), g.input("B", (kk, nn), "f32")
    return mm, nn, kk, a, b


def chained(g: Graph, m: int, n: int, k: int) -> None:
    mm, nn, kk, a, b = _three(g, m, n, k)
    (p,) = g.axes(p=4)
    c = g.input("C", (nn, p), "f32")
    g.output("O", contract(contract(a, b, over=kk), c, over=nn), "f32", (mm, p))


def summed(g: Graph, m: int, n: int, k: int) -> None:
    mm, nn, kk, a, b = _three(g, m, n, k)
    g.output("O", reduce("sum", contract(a, b, over=kk), over=nn), "f32", (mm,))


def added(g: Graph, m: int, n: int, k: int) -> None:
    mm, nn, kk, a, b = _three(g, m, n, k)
    d = g.input("D", (kk, nn), "f32")
    both = contract(a, b, over=kk) + contract(a, d, over=kk) * 2.0
    g.output("O", both, "f32", (mm, nn))


def twice(g: Graph, m: int, n: int, k: int) -> None:
    mm, nn, kk, a, b = _three(g, m, n, k)
    g.output("O", contract(a, b, over=kk) * exp(contract(a, b, over=kk)), "f32", (mm, nn))


def with_itself(g: Graph, m: int, n: int, k: int) -> None:
    mm, m2, kk = g.axes(m=m, m2=m, k=k)
    a = g.tensor("A", (m, k), "f32")
    g.output("O", contract(a[mm, kk], a[m2, kk], over=kk), "f32", (mm, m2))


def of_rank_one(g: Graph, m: int, n: int, k: int) -> None:
    mm, nn, kk = g.axes(m=m, n=n, k=k)
    u, v, b = (
        g.input("u", (mm,), "f32"), g.input("v", (kk,), "f32"), g.input("B", (kk, nn), "f32"),
    )  # fmt: skip
    g.output("O", contract(u * v, b, over=kk), "f32", (mm, nn))


def scaled_rows(g: Graph, m: int, n: int, k: int) -> None:
    mm, nn, kk, a, b = _three(g, m, n, k)
    scale = g.input("s", (mm,), "f32")
    g.output("O", contract(a * scale, b, over=kk), "f32", (mm, nn))


def exponentials(g: Graph, m: int, n: int, k: int) -> None:
    """A product of a curved function of a product: neither may be left out."""
    mm, nn, kk, a, b = _three(g, m, n, k)
    (p,) = g.axes(p=4)
    c = g.input("C", (nn, p), "f32")
    g.output("O", contract(exp(contract(a, b, over=kk)), c, over=nn), "f32", (mm, p))


def masked_product(g: Graph, m: int, n: int, k: int) -> None:
    mm, nn, kk, a, b = _three(g, m, n, k)
    c = contract(a, b, over=kk)
    g.output("O", where(g.iota(nn) <= g.iota(mm), c, 0.0), "f32", (mm, nn))


@pytest.mark.parametrize(
    ("body", "operations"),
    [
        (chained, []),  # (A B) C is A (B C)
        (summed, []),  # sums over results go to the factor
        (added, [[2 * M * N * K] * 2]),  # A B + A D is A (B + D): one of the two
        (twice, [[2 * M * N * K]]),  # the same product once
        (with_itself, [[M * M * K]]),  # symmetric: half of it
        (of_rank_one, []),
        (scaled_rows, [[2 * M * N * K]]),
        (exponentials, [[2 * M * N * K], [2 * M * N * 4]]),
        (masked_product, []),
    ],
)
def test_rewrites_that_save_products_are_allowed_for(
    body: Callable[..., None], operations: list[list[int]]
) -> None:
    assert _operations(_of(body, m=M, n=N, k=K)) == operations


def table(g: Graph, m: int, n: int, k: int) -> None:
    """Rows of a table by gathered indices: of the table nothing is certain."""
    mm, nn = g.axes(m=m, n=n)
    index = g.input("index", (mm,), "i32")
    rows = g.tensor("T", (k, n), "f32")
    g.output("O", rows[index, nn], "f32", (mm, nn))


def ragged(g: Graph, m: int, n: int, k: int) -> None:
    """What lies beyond a row's length is not read."""
    mm, nn = g.axes(m=m, n=n)
    x, length = g.input("X", (mm, nn), "f32"), g.input("length", (mm,), "i32")
    g.output("O", reduce("sum", where(g.iota(nn) < length, x, 0.0), over=nn), "f32", (mm,))


def every_second(g: Graph, m: int, n: int, k: int) -> None:
    mm, nn = g.axes(m=m, n=n)
    x = g.tensor("X", (m, 2 * n), "f32")
    g.output("O", x[mm, 2 * nn], "f32", (mm, nn))


def diagonal(g: Graph, m: int, n: int, k: int) -> None:
    (mm,) = g.axes(m=m)
    x = g.tensor("X", (m, m), "f32")
    g.output("O", x[mm, mm], "f32", (mm,))


def shifted(g: Graph, m: int, n: int, k: int) -> None:
    """One element beyond the end, where there is a fill."""
    mm, nn = g.axes(m=m, n=n)
    x = g.tensor("X", (m, n), "f32", fill=0)
    g.output("O", x[mm, nn + 1] + x[mm, nn], "f32", (mm, nn))


def outside(g: Graph, m: int, n: int, k: int) -> None:
    """Shifted only: the first of each row is never read."""
    mm, nn = g.axes(m=m, n=n)
    x = g.tensor("X", (m, n), "f32", fill=0)
    g.output("O", x[mm, nn + 1], "f32", (mm, nn))


def cancelled(g: Graph, m: int, n: int, k: int) -> None:
    mm, nn = g.axes(m=m, n=n)
    x, y = g.input("X", (mm, nn), "f32"), g.input("Y", (mm, nn), "f32")
    g.output("O", x + (y - y) + y * 0.0, "f32", (mm, nn))


def added_mask(g: Graph, m: int, n: int, k: int) -> None:
    """A mask that is added as infinities."""
    mm, nn = g.axes(m=m, n=n)
    x = g.input("X", (mm, nn), "f32")
    mask = where(g.iota(nn) <= g.iota(mm), 0.0, -math.inf)
    g.output("O", reduce("sum", exp(x + mask), over=nn), "f32", (mm,))


def clipped(g: Graph, m: int, n: int, k: int) -> None:
    mm, nn = g.axes(m=m, n=n)
    x = g.input("X", (mm, nn), "f32")
    g.output("O", maximum(x, 0.0), "f32", (mm, nn))


@pytest.mark.parametrize(
    ("body", "read", "written"),
    [
        (table, M * 4, M * N * 4),
        (ragged, 0, M * 4),
        (every_second, M * N * 4, M * N * 4),
        (diagonal, M * 4, M * 4),
        (shifted, M * N * 4, M * N * 4),
        (outside, M * (N - 1) * 4, M * N * 4),
        (cancelled, M * N * 4, M * N * 4),
        (added_mask, 0, M * 4),
        (clipped, M * N * 4, M * N * 4),
    ],
)
def test_only_what_must_be_read_counts(body: Callable[..., None], read: int, written: int) -> None:
    found = _of(body, m=M, n=N, k=K)
    assert (found.read, found.written) == (read, written)


def test_the_types_of_a_product_are_those_of_all_that_it_is_made_of() -> None:
    """A factor in f32 that comes of bf16 may be multiplied as bf16."""

    def widened(g: Graph, m: int, n: int, k: int) -> None:
        mm, nn, kk = g.axes(m=m, n=n, k=k)
        a, b = g.input("A", (mm, kk), "bf16"), g.input("B", (kk, nn), "f32")
        g.output("O", contract(cast(a, "f32"), b, over=kk), "f32", (mm, nn))

    ((product,),) = _of(widened, m=M, n=N, k=K).products
    assert (product.factors, product.accumulates) == (("bf16", "f32"), "f32")


def _not_a_number(array: Any, place: int) -> Any:
    found = array.copy()
    found.reshape(-1)[place] = np.nan if array.dtype.kind == "f" else 0x7FC0  # that of bf16
    return found


@given(programs())
@settings(max_examples=45, deadline=None)
def test_what_counts_as_read_decides_a_result(program: Program) -> None:
    """Of random programs: no more is compulsory than what shows in the results if it is NaN."""
    inputs = random_inputs(program, np.random.default_rng(0))
    with np.errstate(all="ignore"):
        before = evaluate(program, inputs)
        assume(not any(np.isnan(array).any() for array in before.values()))
        seen = 0
        for spec in program.inputs:
            array = inputs[spec.name]
            if not is_float(spec.dtype):
                seen += array.nbytes
                continue
            for place in range(array.size):
                after = evaluate(program, inputs | {spec.name: _not_a_number(array, place)})
                shows = any(np.isnan(found).any() for found in after.values())
                seen += shows * array.itemsize
    found = compulsory(program)
    assert found.read <= seen
    assert found.written == sum(array.size * _width(program, n) for n, array in before.items())


def _width(program: Program, name: str) -> int:
    return dtype_of(program.scope.tensors[name].dtype).bytes


def test_scans_and_tops_read_all_and_scatters_nothing_for_sure() -> None:
    def prefixes(g: Graph, m: int, n: int) -> None:
        i, j = g.axes(i=m, j=n)
        x = g.input("X", (i, j), "f32")
        g.output("S", cumulative("sum", x, j))
        g.output("A", argmax(x, i))

    def places(g: Graph, m: int, n: int) -> None:
        i, j, r = g.axes(i=m, j=n, r=2)
        g.output("P", top(g.input("X", (i, j), "f32"), j, r)[1])

    def sent(g: Graph, m: int, n: int) -> None:
        i, j = g.axes(i=m, j=n)
        at = g.input("I", (i,), "i32")
        g.output("Y", scatter("sum", g.input("X", (i,), "f32"), {j: at}))

    found = _of(prefixes, m=M, n=N)
    assert (found.read, found.written) == (4 * M * N, 4 * M * N + 4 * N)
    found = _of(places, m=M, n=N)
    assert (found.read, found.written) == (4 * M * N, 4 * M * 2)
    found = _of(sent, m=M, n=N)
    assert (found.read, found.written) == (0, 4 * N)
