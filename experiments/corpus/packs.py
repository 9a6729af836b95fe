"""Kernels of others that may lie in a folder: for what torch has nothing as strong.

The folder holds libraries and modules, unpacked: of vLLM's wheel, FlashAttention-3, mamba-ssm and
flash-linear-attention; nothing of them is here. Where
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


def _fa3(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu: torch.Tensor, cuk: torch.Tensor,
         causal: bool, sq: int, sk: int) -> Any:  # fmt: skip
    """FlashAttention-3 on packed sequences: tokens, heads, coordinates."""
    given = (None, None, None, None, cu, cuk, None, None, None, sq, sk, *[None] * 6, *[None] * 3)
    rest = (q.shape[-1] ** -0.5, causal, -1, -1, 0.0, True, None, 1, None, 0, None, 1, 0, None)
    return torch.ops._vllm_fa3_C.fwd(q, k, v, *given, *rest)


def _packed(t: torch.Tensor) -> torch.Tensor:
    """(b, heads..., tokens, d) as (b * tokens, heads, d)."""
    return t.flatten(1, -3).transpose(1, 2).reshape(-1, t.flatten(1, -3).shape[1], t.shape[-1])


def fa3(x: Tensors, a: Arguments) -> Iterator[Plan]:
    q, k, v = (_packed(x[name]) for name in "QKV")
    b, sq, sk = x["Q"].shape[0], x["Q"].shape[-2], x["K"].shape[-2]
    if getattr(a, "window", 0) or (a.causal and sq != sk):
        return
    ends, endk = (
        torch.arange(0, (b + 1) * n, n, device=q.device, dtype=torch.int32) for n in (sq, sk)
    )

    def function(*given: torch.Tensor) -> Any:
        found = _fa3(*given, a.causal, sq, sk)
        out = found[0].view(b, sq, -1, q.shape[-1]).transpose(1, 2)
        lse = found[1].view(-1, b, sq).transpose(0, 1)
        return {"O": out, "L": lse} if lse.numel() == out[..., 0].numel() else out

    yield Plan("FlashAttention-3", function, (q, k, v, ends, endk), checked=False)


def fa3_decode(x: Tensors, a: Arguments) -> Iterator[Plan]:
    """Split as its own heuristic has it; keys laid out as it wants them: tokens, heads."""
    q = x["Q"].flatten(1, 2)[:, None].contiguous()  # b, 1, heads, d
    k, v = (x[name].transpose(1, 2).contiguous() for name in "KV")
    b, used, d = q.shape[0], x["length"].int(), q.shape[-1]
    library, heads = torch.ops._vllm_fa3_C, (q.shape[2], k.shape[2])
    plan = library.get_scheduler_metadata(
        b, 1, k.shape[1], *heads, d, d, q.dtype, used, *[None] * 6, 0, True, -1, -1, False, 0,
        None, 0,
    )  # fmt: skip

    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, used: torch.Tensor,
                 plan: torch.Tensor) -> Any:  # fmt: skip
        given = (*[None] * 8, used, None, *[None] * 10)
        rest = (d**-0.5, True, -1, -1, 0.0, True, plan, 0, None, 0, None, 1, 0, None)
        return library.fwd(q, k, v, *given, *rest)[0]

    yield Plan("FlashAttention-3, split", function, (q, k, v, used, plan))


def fa3_mla(x: Tensors, a: Arguments) -> Iterator[Plan]:
    """Pages that follow one another; the compressed part as its queries of values."""
    if a.sk % _PAGE or a.sq > 1 or a.latent != 512:
        return
    q, qv = x["Q_rope"].contiguous(), x["Q"].contiguous()
    pages = x["cache"].view(-1, _PAGE, 1, x["cache"].shape[-1])
    table = torch.arange(len(pages), device=q.device, dtype=torch.int32).view(a.b, -1)

    def function(*given: torch.Tensor) -> Any:
        q, qv, pages, table, used = given
        k, v = pages[..., a.latent :], pages[..., : a.latent]
        head = (None, None, qv, None, *[None] * 4, used, None, None, table, *[None] * 8)
        rest = ((a.d + a.rope) ** -0.5, True, -1, -1, 0.0, True, None, 0, None, 0, None, 1, 0)
        return torch.ops._vllm_fa3_C.fwd(q, k, v, *head, *rest, None)[0]

    yield Plan("FlashAttention-3, qv", function, (q, qv, pages, table, x["length"].int()))


def mla(x: Tensors, a: Arguments) -> Iterator[Plan]:
    yield from flash_mla(x, a)
    yield from fa3_mla(x, a)


def _chunked(x: Tensors, a: Arguments) -> tuple[torch.Tensor, ...]:
    """What both kernels of chunks take: x as tokens, steps, and decays summed up."""
    shape = (a.b, a.heads, -1, a.chunk)
    return x["x"].reshape(a.b, a.t, -1, a.p), x["dt"].reshape(shape), x["a"].reshape(shape)


def chunk_state(x: Tensors, a: Arguments) -> Iterator[Plan]:
    from mamba_ssm.ops.triton.ssd_chunk_state import _chunk_state_fwd as kernel

    def function(*given: torch.Tensor) -> Any:
        return kernel(*given, states_in_fp32=True)

    left = x["B"].reshape(a.b, a.t, a.groups, a.n)
    yield Plan("mamba-ssm", function, (left, *_chunked(x, a)))


def chunk_scan(x: Tensors, a: Arguments) -> Iterator[Plan]:
    from mamba_ssm.ops.triton.ssd_chunk_scan import _chunk_scan_fwd as kernel

    def function(*given: torch.Tensor) -> Any:
        return kernel(*given[:6], D=given[6])[0]

    right = x["C"].reshape(a.b, a.t, a.groups, a.n)
    states = x["S"].reshape(a.b, a.t // a.chunk, -1, a.p, a.n)
    yield Plan("mamba-ssm", function, (x["CB"], *_chunked(x, a), right, states, x["D"].reshape(-1)))


def mamba2(x: Tensors, a: Arguments) -> Iterator[Plan]:
    """mamba-ssm's five launches."""
    from mamba_ssm.ops.triton.ssd_combined import _mamba_chunk_scan_combined_fwd as forward

    b, t = a.b, a.t
    values, steps = x["x"].reshape(b, t, -1, a.p), x["dt"].reshape(b, t, -1)
    left, right = (x[name].reshape(b, t, a.groups, a.n) for name in "BC")

    def function(*given: torch.Tensor) -> Any:
        values, steps, rates, left, right, rest = given
        return forward(values, steps, rates, left, right, 256, D=rest)[0]

    tensors = (values, steps, x["A"].reshape(-1), left, right, x["D"].reshape(-1))
    yield Plan("mamba-ssm, five launches", function, tensors, checked=False)


