"""CuPy as the array library of a GPU: what a program takes without a compiler.

Products run in cuBLAS, everything else in CuPy's own kernels, one for each op. Runs in the worker
process that times kernels too, on its operands.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from explorer.runtime import cublas
from explorer.runtime.base import Array
from explorer.runtime.cuda import cupy, operand_sets, reduce_by
from explorer.runtime.cuda_launch import CudaLaunch
from explorer.runtime.eager import Evaluation
from explorer.runtime.products import Product
from ir.dtypes import dtype_of, numpy_dtype, promote, whole_range
from ir.program import Program
from ir.scalar import scalar_function

_ROOM = 0.5  # of the free memory for intermediates
_COMPILES = 0.02  # seconds of a first run in which something may have been compiled


class CupyLibrary:
    """See `explorer.runtime.eager.ArrayLibrary`."""

    def __init__(self) -> None:
        self.xp = cupy()
        self.room = _ROOM * self.xp.cuda.runtime.memGetInfo()[0]

    def refuse(self, program: Program, product: Product) -> None:
        """There is a product of all types: by cuBLAS, or for other integers by CuPy itself."""

    def fast(self, left: str, right: str) -> bool:
        return cublas.multiplies(left, right, "i32" if left == "i8" else left)

    def wide(self, array: Array, dtype: str, to: str) -> Array:
        if dtype == "bf16":
            array = _kernel("uint16 x", "float32 y", "y = __uint_as_float((unsigned)x << 16)")(
                array
            )
        return array.astype(numpy_dtype(to), copy=False)

    def narrow(self, array: Array, dtype: str) -> Array:
        if dtype == "bf16":
            rounded: Array = _to_bf16()(array.astype("f4", copy=False))
            return rounded
        if array.dtype.kind == "f" and dtype_of(dtype).kind in ("int", "uint"):
            low, high = whole_range(dtype)  # conversions on the device end at i32's and i64's
            array = self.xp.clip(self.xp.where(array == array, array, 0), low, high)
        return array.astype(numpy_dtype(dtype), copy=False)

    def write(self, array: Array, dtype: str, out: Array) -> None:
        whole = self.xp.broadcast_to(array, out.shape)
        if dtype == "bf16":
            _to_bf16()(whole.astype("f4", copy=False), out)
        else:
            out[...] = whole

    def function(self, name: str) -> Callable[..., Array]:
        if name == "erf":
            kernel: Callable[..., Array] = _kernel("T x", "T y", "y = erf(x)")
            return kernel
        meaning: Callable[..., Array] = scalar_function(name).meaning
        return meaning

    def writes(self, left: str, right: str, out: str) -> bool:
        return cublas.multiplies(left, right, out)

    def multiply(
        self, left: Array, right: Array, dtypes: tuple[str, str, str], out: Array | None
    ) -> Array:
        if out is None:
            shape = (len(left), left.shape[1], right.shape[2])
            out = self.xp.empty(shape, numpy_dtype(dtypes[2]))
        if not cublas.multiplies(*dtypes):
            common = promote(dtypes)
            left, right = self.wide(left, dtypes[0], common), self.wide(right, dtypes[1], common)
            if common != dtypes[2]:  # rounded once, at the end
                wide = self.multiply(left, right, (common, common, common), None)
                out[...] = self.narrow(wide, dtypes[2])
                return out
            dtypes = (common, common, common)
        if not cublas.multiplies(*dtypes) or not cublas.multiply(left, right, dtypes, out):
            result = numpy_dtype(dtypes[2])
            self.xp.matmul(left.astype(result), right.astype(result), out=out)
        return out


@cache
def _kernel(inputs: str, outputs: str, body: str) -> Any:
    return cupy().ElementwiseKernel(inputs, outputs, body)


def _to_bf16() -> Any:
    """Rounds to nearest, ties to even."""
    body = (
        "unsigned b = __float_as_uint(x); "
        "y = x != x ? 0x7fc0 : (b + 0x7fff + ((b >> 16) & 1)) >> 16"
    )
    return _kernel("float32 x", "uint16 y", body)


class _Run:
    """One evaluation on one set of operands, with memory that no other array shares."""

    def __init__(self, evaluation: Evaluation, pool: Any) -> None:
        self._evaluation = evaluation
        self._pool = pool

    def run(self, stream: int) -> None:
        cuda = cupy().cuda
        reduce_by("cub")
        try:
            with cuda.using_allocator(self._pool.malloc), cuda.ExternalStream(stream):
                self._evaluation()
        finally:
            reduce_by()


class CupyLaunch(CudaLaunch):
    """A program and its operand sets; a call returns seconds of device time.

    A first run that takes long may hold the compilation of what CuPy uses for the first time, with
    the device idle between two events: it is then timed by a second one.
    After the first run, evaluations are replayed from graphs, one for each operand set, so that
    the host's time for calling the library does not count. What cannot be captured is called.
    """

    def __init__(
        self, program: Program, inputs: Mapping[str, Array], outputs: Mapping[str, Array]
    ) -> None:
        library, pool = CupyLibrary(), cupy().cuda.MemoryPool()
        names = [*inputs, *outputs]
        evaluations = [
            Evaluation(
                program,
                library,
                {name: arrays[names.index(name)] for name in inputs},
                {name: arrays[names.index(name)] for name in outputs},
            )
            for arrays in operand_sets([*inputs.values(), *outputs.values()])
        ]
        super().__init__(tuple((_Run(one, pool),) for one in evaluations), evaluations)
        version = ".".join(cupy().__version__.split(".")[:2])
        self.name = evaluations[0].called(f"CuPy {version}", "cuBLAS")
        self._warm = False
        self._graphs: list[Any] | None = None  # None: nothing was captured

    def __call__(self, times: int = 1) -> float:
        """As a kernel's launch; what goes wrong is raised, because it does not spoil the device."""
        if self._warm:
            if self._graphs is None:
                self._graphs = self._all_captured()
            return self._timed(times)
        self._warm = True
        first = self._timed(times)
        return first if first < _COMPILES * times else self._timed(times)

    @property
    def captured(self) -> bool:
        """Whether runs are replayed from graphs."""
        return bool(self._graphs)

    def _all_captured(self) -> list[Any]:
        """A graph of one run on each operand set; none where the library cannot be captured."""
        try:
            return [self._captured(range(number, number + 1)) for number in range(len(self._sets))]
        except (RuntimeError, MemoryError):  # of CUDA's, cuBLAS's, and what CuPy does not capture
            with contextlib.suppress(RuntimeError):
                self._stream.end_capture()
            return []

    def _short(self) -> bool:
        return self.captured and super()._short()

    def _run(self, number: int) -> None:
        if self._graphs:
            self._graphs[number % len(self._sets)].launch(self._stream)
        else:
            self._queue(number)
