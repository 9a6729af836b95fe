"""Arrays of the oracle are made and freed by the thousand: their pages stay with the process."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

TURNS, PAGES = 40, 2048  # arrays one after the other, and pages of each

SCRIPT = f"""
import resource
import numpy as np
from explorer.runtime.memory import freed_memory_kept

def faults(context):
    with context:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range({TURNS}):
            some = np.ones({PAGES} * 4096, np.uint8)
            more = some + 1
            del some, more
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(faults(freed_memory_kept()))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps what is freed")
def test_pages_are_asked_for_once() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < TURNS * PAGES / 4
