"""Small dense algebra in batches, and products with functions of pairs of points."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch

from .plan import Arguments, Plan, Tensors, peer

Tensor = torch.Tensor
_ROWS = (1024, 8192, 1 << 30)  # of points at a time


@peer("triangular_solve")
def solve(x: Tensors, a: Arguments) -> Plan:
    def function(left: Tensor, right: Tensor) -> Tensor:
        return torch.linalg.solve_triangular(left, right, upper=a.upper)

    return Plan("torch solve_triangular", function, (x["L"], x["B"]))


@peer("triangular_inverse")
def inverse(x: Tensors, a: Arguments) -> Plan:
    def function(left: Tensor, one: Tensor) -> Tensor:
        return torch.linalg.solve_triangular(left, one, upper=False, unitriangular=True)

    one = torch.eye(a.n, device=x["L"].device, dtype=x["L"].dtype).expand_as(x["L"]).contiguous()
    return Plan("torch solve_triangular", function, (x["L"], one))


@peer("cholesky")
def cholesky(x: Tensors, a: Arguments) -> Plan:
    def function(t: Tensor) -> Tensor:
        found: Tensor = torch.linalg.cholesky_ex(t, check_errors=False)[0]
        return found

    return Plan("torch cholesky_ex", function, (x["A"],), captured=False)


@peer("power_iteration")
def power(x: Tensors, a: Arguments) -> Plan:
    def function(t: Tensor, v: Tensor) -> dict[str, Tensor]:
        for _ in range(a.steps):
            image = t @ v
            v = image / torch.linalg.vector_norm(image)
        return {"v": v, "value": v @ (t @ v)}

    return Plan("torch matmul, norms", function, (x["A"], x["first"]))


# --- pairs of points ------------------------------------------------------------------------------


def _squares(p: Tensor, q: Tensor, exact: bool) -> Tensor:
    if exact:
        return torch.cdist(p, q, compute_mode="donot_use_mm_for_euclid_dist").square()
    found = torch.addmm((q * q).sum(1), p, q.mT, alpha=-2)
    return (found + (p * p).sum(1, keepdim=True)).clamp(min=0)


def _pairs(x: Tensors, kernel: Callable[[Tensor], Tensor], exact: bool) -> Iterator[Plan]:
    """Rows of the matrix in chunks, each made, used and dropped."""
    p, q, v = (x[name].float() for name in ("x", "y", "v"))

    def chunked(rows: int) -> Callable[..., Tensor]:
        def function(p: Tensor, q: Tensor, v: Tensor) -> Tensor:
            return torch.cat([kernel(_squares(part, q, exact)) @ v for part in p.split(rows)])

        return function

    for rows in _ROWS:
        whole = rows >= len(p)
        if not whole or len(p) * len(q) * 4 < 4 << 30:
            name = "torch, the whole matrix" if whole else f"torch, {rows:,} rows at a time"
            yield Plan(name, chunked(min(rows, len(p))), (p, q, v), fused=rows == _ROWS[1])
        if whole:
            return


def _scale(a: Arguments) -> float:
    return a.s or math.sqrt(a.d)


@peer("gaussian")
def gaussian(x: Tensors, a: Arguments) -> Iterator[Plan]:
    factor = -0.5 / _scale(a) ** 2
    return _pairs(x, lambda square: torch.exp(square * factor), a.d < 8)


@peer("laplacian")
def laplacian(x: Tensors, a: Arguments) -> Iterator[Plan]:
    return _pairs(x, lambda square: torch.exp(square.sqrt() / -_scale(a)), True)


@peer("matern")
def matern(x: Tensors, a: Arguments) -> Iterator[Plan]:
    def kernel(square: Tensor) -> Tensor:
        t = square.sqrt() * (math.sqrt(a.halves) / _scale(a))
        factor = 1 + t + (t * t / 3 if a.halves == 5 else 0)
        return factor * torch.exp(-t)

    return _pairs(x, kernel, True)


@peer("distances")
def distances(x: Tensors, a: Arguments) -> Plan:
    p, q = x["x"].float(), x["y"].float()
    if a.kind == "manhattan":
        return Plan("torch cdist", lambda p, q: torch.cdist(p, q, 1.0), (p, q))
    if a.kind == "euclidean":
        exact = "donot_use_mm_for_euclid_dist"
        return Plan("torch cdist", lambda p, q: torch.cdist(p, q, compute_mode=exact), (p, q))
    return Plan("torch addmm", lambda p, q: _squares(p, q, a.kind == "squared"), (p, q))
