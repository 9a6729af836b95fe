"""Long sums of one result as folds: the same numbers, of several loops or of a single one."""

from __future__ import annotations

import numpy as np
import pytest

from ir.inputs import drawn_inputs
from ir.oracle import evaluate
from ir.plain.accesses import every
from ir.plain.build import plain_kernel
from ir.plain.code import Accumulate
from ir.plain.meaning import meaning
from ir.plain.shared_sums import with_shared_sums
from ir.program import Program
from tests.plain.test_plain_parted_sums import grid, moments


@pytest.mark.parametrize(
    ("program", "extents"),
    [
        (grid(16, 20), [16]),
        (grid(13, 11), [13]),
        (grid(3, 4), []),  # too short
        (moments(4096, 2), [1, 1]),
        (moments(1 << 13, 2), [2, 2]),
        (moments(8209, 2), []),  # a prime number of terms
    ],
)
@pytest.mark.alike(2)
def test_a_long_sum_is_a_fold_of_rows(program: Program, extents: list[int]) -> None:
    kernel = with_shared_sums(plain_kernel(program))
    inputs = drawn_inputs(program, 1)
    found = meaning(kernel, inputs)
    for name, exact in evaluate(program, inputs).items():
        np.testing.assert_allclose(found[name], exact, rtol=1e-4, atol=1e-4)
    folds = [s for s in every(kernel.body) if isinstance(s, Accumulate)]
    assert [fold.extent for fold in folds] == extents
