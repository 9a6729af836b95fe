"""What the pages say is so: their code runs, their commands work, their links lead somewhere."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from explorer import cli
from tests.docs.pages import ROOT, all_pages, blocks, write_named


def _commands() -> list[str]:
    lines = [line for block in blocks("README.md", "sh") for line in block.splitlines()]
    return [line for line in lines if line.startswith("tilewright ")]


def test_the_readme_shows_the_main_verbs() -> None:
    assert {line.split()[1] for line in _commands()} >= {"tune", "space", "run", "show"}


def test_commands_of_the_readme_work(capsys: pytest.CaptureFixture[str]) -> None:
    """All of them in order, with a budget fit for a test."""
    write_named("README.md")
    for line in _commands():
        words = shlex.split(line)[1:]
        if words[0] == "tune":
            words += ["--trials", "4"]
        assert cli.invoke(words) == cli.EXIT_DONE, (line, capsys.readouterr().err)
        assert capsys.readouterr().out


def test_the_first_command_is_the_documented_one() -> None:
    install = blocks("README.md", "sh")[0].strip()
    assert install.endswith(_commands()[0])


def test_the_test_command_is_what_ci_runs() -> None:
    text = (ROOT / "README.md").read_text()
    marked = text.split("<!-- the test command -->\n```sh\n")[1].splitlines()[0]
    assert marked.endswith("&& pytest -n auto --dist worksteal")
    for tool in ("ruff check", "lint-imports"):
        assert f"&& {tool} &&" in marked


@pytest.mark.parametrize("path", all_pages(), ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def test_every_exit_code_is_documented() -> None:
    documented = set(re.findall(r"^\| (\d+) \|", (ROOT / "docs/exit-codes.md").read_text(), re.M))
    codes = {str(value) for name, value in vars(cli).items() if name.startswith("EXIT_")}
    from records.errors import StoreError

    assert documented == codes | {str(StoreError.exit_code), "1"}


def test_every_verb_is_in_the_changelog() -> None:
    from explorer.cli.app import VERBS

    text = (ROOT / "CHANGELOG.md").read_text()
    assert all(f"`{verb}`" in text for verb in VERBS)


def test_the_command_and_its_extras_are_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"tilewright": "explorer.cli:main"}
    extras = {"cuda12", "cuda13", "farm", "optuna", "postgres", "parquet", "share", "docs", "dev"}
    assert set(project["optional-dependencies"]) == extras
    assert set(project["optional-dependencies"]["docs"]) <= set(
        project["optional-dependencies"]["dev"]
    )
