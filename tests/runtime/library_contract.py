"""What every runtime's array library must keep: each operator's program comes out right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from explorer.runtime.base import HasLibrary, LibraryLaunch, Runtime
from explorer.runtime.eager import Inexpressible
from ir.oracle import random_inputs
from ir.program import Program
from ir.registry import load_operator
from tests.ir.programs import indirect, outer, streamed, whole_sum, wrapped
from tests.ir.test_operators import CASES
from tests.judging import bounds_of

_SMALL: dict[str, Any] = {"m": 24, "n": 20, "k": 28}
_TYPES = ("bf16", "f16", "f32", "tf32", "f64", "i8", "u8")
PRODUCTS = [
    _SMALL | {"dtype": dtype, "ta": ta, "tb": tb, "batch": batch}
    for dtype in _TYPES
    for ta, tb, batch in ((False, False, 0), (True, False, 2), (False, True, 0), (True, True, 3))
]
PRODUCTS += [{"m": 7, "n": 5, "k": 6, "dtype": "i8"}, _SMALL | {"dtype": "bf16", "out": "f32"}]
OTHERS = [(name, arguments) for name, _, arguments in CASES if name != "scaled_matmul"]


class LibraryContract:
    """Tests of a runtime that has a library; `runtime` is the fixture to define."""

    @pytest.mark.parametrize(("name", "arguments"), OTHERS)
    def test_it_computes_what_the_program_means(
        self, runtime: Any, name: str, arguments: dict[str, Any]
    ) -> None:
        check(runtime, load_operator(name).build(**arguments))

    @pytest.mark.parametrize("arguments", PRODUCTS, ids=str)
    def test_products_of_all_types_and_orders(
        self, runtime: Any, arguments: dict[str, Any]
    ) -> None:
        check(runtime, load_operator("matmul").build(**arguments))

    @pytest.mark.parametrize("program", [whole_sum(), outer()], ids=lambda program: program.name)
    def test_scalars_and_outer_products(self, runtime: Any, program: Program) -> None:
        check(runtime, program)

    @pytest.mark.parametrize(
        ("program", "why"),
        [
            (indirect(), "indices of another tensor"),
            (streamed(), "no call of an array library stands for a state that goes from step"),
            (load_operator("argmax").build(m=3, n=5), r"stands for a fold or scan \(fold, scan"),
            (load_operator("top_k").build(m=3, n=5, k=2), "stands for the largest in order"),
            (load_operator("matmul").build(**_SMALL, dtype="i4"), "have no i4, of which A is"),
            (wrapped(), "X is read at indices that are computed"),
            (load_operator("scaled_matmul").build(**_SMALL), "have no e4m3"),
        ],
    )
    def test_what_it_cannot_say(self, runtime: Any, program: Program, why: str) -> None:
        with pytest.raises(Inexpressible, match=why):
            launched(runtime, program)

    def test_intermediates_that_do_not_fit(self, runtime: Any) -> None:
        large = {"b": 64, "heads": 64, "sq": 1 << 14, "d": 8}
        program = load_operator("attention").build(**large)
        tiny = {spec.name: np.zeros(1, np.float32) for spec in program.tensors}
        arrays = {
            name: np.lib.stride_tricks.as_strided(
                array, program.scope.tensors[name].shape, (0, 0, 0, 0)
            )
            for name, array in tiny.items()
        }
        with pytest.raises(Inexpressible, match=r"intermediates take \d+"):
            launched_on(runtime, program, arrays, arrays)


def check(runtime: Any, program: Program) -> None:
    """Right in a first run, and when run again and again."""
    launch, wanted, outputs = launched(runtime, program)
    for times in (1, 30):
        for spec in program.outputs:
            runtime.poison(outputs[spec.name], spec.dtype)
        assert launch(times) > 0
        for name, bounds in wanted.items():
            verdict = runtime.judge(bounds, runtime.fetch(outputs[name]))
            assert verdict.right, verdict.detail


def launched(
    runtime: Any, program: Program
) -> tuple[LibraryLaunch, Mapping[str, Any], Mapping[str, Any]]:
    """The program on random inputs of the runtime's, what it means, and its outputs."""
    inputs = random_inputs(program, np.random.default_rng(3))
    placed = {name: runtime.place(array) for name, array in inputs.items()}
    outputs = {spec.name: runtime.empty(spec.shape, spec.dtype) for spec in program.outputs}
    return launched_on(runtime, program, placed, outputs), bounds_of(program, inputs), outputs


def launched_on(
    runtime: Runtime, program: Program, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
) -> LibraryLaunch:
    assert isinstance(runtime, HasLibrary)
    return runtime.library(program, inputs, outputs)
