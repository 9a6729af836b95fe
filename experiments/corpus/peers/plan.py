"""What a peer is: calls on tensors that were laid out beforehand, by the operator's name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

Tensors = Mapping[str, torch.Tensor]
Arguments = Any  # a namespace of the operator's arguments, defaults among them
Result = torch.Tensor | Mapping[str, torch.Tensor]

TYPES = {
    "bool": torch.bool, "u8": torch.uint8, "i8": torch.int8, "i16": torch.int16,
    "i32": torch.int32, "i64": torch.int64, "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2, "e8m0": torch.float8_e8m0fnu, "bf16": torch.bfloat16,
    "f16": torch.float16, "tf32": torch.float32, "f32": torch.float32, "f64": torch.float64,
}  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """`function(*tensors)` gives the output, or outputs by name, up to their shapes.

    `tensors` are inputs, or what is made of weights once: that is not timed. `fused` peers are
    made of several ops, which a compiler may fuse; if `only`, they make no sense otherwise. What
    is not `captured` waits for the device on the way, so that it cannot be in a graph; what is not
    `checked` does not read tables that are inputs of the operator, and random in measurements. What
    does a `part` of the work is compared with only where that is asked for.
    """

    name: str
    function: Callable[..., Result]
    tensors: tuple[torch.Tensor, ...]
    fused: bool = False
    only: bool = False
    captured: bool = True
    checked: bool = True
    part: bool = False

    def run(self) -> Result:
        return self.function(*self.tensors)


Maker = Callable[[Tensors, Arguments], Plan | Iterable[Plan]]
PEERS: dict[str, Maker] = {}


def peer(*operators: str) -> Callable[[Maker], Maker]:
    """Makes the plans of these operators; the strongest of several is chosen by its time."""

    def known(make: Maker) -> Maker:
        PEERS.update(dict.fromkeys(operators, make))
        return make

    return known


def filled(operator: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments of an operator, defaults among them."""
    from ir.registry import load_operator

    parameters = inspect.signature(load_operator(operator).function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty} | dict(arguments)


def plans(operator: str, tensors: Tensors, arguments: Mapping[str, Any]) -> list[Plan]:
    """The plans for an operator on tensors of its inputs; none if torch has nothing like it."""
    name = operator.rpartition(":")[2]  # of FILE.py:NAME
    if name not in PEERS:
        return []
    found = PEERS[name](tensors, SimpleNamespace(**filled(operator, arguments)))
    return [found] if isinstance(found, Plan) else list(found)


def of_bytes(raw: torch.Tensor, dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor of a type that numpy may not have, in the bytes that it is stored as."""
    return raw.view(TYPES[dtype]).view(shape)


def of_numpy(array: np.ndarray[Any, Any], dtype: str) -> torch.Tensor:
    """A tensor in the memory of an array in storage dtype."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return of_bytes(torch.from_numpy(flat), dtype, array.shape)


def outputs_of(result: Result, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    """The outputs by name, in the operator's shapes."""
    found = {next(iter(shapes)): result} if isinstance(result, torch.Tensor) else dict(result)
    return {name: found[name].reshape(shape) for name, shape in shapes.items()}
