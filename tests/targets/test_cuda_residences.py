"""What goes through memory on a card by choice, and blocks that share a point: right, and offered
where they can be faster."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from explorer.runtime import nvrtc
from ir import Graph, cast, contract, cumulative, exp, maximum, reduce, rsqrt, uniform
from ir.errors import MissingTarget, UsageError
from ir.inputs import random_inputs
from ir.program import Program
from ir.registry import load_operator
from ir.schedule import Schedule
from ir.targets.cuda.build.kernels import kernels_of
from ir.targets.cuda.build.program_text import lower_all
from ir.targets.cuda.space.engines import residence_space, routes_of
from ir.targets.cuda.space.residences import BESIDE, HELD, OPERANDS, USUAL, residences
from tests.emulator.emulate import compiler
from tests.few import draws
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++)")


def scaled_by_all() -> Program:
    """Rows over the largest of all numbers, which is an output too."""
    g = Graph("scaled_by_all")
    m, n = g.axes(m=37, n=50)
    x = g.input("X", (m, n), "bf16")
    most = maximum(reduce("max", reduce("max", maximum(x, -x), over=n), over=m), 1e-6)
    g.output("Y", x / most, "bf16", (m, n))
    g.output("most", most, "f32", ())
    return g.program()


def two_products(dtype: str = "bf16") -> Program:
    """Weights of products that a second product takes, turned as well."""
    g = Graph("two_products")
    i, j, d, e = g.axes(i=48, j=64, d=32, e=24)
    q, k = g.input("Q", (i, d), dtype), g.input("K", (j, d), dtype)
    v, w = g.input("V", (j, e), dtype), g.input("W", (i, e), dtype)
    p = cast(exp(contract(q, k, over=d) * 0.1), dtype)
    g.output("O", contract(p, v, over=j), "f32", (i, e))
    g.output("T", contract(p, w, over=i), "f32", (j, e))
    return g.program()


def normal() -> Program:
    return load_operator("batchnorm").build(n=300, c=8)


def images() -> Program:
    """A mean over images, rows and columns, each an axis of its own."""
    g = Graph("images")
    n, h, w, c = g.axes(n=3, h=11, w=13, c=20)
    x = g.input("X", (n, h, w, c), "f16")
    g.output("Y", reduce("sum", x * x, over=(n, h, w)) * (1 / 429), "f32", (c,))
    return g.program()


def rotated() -> Program:
    return load_operator("rotary_attention").build(b=1, heads=2, s=70, d=64, dtype="bf16")


def one_query() -> Program:
    """Few rows and many keys, some of which do not count."""
    words = {"b": 1, "heads": 4, "kv_heads": 2, "d": 64, "sk": 512, "dtype": "bf16"}
    return load_operator("decode_attention").build(**words)


def long_rows() -> Program:
    """A norm of few long rows, as a chain of sums without a product."""
    g = Graph("long_rows")
    m, n = g.axes(m=3, n=1024)
    x = g.input("X", (m, n), "f32")
    mean = reduce("sum", x, over=n) * (1 / 1024)
    g.output("y", reduce("sum", (x - mean) * (x - mean), over=n), "f32", (m,))
    return g.program()


def normal_columns() -> Program:
    """Columns of few that are long, normalised: outputs along what is reduced."""
    return load_operator("batchnorm").build(n=1500, c=8, dtype="bf16")


def pooled() -> Program:
    """Rows that are weighed by a softmax of a sum of each."""
    g = Graph("pooled")
    b, t, d = g.axes(b=2, t=70, d=300)
    x = g.input("X", (b, t, d), "f16")
    z = reduce("sum", cast(x, "f32") * g.input("w", (d,), "f32"), over=d) * 0.05
    p = exp(z - reduce("max", z, over=t))
    y = reduce("sum", p * cast(x, "f32"), over=t) / reduce("sum", p, over=t)
    g.output("Y", y, "f32", (b, d))
    return g.program()


def long_softmax() -> Program:
    return load_operator("softmax").build(m=3, n=2000, dtype="bf16")


def groups() -> Program:
    return load_operator("groupnorm").build(b=2, s=270, c=12, groups=4, dtype="bf16")


def row_gradients() -> Program:
    """Of rows, made of sums along each, and of the weights that they share."""
    g = Graph("row_gradients")
    m, n = g.axes(m=64, n=40)
    x, dy = g.input("X", (m, n), "bf16"), g.input("dY", (m, n), "bf16")
    shared = g.input("W", (n,), "f32")
    scale = rsqrt(reduce("sum", cast(x, "f32") * x, over=n) * (1 / 40) + 1e-5)
    along = reduce("sum", dy * shared * x * scale, over=n) * (1 / 40)
    g.output("dX", (dy * shared - x * scale * along) * scale, "bf16", (m, n))
    g.output("dW", reduce("sum", dy * x * scale, over=m), "f32", (n,))
    g.output("most", reduce("max", maximum(dy, -dy), over=m), "f32", (n,))
    return g.program()


def column_sums() -> Program:
    """Beside what is made point by point of the same, the sums of columns."""
    g = Graph("column_sums")
    m, n = g.axes(m=96, n=24)
    dy = g.input("dY", (m, n), "bf16") * g.input("gate", (m, n), "bf16")
    g.output("dX", dy, "bf16", (m, n))
    g.output("db", reduce("sum", dy, over=m), "f32", (n,))
    return g.program()


def two_scores() -> Program:
    """Scores of two products that sum over different axes, the second one's factor shared."""
    return load_operator("mla_prefill").build(heads=2, dtype="bf16", b=1, sq=40, d=64)


