"""Every file has right types: mypy --strict, beside the other tests, as it has one thread."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_types_are_right() -> None:
    words = [sys.executable, "-m", "mypy"]
    done = subprocess.run(words, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
