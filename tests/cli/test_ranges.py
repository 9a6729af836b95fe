"""Ranges and several extents from the command line, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from explorer.exporter import find_linker

PRODUCT = ("n=16", "k=16", "--threads", "1")


def command(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command with records and cache of its own."""
    own = {"TILEWRIGHT_RECORDS": str(place / "r.db"), "TILEWRIGHT_CACHE": str(place / "cache")}
    return subprocess.run(
        [sys.executable, "-m", "explorer.cli", *words],
        env=os.environ | own, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


@pytest.mark.skipif(find_linker() is None, reason="no C compiler here")
def test_a_range_is_searched_run_and_exported(tmp_path: Path) -> None:
    tuned = command(tmp_path, "tune", "matmul", "m=1..32", *PRODUCT, "--trials", "16")
    assert tuned.returncode == 0, tuned.stderr
    assert "m=32: searched, best" in tuned.stdout
    ran = command(tmp_path, "run", "matmul", "m=13", *PRODUCT, "--format", "json")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["status"] == "ok"
    folder = tmp_path / "rows"
    words = ("export", "matmul", "m=3,13,32", *PRODUCT, "--torch", "--out", str(folder))
    exported = command(tmp_path, *words)
    assert exported.returncode == 0, exported.stderr
    assert f"wrote {folder / '__init__.py'}\n" in exported.stdout
    manifest = json.loads((folder / "forward/matmul.json").read_text())
    assert [row["extents"]["m"] for row in manifest["table"]] == [3, 13, 32]
    outside = command(tmp_path, "export", "matmul", "m=3,33", *PRODUCT, "--out", str(folder))
    assert (outside.returncode, outside.stderr.count("\n")) == (3, 1)
    assert "no kernel for m=33: matmul" in outside.stderr


def test_a_range_on_a_card_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    if any(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("there is one")
    words = ("matmul", "m=1..32", "n=16", "k=16", "--target", "cuda")
    done = command(tmp_path, "tune", *words)
    assert done.returncode not in (0, 1)
    assert done.stderr.startswith("tilewright: no NVIDIA driver")
    assert done.stderr.count("\n") == 1
    done = command(tmp_path, "export", *words, "--out", str(tmp_path / "out"))
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert not list(tmp_path.glob("out/*"))
