"""Products with epilogues at Llama-3-8B shapes against torch.compile(mode="max-autotune")."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from common import (
    Clock,
    Peer,
    Results,
    Tensors,
    compare,
    going_on,
    options,
    pending,
    searched,
)
from contest import Run

ROWS = (4096, 2048, 512)
COMPILE_SECONDS = 180.0
BEST = "torch.compile max-autotune"
Function = Callable[..., Any]


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
FUNCTIONS: dict[str, Function] = {"matmul_bias_act": activation, "gated_mlp": gated}


class OutOfTime(Exception):
    """A peer's compiler took longer than it may."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises OutOfTime in what runs longer."""

    def stop(*_: object) -> None:
        raise OutOfTime(f"not compiled within {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(max(1, int(seconds)))
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def compiled(function: Function, mode: str, inputs: tuple[str, ...], seconds: float) -> Peer:
    """The function by torch.compile. Graphs are captured by the comparison, so max-autotune is
    the mode of the same kernels without graphs of its own."""
    torch._dynamo.reset()
    fast = torch.compile(function, mode=mode, dynamic=False)

    def make(tensors: Tensors) -> Run:
        given = [tensors[name] for name in inputs]
        with limited(seconds):
            fast(*given)
        return lambda: fast(*given)

    return make


def contestants(function: Function, inputs: tuple[str, ...], seconds: float) -> dict[str, Peer]:
    """max-autotune and eager; the default mode only where max-autotune fails."""

    def eager(tensors: Tensors) -> Run:
        given = [tensors[name] for name in inputs]
        return lambda: function(*given)

    return {
        BEST: compiled(function, "max-autotune-no-cudagraphs", inputs, seconds),
        "torch eager": eager,
    }


def in_f32(function: Function, inputs: tuple[str, ...]) -> Callable[[Tensors], torch.Tensor]:
    def make(tensors: Tensors) -> torch.Tensor:
        found: torch.Tensor = function(*(tensors[name].float() for name in inputs))
        return found

    return make


def main() -> None:
    settings = options(__doc__ or "")
    clock, results = Clock(settings.seconds), Results.at(settings.out)
    waiting = pending(cases(), settings, results, clock, ("torch eager",), 110.0)
    for name, operator, arguments in waiting:
        function, inputs = FUNCTIONS[operator], NAMES[operator]
        with going_on(), torch.no_grad():
            workload, schedule, facts = searched(operator, arguments, settings, clock, 70)
            limit = min(COMPILE_SECONDS, max(20.0, clock.left - 15))
            sides = contestants(function, inputs, limit)
            right = in_f32(function, inputs)
            compare(name, workload, schedule, sides, right, results, facts)
            if not results.has(name, BEST, "time"):
                sides = {"torch.compile default": compiled(function, "default", inputs, limit)}
                compare(name, workload, schedule, sides, right, results, facts)


if __name__ == "__main__":
    main()
