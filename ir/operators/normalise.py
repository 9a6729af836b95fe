"""Normalisations, as on paper: nothing here says in how many passes."""

from __future__ import annotations

from ir import Axis, Graph, Tile, UsageError, exp, log, operator, reduce, rsqrt
from ir.operators.quantise import to_narrow

EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "softmax": {
        "small": {"m": 7, "n": 65},
        "cpu": {"m": 4096, "n": 4096},
        "vocabulary": {"m": 2048, "n": 128256, "dtype": "bf16"},
    },
    "log_softmax": {
        "small": {"m": 7, "n": 65},
        "vocabulary": {"m": 2048, "n": 128256, "dtype": "bf16"},
    },
    "layernorm": {
        "small": {"m": 7, "n": 65},
        "gpt3": {"m": 8192, "n": 12288, "dtype": "bf16"},
    },
    "rmsnorm": {
        "small": {"m": 7, "n": 65},
        "cpu": {"m": 4096, "n": 4096},
        "llama3-70b": {"m": 8192, "n": 8192, "dtype": "bf16"},
    },
    "residual_layernorm": {
        "small": {"m": 7, "n": 65},
        "gpt3": {"m": 8192, "n": 12288, "dtype": "bf16"},
    },
    "residual_rmsnorm": {
        "small": {"m": 7, "n": 65},
        "llama3-70b": {"m": 8192, "n": 8192, "dtype": "bf16"},
        "llama3-8b-decode": {"m": 64, "n": 4096, "dtype": "bf16"},
    },
    "quantised_rmsnorm": {
        "small": {"m": 7, "n": 65},
        "small-e4m3": {"m": 7, "n": 65, "out": "e4m3"},
        "llama3-70b": {"m": 8192, "n": 8192, "dtype": "bf16", "out": "e4m3"},
    },
    "groupnorm": {
        "small": {"b": 2, "s": 21, "c": 12, "groups": 3},
        "diffusion": {"b": 8, "s": 4096, "c": 320, "groups": 32, "dtype": "bf16"},
    },
    "batch_statistics": {
        "small": {"n": 50, "c": 9},
        "resnet50": {"n": 401408, "c": 64, "dtype": "bf16"},
    },
    "batchnorm": {
        "small": {"n": 50, "c": 9},
        "resnet50": {"n": 401408, "c": 64, "dtype": "bf16"},
    },
}


def _root(x: Tile, over: Axis, eps: float) -> Tile:
    """1 over the root of the mean square of x."""
    return rsqrt(reduce("sum", x * x, over=over) * (1.0 / over.extent) + eps)


def _normal(x: Tile, over: Axis, eps: float) -> Tile:
    """x with mean 0 and variance 1."""
    centred = x - reduce("sum", x, over=over) * (1.0 / over.extent)
    return centred * _root(centred, over, eps)


@operator
def softmax(g: Graph, m: int, n: int, dtype: str = "f32") -> None:
    """Y[m, n] = exp(X - max X) / sum exp(X - max X), along n."""
    mm, nn = g.axes(m=m, n=n)
    x = g.input("X", (mm, nn), dtype)
    weights = exp(x - reduce("max", x, over=nn))
    g.output("Y", weights / reduce("sum", weights, over=nn), dtype, (mm, nn))


@operator
def log_softmax(g: Graph, m: int, n: int, dtype: str = "f32") -> None:
    """Y[m, n] = X - max X - log(sum exp(X - max X)), along n."""
    mm, nn = g.axes(m=m, n=n)
    x = g.input("X", (mm, nn), dtype)
    shifted = x - reduce("max", x, over=nn)
    g.output("Y", shifted - log(reduce("sum", exp(shifted), over=nn)), dtype, (mm, nn))


@operator
def layernorm(g: Graph, m: int, n: int, dtype: str = "f32", eps: float = 1e-5) -> None:
    """Y[m, n] = (X - mean) / sqrt(variance + eps) * gamma + beta, statistics along n."""
    mm, nn = g.axes(m=m, n=n)
    x = g.input("X", (mm, nn), dtype)
    gamma, beta = g.input("gamma", (nn,), dtype), g.input("beta", (nn,), dtype)
    centred = x - reduce("sum", x, over=nn) * (1.0 / n)
    variance = reduce("sum", centred * centred, over=nn) * (1.0 / n)
    g.output("Y", centred * rsqrt(variance + eps) * gamma + beta, dtype, (mm, nn))


