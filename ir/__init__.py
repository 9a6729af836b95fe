"""Programs, operators and targets: the surface for authors. Names are imported when first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ir.axes import Axis
    from ir.builder import (
        Graph,
        Operator,
        TensorHandle,
        Tile,
        absolute,
        apply,
        carry,
        cast,
        contract,
        erf,
        exp,
        gelu,
        iota,
        log,
        maximum,
        minimum,
        now,
        operator,
        prior,
        reduce,
        relu,
        rsqrt,
        sigmoid,
        silu,
        sqrt,
        tanh,
        where,
    )
    from ir.errors import MissingTarget, ProgramError, Refusal, TilewrightError, UsageError
    from ir.oracle import evaluate, random_inputs
    from ir.program import Program
    from ir.registry import load_operator, operator_names
    from ir.target import Backend, Hardware, get_backend, target_names
    from ir.text import parse, to_text
    from ir.values import (
        Values,
        ascending,
        constant,
        decay,
        indices,
        lengths,
        normal,
        offsets,
        one_hot,
        permutation,
        positive,
        prefix_sums,
        probabilities,
        uniform,
    )

__all__ = [
    "Axis",
    "Backend",
    "Graph",
    "Hardware",
    "MissingTarget",
    "Operator",
    "Program",
    "ProgramError",
    "Refusal",
    "TensorHandle",
    "Tile",
    "TilewrightError",
    "UsageError",
    "Values",
    "absolute",
    "apply",
    "ascending",
    "carry",
    "cast",
    "constant",
    "contract",
    "decay",
    "erf",
    "evaluate",
    "exp",
    "gelu",
    "get_backend",
    "indices",
    "iota",
    "lengths",
    "load_operator",
    "log",
    "maximum",
    "minimum",
    "normal",
    "now",
    "offsets",
    "one_hot",
    "operator",
    "operator_names",
    "parse",
    "permutation",
    "positive",
    "prefix_sums",
    "prior",
    "probabilities",
    "random_inputs",
    "reduce",
    "relu",
    "rsqrt",
    "sigmoid",
    "silu",
    "sqrt",
    "tanh",
    "target_names",
    "to_text",
    "uniform",
    "where",
]

_HOMES = {
    "ir.errors": ("MissingTarget", "ProgramError", "Refusal", "TilewrightError", "UsageError"),
    "ir.axes": ("Axis",),
    "ir.oracle": ("evaluate", "random_inputs"),
    "ir.program": ("Program",),
    "ir.registry": ("load_operator", "operator_names"),
    "ir.target": ("Backend", "Hardware", "get_backend", "target_names"),
    "ir.text": ("parse", "to_text"),
    "ir.values": (
        "Values",
        "ascending",
        "constant",
        "decay",
        "indices",
        "lengths",
        "normal",
        "offsets",
        "one_hot",
        "permutation",
        "positive",
        "prefix_sums",
        "probabilities",
        "uniform",
    ),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ir' has no attribute {name!r}")
    return getattr(import_module(_HOME.get(name, "ir.builder")), name)
