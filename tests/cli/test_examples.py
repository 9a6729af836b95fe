"""Every example in a help text runs, with small extents and budgets in the place of its own."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from explorer import cli
from explorer.cli.app import SCHEMA
from explorer.exporters.base import MANIFEST_SCHEMA
from tests.cli.recorded import recorded
from tests.cli.test_help import all_commands, help_of
from tests.docs.pages import blocks
from tests.job.device import ScriptedDevice

_SMALL = (
    (r"\b([mnk])=\d+", r"\1=32"),
    (r"--trials \d+", "--trials 2"),
    (r"--seconds \d+", "--trials 2"),
    (r"--effort \w+", "--trials 2"),
    (r"\s--baseline", ""),
    ("=bf16", "=f32"),
)
_JOBS = """[[job]]
operator = "matmul"
arguments = { m = 32, n = 32, k = 32 }
"""


def examples_of(text: str) -> list[str]:
    """The commands at the end of a help text."""
    assert "\n  Examples:\n" in text
    return [line.strip() for line in text.split("\n  Examples:\n")[1].splitlines() if line.strip()]


@pytest.fixture
def place(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder with all that examples name; returns a job's identifier."""
    folder = tmp_path / "place"
    folder.mkdir()
    monkeypatch.chdir(folder)
    jobs, schedule = recorded(store)
    for copy in ("records.db", "other.db"):
        shutil.copy(store, copy)
    Path("schedule.json").write_text(schedule.to_json())
    Path("gated.py").write_text(
        next(block for block in blocks("README.md", "python") if block.startswith("# gated.py"))
    )
    Path("jobs.toml").write_text(_JOBS)
    before = ("db export more.jsonl", "db export records.jsonl", "train --out model.json.xz")
    signed = ("db keygen mine.key", "db publish other.bundle --key mine.key")
    for command in before + signed:
        assert cli.invoke(command.split()) == cli.EXIT_DONE
    return jobs[0]


def _interrupted(_: object) -> None:
    """In the place of a server that runs until then."""
    raise KeyboardInterrupt


def _run(words: tuple[str, ...], example: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a small form of the example prints."""
    for pattern, instead in _SMALL if words[0] != "layout" else ():
        example = re.sub(pattern, instead, example)
    code = cli.invoke(shlex.split(example)[1:])
    heard = capsys.readouterr()
    assert code == cli.EXIT_DONE, (example, heard.err)
    return heard.out


def test_the_examples_of_every_command_run_and_json_tells_its_schema(
    place: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Searches ask a scripted device; that real ones run is shown elsewhere."""
    monkeypatch.setattr("explorer.search.Measurer", ScriptedDevice())
    monkeypatch.setattr("explorer.measure.Measurer", ScriptedDevice())
    monkeypatch.setattr("explorer.live.server.LiveServer.serve_forever", _interrupted)
    for words in all_commands(capsys):
        text = help_of(capsys, *words)
        told = [example.replace("JOB", place) for example in examples_of(text)]
        assert told, words
        assert all(example.startswith(f"tilewright {' '.join(words)}") for example in told)
        if "<text|json>" in text and not any("--format json" in example for example in told):
            told.append(f"{told.pop()} --format json")
        for example in told:
            out = _run(words, example, capsys)
            if "--format json" in example:
                assert json.loads(out)["schema"] == SCHEMA, example
    manifest = json.loads(Path("kernel", "matmul.json").read_text())
    assert manifest["schema"] == MANIFEST_SCHEMA
