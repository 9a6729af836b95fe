"""Kernels of others that may lie in a folder: for what torch has nothing as strong.

The folder holds libraries and modules of vLLM's wheel, unpacked; nothing of them is here. Where
one is missing, or does not load, its plan is left out.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from peers import Arguments, Plan, Tensors

_FOUR_BITS_LESS_8 = 1125899907892224  # vLLM's number of that type
_PAGE = 64


def machete(x: Tensors, a: Arguments) -> Iterator[Plan]:
    """Weights of four bits, laid out beforehand."""
    if a.zero:
        return
    codes = torch.stack([x["W"] & 15, x["W"] >> 4], -1).reshape(a.n, a.k).T.int()
    shifts = torch.arange(8, device=codes.device, dtype=torch.int32) * 4
    packed = (codes.reshape(a.k // 8, 8, a.n) << shifts[:, None]).sum(1, dtype=torch.int32)
    ops, kind = torch.ops._C, x["A"].dtype
    weights = ops.machete_prepack_B(packed.t().contiguous().t(), kind, _FOUR_BITS_LESS_8, kind)
    scale = x["scale"].T.contiguous()

    def function(t: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> Any:
        return ops.machete_mm(
            t, w, _FOUR_BITS_LESS_8, kind, scale, None, a.group, None, None, None
        )  # fmt: skip

    yield Plan("Machete", function, (x["A"].reshape(a.m, a.k), weights, scale))


def flash_mla(x: Tensors, a: Arguments) -> Iterator[Plan]:
    """The cache as pages that follow one another."""
    from flash_mla_interface import flash_mla_with_kvcache, get_mla_metadata

    if a.sk % _PAGE or a.sq > 1:
        return
    q = torch.cat([x["Q"], x["Q_rope"]], -1)
    pages = x["cache"].view(-1, _PAGE, 1, x["cache"].shape[-1])
    table = torch.arange(len(pages), device=q.device, dtype=torch.int32).view(a.b, -1)
    scale, meta = (a.d + a.rope) ** -0.5, get_mla_metadata()[0]

    def function(*given: torch.Tensor) -> Any:
        q, pages, table, length = given
        return flash_mla_with_kvcache(q, pages, table, length, a.latent, meta, None, scale, False)[
            0
        ]

    yield Plan("FlashMLA", function, (q, pages, table, x["length"]))


def deep_gemm(x: Tensors, a: Arguments) -> Iterator[Plan]:
    import deep_gemm as library

    if a.block != 128 or a.out != "bf16":
        return
    p, q = x["A"].reshape(a.m, a.k), x["B"].reshape(a.n, a.k)
    scale = library.get_mn_major_tma_aligned_tensor(x["scale_a"])
    out = torch.empty(a.m, a.n, device=p.device, dtype=torch.bfloat16)

    def function(p: torch.Tensor, sp: torch.Tensor, q: torch.Tensor, sq: torch.Tensor,
                 out: torch.Tensor) -> torch.Tensor:  # fmt: skip
        library.fp8_gemm_nt((p, sp), (q, sq), out)
        return out

    yield Plan("DeepGEMM", function, (p, scale, q, x["scale_b"], out))


_MAKERS: dict[str, Callable[[Tensors, Arguments], Iterator[Plan]]] = {
    "w4a16_matmul": machete, "mla_decode": flash_mla, "block_scaled_matmul": deep_gemm,
}  # fmt: skip
_LIBRARIES = ("_C_stable_libtorch", "_flashmla_C")


def more_plans(
    operator: str, tensors: Tensors, arguments: Mapping[str, Any], folder: str
) -> list[Plan]:
    """What the folder has for an operator; arguments with their defaults."""
    from peers.plan import filled

    if operator not in _MAKERS:
        return []
    if folder not in sys.path:
        sys.path.insert(0, folder)
        for name in _LIBRARIES:
            with contextlib.suppress(OSError):
                torch.ops.load_library(str(Path(folder) / f"{name}.abi3.so"))
    try:
        return list(_MAKERS[operator](tensors, SimpleNamespace(**filled(operator, arguments))))
    except (ImportError, AttributeError, RuntimeError) as problem:
        print(f"{operator}: no pack: {problem}", file=sys.stderr)
        return []
