"""Help texts: every verb has one, every option in it is explained, misspelt ones are corrected."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from explorer import cli
from explorer.cli.app import VERBS

GROUPS = ("db", "layout", "jobs")
COMMANDS = [(verb,) for verb in VERBS]


def help_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.invoke([*words, "--help"]) == cli.EXIT_DONE
    return capsys.readouterr().out


def all_commands(capsys: pytest.CaptureFixture[str]) -> list[tuple[str, ...]]:
    """Every verb, those of the groups with their own."""
    found: list[tuple[str, ...]] = []
    for verb in VERBS:
        if verb in GROUPS:
            listed = help_of(capsys, verb).split("Commands:\n")[1].split("Examples:\n")[0]
            found += [(verb, line.split()[0]) for line in re.findall(r"^  \w.*$", listed, re.M)]
        else:
            found.append((verb,))
    return found


def test_the_overview_names_every_verb_with_a_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = help_of(capsys)
    for verb in VERBS:
        assert re.search(rf"^  {verb} +[A-Z].{{10,}}", text, re.M), verb


def test_every_command_explains_itself_and_its_options(
    capsys: pytest.CaptureFixture[str],
) -> None:
    commands = all_commands(capsys)
    assert len(commands) > len(VERBS)
    for words in commands:
        text = help_of(capsys, *words)
        assert text.startswith(f"Usage: tilewright {' '.join(words)} ")
        summary = text.split("\n\n")[1].strip()
        assert summary[0].isupper(), words
        assert summary.endswith((".", "report.")), words
        options = text.split("Options:\n")[1]
        entries = re.findall(r"^  (--\S+.*(?:\n {4,}.*)*)", options, re.M)
        assert entries, words
        for entry in entries:
            told = re.sub(r"--\S+|<[^>]*>|[A-Z]+[A-Z=.xhtmlo]*|\[default.*", "", entry)
            assert len(told.split()) >= 2, (words, entry)


@pytest.mark.parametrize(
    ("words", "nearest"),
    [
        (("tune", "matmul", "--trails", "3"), "--trials"),
        (("tune", "--job", "x.toml"), "--jobs"),
        (("space", "matmul", "--formt", "json"), "--format"),
        (("report", "--output", "x"), "--out"),
        (("explain", "matmul", "--shedule", "{}"), "--schedule"),
        (("doctor", "--targt", "cpu"), "--target"),
        (("run", "matmul", "--recrods", "x"), "--records"),
    ],
)
def test_a_misspelt_option_names_the_nearest(
    words: tuple[str, ...], nearest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.invoke(list(words)) == cli.EXIT_USAGE
    assert f"(did you mean {nearest}?)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "nearest"),
    [
        (["tun"], "tune"),
        (["explian", "matmul"], "explain"),
        (["db", "chekc"], "check"),
        (["layout", "shwo", "(4,8):(8,1)"], "show"),
        (["jobs", "sow", "x"], "show"),
    ],
)
def test_a_misspelt_command_names_the_nearest(
    words: list[str], nearest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.invoke(words) == cli.EXIT_USAGE
    assert f"did you mean '{nearest}'?" in capsys.readouterr().err


def test_a_command_like_no_other_is_told_which_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.invoke(["db", "xyzzy"]) == cli.EXIT_USAGE
    assert "known are check, stats, export, import" in capsys.readouterr().err


def test_completion_proposes_commands_options_and_values(tmp_path: Path) -> None:
    """As a shell asks: the line so far, and the position of the word to complete."""
    for line, proposed in (
        ("tilewright ta", {"targets"}),
        ("tilewright db me", {"merge"}),
        ("tilewright tune matmul --tri", {"--trials"}),
        ("tilewright space matm", {"matmul", "matmul_bias_act"}),
        ("tilewright run matmul --target c", {"cpu", "cuda"}),
    ):
        asked = {"_TILEWRIGHT_COMPLETE": "complete_bash", "COMP_WORDS": line}
        asked |= {"COMP_CWORD": str(len(line.split()) - 1), "HOME": str(tmp_path)}
        code = "from explorer.cli import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | asked
        )
        assert done.returncode == 0, done.stderr
        assert proposed <= set(done.stdout.split()), line


def test_completion_is_installed_by_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--install-completion" in help_of(capsys)
