"""Wrong kernels of every operator are refused, and what a right one stores is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ir.dtypes import from_float, is_float, numpy_dtype
from ir.inputs import drawn_inputs
from ir.oracle import evaluate
from ir.program import Program
from ir.registry import load_operator
from tests.judging import bounds_of
from tests.runtime.mutants import MUTANTS

PROGRAMS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("matmul", {"m": 24, "n": 40, "k": 300}),
    ("matmul", {"m": 24, "n": 40, "k": 300, "dtype": "bf16"}),
    ("matmul", {"m": 8, "n": 16, "k": 65536, "dtype": "bf16"}),
    ("matmul", {"m": 24, "n": 40, "k": 300, "dtype": "i8"}),
    ("matmul_bias_act", {"m": 24, "n": 40, "k": 300, "dtype": "bf16"}),
    ("matmul_bias_act", {"m": 4, "n": 40, "k": 65536, "dtype": "bf16", "activation": "none"}),
    ("scaled_matmul", {"m": 24, "n": 40, "k": 256}),
    ("gated_mlp", {"m": 24, "n": 40, "k": 300, "dtype": "bf16"}),
    ("softmax", {"m": 16, "n": 500}),
    ("softmax", {"m": 16, "n": 500, "dtype": "bf16"}),
    ("layernorm", {"m": 16, "n": 500, "dtype": "bf16"}),
    ("rmsnorm", {"m": 16, "n": 500, "dtype": "f16"}),
    ("row_sum", {"m": 16, "n": 5000}),
    ("column_sum", {"m": 5000, "n": 16, "dtype": "bf16"}),
    ("row_max", {"m": 16, "n": 500, "dtype": "bf16"}),
    ("column_max", {"m": 500, "n": 16}),
    ("attention", {"b": 1, "heads": 2, "sq": 32, "sk": 256, "d": 32, "dtype": "bf16"}),
    ("attention", {"b": 1, "heads": 2, "sq": 48, "d": 32, "causal": True}),
    ("gaussian", {"m": 24, "n": 30, "d": 3}),
    ("conv2d", {"n": 1, "h": 8, "w": 8, "c": 16, "f": 8, "dtype": "bf16"}),
)
IDS = [f"{name}-{'-'.join(map(str, arguments.values()))}" for name, arguments in PROGRAMS]


def right_outputs(program: Program, exact: Any) -> dict[str, Any]:
    """What a perfect kernel stores."""
    with np.errstate(all="ignore"):
        return {
            spec.name: from_float(exact[spec.name], spec.dtype)
            if is_float(spec.dtype)
            else exact[spec.name].astype(numpy_dtype(spec.dtype))
            for spec in program.outputs
        }


@pytest.mark.parametrize(("name", "arguments"), PROGRAMS, ids=IDS)
def test_every_mutant_is_refused_and_the_right_one_is_not(
    name: str, arguments: dict[str, Any]
) -> None:
    program = load_operator(name).build(**arguments)
    inputs = drawn_inputs(program, 7)
    bounds, exact = bounds_of(program, inputs), evaluate(program, inputs)
    outputs = right_outputs(program, exact)
    assert all(bounds[key].judge(value).right for key, value in outputs.items())
    alive = [
        what
        for what, mutant in MUTANTS.items()
        if (wrong := mutant(program, inputs, outputs, exact)) is not None
        and all(bounds[key].judge(value).right for key, value in wrong.items())
    ]
    assert alive == []
