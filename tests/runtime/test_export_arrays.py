"""What exported CPU modules are called with: each value is right, or refused in one line."""

from __future__ import annotations

import array
import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer.exporter import export, find_linker
from ir import Graph, cast, operator
from ir.target import get_backend

pytestmark = pytest.mark.skipif(find_linker() is None, reason="no C compiler here")
M, N = 5, 7


@operator
def mixed(g: Graph, m: int, n: int) -> None:
    """Y = len * np + def, Z = Y as bf16."""
    rows, columns = g.axes(m=m, n=n)
    x = g.input("len", (rows, columns), "f32")
    y = x * g.input("np", (), "f32") + cast(g.input("def", (columns,), "bf16"), "f32")
    g.output("_run", y)
    g.output("self", cast(y, "bf16"))


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory, code_cache: Path) -> Any:
    folder = tmp_path_factory.mktemp("mixed")
    backend = get_backend("cpu")
    program, hardware = mixed.build(m=M, n=N), backend.hardware(1)
    space = backend.space(program, hardware)
    schedule = space.schedule(space.seed_rows(np.random.default_rng(0))[0])
    kernel = backend.lower(program, schedule, hardware, full=True)
    export(kernel, {}, folder / "out", cache_dir=code_cache)
    spec = importlib.util.spec_from_file_location("mixed_export", folder / "out" / "mixed.py")
    assert spec
    assert spec.loader
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def inputs() -> tuple[Any, Any, Any]:
    """len, np, and def as bit patterns."""
    generator = np.random.default_rng(0)
    narrow = generator.standard_normal(N).astype(np.float32).view(np.uint32) >> 16
    return generator.standard_normal((M, N)).astype(np.float32), 1.5, narrow.astype(np.uint16)


def right(values: Any, results: Any) -> None:
    x, scale, narrow = values
    want = x * np.float32(scale) + (narrow.astype(np.uint32) << 16).view(np.float32)
    assert np.allclose(results[0], want)
    widened = (np.asarray(results[1]).view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    assert np.allclose(widened, want, rtol=1e-2)


def shifted(values: Any, by: int = 1) -> Any:
    """A copy that starts `by` bytes past a cache line."""
    room = np.zeros(values.nbytes + 128, np.uint8)
    start = -room.ctypes.data % 64 + by
    view = room[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    view[...] = values
    return view


class Offers:
    """Another library's array: some of numpy's and DLPack's protocols."""

    def __init__(self, values: Any, **offered: Any) -> None:
        self.values = values
        self.__dict__.update(offered)


class OffersArray(Offers):
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(self.values)


class OffersDlpack(Offers):
    def __dlpack__(self, **options: Any) -> Any:
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return getattr(self, "device", 1), 0


def test_scalars_and_awkward_names(module: Any) -> None:
    x, scale, narrow = inputs()
    for one in (scale, np.float32(scale), np.asarray(scale, np.float32), np.array(scale, ">f4")):
        right((x, scale, narrow), module.mixed(x, one, narrow))
    right((x, 2.0, narrow), module.mixed(x, 2, narrow))
    right((x, scale, narrow), module.mixed(len=x, np=scale, def_=narrow))


def test_inputs_of_any_kind(module: Any, tmp_path: Path) -> None:
    x, scale, narrow = inputs()
    x.tofile(tmp_path / "x")
    mapped = np.memmap(tmp_path / "x", np.float32, "r", shape=(M, N))
    frozen = x.copy()
    frozen.flags.writeable = False
    wide = np.repeat(x, 2, axis=1)[:, ::2]
    kinds = [
        mapped, frozen, wide, x.astype(">f4"), np.asfortranarray(x), shifted(x), x.tolist(),
        OffersArray(x), OffersDlpack(x), memoryview(x), np.asarray(x).view(np.matrix),
    ]  # fmt: skip
    for value in kinds:
        right((x, scale, narrow), module.mixed(value, scale, narrow))


def test_outputs_are_written_where_they_are(module: Any, tmp_path: Path) -> None:
    values = inputs()
    mapped = np.memmap(tmp_path / "y", np.float32, "w+", shape=(M, N))
    buffer = array.array("f", [0] * (M * N))
    for given in (
        np.empty((M, N), np.float32),
        mapped,
        memoryview(buffer).cast("B").cast("f", (M, N)),
    ):
        bits = np.zeros((M, N), np.uint16)
        results = module.mixed(*values, given, bits)
        assert results[0] is given
        assert results[1] is bits
        right(values, (np.asarray(given), bits))


def read_only() -> Any:
    given = np.zeros((M, N), np.float32)
    given.flags.writeable = False
    return given


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (read_only, "_run is read-only"),
        (lambda: np.zeros((M, 2 * N), np.float32)[:, ::2], "_run is not C-contiguous"),
        (lambda: np.zeros((N, M), np.float32).T, "_run is not C-contiguous"),
        (lambda: np.broadcast_to(np.float32(0), (M, N)), "_run is read-only"),
        (lambda: shifted(np.zeros((M, N), np.float32)), "_run does not start at a multiple"),
        (lambda: np.zeros((M, N), ">f4"), "float32 in the other byte order"),
        (lambda: np.zeros((M, N)), "_run must be float32; it is float64"),
        (lambda: np.zeros(M * N, np.float32), r"_run has shape \(35,\)"),
        (lambda: np.ma.zeros((M, N), np.float32), "masks are not looked at"),
        (lambda: [[0.0] * N] * M, "_run is a list"),
        (lambda: OffersArray(np.zeros((M, N), np.float32)), "_run is a OffersArray"),
        (lambda: bytes(4 * M * N), "_run"),
        (lambda: 1.0, "_run is a float"),
    ],
)
def test_outputs_that_cannot_be_written_are_refused(module: Any, given: Any, words: str) -> None:
    value = given()
    before = np.array(value) if isinstance(value, np.ndarray) else None
    with pytest.raises((TypeError, ValueError), match=words) as told:
        module.mixed(*inputs(), value)
    assert str(told.value).startswith("mixed: ")
    assert "\n" not in str(told.value)
    assert before is None or np.array_equal(value, before)


