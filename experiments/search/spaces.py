"""The recorded spaces: which operator, what is free, and which of them settings were tuned on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from explorer.workload import Workload
from ir.space import Space

HERE = Path(__file__).parent
FOLDER = HERE / "spaces"
THREADS = 2


@dataclass(frozen=True, slots=True)
class Case:
    """`free` decisions vary; the others have the value of the space's first seed.

    Settings may be tuned on spaces that are not `held_out`, and on no others.
    """

    name: str
    operator: str
    arguments: dict[str, Any]
    free: tuple[str, ...]
    held_out: bool

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.jsonl.xz"

    @property
    def workload(self) -> Workload:
        return Workload.of(self.operator, self.arguments, "cpu", THREADS)

    def space(self) -> Space:
        """The space of this machine with all but the free decisions pinned."""
        workload = self.workload
        whole = workload.space()
        seed = whole.schedule(whole.seed_rows(np.random.default_rng(0))[0])
        return workload.space({name: v for name, v in seed.values if name not in self.free})


CASES = (
    Case(
        "matmul-registers", "matmul", {"m": 192, "n": 256, "k": 512},
        ("rows.s0", "vectors.s0", "unroll.s0", "prefetch.s0", "pack.s0.B"), False,
    ),
    Case(
        "softmax", "softmax", {"m": 1024, "n": 512},
        ("rows.s0", "vectors.s0", "vectors.s1", "vectors.s2"), False,
    ),
    Case(
        "conv2d", "conv2d", {"n": 1, "h": 28, "w": 28, "c": 32, "f": 64, "r": 3, "s": 3},
        ("tile.q.0", "tile.f.0", "rows.s0", "vectors.s0", "unroll.s0", "prefetch.s0"), False,
    ),
    Case(
        "matmul-bf16", "matmul", {"m": 256, "n": 256, "k": 256, "dtype": "bf16"},
        ("instruction.s0", "rows.s0", "vectors.s0", "pack.s0.A", "pack.s0.B", "unroll.s0"), False,
    ),
    Case(
        "matmul-blocks", "matmul", {"m": 256, "n": 384, "k": 512},
        ("tile.m.0", "tile.k.0", "rows.s0", "pack.s0.B"), True,
    ),
    Case(
        "matmul-bias-act", "matmul_bias_act", {"m": 256, "n": 384, "k": 256},
        ("tile.n.0", "rows.s0", "vectors.s0", "prefetch.s0"), True,
    ),
    Case(
        "gated-mlp", "gated_mlp", {"m": 128, "n": 256, "k": 384},
        ("tile.k.0", "rows.s0", "vectors.s0", "unroll.s0", "pack.s0.X"), True,
    ),
    Case(
        "attention", "attention", {"b": 1, "heads": 4, "sq": 128, "d": 64},
        ("rows.s0", "vectors.s0", "rows.s4", "vectors.s4"), True,
    ),
    Case(
        "layernorm", "layernorm", {"m": 1024, "n": 768},
        ("tile.m.0", "chunk", "rows.s1", "vectors.s2"), True,
    ),
    Case(
        "gaussian", "gaussian", {"n": 768, "d": 18},
        ("tile.i.0", "rows.s0", "vectors.s0", "vectors.s1"), True,
    ),
)  # fmt: skip


def case(name: str) -> Case:
    return next(case for case in CASES if case.name == name)
