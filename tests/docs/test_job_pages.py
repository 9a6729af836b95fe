"""The commands of the pages on jobs and reports work as they stand, one after another."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from explorer import cli
from explorer.plan import _JOB, _TOP, read_plan
from tests.docs.pages import ROOT, blocks

PAGES = ("docs/jobs.md", "docs/reports.md")


def write_files(page: str) -> None:
    """The TOML blocks that begin with a comment naming their file."""
    for block in blocks(page, "toml"):
        name = block.splitlines()[0].removeprefix("# ")
        Path(name).write_text(block)


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_a_page_work(
    page: str,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TILEWRIGHT_RECORDS", str(place / "records.db"))
    write_files(page)
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    assert lines
    for line in lines:
        assert cli.invoke(shlex.split(line)[1:]) == cli.EXIT_DONE, capsys.readouterr().err
        assert capsys.readouterr().out


def test_every_key_of_a_file_of_jobs_is_documented_and_no_other(place: Path) -> None:
    write_files("docs/jobs.md")
    assert len(read_plan(Path("jobs.toml")).jobs) == 2
    text = (ROOT / "docs/jobs.md").read_text().split("| key | where |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| (.*?) \| (top|job) \|", text, re.M)
    documented = {(name, where) for names, where in rows for name in re.findall(r"`(\w+)`", names)}
    known = {(name, "top") for name in set(_TOP) - {"defaults", "job"}}
    assert documented == known | {(name, "job") for name in _JOB}


def test_commands_of_the_page_on_replays_work(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After the first Python block, which writes the file that they read."""
    exec(blocks("docs/replay.md", "python")[0], {})
    lines = [line for block in blocks("docs/replay.md", "sh") for line in block.splitlines()]
    assert lines
    for line in lines:
        assert cli.invoke(shlex.split(line)[1:]) == cli.EXIT_DONE, capsys.readouterr().err
        assert capsys.readouterr().out
