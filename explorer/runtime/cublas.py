"""Matrix products by the cuBLAS that CuPy has loaded, called through its C interface.

CuPy's own wrappers refuse to be captured into graphs and have no bfloat16. Knows pointers and
strides; no program.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from explorer.runtime.cuda import cupy
from ir.errors import MissingTarget

_DATA = {"f32": 0, "tf32": 0, "f64": 1, "f16": 2, "i8": 3, "i32": 10, "bf16": 14}  # cudaDataType
_COMPUTE = {"f32": 68, "tf32": 77, "f64": 70, "i32": 72}  # cublasComputeType_t
_SCALARS: Mapping[str, Any] = {"f64": ctypes.c_double, "i32": ctypes.c_int}
_DEFAULT_ALGORITHM = -1
_WORKSPACE = 32 << 20  # bytes, as NVIDIA recommends for sm_90; smaller ones take slower kernels
_INSTALL = "install it with CuPy's extra `ctk`, or with the CUDA toolkit"
_UNSUPPORTED = 15  # such as int8 matrices whose rows are no multiples of 4 bytes

# Types of the factors, which are alike: what is accumulated in, and what results may be.
_PRODUCTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "bf16": ("f32", ("f32", "bf16")),
    "f16": ("f32", ("f32", "f16")),
    "f32": ("f32", ("f32",)),
    "tf32": ("tf32", ("f32", "tf32")),
    "f64": ("f64", ("f64",)),
    "i8": ("i32", ("i32",)),
}


def multiplies(left: str, right: str, out: str) -> bool:
    """Whether there is a product of these types."""
    return left == right and left in _PRODUCTS and out in _PRODUCTS[left][1]


@dataclass(frozen=True, slots=True)
class Matrix:
    """A batch of matrices as BLAS takes them; `turned` if columns are what lies together."""

    pointer: int
    turned: bool
    leading: int
    stride: int

    @classmethod
    def of(cls, array: Any) -> Matrix | None:
        """An array (batch, rows, columns), or None if it has to be copied first."""
        (_, rows, columns), size = array.shape, array.itemsize
        batch, down, across = (stride // size for stride in array.strides)
        if (across == 1 or columns == 1) and (down >= columns or rows == 1):
            return cls(array.data.ptr, False, max(columns, down if rows > 1 else 1), batch)
        if (down == 1 or rows == 1) and (across >= rows or columns == 1):
            return cls(array.data.ptr, True, max(rows, across if columns > 1 else 1), batch)
        return None


def multiply(left: Any, right: Any, dtypes: tuple[str, str, str], out: Any) -> bool:
    """Write products of (batch, m, k) and (batch, k, n) to `out`, contiguous (batch, m, n).

    On the current stream. False where cuBLAS has no such product; RuntimeError for its failures.
    """
    left, right = (x if Matrix.of(x) else x.copy(order="C") for x in (left, right))
    a, b = Matrix.of(left), Matrix.of(right)
    assert a is not None
    assert b is not None
    return _library().multiply(a, b, dtypes, left.shape[2], out)


@cache
def _library() -> _Cublas:
    return _Cublas()


class _Cublas:
    """The library in this process, with a handle and a workspace of its own."""

    def __init__(self) -> None:
        try:
            self._handle = ctypes.c_void_p(cupy().cuda.device.get_cublas_handle())
        except ImportError as error:
            raise MissingTarget(f"CuPy finds no cuBLAS ({error}); {_INSTALL}") from None
        self._call = ctypes.CDLL(_loaded_path())
        self._workspace = cupy().empty(_WORKSPACE, "u1")

    def multiply(
        self, a: Matrix, b: Matrix, dtypes: tuple[str, str, str], depth: int, out: Any
    ) -> bool:
        """Queue the product; cuBLAS stores columns together, so the transposes are multiplied."""
        batch, rows, columns = out.shape
        compute = _PRODUCTS[dtypes[0]][0]
        scalar = _SCALARS.get(compute, ctypes.c_float)
        one, zero = ctypes.byref(scalar(1)), ctypes.byref(scalar(0))
        several = batch > 1
        first, second = _factor(b, dtypes[1], several), _factor(a, dtypes[0], several)
        result = _factor(Matrix(out.data.ptr, False, columns, rows * columns), dtypes[2], several)
        count = (batch,) if several else ()
        call = self._call.cublasGemmStridedBatchedEx if several else self._call.cublasGemmEx
        self._use_current_stream()
        status = call(
            self._handle, int(b.turned), int(a.turned), columns, rows, depth, one, *first, *second,
            zero, *result, *count, _COMPUTE[compute], _DEFAULT_ALGORITHM,
        )  # fmt: skip
        if status != _UNSUPPORTED:
            _check(status, f"a product of {' x '.join(dtypes[:2])}")
        return bool(status == 0)

    def _use_current_stream(self) -> None:
        """Setting the stream forgets the workspace, without which nothing can be captured."""
        stream = ctypes.c_void_p(cupy().cuda.get_current_stream().ptr)
        _check(self._call.cublasSetStream_v2(self._handle, stream), "a stream")
        pointer, size = ctypes.c_void_p(self._workspace.data.ptr), ctypes.c_size_t(_WORKSPACE)
        _check(self._call.cublasSetWorkspace_v2(self._handle, pointer, size), "a workspace")


def _check(status: int, what: str) -> None:
    if status:
        raise RuntimeError(f"cuBLAS refuses {what} (status {status})")


def _loaded_path() -> str:
    """The file of the cuBLAS that CuPy has loaded into this process."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = [line.split()[-1] for line in lines if "libcublas.so" in line]
    if not paths:
        raise MissingTarget(f"CuPy has loaded no cuBLAS; {_INSTALL}")
    return paths[0]


def _factor(matrix: Matrix, dtype: str, several: bool) -> tuple[Any, ...]:
    """A matrix as arguments of a call, with the distance of the next where there are several."""
    stride = (ctypes.c_int64(matrix.stride),) if several else ()
    return ctypes.c_void_p(matrix.pointer), _DATA[dtype], matrix.leading, *stride
