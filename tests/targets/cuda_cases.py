"""Programs that the tests of the CUDA target share, and drawn schedules of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ir.program import Program
from ir.registry import load_operator
from ir.schedule import Schedule
from ir.space import Space
from ir.target import Hardware
from ir.targets.cuda.backend import CudaBackend
from ir.targets.cuda.rows.hardware import known_hardware

HARDWARE = known_hardware("h200")
BACKEND = CudaBackend()
UNSEEN = Path(__file__).with_name("unseen.py")

SMALL: tuple[tuple[str, dict[str, Any]], ...] = (
    ("matmul", {"m": 130, "n": 200, "k": 136, "dtype": "bf16", "tb": True}),
    ("matmul", {"m": 72, "n": 96, "k": 1024, "dtype": "f16", "ta": True}),
    ("matmul", {"m": 33, "n": 130, "k": 70, "dtype": "bf16"}),
    ("matmul", {"m": 64, "n": 96, "k": 128, "dtype": "i8", "tb": True, "batch": 2}),
    ("matmul", {"m": 40, "n": 24, "k": 50, "dtype": "f32"}),
    ("matmul", {"m": 96, "n": 72, "k": 64, "dtype": "tf32"}),
    ("scaled_matmul", {"m": 64, "n": 136, "k": 256}),
    ("matmul_bias_act", {"m": 130, "n": 136, "k": 128, "dtype": "bf16"}),
    ("gated_mlp", {"m": 64, "n": 136, "k": 128, "dtype": "bf16", "tb": True}),
    ("attention", {"b": 1, "heads": 4, "kv_heads": 2, "sq": 130, "d": 64, "dtype": "bf16",
                   "causal": True}),
    ("attention", {"b": 2, "heads": 2, "sq": 70, "sk": 200, "d": 80, "dtype": "f16",
                   "window": 50}),
    ("attention", {"b": 1, "heads": 2, "sq": 40, "d": 16, "dtype": "f32"}),
    ("softmax", {"m": 33, "n": 500, "dtype": "bf16"}),
    ("layernorm", {"m": 33, "n": 515, "dtype": "f16"}),
    ("rmsnorm", {"m": 20, "n": 256}),
    ("row_max", {"m": 3, "n": 1000, "dtype": "i32"}),
    ("column_sum", {"m": 333, "n": 100}),
    ("gaussian", {"n": 96, "d": 24, "expand": True}),
    ("conv2d", {"n": 2, "h": 14, "w": 14, "c": 32, "f": 48, "padding": 1, "dtype": "bf16"}),
    ("conv2d", {"n": 1, "h": 9, "w": 9, "c": 3, "f": 8, "stride": 2}),
    (f"{UNSEEN}:softcap_attention", {"h": 2, "q": 96, "k": 160, "d": 64}),
    (f"{UNSEEN}:packed_int4", {"m": 64, "n": 96, "k": 64}),
    (f"{UNSEEN}:two_layers", {"m": 64, "f": 300, "d": 300, "o": 40}),
    (f"{UNSEEN}:embedding_bag", {"b": 40, "n": 17, "e": 72, "rows": 100}),
    ("document_attention", {"b": 1, "heads": 2, "kv_heads": 1, "sq": 200, "d": 32, "documents": 6,
                            "dtype": "bf16"}),
)  # fmt: skip
NAMES = tuple(
    f"{number}-{name.rpartition(':')[2]}-{arguments.get('dtype', '')}"
    for number, (name, arguments) in enumerate(SMALL)
)


def built(name: str, arguments: dict[str, Any]) -> Program:
    return load_operator(name).build(**arguments)


def space_of(program: Program, engine: str = "", hardware: Hardware = HARDWARE) -> Space:
    """The program's space, pinned to `engine` where it is a choice."""
    space = BACKEND.space(program, hardware)
    offered = "engine" in space.names and engine in space.decision("engine").domain
    return space.pin(engine=engine) if offered else space


def drawn(
    program: Program, seed: int, seeds: int, count: int, engine: str = "",
    hardware: Hardware = HARDWARE,
) -> list[Schedule]:  # fmt: skip
    """Some of the space's seeds, and legal rows drawn from all of it."""
    space = space_of(program, engine, hardware)
    rng = np.random.default_rng(seed)
    rows = space.seed_rows(rng)
    picked = rng.permutation(len(rows))[:seeds]
    return [space.schedule(row) for row in [*rows[picked], *space.sample(rng, count)]]
