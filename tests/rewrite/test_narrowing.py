"""Wide products in narrow parts: how many parts there are, and that their sum is the product."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.recipe import recipe_of
from ir import Graph, Program, Tile, cast, contract, exp, reduce, uniform, where
from ir.dtypes import from_float, to_float
from ir.narrow_parts import PART, STEPWISE
from ir.ops.base import Array
from ir.ops.load import Load
from ir.ops.map import Map
from ir.ops.reduce import Contract
from ir.oracle import evaluate, random_inputs
from ir.rewrite import narrowing
from ir.rewrite.forms import forms_of, reason_of
from ir.rewrite.narrowing import NAME, bits_of, narrowed, shortened, unwidened
from ir.rewrite.split import split
from ir.rewrite.work import Rates
from ir.target import KnowsMachines, get_backend
from ir.targets.cuda.build.cut import WGMMA, cut_program
from ir.targets.cuda.build.roles import find_roles
from tests.judging import bounds_of

Factor = Callable[[Graph, Tile], Tile]
FAST = Rates({"bf16": 16e12, "f32": 1e12}, 1e12, 1e12)


def product(left: Factor, right: str = "f32", size: int = 24, inner: str = "bf16") -> Program:
    graph = Graph("wide")
    m, n, k = graph.axes(m=5, n=6, k=size)
    x, y = graph.input("x", (m, k), inner), graph.input("y", (k, n), right)
    graph.output("z", contract(left(graph, x), y, over=k), "f32", (m, n))
    return graph.program()


FACTORS: dict[str, tuple[Factor, int]] = {
    "signs": (lambda g, x: where(x > 0, 1.0, -1.0), 1),
    "widened": (lambda g, x: cast(x, "f32"), 8),
    "of two": (lambda g, x: cast(x, "f32") * x, 16),
    "quarters": (lambda g, x: cast(x, "f32") * 0.25, 8),
    "negated": (lambda g, x: -(cast(x, "f32") * x), 16),
    "computed": (lambda g, x: exp(x), 24),
    "of three": (lambda g, x: cast(x, "f32") * x * x, 24),
}


@pytest.mark.parametrize("name", FACTORS)
def test_bits_of_what_a_factor_is_made_of(name: str) -> None:
    left, bits = FACTORS[name]
    program = product(left)
    position = next(n for n, node in enumerate(program.nodes) if node.op.name == "contract")
    assert bits_of(program, program.nodes[position].args[0]) == bits


@pytest.mark.parametrize("right", ["f32", "bf16"])
@pytest.mark.parametrize("name", FACTORS)
def test_products_of_parts_are_the_product(name: str, right: str) -> None:
    program = product(FACTORS[name][0], right)
    inputs = random_inputs(program, np.random.default_rng(1))
    found = narrowed(program)
    assert found is not None
    narrow = found.program
    contracts = [node for node in narrow.nodes if node.op.name == "contract"]
    assert {narrow.nodes[a].dtype for one in contracts for a in one.args} == {PART}
    want, have = (evaluate(one, inputs)["z"] for one in (program, narrow))
    sizes = np.abs(want).max()
    np.testing.assert_allclose(have, want, rtol=0, atol=2.0**-23 * sizes)


@pytest.mark.parametrize("name", ["widened", "of two"])
def test_factors_that_were_only_widened_are_taken_as_they_were(name: str) -> None:
    program = product(FACTORS[name][0], "bf16")
    plain = unwidened(program)
    (contracted,) = (node for node in plain.nodes if node.op.name == "contract")
    types = {plain.nodes[arg].dtype for arg in contracted.args}
    assert types == ({"bf16"} if name == "widened" else {"f32", "bf16"})
    inputs = random_inputs(program, np.random.default_rng(2))
    want, have = (evaluate(one, inputs)["z"] for one in (program, plain))
    np.testing.assert_array_equal(have, want)


def test_widened_factors_are_judged_as_kernels_multiply_them() -> None:
    backend = get_backend("cuda")
    assert isinstance(backend, KnowsMachines)
    program = product(FACTORS["widened"][0], "bf16")
    recipe = recipe_of(program, 0, backend, backend.machine("h200"))
    assert recipe.program == unwidened(program) != program


def truncated(numbers: Array) -> Array:
    """As f32, towards zero."""
    near = numbers.astype(np.float32)
    beyond = np.abs(near.astype(np.float64)) > np.abs(numbers)
    return np.where(beyond, np.nextafter(near, np.float32(0)), near)


@pytest.mark.parametrize("backwards", [False, True])
def test_sums_that_drop_bits_stay_within_bounds(backwards: bool) -> None:
    """As tensor cores add up: sixteen products at a time, to a sum that is truncated. With the
    largest parts first they lose too much."""
    graph = Graph("long")
    m, n, k = graph.axes(m=48, n=48, k=4096)
    x, y = graph.input("x", (m, k), "f32"), graph.input("y", (k, n), "f32")
    graph.output("z", contract(x, y, over=k), "f32", (m, n))
    program = graph.program()
    inputs = random_inputs(program, np.random.default_rng(3))
    bounds = bounds_of(program, inputs)["z"]
    found = narrowed(program)
    assert found is not None
    (product,) = (node for node in found.program.nodes if node.op.name == "contract")
    left, right = (value_of(found.program, arg, inputs) for arg in product.args)
    assert (left.shape, right.shape) == ((6, 48, 4096), (6, 4096, 48))
    total: Array = np.zeros((48, 48), np.float32)
    for part in range(6)[:: -1 if backwards else 1]:
        for start in range(0, 4096, 16):
            added = left[part, :, start : start + 16] @ right[part, start : start + 16]
            total = truncated(total.astype(np.float64) + added)
    assert bounds.judge(total).right is not backwards


def long(length: int) -> Graph:
    """One wide factor."""
    graph = Graph("long")
    m, n, k = graph.axes(m=48, n=48, k=length)
    x, y = graph.input("x", (m, k), "f32"), graph.input("y", (k, n), "bf16")
    graph.output("z", contract(x, y, over=k), "f32", (m, n))
    return graph


@pytest.mark.parametrize("seed", [3, 4])
def test_parts_one_step_after_the_other_stay_within_bounds(seed: int) -> None:
    """In one sum, to which each step adds the least part first."""
    graph = long(STEPWISE)
    assert narrowed(long(STEPWISE + 1).program(), apart=True) is None
    inputs = random_inputs(graph.program(), np.random.default_rng(seed))
    found = narrowed(graph.program(), apart=True)
    assert found is not None
    products = [node for node in found.program.nodes if node.op.name == "contract"]
    factors = [[value_of(found.program, arg, inputs) for arg in node.args] for node in products]
    sizes = [float(np.abs(left).max()) for left, _ in factors]
    assert sizes == sorted(sizes)  # the least first
    total: Array = np.zeros((48, 48), np.float32)
    for start in range(0, STEPWISE, 16):
        for left, right in factors:
            added = left[:, start : start + 16] @ right[start : start + 16]
            total = truncated(total.astype(np.float64) + added)
    assert bounds_of(graph.program(), inputs)["z"].judge(total).right


def value_of(program: Program, position: int, inputs: Mapping[str, Array]) -> Array:
    """A value of a program, as one computes it that stores nothing else."""
    graph = Graph.like("factor", dict(program.axes), program.inputs, ())
    made: list[Tile] = []
    for node in program.nodes[: position + 1]:
        made.append(graph.add(node.op, *(made[arg] for arg in node.args)))
    graph.output("value", made[position], PART)
    return evaluate(graph.program(), inputs, rounds=True)["value"]


@given(
    st.floats(
        width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**100), max_value=2.0**100
    )
)
def test_a_number_is_the_sum_of_its_parts(number: float) -> None:
    graph = Graph("one")
    m, n, k = graph.axes(m=2, n=2, k=1)
    x, y = graph.input("x", (m, k), "f32"), graph.input("y", (k, n), "bf16")
    graph.output("z", contract(x, y, over=k), "f32", (m, n))
    found = narrowed(graph.program())
    assert found is not None
    whole = np.full((2, 1), number, np.float32)
    inputs = {"x": whole, "y": from_float(np.ones((1, 2)), "bf16")}
    have = evaluate(found.program, inputs, rounds=True)["z"]
    if abs(number) > 1e-30:  # below, the last part has no room in its type
        np.testing.assert_array_equal(have, np.full((2, 2), whole[0, 0], np.float64))


def test_what_is_narrow_or_no_product_of_matrices_is_left() -> None:
    assert narrowed(product(lambda g, x: x, "bf16")) is None
    graph = Graph("vector")
    m, k = graph.axes(m=5, k=6)
    x, y = graph.input("x", (m, k), "f32"), graph.input("y", (k,), "f32")
    graph.output("z", contract(x, y, over=k), "f32", (m,))
    assert narrowed(graph.program()) is None


def test_the_form_is_offered_where_it_is_less_work() -> None:
    graph = Graph("large")
    m, n, k = graph.axes(m=2048, n=2048, k=2048)
    x, y = graph.input("x", (m, k), "f32"), graph.input("y", (k, n), "f32")
    graph.output("z", contract(x, y, over=k), "f32", (m, n))
    program = graph.program()
    offered = [form.steps[-1].rule for form in forms_of(program, FAST).offered if form.steps]
    assert offered == [NAME]
    assert "narrow" in reason_of(NAME)
    slow = Rates({"f32": 1e12}, 1e12, 1e12)
    full = replace(FAST, room=2 * 6 * 2048 * 2048 * 2 - 1)  # six parts of two factors
    assert all(len(forms_of(program, rates).offered) == 1 for rates in (slow, full))
    assert len(forms_of(program, replace(full, room=full.room + 1)).offered) == 2


def test_parts_of_bf16_hold_what_they_say() -> None:
    values = np.array([1.0, 255.0, 1.0 + 2**-7])
    np.testing.assert_array_equal(to_float(from_float(values, PART), PART), values)


def test_parts_are_walked_around_the_sum() -> None:
    """So that the smallest products of all points are added before any of the larger."""
    found = narrowed(product(FACTORS["computed"][0], size=512))
    assert found is not None
    last = cut_program(found.program, engine=WGMMA)[-1]
    roles = find_roles(last, False)
    assert [axis.startswith("parts") for axis in roles.walked] == [True, False]
    loads = [node.op for node in last.nodes if isinstance(node.op, Load)]
    inner = {axis for op in loads for axis, _ in op.index[-1].terms}
    assert not any(axis.startswith("parts") for axis in inner)


def whole(left: str, make: Callable[[Tile], Tile], dtype: str = "i32") -> Program:
    """A product of whole numbers in 32 bits, of which one factor is made of i8."""
    g = Graph("whole")
    m, n, k = g.axes(m=8, n=16, k=32)
    a = make(cast(g.input("A", (m, k), left), dtype))
    b = cast(g.input("B", (n, k), "i8"), dtype)
    g.output("C", contract(a, b, over=k), "i32")
    return g.program()


BYTES = {
    "widened": ("i8", lambda a: a, ("i8", "i8")),
    "twice": ("i8", lambda a: cast(cast(a, "i64"), "i32"), ("i8", "i8")),
    "unsigned": ("u8", lambda a: a, ("u8", "i8")),
    "nibble": ("i32", lambda a: (a & 15) - 8, ("i8", "i8")),
    "high": ("u8", lambda a: a >> 3, ("i8", "i8")),
    "sum": ("u8", lambda a: (a >> 1) + 100, ("u8", "i8")),
    "large": ("u8", lambda a: a + 1, ("i32", "i32")),
    "wide": ("i32", lambda a: a, ("i32", "i32")),
}


@pytest.mark.parametrize("name", BYTES)
def test_whole_numbers_that_have_room_in_bytes_are_multiplied_as_bytes(name: str) -> None:
    left, make, wanted = BYTES[name]
    program = whole(left, make)
    made = unwidened(program)
    (node,) = (node for node in made.nodes if isinstance(node.op, Contract))
    assert tuple(made.nodes[arg].dtype for arg in node.args) == wanted
    inputs = random_inputs(program, np.random.default_rng(2))
    assert np.array_equal(evaluate(made, inputs)["C"], evaluate(program, inputs)["C"])


def test_zero_points_are_taken_out_of_a_product_of_bytes() -> None:
    """(A - a) (B - b) is a product of bytes, and sums of rows."""
    g = Graph("zeros")
    m, n, k = g.axes(m=64, n=64, k=512)
    a, b = (cast(g.input(s, (x, k), t), "i32") for s, x, t in (("A", m, "u8"), ("B", n, "i8")))
    za, zb = (g.input(s, (x,), "i32", uniform(-9, 9)) for s, x in (("za", m), ("zb", n)))
    g.output("C", reduce("sum", (a - za) * (b - zb), over=k), "i32")
    program = g.program()
    rates = Rates({"i8": 2e15, "u8": 2e15, "bf16": 1e15}, other=3e13, bytes=4e12)
    best = min(forms_of(program, rates).offered, key=lambda form: form.work.seconds).program
    products = [node for node in best.nodes if isinstance(node.op, Contract)]
    types = [sorted(best.nodes[arg].dtype for arg in one.args) for one in products]
    assert types == [["i8", "u8"]]
    inputs = random_inputs(program, np.random.default_rng(2))
    assert np.array_equal(evaluate(best, inputs)["C"], evaluate(program, inputs)["C"])


UNLIKE = {
    ("bf16", "e4m3"): ("bf16", "bf16"),
    ("e5m2", "f16"): ("f16", "f16"),
    ("i8", "bf16"): ("bf16", "bf16"),
    ("f16", "u8"): ("f16", "f16"),
    ("i4", "bf16"): ("bf16", "bf16"),
    ("i8", "i8"): ("bf16", "bf16"),
    ("e4m3", "e5m2"): ("e4m3", "e5m2"),
    ("bf16", "f16"): ("f32", "f32"),
    ("i32", "bf16"): ("f32", "f32"),
}


@pytest.mark.parametrize("types", UNLIKE, ids="-".join)
def test_unlike_narrow_factors_are_multiplied_in_what_has_both(types: tuple[str, str]) -> None:
    g = Graph("unlike")
    m, n, k = g.axes(m=8, n=16, k=32)
    a, b = (cast(g.input(s, (x, k), t), "f32") for s, x, t in zip("AB", (m, n), types, strict=True))
    g.output("C", contract(a, b, over=k), "f32")
    program = g.program()
    made = unwidened(program)
    (node,) = (node for node in made.nodes if isinstance(node.op, Contract))
    assert tuple(made.nodes[arg].dtype for arg in node.args) == UNLIKE[types]
    inputs = random_inputs(program, np.random.default_rng(2))
    assert np.array_equal(evaluate(made, inputs)["C"], evaluate(program, inputs)["C"])


def test_what_products_of_unlike_types_take() -> None:
    """The time of the type that has both; of bytes that of the slower one; else of plain units."""
    rates = Rates({"bf16": 8.0, "e4m3": 16.0, "f16": 8.0, "i8": 32.0, "u8": 24.0}, 1.0, 1.0)
    assert rates.of(("bf16", "e4m3")) == 8.0
    assert rates.of(("i8", "u8")) == 24.0
    assert rates.of(("i8", "bf16")) == 8.0
    assert rates.of(("bf16", "f16")) == rates.of(("i32", "bf16")) == 2.0


@pytest.mark.parametrize("dtype", ["f16", "bf16", "e4m3"])
@pytest.mark.parametrize("number", [1.0, 1.0 / 3.0])
def test_signs_are_of_the_type_that_they_are_multiplied_with(dtype: str, number: float) -> None:
    g = Graph("signs")
    m, n, k = g.axes(m=16, n=16, k=32)
    sign = where((g.iota(n) & g.iota(k)) == 0, number, -number)
    g.output("Y", contract(cast(g.input("X", (m, k), dtype), "f32"), sign, over=k), "f32")
    made = unwidened(g.program())
    product = next(node for node in made.nodes if node.op.name == "contract")
    assert ({made.nodes[arg].dtype for arg in product.args} == {dtype}) == (number == 1.0)


def test_two_sums_that_share_factors_are_products_of_parts() -> None:
    """Of which none by itself is less work than what is written."""
    g = Graph("complex")
    m, n, k = g.axes(m=4096, n=256, k=256)
    a, b = (g.input(name, (m, k), "f32") for name in "AB")
    c, s = (g.input(name, (n, k), "f32") for name in "CS")
    g.output("R", reduce("sum", a * c - b * s, over=k), "f32")
    g.output("I", reduce("sum", a * s + b * c, over=k), "f32")
    rates = Rates({"f32": 6e12, "bf16": 1e15}, other=3e13, bytes=4e12)
    forms = forms_of(g.program(), rates).offered
    assert any(step.rule == NAME for form in forms for step in form.steps)


@pytest.mark.parametrize("name", ["of two", "computed", "widened"])
@pytest.mark.parametrize("size", [8 * 64, 8 * 64 - 3])
def test_sums_too_long_for_tensor_cores_are_sums_of_shorter_ones(
    name: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts of whole units, of which the last one ends early."""
    program = product(FACTORS[name][0], "f32", size)
    assert shortened(program) == program
    monkeypatch.setattr(narrowing, "LONGEST", 128)
    found = narrowed(program)
    assert found is not None
    lengths = [
        np.prod([found.program.axes[axis] for axis in node.op.over if axis != "parts"])
        for node in found.program.nodes
        if isinstance(node.op, Contract)
    ]
    assert lengths == [128]
    inputs = random_inputs(program, np.random.default_rng(1))
    want, have = (evaluate(one, inputs)["z"] for one in (program, found.program))
    np.testing.assert_allclose(have, want, rtol=0, atol=2.0**-23 * np.abs(want).max())


def test_products_of_loaded_numbers_need_no_mask_where_their_tensors_end() -> None:
    program = product(FACTORS["of two"][0], "f32", 500)
    masked = product(FACTORS["computed"][0], "f32", 500)  # of which exp(0) is 1
    for one, masks in ((program, 0), (masked, 1)):
        parts = split(one, "k", 4, 32)
        assert sum(node.op == Map("where") for node in parts.nodes) == masks
        inputs = random_inputs(one, np.random.default_rng(2))
        np.testing.assert_allclose(evaluate(parts, inputs)["z"], evaluate(one, inputs)["z"])


def test_long_sums_that_others_read_point_by_point_are_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(narrowing, "LONGEST", 128)
    graph = Graph("stored")
    m, n, k = graph.axes(m=5, n=6, k=512)
    x, y = graph.input("x", (m, k), "f32"), graph.input("y", (k, n), "f32")
    square = x * x
    graph.output("s", square, "f32", (m, k))
    graph.output("z", contract(square, y, over=k), "f32", (m, n))
    assert narrowed(graph.program()) is None
