"""Kernels that memory limits: walks of tiles, what is ahead, shared walks, and what they mean."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ir import Graph, apply, cast, operator, reduce
from ir.inputs import random_inputs
from ir.kernel import Kernel
from ir.program import Program
from ir.registry import load_operator
from ir.schedule import Schedule, Value
from ir.space import Space
from ir.targets.cuda.build.kernels import kernels_of
from ir.targets.cuda.build.readers import behind_decisions, loaded_late, only_stored, read_again
from ir.targets.cuda.space.block import BlockKernel
from ir.targets.cuda.space.block_rules import OptionRules
from tests.emulator.emulate import MODES, compiler, emulate
from tests.few import draws
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, built
from tests.targets.test_cuda_emulated import QUICK, arrays_of, problems

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++)")
# So few processors that even small programs have more tiles than blocks that walk them.
FEW = replace(HARDWARE, facts=tuple((k, 2 if k == "sms" else v) for k, v in HARDWARE.facts))

SOFTMAX: tuple[str, dict[str, Any]] = ("softmax", {"m": 37, "n": 500, "dtype": "bf16"})
NORM: tuple[str, dict[str, Any]] = ("layernorm", {"m": 37, "n": 264, "dtype": "bf16"})
ODD: tuple[str, dict[str, Any]] = ("rmsnorm", {"m": 21, "n": 515, "dtype": "f16"})
COLUMNS: tuple[str, dict[str, Any]] = ("column_sum", {"m": 333, "n": 100, "dtype": "bf16"})
ROWS: tuple[str, dict[str, Any]] = ("row_max", {"m": 3, "n": 3000, "dtype": "i32"})


@operator
def quantised_rows(g: Graph, m: int, n: int) -> None:
    """Y = X / scale as whole numbers, scale the largest of a row over 127."""
    rows, columns = g.axes(m=m, n=n)
    x = g.input("X", (rows, columns), "f32")
    scale = reduce("max", apply("abs", x), over=columns) * (1.0 / 127)
    g.output("Y", cast(apply("floor", x / scale + 0.5), "i8"), "i8")


@operator
def residual_norm(g: Graph, m: int, n: int, dtype: str = "bf16") -> None:
    """Y = norm(X + R) * gamma, and the sum itself."""
    rows, columns = g.axes(m=m, n=n)
    added = g.input("X", (rows, columns), dtype) + g.input("R", (rows, columns), dtype)
    square = reduce("sum", added * added, over=columns) * (1.0 / n)
    norm = added * apply("rsqrt", square + 1e-6) * g.input("gamma", (columns,), dtype)
    g.output("S", added, dtype)
    g.output("Y", norm, dtype)


def program_of(name: str, arguments: dict[str, Any]) -> Program:
    own = {"quantised_rows": quantised_rows, "residual_norm": residual_norm}
    return own[name].build(**arguments) if name in own else built(name, arguments)


def lowered(program: Program, space: Space, row: Any) -> Kernel:
    return BACKEND.lower(program, space.schedule(row), FEW)


PINS: tuple[tuple[tuple[str, dict[str, Any]], dict[str, Value]], ...] = (
    (SOFTMAX, {"walkers": 1, "ahead": 2}),
    (SOFTMAX, {"walkers": 2, "ahead": 1, "waits": "registers", "prefetch": 2}),
    (SOFTMAX, {"keep": True, "stores": "stream", "prefetch": 1}),
    (NORM, {"walkers": 1, "ahead": 3, "loads": "first", "keep": True}),
    (NORM, {"walkers": 2, "ahead": 0, "loads": "first"}),
    (NORM, {"tile.n": 64, "ahead": 4, "waits": "shared"}),
    (ODD, {"walkers": 1, "loads": "first"}),
    (COLUMNS, {"parts": 4, "ahead": 2}),
    (COLUMNS, {"parts": 2, "waits": "registers", "ahead": 1, "prefetch": 2}),
    (ROWS, {"parts": 8, "ahead": 3}),
    (("column_max", {"m": 700, "n": 72, "dtype": "f16"}), {"parts": 16}),
    (("quantised_rows", {"m": 37, "n": 132}), {"walkers": 1, "ahead": 2}),
    (("residual_norm", {"m": 37, "n": 264}), {"walkers": 1, "ahead": 2, "loads": "first"}),
    (("matmul", {"m": 40, "n": 24, "k": 300, "dtype": "f32"}), {"parts": 4}),
)  # fmt: skip


@needs_compiler
@pytest.mark.parametrize(("case", "pins"), PINS, ids=str)
@draws(2, 3)
@pytest.mark.alike(2)
def test_every_choice_means_its_program(
    case: tuple[str, dict[str, Any]], pins: dict[str, Value], count: int
) -> None:
    program = program_of(*case)
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted = bounds_of(program, inputs)
    space = BACKEND.space(program, FEW).pin(pins)
    for turn, row in enumerate(space.sample(np.random.default_rng(2), count)):
        kernel = lowered(program, space, row)
        for mode in (QUICK[turn % 4], QUICK[(turn + 1) % 4]):
            found = problems(program, kernel, inputs, wanted, mode)
            assert not found, space.schedule(row).to_json()


@needs_compiler
@pytest.mark.parametrize("line", ["tw_copy_async_wait<1>();", "tw_copy_async_wait<0>();"])
def test_a_ring_that_does_not_wait_is_caught(line: str) -> None:
    program = built(*SOFTMAX)
    pins = {"walkers": 1, "ahead": 2, "waits": "shared", "tile.n": 512, "lanes": "n", "vector": 4}
    space = BACKEND.space(program, FEW).pin(pins)
    kernel = lowered(program, space, space.sample(np.random.default_rng(0), 1)[0])
    assert line in kernel.text("cuda")
    inputs = random_inputs(program, np.random.default_rng(0))
    head, mark, body = kernel.text("cuda").rpartition("//@ kernel\n")
    texts = (("cuda", f"{head}{mark}{body.replace(line, '')}"), ("launch", kernel.text("launch")))
    broken = replace(kernel, texts=texts)
    wanted = bounds_of(program, inputs)
    assert any(problems(program, broken, inputs, wanted, mode) for mode in range(len(MODES)))
    assert not problems(program, kernel, inputs, wanted, 15)


@needs_compiler
def test_shared_walks_leave_their_count_clean() -> None:
    """A second run on the same workspace is the same to the bit, in whatever order blocks came."""
    program = built(*COLUMNS)
    inputs = random_inputs(program, np.random.default_rng(3))
    space = BACKEND.space(program, HARDWARE).pin(parts=4)
    kernel = lowered(program, space, space.sample(np.random.default_rng(0), 1)[0])
    plan = json.loads(kernel.text("launch"))
    ((offset, count),) = plan["clean"]
    workspace = np.full(plan["workspace_bytes"], 0xFF, np.uint8)
    workspace[offset : offset + count] = 0
    results = []
    for mode in QUICK:
        arrays = {**arrays_of(kernel, inputs), "workspace": workspace}
        assert not emulate(kernel.text("cuda"), plan, arrays, mode=MODES[mode], limit=30).faults
        assert not workspace[offset : offset + count].any()
        results.append(arrays["Y"].copy())
    assert all((result == results[0]).all() for result in results)


def test_a_schedule_from_before_these_choices_stays_one() -> None:
    program = built("layernorm", {"m": 4096, "n": 4096, "dtype": "bf16"})
    old: dict[str, Value] = {"early": True, "lanes": "n", "own.m": 1, "own.n": 32, "tile.m": 1,
                             "tile.n": 4096, "vector": 2}  # fmt: skip
    space = BACKEND.space(program, HARDWARE)
    full = space.schedule(space.encode(Schedule.of("cuda", old)))
    assert space.refusal(full) is None
    said = {name: full[name] for name in space.names if name not in old}
    assert said == {"keep": False, "loads": "needed", "stores": "plain", "walkers": 0, "ahead": 0,
                    "waits": "shared", "spread": "none", "prefetch": 0}  # fmt: skip
    texts = {BACKEND.lower(program, s, HARDWARE).key for s in (full, Schedule.of("cuda", old))}
    assert len(texts) == 1


def test_one_reciprocal_serves_a_row() -> None:
    space = BACKEND.space(built(*SOFTMAX), HARDWARE).pin({"tile.n": 512})
    row = space.sample(np.random.default_rng(0), 1)[0]
    text = lowered(built(*SOFTMAX), space, row).text("cuda").rpartition("//@ kernel\n")[2]
    assert text.count("1.0f / ") == 1
    assert "/ sum" not in text.replace("1.0f / sum", "")


def test_a_quotient_that_becomes_whole_is_divided() -> None:
    program = program_of("quantised_rows", {"m": 8, "n": 128})
    space = BACKEND.space(program, HARDWARE)
    row = space.seed_rows(np.random.default_rng(0))[0]
    assert "1.0f / " not in lowered(program, space, row).text("cuda").rpartition("//@ kernel")[2]


class TestReaders:
    def test_what_is_read_again(self) -> None:
        program = built(*SOFTMAX)
        functions = {getattr(program.nodes[p].op, "function", "") for p in read_again(program)}
        assert functions == {"exp"}
        assert not read_again(built(*COLUMNS))

    def test_what_is_loaded_late(self) -> None:
        program = built(*NORM)
        late = {getattr(program.nodes[p].op, "tensor", "") for p in loaded_late(program)}
        assert late == {"gamma", "beta"}
        assert not loaded_late(built(*SOFTMAX))

    def test_what_is_only_stored(self) -> None:
        assert len(only_stored(built(*COLUMNS))) == 1
        assert not only_stored(built(*SOFTMAX))

    def test_what_is_behind_a_decision(self) -> None:
        exact = program_of("quantised_rows", {"m": 8, "n": 128})
        division = [p for p, n in enumerate(exact.nodes) if getattr(n.op, "function", "") == "div"]
        assert set(division) <= behind_decisions(exact)
        assert not behind_decisions(built(*SOFTMAX))


@pytest.mark.parametrize("case", [SOFTMAX, NORM, COLUMNS, ROWS], ids=lambda case: str(case[0]))
@pytest.mark.alike(2)
def test_shared_memory_is_never_more_than_the_rule_counts(case: tuple[str, dict[str, Any]]) -> None:
    program = built(*case)
    (kernel,) = kernels_of(program, FEW)
    assert isinstance(kernel, BlockKernel)
    space = BACKEND.space(program, FEW)
    rows = space.sample(np.random.default_rng(0), 60)
    bound = OptionRules(kernel).bytes(space.columns(rows))
    for row, most in zip(rows, bound, strict=True):
        (plan,) = json.loads(lowered(program, space, row).text("launch"))["kernels"]
        assert plan["shared"] <= most


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"ahead": 2}, "ahead"),
        ({"walkers": 8}, "walkers"),
        ({"prefetch": 1, "early": False}, "prefetch"),
        ({"prefetch": 2}, "prefetch"),
        ({"waits": "registers"}, "waits"),
        ({"walkers": 2, "ahead": 6, "tile.m": 4, "own.m": 4}, "shared"),
    ],
    ids=str,
)
def test_refusals_say_why(changed: dict[str, Value], rule: str) -> None:
    program = load_operator("softmax").build(m=4096, n=4096, dtype="bf16")
    space = BACKEND.space(program, HARDWARE)
    values = space.schedule(space.seed_rows(np.random.default_rng(0))[1]).as_dict()
    refusal = space.refusal(Schedule.of("cuda", values | changed))
    assert refusal is not None
    assert refusal.constraint == rule
    assert any(char.isdigit() for char in refusal.detail)
