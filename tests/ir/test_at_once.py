"""Formulas in one pass: what stand-ins note, compiled as C, gives what numpy gives."""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from explorer.expectation import error_model
from ir import Graph, cast, exp, reduce, rsqrt, where
from ir.at_once import LINE, ONE, OPTIONS, Formula, Unknown, source, walked
from ir.inputs import drawn_inputs
from ir.mapped_at_once import Noting, meant_at_once, told
from ir.ops.base import Environment, Error, Scope, TileArray, TileType
from ir.ops.map import Cast, Map
from ir.oracle import answers
from ir.registry import load_operator
from ir.roundoff import ErrorModel
from ir.scalar import FUNCTIONS
from tests.runtime.cuda_kernels import compiled
from tests.runtime.test_export_cuda import HAS_GPU

_HEAD = """#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
static struct { long long x; } blockIdx, threadIdx;
static double __longlong_as_double(long long bits) { double x; memcpy(&x, &bits, 8); return x; }
"""
_NO_STAND_IN = {
    "shr", "shl", "mod", "floordiv", "popcount", "bitcast", "lookup", "philox", "unit",
}  # fmt: skip


class CompileException(Exception):
    """What a device's library raises where its compiler refuses."""


class Library:
    """What of a device's array library one pass needs, in C on the host."""

    int32, float64, __name__ = np.int32, np.float64, "library"
    cuda = SimpleNamespace(compiler=SimpleNamespace(CompileException=CompileException))

    def __init__(self, folder: Path) -> None:
        self.folder, self.made = folder, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def empty(shape: tuple[int, ...], dtype: Any) -> Any:
        return np.empty(shape, dtype)

    @staticmethod
    def asarray(value: Any, dtype: Any = None) -> Any:
        return np.asarray(value, dtype=dtype)

    @staticmethod
    def zeros(count: Any, dtype: Any = float) -> Any:
        class Counts(np.ndarray[Any, Any]):
            def get(self) -> Any:
                return np.asarray(self)

        return np.zeros(count, dtype).view(Counts)

    def RawKernel(self, text: str, name: str, options: tuple[str, ...] = ()) -> Any:
        self.made += 1
        found = re.match(r'extern "C" __global__ void at_once\((.*?)\) {', text)
        assert found is not None
        parameters = [part.rsplit(" ", 1) for part in found[1].split(", ")]
        words = ", ".join(word.lstrip("*") for _, word in parameters)
        driver = (
            f"void run(long long blocks, {found[1]}) {{ for (blockIdx.x = 0; blockIdx.x < blocks; "
            "++blockIdx.x) for (threadIdx.x = 0; threadIdx.x < 256; ++threadIdx.x) "
            f"at_once({words}); }}"
        )
        file = self.folder / f"k{self.made}.c"
        file.write_text(_HEAD + text.replace('extern "C" __global__ ', "") + driver)
        command = ["gcc", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-o"]
        subprocess.run([*command, file.with_suffix(".so"), file, "-lm"], check=True)
        function = ctypes.CDLL(str(file.with_suffix(".so"))).run

        def call(grid: tuple[int], block: tuple[int], given: Any) -> None:
            assert block == (256,)
            pointers = [
                ctypes.c_longlong(int(one)) if isinstance(one, np.int64)
                else one.ctypes.data_as(ctypes.c_void_p)
                for one in given
            ]  # fmt: skip
            function(ctypes.c_longlong(grid[0]), *pointers)

        return call


def _numbers(kind: str, special: bool, rng: np.random.Generator) -> Any:
    if kind == "bool":
        return rng.random((7, 33)) < 0.5
    if kind == "i32":
        return rng.integers(-9, 9, (7, 33))
    found = rng.standard_normal((7, 33)) * 2.0 ** rng.integers(-8, 8, (7, 33))
    if special:
        places = rng.integers(0, found.size, 40)
        found.reshape(-1)[places] = rng.choice(
            [0.0, -0.0, np.inf, -np.inf, np.nan, 1e300, 1e-310], 40
        )
    return found


def _operands(op: Any, kinds: list[str], special: bool) -> tuple[list[TileArray], list[TileType]]:
    rng = np.random.default_rng(len(kinds) + special)
    tiles = []
    for number, kind in enumerate(kinds):
        array = _numbers(kind, special, rng)
        wide = np.abs(rng.standard_normal(array.shape)) * 1e-3 * (rng.random(array.shape) < 0.8)
        if special and kind == "f32":
            wide.reshape(-1)[rng.integers(0, wide.size, 5)] = np.inf
        spread = 0.0 if number else np.square(rng.standard_normal(array.shape) * 1e-4)
        error = None if kind != "f32" else Error(wide, spread)
        tiles.append(TileArray(("i", "j"), array, error))
    return tiles, [TileType(tile.axes, kind) for tile, kind in zip(tiles, kinds, strict=True)]


def _kinds(name: str) -> list[str]:
    row = FUNCTIONS[name]
    if row.result == "select":
        return ["bool", "f32", "f32"]
    first = {"bool": "bool", "bits": "i32", "whole": "i32"}.get(row.operands, "f32")
    return [first] * row.arity


def _environment(types: list[TileType], library: Any) -> Environment:
    found = Environment(Scope({"i": 7, "j": 33}, {}), {}, {}, ErrorModel(), library)
    found.types = types
    return found


def _judged(op: Any, kinds: list[str], special: bool, library: Library) -> None:
    tiles, types = _operands(op, kinds, special)
    model = ErrorModel()
    want, off = told(op, tiles, types, _environment(types, np), model)
    found = meant_at_once(op, tiles, types, _environment(types, library), model)
    assert found is not None
    have, error = found
    np.testing.assert_allclose(
        have.array.astype(float), want.array.astype(float), rtol=4e-15, atol=5e-324
    )
    assert have.array.dtype == want.array.dtype
    if off is None or error is None:
        assert error is None
        assert off is None or (not np.any(off.wide) and not np.any(off.spread))
        return
    assert error is not None
    for mine, other in ((error.wide, off.wide), (error.spread, off.spread)):
        one, two = np.broadcast_to(mine, (7, 33)), np.broadcast_to(other, (7, 33))
        if special and getattr(op, "function", "") in ("add", "sub", "mul"):
            known = np.isfinite(want.array) & np.isfinite(one)  # told by slopes there, which is
            assert np.all(one[known] >= two[known] * (1 - 1e-7))  # more than a difference shows
            one, two = one[~known], two[~known]
        np.testing.assert_allclose(one, two, rtol=1e-7, atol=1e-18)


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in _NO_STAND_IN])
def test_functions_and_their_errors(name: str, special: bool, tmp_path: Path) -> None:
    _judged(Map(name), _kinds(name), special, Library(tmp_path))


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize(
    ("source_type", "dtype"),
    [("f32", t) for t in ("bf16", "f16", "e4m3", "bool", "i32", "u8", "i64")]
    + [("i32", "f32"), ("bool", "i32")],
)
def test_casts_and_their_errors(
    source_type: str, dtype: str, special: bool, tmp_path: Path
) -> None:
    op, library = Cast(dtype), Library(tmp_path)
    tiles, types = _operands(op, [source_type], special)
    if meant_at_once(op, tiles, types, _environment(types, library), ErrorModel()) is None:
        assert dtype == "e4m3"  # whose numbers are looked up
    else:
        _judged(op, [source_type], special, Library(tmp_path))


