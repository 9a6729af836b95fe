"""Where the runtimes of the targets are; imports none of them."""

from __future__ import annotations

from collections.abc import Iterable

SHARED = ("cpu",)  # one server forks all workers of these: few processors, one set to boot

RUNTIMES = {
    "cpu": "explorer.runtime.cpu:CpuRuntime",
    "cuda": "explorer.runtime.cuda:CudaRuntime",
}


def target_of(arrays: Iterable[object]) -> str:
    """Where kernels of these arrays run."""
    apart = any(hasattr(array, "__cuda_array_interface__") for array in arrays)
    return "cuda" if apart else "cpu"
