"""Arguments of operators from arrays: what shapes tell is found, what they do not tell is asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir import Graph, Operator, Program, UsageError, contract, load_operator, operator
from ir.catalogue import families, settings_of
from ir.dtypes import numpy_dtype
from ir.fitting import Example, fitted_arguments
from ir.registry import kind_of
from ir.sources import find_source

# Of these, extents that no input has: how many are chosen, how long a list may be, how many steps.
UNTOLD = {
    "diffusion", "document_attention", "embedding_backward", "expert_histogram", "histogram",
    "life", "moe", "moe_gate",
    "moe_permute", "moe_positions", "nearest", "power_iteration", "ragged_attention",
    "ragged_embedding_bag", "segment_mean", "segment_sum", "top_k", "top_k_mask", "waves",
    "weighted_histogram", "bsr_matmul",
}  # fmt: skip
UNSOLVED = {"hadamard"}  # dimensions are as many as an extent has bits
BUILT_IN = {op.name: op for family in families() for op in family.operators}


def examples_of(program: Program) -> list[Example]:
    return [Example(spec.shape, (spec.dtype,), spec.dtype) for spec in program.inputs]


def fit(what: Any, *arrays: Any, **given: Any) -> dict[str, Any]:
    return fitted_arguments(find_source(what), [Example.of(array) for array in arrays], given)


def test_shapes_tell_the_extents_of_built_in_operators() -> None:
    untold: set[str] = set()
    unsolved: set[str] = set()
    for name, op in BUILT_IN.items():
        small = settings_of(op)["small"]
        program = op.build(**small)
        others = {n: v for n, v in small.items() if kind_of(op.parameters[n]) is not int}
        others.pop("dtype", None)
        try:
            found = fitted_arguments(op, examples_of(program), others)
        except UsageError as error:
            (untold if "do not tell" in str(error) else unsolved).add(name)
            continue
        again = op.build(**found)
        assert [s.shape for s in again.inputs] == [s.shape for s in program.inputs], name
        assert [s.dtype for s in again.inputs] == [s.dtype for s in program.inputs], name
    assert untold == UNTOLD
    assert unsolved == UNSOLVED


EXTENT = st.integers(1, 5000)


@given(EXTENT, EXTENT, EXTENT, st.integers(0, 9), st.booleans(), st.booleans(),
       st.sampled_from(["f32", "f64", "bf16", "i8"]))  # fmt: skip
@settings(deadline=None, max_examples=25)
def test_a_product_is_found_again(
    m: int, n: int, k: int, batch: int, ta: bool, tb: bool, dtype: str
) -> None:
    whole = {"m": m, "n": n, "k": k, "dtype": dtype, "ta": ta, "tb": tb, "batch": batch}
    program = load_operator("matmul").build(**whole)
    found = fitted_arguments(find_source("matmul"), examples_of(program), {"ta": ta, "tb": tb})
    assert load_operator("matmul").build(**found) == program


@operator
def halves(g: Graph, n: int, parts: int = 2, dtype: str = "f32") -> None:
    """An extent of which half is seen, and one that only another tells."""
    rows, columns = g.axes(n=n // 2, p=n * parts)
    x = g.input("X", (rows,), dtype)
    w = g.input("W", (rows, columns), dtype)
    g.output("Y", contract(x, w, over=rows), dtype)


def test_dimensions_that_are_no_arguments_are_solved_for() -> None:
    ones = np.ones
    assert fit(halves, ones(6, "f4"), ones((6, 24), "f4")) == {"n": 12}
    assert fit(halves, ones(6, "f8"), ones((6, 60), "f8")) == {"dtype": "f64", "n": 12, "parts": 5}


def test_whatever_has_a_shape_is_an_example() -> None:
    a = np.ones((2, 3), "f4")
    whole = {"m": 2, "n": 3, "k": 3}
    assert fit("matmul", a, [[1.0] * 3] * 3) == whole
    assert fit("matmul", np.asfortranarray(a), np.ones((3, 3), ">f4")) == whole
    patterns = np.ones((3, 3), "u2")
    found = fit("matmul", patterns, patterns, dtype="bf16")
    assert found == {"dtype": "bf16", "m": 3, "n": 3, "k": 3}

    class Tensor:
        shape = (2, 3)
        dtype = "torch.bfloat16"

    class Square(Tensor):
        shape = (3, 3)

    assert fit("matmul", Tensor(), Square()) == {"dtype": "bf16", **whole}


def program(m: int = 3) -> Program:
    return BUILT_IN["softmax"].build(m=m, n=4)


@operator
def powers(g: Graph, m: int, p: int, q: int) -> None:
    """Y = (x + q) ** p."""
    g.output("Y", (g.input("X", (g.axis("m", m),), "f32") + q) ** p)


@pytest.mark.parametrize(
    ("what", "arrays", "given", "message"),
    [
        ("matmul", [(4, 5)], {}, "matmul takes A, B: 1 arrays are given"),
        ("matmul", [(4, 5), (6, 7)], {},
         "matmul: B has shape [6, 7]; with m=4, n=7, k=5 it is [5, 7]"),
        ("matmul", [(4, 5), (5, 7)], {"k": 6},
         "matmul: A has shape [4, 5]; with m=4, n=7 it is [4, 6]"),
        ("matmul", [(4,), (4, 5)], {}, "matmul: A has 2 dimensions, not float32[4]"),
        ("matmul", [(4, 5), (5, 7)], {"dtype": "f64"}, "matmul: A is of f64, not float32[4, 5]"),
        ("matmul", [(4, 5), (5, 7)], {"q": 6}, "matmul: unknown argument 'q'"),
        ("top_k", [(4, 5)], {}, "top_k: shapes of arrays do not tell k: give it by name"),
        (powers, [(4,)], {}, "powers: shapes of arrays do not tell p, q: give them by name"),
        (program(), [(3, 5)], {}, "softmax: X has shape [3, 5]; it is [3, 4]"),
        (lambda kind: program(), [(3, 4)], {}, "shapes of arrays do not tell kind"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_one_line(
    what: Any, arrays: list[tuple[int, ...]], given: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        fit(what, *(np.ones(shape, np.float32) for shape in arrays), **given)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_extent_is_asked_for() -> None:
    @operator
    def chosen(g: Graph, m: int, kind: str) -> None:
        g.output("Y", g.input("X", (g.axis("m", m),), "f32") * (2.0 if kind == "two" else 3.0))

    with pytest.raises(UsageError, match="chosen: arrays do not tell kind: give it by name"):
        fit(chosen, np.ones(3, np.float32))
    assert fit(chosen, np.ones(3, np.float32), kind="two") == {"kind": "two", "m": 3}


@pytest.mark.parametrize("value", [object(), [[1.0], [1.0, 2.0]], {"a": 1}])
def test_what_is_no_array_is_refused(value: object) -> None:
    with pytest.raises(UsageError):
        fit("row_sum", value)


def test_a_dtype_may_stand_for_others_of_its_size() -> None:
    assert set(Example.of(np.ones(2, np.uint8)).dtypes) >= {"u8", "e4m3", "e5m2"}
    for name in Example.of(np.ones(2, np.uint16)).dtypes:
        assert numpy_dtype(name) == np.uint16


def test_operators_of_an_author_may_refuse_trial_extents() -> None:
    @operator
    def grouped(g: Graph, m: int, group: int) -> None:
        if group < 3 or m % group:
            raise ValueError(f"{m} is no multiple of {group}")
        rows, parts = g.axes(m=m // group, g=group)
        g.output("Y", g.input("X", (rows, parts), "f32") * 2.0)

    assert isinstance(grouped, Operator)
    assert fit(grouped, np.ones((5, 7), np.float32)) == {"m": 35, "group": 7}