def test_a_value_that_stands_twice_is_one(tmp_path: Path) -> None:
    """What is compared with itself stays equal to it, and a square moves twice as far."""
    library = Library(tmp_path)
    tiles, types = _operands(None, ["f32"], False)
    tiles, types = tiles * 2, types * 2
    for op in (Map("mul"), Map("lt"), Map("sub")):
        want, off = told(op, tiles, types, _environment(types, np), ErrorModel())
        found = meant_at_once(op, tiles, types, _environment(types, library), ErrorModel())
        assert found is not None
        np.testing.assert_array_equal(found[0].array, want.array)
        assert off is not None
        if found[1] is None:
            assert op.function != "mul"
            assert not np.any(off.wide)
            continue
        np.testing.assert_allclose(
            np.broadcast_to(found[1].wide, (7, 33)), np.broadcast_to(off.wide, (7, 33)), rtol=1e-7
        )


@pytest.mark.parametrize("name", sorted(_NO_STAND_IN))
def test_what_stand_ins_do_not_know_is_computed_otherwise(name: str, tmp_path: Path) -> None:
    kinds = ["i32"] * FUNCTIONS[name].arity
    op = Map(name, table=(1.0, 2.0), dtype="f32") if name == "lookup" else Map(name)
    if name == "bitcast":
        op = Map(name, dtype="f32")
    tiles, types = _operands(op, kinds, False)
    library = Library(tmp_path)
    assert meant_at_once(op, tiles, types, _environment(types, library), ErrorModel()) is None