@operator
def rmsnorm(g: Graph, m: int, n: int, dtype: str = "f32", eps: float = 1e-6) -> None:
    """Y[m, n] = X / sqrt(mean of X^2 + eps) * gamma, mean along n."""
    mm, nn = g.axes(m=m, n=n)
    x = g.input("X", (mm, nn), dtype)
    square = reduce("sum", x * x, over=nn) * (1.0 / n)
    g.output("Y", x * rsqrt(square + eps) * g.input("gamma", (nn,), dtype), dtype, (mm, nn))


@operator
def residual_layernorm(g: Graph, m: int, n: int, dtype: str = "f32", eps: float = 1e-5) -> None:
    """S = X + R, Y = (S - mean) / sqrt(variance + eps) * gamma + beta, statistics along n."""
    mm, nn = g.axes(m=m, n=n)
    total = g.input("X", (mm, nn), dtype) + g.input("R", (mm, nn), dtype)
    g.output("S", total, dtype, (mm, nn))
    scaled = _normal(total, nn, eps) * g.input("gamma", (nn,), dtype)
    g.output("Y", scaled + g.input("beta", (nn,), dtype), dtype, (mm, nn))


@operator
def residual_rmsnorm(g: Graph, m: int, n: int, dtype: str = "f32", eps: float = 1e-6) -> None:
    """S = X + R, Y = S / sqrt(mean of S^2 + eps) * gamma, mean along n."""
    mm, nn = g.axes(m=m, n=n)
    total = g.input("X", (mm, nn), dtype) + g.input("R", (mm, nn), dtype)
    g.output("S", total, dtype, (mm, nn))
    gamma = g.input("gamma", (nn,), dtype)
    g.output("Y", total * _root(total, nn, eps) * gamma, dtype, (mm, nn))


@operator
def quantised_rmsnorm(
    g: Graph, m: int, n: int, dtype: str = "f32", out: str = "i8", eps: float = 1e-6
) -> None:
    """Y[m, n] = round(V / scale), scale[m] = max |V| / 127, with V[m, n] = rmsnorm(X) * gamma.

    X / sqrt(mean of X^2 + eps) with one scale for each row; for `out` e4m3 it is max |V| / 448.
    """
    mm, nn = g.axes(m=m, n=n)
    x = g.input("X", (mm, nn), dtype)
    value = x * _root(x, nn, eps) * g.input("gamma", (nn,), dtype)
    narrow, scale = to_narrow(value, nn, out)
    g.output("Y", narrow, out, (mm, nn))
    g.output("scale", scale, "f32", (mm,))


@operator
def groupnorm(
    g: Graph, b: int, s: int, c: int, groups: int, dtype: str = "f32", eps: float = 1e-5
) -> None:
    """Y[b, s, g, c] = (X - mean) / sqrt(variance + eps) * gamma + beta, statistics over s and c.

    s counts the places of an image, channels are last: each of `groups` has c / groups of them.
    """
    if groups < 1 or c % groups:
        raise UsageError(f"groupnorm: c={c} is no multiple of groups={groups}")
    bb, ss, gg, cc = g.axes(b=b, s=s, g=groups, c=c // groups)
    x = g.input("X", (bb, ss, gg, cc), dtype)
    count = 1.0 / (s * cc.extent)
    centred = x - reduce("sum", x, over=(ss, cc)) * count
    variance = reduce("sum", centred * centred, over=(ss, cc)) * count
    scaled = centred * rsqrt(variance + eps) * g.input("gamma", (gg, cc), dtype)
    g.output("Y", scaled + g.input("beta", (gg, cc), dtype), dtype, (bb, ss, gg, cc))


@operator
def batch_statistics(g: Graph, n: int, c: int, dtype: str = "f32") -> None:
    """mean[c] = the mean of X[n, c] along n, variance[c] = the mean of (X - mean)^2."""
    nn, cc = g.axes(n=n, c=c)
    x = g.input("X", (nn, cc), dtype)
    mean = reduce("sum", x, over=nn) * (1.0 / n)
    g.output("mean", mean, "f32", (cc,))
    g.output("variance", reduce("sum", (x - mean) ** 2, over=nn) * (1.0 / n), "f32", (cc,))


@operator
def batchnorm(g: Graph, n: int, c: int, dtype: str = "f32", eps: float = 1e-5) -> None:
    """Y[n, c] = (X - mean) / sqrt(variance + eps) * gamma + beta, statistics along n."""
    nn, cc = g.axes(n=n, c=c)
    scaled = _normal(g.input("X", (nn, cc), dtype), nn, eps) * g.input("gamma", (cc,), dtype)
    g.output("Y", scaled + g.input("beta", (cc,), dtype), dtype, (nn, cc))
