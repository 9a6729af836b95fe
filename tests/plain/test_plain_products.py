"""Products of matrices among the sums of shared loops: which are, and what is rows and columns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ir import Graph, cast, contract, recur, where
from ir.inputs import drawn_inputs
from ir.plain.accesses import every
from ir.plain.build import plain_kernel
from ir.plain.code import GROUP, Let, Loop, Number, PlainKernel, Spread
from ir.plain.meaning import meaning
from ir.plain.panels import panel_axis, panelled
from ir.plain.products import narrowed, products_of
from ir.program import Program


def corrected(
    dtype: str = "bf16", state: str = "bf16", masked: bool = False, k: int = 16, steps: int = 3
) -> Program:
    """A state of k x e that is corrected by products with it, along t."""
    g = Graph("corrected")
    t, i, d, e = g.axes(t=steps, i=20, d=k, e=24)
    w, y = g.input("W", (t, i, d), dtype), g.input("Y", (t, i, e), "f32")
    before = g.state(t, (d, e))
    left = where(g.iota(d) <= g.iota(i), w, 0.0) if masked else w
    u = y - contract(left, cast(before, state), over=d)
    recur(before, before * 0.5 + contract(w, cast(u, dtype), over=i))
    g.output("U", u, "f32", (t, i, e))
    return g.program()


def spreads(kernel: PlainKernel) -> list[Spread]:
    return [s for s in every(kernel.body) if isinstance(s, Spread)]


def beside(program: Program, count: int = 8) -> PlainKernel:
    """The program's kernel with so many points beside each other, which are columns."""
    kernel = narrowed(plain_kernel(program))
    axis = panel_axis(kernel)
    assert axis is not None
    return panelled(kernel, axis, count)


def found(program: Program) -> list[tuple[list[str], list[str], str]]:
    """Rows, columns and type of each product."""
    kernel = beside(program)
    products = [products_of(kernel, spread) for spread in spreads(kernel)]
    return [
        ([n.name for n, _ in one.rows], [n.name for n, _ in one.columns], one.products[0].dtype)
        for one in products
        if one is not None
    ]


def test_the_longer_side_is_rows() -> None:
    one, two = found(corrected())
    assert (one[0][0][:3], one[1], one[2]) == ("i_i", ["lane"], "bf16")
    assert (two[0][0][:3], two[1], two[2]) == ("i_d", ["lane"], "bf16")
    wide = beside(corrected(), 24)
    products = [products_of(wide, spread) for spread in spreads(wide)]
    assert [one.sides for one in products if one] == [(1, 24, 20), (1, 24, 16)]


def test_a_point_alone_has_no_columns() -> None:
    kernel = narrowed(plain_kernel(corrected()))
    assert all(products_of(kernel, spread) is None for spread in spreads(kernel))


def test_types_are_those_of_both_factors() -> None:
    assert {one[2] for one in found(corrected("f16", "f16"))} == {"f16"}
    assert {one[2] for one in found(corrected("e4m3", "f16"))} <= {"f16", "bf16"}  # or parts
    assert {one[2] for one in found(corrected("bf16", "f16"))} == {"bf16"}  # one has parts
    assert {one[2] for one in found(corrected("f32", "f32"))} == {"bf16"}


def test_wide_factors_have_parts() -> None:
    """Of which as many are multiplied as change the last bit; long sums would lose more."""
    wide, mixed, narrow = (
        products_of(kernel, next(s for s in spreads(kernel) if products_of(kernel, s)))
        for kernel in map(
            beside, (corrected("f32", "f32"), corrected("bf16", "f32"), corrected("bf16", "bf16"))
        )
    )
    assert wide is not None
    assert mixed is not None
    assert narrow is not None
    assert (wide.products[0].parts, len(wide.products[0].pairs)) == ((3, 3), 6)
    assert sorted(mixed.products[0].parts) == [1, 3]
    assert mixed.products[0].pairs[-1] == (0, 0)  # the largest last
    assert narrow.products[0].pairs == ((0, 0),)


def test_a_choice_of_exact_values_is_exact() -> None:
    assert len(found(corrected(masked=True))) == 2


def test_short_sums_are_none() -> None:
    assert len(found(corrected(k=8))) == 1  # that over i


def test_arrays_are_as_narrow_as_what_is_written_in_them() -> None:
    kernel = plain_kernel(corrected())
    before = {a.name: a.dtype for a in kernel.arrays if a.place == GROUP}
    after = {a.name: a.dtype for a in narrowed(kernel).arrays if a.place == GROUP}
    changed = {name for name, dtype in before.items() if after[name] != dtype}
    assert changed
    assert all(after[name] == "bf16" for name in changed)
    assert "f32" in after.values()  # the state


def test_narrow_arrays_with_rows_apart_mean_the_same() -> None:
    program = corrected(steps=2)
    kernel = plain_kernel(program)
    inputs = drawn_inputs(program, 5)
    expected = meaning(kernel, inputs)
    narrow = narrowed(kernel)
    axis = panel_axis(narrow)
    assert axis is not None
    for other in (narrow, *(panelled(narrow, axis, 4, pitch) for pitch in (0, 12))):
        results = meaning(other, inputs)
        for name, array in expected.items():
            np.testing.assert_array_equal(results[name], array)


def test_what_is_behind_has_no_sums_of_its_own() -> None:
    kernel = beside(corrected())
    products = [one for spread in spreads(kernel) if (one := products_of(kernel, spread))]
    assert len(products) == 2
    for one in products:
        assert one.behind
        assert not any(isinstance(s, Loop) for s in one.behind)
        assert all(s.name != one.products[0].sum for s in one.behind if isinstance(s, Let))


def test_sums_that_begin_elsewhere_are_none() -> None:
    kernel = beside(corrected())
    spread = next(s for s in spreads(kernel) if products_of(kernel, s) is not None)
    loops = [s for s in spread.body if isinstance(s, Loop)]
    twice = replace(spread, body=(*spread.body[:-1], *loops, spread.body[-1]))
    assert products_of(kernel, twice) is None
    begun = [replace(s, value=Number(1.0, "f32")) if isinstance(s, Let) else s for s in spread.body]
    assert products_of(kernel, replace(spread, body=tuple(begun))) is None
