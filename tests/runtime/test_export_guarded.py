"""Exported kernels stay inside their buffers; `guarded` says how that is seen."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from _pytest.mark import ParameterSet

from explorer.exporter import find_linker
from ir.builder import Graph, operator
from ir.catalogue import families
from ir.registry import load_operator
from ir.target import get_backend
from tests.runtime.fake_backend import body, kernel
from tests.runtime.guarded import call_guarded, case_of, drawn, library

pytestmark = pytest.mark.skipif(find_linker() is None, reason="no C compiler here")


def _by_family() -> Iterator[ParameterSet]:
    """Every operator; those behind the first of a family are long, and so is every other family."""
    for place, family in enumerate(families()):
        for number, one in enumerate(family.operators):
            yield pytest.param(one.name, marks=[pytest.mark.long] if number or place % 2 else [])


@pytest.mark.parametrize("name", list(_by_family()))
def test_operators_touch_nothing_else(name: str, tmp_path: Path, code_cache: Path) -> None:
    """A drawn program and schedule of each, buffers at both ends of what may be touched."""
    for case, schedule, made in drawn([load_operator(name)], 1, 1, (2,), 3):
        if made is not None:
            told = call_guarded(case, made, library(made, tmp_path, code_cache), 6, 0)
            assert told.wrong == "", (case.arguments, schedule.to_json())
            assert told.calls == 6


@operator
def doubled(g: Graph, m: int) -> None:
    g.output("O", g.input("A", g.axes(m=m), "f32") * 2.0)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("good", ""),
        ("overrun", "SIGSEGV"),
        ("write_input", "SIGSEGV"),
        ("wrong", "O: 1000 of 1000 elements wrong"),
        ("before", "O: bytes around it were written"),
        ("beyond", "SIGSEGV"),
    ],
)
def test_the_harness_sees(what: str, words: str, tmp_path: Path, code_cache: Path) -> None:
    program = doubled.build(m=1000)
    case = case_of("doubled", {}, program, np.random.default_rng(0))
    assert case is not None
    made = kernel("good" if what in ("before", "beyond") else what, 1)
    if what in ("before", "beyond"):  # one element too early, or too late
        text = body("good").replace("  ret void", "  STORE\n  ret void")
        at = -1 if what == "before" else 1000
        store = f"%w = getelementptr float, ptr %o, i64 {at}\n  store float 1.0, ptr %w"
        made = dataclasses.replace(
            made, texts=(("llvm", text.replace("STORE", store)), *made.texts[1:])
        )
    built = library(made, tmp_path, code_cache)
    told = call_guarded(case, made, built, 6, 1)
    assert words in told.wrong
    assert bool(told.wrong) == bool(words)


def test_squares_have_no_dot_product() -> None:
    """Their one operand cannot lie along lanes and along rows."""
    backend = get_backend("cpu")
    hardware = dataclasses.replace(
        backend.hardware(1), isa=("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16")
    )
    for dtype in ("bf16", "e4m3", "i8"):
        program = load_operator("rmsnorm").build(m=32, n=64, dtype=dtype)
        space = backend.space(program, hardware)
        rows = space.sample(np.random.default_rng(0), 40)
        found = [json.loads(space.schedule(row).to_json())["values"] for row in rows]
        assert {v.get("instruction.s0", "fma") for v in found} == {"fma"}
        for row in rows[:8]:
            backend.lower(program, space.schedule(row), hardware)
