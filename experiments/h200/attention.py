"""Attention forward in bf16 against cuDNN and FlashAttention-2, through torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from common import (
    Clock,
    Results,
    Tensors,
    compare,
    going_on,
    options,
    pending,
    searched,
)
from contest import Run
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


def cases() -> list[tuple[str, bool, dict[str, Any]]]:
    """(name, causal, arguments)."""
    found = []
    for b, h, s, d in SHAPES:
        for causal in (False, True):
            name = f"attention {b}x{h}x{s}x{d}{' causal' if causal else ''}"
            sizes = {"b": b, "heads": h, "sq": s, "d": d, "causal": causal, "dtype": "bf16"}
            found.append((name, causal, sizes))
    return found


def main() -> None:
    settings = options(__doc__ or "")
    settings.trials = min(settings.trials, 200)
    clock, results = Clock(settings.seconds), Results.at(settings.out)
    peers = ("cuDNN", "FlashAttention-2")
    for name, causal, arguments in pending(cases(), settings, results, clock, peers, 40.0):
        with going_on(), torch.no_grad():
            workload, schedule, facts = searched("attention", arguments, settings, clock)
            sides = {
                "cuDNN": peer(SDPBackend.CUDNN_ATTENTION, causal),
                "FlashAttention-2": peer(SDPBackend.FLASH_ATTENTION, causal),
            }
            compare(name, workload, schedule, sides, reference(causal), results, facts)


if __name__ == "__main__":
    main()
