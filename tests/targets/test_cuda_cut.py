"""How programs are cut into kernels, and that the kernels together mean the program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ir.dtypes import from_float, numpy_dtype
from ir.ops.base import Array
from ir.oracle import evaluate, random_inputs
from ir.program import Program
from ir.targets.cuda.cut import cut_program
from ir.targets.cuda.kernels import kernels_of
from ir.targets.cuda.splits import split_program
from tests.targets.cuda_cases import HARDWARE, NAMES, SMALL, UNSEEN, built

KINDS: tuple[tuple[str, dict[str, Any], tuple[str, ...]], ...] = (
    ("matmul", {"m": 64, "n": 64, "k": 64, "dtype": "bf16"}, ("tensor",)),
    ("matmul", {"m": 64, "n": 64, "k": 63, "dtype": "bf16", "tb": True},
     ("block", "block", "tensor")),
    ("matmul", {"m": 64, "n": 64, "k": 64, "dtype": "f32"}, ("block",)),
    ("matmul", {"m": 64, "n": 64, "k": 64, "dtype": "tf32"}, ("block", "tensor")),
    ("gated_mlp", {"m": 64, "n": 64, "k": 64, "dtype": "bf16"}, ("tensor",)),
    ("attention", {"b": 1, "heads": 1, "sq": 64, "d": 64, "dtype": "bf16"}, ("tensor",)),
    ("attention", {"b": 1, "heads": 1, "sq": 64, "d": 64, "dtype": "f32"}, ("block",)),
    ("softmax", {"m": 64, "n": 64}, ("block",)),
    ("conv2d", {"n": 1, "h": 8, "w": 8, "c": 16, "f": 16, "dtype": "bf16"}, ("tensor",)),
    (f"{UNSEEN}:two_layers", {"m": 8, "f": 300, "d": 300, "o": 8}, ("block", "block")),
    (f"{UNSEEN}:packed_int4", {"m": 8, "n": 8, "k": 64}, ("block", "block", "tensor")),
)  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "kinds"), KINDS)
def test_which_kernels_a_program_has(
    name: str, arguments: dict[str, Any], kinds: tuple[str, ...]
) -> None:
    found = tuple(kernel.kind for kernel in kernels_of(built(name, arguments), HARDWARE))
    assert found == kinds


def in_turn(parts: tuple[Program, ...], inputs: dict[str, Array]) -> dict[str, Array]:
    """The oracle of every part, fed with what the parts before stored."""
    known: dict[str, Array] = dict(inputs)
    found: dict[str, Array] = {}
    for part in parts:
        for name, value in evaluate(part, {s.name: known[s.name] for s in part.inputs}).items():
            found[name] = value
            spec = part.scope.tensors[name]
            whole = np.zeros(spec.shape, numpy_dtype(spec.dtype))
            whole[tuple(slice(0, extent) for extent in value.shape)] = from_float(value, spec.dtype)
            known[name] = whole
    return found


@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.parametrize(("name", "arguments"), SMALL, ids=NAMES)
def test_parts_together_mean_the_program(
    name: str, arguments: dict[str, Any], everywhere: bool
) -> None:
    program = built(name, arguments)
    inputs = random_inputs(program, np.random.default_rng(3))
    wanted = evaluate(program, inputs)
    parts = cut_program(program, everywhere)
    found = in_turn(parts, inputs)
    for output, value in wanted.items():
        scale = np.abs(value).max() + 1e-9
        assert np.abs(found[output] - value).max() <= 0.02 * scale


def test_a_split_sum_is_a_product_and_a_merge() -> None:
    program = built("matmul", {"m": 64, "n": 64, "k": 1024, "dtype": "bf16"})
    parts = split_program(program, "k:2")
    kernels = kernels_of(parts, HARDWARE)
    assert [kernel.kind for kernel in kernels] == ["tensor", "block"]
    partial = kernels[0].program.outputs[0]
    assert partial.dtype == "f32"
    assert sorted(partial.shape) == [2, 64, 64]


def test_padded_tensors_between_kernels_have_copyable_strides() -> None:
    program = built("matmul", {"m": 64, "n": 64, "k": 63, "dtype": "bf16", "tb": True})
    first = kernels_of(program, HARDWARE)[0].program
    assert first.outputs[0].shape[-1] % 8 == 0