def wide_values() -> Program:
    """More columns than registers hold, which are scored as well."""
    return load_operator("mla_decode").build(heads=4, dtype="bf16", b=2, sk=48)


def gradients() -> Program:
    """Of attention whose heads share keys: what one product sums over, another keeps."""
    words = {"b": 1, "heads": 2, "kv_heads": 1, "sq": 24, "d": 64, "causal": True}
    return load_operator("attention_backward").build(**words, dtype="bf16")


def divided() -> Program:
    """Weights over a number of each summed row, which is 0 behind the end, and they infinite."""
    g = Graph("divided")
    h, i, j, d = g.axes(h=2, i=42, j=40, d=64)
    q, k = g.input("Q", (h, i, d), "bf16"), g.input("K", (j, d), "bf16")
    share = exp(contract(q, k, over=d) * 0.1) / g.input("L", (h, i), "f32", uniform(1, 2))
    g.output("dK", contract(cast(share, "bf16"), q, over=(h, i)), "f32", (j, d))
    return g.program()


def updated() -> Program:
    """A matrix that is scaled and written, and its product with a row."""
    g = Graph("updated")
    b, d, e = g.axes(b=5, d=33, e=20)
    state = g.input("S", (b, d, e), "f32") * g.input("scale", (b, d), "f32")
    g.output("O", contract(g.input("Q", (b, d), "bf16"), state, over=d), "bf16", (b, e))
    g.output("S_next", state, "f32", (b, d, e))
    return g.program()


def quantised() -> Program:
    return load_operator("quantise_rows").build(m=7, n=333, dtype="bf16")


def codes() -> Program:
    """Both operands two codes to a byte, with scales of groups."""
    return load_operator("mx_matmul").build(m=40, n=72, k=96, dtype="e2m1")


def table() -> Program:
    """Codes of a table, in rows that no copy takes as they are."""
    return load_operator("nf4_matmul").build(m=40, n=24, k=60, group=20)


