"""Products as cuBLAS is asked for them, against a cuBLAS on host memory."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from explorer.runtime import cublas
from explorer.runtime.cublas import Matrix, multiplies, multiply
from ir.errors import MissingTarget

_TYPES = {0: np.float32, 1: np.float64, 2: np.float16, 3: np.int8, 10: np.int32}
_UNSUPPORTED = 15


class OnDevice(np.ndarray[Any, Any]):
    """An array that tells its address as CuPy's do."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data)


def placed(values: Any) -> Any:
    return np.ascontiguousarray(values).view(OnDevice)


class HostBlas:
    """cuBLAS's products by numpy: matrices lie column by column, as its manual says."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.status = 0

    def cublasSetStream_v2(self, handle: Any, stream: Any) -> int:
        self.calls.append(f"stream {stream.value}")
        return 0

    def cublasSetWorkspace_v2(self, handle: Any, pointer: Any, size: Any) -> int:
        self.calls.append("workspace")
        return 0

    def cublasGemmEx(self, handle: Any, ta: int, tb: int, m: int, n: int, k: int, one: Any,
                     *facts: Any) -> int:  # fmt: skip
        self.calls.append("one")
        a, ka, lda, b, kb, ldb, _, c, kc, ldc, compute, _ = facts
        self._product((ta, tb, m, n, k), (a.value, ka, lda), (b.value, kb, ldb), (c.value, kc, ldc))
        self.calls.append(f"compute {compute}")
        return self.status

    def cublasGemmStridedBatchedEx(self, handle: Any, ta: int, tb: int, m: int, n: int, k: int,
                                   one: Any, *facts: Any) -> int:  # fmt: skip
        self.calls.append("several")
        a, ka, lda, sa, b, kb, ldb, sb, _, c, kc, ldc, sc, count, _, _ = facts
        for number in range(count):
            parts = ((a, ka, lda, sa), (b, kb, ldb, sb), (c, kc, ldc, sc))
            moved = [
                (p.value + number * s.value * np.dtype(_TYPES[kind]).itemsize, kind, ld)
                for p, kind, ld, s in parts
            ]
            self._product((ta, tb, m, n, k), *moved)
        return self.status

    def _product(self, how: Any, a: Any, b: Any, c: Any) -> None:
        ta, tb, m, n, k = how
        left, right = self._matrix(a, m, k, ta), self._matrix(b, k, n, tb)
        self._matrix(c, m, n, 0)[...] = left.astype(np.float64) @ right.astype(np.float64)

    def _matrix(self, facts: Any, rows: int, columns: int, turned: int) -> Any:
        """Element (r, c) is at r + c * leading; turned ones are stored the other way round."""
        address, kind, leading = facts
        stored = (columns, rows) if turned else (rows, columns)
        assert leading >= stored[0]
        size = np.dtype(_TYPES[kind]).itemsize
        count = leading * (stored[1] - 1) + stored[0]
        room = (ctypes.c_char * (count * size)).from_address(address)
        flat = np.frombuffer(memoryview(room), _TYPES[kind])
        found = np.lib.stride_tricks.as_strided(flat, stored, (size, leading * size))
        return found.T if turned else found


@pytest.fixture
def blas(monkeypatch: pytest.MonkeyPatch) -> HostBlas:
    host, library = HostBlas(), object.__new__(cublas._Cublas)
    library._handle, library._call = ctypes.c_void_p(1), host  # type: ignore[assignment]
    library._workspace = placed(np.zeros(1, np.uint8))
    cuda = SimpleNamespace(get_current_stream=lambda: SimpleNamespace(ptr=77))
    monkeypatch.setattr(cublas, "cupy", lambda: SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(cublas, "_library", lambda: library)
    return host


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
def test_every_order_of_operands(blas: HostBlas, turned: tuple[bool, bool], batch: int) -> None:
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal((batch, *shape)) for shape in ((5, 7), (7, 6)))
    first, second = (
        placed(x.swapaxes(1, 2)).swapaxes(1, 2) if t else placed(x)
        for x, t in zip((left, right), turned, strict=True)
    )
    out = placed(np.zeros((batch, 5, 6)))
    assert multiply(first, second, ("f64", "f64", "f64"), out)
    assert np.allclose(out, left @ right)
    assert blas.calls[:2] == ["stream 77", "workspace"]
    assert blas.calls[2] == ("one" if batch == 1 else "several")


@pytest.mark.parametrize("shape", [(1, 1, 7, 6), (1, 5, 7, 1), (2, 5, 1, 6), (1, 1, 1, 1)])
def test_vectors_are_matrices(blas: HostBlas, shape: tuple[int, int, int, int]) -> None:
    batch, m, k, n = shape
    rng = np.random.default_rng(1)
    left, right = placed(rng.standard_normal((batch, m, k))), placed(rng.random((batch, k, n)))
    out = placed(np.zeros((batch, m, n)))
    assert multiply(left, right, ("f64", "f64", "f64"), out)
    assert np.allclose(out, np.asarray(left) @ np.asarray(right))


def test_parts_of_larger_arrays_and_one_matrix_for_all(blas: HostBlas) -> None:
    whole = placed(np.random.default_rng(2).standard_normal((3, 8, 10)))
    left, right = whole[:, 1:6, 2:9], whole[:1, :7, :4]
    shared = np.broadcast_to(right, (3, 7, 4), subok=True)
    out = placed(np.zeros((3, 5, 4)))
    assert multiply(left, shared, ("f64", "f64", "f64"), out)
    assert np.allclose(out, np.asarray(left) @ np.asarray(shared))
    assert Matrix.of(left) == Matrix(left.ctypes.data, False, 10, 80)
    assert Matrix.of(whole[:, ::2, ::2]) is None


def test_what_lies_in_no_order_is_copied(blas: HostBlas) -> None:
    whole = placed(np.random.default_rng(2).standard_normal((1, 10, 10)))
    left, out = whole[:, ::2, ::2], placed(np.zeros((1, 5, 5)))
    assert multiply(left, left, ("f64", "f64", "f64"), out)
    assert np.allclose(out, np.asarray(left) @ np.asarray(left))


def test_types_are_told(blas: HostBlas) -> None:
    whole = placed(np.eye(4, dtype=np.float32)[None])
    out = placed(np.zeros((1, 4, 4), np.float32))
    assert multiply(whole, whole, ("tf32", "tf32", "f32"), out)
    assert "compute 77" in blas.calls
    assert multiplies("bf16", "bf16", "f32")
    assert not multiplies("bf16", "f16", "f32")
    assert not multiplies("u8", "u8", "i32")


def test_what_cublas_lacks_is_told_from_its_failures(blas: HostBlas) -> None:
    ones = placed(np.ones((1, 3, 3), np.int8))
    out = placed(np.zeros((1, 3, 3), np.int32))
    blas.status = _UNSUPPORTED
    assert not multiply(ones, ones, ("i8", "i8", "i32"), out)
    blas.status = 13
    with pytest.raises(RuntimeError, match="refuses a product of i8 x i8 \\(status 13\\)"):
        multiply(ones, ones, ("i8", "i8", "i32"), out)


def test_a_cupy_without_cublas_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise ImportError("libcublas.so.13: cannot open shared object file")

    device = SimpleNamespace(get_cublas_handle=missing)
    cuda = SimpleNamespace(cuda=SimpleNamespace(device=device))
    monkeypatch.setattr(cublas, "cupy", lambda: cuda)
    with pytest.raises(MissingTarget, match=r"no cuBLAS .*install"):
        cublas._Cublas()
