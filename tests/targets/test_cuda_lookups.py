"""Operands at indices that another tensor holds: tensor kernels copy them from where they are."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ir import Graph, cast, contract, exp, reduce
from ir.inputs import random_inputs
from ir.kernel.meaning import run
from ir.kernel.passes import after_each
from ir.kernel.rules import verify
from ir.kernel.tiling import Tiling
from ir.oracle import evaluate
from ir.program import Program
from ir.registry import load_operator
from ir.rewrite.digits import digits
from ir.rewrite.indexing import indexed
from ir.rewrite.inhabited import inhabited
from ir.targets.cuda.build.kernels import kernels_of
from ir.targets.cuda.build.program_text import lower_all
from ir.targets.cuda.build.tensor_kernel import build, passes_of
from ir.targets.cuda.build.tried import space_alone
from ir.targets.cuda.space.engines import residence_space, routes_of
from ir.targets.cuda.space.residences import USUAL, residences
from ir.targets.cuda.space.tensor import RegisterKernel, TensorKernel
from tests.emulator.emulate import compiler
from tests.few import draws, few_rows
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems


def _chosen(fill: float | None = None, dtype: str = "i32", along: str = "b") -> Program:
    """Products of batches with matrices that a tensor of numbers chooses."""
    g = Graph("chosen")
    axes = dict(zip("bmnk", g.axes(b=5, m=72, n=80, k=128), strict=True))
    b, m, n, k = axes.values()
    x, which = g.input("X", (b, m, k), "bf16"), g.input("which", (axes[along],), dtype)
    w = g.tensor("W", (3, 80, 128), "bf16", fill)
    chosen = w[which, n, k]
    g.output("Y", cast(contract(x, chosen, over=k), "bf16"))
    return g.program()


def _written(program: Program) -> list[str]:
    """Tensors that the kernels of tensor cores write."""
    kernels = kernels_of(program, HARDWARE, "wgmma")
    return [spec.name for kernel in kernels for spec in kernel.program.outputs]


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize(
    ("fill", "dtype"), [(None, "i32"), (None, "i64"), (0.0, "i64"), (0.0, "i16")]
)
@draws(2, 4)
@pytest.mark.alike(2)
def test_indices_choose_matrices_those_beyond_the_tensor_too(
    fill: float | None, dtype: str, count: int
) -> None:
    program = _chosen(fill, dtype)
    inputs = random_inputs(program, np.random.default_rng(1))
    inputs["which"][:] = [2, -1, 0, 7, (1 << 32) + 1 if dtype == "i64" else 1]
    wanted = bounds_of(program, inputs)
    space = BACKEND.space(program, HARDWARE).pin({"engine": "wgmma"})
    for turn, row in enumerate(space.sample(np.random.default_rng(2), count)):
        kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
        found = problems(program, kernel, inputs, wanted, (0, 6, 9, 15)[turn])
        assert not found, space.schedule(row).to_json()


def _formed(kind: str, fill: float | None = None) -> Program:
    """The same of narrow matrices, widened, and scaled by what the same number chooses."""
    g = Graph("formed")
    b, m, n, k = g.axes(b=5, m=40, n=128, k=128)
    x, which = g.input("X", (b, m, k), "bf16"), g.input("which", (b,), "i32")
    dtype = "i4" if kind == "int4" else "i8"
    w = cast(g.tensor("W", (3, 128, 128), dtype, fill)[which, n, k], "f32")
    if kind == "int4":
        w = w * g.tensor("scale", (3, 128, 4), "bf16", fill)[which, n, g.iota(k) // 32]
    elif kind == "rows":
        w = w * g.tensor("scale", (3, 128), "f32", fill)[which, n]
    g.output("Y", cast(contract(x, cast(w, "bf16"), over=k), "bf16"))
    return g.program()


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("kind", ["plain", "rows", "int4"])
@pytest.mark.parametrize("fill", [None, 0.0])
@pytest.mark.alike(2)
def test_chosen_matrices_are_widened_in_registers(kind: str, fill: float | None) -> None:
    program = _formed(kind, fill)
    inputs = random_inputs(program, np.random.default_rng(1))
    inputs["which"][:] = [2, -1, 0, 7, 1] if fill is not None else [2, 1, 0, 2, 1]
    wanted = bounds_of(program, inputs)
    form = digits(program)
    kernels = kernels_of(form, HARDWARE, "wgmma_rs")
    assert [type(kernel) for kernel in kernels] == [RegisterKernel]  # none is widened in memory
    (route,) = [r for r in routes_of(form, HARDWARE) if r.engine == "wgmma_rs"]
    space = residence_space(form, HARDWARE, None, USUAL)
    space = space if route.alone else space.pin({"engine": "wgmma_rs"})
    for turn, row in enumerate(space.sample(np.random.default_rng(2), 3)):
        values = route.own(space.schedule(row).as_dict())
        kernel = lower_all(form, values, HARDWARE, "wgmma_rs", USUAL)
        given = {spec.name: inputs[spec.name].reshape(spec.shape) for spec in form.inputs}
        found = problems(form, kernel, given, wanted, (0, 6, 15)[turn])
        assert not found, space.schedule(row).to_json()


@pytest.mark.parametrize(
    ("source", "copied"),
    [("i16", False), ("u32", True), ("f32", True), ("i64", True)],
)
def test_casts_that_change_an_index_are_computed(source: str, copied: bool) -> None:
    """Numbers that a cast rounds or wraps are not read as they are stored."""
    g = Graph("cast_index")
    b, m, n, k = g.axes(b=5, m=72, n=80, k=128)
    which = cast(g.input("which", (b,), source), "i32")
    chosen = g.tensor("W", (3, 80, 128), "bf16")[which, n, k]
    g.output("Y", cast(contract(g.input("X", (b, m, k), "bf16"), chosen, over=k), "bf16"))
    assert (len(_written(g.program())) > 1) == copied


def test_nothing_is_copied_where_an_index_is_that_of_a_batch() -> None:
    assert _written(_chosen()) == ["Y"]
    assert len(_written(_chosen(along="n"))) == 2  # each row of a tile has an index of its own


CACHES = (
    ("block_sparse_attention", {"b": 1, "heads": 2, "sq": 140, "sk": 320, "d": 64, "rows": 70,
                                "keys": 64, "listed": 4}),
    ("paged_attention", {"b": 3, "heads": 16, "kv_heads": 2, "d": 64, "pages": 8, "page": 16,
                         "slots": 17}),
    ("ragged_attention", {"blocks": 3, "rows": 70, "heads": 2, "kv_heads": 1, "d": 64,
                          "sequences": 2, "longest": 96, "tokens": 150}),
)  # fmt: skip


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize(("name", "sizes"), CACHES)
@draws(1, 3)
@pytest.mark.alike(2)
def test_keys_are_read_where_they_are(name: str, sizes: dict[str, int], count: int) -> None:
    """Listed blocks, pages and packed sequences: one kernel, in one pass, nothing copied ahead."""
    program = load_operator(name).build(dtype="bf16", **sizes)
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted = bounds_of(program, inputs)
    space = BACKEND.space(program, HARDWARE)
    space = space.pin({"engine": "wgmma"} if "engine" in space.names else {})
    rng = np.random.default_rng(2)
    rows = [*space.seed_rows(rng)[:count], *space.sample(rng, count)]
    for turn, row in enumerate(rows):
        schedule = space.schedule(row)
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        plan = json.loads(kernel.text("launch"))
        assert len(plan["kernels"]) == 1
        assert plan["workspace_bytes"] == 0
        found = problems(program, kernel, inputs, wanted, (0, 15, 6, 9, 3, 12)[turn])
        assert not found, schedule.to_json()


def test_pages_are_shared_out_where_sequences_are_few() -> None:
    sizes = {"b": 8, "heads": 64, "kv_heads": 8, "d": 128, "pages": 512, "page": 16, "slots": 4096}
    program = load_operator("paged_attention").build(dtype="bf16", **sizes)
    parts = [name for name in residences(program, 132) if name.startswith("parts")]
    assert parts
    for name in parts:
        kernels = kernels_of(program, HARDWARE, "wgmma", name)
        assert [type(kernel).__name__ for kernel in kernels] == ["TensorKernel", "BlockKernel"]
        assert {spec.name for spec in kernels[0].program.inputs} >= {"pool_k", "pool_v", "table"}


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize(("pages", "number"), few_rows([(8, 2), (8, 4), (7, 4)], (2,)))
@draws(1, 3)
def test_a_block_has_several_pages(pages: int, number: int, count: int) -> None:
    """Each of them is copied from where it is, one behind another; behind the last one, none."""
    name, sizes = CACHES[1]
    program = load_operator(name).build(dtype="bf16", **{**sizes, "pages": pages})
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted = bounds_of(program, inputs)
    pins = {"engine": "wgmma", "residence": "usual", "tile.p": number}
    space = BACKEND.space(program, HARDWARE)
    space = space.pin({name: value for name, value in pins.items() if name in space.names})
    for turn, row in enumerate(space.sample(np.random.default_rng(3), count)):
        schedule = space.schedule(row)
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        text = kernel.text("cuda")
        body = text[text.index("TW_KERNEL __") : text.index("const i32 member")]
        assert body.count("&pool_k_map, ") % number == 0
        found = problems(program, kernel, inputs, wanted, (0, 9, 15)[turn])
        assert not found, schedule.to_json()


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
def test_a_block_has_several_lines_of_a_picture() -> None:
    """Keys with two positions, neither of which is alone: a box of both."""
    g = Graph("picture")
    b, q, h, x, d, v = g.axes(b=2, q=70, h=6, x=32, d=64, v=64)
    first, keys = g.input("Q", (b, q, d), "bf16"), g.input("K", (b, h, x, d), "bf16")
    values = g.input("V", (b, h, x, v), "bf16")
    scores = contract(first, keys, over=d) * 0.125
    weights = exp(scores - reduce("max", scores, over=(h, x)))
    mixed = contract(cast(weights, "bf16"), values, over=(h, x))
    g.output("O", mixed / reduce("sum", weights, over=(h, x)), "bf16", (b, q, v))
    program = g.program()
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted = bounds_of(program, inputs)
    space = BACKEND.space(program, HARDWARE)
    pins = {"engine": "wgmma", "residence": "usual", "tile.h": 2}
    space = space.pin({name: value for name, value in pins.items() if name in space.names})
    for turn, row in enumerate(space.sample(np.random.default_rng(3), 3)):
        kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
        maps = json.loads(kernel.text("launch"))["kernels"][0]["parameters"]
        boxes = {one["argument"]: one["box"] for one in maps if one["kind"] == "map"}
        assert boxes["K"] == [64, 32, 2, 1]
        assert not problems(program, kernel, inputs, wanted, (0, 9, 15)[turn])


@pytest.mark.parametrize(("name", "sizes"), CACHES)
@draws(1, 2)
@pytest.mark.alike(2)
def test_kernels_mean_their_program_behind_every_pass(
    name: str, sizes: dict[str, int], count: int
) -> None:
    """Blocks of several pages too, with roles side by side."""
    program = indexed(inhabited(load_operator(name).build(dtype="bf16", **sizes)))
    (kernel,) = kernels_of(program, HARDWARE, "wgmma", "usual")
    assert isinstance(kernel, TensorKernel)
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted = evaluate(program, inputs)
    space, rng = space_alone(kernel), np.random.default_rng(0)
    for number, row in enumerate([*space.seed_rows(rng)[:1], *space.sample(rng, count)]):
        plan = kernel.plan(space.schedule(row).as_dict())
        for step, made in after_each(build(plan, "k"), passes_of(plan)):
            verify(made)
            tiling = Tiling(plan.tiles, tuple(plan.roles.walked))
            last = step in ("synchronise", "place")
            found = run(made, plan.program, inputs, tiling, number % 2 == 1, last)
            assert np.allclose(found["O"], wanted["O"], 1e-6, 1e-6), step


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("divisor", [2, 3])
def test_indices_may_be_computed_where_a_tile_has_one(divisor: int) -> None:
    """Batches choose matrices and begin at rows by arithmetic: no copy of what they read."""
    g = Graph("computed")
    b, m, n, k = g.axes(b=6, m=64, n=72, k=64)
    x, w = g.tensor("X", (70, 64), "bf16", 0.0), g.tensor("W", (6, 72, 64), "bf16")
    number = g.iota(b)
    rows = x[number // divisor + m - 1, k]
    g.output("Y", contract(rows, w[(number * 5 + 1) % divisor, n, k], over=k), "bf16", (b, m, n))
    program = indexed(inhabited(g.program()))
    assert [kernel.kind for kernel in kernels_of(program, HARDWARE, "wgmma")] == ["tensor"]
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted = bounds_of(program, inputs)
    space = BACKEND.space(program, HARDWARE).pin({"engine": "wgmma"})
    for turn, row in enumerate(space.sample(np.random.default_rng(2), 2)):
        kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
        assert not problems(program, kernel, inputs, wanted, (0, 15)[turn])