def similarities(n: int = 64, m: int = 512, d: int = 64) -> Program:
    """How sharply each row meets one of the others: cosines, and what they come to together."""
    g = Graph("similarities")
    i, j, c = g.axes(i=n, j=m, c=d)
    x, y = g.input("X", (i, c), "bf16"), g.input("Y", (j, c), "bf16")
    lengths = (reduce("sum", cast(t, "f32") * t, over=c) for t in (x, y))
    scores = contract(x, y, over=c)
    for length in lengths:
        scores = scores * rsqrt(length)
    top = reduce("max", scores, over=j)
    g.output("Z", reduce("sum", exp(scores - top), over=j), "f32", (i,))
    return g.program()


CHAINS = (similarities, divided, rotated, one_query, long_rows, two_scores, wide_values, gradients)
ALONG = (normal_columns, pooled, long_softmax, groups, row_gradients, column_sums)


def similarity(b: int = 2, h: int = 9, w: int = 21) -> Program:
    """How alike the means and squares of two images are around each point, over all points."""
    g = Graph("similarity")
    n, i, j, p, q = g.axes(b=b, i=h, j=w, p=3, q=3)
    first, second = (g.tensor(name, (b, h, w), "f32", fill=0) for name in "XY")
    x, y = (image[n, i + p - 1, j + q - 1] for image in (first, second))
    means = [reduce("sum", value, over=(p, q)) for value in (x, y, x * y)]
    alike = (means[2] - means[0] * means[1]) / (means[0] * means[0] + means[1] * means[1] + 1.0)
    g.output("S", reduce("sum", alike, over=(i, j)), "f32", (n,))
    return g.program()


PROGRAMS = (
    scaled_by_all, two_products, normal, images, updated, quantised, codes, table, similarity,
    *CHAINS, *ALONG,
)  # fmt: skip
SLOW = (wide_values, rotated, gradients)  # many kernels each
FEW = 8  # processors, so that small programs have parts for all of them


@needs_compiler
@pytest.mark.parametrize(
    "make", [pytest.param(p, marks=[pytest.mark.long] * (p in SLOW)) for p in PROGRAMS]
)
@draws(1, 9)
@pytest.mark.alike(2)
def test_every_residence_is_right(make: Any, count: int) -> None:
    program = make()
    inputs = random_inputs(program, np.random.default_rng(1))
    bounds = bounds_of(program, inputs)
    names = residences(program, FEW)
    assert len(names) > 1 or make in (divided, quantised)
    for turn, name in enumerate(names):
        space = residence_space(program, HARDWARE, None, name)
        routes = routes_of(program, HARDWARE, name)
        for route in routes if count > 1 else routes[turn % len(routes) :][:1]:
            pins = {} if route.alone else {"engine": route.engine}
            row = space.pin(pins).sample(np.random.default_rng(2), 1)[0]
            values = route.own(space.schedule(row).as_dict())
            kernel = lower_all(program, values, HARDWARE, route.engine, name)
            assert not problems(program, kernel, inputs, bounds, 0), (name, route.engine)


def test_codes_are_unpacked_into_rows_that_copies_take() -> None:
    """Once, without a gap between those of one byte and those of the next."""
    program = load_operator("w2a8_matmul").build(m=512, n=1024, k=2048)
    first, second = kernels_of(program, HARDWARE, "wgmma", OPERANDS)
    assert [spec.shape for spec in first.program.outputs] == [(1024 * 512, 4)]
    assert second.kind == "tensor"
    assert {(512, 2048), (1024, 2048)} <= {spec.shape for spec in second.program.inputs}


def test_norms_beside_a_product_are_stored_where_it_is_in_parts() -> None:
    """Cosines stay in the tiles of their product, on tensor cores: no matrix of them in memory."""
    program = similarities(8192, 8192, 256)
    assert "parts-32" in residences(program, 132)
    kernels = kernels_of(program, HARDWARE, "wgmma", "parts-32")
    assert [kernel.kind for kernel in kernels].count("tensor") == 1
    stored = {spec.shape for kernel in kernels for spec in kernel.program.outputs}
    assert max(map(np.prod, stored)) == 8192 * 32