def test_what_a_compiler_refuses_is_computed_otherwise(tmp_path: Path) -> None:
    class Refusing(Library):
        def RawKernel(self, *given: Any, **how: Any) -> Any:
            def call(*operands: Any) -> None:
                self.made += 1
                raise CompileException("no")

            return call

    library = Refusing(tmp_path)
    tiles, types = _operands(None, ["f32"], False)
    for _ in range(2):
        environment = _environment(types, library)
        assert meant_at_once(Map("tanh"), tiles, types, environment, ErrorModel()) is None
    assert library.made == 1


def test_numbers_of_the_host_are_operands_as_arrays_are(tmp_path: Path) -> None:
    types = [TileType(("i", "j"), "f32"), TileType((), "i32")]
    tiles = [
        TileArray(("i", "j"), np.arange(231.0).reshape(7, 33), Error(np.float64(0.5), 0.0)),
        TileArray((), np.int64(3)),  # type: ignore[arg-type]
    ]
    library = Library(tmp_path)
    found = meant_at_once(Map("mul"), tiles, types, _environment(types, library), ErrorModel())
    assert found is not None
    np.testing.assert_array_equal(found[0].array, tiles[0].array * 3)


def test_subscripts_and_truths_are_unknown() -> None:
    one = Formula().stand_in(np.zeros(3))
    for ask in (lambda: one[0], lambda: bool(one), lambda: np.cumsum(one), lambda: one**3.0):
        with pytest.raises(Unknown):
            ask()
    with pytest.raises(Unknown):
        Formula().stand_in(np.zeros(3, np.float32))


def test_the_text_of_a_kernel() -> None:
    formula = Formula()
    a, b = formula.stand_in(np.zeros(3)), formula.stand_in(np.zeros(3, np.int64))
    found: Any = np.where(a > 0.5, a * b, np.inf)
    ways: list[tuple[str, str | int]] = [("f", LINE), ("i", 2)]
    assert source(ways, [("f", found.name)], formula.lines, "unsigned") == (
        'extern "C" __global__ void at_once(const double *p0, const long long *p1, double *q0, '
        "int *any, long long n, long long e1, long long s1_0, long long s1_1) {\n"
        "  const unsigned i = (unsigned)blockIdx.x * 256 + threadIdx.x;\n"
        "  if (i >= n) return;\n"
        "  unsigned x0 = i;\n"
        "  const unsigned x1 = x0 % (unsigned)e1; x0 /= (unsigned)e1;\n"
        "  const double a0 = p0[i];\n"
        "  const long long a1 = p1[x0 * s1_0 + x1 * s1_1];\n"
        "  const bool t0 = a0 > (0.5);\n"
        "  const double t1 = a0 * (double)a1;\n"
        "  const double t2 = (t0) ? t1 : __longlong_as_double(0x7ff0000000000000LL);\n"
        "  q0[i] = t2; if (t2 != 0) any[0] = 1;\n"
        "}\n"
    )


def test_arrays_are_walked_along_few_dimensions() -> None:
    whole, row = np.zeros((2, 3, 4)), np.broadcast_to(np.zeros(4), (2, 3, 4))
    turned, part = np.zeros((4, 3, 2)).T, np.zeros((2, 3, 8))[..., ::2]
    assert walked((2, 3, 4), [whole, np.zeros(())]) == ([24], [LINE, ONE])
    assert walked((2, 3, 4), [whole, row]) == ([6, 4], [LINE, (0, 1)])
    assert walked((2, 3, 4), [whole, turned]) == ([2, 3, 4], [LINE, (1, 2, 6)])
    assert walked((2, 3, 4), [part, part]) == ([24], [(2,), (2,)])
    assert walked((1, 5, 1), [np.zeros((1, 5, 1)), np.zeros((1, 1, 1))]) == ([5], [LINE, ONE])
    assert walked((), [np.zeros(())]) == ([], [ONE])


@pytest.mark.parametrize("axes", [("i", "j"), ("j", "i"), ("j",), ("i",), ()])
def test_operands_lie_in_whatever_order(axes: tuple[str, ...], tmp_path: Path) -> None:
    """Turned, broadcast, a part of a larger array, reversed; and arrays without an element."""
    rng, lengths = np.random.default_rng(0), {"i": 7, "j": 33}
    large = rng.standard_normal([2 * lengths[axis] for axis in axes])
    value = np.asarray(large)[tuple(slice(None, None, -2) for _ in axes)]
    value = np.asarray(value)
    tiles = [TileArray(("i", "j"), rng.standard_normal((7, 33))), TileArray(axes, value)]
    types = [TileType(tile.axes, "f32") for tile in tiles]
    library = Library(tmp_path)
    found = meant_at_once(Map("sub"), tiles, types, _environment(types, library), ErrorModel())
    assert found is not None
    np.testing.assert_array_equal(found[0].array, tiles[0].array - tiles[1].aligned(("i", "j")))
    none = [TileArray(("i", "j"), np.zeros((0, 33))), TileArray(("j",), np.zeros(33))]
    empty = meant_at_once(Map("mul"), none, types, _environment(types, library), ErrorModel())
    assert empty is not None
    assert empty[0].array.shape == (0, 33)


