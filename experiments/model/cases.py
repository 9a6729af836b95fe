"""Workloads from which the shipped CPU model learns: small enough to measure in bulk, and of every
kind that the built-in operators make (products, fused products, attention, rows, columns, pairs).
"""

from __future__ import annotations

Case = tuple[str, dict[str, object]]


def _products() -> list[Case]:
    shapes = (
        (256, 256, 256), (512, 512, 512), (384, 768, 192), (1000, 200, 300), (64, 1024, 1024),
        (16, 2048, 1024), (1, 2048, 2048), (2048, 64, 512), (128, 128, 4096), (768, 768, 768),
    )  # fmt: skip
    found: list[Case] = [("matmul", {"m": m, "n": n, "k": k}) for m, n, k in shapes]
    narrow = ((512, 512, 512), (1024, 512, 256), (128, 1024, 1024))
    for dtype in ("bf16", "i8"):
        found += [("matmul", {"m": m, "n": n, "k": k, "dtype": dtype}) for m, n, k in narrow]
    found.append(("matmul", {"m": 256, "n": 512, "k": 512, "tb": True}))
    found.append(("matmul", {"m": 64, "n": 64, "k": 256, "batch": 16}))
    few = ((48, 1536, 768), (104, 896, 576), (80, 1024, 1024), (192, 480, 960), (32, 1024, 512))
    found += [("matmul", {"m": m, "n": n, "k": k}) for m, n, k in few]
    return found


def _fused() -> list[Case]:
    return [
        ("matmul_bias_act", {"m": 512, "n": 512, "k": 512}),
        ("matmul_bias_act", {"m": 128, "n": 1024, "k": 768}),
        ("matmul_bias_act", {"m": 512, "n": 512, "k": 512, "dtype": "bf16"}),
        ("gated_mlp", {"m": 256, "n": 512, "k": 512}),
        ("gated_mlp", {"m": 64, "n": 1408, "k": 512}),
        ("gated_mlp", {"m": 256, "n": 1024, "k": 512, "dtype": "bf16"}),
        ("gated_mlp", {"m": 104, "n": 768, "k": 384}),
        ("gated_mlp", {"m": 80, "n": 576, "k": 512}),
        ("matmul_bias_act", {"m": 112, "n": 896, "k": 512}),
        ("matmul_bias_act", {"m": 192, "n": 768, "k": 320}),
        ("conv2d", {"n": 1, "h": 28, "w": 28, "c": 64, "f": 64, "padding": 1}),
        ("conv2d", {"n": 2, "h": 14, "w": 14, "c": 128, "f": 128, "padding": 1}),
        ("conv2d", {"n": 1, "h": 56, "w": 56, "c": 32, "f": 64, "r": 1, "s": 1}),
    ]


def _streamed() -> list[Case]:
    return [
        ("attention", {"b": 1, "heads": 4, "sq": 256, "d": 64}),
        ("attention", {"b": 1, "heads": 2, "sq": 512, "d": 64, "causal": True}),
        ("attention", {"b": 1, "heads": 8, "sq": 256, "d": 64, "dtype": "bf16"}),
        ("attention", {"b": 1, "heads": 4, "sq": 512, "d": 128, "dtype": "bf16", "causal": True}),
        ("gaussian", {"n": 2048, "d": 18, "expand": True}),
        ("gaussian", {"n": 1024, "d": 8}),
    ]


def _rows() -> list[Case]:
    return [
        ("softmax", {"m": 1024, "n": 1024}),
        ("softmax", {"m": 4096, "n": 200}),
        ("softmax", {"m": 64, "n": 16384}),
        ("layernorm", {"m": 1024, "n": 1024}),
        ("layernorm", {"m": 256, "n": 5120}),
        ("rmsnorm", {"m": 1024, "n": 1024}),
        ("rmsnorm", {"m": 4096, "n": 512}),
        ("row_sum", {"m": 2048, "n": 1024}),
        ("row_max", {"m": 512, "n": 4096}),
        ("column_sum", {"m": 2048, "n": 1024}),
        ("column_max", {"m": 4096, "n": 512}),
    ]


def cases() -> list[Case]:
    """All, kinds interleaved, so that a collection cut short has some of each."""
    kinds = [_products(), _fused(), _streamed(), _rows()]
    longest = max(map(len, kinds))
    return [kind[i] for i in range(longest) for kind in kinds if i < len(kind)]
