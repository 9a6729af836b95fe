"""Which merges take many values at once: an extreme, and sums relative to it."""

from __future__ import annotations

import pytest

from ir.merges import NAMED, merge_of
from ir.plain.scaled import Scaled, scaled_of

MOST = "max(a0, b0)"
SUM = f"add(mul(a1, exp(sub(a0, {MOST}))), mul(b1, exp(sub(b0, {MOST}))))"
TURNED = f"add(mul(exp(sub(b0, {MOST})), b1), mul(exp(sub(a0, {MOST})), a1))"
LEAST = "min(a0, b0)"
FALLING = f"add(mul(a1, exp(sub({LEAST}, a0))), mul(b1, exp(sub({LEAST}, b0))))"


@pytest.mark.parametrize(("merge", "wanted"), [
    (f"({MOST}, {SUM})", Scaled(0, "max")),
    (f"({MOST}, {TURNED})", Scaled(0, "max")),
    (f"({MOST}, {SUM}, {SUM.replace('a1', 'a2').replace('b1', 'b2')})", Scaled(0, "max")),
    (f"({LEAST}, {FALLING})", Scaled(0, "min")),
])  # fmt: skip
def test_sums_beside_an_extreme(merge: str, wanted: Scaled) -> None:
    assert scaled_of(merge_of(merge)) == wanted


@pytest.mark.parametrize("merge", [
    NAMED["sum"], NAMED["max"], NAMED["affine"], NAMED["argmax"],
    f"({LEAST}, {SUM.replace(MOST, LEAST)})",  # may overflow
    f"({MOST}, {SUM.replace('mul(b1', 'mul(a1')})",
    f"({MOST}, {SUM.replace('add', 'sub', 1)})",
    f"({MOST}, add(a1, b1))",
    f"({MOST}, {SUM.replace('sub(a0', 'sub(b0')})",
])  # fmt: skip
def test_other_merges(merge: str) -> None:
    assert scaled_of(merge_of(merge)) is None
