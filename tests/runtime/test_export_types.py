"""Exported CPU modules with the rarer element types: packed inputs, scales, whole numbers."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer.exporter import export, find_linker
from ir import Graph, operator, random_inputs
from ir.dtypes import from_float
from ir.oracle import evaluate
from ir.target import get_backend

pytestmark = pytest.mark.skipif(find_linker() is None, reason="no C compiler here")


@operator
def many_types(g: Graph, m: int, n: int) -> None:
    """Packed numbers times a scale, and sums of whole numbers, in several types."""
    rows, columns = g.axes(m=m, n=n)
    scaled = g.input("W", (rows, columns), "i4") * g.input("scale", (rows,), "e8m0")
    g.output("short", scaled, "e5m2")
    whole = g.input("a", (rows, columns), "u16") + g.input("b", (rows, columns), "i16")
    g.output("wrapped", whole, "u16")
    g.output("wide", g.input("c", (rows, columns), "u32") + whole, "u32")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, code_cache: Path) -> Path:
    folder = tmp_path_factory.mktemp("types") / "out"
    backend = get_backend("cpu")
    program, hardware = many_types.build(m=5, n=14), backend.hardware(1)
    space = backend.space(program, hardware)
    schedule = space.schedule(space.seed_rows(np.random.default_rng(0))[0])
    export(backend.lower(program, schedule, hardware, full=True), {}, folder, cache_dir=code_cache)
    return folder


def module_of(folder: Path) -> Any:
    spec = importlib.util.spec_from_file_location("types_export", folder / "many_types.py")
    assert spec
    assert spec.loader
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_the_module_computes_what_the_oracle_says(folder: Path) -> None:
    program = many_types.build(m=5, n=14)
    inputs = random_inputs(program, np.random.default_rng(0))
    wanted = evaluate(program, inputs)
    results = module_of(folder).many_types(*inputs.values())
    assert [result.dtype for result in results] == [np.uint8, np.uint16, np.uint32]
    assert np.array_equal(results[0], from_float(wanted["short"], "e5m2"))
    for result, name in zip(results[1:], ("wrapped", "wide"), strict=True):
        assert np.array_equal(result.astype(np.int64), wanted[name])


def test_what_the_arguments_are_is_said(folder: Path) -> None:
    header = (folder / "many_types.h").read_text()
    assert "W: input, u8 of packed i4, 5 x 7" in header
    assert "scale: input, e8m0, as bit patterns, 5" in header
    for parameter in (
        "const uint16_t *a",
        "const int16_t *b",
        "const uint32_t *c",
        "uint32_t *wide",
    ):
        assert parameter in header
    inputs = random_inputs(many_types.build(m=5, n=14), np.random.default_rng(0))
    wrong = {**inputs, "scale": inputs["scale"].astype(np.float32)}
    with pytest.raises(TypeError, match="float8_e8m0fnu or, as bit patterns, uint8"):
        module_of(folder).many_types(*wrong.values())