def test_what_is_reduced_to_little_goes_through_memory() -> None:
    """A number for all of 67 million would be a single block's; stored, it is everybody's."""
    program = load_operator("quantise_tensor").build(m=8192, n=8192, dtype="bf16")
    space = BACKEND.space(program, HARDWARE)
    choice = next(d for d in space.decisions if d.name == "residence")
    assert choice.domain == (USUAL, "sums-stored")
    assert choice.routes
    row = space.pin({"residence": "sums-stored"}).any_legal(np.random.default_rng(0))
    kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
    last = json.loads(kernel.text("launch"))["kernels"][-1]
    assert last["grid"][0] > int(HARDWARE["sms"])
    assert [p["argument"] for p in last["parameters"]] == ["X", "scale", "Y"]


def test_sums_over_a_window_meet_in_one_value() -> None:
    program = similarity()
    assert len(outputs_of(program, "sums-met")) == 2
    assert len(outputs_of(program, "sums-stored")) == 4


def outputs_of(program: Program, residence: str) -> list[list[str]]:
    """Of each kernel."""
    kernels = kernels_of(program, HARDWARE, None, residence)
    return [[spec.name for spec in kernel.program.outputs] for kernel in kernels]


def test_a_sum_is_an_output_beside_what_it_sums() -> None:
    """One kernel reads the state once; two are offered where blocks as many as sums are few."""
    assert outputs_of(updated(), USUAL) == [["S_next"], ["O"]]
    assert outputs_of(updated(), "outputs-beside") == [["O", "S_next"]]
    assert outputs_of(quantised(), USUAL) == [["Y", "scale"]]
    assert "outputs-beside" not in residences(quantised(), FEW)


def test_no_block_writes_what_another_one_writes_too() -> None:
    """Outputs of one sum, one of them over an axis that blocks share."""
    g = Graph("spread")
    m, n, k = g.axes(m=64, n=96, k=40)
    total = reduce("sum", g.input("X", (m, k), "f32"), over=k)
    g.output("Y", total + g.input("B", (n,), "f32"), "f32", (m, n))
    g.output("total", total, "f32", (m,))
    assert all(len(names) == 1 for names in outputs_of(g.program(), USUAL))


def estimate(program: Program) -> float:
    """Of the schedule that a search begins with: powers of two from the least time."""
    space = BACKEND.space(program, HARDWARE)
    rows = space.seed_rows(np.random.default_rng(0))
    assert space.features is not None
    names, table = space.features(space.columns(rows))
    return float(table[:, names.index("total.estimate")].min())


def test_sums_of_everything_are_the_work_of_all_processors() -> None:
    """One number for a long vector, and a number a channel for three axes behind each other."""
    g = Graph("mean")
    (n,) = g.axes(n=1 << 27)
    g.output("y", reduce("sum", g.input("X", (n,), "f32"), over=n) * 2.0**-27, "f32", ())
    assert estimate(g.program()) < 0.5
    channels = load_operator("reduction").build(a=256, b=3136, c=256, over="ab", dtype="bf16")
    assert estimate(channels) < 0.5
    assert "axes-joined" in next(
        d for d in BACKEND.space(channels, HARDWARE).decisions if d.name == "residence"
    ).domain  # fmt: skip


def test_long_chains_of_few_rows_are_computed_in_parts() -> None:
    """One query of eight heads leaves most processors without work, parts of the keys do not."""
    words = {"heads": 32, "kv_heads": 8, "d": 128, "dtype": "bf16"}
    program = load_operator("decode_attention").build(b=1, sk=8192, **words)
    offered = residences(program, int(HARDWARE["sms"]))
    assert offered[:4] == (USUAL, "parts-16", "parts-32", "parts-64")
    assert estimate(program) < 1.0
    space = BACKEND.space(program, HARDWARE)
    pins = {"residence": "parts-32", "parts-32.engine": "wgmma"}
    row = space.pin(pins).any_legal(np.random.default_rng(0))
    kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
    first, last = json.loads(kernel.text("launch"))["kernels"]
    assert first["grid"][0] >= int(HARDWARE["sms"]) // 2  # which take turns at 256 parts
    assert [p["argument"] for p in last["parameters"]][-1] == "O"
    many = load_operator("decode_attention").build(b=64, sk=8192, **words)
    assert not any(name.startswith("parts") for name in residences(many, 132))


