"""The model that is timed, and the ten lines that let it use tuned kernels."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

import explorer

WIDTH, HEADS, HIDDEN = 768, 12, 3072  # of GPT-2's smallest


class Block(nn.Module):
    """A layer of a transformer, as one writes it in torch."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.before(x)).unflatten(-1, (3, HEADS, -1))
        q, k, v = (part.transpose(1, 2) for part in parts.unbind(2))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.between(x))))


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    rows = x.flatten(0, -2)
    given = {"tb": True, "activation": "none", "residual": False}
    kernel = explorer.kernel("matmul_bias_act", rows, weight, bias, **given)
    return kernel(rows, weight, bias).unflatten(0, x.shape[:-1])


def attention(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
    return explorer.kernel("attention", q, k, v, causal=is_causal)(q, k, v)


class Tuned(TorchFunctionMode):
    """Within it, what has a tuned kernel runs it."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), named: Any = None):
        known = {F.linear: linear, F.scaled_dot_product_attention: attention}
        return known.get(function, function)(*args, **(named or {}))
