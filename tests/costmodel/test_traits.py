"""Features that carry over: one schema for all programs of a target, right where one can count."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from costmodel.dataset import Group, train
from costmodel.features import IDEAL, TRAFFIC, schema_hash, trait_names, traits
from ir.registry import load_operator
from ir.space import Space
from ir.target import Hardware, get_backend
from ir.targets.cpu.regions import traffic
from ir.targets.cuda.rows.hardware import known_hardware

FACTS = (("l1_bytes", 49152), ("l2_bytes", 2097152), ("l3_bytes", 32 << 20))
HOST = Hardware("cpu", "test", ("avx2", "avx512f", "avx512_bf16", "amx_bf16"), 2, FACTS)
MACHINES = {"cpu": HOST, "cuda": known_hardware("h200")}
UNSEEN = Path(__file__).parents[1] / "targets" / "unseen.py"
CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("matmul", {"m": 256, "n": 128, "k": 192}),
    ("matmul", {"m": 256, "n": 128, "k": 1024, "dtype": "bf16", "batch": 2}),
    ("gated_mlp", {"m": 128, "n": 256, "k": 64, "dtype": "bf16"}),
    ("attention", {"b": 1, "heads": 2, "sq": 128, "d": 64, "causal": True, "dtype": "bf16"}),
    ("conv2d", {"n": 1, "h": 14, "w": 14, "c": 16, "f": 32, "padding": 1}),
    ("softmax", {"m": 64, "n": 300}),
    ("layernorm", {"m": 64, "n": 256}),
    ("gaussian", {"n": 128, "d": 8, "expand": True}),
    ("column_max", {"m": 512, "n": 64}),
    (f"{UNSEEN}:softcap_attention", {"h": 2, "q": 64, "k": 128, "d": 64}),
    (f"{UNSEEN}:embedding_bag", {"b": 32, "n": 16, "e": 64, "rows": 100}),
)


def _space(target: str, operator: str, arguments: dict[str, Any]) -> Space:
    program = load_operator(operator).build(**arguments)
    return get_backend(target).space(program, MACHINES[target])


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_all_programs_have_one_schema(target: str) -> None:
    schemas = set()
    for operator, arguments in CASES:
        space = _space(target, operator, arguments)
        rows = space.sample(np.random.default_rng(0), 64)
        features = traits(space, rows)
        names = trait_names(space)
        assert features.shape == (64, len(names))
        assert len(set(names)) == len(names)
        assert not np.isinf(features).any(), operator
        told = features[:, [names.index(IDEAL), names.index(TRAFFIC)]]
        assert np.isfinite(told).all(), operator
        assert np.ptp(features[:, names.index(IDEAL)]) == 0
        schemas.add(schema_hash(target, names))
    assert len(schemas) == 1


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_the_estimate_is_rarely_below_what_is_possible(target: str) -> None:
    for operator, arguments in CASES:
        space = _space(target, operator, arguments)
        features = traits(space, space.sample(np.random.default_rng(0), 64))
        estimate = features[:, trait_names(space).index("total.estimate")]
        assert np.median(estimate) > -0.5, operator
        assert estimate.max() < 24, operator


def test_larger_blocks_move_less_into_a_cache_that_holds_them() -> None:
    """A product of 512^3 in blocks of b: A and B are read 512 / b times each, in closed form."""
    for block in (32.0, 64.0, 128.0):
        whole, size = 512.0, block
        # loops over m, n, then k blocks: footprints of A at depth 0 to 3, and of all operands
        a = [whole * whole, size * whole, size * whole, size * size]
        b = [whole * whole, whole * whole, whole * size, size * size]
        c = [whole * whole, size * whole, size * size, size * size]
        count = whole / size
        trips = [np.array([float(t)]) for t in (1, count, count**2, count**3)]
        sums = [np.array([4 * (x + y + z)]) for x, y, z in zip(a, b, c, strict=True)]
        for operand, wanted in ((a, count**3), (b, count**3), (c, count**2)):
            volumes = [np.array([4 * x]) for x in operand]
            moved = traffic(volumes, sums, trips, float(sums[3][0]))
            assert moved[0] == 4 * size * size * wanted
            assert traffic(volumes, sums, trips, 1e12)[0] == 4 * whole * whole


def test_options_of_block_kernels_are_told_whatever_the_program_offers() -> None:
    for operator, arguments in (
        ("rmsnorm", {"m": 64, "n": 256}),
        ("column_max", {"m": 512, "n": 64}),
    ):
        space = _space("cuda", operator, arguments)
        rows = space.sample(np.random.default_rng(0), 200)
        features, columns = traits(space, rows), space.columns(rows)
        names = trait_names(space)
        for told, name, value in (
            ("walkers", "walkers", None), ("prefetch", "prefetch", None),
            ("ahead", "ahead", None), ("parts", "parts", None), ("keep", "keep", None),
            ("loads.first", "loads", "first"), ("stores.stream", "stores", "stream"),
            ("waits.registers", "waits", "registers"),
        ):  # fmt: skip
            seen = features[:, names.index(f"kernel0.block.{told}")]
            if name not in {decision.name for decision in space.decisions}:
                assert (seen == (1 if name == "parts" else 0)).all(), (operator, told)
            else:
                wanted = columns[name] if value is None else columns.is_(name, value)
                assert (seen == wanted).all(), (operator, told)


def test_twenty_thousand_schedules_a_second_are_scored() -> None:
    space = _space("cpu", "matmul", {"m": 512, "n": 512, "k": 512})
    rows = space.sample(np.random.default_rng(0), 2048)
    features = traits(space, rows)
    estimate = features[:, trait_names(space).index("total.estimate")].astype(np.float64)
    seconds = 1.0 + np.asarray(estimate**2, dtype=np.float64)
    names = trait_names(space)
    some = [Group("matmul", str(n), "cpu", names, features[n::2], seconds[n::2]) for n in (0, 1)]
    model = train(some)
    best = np.inf
    for _ in range(3):
        began = time.process_time()
        model.score(space, rows)
        best = min(best, time.process_time() - began)
    assert len(rows) / best >= 20_000
