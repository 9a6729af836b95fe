"""What all tests share: how many processes run them, and that these keep their bytecode."""

from __future__ import annotations

import os
import sys

# Tests start hundreds of processes. Each would compile every module anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_xdist_auto_num_workers() -> int:
    """`-n auto`: one for each processor, at most eight, and one more: some tests wait a while."""
    return min(8, len(os.sched_getaffinity(0))) + 1
