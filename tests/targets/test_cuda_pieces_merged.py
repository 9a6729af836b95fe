"""Parts of sums that kernels find side by side, merged by one that computes something else too."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from ir import Graph, cast, contract, exp, maximum, reduce, where
from ir.inputs import random_inputs
from ir.oracle import evaluate
from ir.program import Program
from ir.registry import load_operator
from ir.targets.cuda.build.program_text import lower_all
from ir.targets.cuda.space.engines import residence_space, routes_of
from ir.targets.cuda.space.residences import BESIDE, PARTS, pieces_of, residences
from tests.emulator.emulate import compiler
from tests.few import draws
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems

FEW = 8  # processors, so that small programs have parts for all of them


def drafts() -> Program:
    """Keys of a cache that each query sees, and keys of its own of which bits say what it sees."""
    g = Graph("drafts")
    h, r, i, j, k, d, e = g.axes(h=2, r=4, i=16, j=256, k=16, d=32, e=32)
    q = g.input("Q", (i, h, r, d), "bf16")
    cached = contract(q, g.input("K", (j, h, d), "bf16"), over=d) * 0.125
    own = contract(q, g.input("L", (k, h, d), "bf16"), over=d) * 0.125
    seen = (g.input("bits", (i,), "i64") >> g.iota(k)) & 1
    own = where(seen == 1, own, -1e30)
    most = maximum(reduce("max", cached, over=j), reduce("max", own, over=k))
    first, second = exp(cached - most), exp(own - most)
    total = contract(cast(first, "bf16"), g.input("V", (j, h, e), "bf16"), over=j)
    total = total + contract(cast(second, "bf16"), g.input("W", (k, h, e), "bf16"), over=k)
    share = reduce("sum", first, over=j) + reduce("sum", second, over=k)
    g.output("O", total / share, "bf16", (i, h, r, e))
    return g.program()


def pairs(p: int = 300, n: int = 500) -> Program:
    """How many pairs are in order: one sum along two axes."""
    g = Graph("pairs")
    i, j = g.axes(p=p, n=n)
    ordered = where(g.input("P", (i,), "f32") > g.input("N", (j,), "f32"), 1.0, 0.0)
    g.output("share", reduce("sum", ordered, over=(i, j)) * (1.0 / (p * n)), "f32", ())
    return g.program()


def energy() -> Program:
    """A largest and a least along two axes of three, of what is made of three tensors."""
    g = Graph("energy")
    b, i, j = g.axes(b=3, i=96, j=128)
    x = g.input("X", (b, i), "f32") * g.input("Y", (b, j), "f32") + g.input("Z", (i, j), "f32")
    g.output("most", reduce("max", x, over=(i, j)), "f32", (b,))
    g.output("least", reduce("min", x, over=(i, j)), "f32", (b,))
    return g.program()


def odd_cache() -> Program:
    """Few queries, keys of which no number of parts has as many each, some that do not count."""
    words = {"b": 1, "heads": 4, "kv_heads": 2, "d": 64, "sk": 521, "dtype": "bf16"}
    return load_operator("decode_attention").build(**words)


def odd_vocabulary() -> Program:
    return load_operator("linear_cross_entropy").build(m=40, n=521, k=64, dtype="bf16")


def odd_rows() -> Program:
    """Mean and variance of few long rows, and quotients by what is 0 behind their end."""
    g = Graph("odd_rows")
    m, n = g.axes(m=2, n=1499)
    x = g.input("X", (m, n), "f32")
    mean = reduce("sum", x, over=n) * (1 / 1499)
    g.output("var", reduce("sum", (x - mean) * (x - mean), over=n), "f32", (m,))
    g.output("far", reduce("sum", x / (1499.0 - g.iota(n)), over=n), "f32", (m,))
    return g.program()


def pixels(s: int = 1024) -> Program:
    """How often classes are there, by a softmax of every pixel."""
    g = Graph("pixels")
    b, c, s_ = g.axes(b=2, c=5, s=s)
    z = cast(g.input("Z", (b, c, s_), "f16"), "f32")
    p = exp(z - reduce("max", z, over=c))
    p = p / reduce("sum", p, over=c)
    g.output("share", reduce("sum", p, over=s_), "f32", (b, c))
    return g.program()


def statistics(m: int = 512) -> Program:
    """What a product is made into, and the sums of its columns, beside each other."""
    g = Graph("statistics")
    i, n, k = g.axes(m=m, n=64, k=32)
    y = contract(g.input("X", (i, k), "bf16"), g.input("W", (n, k), "bf16"), over=k)
    y = maximum(y, 0.25 * y)
    g.output("Y", y, "bf16", (i, n))
    g.output("sums", reduce("sum", y * y, over=i), "f32", (n,))
    return g.program()


def test_what_is_reduced_at_every_point_is_reduced_again_in_parts() -> None:
    """Of a long axis, where no block could have it alone; not of a short one (classes)."""
    (first, _) = (piece.program for piece in pieces_of(pixels(1 << 16), f"{PARTS}64"))
    assert {"s_part", "s_in", "c"} <= set(first.axes)
    assert sum(node.op.name == "reduce" for node in first.nodes) == 3
    assert f"{PARTS}64" in residences(pixels(1 << 16), 132)


def test_column_sums_of_a_product_are_of_its_tiles() -> None:
    """In kernels on tensor cores, of which none stores the product itself."""
    names = [n for n in residences(statistics(1 << 14), 132) if n.startswith(f"{BESIDE}-{PARTS}")]
    assert names == [f"{BESIDE}-{PARTS}64", f"{BESIDE}-{PARTS}128"]
    routes = routes_of(statistics(1 << 14), HARDWARE, names[1])
    kernels = next(route.kernels for route in routes if route.engine == "wgmma")
    stored = {spec.dtype for kernel in kernels for spec in kernel.program.outputs
              if len(spec.shape) > 2}  # fmt: skip
    assert stored == {"bf16"}


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++)")
@pytest.mark.parametrize(
    "make", [drafts, pairs, energy, odd_cache, odd_vocabulary, odd_rows, pixels, statistics]
)
@draws(1, 9)
@pytest.mark.alike(2)
def test_parts_are_merged_once(make: Any, count: int) -> None:
    program = make()
    inputs = random_inputs(program, np.random.default_rng(1))
    bounds, tried = bounds_of(program, inputs), 0
    names = [n for n in residences(program, FEW) if n.startswith((PARTS, f"{BESIDE}-{PARTS}"))]
    for turn, name in enumerate(names):
        space = residence_space(program, HARDWARE, None, name)
        routes = routes_of(program, HARDWARE, name)
        for route in routes if count > 1 else routes[turn % len(routes) :][:1]:
            pins = {} if route.alone else {"engine": route.engine}
            for row in space.pin(pins).seed_rows(np.random.default_rng(2))[:1]:
                values = route.own(space.schedule(row).as_dict())
                kernel = lower_all(program, values, HARDWARE, route.engine, name)
                assert not problems(program, kernel, inputs, bounds, 0), (name, route.engine)
                tried += 1
    assert tried


@pytest.mark.parametrize("names", ["pn", "np", "xyab", "ba"])
def test_of_axes_that_are_as_long_the_first_is_in_parts(names: str) -> None:
    """Whatever order a process has sets in: others would have kernels of other names."""
    g = Graph("alike")
    axes = tuple(g.axis(name, 1 << 12) for name in names)
    x = g.input("X0", axes[:1], "f32")
    for number, axis in enumerate(axes[1:], 1):
        x = maximum(x, g.input(f"X{number}", (axis,), "f32"))
    g.output("sum", reduce("sum", x, over=axes[::-1]), "f32", ())
    piece = pieces_of(g.program(), f"{PARTS}128")[0].program
    assert f"{names[0]}_part" in piece.axes


def test_pairs_of_points_are_the_work_of_all_processors() -> None:
    program = pairs(1 << 16, 1 << 16)
    space = BACKEND.space(program, HARDWARE)
    rows = space.seed_matrix
    features = space.features
    assert features is not None
    names, table = features(space.columns(rows[space.legal(rows)]))
    assert table[:, names.index("total.estimate")].min() < 5
    best = space.schedule(rows[space.legal(rows)][table[:, names.index("total.estimate")].argmin()])
    plan = json.loads(BACKEND.lower(program, best, HARDWARE).text("launch"))
    assert plan["kernels"][0]["grid"][0] >= HARDWARE["sms"]
    small = pairs()
    inputs = random_inputs(small, np.random.default_rng(0))
    share = np.mean(inputs["P"][:, None] > inputs["N"][None, :])
    assert abs(evaluate(small, inputs)["share"] - share) < 1e-6
