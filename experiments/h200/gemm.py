"""Matrix products against cuBLAS (torch): 20 shapes in bf16, and other types at two sizes."""

from __future__ import annotations

from typing import Any

import torch
from common import Clock, Results, Run, Tensors, chosen, compare, options, searched

SHAPES = (
    (4096, 4096, 4096), (8192, 8192, 8192), (16384, 16384, 16384), (8192, 8192, 1024),
    (2048, 2048, 2048), (1024, 1024, 1024), (512, 512, 512), (256, 8192, 8192),
    (128, 8192, 8192), (64, 8192, 8192), (16, 8192, 8192), (1, 8192, 8192),
    (4096, 14336, 4096), (4096, 4096, 14336), (8192, 28672, 8192), (8192, 8192, 28672),
    (8192, 1024, 8192), (32768, 2048, 2048), (4096, 11008, 4096), (256, 256, 16384),
)  # fmt: skip


def cases() -> list[tuple[str, str, dict[str, Any]]]:
    """(name, operator, arguments)."""
    found = [
        (f"bf16 {m}x{n}x{k}", "matmul", {"m": m, "n": n, "k": k, "dtype": "bf16", "tb": True})
        for m, n, k in SHAPES
    ]
    for size in (4096, 8192):
        sizes = {"m": size, "n": size, "k": size}
        for dtype in ("f16", "tf32"):
            found.append((f"{dtype} {size}^3", "matmul", {**sizes, "dtype": dtype, "tb": True}))
        found.append((f"fp8 {size}^3", "scaled_matmul", sizes))
    return found


def plain(tensors: Tensors) -> Run:
    a, b, c = tensors["A"], tensors["B"].t(), tensors["C"]
    return lambda: torch.mm(a, b, out=c)


def scaled(fast: bool) -> Any:
    def make(tensors: Tensors) -> Run:
        a, b, c = tensors["A"], tensors["B"].t(), tensors["C"]
        left, right = tensors["scale_a"], tensors["scale_b"]
        return lambda: torch._scaled_mm(
            a, b, left, right, out_dtype=torch.bfloat16, use_fast_accum=fast, out=c
        )

    return make


def reference(tensors: Tensors) -> torch.Tensor:
    product = tensors["A"].float() @ tensors["B"].float().t()
    if "scale_a" in tensors:
        product *= tensors["scale_a"] * tensors["scale_b"]
    return product


def main() -> None:
    settings = options(__doc__ or "")
    clock, results = Clock(settings.seconds), Results.at(settings.out)
    for name, operator, arguments in cases():
        if not chosen(name, settings.cases) or clock.left < 30:
            continue
        if results.has(name, "cuBLAS") or results.has(name, "cuBLAS fast"):
            continue
        torch.backends.cuda.matmul.allow_tf32 = arguments.get("dtype") == "tf32"
        workload, schedule, facts = searched(operator, arguments, settings, clock)
        peers = {"cuBLAS": plain}
        if operator == "scaled_matmul":
            peers = {"cuBLAS fast": scaled(True), "cuBLAS precise": scaled(False)}
        compare(name, workload, schedule, peers, reference, results, facts)


if __name__ == "__main__":
    main()
