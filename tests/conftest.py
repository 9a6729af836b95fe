"""What all tests share: how many processes run them."""

from __future__ import annotations

import os


def pytest_xdist_auto_num_workers() -> int:
    """`-n auto`: one for each processor, at most eight, and one more: some tests wait a while."""
    return min(8, len(os.sched_getaffinity(0))) + 1
