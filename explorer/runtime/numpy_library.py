"""numpy as the array library of the CPU: what a program takes without a compiler.

Products of floats run in numpy's BLAS, narrow floats as f32; numpy has no fast product of integers.
Runs in worker processes whose BLAS has as many threads as the kernels.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

import numpy as np

from explorer.runtime.base import Array
from explorer.runtime.eager import Evaluation, Inexpressible
from explorer.runtime.products import Product
from ir.dtypes import from_float, is_float, numpy_dtype, within
from ir.program import Program
from ir.scalar import scalar_function

_INTEGER_FLOPS = 2e9  # of a second or so: numpy's products of integers are plain loops
_ROOM = 0.25  # of the machine's memory for intermediates


class NumpyLibrary:
    """See `explorer.runtime.eager.ArrayLibrary`."""

    xp = np

    def __init__(self) -> None:
        self.room = _ROOM * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def refuse(self, program: Program, product: Product) -> None:
        kinds = [program.nodes[n].dtype for n in (product.left, product.right)]
        if not self.fast(*kinds) and program.flops > _INTEGER_FLOPS:
            raise Inexpressible("numpy multiplies integers in plain loops: it would take too long")

    def fast(self, left: str, right: str) -> bool:
        return is_float(left) or is_float(right)

    def wide(self, array: Array, dtype: str, to: str) -> Array:
        if dtype == "bf16":
            array = (array.astype(np.uint32) << 16).view(np.float32)
        return array.astype(numpy_dtype(to), copy=False)

    def narrow(self, array: Array, dtype: str) -> Array:
        return from_float(array if is_float(dtype) else within(array, dtype), dtype)

    def write(self, array: Array, dtype: str, out: Array) -> None:
        out[...] = self.narrow(array, dtype) if dtype == "bf16" else array

    def function(self, name: str) -> Callable[..., Array]:
        meaning: Callable[..., Array] = scalar_function(name).meaning
        return meaning

    def writes(self, left: str, right: str, out: str) -> bool:
        kinds = {numpy_dtype(name) for name in (left, right, out)}
        return kinds <= {np.dtype(np.float32)} or kinds <= {np.dtype(np.float64)}

    def multiply(
        self, left: Array, right: Array, dtypes: tuple[str, str, str], out: Array | None
    ) -> Array:
        result = numpy_dtype(dtypes[2]).name
        name = {"float64": "f64", "int32": "i32", "int64": "i64"}.get(result, "f32")
        a, b = self.wide(left, dtypes[0], name), self.wide(right, dtypes[1], name)
        if len(a) == 1:
            whole = np.matmul(a[0], b[0], out=None if out is None else out[0])
            return np.asarray(whole)[None]
        return np.asarray(np.matmul(a, b, out=out))


class NumpyLaunch:
    """A program and its arrays; a call returns seconds. `name` is what people know it by."""

    def __init__(
        self, program: Program, inputs: Mapping[str, Array], outputs: Mapping[str, Array]
    ) -> None:
        self._evaluation = Evaluation(program, NumpyLibrary(), inputs, outputs)
        version = ".".join(np.__version__.split(".")[:2])
        self.name = self._evaluation.called(f"numpy {version}", _blas())

    def __call__(self, times: int = 1) -> float:
        evaluate = self._evaluation
        with np.errstate(all="ignore"):
            start = time.perf_counter_ns()
            for _ in range(times):
                evaluate()
            return (time.perf_counter_ns() - start) * 1e-9


def _blas() -> str:
    """The BLAS that numpy was built with, as its makers write it."""
    facts = np.show_config(mode="dicts") or {}
    name = str(facts.get("Build Dependencies", {}).get("blas", {}).get("name", "BLAS")).lower()
    known = {"openblas": "OpenBLAS", "mkl": "MKL", "accelerate": "Accelerate", "blis": "BLIS"}
    return next((shown for part, shown in known.items() if part in name), "BLAS")
