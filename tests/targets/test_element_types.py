"""Rarer element types on both targets, against numpy written here, and against the oracle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer.runtime import nvrtc
from ir import Graph, parse
from ir.errors import MissingTarget, ProgramError, UsageError
from ir.inputs import random_inputs
from ir.oracle import evaluate
from ir.program import Program
from tests.emulator.emulate import compiler
from tests.few import draws
from tests.judging import bounds_of
from tests.targets import element_types
from tests.targets.cuda_cases import BACKEND as CUDA
from tests.targets.cuda_cases import HARDWARE
from tests.targets.test_cpu_kernels import cache, measure
from tests.targets.test_cuda_emulated import QUICK, problems

__all__ = ["cache"]
FILE = Path(element_types.__file__)

CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("w4_groups", {"m": 5, "n": 11, "parts": 3, "each": 32}),
    ("w4_groups", {"m": 3, "n": 7, "parts": 2, "each": 16, "dtype": "i2"}),
    ("w4_halves", {"m": 16, "n": 24, "pairs": 48}),
    ("w4_halves", {"m": 3, "n": 9, "pairs": 31, "dtype": "u4", "zero": True}),
    ("fp4_blocks", {"m": 7, "n": 13, "blocks": 3}),
    ("to_fp4", {"m": 9, "n": 50}),
    ("dotted", {"m": 6, "n": 9, "k": 34, "left": "i4", "right": "u4"}),
    ("dotted", {"m": 6, "n": 9, "k": 20, "left": "i2", "right": "i8"}),
    ("dotted", {"m": 5, "n": 7, "k": 33, "left": "u16", "right": "u16", "out": "i32"}),
    ("dotted", {"m": 5, "n": 7, "k": 33, "left": "i16", "right": "u8", "out": "i32"}),
    ("mixed_bits", {"n": 77}),
    ("converted", {"m": 5, "n": 37, "source": "u16", "target": "i16"}),
    ("converted", {"m": 5, "n": 37, "source": "i16", "target": "u32"}),
    ("converted", {"m": 3, "n": 35, "source": "u32", "target": "e5m2"}),
    ("converted", {"m": 5, "n": 37, "source": "e5m2", "target": "u16"}),
    ("converted", {"m": 5, "n": 36, "source": "i4", "target": "e8m0"}),
    ("around", {"m": 5, "n": 12, "dtype": "e2m1"}),
    ("around", {"m": 4, "n": 20, "dtype": "i2"}),
    ("codebook", {"m": 5, "n": 26}),
    ("wide_addends", {"m": 24, "n": 40, "k": 32, "dtype": "i64"}),
    ("wide_addends", {"m": 24, "n": 40, "k": 32, "dtype": "f64"}),
)
IDS = [f"{name}-{'-'.join(map(str, arguments.values()))}" for name, arguments in CASES]


def built(name: str, arguments: dict[str, Any]) -> Program:
    program: Program = getattr(element_types, name).build(**arguments)
    return program


@pytest.mark.parametrize(("name", "arguments"), CASES, ids=IDS)
@draws(1, 3)
@pytest.mark.alike(2)
def test_drawn_schedules_are_right(
    name: str, arguments: dict[str, Any], cache: Path, count: int
) -> None:
    assert measure(f"{FILE}:{name}", arguments, cache, count) == []


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("number", range(len(CASES)), ids=IDS)
@draws(1, 2)
@pytest.mark.alike(2)
def test_drawn_kernels_of_cuda_are_right(number: int, count: int) -> None:
    program = built(*CASES[number])
    inputs = random_inputs(program, np.random.default_rng(number))
    wanted, space = bounds_of(program, inputs), CUDA.space(program, HARDWARE)
    for turn, row in enumerate(space.sample(np.random.default_rng(number), count)):
        schedule = space.schedule(row)
        kernel = CUDA.lower(program, schedule, HARDWARE)
        found = problems(program, kernel, inputs, wanted, QUICK[(number + turn) % 4])
        assert not found, schedule.to_json()


# -- what they mean, by numpy that knows nothing of the oracle


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def fields(octets: np.ndarray, bits: int) -> np.ndarray:
    """The parts of bytes, lowest first, along the last dimension."""
    text = np.unpackbits(octets[..., None], axis=-1, bitorder="little")
    parts = text.reshape(*octets.shape, 8 // bits, bits) @ (1 << np.arange(bits))
    return parts.reshape(*octets.shape[:-1], -1).astype(np.int64)


def numbers(octets: np.ndarray, dtype: str) -> np.ndarray:
    found = fields(octets, int(dtype[1]) if dtype[0] in "iu" else 4)
    if dtype == "e2m1":
        return np.asarray(E2M1[found])
    top = {"i4": 8, "i2": 2, "u4": 16}[dtype]
    return np.where(found >= top, found - 2 * top, found)


def found_of(name: str, **arguments: Any) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    program = built(name, arguments)
    inputs = random_inputs(program, np.random.default_rng(5))
    return inputs, evaluate(program, inputs)


def wide(patterns: np.ndarray) -> np.ndarray:
    return (patterns.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


@pytest.mark.parametrize("dtype", ["i4", "u4", "i2"])
def test_packed_weights_are_what_they_should_be(dtype: str) -> None:
    inputs, outputs = found_of("w4_groups", m=4, n=6, parts=3, each=16, dtype=dtype)
    assert inputs["W"].shape == (6, 48 * int(dtype[1]) // 8)
    weights = numbers(inputs["W"], dtype) * np.repeat(inputs["scale"].astype(float), 16, axis=1)
    np.testing.assert_allclose(outputs["Y"], wide(inputs["X"]) @ weights.T, rtol=1e-12)


def test_pairs_of_packed_weights_are_read_at_plain_indices() -> None:
    program = built("w4_halves", {"m": 3, "n": 5, "pairs": 8, "dtype": "u4", "zero": True})
    assert "tensor=W, index=[n, k])" in str(program)
    inputs = random_inputs(program, np.random.default_rng(5))
    weights = numbers(inputs["W"], "u4") - inputs["zero"][:, None].astype(int)
    wanted = wide(inputs["X"]) @ weights.T * inputs["scale"].astype(float)
    np.testing.assert_allclose(evaluate(program, inputs)["Y"], wanted, rtol=1e-12)


def test_fp4_with_scales_of_blocks() -> None:
    inputs, outputs = found_of("fp4_blocks", m=4, n=5, blocks=3)
    scale = np.ldexp(1.0, inputs["scale"].astype(int) - 127)
    weights = numbers(inputs["W"], "e2m1") * np.repeat(scale, 32, axis=1)
    x = inputs["X"].astype(float).reshape(4, -1)
    np.testing.assert_allclose(outputs["Y"], x @ weights.T, rtol=1e-12)


def test_rows_become_fp4() -> None:
    inputs, outputs = found_of("to_fp4", m=7, n=40)
    x = inputs["X"].astype(float)
    exact = np.abs(x).max(axis=1) / 6
    powers = np.exp2(np.arange(-20, 20))
    scale = powers[np.abs(powers - exact[:, None]).argmin(axis=1)]
    np.testing.assert_array_equal(outputs["scale"], scale)
    near = np.abs((x / scale[:, None])[..., None] - E2M1).argmin(axis=-1)
    np.testing.assert_array_equal(outputs["Y"], E2M1[near] * scale[:, None])


def test_bits_of_u32_are_those_of_numpy() -> None:
    inputs, outputs = found_of("mixed_bits", n=500)
    x = inputs["X"]
    assert x.max() > 2**31
    y = x * np.uint32(0x85EBCA6B)
    y = (y - (y >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    assert np.array_equal(outputs["low"].astype(np.uint32), y - (y >> np.uint32(16)))
    high = (x.astype(np.uint64) * np.uint64(0xD2511F53)) >> np.uint64(32)
    assert np.array_equal(outputs["high"].astype(np.uint64), high)
    assert np.array_equal(outputs["larger"], np.maximum(x, y))


@pytest.mark.parametrize("dtype", ["e2m1", "i2"])
def test_beyond_the_ends_of_packed_rows(dtype: str) -> None:
    inputs, outputs = found_of("around", m=4, n=12, dtype=dtype)
    x, z = (numbers(inputs[name], dtype).astype(float) for name in "XZ")
    sides = np.pad(x, ((0, 0), (1, 1)), constant_values=1)
    near = sides[:, :-2] + sides[:, 1:-1] + sides[:, 2:]
    np.testing.assert_array_equal(outputs["Y"], near * z[inputs["table"]])


def test_codes_fill_their_table() -> None:
    inputs, outputs = found_of("codebook", m=9, n=64)
    codes = numbers(inputs["codes"], "u4")
    assert sorted(set(codes.ravel().tolist())) == list(range(16))
    np.testing.assert_array_equal(outputs["Y"], inputs["book"][codes])


# -- refusals


def test_rows_fill_whole_bytes() -> None:
    g = Graph("odd")
    n, k = g.axes(n=3, k=7)
    with pytest.raises(UsageError, match=r"odd: input W: 2 elements of i4 .* last extent is 7;"):
        g.input("W", (n, k), "i4")
    with pytest.raises(UsageError, match=r"input S: 4 elements of i2 .* it is a scalar"):
        g.tensor("S", (), "i2")


def test_subscripts_of_packed_tensors_are_checked() -> None:
    g = Graph("outside")
    (n,) = g.axes(n=8)
    w = g.tensor("W", (8,), "i4")
    with pytest.raises(ProgramError, match=r"load W: index n \+ 1 of dimension 0 spans 1..8"):
        w[n + 1]
    with pytest.raises(ProgramError, match="load W: 2 indices for 1 dimensions"):
        w[n, n]
    with pytest.raises(ProgramError, match="index tile of dimension 0 is not int"):
        w[g.input("X", (n,), "f32")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("input W u8[6, 24] packs=i8", "elements of i8 share no bytes"),
        ("input W i8[6, 24] packs=i4", "i4 lie in bytes, u8"),
        ("input W i4[6, 48]", r"i4 shares bytes: u8\[..\] packs=i4"),
        ("input W u8[6, 24] packs=i5", "unknown dtype 'i5'"),
    ],
)
def test_texts_of_packed_tensors(line: str, message: str) -> None:
    text = str(built("w4_groups", {"m": 4, "n": 6, "parts": 3, "each": 16}))
    assert str(parse(text)) == text
    with pytest.raises(ProgramError, match=message):
        parse(text.replace("input W u8[6, 24] packs=i4", line))


@pytest.mark.parametrize("number", [2, 5, 10, 13, 16], ids=lambda number: IDS[number])
@pytest.mark.alike(2)
def test_kernels_of_cuda_compile(number: int) -> None:
    """One each of the ways that types are widened, rounded and packed."""
    try:
        nvrtc.version()
    except MissingTarget as missing:
        pytest.skip(str(missing))
    program = built(*CASES[number])
    space = CUDA.space(program, HARDWARE)
    schedule = space.schedule(space.seed_rows(np.random.default_rng(0))[0])
    kernel = CUDA.lower(program, schedule, HARDWARE)
    plan = json.loads(kernel.text("launch"))
    code, _ = nvrtc.compile_text(kernel.text("cuda"), plan["arch"], tuple(plan["options"]))
    assert code
