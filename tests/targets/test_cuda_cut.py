"""How programs are cut into kernels, and that the kernels together mean the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ir import Graph, cast, contract, exp, operator, reduce, relu, rsqrt, sigmoid
from ir.dtypes import dtype_of, from_float, numpy_dtype
from ir.ops.base import Array
from ir.oracle import evaluate, random_inputs
from ir.program import Program
from ir.targets.cuda.build.cut import cut_program
from ir.targets.cuda.build.kernels import kernels_of
from ir.targets.cuda.build.products import STRIDE_UNIT
from ir.targets.cuda.space.splits import split_choices, split_program
from ir.targets.cuda.space.tensor import TensorKernel
from tests.targets.cuda_cases import HARDWARE, NAMES, SMALL, UNSEEN, built

KINDS: tuple[tuple[str, dict[str, Any], tuple[str, ...]], ...] = (
    ("matmul", {"m": 64, "n": 64, "k": 64, "dtype": "bf16"}, ("tensor",)),
    ("matmul", {"m": 64, "n": 64, "k": 63, "dtype": "bf16", "tb": True},
     ("block", "block", "tensor")),
    ("matmul", {"m": 64, "n": 64, "k": 64, "dtype": "f32"}, ("block",)),
    ("matmul", {"m": 64, "n": 64, "k": 64, "dtype": "tf32"}, ("block", "tensor")),
    ("gated_mlp", {"m": 64, "n": 64, "k": 64, "dtype": "bf16"}, ("tensor",)),
    ("attention", {"b": 1, "heads": 1, "sq": 64, "d": 64, "dtype": "bf16"}, ("tensor",)),
    ("attention", {"b": 1, "heads": 1, "sq": 64, "d": 64, "dtype": "f32"}, ("block",)),
    ("softmax", {"m": 64, "n": 64}, ("block",)),
    ("conv2d", {"n": 1, "h": 8, "w": 8, "c": 16, "f": 16, "dtype": "bf16"}, ("tensor",)),
    ("conv2d", {"n": 1, "h": 8, "w": 8, "c": 16, "f": 16, "stride": 2, "dtype": "bf16"},
     ("block", "tensor")),
    ("matmul", {"m": 64, "n": 64, "k": 64, "dtype": "tf32", "tb": True}, ("tensor",)),
    ("matmul", {"m": 64, "n": 64, "k": 64, "dtype": "i8"}, ("block", "tensor")),
    ("scaled_matmul", {"m": 64, "n": 64, "k": 64}, ("tensor",)),
    ("attention", {"b": 1, "heads": 1, "sq": 64, "d": 512, "dtype": "bf16"},
     ("tensor", "block", "block", "tensor")),
    (f"{UNSEEN}:two_layers", {"m": 8, "f": 300, "d": 300, "o": 8}, ("block", "block")),
    (f"{UNSEEN}:packed_int4", {"m": 8, "n": 8, "k": 64}, ("block", "block", "tensor")),
)  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "kinds"), KINDS)
@pytest.mark.alike(2)
def test_which_kernels_a_program_has(
    name: str, arguments: dict[str, Any], kinds: tuple[str, ...]
) -> None:
    found = tuple(kernel.kind for kernel in kernels_of(built(name, arguments), HARDWARE))
    assert found == kinds


@operator
def normed_product(g: Graph, m: int, n: int, k: int) -> None:
    """A product of rows divided by their root mean square."""
    rows, columns, depth = g.axes(m=m, n=n, k=k)
    x, w = g.input("X", (rows, depth), "bf16"), g.input("W", (columns, depth), "bf16")
    scale = rsqrt(reduce("sum", x * x, depth) * (1.0 / k) + 1e-6)
    g.output("Y", contract(cast(x * scale, "bf16"), w, over=depth), "bf16")


@operator
def product_normed(g: Graph, m: int, n: int, k: int) -> None:
    """Rows of a product divided by their root mean square."""
    rows, columns, depth = g.axes(m=m, n=n, k=k)
    x, w = g.input("X", (rows, depth), "bf16"), g.input("W", (columns, depth), "bf16")
    y = contract(x, w, over=depth)
    g.output("Y", y * rsqrt(reduce("sum", y * y, columns) * (1.0 / n) + 1e-6), "bf16")


@operator
def chained(g: Graph, m: int, f: int, d: int, o: int) -> None:
    """relu(X W) U in bf16."""
    rows, hidden, depth, out = g.axes(m=m, f=f, d=d, o=o)
    x, w = g.input("X", (rows, depth), "bf16"), g.input("W", (hidden, depth), "bf16")
    u = g.input("U", (out, hidden), "bf16")
    inner = cast(relu(contract(x, w, over=depth)), "bf16")
    g.output("Y", contract(inner, u, over=hidden), "bf16")


@operator
def two_softmaxes(g: Graph, q: int, keys: int, more: int, d: int) -> None:
    """What queries find among some keys and among others, each by a softmax of its own."""
    i, e, v = g.axes(q=q, d=d, v=d)
    query, found = g.input("Q", (i, e), "bf16"), []
    for name, extent in (("a", keys), ("b", more)):
        j = g.axis(name, extent)
        s = contract(query, g.input(f"K{name}", (j, e), "bf16"), over=e)
        p = exp(s - reduce("max", s, over=j))
        o = contract(cast(p, "bf16"), g.input(f"V{name}", (j, v), "bf16"), over=j)
        found.append(o / reduce("sum", p, over=j))
    g.output("O", found[0] + found[1], "bf16", (i, v))


JOINED: tuple[tuple[Program, tuple[str, ...]], ...] = (
    (two_softmaxes.build(q=40, keys=64, more=96, d=64), ("tensor", "tensor")),
    (normed_product.build(m=40, n=64, k=512), ("block", "tensor")),
    (product_normed.build(m=40, n=64, k=512), ("tensor",)),
    (product_normed.build(m=40, n=512, k=64), ("tensor", "block")),
    (chained.build(m=40, f=512, d=512, o=64), ("tensor", "tensor")),
    (chained.build(m=40, f=512, d=64, o=64), ("tensor",)),
)


@pytest.mark.parametrize(("program", "kinds"), JOINED, ids=lambda value: getattr(value, "name", ""))
def test_what_depends_on_a_product_or_feeds_one(program: Program, kinds: tuple[str, ...]) -> None:
    """A long inner product goes through memory, a short one is computed again in every block; rows
    that a tile has whole are summed in it."""
    assert tuple(kernel.kind for kernel in kernels_of(program, HARDWARE)) == kinds
    inputs = random_inputs(program, np.random.default_rng(5))
    close(in_turn(cut_program(program), inputs), evaluate(program, inputs))


@pytest.mark.parametrize(
    ("name", "x", "w"),
    [
        ("taken", "t0", "t1"),
        ("crossed", "t1", "t0"),
        ("twice", "t0", "cut_t0"),
        ("n" * 100, "X", "W"),
    ],
    ids=["taken", "crossed", "twice", "long"],
)
def test_names_of_a_program_are_its_own_affair(name: str, x: str, w: str) -> None:
    """Kernels and the tensors between them take names that the program leaves."""
    g = Graph(name)
    rows, columns, depth = g.axes(m=24, n=40, k=63)
    left, right = g.input(x, (rows, depth), "bf16"), g.input(w, (columns, depth), "bf16")
    g.output("Y", contract(left, right, over=depth), "bf16")
    program = g.program()
    kernels = kernels_of(program, HARDWARE)
    assert [kernel.kind for kernel in kernels] == ["block", "block", "tensor"]
    names = {spec.name for kernel in kernels for spec in kernel.program.outputs}
    assert len(names) == 3
    assert not names & {x, w}
    assert len({kernel.program.name for kernel in kernels}) == 3
    inputs = random_inputs(program, np.random.default_rng(4))
    close(in_turn(cut_program(program), inputs), evaluate(program, inputs))


def test_copies_are_made_only_for_tensor_cores() -> None:
    program = built("conv2d", {"n": 1, "h": 9, "w": 9, "c": 3, "f": 8, "dtype": "bf16"})
    kinds = [kernel.kind for kernel in kernels_of(program, HARDWARE)]
    assert len(kinds) == 1 or kinds[-1] == "tensor"


def close(found: dict[str, Array], wanted: dict[str, Array]) -> None:
    """Equal but for the rounding of what goes through memory."""
    for output, value in wanted.items():
        scale = np.abs(value).max() + 1e-9
        assert found[output].shape == value.shape
        assert np.abs(found[output] - value).max() <= 0.02 * scale


def in_turn(parts: tuple[Program, ...], inputs: dict[str, Array]) -> dict[str, Array]:
    """The oracle of every part, fed with what the parts before stored."""
    known: dict[str, Array] = dict(inputs)
    found: dict[str, Array] = {}
    for part in parts:
        for name, value in evaluate(part, {s.name: known[s.name] for s in part.inputs}).items():
            found[name] = value
            spec = part.scope.tensors[name]
            whole = np.zeros(spec.shape, numpy_dtype(spec.dtype))
            whole[tuple(slice(0, extent) for extent in value.shape)] = from_float(value, spec.dtype)
            known[name] = whole
    return found


@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.parametrize(("name", "arguments"), SMALL, ids=NAMES)
def test_parts_together_mean_the_program(
    name: str, arguments: dict[str, Any], everywhere: bool
) -> None:
    program = built(name, arguments)
    inputs = random_inputs(program, np.random.default_rng(3))
    wanted = evaluate(program, inputs)
    parts = cut_program(program, everywhere)
    close(in_turn(parts, inputs), wanted)


@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.parametrize(("name", "arguments"), SMALL, ids=NAMES)
def test_every_tensor_is_written_once_before_it_is_read(
    name: str, arguments: dict[str, Any], everywhere: bool
) -> None:
    program = built(name, arguments)
    written = {spec.name for spec in program.inputs}
    for part in cut_program(program, everywhere):
        assert {spec.name for spec in part.inputs} <= written
        for spec in part.outputs:
            assert spec.name not in written
            written.add(spec.name)
            own = {output.name for output in program.outputs}
            if spec.name not in own and spec.shape:
                assert spec.shape[-1] * dtype_of(spec.dtype).bytes % STRIDE_UNIT == 0
    assert {spec.name for spec in program.outputs} <= written


def test_a_split_sum_is_a_product_and_a_merge() -> None:
    program = built("matmul", {"m": 64, "n": 64, "k": 1024, "dtype": "bf16"})
    parts = split_program(program, "k:2")
    kernels = kernels_of(parts, HARDWARE)
    assert [kernel.kind for kernel in kernels] == ["tensor", "block"]
    partial = kernels[0].program.outputs[0]
    assert partial.dtype == "f32"
    assert sorted(partial.shape) == [2, 64, 64]


SPLIT: tuple[tuple[str, dict[str, Any]], ...] = (
    ("matmul", {"m": 24, "n": 40, "k": 1536, "dtype": "bf16", "tb": True}),
    ("matmul", {"m": 24, "n": 40, "k": 1536, "dtype": "f16", "batch": 2}),
    ("matmul", {"m": 24, "n": 40, "k": 1536, "dtype": "i8", "tb": True}),
    ("scaled_matmul", {"m": 24, "n": 40, "k": 1536}),
    ("matmul_bias_act", {"m": 24, "n": 40, "k": 1536, "dtype": "bf16"}),
    ("gated_mlp", {"m": 24, "n": 40, "k": 1536, "dtype": "bf16"}),
)


@pytest.mark.parametrize(("name", "arguments"), SPLIT)
def test_every_way_to_split_means_the_program(name: str, arguments: dict[str, Any]) -> None:
    program = built(name, arguments)
    inputs = random_inputs(program, np.random.default_rng(6))
    wanted = evaluate(program, inputs)
    kernels = kernels_of(program, HARDWARE)
    assert isinstance(kernels[0], TensorKernel)
    choices = split_choices(program, kernels[0].roles)[1:]
    assert len(choices) >= 2
    for choice in choices:
        parts = split_program(program, choice)
        close(in_turn(cut_program(parts), inputs), wanted)


def test_padded_tensors_between_kernels_have_copyable_strides() -> None:
    program = built("matmul", {"m": 64, "n": 64, "k": 63, "dtype": "bf16", "tb": True})
    first = kernels_of(program, HARDWARE)[0].program
    assert first.outputs[0].shape[-1] % 8 == 0


def gradients(m: int = 256, h: int = 512, k: int = 512) -> Program:
    """Of silu(X W) * (X V): what goes to two products behind is made of both products before."""
    g = Graph("gradients")
    rows, hidden, depth, column = g.axes(m=m, h=h, k=k, q=k)
    x, dy = g.input("X", (rows, depth), "bf16"), g.input("dY", (rows, hidden), "bf16")
    w, v = g.tensor("W", (k, h), "bf16"), g.tensor("V", (k, h), "bf16")
    gate = contract(x, w[depth, hidden], over=depth)
    value = contract(x, v[depth, hidden], over=depth)
    soft = sigmoid(gate)
    first = cast(dy * value * soft * (1 + gate * (1 - soft)), "bf16")
    second = cast(dy * gate * soft, "bf16")
    back = contract(first, w[column, hidden], over=hidden)
    g.output("dX", back + contract(second, v[column, hidden], over=hidden), "bf16")
    return g.program()


def recomputed(m: int = 256, h: int = 512, k: int = 512) -> Program:
    """Gradients of weights; hidden values are computed again, and one of them needs them too."""
    g = Graph("recomputed")
    rows, hidden, depth, column = g.axes(m=m, h=h, k=k, q=k)
    x, dy = g.input("X", (rows, depth), "bf16"), g.input("dY", (rows, column), "bf16")
    w, v = g.input("W", (depth, hidden), "bf16"), g.input("V", (hidden, column), "bf16")
    z = contract(x, w, over=depth)
    soft = sigmoid(z)
    below = cast(contract(dy, v, over=column) * soft * (1 + z * (1 - soft)), "bf16")
    g.output("dW", contract(x, below, over=rows), "f32")
    g.output("dV", contract(cast(z * soft, "bf16"), dy, over=rows), "f32")
    return g.program()


@pytest.mark.parametrize(("make", "outputs"), [(gradients, [2, 1]), (recomputed, [1, 2, 1, 1])])
def test_products_have_what_is_made_of_them_point_by_point(
    make: Callable[[], Program], outputs: list[int]
) -> None:
    parts = cut_program(make(), together=True)
    assert [len(part.outputs) for part in parts] == outputs
    assert all(any(n.op.name == "contract" for n in part.nodes) for part in parts)


def test_what_waits_for_a_later_product_is_not_taken_into_an_earlier_one() -> None:
    """Both values are made of z point by point, but one also of a product of the other."""
    g = Graph("waits")
    i, k, j, n = g.axes(i=256, k=512, j=512, n=512)
    x, w = g.input("X", (i, k), "bf16"), g.input("W", (k, j), "bf16")
    z = contract(x, w, over=k)
    early = cast(z * sigmoid(z), "bf16")
    again = contract(early, g.input("U", (j, n), "bf16"), over=j)
    turned = again.at({n: j})
    late = cast(z * turned, "bf16")
    g.output("Y", contract(late, g.input("T", (j, k), "bf16"), over=j), "f32")
    g.output("Z", contract(early, g.input("S", (j, k), "bf16"), over=j), "f32")
    for together in (False, True):
        parts = cut_program(g.program(), together=together)
        known = {spec.name for spec in g.program().inputs}
        for part in parts:
            assert {spec.name for spec in part.inputs} <= known
            known |= {spec.name for spec in part.outputs}