@pytest.mark.parametrize(
    ("place", "given", "words"),
    [
        (0, lambda x: None, "len"),
        (0, lambda x: x.astype(np.float64), "len must be float32; it is float64"),
        (0, lambda x: [[1.0], [2.0, 3.0]], "len: "),
        (0, lambda x: [["a"] * N] * M, "len must be float32"),
        (0, lambda x: np.ma.masked_less(x, 0), "masks"),
        (0, lambda x: OffersDlpack(x, device=2), "not in the host's memory"),
        (1, lambda x: np.ones(1, np.float32), r"np has shape \(1,\)"),
        (1, lambda x: 1j, "np"),
        (2, lambda x: [1.0] * N, "def must be bfloat16 or, as bit patterns, uint16"),
        (2, lambda x: np.ones(N, np.float16), "def must be bfloat16"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(
    module: Any, place: int, given: Any, words: str
) -> None:
    values = list(inputs())
    values[place] = given(values[0])
    with pytest.raises((TypeError, ValueError), match=words) as told:
        module.mixed(*values)
    assert str(told.value).startswith("mixed: ")
    assert "\n" not in str(told.value)


def test_arrays_that_overlap(module: Any) -> None:
    """An output on an input gives what numpy gives; two outputs on one place are refused."""
    x, scale, narrow = inputs()
    room = np.zeros(2 * M * N, np.float32)
    for start in (0, 1, M * N - 1, M * N):
        given = room[start : start + M * N].reshape(M, N)
        given[...] = x
        results = module.mixed(given, scale, narrow, room[: M * N].reshape(M, N))
        right((x, scale, narrow), results)
    bits = room.view(np.uint16)[: M * N].reshape(M, N)
    with pytest.raises(ValueError, match="mixed: outputs _run and self overlap"):
        module.mixed(x, scale, narrow, room[: M * N].reshape(M, N), bits)


class Tensor:
    """As much of torch's class as the module uses."""

    def __init__(self, values: Any, dtype: str, requires_grad: bool = False) -> None:
        self.values, self.dtype, self.requires_grad = values, dtype, requires_grad
        self.shape, self.nbytes = values.shape, values.nbytes
        self.is_cpu, self.layout = True, "strided"

    def is_contiguous(self) -> bool:
        return bool(self.values.flags.c_contiguous)

    def data_ptr(self) -> int:
        return int(self.values.ctypes.data)

    def element_size(self) -> int:
        return int(self.values.itemsize)

    def clone(self) -> Tensor:
        return Tensor(self.values.copy(), self.dtype)

    def detach(self) -> Tensor:
        return Tensor(self.values, self.dtype)

    def view(self, dtype: str) -> Tensor:
        return Tensor(self.values.view({"bfloat16": "u2"}.get(dtype, dtype)), dtype)

    def numpy(self) -> Any:
        if self.requires_grad or self.dtype == "bfloat16":
            raise TypeError("numpy() cannot be called\non it")
        return self.values


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = types.SimpleNamespace(
        Tensor=Tensor, strided="strided", float32="float32", bfloat16="bfloat16", int16="int16",
        uint8="uint8",
        from_numpy=lambda array: Tensor(array, array.dtype.name),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


def test_tensors_in_tensors_out(module: Any, torch: Any) -> None:
    x, scale, narrow = inputs()
    tensors = Tensor(x, "float32", requires_grad=True), scale, Tensor(narrow, "bfloat16")
    results = module.mixed(*tensors)
    assert [result.dtype for result in results] == ["float32", "bfloat16"]
    right((x, scale, narrow), [result.values for result in results])
    given = Tensor(np.zeros((M, N), np.float32), "float32")
    results = module.mixed(*tensors, given)
    assert results[0] is given
    right((x, scale, narrow), [result.values for result in results])
    with pytest.raises(ValueError, match="mixed: _run requires a gradient"):
        module.mixed(*tensors, Tensor(given.values, "float32", requires_grad=True))
