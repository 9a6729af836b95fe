"""Products with epilogues at Llama-3-8B shapes against torch.compile(mode="max-autotune")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from common import Clock, Results, Run, Tensors, chosen, compare, options, searched

ROWS = (4096, 2048, 512)


def activation(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor, rest: torch.Tensor) -> Any:
    return F.gelu(torch.addmm(bias, a, b.t())) + rest


def gated(x: torch.Tensor, gate: torch.Tensor, value: torch.Tensor) -> Any:
    return F.silu(x @ gate.t()) * (x @ value.t())


def cases() -> list[tuple[str, str, dict[str, Any]]]:
    found = []
    for m in ROWS:
        for n, k in ((14336, 4096), (4096, 14336)):
            sizes = {"m": m, "n": n, "k": k, "dtype": "bf16", "tb": True}
            found.append((f"bias gelu residual {m}x{n}x{k}", "matmul_bias_act", sizes))
        sizes = {"m": m, "n": 14336, "k": 4096, "dtype": "bf16", "tb": True}
        found.append((f"gated {m}x14336x4096", "gated_mlp", sizes))
    return found


NAMES = {"matmul_bias_act": ("A", "B", "bias", "residual"), "gated_mlp": ("X", "W1", "W3")}
FUNCTIONS: dict[str, Callable[..., Any]] = {"matmul_bias_act": activation, "gated_mlp": gated}


def main() -> None:
    settings = options(__doc__ or "")
    clock, results = Clock(settings.seconds), Results.at(settings.out)
    for name, operator, arguments in cases():
        if not chosen(name, settings.cases) or clock.left < 60:
            continue
        if results.has(name, "torch eager"):
            continue
        function, inputs = FUNCTIONS[operator], NAMES[operator]
        torch._dynamo.reset()
        # graphs are captured by the comparison, so the mode without graphs is the same kernels
        compiled = torch.compile(function, mode="max-autotune-no-cudagraphs", dynamic=False)

        def fast(tensors: Tensors) -> Run:
            given = [tensors[i] for i in inputs]  # noqa: B023 (used within this turn)
            return lambda: compiled(*given)  # noqa: B023

        def eager(tensors: Tensors) -> Run:
            given = [tensors[i] for i in inputs]  # noqa: B023
            return lambda: function(*given)  # noqa: B023

        def reference(tensors: Tensors) -> torch.Tensor:
            result: torch.Tensor = function(*(tensors[i].float() for i in inputs))  # noqa: B023
            return result

        workload, schedule, facts = searched(operator, arguments, settings, clock)
        peers = {"torch.compile max-autotune": fast, "torch eager": eager}
        compare(name, workload, schedule, peers, reference, results, facts)


if __name__ == "__main__":
    main()
