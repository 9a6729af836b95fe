"""What adding something costs: each recipe applied from outside, without an edit anywhere."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from explorer import cli, job
from explorer.strategies.contract import StrategyContract
from ir.target import get_backend, target_names
from ir.targets.cpu.backend import CpuBackend
from tests.docs.pages import blocks
from tests.job.device import ScriptedDevice

ELSEWHERE = "tests.docs.test_recipes"


class Relabelled(CpuBackend):
    """A target of another package: the CPU under another name."""

    name = "relabelled"
    generator = "relabelled-1"


def _recipe(title: str) -> dict[str, Any]:
    """The names that the recipe of CONTRIBUTING with this class or function defines."""
    namespace: dict[str, Any] = {"__name__": ELSEWHERE}
    (block,) = (text for text in blocks("CONTRIBUTING.md", "python") if title in text)
    exec(compile(block, "CONTRIBUTING.md", "exec"), namespace)
    return namespace


Nearby: Any = _recipe("class Nearby")["Nearby"]


class TestStrategyOfTheRecipe(StrategyContract):
    """The recipe keeps the contract of all strategies."""

    name = "nearby"


@pytest.fixture(autouse=True)
def entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another package that registers a strategy and a target."""
    strategy = EntryPoint("nearby", f"{ELSEWHERE}:Nearby", "tilewright.strategies")
    target = EntryPoint("relabelled", f"{ELSEWHERE}:Relabelled", "tilewright.targets")
    found = {entry.group: (entry,) for entry in (strategy, target)}
    for module in ("explorer.strategies.base", "ir.target"):
        monkeypatch.setattr(f"{module}.entry_points", lambda group: found.get(group, ()))


def test_a_strategy_by_entry_point(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("explorer.search.Measurer", ScriptedDevice())
    result = job.tune(
        "matmul", {"m": 64, "n": 64, "k": 64}, strategy="nearby", trials=20, store=tmp_path / "r.db"
    )
    assert result.trials == 20


def test_a_target_by_entry_point(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "relabelled" in target_names()
    assert get_backend("relabelled").generator == "relabelled-1"
    monkeypatch.setattr("explorer.search.Measurer", ScriptedDevice())
    words = ["tune", "matmul", "m=32", "n=32", "k=32", "--target", "relabelled", "--trials", "3"]
    assert cli.invoke([*words, "--records", str(tmp_path / "r.db")]) == cli.EXIT_DONE
    assert cli.invoke(["targets"]) == cli.EXIT_DONE
    assert "relabelled" in capsys.readouterr().out


def test_an_operator_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = (text for text in blocks("CONTRIBUTING.md", "python") if "row_range" in text)
    path = tmp_path / "ranges.py"
    path.write_text(block)
    assert cli.invoke(["space", f"{path}:row_range", "m=64", "n=300"]) == cli.EXIT_DONE
    assert capsys.readouterr().out.startswith("row_range: ")
