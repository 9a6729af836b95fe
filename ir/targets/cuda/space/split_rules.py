"""What must hold of schedules that split a sum: vectorised checks, and words for one schedule."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from ir.columns import Columns
from ir.program import Program
from ir.schedule import Value
from ir.space import Constraint
from ir.targets.cuda.space.splits import KERNEL, MERGE, TURNSTILE, WHOLE
from ir.targets.cuda.space.tensor_tiles import CLUSTERS


def whole_parts(program: Program, choices: tuple[str, ...]) -> Constraint:
    axis = choices[1].partition(":")[0]
    extent, name = program.axes[axis], f"tile.{axis}"
    points = {c: extent // int(c.partition(":")[2]) for c in choices if c != WHOLE}

    def check(columns: Columns) -> Any:
        part = columns.lookup("split", {**points, WHOLE: 0}).astype(np.int64)
        return part % columns.get(name, 1) == 0

    def explain(values: Mapping[str, Value]) -> str:
        return f"{values['split']} of {extent} points in blocks of {values.get(name, 1)}"

    return Constraint("parts", "parts of a sum are whole blocks", check, explain)


def merged_once() -> Constraint:
    def check(columns: Columns) -> Any:
        return ~columns.is_("split", WHOLE) | columns.is_(MERGE, KERNEL)

    def explain(values: Mapping[str, Value]) -> str:
        return f"split {values['split']}, merge {values[MERGE]}"

    return Constraint("merge", "a sum in one part is not merged", check, explain)


def merged_inside() -> Constraint:
    def check(columns: Columns) -> Any:
        return columns.is_("split", WHOLE) | ~columns.is_(MERGE, KERNEL)

    def explain(values: Mapping[str, Value]) -> str:
        return f"split {values['split']}, merge {values[MERGE]}"

    needs = "parts that no kernel of this kind leaves in memory are added by its blocks"
    return Constraint("inside", needs, check, explain)


def parts_in_a_wave(choices: tuple[str, ...]) -> Constraint:
    """What waits for the part before it must not wait for a cluster that is not launched yet."""
    parts = {choice: int(choice.partition(":")[2]) for choice in choices if choice != WHOLE}
    sizes = {name: prod(map(int, name.split("x"))) for name in CLUSTERS}

    def check(columns: Columns) -> Any:
        processors = columns["processors"]
        need = columns.lookup("split", parts) * columns.lookup("cluster", sizes)
        return ~columns.is_(MERGE, TURNSTILE) | (processors == 0) | (need <= processors)

    def explain(values: Mapping[str, Value]) -> str:
        size = sizes[str(values["cluster"])]
        return (
            f"split {values['split']} in clusters of {size}: {parts[str(values['split'])] * size} "
            f"blocks wait for each other, {values['processors']} run at a time"
        )

    needs = "a wave has room for all parts of a tile that wait for each other"
    return Constraint("turnstile", needs, check, explain)
