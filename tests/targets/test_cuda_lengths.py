"""Walks follow what is read from memory: lengths at which they end, places of blocks they copy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ir import Graph, Program, cast, contract, exp, reduce, relu, where
from ir.dtypes import from_float, to_float
from ir.inputs import random_inputs
from tests.emulator.emulate import MODES, compiler, emulate
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, built, space_of
from tests.targets.test_cuda_emulated import arrays_of, problems

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
KEYS, LENGTHS, READ = 1024, (3, 200), 512  # no block has more than 256 keys


@pytest.mark.parametrize("engine", ["wgmma", "fma"])
def test_keys_behind_the_length_are_not_read(engine: str) -> None:
    shape = {"b": 2, "heads": 4, "kv_heads": 2, "d": 64, "sk": KEYS, "dtype": "bf16"}
    program = built("decode_attention", shape)
    inputs: dict[str, Any] = random_inputs(program, np.random.default_rng(3))
    inputs["length"] = np.array(LENGTHS, np.int32)
    wanted = reference(inputs)
    for name in "KV":
        inputs[name] = inputs[name].copy()
        inputs[name][:, :, READ:] = from_float(np.array(np.nan), "bf16")
    pins = {"fma.tile.b": 1, "fma.tile.sk": 256} if engine == "fma" else {"tile.sk": 256}
    space = space_of(program, engine).pin(pins)
    schedule = space.schedule(space.any_legal(np.random.default_rng(0)))
    kernel = BACKEND.lower(program, schedule, HARDWARE)
    arrays = arrays_of(kernel, inputs)
    run = emulate(kernel.text("cuda"), kernel.text("launch"), arrays, mode=MODES[0], limit=30)
    assert not run.faults
    np.testing.assert_allclose(to_float(arrays["O"], "bf16"), wanted, atol=0.05)


def reference(inputs: dict[str, Any]) -> Any:
    q, k, v = (to_float(inputs[name], "bf16").astype(np.float64) for name in "QKV")
    found = np.zeros_like(q)
    for b, length in enumerate(LENGTHS):
        scores = np.einsum("hgd,hkd->hgk", q[b], k[b, :, :length]) / 8
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        found[b] = np.einsum("hgk,hkd->hgd", weights, v[b, :, :length])
    return found


def test_blocks_at_listed_places_are_copied_by_one_kernel() -> None:
    """The index of each is read as the walk comes to it: nothing is gathered beforehand."""
    shape = {"m": 128, "n": 64, "k": 256, "tiles": 3, "block": 64, "dtype": "bf16"}
    program = built("blocked_sparse_matmul", shape)
    inputs: dict[str, Any] = random_inputs(program, np.random.default_rng(6))
    inputs["column"] = np.array([[3, 0, 2], [1, 1, 0]], np.int32)
    space = space_of(program, "wgmma")
    kernel = BACKEND.lower(
        program, space.schedule(space.seed_rows(np.random.default_rng(0))[0]), HARDWARE
    )
    assert not [a for a in kernel.arguments if a.role == "workspace"]
    arrays = arrays_of(kernel, inputs)
    run = emulate(kernel.text("cuda"), kernel.text("launch"), arrays, mode=MODES[6], limit=30)
    assert not run.faults
    left, right = (to_float(inputs[name], "bf16").astype(np.float64) for name in "AB")
    picked = right[inputs["column"]]
    wanted = np.einsum("rtab,rtbn->ran", left, picked)
    np.testing.assert_allclose(to_float(arrays["C"], "bf16"), wanted, atol=0.3)


def test_a_walk_along_several_axes_ends_where_two_pointers_say() -> None:
    """Tiles of a row are those between two pointers; those behind the second are not multiplied."""
    words = {"m": 256, "n": 64, "k": 256, "tiles": 6, "longest": 4, "block": 64, "dtype": "bf16"}
    program = built("bsr_matmul", words)
    inputs: dict[str, Any] = random_inputs(program, np.random.default_rng(5))
    inputs["pointer"] = np.array([0, 0, 3, 4, 6], np.int32)  # of which the first has none
    inputs["column"] = np.array([3, 0, 1, 2, 0, 3], np.int32)
    space = BACKEND.space(program, HARDWARE)
    row = space.any_legal(np.random.default_rng(0))
    kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
    arrays = arrays_of(kernel, inputs)
    run = emulate(kernel.text("cuda"), kernel.text("launch"), arrays, mode=MODES[6], limit=60)
    assert not run.faults
    assert "const i32 blocks = " in kernel.text("cuda")
    left, right = (to_float(inputs[name], "bf16").astype(np.float64) for name in "AB")
    wanted = np.zeros((4, 64, 64))
    for r, (first, end) in enumerate(zip(inputs["pointer"], inputs["pointer"][1:], strict=False)):
        for tile in range(first, end):
            wanted[r] += left[tile] @ right[inputs["column"][tile]]
    np.testing.assert_allclose(to_float(arrays["C"], "bf16"), wanted, atol=0.1, rtol=0.01)


def masked() -> Program:
    """A sum over several axes, of which the outermost ends at a length."""
    g = Graph("masked")
    r, t, k, i, n = g.axes(r=3, t=6, k=64, i=64, n=72)
    length, a = g.input("length", (r,), "i32"), g.input("a", (r, i, t, k), "bf16")
    weights = cast(where(g.iota(t) < length, cast(a, "f32") * 0.5, 0.0), "bf16")
    w = g.input("w", (r, n, t, k), "bf16")
    g.output("y", contract(weights, w, over=(t, k)), "f32", (r, i, n))
    return g.program()


def folded() -> Program:
    """Products that are folded along as many points as a length says."""
    g = Graph("folded")
    r, h, k, i, n = g.axes(r=3, h=5, k=64, i=64, n=72)
    length, a = g.input("length", (r,), "i32"), g.input("a", (r, h, i, k), "bf16")
    scores = relu(contract(a, g.input("w", (r, h, n, k), "bf16"), over=k))
    g.output("y", reduce("sum", where(g.iota(h) < length, scores, 0.0), over=h), "f32", (r, i, n))
    return g.program()


@pytest.mark.parametrize(("make", "engines"), [(masked, ("wgmma_rs", "mma")), (folded, ("wgmma",))])
def test_the_outermost_of_several_walked_axes_ends_at_a_length(
    make: Callable[[], Program], engines: tuple[str, ...]
) -> None:
    program = make()
    inputs: dict[str, Any] = random_inputs(program, np.random.default_rng(1))
    inputs["length"] = np.array([0, 3, 5], np.int32)
    bounds = bounds_of(program, inputs)
    for engine in engines:
        space = BACKEND.space(program, HARDWARE).pin({"engine": engine})
        rng = np.random.default_rng(2)
        for turn, row in enumerate((*space.seed_rows(rng)[:1], *space.sample(rng, 3))):
            kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
            assert "const i32 blocks = (max(min(" in kernel.text("cuda")
            assert problems(program, kernel, inputs, bounds, (0, 15, 6, 9)[turn]) == []


def test_what_is_stored_behind_a_mask_is_written() -> None:
    """A sum ends where a mask does; weights that are an output are zeros from there on."""
    g = Graph("masked_rows")
    m, n = g.axes(m=40, n=72)
    seen = where(g.iota(n) <= g.iota(m), g.input("X", (m, n), "f32"), -math.inf)
    g.output("Y", exp(seen - reduce("max", seen, over=n)))
    program = g.program()
    inputs = random_inputs(program, np.random.default_rng(1))
    bounds = bounds_of(program, inputs)
    space = BACKEND.space(program, HARDWARE)
    for row in space.sample(np.random.default_rng(3), 12):
        kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
        assert problems(program, kernel, inputs, bounds, 0) == []
