"""What all tests share: how many processes run them."""

from __future__ import annotations

import os


def pytest_xdist_auto_num_workers() -> int:
    """`-n auto`: the processors that this process may use, at most eight."""
    return min(8, len(os.sched_getaffinity(0)))
