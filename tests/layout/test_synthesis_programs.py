"""Programs of operators as synthesis problems: what comes over, and what has no tile form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from explorer.layouts.explain import explain_operator
from ir.blocks import Scheduling, from_program
from ir.builder import Graph
from ir.errors import UsageError
from ir.layout.errors import LayoutError
from ir.layout.synthesis import synthesise
from ir.registry import load_operator
from tests.layout.checker import check
from tests.layout.plain import as_data

Facts = Mapping[str, Any]

CASES: tuple[tuple[str, Facts, Facts, Facts], ...] = (
    ("matmul", {"m": 512, "n": 512, "k": 512, "dtype": "bf16"}, {"m": 64, "n": 64, "k": 64}, {}),
    (
        "matmul",
        {"m": 512, "n": 512, "k": 512, "dtype": "f16", "tb": True},
        {"m": 64, "n": 32, "k": 32},
        {"family": "mma"},
    ),
    (
        "matmul",
        {"m": 512, "n": 512, "k": 512, "dtype": "bf16", "batch": 4},
        {"m": 64, "n": 64, "k": 32},
        {"epilogue": "staged"},
    ),
    (
        "matmul_bias_act",
        {"m": 512, "n": 512, "k": 512, "dtype": "bf16"},
        {"m": 64, "n": 64, "k": 64},
        {"epilogue": "staged"},
    ),
    (
        "gated_mlp",
        {"m": 256, "n": 256, "k": 256, "dtype": "bf16"},
        {"m": 64, "n": 32, "k": 32},
        {},
    ),
    (
        "attention",
        {"b": 2, "heads": 2, "sq": 128, "d": 64, "dtype": "bf16"},
        {"sq": 64, "sk": 64},
        {},
    ),
    (
        "attention",
        {"b": 1, "heads": 2, "sq": 128, "d": 64, "dtype": "f16"},
        {"sq": 64, "sk": 32},
        {"family": "mma"},
    ),
    ("row_sum", {"m": 256, "n": 1024}, {"m": 4, "n": 1024}, {}),
    ("column_max", {"m": 256, "n": 256}, {"m": 64, "n": 32}, {}),
    ("softmax", {"m": 64, "n": 512}, {"m": 4, "n": 512}, {}),
    ("rmsnorm", {"m": 64, "n": 512}, {"m": 4, "n": 512}, {}),
    ("layernorm", {"m": 64, "n": 512}, {"m": 4, "n": 512}, {}),
)
IDS = [f"{name}-{number}" for number, (name, *_) in enumerate(CASES)]


@pytest.mark.parametrize(("name", "arguments", "tiles", "facts"), CASES, ids=IDS)
def test_operators_come_over_and_their_solutions_are_right(
    name: str, arguments: Facts, tiles: Facts, facts: Facts
) -> None:
    program = load_operator(name).build(**arguments)
    problem = from_program(program, Scheduling(tiles, **facts))
    solution = synthesise(problem, limit=1)[0]
    found = check(problem, as_data(solution))
    assert not found, str(found)


def test_attention_needs_no_conversion() -> None:
    program = load_operator("attention").build(b=1, heads=1, sq=128, d=64, dtype="bf16")
    problem = from_program(program, Scheduling({"sq": 64, "sk": 64}))
    assert synthesise(problem, limit=1)[0].conversions == ()


def test_alignment_follows_from_the_distance_between_blocks() -> None:
    program = load_operator("matmul").build(m=60, n=60, k=60, dtype="bf16")
    problem = from_program(program, Scheduling({"m": 60, "n": 20, "k": 60}, family="mma"))
    alignments = {tile.name: tile.alignment for tile in problem.tiles if tile.scope == "global"}
    assert alignments == {"A_g": 256, "B_g": 8, "C_g": 8}  # 20 columns are 40 bytes apart


@pytest.mark.parametrize(
    ("name", "arguments", "scheduling", "code", "numbers"),
    [
        ("matmul", {"m": 64, "n": 64, "k": 64}, Scheduling({"m": 48}), "tile-size", ("48", "64")),
        ("matmul", {"m": 64, "n": 64, "k": 64}, Scheduling({"q": 8}), "unknown-axis", ("q", "m")),
        (
            "matmul",
            {"m": 64, "n": 64, "k": 64},
            Scheduling({}, family="fma"),
            "unknown-family",
            ("fma", "wgmma"),
        ),
        (
            "matmul",
            {"m": 64, "n": 64, "k": 64},
            Scheduling({}, epilogue="none"),
            "unknown-epilogue",
            ("none", "staged"),
        ),
        (
            "attention",
            {"b": 1, "heads": 1, "sq": 64, "d": 64, "causal": True},
            Scheduling({}),
            "unsupported-op",
            ("iota",),
        ),
        ("matmul", {"m": 64, "n": 64, "k": 64}, Scheduling({"n": 1}), "unsupported-op", ("m", "k")),
    ],
)
def test_what_has_no_tile_form_is_refused(
    name: str, arguments: Facts, scheduling: Scheduling, code: str, numbers: tuple[str, ...]
) -> None:
    program = load_operator(name).build(**arguments)
    with pytest.raises(LayoutError) as caught:
        from_program(program, scheduling)
    assert caught.value.code == code, str(caught.value)
    for number in numbers:
        assert number in str(caught.value)


def test_a_tensor_without_axes_has_no_tile_form() -> None:
    graph = Graph("scaled")
    m = graph.axis("m", 256)
    graph.output("Y", graph.input("X", (m,), "f32") * graph.input("s", (), "f32"), "f32", (m,))
    with pytest.raises(LayoutError, match="s is a single element") as caught:
        from_program(graph.program(), Scheduling({"m": 256}))
    assert caught.value.code == "unsupported-op"


def test_an_operator_is_explained_by_name() -> None:
    arguments = {"m": "256", "n": "256", "k": "256", "dtype": "bf16"}
    told = explain_operator("matmul", arguments, {"m": 64, "n": 64, "k": 64})
    assert "wgmma.m64n64k16.bf16.ss" in told
    assert "A_s: shared bf16" in told
    assert told == explain_operator("matmul", arguments, {"m": 64, "n": 64, "k": 64})
    two = explain_operator("matmul", arguments, {"m": 64, "n": 64, "k": 64}, number=2)
    assert (told.count("cycles predicted"), two.count("cycles predicted")) == (1, 2)


def test_an_unknown_operator_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="matmull"):
        explain_operator("matmull", {}, {})