@pytest.mark.parametrize(
    ("name", "arguments", "kernels"),
    [
        ("batch_statistics", {"n": 401408, "c": 64, "dtype": "bf16"}, 2),
        ("batchnorm", {"n": 100352, "c": 64, "dtype": "bf16"}, 3),
        ("softmax", {"m": 4, "n": 1 << 20, "dtype": "bf16"}, 3),
    ],
)
def test_few_long_rows_or_columns_are_read_once_for_what_is_reduced_of_them(
    name: str, arguments: dict[str, Any], kernels: int
) -> None:
    """A mean and the variance around it, a maximum and a sum of exponentials: parts of the axis by
    blocks of their own, a merge, and what is made point by point, if outputs go along it."""
    program = load_operator(name).build(**arguments)
    space = BACKEND.space(program, HARDWARE)
    offered = next(d for d in space.decisions if d.name == "residence").domain
    parts = [str(residence) for residence in offered if str(residence).startswith("parts-")]
    assert parts
    for residence in parts:
        assert len(kernels_of(program, HARDWARE, "fma", residence)) == kernels


def test_gradients_of_rows_and_of_what_they_share_read_both_once() -> None:
    """One kernel for both, for each part of the rows, and the sums of all parts behind it."""
    for make in (row_gradients, column_sums):
        program = make()
        parts = [n for n in residences(program, FEW) if n.startswith(f"{BESIDE}-parts-")]
        assert parts, make
        first, merge = kernels_of(program, HARDWARE, "fma", parts[0])
        read = {spec.name for spec in program.inputs}
        assert {spec.name for spec in first.program.inputs} == read
        assert "dX" in {spec.name for spec in first.program.outputs}
        assert not read & {spec.name for spec in merge.program.inputs}
    g = Graph("normalised")
    m, n = g.axes(m=64, n=40)
    x = g.input("X", (m, n), "f32")
    g.output("Y", x - reduce("sum", x, over=m) * (1 / 64), "f32", (m, n))
    assert not any(n.startswith(f"{BESIDE}-") for n in residences(g.program(), FEW))


def test_parts_are_of_extents_that_no_power_of_two_divides() -> None:
    program = load_operator("batch_statistics").build(n=3**10 * 5, c=64, dtype="bf16")
    parts = [n for n in residences(program, 132) if n.startswith("parts-")]
    equal = ["parts-135", "parts-405", "parts-729", "parts-1215"]
    assert [n for n in parts if n in equal] == equal
    assert [n for n in parts if n not in equal] == ["parts-243", "parts-462"]  # of whole units


def test_parts_are_about_as_many_whatever_the_extent() -> None:
    """A range of extents has one schedule only where all of them have its parts."""
    words = {"b": 2, "heads": 32, "kv_heads": 8, "d": 128, "dtype": "bf16"}
    for keys in (4999, 5000, 5003, 5120, 10584):
        program = load_operator("decode_attention").build(sk=keys, **words)
        assert {"parts-8", "parts-16"} <= set(residences(program, 132))


def test_chains_of_unlike_products_are_one_kernel() -> None:
    """Rotated and other features are summed apart, and 512 columns are two blocks' work."""
    prefill = load_operator("mla_prefill").build(heads=16, dtype="bf16", b=1, sq=1024)
    assert len(kernels_of(prefill, HARDWARE, "wgmma")) == 1
    assert estimate(prefill) < 0.5


