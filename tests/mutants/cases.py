"""The programs of which mutants are made: built-in operators and kinds that nobody foresaw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ir.program import Program
from ir.registry import load_operator
from tests.mutants import operators as own
from tests.targets import quantised, unforeseen

_UNSEEN = Path(unforeseen.__file__).with_name("unseen.py")
BUILT_IN: tuple[tuple[str, dict[str, Any]], ...] = (
    ("matmul", {"m": 24, "n": 40, "k": 300}),
    ("matmul", {"m": 24, "n": 40, "k": 300, "dtype": "bf16"}),
    ("matmul", {"m": 24, "n": 40, "k": 256, "dtype": "i8", "tb": True}),
    ("matmul_bias_act", {"m": 24, "n": 40, "k": 300, "dtype": "bf16"}),
    ("scaled_matmul", {"m": 24, "n": 40, "k": 256}),
    ("gated_mlp", {"m": 24, "n": 40, "k": 128, "dtype": "f16"}),
    ("softmax", {"m": 16, "n": 300, "dtype": "bf16"}),
    ("layernorm", {"m": 16, "n": 300, "dtype": "bf16"}),
    ("rmsnorm", {"m": 16, "n": 300}),
    ("row_sum", {"m": 16, "n": 2000}),
    ("column_sum", {"m": 2000, "n": 16, "dtype": "bf16"}),
    ("row_max", {"m": 16, "n": 300, "dtype": "bf16"}),
    ("column_max", {"m": 300, "n": 16}),
    ("attention", {"b": 1, "heads": 2, "sq": 32, "sk": 256, "d": 16, "dtype": "bf16"}),
    ("attention", {"b": 1, "heads": 2, "sq": 32, "d": 32, "causal": True}),
    ("gaussian", {"m": 24, "n": 30, "d": 3}),
    ("conv2d", {"n": 1, "h": 8, "w": 8, "c": 16, "f": 8, "dtype": "bf16"}),
    (f"{_UNSEEN}:embedding_bag", {"b": 20, "n": 17, "e": 36, "rows": 50}),
)
OTHERS: tuple[tuple[Any, dict[str, Any]], ...] = (
    (unforeseen.gram, {"m": 29, "k": 16, "dtype": "f32"}),
    (unforeseen.neighbours, {"m": 31, "n": 47}),
    (unforeseen.cosine, {"m": 30, "n": 35, "k": 64, "dtype": "bf16"}),
    (unforeseen.kronecker, {"m": 20, "a": 8, "b": 8, "dtype": "bf16"}),
    (unforeseen.listed_tiles, {"m": 32, "n": 32, "tiles": 3, "depth": 32, "dtype": "bf16"}),
    (unforeseen.written_carries, {"m": 13, "n": 60}),
    (unforeseen.weighted_rows, {"m": 32, "n": 32, "k": 64, "dtype": "bf16"}),
    (unforeseen.moments, {"m": 20, "n": 33}),
    (own.nearest_point, {"m": 30, "n": 20, "d": 12}),
    (unforeseen.scalars, {"n": 53}),
    (unforeseen.wide_integers, {"m": 23, "n": 19, "k": 31}),
    (unforeseen.residual_convolution, {"n": 6, "c": 16, "dtype": "f16"}),
    (unforeseen.entropy, {"m": 20, "v": 64, "d": 32, "dtype": "bf16"}),
    (quantised.w4_grouped, {"m": 24, "n": 32, "groups": 16, "bytes": 32}),
    (quantised.w8_rows, {"m": 24, "n": 32, "k": 1024}),
    (own.masked_softmax, {"m": 16, "n": 300, "dtype": "f16"}),
    (own.above_mean, {"m": 20, "n": 70, "dtype": "f32"}),
    (own.quantised_rows, {"m": 20, "n": 70}),
    (own.counted, {"m": 40, "n": 30}),
    (own.logarithms, {"m": 20, "n": 33}),
    (own.ragged_mean, {"b": 12, "n": 40, "d": 24, "dtype": "bf16"}),
    (own.narrow_norm, {"m": 80, "n": 160}),
    (own.cross_entropy, {"m": 20, "n": 150}),
    (own.gathered_rows, {"m": 30, "n": 40, "rows": 64, "dtype": "f16"}),
    (own.mean_and_deviation, {"m": 90, "n": 30, "dtype": "bf16"}),
    (own.segment_sizes, {"n": 70, "total": 900}),
    (own.softcap_attention, {"h": 1, "q": 16, "k": 512, "d": 16}),
    (own.banded, {"m": 40, "k": 64, "dtype": "bf16"}),
)


def _name(operator: Any, arguments: dict[str, Any]) -> str:
    name = operator if isinstance(operator, str) else operator.name
    return "-".join((name.rpartition(":")[2], str(arguments.get("dtype", ""))))


CASES = (*BUILT_IN, *OTHERS)
NAMES = tuple(f"{number}-{_name(*case)}" for number, case in enumerate(CASES))
KINDS = len({_name(operator, {}) for operator, _ in CASES})


def built(number: int) -> Program:
    operator, arguments = CASES[number]
    return (load_operator(operator) if isinstance(operator, str) else operator).build(**arguments)