@pytest.mark.parametrize(
    ("op", "kinds"),
    [
        *((Map(name), _kinds(name)) for name in FUNCTIONS if name not in _NO_STAND_IN),
        *((Map(name), ["i32"] * FUNCTIONS[name].arity) for name in ("abs", "max", "mul", "div")),
        *((Cast(dtype), ["f32"]) for dtype in ("bf16", "f16", "i32", "u8", "bool")),
        (Cast("f32"), ["i32"]),
    ],
    ids=str,
)
def test_devices_compile_them(op: Any, kinds: list[str]) -> None:
    tiles, types = _operands(op, kinds, False)
    noting = Noting(("i", "j"), np)
    exact, error = told(
        op, [noting.tile(t) for t in tiles], types, _environment(types, np), ErrorModel()
    )
    results: list[Any] = [exact.array, *(() if error is None else (error.wide, error.spread))]
    found = [(one.kind, one.name) for one in results if not isinstance(one, float)]
    ways: list[tuple[str, str | int]] = [(one.kind, 3) for one in noting.formula.inputs]
    text = source(ways, found, noting.formula.lines, "unsigned")
    plan = {"arch": "sm_90a", "options": OPTIONS, "standard": "c++14"}  # as CuPy compiles texts
    assert compiled(text, json.dumps(plan))


@pytest.mark.parametrize("much", [0, 1 << 34])
def test_programs_mean_the_same_in_chains_or_one_by_one(
    much: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A choice, a norm, a rounding on the way, a value that is read twice, several outputs."""
    g = Graph("chained")
    i, j = g.axes(i=9, j=11)
    x, y = g.input("X", (i, j), "f32"), g.input("Y", (j,), "bf16")
    size = reduce("sum", x * x, over=(j,)) * (1 / 11)
    normed = cast(x * rsqrt(size + 1e-3) * (1.0 + cast(y, "f32")), "bf16")
    wide = cast(normed, "f32")
    g.output("Z", where(wide > 0.25, exp(wide) - 1.0, wide * 0.5), "f32", (i, j))
    g.output("N", normed, "bf16", (i, j))
    program = g.program()
    monkeypatch.setattr("ir.oracle._MUCH", much)
    inputs, model, library = drawn_inputs(program, 0), error_model(program), Library(tmp_path)
    want = answers(program, inputs, model)
    found = answers(program, inputs, model, xp=library)
    for name, answer in want.items():
        np.testing.assert_allclose(found[name].value, answer.value, rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(found[name].reach, answer.reach, rtol=1e-4, atol=1e-12)
    assert 2 < library.made < (9 if not much else 99)


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="no NVIDIA device here")
@pytest.mark.parametrize(("name", "arguments"), [
    ("softmax", {"m": 33, "n": 70}), ("activation", {"m": 17, "n": 129}),
    ("layernorm", {"m": 9, "n": 300, "dtype": "bf16"}),
    ("attention", {"b": 1, "heads": 2, "sq": 65, "d": 64, "dtype": "bf16"}),
])  # fmt: skip
@pytest.mark.parametrize("much", [0, 1 << 34])
def test_a_device_says_what_the_host_does(
    name: str, arguments: dict[str, object], much: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cupy = import_module("cupy")
    monkeypatch.setattr("ir.oracle._MUCH", much)
    program = load_operator(name).build(**arguments)
    inputs, model = drawn_inputs(program, 0), error_model(program)
    there = {key: cupy.asarray(array) for key, array in inputs.items()}
    want, found = answers(program, inputs, model), answers(program, there, model, xp=cupy)
    for key, answer in want.items():
        np.testing.assert_allclose(
            cupy.asnumpy(found[key].value), answer.value, rtol=1e-9, atol=1e-9
        )
        np.testing.assert_allclose(
            cupy.asnumpy(found[key].reach), answer.reach, rtol=0.2, atol=1e-9
        )