@pytest.mark.long
def test_chains_of_many_columns_are_one_kernel() -> None:
    decode = load_operator("mla_decode").build(heads=128, dtype="bf16", b=128, sk=4096)
    assert len(kernels_of(decode, HARDWARE, "wgmma", "axes-joined")) == 1
    assert estimate(decode) < 1.0
    words = {"b": 1, "heads": 32, "kv_heads": 8, "sq": 4096, "d": 128, "causal": True}
    backward = load_operator("attention_backward").build(**words, dtype="bf16")
    kinds = [kernel.kind for kernel in kernels_of(backward, HARDWARE, "wgmma")]
    assert kinds == ["block", "tensor", "tensor", "tensor"]
    assert estimate(backward) < 1.0


def test_what_one_pass_does_has_no_choice() -> None:
    """Near the least time of the program there is nothing to be gained."""
    for name, words in (
        ("softmax", {"m": 4096, "n": 4096}),
        ("matmul", {"m": 4096, "n": 4096, "k": 4096, "dtype": "bf16"}),
    ):
        space = BACKEND.space(load_operator(name).build(**words), HARDWARE)
        assert all(d.name != "residence" for d in space.decisions)


def test_a_residence_that_there_is_none_of_is_refused() -> None:
    program = load_operator("quantise_tensor").build(m=8192, n=8192, dtype="bf16")
    schedule = Schedule.of("cuda", {"residence": "nowhere"})
    with pytest.raises(UsageError, match=r"residence: 'nowhere' is not in its domain"):
        BACKEND.lower(program, schedule, HARDWARE)


# --- blocks that share a point ------------------------------------------------------------------

STEPPED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("life", {"m": 40, "n": 30, "steps": 3}), ("diffusion", {"m": 33, "n": 40, "steps": 2}),
    ("waves", {"n": 1100, "steps": 5}),
)  # fmt: skip


@needs_compiler
@pytest.mark.parametrize(("name", "words"), STEPPED)
@pytest.mark.parametrize(("team", "mode"), [(1, 0), (4, 0), (4, 15)])
def test_teams_step_together(name: str, words: dict[str, Any], team: int, mode: int) -> None:
    program = load_operator(name).build(**words)
    space = BACKEND.space(program, HARDWARE)
    assert team in next(d for d in space.decisions if d.name == "team").domain
    row = space.pin({"team": team, "threads": 32, "overlap": 1}).any_legal(np.random.default_rng(0))
    kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
    (launch,) = json.loads(kernel.text("launch"))["kernels"]
    assert launch.get("cooperative", False) == (team > 1)
    assert not (launch["early"] and team > 1)
    inputs = random_inputs(program, np.random.default_rng(1))
    assert not problems(program, kernel, inputs, bounds_of(program, inputs), mode)


def test_teams_are_no_larger_than_what_runs_at_a_time() -> None:
    program = load_operator("life").build(m=4096, n=4096, steps=16)
    space = BACKEND.space(program, HARDWARE)
    seeds = [seed for seed in space.seeds if "team" in seed and seed["overlap"] == 1]
    largest = max(seeds, key=lambda seed: int(seed["team"]) * int(seed["threads"]))
    assert int(largest["team"]) * int(largest["threads"]) == 1024 * int(HARDWARE["sms"])
    chosen = {**space.schedule(space.any_legal(np.random.default_rng(0))).as_dict(), **largest}
    too_many = {**chosen, "threads": 512, "team": 528}
    refusal = space.refusal(Schedule.of("cuda", too_many))
    assert refusal is not None
    assert "team=528 makes 270,336 threads, of which 135,168 run at a time" in str(refusal)


def test_teams_compile() -> None:
    program = load_operator("diffusion").build(m=512, n=512, steps=4)
    space = BACKEND.space(program, HARDWARE)
    (first, *_) = space.seed_rows(np.random.default_rng(0))
    kernel = BACKEND.lower(program, space.schedule(first), HARDWARE)
    try:
        _, found = nvrtc.compile_text(dict(kernel.texts)["cuda"], HARDWARE.isa[0])
    except MissingTarget as error:
        pytest.skip(str(error))
    assert found.registers <= 64  # of as many threads as wait for each other


