"""Processes are started early for a search that will measure, and for nothing else."""

from __future__ import annotations

import pytest

from explorer.cli.boot import boot_for


@pytest.mark.parametrize(
    ("words", "target"),
    [
        ("tune matmul m=8", "cpu"),
        ("tune matmul --target cuda m=8", "cuda"),
        ("tune matmul --target=cuda", "cuda"),
        ("tune matmul --target", ""),
        ("tune", None),
        ("tune --help", None),
        ("tune matmul --replay=x.db", None),
        ("tune --resume", None),
        ("top --target cuda", None),
        ("", None),
    ],
)
def test_what_is_started(words: str, target: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    monkeypatch.setattr("explorer.runtime.process.boot", lambda name, folder: started.append(name))
    boot_for(words.split())
    assert started == ([] if target is None else [target])
