"""Which quotients are to nearest, by what is made of them, and that a reciprocal may be off."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ir import Graph, argmax, bitcast, cast, ceil, exp, floor, reduce, sqrt, trunc, where
from ir.ops.base import Array
from ir.program import Program
from ir.targets.cuda.prelude import sections
from ir.targets.cuda.space.block import BlockKernel
from ir.targets.cuda.space.engines import routes_of
from ir.tiles import Tile, apply
from tests.emulator import host_types
from tests.emulator.emulate import compiler
from tests.targets.cuda_cases import BACKEND, HARDWARE

Made = Callable[[Tile, Tile], Tile]  # of a quotient, and of a number beside it
DECIDING: dict[str, Made] = {
    "floor": lambda q, _: floor(q),
    "ceil": lambda q, _: ceil(exp(q * 2.0)),
    "trunc": lambda q, _: trunc(q + 1.0) * 0.5,
    "round": lambda q, _: apply("round", q),
    "whole": lambda q, _: cast(q * 4.0, "i32"),
    "compared": lambda q, x: where(q < x, x, 0.0),
    "equal": lambda q, x: where(exp(q) == 1.0, x, 0.5),
    "bits": lambda q, _: bitcast(q, "i32") & 1,
}
CLOSE: dict[str, Made] = {
    "itself": lambda q, _: q,
    "root": lambda q, x: sqrt(q) + x,
    "chosen": lambda q, x: where(x > 0.5, q, -q),
    "narrow": lambda q, _: cast(q, "bf16"),
}


def _text(made: Made, by: float | None = None) -> str:
    """The kernel of a program with a quotient of two inputs, or of one by a number."""
    g = Graph("quotients")
    i, j = g.axes(i=64, j=64)
    x, y = g.input("X", (i, j), "f32"), g.input("Y", (i, j), "f32")
    found = made(x / (y if by is None else by), y)
    g.output("Z", found, found.dtype, (i, j))
    return _kernel(g.program())


def _kernel(program: Program) -> str:
    assert isinstance(routes_of(program, HARDWARE)[0].kernels[0], BlockKernel)
    space = BACKEND.space(program, HARDWARE)
    schedule = space.schedule(space.seed_rows(np.random.default_rng(0))[0])
    return BACKEND.lower(program, schedule, HARDWARE).text("cuda").split("//@ kernel")[1]


@pytest.mark.parametrize("name", DECIDING)
def test_what_decides_is_to_nearest(name: str) -> None:
    text = _text(DECIDING[name])
    assert "tw_divide(" in text
    assert "tw_quotient(" not in text
    stated = _text(DECIDING[name], by=3.0)
    assert "tw_divide(" in stated
    assert "0.33333" not in stated


@pytest.mark.parametrize("name", CLOSE)
def test_what_decides_nothing_is_close(name: str) -> None:
    text = _text(CLOSE[name])
    assert "tw_quotient(" in text
    assert "tw_divide(" not in text
    stated = _text(CLOSE[name], by=3.0)
    assert "0.33333" in stated
    assert "tw_quotient(" not in stated
    assert "tw_divide(" not in stated


def test_the_place_of_the_largest_quotient_is_of_those_to_nearest() -> None:
    g = Graph("largest")
    i, j = g.axes(i=64, j=64)
    q = g.input("X", (i, j), "f32") / g.input("Y", (i, j), "f32")
    g.output("I", argmax(q, j), "i32", (i,))
    g.output("S", reduce("sum", q, over=j), "f32", (i,))
    space = BACKEND.space(g.program(), HARDWARE)
    for row in space.seed_rows(np.random.default_rng(0))[:4]:
        text = BACKEND.lower(g.program(), space.schedule(row), HARDWARE).text("cuda")
        assert "tw_divide(" in text.split("//@ kernel")[1]


HOST = """
extern "C" {{ f32 fabsf(f32); f32 fmaf(f32, f32, f32); }}
static i32 ulps;
TW_INLINE f32 tw_reciprocal(f32 x) {{
  union {{ f32 value; i32 bits; }} y = {{1.0f / x}};
  y.bits += ulps;
  return y.value;
}}
{divide}
extern "C" void divide(const f32* x, const f32* y, f32* z, i32 count, i32 off) {{
  ulps = off;
  for (i32 i = 0; i < count; i++) z[i] = tw_divide(x[i], y[i]);
}}
"""


@pytest.fixture(scope="module")
def divide(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Array, Array, int], Array]:
    """The prelude's division on the host, whose reciprocals are so many units off in the last
    place."""
    program, folder = compiler(), Path(tmp_path_factory.mktemp("divide"))
    if program is None:
        pytest.skip("no C++ compiler (g++)")
    source, made = folder / "divide.cpp", folder / "divide.so"
    source.write_text(host_types.TEXT + HOST.format(divide=sections()["tw_divide"]))
    flags = ("-std=c++17", "-O2", "-w", "-fPIC", "-shared", "-ffp-contract=off")
    subprocess.run([program, *flags, str(source), "-lm", "-o", str(made)], check=True)
    library = ctypes.CDLL(str(made))

    def run(x: Array, y: Array, off: int) -> Array:
        z = np.empty_like(x)
        places = [array.ctypes.data_as(ctypes.c_void_p) for array in (x, y, z)]
        library.divide(*places, len(x), off)
        return z

    return run


def _same(found: Array, wanted: Array) -> bool:
    """Whether all bits are, but those of what is no number."""
    there = ~np.isnan(wanted)
    bits, others = found[there].view(np.uint32), wanted[there].view(np.uint32)
    return bool((np.isnan(found) == np.isnan(wanted)).all() and (bits == others).all())


COUNT = 1 << 20


def _drawn(rng: np.random.Generator, least: int, most: int) -> Array:
    """Numbers of both signs, of any bits of a mantissa and exponents of a range."""
    bits = rng.integers(0, 1 << 23, COUNT) | rng.integers(least + 127, most + 127, COUNT) << 23
    found = (bits | rng.integers(0, 2, COUNT) << 31).astype(np.uint32).view(np.float32)
    found[rng.random(COUNT) < 0.01] = 0.0
    return found


@pytest.mark.parametrize("off", [-1, 0, 1])
@pytest.mark.parametrize("range_", [(0, 1), (-49, 49), (-127, 129)], ids=str)
def test_a_reciprocal_that_is_a_unit_off_does_not_show(
    divide: Callable[[Array, Array, int], Array], off: int, range_: tuple[int, int]
) -> None:
    rng = np.random.default_rng(off + 7)
    x, y = _drawn(rng, *range_), _drawn(rng, *range_)
    with np.errstate(all="ignore"):
        assert _same(divide(x, y, off), x / y)


def _middling(rng: np.random.Generator, side: int) -> tuple[Array, Array]:
    """Quotients as near to the middle of two numbers as there are, above it or below."""
    y = rng.integers(1 << 22, 1 << 23, COUNT) * 2 + 1
    inverse = y.copy()
    for _ in range(5):  # each doubles the bits that are right
        inverse = inverse * (2 - y * inverse) % (1 << 25)
    middle = side * inverse % (1 << 25)  # odd, and y times it lies beside a multiple of 2^25
    x = (y * middle - side) >> 25
    there = middle > 1 << 24
    return x[there].astype(np.float32), y[there].astype(np.float32)


@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize("off", [-1, 0, 1])
@pytest.mark.alike(2)
def test_quotients_beside_the_middle_of_two_numbers(
    divide: Callable[[Array, Array, int], Array], off: int, side: int
) -> None:
    x, y = _middling(np.random.default_rng(off + 3), side)
    assert len(x) > COUNT // 3
    few = y < np.float32(2**24 - 64)  # a reciprocal beside a power of two takes more than a step
    assert _same(divide(x[few], y[few], off), x[few] / y[few])


def test_quotients_at_ends_and_near_whole_numbers(
    divide: Callable[[Array, Array, int], Array],
) -> None:
    ends = [0.0, -0.0, 1e-45, -1e-40, 1.17549435e-38, 1e-15, 1e15, 3.4e38, np.inf, -np.inf, np.nan]
    near = [np.nextafter(np.float32(value), np.float32(way)) for value in (1, 2, 3, 1e-15, 1e15)
            for way in (0, np.inf)]  # fmt: skip
    few = np.array([*ends, *near, 1.0, -3.0, 7.0], np.float32)
    x, y = (array.reshape(-1).copy() for array in np.meshgrid(few, few))
    with np.errstate(all="ignore"):
        assert _same(divide(x, y, 0), x / y)
    whole = np.arange(1, 2000, dtype=np.float32)
    counts, divisors = (array.reshape(-1).copy() for array in np.meshgrid(whole, whole[:500]))
    products = counts * divisors
    assert (divide(products, divisors, 0) == counts).all()