@needs_compiler
def test_tma_stores_no_tile_whose_rows_lie_otherwise_in_memory() -> None:
    """dQ has heads of a group before positions, the operand that its rows come from behind them."""
    program, name = gradients(), "products-stored"
    (route,) = (r for r in routes_of(program, HARDWARE, name) if r.engine == "wgmma")
    (number,) = (
        n for n, kernel in enumerate(route.kernels)
        if any(store.tensor == "dQ" for _, store in kernel.program.stores())
    )  # fmt: skip
    space = residence_space(program, HARDWARE, None, name)
    space = space.pin({"engine": "wgmma", f"tile.g.{number}": 2, f"tile.sq.{number}": 64})
    rows = space.sample(np.random.default_rng(3), 40)
    assert not space.columns(rows).is_(f"epilogue.{number}", "tma").any()
    inputs = random_inputs(program, np.random.default_rng(1))
    bounds = bounds_of(program, inputs)
    kernel = lower_all(
        program, route.own(space.schedule(rows[0]).as_dict()), HARDWARE, route.engine, name
    )
    assert not problems(program, kernel, inputs, bounds, 0)


def test_rows_that_a_score_of_their_own_weighs_are_read_once() -> None:
    """251 x 2,000 x 2,560 in bf16 took 1.21 ms in two passes, 0.557 in one (H200)."""
    g = Graph("scored")
    b, t, d = g.axes(b=251, t=2000, d=2560)
    x = cast(g.input("X", (b, t, d), "bf16"), "f32")
    z = reduce("sum", x * g.input("w", (d,), "f32"), over=d)
    p = exp(z - reduce("max", z, over=t))
    g.output("Y", reduce("sum", p * x, over=t) / reduce("sum", p, over=t), "f32", (b, d))
    program = g.program()
    (held,) = kernels_of(program, HARDWARE, "fma", HELD)
    assert {spec.name for spec in held.program.inputs} == {"X", "w"}
    assert len(kernels_of(program, HARDWARE, "fma", USUAL)) == 2
    space = BACKEND.space(program, HARDWARE)
    offered = next(d for d in space.decisions if d.name == "residence").domain
    assert any(str(name).startswith(HELD) for name in offered)
    assert HELD not in residences(load_operator("layernorm").build(m=64, n=4096), 132)


def test_rows_that_begin_anywhere_are_not_written_step_by_step() -> None:
    """Threads that write a row each, element by element, took 4.8 ms where two folds took 1.7."""
    g = Graph("below")
    n, t = g.axes(n=100_003, t=2521)
    wealth = cumulative("sum", g.input("R", (n, t), "f32"), along=t)
    g.output("D", cumulative("max", wealth, along=t) - wealth, "f32", (n, t))
    space = BACKEND.space(g.program(), HARDWARE)
    rows = space.seed_rows(np.random.default_rng(0))
    assert space.estimate is not None
    best = space.schedule(rows[space.estimate(space.columns(rows)).argmin()])
    assert best.as_dict().get("residence", USUAL) == USUAL


def test_outputs_that_are_reduced_of_what_a_kernel_reads_are_its_own() -> None:
    """Largest elements of channels beside their means, where pictures were read once more."""
    g = Graph("channels")
    n, h, c = g.axes(n=8, h=49, c=12)
    x = cast(g.input("X", (n, h, c), "f16"), "f32")
    mean = reduce("sum", x, over=(n, h)) / 392
    g.output("mean", mean, "f32", (c,))
    g.output("most", reduce("max", x * x, over=(n, h)), "f32", (c,))
    g.output("pairs", reduce("max", x * x, over=h), "f32", (n, c))
    g.output("Y", x - mean, "f16", (n, h, c))
    kernels = kernels_of(g.program(), HARDWARE, "fma", "sums-met")
    assert {spec.name for spec in kernels[0].program.outputs} == {"mean", "most"}
    assert len(kernels) == 3
