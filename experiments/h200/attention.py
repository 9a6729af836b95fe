"""Attention forward in bf16 against cuDNN and FlashAttention-2, through torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from common import Clock, Results, Run, Tensors, chosen, compare, options, searched
from torch.nn.attention import SDPBackend, sdpa_kernel

SHAPES = ((4, 16, 4096, 128), (16, 16, 1024, 128), (4, 32, 4096, 64), (1, 16, 16384, 128))


def peer(backend: SDPBackend, causal: bool) -> Callable[[Tensors], Run]:
    def make(tensors: Tensors) -> Run:
        q, k, v = tensors["Q"], tensors["K"], tensors["V"]

        def run() -> None:
            with sdpa_kernel(backend):
                F.scaled_dot_product_attention(q, k, v, is_causal=causal)

        run()
        return run

    return make


def reference(causal: bool) -> Callable[[Tensors], torch.Tensor]:
    def make(tensors: Tensors) -> torch.Tensor:
        q, k, v = (tensors[name].float() for name in "QKV")
        parts = []
        for batch in range(q.shape[0]):
            heads = [
                F.scaled_dot_product_attention(q[batch, h], k[batch, h], v[batch, h],
                                               is_causal=causal)
                for h in range(q.shape[1])
            ]  # fmt: skip
            parts.append(torch.stack(heads))
        return torch.stack(parts)

    return make


def main() -> None:
    settings = options(__doc__ or "")
    settings.trials = min(settings.trials, 200)
    clock, results = Clock(settings.seconds), Results.at(settings.out)
    for b, h, s, d in SHAPES:
        for causal in (False, True):
            name = f"attention {b}x{h}x{s}x{d}{' causal' if causal else ''}"
            if not chosen(name, settings.cases) or clock.left < 40:
                continue
            arguments: dict[str, Any] = {"b": b, "heads": h, "sq": s, "d": d, "causal": causal,
                                         "dtype": "bf16"}  # fmt: skip
            workload, schedule, facts = searched("attention", arguments, settings, clock)
            peers = {
                "cuDNN": peer(SDPBackend.CUDNN_ATTENTION, causal),
                "FlashAttention-2": peer(SDPBackend.FLASH_ATTENTION, causal),
            }
            with torch.no_grad():
                compare(name, workload, schedule, peers, reference(causal), results, facts)


if __name__ == "__main__":
    main()
