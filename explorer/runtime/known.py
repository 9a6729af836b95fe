"""Where the runtimes of the targets are; imports none of them."""

from __future__ import annotations

RUNTIMES = {
    "cpu": "explorer.runtime.cpu:CpuRuntime",
    "cuda": "explorer.runtime.cuda:CudaRuntime",
}
