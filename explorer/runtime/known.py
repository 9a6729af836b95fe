"""Where the runtimes of the targets are; imports none of them."""

from __future__ import annotations

SHARED = ("cpu",)  # one server forks all workers of these: few processors, one set to boot

RUNTIMES = {
    "cpu": "explorer.runtime.cpu:CpuRuntime",
    "cuda": "explorer.runtime.cuda:CudaRuntime",
}
