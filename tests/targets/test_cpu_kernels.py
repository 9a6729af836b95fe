"""Kernels of drawn schedules, compiled and checked against the oracle in worker processes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from explorer.measure import Measurer
from ir.registry import load_operator
from ir.target import get_backend
from tests.few import draws, few_rows

CASES: tuple[tuple[str, dict[str, object]], ...] = (
    ("matmul", {"m": 37, "n": 53, "k": 41}),
    ("matmul", {"m": 60, "n": 70, "k": 96, "batch": 3, "ta": True}),
    ("matmul", {"m": 33, "n": 130, "k": 70, "dtype": "bf16", "tb": True, "out": "f32"}),
    ("matmul", {"m": 128, "n": 96, "k": 128, "dtype": "bf16"}),
    ("matmul", {"m": 65, "n": 128, "k": 192, "dtype": "i8", "tb": True}),
    ("matmul", {"m": 1, "n": 200, "k": 300}),
    ("matmul_bias_act", {"m": 70, "n": 90, "k": 200}),
    ("gated_mlp", {"m": 70, "n": 90, "k": 200, "dtype": "bf16"}),
    ("softmax", {"m": 70, "n": 300}),
    ("layernorm", {"m": 70, "n": 300}),
    ("rmsnorm", {"m": 35, "n": 77}),
    ("row_max", {"m": 70, "n": 300}),
    ("column_sum", {"m": 70, "n": 300}),
    ("attention", {"b": 1, "heads": 2, "sq": 70, "d": 32}),
    (
        "attention",
        {"b": 1, "heads": 4, "kv_heads": 2, "sq": 130, "d": 64, "causal": True, "dtype": "bf16"},
    ),
    ("attention", {"b": 2, "heads": 2, "sq": 130, "d": 64, "window": 20, "causal": True}),
    ("gaussian", {"n": 150, "d": 5}),
    ("gaussian", {"n": 150, "d": 5, "expand": True}),
    ("conv2d", {"n": 1, "h": 14, "w": 13, "c": 16, "f": 32, "padding": 1}),
    ("conv2d", {"n": 2, "h": 14, "w": 13, "c": 8, "f": 24, "stride": 2}),
)
UNSEEN: tuple[tuple[str, dict[str, object]], ...] = (
    ("embedding_bag", {"b": 17, "n": 9, "e": 50, "rows": 30}),
    ("softcap_attention", {"h": 2, "q": 60, "k": 90, "d": 32}),
    ("logsumexp", {"m": 13, "n": 100}),
    ("two_layers", {"m": 30, "f": 70, "d": 40, "o": 50}),
    ("packed_int4", {"m": 20, "n": 33, "k": 40}),
    ("matmul_f64", {"m": 33, "n": 45, "k": 29}),
    ("gate_and_up", {"m": 30, "n": 50, "k": 40}),
    ("divergence", {"m": 13, "n": 300}),
    ("three_sums", {"m": 50, "n": 70}),
    ("turned", {"a": 7, "b": 12, "c": 20}),
    ("experts", {"blocks": 3, "m": 16, "n": 48, "k": 48}),
    ("read_windows", {"m": 21, "t": 40, "d": 50}),
    ("read_tails", {"m": 64, "t": 3, "d": 50}),
    ("centres", {"b": 20, "h": 31, "w": 33}),
)


@pytest.fixture(scope="module")
def cache(code_cache: Path) -> Path:
    return code_cache


def measure(
    spec: str,
    arguments: dict[str, object],
    cache: Path,
    count: int,
    pins: dict[str, object] | None = None,
) -> list[str]:
    backend = get_backend("cpu")
    hardware = backend.hardware(2)
    program = load_operator(spec).build(**arguments)
    space = backend.space(program, hardware).pin(pins or {})
    rng = np.random.default_rng(len(str(arguments)))
    rows = [*space.seed_rows(rng)[:3], *space.sample(rng, count)]
    schedules = [space.schedule(row) for row in rows]
    with Measurer(program, "cpu", hardware, cache_dir=cache) as measurer:
        outcomes = list(measurer.measure(schedules))
    return [
        f"{o.status} {o.detail} {s.to_json()}"
        for o, s in zip(outcomes, schedules, strict=True)
        if not o.ok
    ]


@pytest.mark.parametrize(
    ("spec", "arguments"),
    few_rows(CASES, (1, 2, 4, 5, 6, 7, 8, 12, 14, 15, 17, 18)),
    ids=lambda value: str(value)[:60],
)
@pytest.mark.alike(2)
def test_drawn_schedules_are_right(spec: str, arguments: dict[str, object], cache: Path) -> None:
    assert measure(spec, arguments, cache, 1) == []


@pytest.mark.parametrize(("name", "arguments"), few_rows(UNSEEN, (0, 1, 3, 4, 5, 7, 8, 9, 11, 13)))
@draws(2, 5)
@pytest.mark.alike(2)
def test_an_unseen_operator_needs_no_edit(
    name: str, arguments: dict[str, object], cache: Path, count: int
) -> None:
    file = Path(__file__).with_name("unseen.py")
    assert measure(f"{file}:{name}", arguments, cache, count) == []


SPLITS: tuple[tuple[str, dict[str, object], str], ...] = (
    ("matmul", {"m": 20, "n": 40, "k": 2048}, "k:2"),
    ("row_sum", {"m": 3, "n": 4096}, "n:4"),
    ("attention", {"b": 1, "heads": 1, "sq": 33, "sk": 1024, "d": 32, "dtype": "bf16"}, "sk:2"),
)


@pytest.mark.parametrize(("spec", "arguments", "choice"), SPLITS, ids=lambda value: str(value)[:40])
@pytest.mark.alike(2)
def test_split_reductions_are_right(
    spec: str, arguments: dict[str, object], choice: str, cache: Path
) -> None:
    assert measure(spec, arguments, cache, 4, {"split": choice}) == []


@pytest.mark.parametrize("pins", [
    {"lane.s0": "n", "pack.s0.W": "1"},
    {"lane.s0": "m", "pack.s0.W": "0"},
    {"lane.s0": "b", "row.s0": "m", "pack.s0.X": "1"},
    {"lane.s0": "b", "row.s0": "n", "pack.s0.W": "2"},
], ids=str)  # fmt: skip
@pytest.mark.alike(2)
def test_looked_up_and_batched_operands_are_packed(pins: dict[str, object], cache: Path) -> None:
    file = Path(__file__).with_name("unseen.py")
    arguments: dict[str, object] = {"blocks": 3, "m": 16, "n": 48, "k": 48}
    assert measure(f"{file}:experts", arguments, cache, 3, pins) == []


def test_a_factor_along_an_outer_sum_alone_is_read_in_place(cache: Path) -> None:
    """A panel is of points along the lanes or the innermost sum."""
    file = Path(__file__).with_name("unseen.py")
    arguments: dict[str, object] = {"b": 20, "h": 31, "w": 33}
    assert measure(f"{file}:centres", arguments, cache, 12, {"lane.s0": "b"}) == []


needs_tiles = pytest.mark.skipif(
    "amx" not in " ".join(get_backend("cpu").hardware(1).isa), reason="no matrix-tile unit here"
)


@needs_tiles
@pytest.mark.parametrize("k", [48, 80, 208])
def test_a_sum_that_ends_inside_a_tile_of_whole_vectors(k: int, cache: Path) -> None:
    """Both operands are zero beyond it: what else lay in their panels may be NaN."""
    pins = {"instruction.s0": "tdpbf16ps", "pack.s0.A": "1", "rows.s0": 1}
    arguments: dict[str, object] = {"m": 64, "n": 64, "k": k, "dtype": "bf16"}
    assert measure("matmul", arguments, cache, 5, pins) == []


def test_one_thread(cache: Path) -> None:
    backend = get_backend("cpu")
    hardware = backend.hardware(1)
    program = load_operator("softmax").build(m=9, n=130)
    space = backend.space(program, hardware)
    rng = np.random.default_rng(0)
    schedules = [space.schedule(row) for row in space.sample(rng, 4)]
    with Measurer(program, "cpu", hardware, cache_dir=cache) as measurer:
        assert all(outcome.ok for outcome in measurer.measure(schedules))


def test_a_loop_ends_where_a_tensor_says() -> None:
    """Where what lanes have of it differs, it goes as far as the longest of them."""
    backend = get_backend("cpu")
    hardware = backend.hardware(1)
    program = load_operator("padded_embedding_bag").build(m=12, bag=40, rows=30, d=64)
    space = backend.space(program, hardware)

    def text(lane: str) -> str:
        own = space.pin({"lane.s0": lane, "row.s0": "", "rows.s0": 1, "vectors.s0": 1})
        schedule = own.schedule(own.sample(np.random.default_rng(0), 1)[0])
        return backend.lower(program, schedule, hardware, full=True).text("c")

    for lane, told in (("m", True), ("d", False)):
        bounded = text(lane)
        assert not re.search(r"\bt\w* < 40;", bounded)
        assert re.search(r"\bt\w* < min_i64\(40, ", bounded)
        assert ("= max_of_v" in bounded) == told
