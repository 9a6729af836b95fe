"""Plain kernels on CUDA in pieces, shared out, or all at once: emulated and compiled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer.runtime import nvrtc
from ir.errors import MissingTarget
from ir.inputs import random_inputs
from ir.program import Program
from ir.registry import load_operator
from ir.schedule import Schedule
from tests.emulator.emulate import compiler
from tests.few import by_turns
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++)")
PHASED = Path(__file__).with_name("phased.py")


def built(name: str, **arguments: Any) -> Program:
    return load_operator(f"{PHASED}:{name}").build(**arguments)


def pinned(program: Program, pins: dict[str, Any]) -> Schedule:
    space = BACKEND.space(program, HARDWARE)
    return space.schedule(space.pin(pins).sample(np.random.default_rng(0), 1)[0])


def check(program: Program, inputs: Any, *ways: dict[str, Any]) -> None:
    inputs = random_inputs(program, np.random.default_rng(1)) if inputs is None else inputs
    wanted = bounds_of(program, inputs)
    for number, pins in enumerate(ways):
        kernel = BACKEND.lower(program, pinned(program, pins), HARDWARE)
        assert not problems(program, kernel, inputs, wanted, (0, 15)[number % 2]), pins


SEGMENTS: tuple[tuple[dict[str, Any], tuple[dict[str, Any], ...]], ...] = (
    ({"m": 301, "d": 5, "rows": 4}, ({"pieces": 8}, {"pieces": 1})),
    ({"m": 301, "d": 2, "rows": 3, "kind": "max"}, ({"atomic": True}, {"pieces": 8})),
    ({"m": 150, "d": 3, "rows": 3, "kind": "min", "dtype": "i64"},
     ({"atomic": True, "pieces": 8},)),
    ({"m": 150, "d": 1, "rows": 3, "kind": "or"}, ({"atomic": True, "pieces": 1},)),
    ({"m": 150, "d": 2, "rows": 3, "kind": "min", "dtype": "f64"}, ({"atomic": True},)),
    ({"m": 131, "d": 2, "rows": 5000}, ({"owners": 4096, "pieces": 8}, {"ordered": True})),
    ({"m": 301, "d": 2, "rows": 3, "kind": "max"},
     ({"atomic": True, "shared": True, "pieces": 8}, {"atomic": True, "shared": True})),
    ({"m": 150, "d": 3, "rows": 3, "kind": "min", "dtype": "i64"},
     ({"atomic": True, "shared": True, "threads": 32},)),
    ({"m": 301, "d": 3, "rows": 5},
     ({"private": True, "pieces": 8, "threads": 64}, {"private": True, "pieces": 1})),
    ({"m": 301, "d": 67, "rows": 40}, ({"ordered": True, "threads": 64},)),
    ({"m": 300, "d": 1, "rows": 2}, ({"ordered": True}, {"ordered": True, "early": False})),
    ({"m": 150, "d": 1, "rows": 3, "kind": "or"}, ({"ordered": True},)),
    ({"m": 150, "d": 2, "rows": 3, "kind": "max", "dtype": "f64"}, ({"ordered": True},)),
)  # fmt: skip


@needs_compiler
@pytest.mark.parametrize(("arguments", "ways"), SEGMENTS, ids=lambda value: str(value)[:60])
@pytest.mark.alike(2)
def test_rows_sent_to_a_few(arguments: dict[str, Any], ways: tuple[dict[str, Any], ...]) -> None:
    check(built("segments", **arguments), None, *ways)


@needs_compiler
def test_many_pieces_are_merged_by_blocks() -> None:
    """More pieces than a thread should go through: the merge is a fold that a block shares."""
    program = built("segments", m=2100, d=1, rows=3)
    pins = {"pieces": 128, "threads": 64, "private": False}
    schedule = pinned(program, pins)
    plan = json.loads(dict(BACKEND.lower(program, schedule, HARDWARE).texts)["launch"])
    assert [kernel["grid"][0] for kernel in plan["kernels"]] == [2, 3]
    check(program, None, pins)


@needs_compiler
def test_nan_stays_whatever_comes_after() -> None:
    program = built("segments", m=160, d=1, rows=2, kind="max")
    inputs = dict(random_inputs(program, np.random.default_rng(0)))
    inputs["X"] = np.linspace(-3, 3, 160).astype(np.float32)[:, None]
    inputs["X"][5] = -np.nan
    inputs["I"] = np.arange(160, dtype=np.int32) % 2
    check(program, inputs, {"atomic": True}, {"atomic": True, "pieces": 1})


@needs_compiler
def test_counts_and_what_is_made_of_them() -> None:
    program = built("counted", n=1031, bins=9)
    check(program, None, {"atomic.0": True, "pieces.0": 32}, {"atomic.0": False, "pieces.0": 8},
          {"atomic.0": True, "shared.0": True, "pieces.0": 8})  # fmt: skip


def test_blocks_combine_before_where_many_meet() -> None:
    program = load_operator("histogram").build(m=256, n=150528, bins=256, dtype="u8")
    space = BACKEND.space(program, HARDWARE)
    schedule = space.schedule(space.seed_rows(np.random.default_rng(0))[0])
    assert (schedule["atomic"], schedule["shared"]) == (True, True)
    rule = next(rule for rule in space.constraints if rule.name == "shared")
    assert rule.explain({"shared": True, "atomic": False}) == "shared=True with atomic=False"


def test_parts_have_room() -> None:
    space = BACKEND.space(built("segments", m=1 << 20, d=512, rows=1 << 20), HARDWARE)
    rows = space.sample(np.random.default_rng(0), 50)
    assert max(space.columns(rows)["pieces"]) == 1
    (rule,) = (rule for rule in space.constraints if rule.name == "pieces")
    assert "8 pieces take 17,179,869,184 bytes" in rule.explain({"pieces": 8})


def test_nobody_owns_what_is_combined_at_once() -> None:
    space = BACKEND.space(built("segments", m=1 << 16, d=1, rows=9999, kind="max"), HARDWARE)
    columns = space.columns(space.sample(np.random.default_rng(0), 200))
    assert set(columns["owners"][columns.is_("atomic", True)]) == {1}
    assert len(set(columns["owners"])) > 1


def test_few_points_are_estimated_to_be_slow() -> None:
    """What goes through all by few threads comes behind what is cut."""
    program = built("segments", m=1 << 20, d=4, rows=1000)
    space = BACKEND.space(program, HARDWARE)
    assert space.features is not None
    rows = [space.pin({"owners": 1, "pieces": count, "threads": 128, "early": True,
                       "ordered": False, "atomic": False})
            .sample(np.random.default_rng(0), 1)[0] for count in (1, 32, 2048)]  # fmt: skip
    names, found = space.features(space.columns(np.stack(rows)))
    estimate = found[:, names.index("total.estimate")]
    assert space.features(space.columns(np.stack(rows)[:0]))[1].shape == (0, len(names))
    assert list(np.argsort(-estimate)) == [0, 1, 2]
    parts = found[:, names.index("kernel0.block.parts")]
    assert list(parts) == [0, 5, 11]
    seeds = [space.schedule(row) for row in space.seed_rows(np.random.default_rng(0))]
    for way in ("ordered", "atomic"):
        assert {bool(seed[way]) for seed in seeds} == {False, True}
    assert max(int(seed["pieces"]) for seed in seeds) > 32


@needs_compiler
def test_what_is_in_order_stays_where_it_is() -> None:
    """Of ascending places nothing is moved, and the same comes out."""
    program = built("segments", m=301, d=3, rows=7)
    inputs = dict(random_inputs(program, np.random.default_rng(1)))
    inputs["I"] = np.sort(inputs["I"])
    check(program, inputs, {"ordered": True}, {"ordered": True, "threads": 32})


def test_what_is_in_order_is_cut_no_further() -> None:
    space = BACKEND.space(built("segments", m=1 << 16, d=1, rows=9999), HARDWARE)
    columns = space.columns(space.sample(np.random.default_rng(0), 200))
    here = columns.is_("ordered", True)
    assert set(columns["owners"][here]) == {1} == set(columns["pieces"][here])
    rule = next(rule for rule in space.constraints if rule.name == "ordered")
    said = {"ordered": True, "owners": 4096, "pieces": 8, "atomic": False}
    assert "owners=4096" in rule.explain(said)


def test_what_workers_combine_is_cut_into_pieces_alone() -> None:
    program = load_operator("weighted_histogram").build(n=1 << 24, bins=256)
    space = BACKEND.space(program, HARDWARE)
    columns = space.columns(space.sample(np.random.default_rng(0), 200))
    here = columns.is_("private", True)
    assert set(columns["owners"][here]) == {1}
    assert len(set(columns["pieces"][here])) > 2
    same = space.pin(atomic=False)  # in every run
    seeds = [same.schedule(row) for row in same.seed_rows(np.random.default_rng(0))[:3]]
    assert any(seed["private"] for seed in seeds)


def test_what_goes_to_many_places_is_put_in_order_first() -> None:
    """Whatever anybody owns, it would have to go through all that is sent."""
    for arguments in (
        {"m": 2449029, "d": 100, "rows": 61859},
        {"m": 8192, "d": 4096, "rows": 128256},
    ):
        space = BACKEND.space(built("segments", **arguments), HARDWARE)
        schedule = space.schedule(space.seed_rows(np.random.default_rng(0))[0])
        assert schedule["ordered"] is True


@pytest.mark.parametrize(
    ("pins", "dtype"),
    by_turns(
        [
            {"pieces": 128, "atomic": False},
            {"atomic": True},
            {"ordered": True},
            {"atomic": True, "shared": True},
            {"private": True, "pieces": 32},
        ],
        ["f32", "f64", "i64"],
    ),
)
@pytest.mark.alike(2)
def test_pieces_compile(pins: dict[str, Any], dtype: str) -> None:
    try:
        nvrtc.version()
    except MissingTarget as missing:
        pytest.skip(str(missing))
    program = built("segments", m=10000, d=3, rows=99, kind="max", dtype=dtype)
    kernel = BACKEND.lower(program, pinned(program, pins), HARDWARE)
    code, _ = nvrtc.compile_text(dict(kernel.texts)["cuda"], "sm_90a", ())
    assert code


# --- folds ----------------------------------------------------------------------------------------

FOLDS: tuple[tuple[dict[str, Any], tuple[dict[str, Any], ...]], ...] = (
    ({"m": 1, "n": 1100}, (
        {"pieces.0": 8, "fold.0": "block", "threads.0": 64, "run.0": 2,
         "pieces.1": 8, "fold.1": "block", "threads.1": 32},
        {"pieces.0": 8, "fold.0": "thread", "pieces.1": 8, "fold.1": "thread"},
    )),
    ({"m": 2, "n": 1031, "backward": True},
     ({"pieces.0": 8, "fold.0": "block", "threads.0": 32, "pieces.1": 1},)),
)  # fmt: skip


@needs_compiler
@pytest.mark.parametrize(("arguments", "ways"), FOLDS, ids=lambda value: str(value)[:60])
def test_long_rows_in_pieces(arguments: dict[str, Any], ways: tuple[dict[str, Any], ...]) -> None:
    check(built("rows", **arguments), None, *ways)


@needs_compiler
def test_a_recurrence_in_pieces() -> None:
    """A merge that does not commute, of two states."""
    program = load_operator("linear_recurrence").build(b=1, t=600, d=2)
    check(program, None, {"pieces": 8, "fold": "thread"}, {"pieces": 8, "fold": "block"})


def test_a_row_of_millions_has_blocks_for_all_processors() -> None:
    program = load_operator("scan").build(m=1, n=1 << 24)
    space = BACKEND.space(program, HARDWARE)
    schedule = space.schedule(space.seed_rows(np.random.default_rng(0))[0])
    plan = json.loads(dict(BACKEND.lower(program, schedule, HARDWARE).texts)["launch"])
    first, totals, last = (kernel["grid"][0] for kernel in plan["kernels"])
    assert min(first, last) >= int(HARDWARE["sms"])
    assert totals == 1
    rows = BACKEND.space(load_operator("scan").build(m=16384, n=8192), HARDWARE)
    assert "pieces" not in rows.names


@needs_compiler
def test_the_top_of_a_long_row_in_pieces() -> None:
    program = load_operator("top_k").build(m=2, n=1031, k=5)
    check(program, None, {"pieces": 8, "shared": False}, {"pieces": 1, "shared": False})


TOPS: tuple[tuple[dict[str, Any], tuple[dict[str, Any], ...]], ...] = (
    ({"m": 2, "n": 1031, "k": 5},
     ({"shared": True, "pieces": 8, "threads": 64}, {"shared": True, "pieces": 1, "threads": 128})),
    ({"m": 3, "n": 2600, "k": 7, "least": True}, ({"shared": True, "pieces": 1, "threads": 256},)),
    ({"m": 2, "n": 300, "k": 300, "dtype": "i32"}, ({"shared": True, "threads": 32},)),
    ({"m": 3, "n": 128, "k": 128, "least": True}, ({"shared": True, "threads": 64},)),
    ({"m": 2, "n": 37, "k": 3, "dtype": "bf16"}, ({"shared": True, "threads": 512},)),
    ({"m": 2, "n": 1, "k": 1}, ({"shared": True},)),
    ({"m": 2, "n": 4100, "k": 700}, ({"ordered": True, "threads": 64},)),
)  # fmt: skip


@needs_compiler
@pytest.mark.parametrize(("arguments", "ways"), TOPS, ids=lambda value: str(value)[:60])
@pytest.mark.alike(2)
def test_rows_that_blocks_search(
    arguments: dict[str, Any], ways: tuple[dict[str, Any], ...]
) -> None:
    check(load_operator("top_k").build(**arguments), None, *ways)


@needs_compiler
def test_equals_and_what_is_no_number_in_blocks() -> None:
    program = load_operator("top_k").build(m=2, n=1500, k=600)
    inputs = dict(random_inputs(program, np.random.default_rng(0)))
    inputs["X"] = np.round(inputs["X"])
    inputs["X"][0, ::7] = np.nan
    inputs["X"][1, ::5] = np.inf
    check(program, inputs, {"shared": True, "threads": 128})


def test_long_rows_are_searched_by_blocks_first() -> None:
    for m, n, k in ((4096, 4096, 4096), (256, 128256, 50), (320, 128, 6), (32768, 65536, 1024)):
        space = BACKEND.space(load_operator("top_k").build(m=m, n=n, k=k), HARDWARE)
        assert space.schedule(space.seed_rows(np.random.default_rng(0))[0])["shared"] is True
    long = BACKEND.space(load_operator("sort_rows").build(m=1, n=1 << 24), HARDWARE)
    assert long.schedule(long.seed_rows(np.random.default_rng(0))[0])["ordered"] is True
    many = BACKEND.space(load_operator("top_k").build(m=1 << 20, n=16, k=2), HARDWARE)
    assert many.schedule(many.seed_rows(np.random.default_rng(0))[0])["shared"] is False


@pytest.mark.parametrize(("n", "k"), [(4096, 4096), (128256, 50)])
def test_searches_compile(n: int, k: int) -> None:
    try:
        nvrtc.version()
    except MissingTarget as missing:
        pytest.skip(str(missing))
    program = load_operator("top_k").build(m=64, n=n, k=k)
    kernel = BACKEND.lower(program, pinned(program, {"shared": True, "threads": 256}), HARDWARE)
    code, _ = nvrtc.compile_text(dict(kernel.texts)["cuda"], "sm_90a", ())
    assert code
