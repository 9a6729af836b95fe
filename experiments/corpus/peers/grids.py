"""Grids and transforms of rows: stencils by shifted sums, Fourier's and Hadamard's."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F

from .maps import several
from .plan import Arguments, Plan, Tensors, peer

Tensor = torch.Tensor


def _star(t: Tensor, rate: float) -> Tensor:
    """A step of a grid with 0 around it."""
    wide = F.pad(t, (1, 1) * t.ndim)
    total = -2.0 * t.ndim * t
    for dim in range(t.ndim):
        for start in (0, 2):
            cut = [slice(1, -1)] * t.ndim
            cut[dim] = slice(start, start + t.shape[dim])
            total = total + wide[tuple(cut)]
    return t + rate * total


@peer("stencil_1d", "stencil_2d", "stencil_3d")
def stencil(x: Tensors, a: Arguments) -> Plan:
    return several(lambda t: _star(t.float(), a.rate).to(t.dtype), x, "X")


@peer("stencil_2d_box")
def box(x: Tensors, a: Arguments) -> Iterator[Plan]:
    def function(t: Tensor) -> Tensor:
        wide = F.pad(t.float(), (1, 1, 1, 1))
        rows = wide[:-2] + 2 * wide[1:-1] + wide[2:]
        return ((rows[:, :-2] + 2 * rows[:, 1:-1] + rows[:, 2:]) / 16).to(t.dtype)

    yield several(function, x, "X")
    line = torch.tensor([1.0, 2.0, 1.0], device=x["X"].device)
    weights = (line[:, None] * line / 16)[None, None].to(x["X"].dtype)

    def convolved(t: Tensor, w: Tensor) -> Tensor:
        return F.conv2d(t[None, None], w, padding=1)

    yield Plan("torch conv2d", convolved, (x["X"], weights))


@peer("diffusion")
def diffusion(x: Tensors, a: Arguments) -> Plan:
    def function(t: Tensor) -> Tensor:
        grid = t.float()
        for _ in range(a.steps):
            grid = _star(grid, a.rate)
        return grid.to(t.dtype)

    return several(function, x, "X")


@peer("waves")
def waves(x: Tensors, a: Arguments) -> Plan:
    def function(u: Tensor) -> Tensor:
        u = before = u.float()
        found = []
        for _ in range(a.steps):
            bend = _star(u, 1.0) - u
            u, before = 2 * u - before + a.speed**2 * bend, u
            found.append(u)
        return torch.stack(found)

    return several(function, x, "U")


@peer("life")
def life(x: Tensors, a: Arguments) -> Plan:
    def function(t: Tensor) -> Tensor:
        for _ in range(a.steps):
            wide = F.pad(t, (1, 1, 1, 1))
            rows = wide[:-2] + wide[1:-1] + wide[2:]
            around = rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:] - t
            t = ((around == 3) | ((around == 2) & (t == 1))).to(t.dtype)
        return t

    return several(function, x, "X")


@peer("fft")
def fft(x: Tensors, a: Arguments) -> Plan:
    """Both parts side by side beforehand, as torch has complex numbers; it has its own tables."""

    def function(t: Tensor) -> dict[str, Tensor]:
        found = torch.fft.fft(t)
        return {"Y_re": found.real, "Y_im": found.imag}

    given = torch.complex(*(x[name].reshape(a.m, a.n) for name in ("X_re", "X_im")))
    return Plan("torch fft", function, (given,), checked=False)


@peer("dft")
def dft(x: Tensors, a: Arguments) -> Iterator[Plan]:
    def products(re: Tensor, im: Tensor, cos: Tensor, sin: Tensor) -> dict[str, Tensor]:
        return {"Y_re": re @ cos + im @ sin, "Y_im": im @ cos - re @ sin}

    def one(t: Tensor, w: Tensor) -> dict[str, Tensor]:
        real, imaginary = (t @ w).chunk(2, 1)
        return {"Y_re": real, "Y_im": imaginary}

    places = torch.arange(a.n, device=x["X_re"].device)
    angle = (places[:, None] * places % a.n).double() * (2 * math.pi / a.n)
    cosine, sine = (t.to(x["X_re"].dtype) for t in (angle.cos(), angle.sin()))
    yield Plan("torch, four products", products, (x["X_re"], x["X_im"], cosine, sine))
    both = torch.cat([torch.cat([cosine, -sine], 1), torch.cat([sine, cosine], 1)])
    yield Plan("torch, one product", one, (torch.cat([x["X_re"], x["X_im"]], 1), both))


def _hadamard(n: int, like: Tensor) -> Tensor:
    found = torch.ones(1, 1, dtype=like.dtype, device=like.device)
    while len(found) < n:
        found = torch.cat([torch.cat([found, found], 1), torch.cat([found, -found], 1)])
    return found


@peer("hadamard", "hadamard_steps")
def hadamard(x: Tensors, a: Arguments) -> Iterator[Plan]:
    """A product with the whole matrix, or with those of both halves of the bits."""
    low = 1 << (a.n.bit_length() - 1) // 2
    t, scale = x["X"].reshape(-1, a.n), 1 / math.sqrt(a.n)
    yield Plan("torch, one product", lambda t, w: t @ w, (t, _hadamard(a.n, t) * scale))

    def halves(t: Tensor, left: Tensor, right: Tensor) -> Tensor:
        return left @ (t.view(-1, a.n // low, low) @ right)

    parts = (_hadamard(a.n // low, t) * (low / a.n) ** 0.5, _hadamard(low, t) * low**-0.5)
    yield Plan("torch, two small products", halves, (t, *parts))