def retention(x: Tensors, a: Arguments) -> Iterator[Plan]:
    """flash-linear-attention's, whose decay is its own."""
    from fla.ops.retention import chunk_retention

    q, k, v = (x[n].reshape(a.b, a.t, a.heads, -1) for n in "QKV")
    yield Plan(
        "flash-linear-attention", lambda *t: chunk_retention(*t)[0], (q, k, v), checked=False
    )


_MAKERS: dict[str, Callable[[Tensors, Arguments], Iterator[Plan]]] = {
    "w4a16_matmul": machete, "mla_decode": mla, "block_scaled_matmul": deep_gemm,
    "attention": fa3, "attention_lse": fa3, "decode_attention": fa3_decode,
    "mamba2_chunk_state": chunk_state, "mamba2_chunk_scan": chunk_scan, "mamba2": mamba2,
    "mamba2_chunked": mamba2, "retention": retention, "retention_chunked": retention,
    "quadratic_retention": retention,
}  # fmt: skip
_LIBRARIES = ("_C_stable_libtorch", "_flashmla_C", "_vllm_fa3_C")


def more_plans(
    operator: str, tensors: Tensors, arguments: Mapping[str, Any], folder: str
) -> list[Plan]:
    """What the folder has for an operator; arguments with their defaults."""
    from peers.plan import filled

    maker = _MAKERS.get(operator.rpartition(":")[2])
    if maker is None:
        return []
    if folder not in sys.path:
        sys.path.insert(0, folder)
        for name in _LIBRARIES:
            with contextlib.suppress(OSError):
                torch.ops.load_library(str(Path(folder) / f"{name}.abi3.so"))
    try:
        return list(maker(tensors, SimpleNamespace(**filled(operator, arguments))))
    except (ImportError, AttributeError, RuntimeError, TypeError) as problem:
        print(f"{operator}: no pack: {problem}", file=sys.stderr)
        return []
