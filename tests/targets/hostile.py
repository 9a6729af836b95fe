"""Inputs with NaN, infinities and zeros in them, and what a kernel may make of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from explorer.check import Bounds
from ir import (
    Graph,
    absolute,
    apply,
    cast,
    gelu,
    maximum,
    minimum,
    operator,
    reduce,
    silu,
    where,
)
from ir.dtypes import from_float, is_float, to_float
from ir.inputs import random_inputs
from ir.ops.base import Array
from ir.program import Program

KINDS: dict[str, tuple[float, ...]] = {
    "nan": (np.nan,),
    "infinite": (np.inf, -np.inf),
    "zero": (0.0, -0.0),
    "mixed": (np.nan, np.inf, -np.inf, 0.0),
    "row of -inf": (-np.inf,),
    "row of 0": (0.0,),
    "row of inf": (np.inf,),
}
UNSEEN = Path(__file__).with_name("unseen.py")
# every built-in operator, in shapes with ragged ends; V of what is masked is kept finite
OPERATORS: tuple[tuple[str, dict[str, Any], tuple[str, ...]], ...] = (
    ("matmul", {"m": 19, "n": 35, "k": 41}, ()),
    ("matmul", {"m": 18, "n": 40, "k": 72, "dtype": "bf16", "tb": True}, ()),
    ("matmul_bias_act", {"m": 18, "n": 35, "k": 40}, ()),
    ("matmul_bias_act", {"m": 18, "n": 35, "k": 40, "activation": "relu"}, ()),
    ("matmul_bias_act", {"m": 18, "n": 35, "k": 40, "activation": "silu", "dtype": "f16"}, ()),
    ("gated_mlp", {"m": 18, "n": 40, "k": 72, "dtype": "bf16"}, ()),
    ("scaled_matmul", {"m": 18, "n": 40, "k": 64}, ()),
    ("softmax", {"m": 21, "n": 77}, ()),
    ("softmax", {"m": 21, "n": 77, "dtype": "bf16"}, ()),
    ("layernorm", {"m": 21, "n": 77}, ()),
    ("rmsnorm", {"m": 21, "n": 77}, ()),
    ("row_max", {"m": 21, "n": 77}, ()),
    ("row_max", {"m": 3, "n": 1000, "dtype": "f16"}, ()),
    ("column_max", {"m": 77, "n": 35}, ()),
    ("row_sum", {"m": 21, "n": 77}, ()),
    ("column_sum", {"m": 77, "n": 35}, ()),
    ("attention", {"b": 1, "heads": 2, "sq": 33, "d": 16}, ()),
    ("attention", {"b": 1, "heads": 2, "sq": 33, "d": 16, "dtype": "bf16", "causal": True}, ("V",)),
    ("gaussian", {"n": 50, "d": 5}, ()),
    ("gaussian", {"n": 50, "d": 5, "expand": True}, ()),
    ("conv2d", {"n": 1, "h": 9, "w": 8, "c": 5, "f": 20, "padding": 1}, ()),
    (f"{UNSEEN}:logsumexp", {"m": 13, "n": 100}, ()),
    (f"{UNSEEN}:divergence", {"m": 13, "n": 100}, ()),
    (f"{UNSEEN}:embedding_bag", {"b": 17, "n": 9, "e": 50, "rows": 30}, ()),
)


def hostile_inputs(
    program: Program, kind: str, seed: int, keep: Iterable[str] = ()
) -> dict[str, Array]:
    """Normal numbers with some, or a row, of `kind` in every float tensor but those to `keep`."""
    rng = np.random.default_rng(seed)
    inputs = random_inputs(program, rng)
    for spec in program.inputs:
        if is_float(spec.dtype) and spec.name not in keep and spec.shape:
            place = _row(spec.shape, rng) if kind.startswith("row") else _some(spec.shape, rng)
            values = [v for v in KINDS[kind] if spec.dtype != "e4m3" or not np.isinf(v)] or [448.0]
            drawn = rng.choice(values, np.count_nonzero(place))
            inputs[spec.name][place] = from_float(drawn, spec.dtype)
    return inputs


def _some(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    found = np.zeros(shape, bool)
    found.reshape(-1)[rng.choice(found.size, min(found.size, 3), replace=False)] = True
    return found


def _row(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """One row of a matrix; nothing of a vector."""
    found = np.zeros(shape, bool)
    if len(shape) > 1:
        found[..., rng.integers(shape[-2]), :] = True
    return found


def differences(
    wanted: dict[str, Bounds], found: dict[str, Array], alike: bool = True
) -> list[str]:
    """Where outputs are NaN, infinite or finite and should not be, or are wrong.

    Not `alike`: what is infinite and what is NaN is not told apart.
    """
    problems = []
    for name, bounds in wanted.items():
        have = found[name]
        if not alike:
            known = np.isfinite(bounds.low) & np.isfinite(bounds.high)
            low, high = (np.where(known, end, np.nan) for end in (bounds.low, bounds.high))
            bounds = replace(bounds, low=low, high=high)
            wide = to_float(have, bounds.dtype)
            have = from_float(np.where(np.isfinite(wide), wide, np.nan), bounds.dtype)
        verdict = bounds.judge(have)
        if not verdict.right:
            problems.append(f"{name}: {verdict.detail}")
    return problems


SPECIAL = (
    np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.3, -0.3, 1e-6, -1e-6, 1e6, -1e6, 87.0, -87.0,
    88.5, 89.0, -90.0, 30.0, -30.0, 4.5, -4.5, 1e-30, 3e38, -3e38, 300.7, -300.7, 2e9, 3e9, -3e9,
)  # fmt: skip
UNARY = (
    "neg", "abs", "exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "floor", "ceil", "trunc",
    "round", "log1p", "expm1",
)  # fmt: skip
BINARY = ("add", "sub", "mul", "div", "max", "min", "lt", "le", "eq")


@operator
def every_function(g: Graph, m: int, n: int, dtype: str = "f32") -> None:
    """Every scalar function, comparison and cast of numbers and pairs of them."""
    mm, nn = g.axes(m=m, n=n)
    x, y = g.input("X", (nn,), dtype), g.input("Y", (mm,), dtype)
    for name in UNARY:
        g.output(f"{name}_", apply(name, x))
    far = (absolute(x) > 1e30) & (absolute(x) < math.inf)  # where they may be anything
    for name in ("sin", "cos"):
        g.output(f"{name}_", apply(name, where(far, 0.0, x)))
    for name in BINARY:
        g.output(f"{name}_", apply(name, x, y))
    g.output("relu", maximum(x, 0.0))
    g.output("clamp", minimum(maximum(x, -2.0), 2.0))
    g.output("where", where(x < y, x, y))
    g.output("other", where(x >= y, x, where(~apply("eq", x, y), 1.0, y)))
    g.output("gelu", gelu(x))
    g.output("silu", silu(x))
    for to in ("i8", "u8", "i32", "bool", "e4m3", "bf16", "f16"):
        g.output(f"to_{to}", cast(x, to))
    g.output("argmax", where(apply("eq", x, reduce("max", x, nn)), g.iota(nn), -1))


def special_inputs(program: Program) -> dict[str, Array]:
    """X and Y of `every_function` for all pairs of SPECIAL."""
    stored = {spec.name: spec.dtype for spec in program.inputs}
    with np.errstate(over="ignore"):
        return {name: from_float(np.array(SPECIAL), stored[name]) for name in ("X", "Y")}


def wrong_functions(
    program: Program, wanted: dict[str, Array], found: dict[str, Array], room: float = 3e-6
) -> list[str]:
    """Outputs of `every_function` that are off by more than `room` of themselves, or near 0."""
    problems = []
    for spec in program.outputs:
        have = to_float(found[spec.name], spec.dtype).astype(np.float64)
        with np.errstate(all="ignore"):
            want = to_float(from_float(wanted[spec.name], spec.dtype), spec.dtype)
            want = want.astype(np.float64)
            step = {"bf16": 2.0**-7, "f16": 2.0**-10, "e4m3": 2.0**-3}.get(spec.dtype, room)
            near = np.abs(have - want) <= step * np.abs(want) + 5e-7
        same = near | (have == want) | (np.isnan(have) & np.isnan(want))
        if not same.all():
            at = tuple(int(i) for i in np.argwhere(~same)[0])
            problems.append(f"{spec.name} at {at}: {have[at]} instead of {want[at]}")
    return problems
