"""Every verb with every kind of wrong value in every place: one line and a documented code.

Verbs and their parameters are read off the command, so that a new one is tried as well. Nothing
is searched: where a command line turns out to be right, the search itself is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
import typer.main

from explorer import cli
from explorer.cli.app import app, load
from explorer.errors import NothingValid
from records import Store

CODES = {
    int(row[1])
    for row in re.finditer(
        r"^\| (\d+) \|", (Path(__file__).parents[2] / "docs/exit-codes.md").read_text(), re.M
    )
} - {1}

EVERY = 16  # of the values one in so many is tried in one place; 1 takes some minutes
DEEP = "[" * 100_000
VALUES = (
    "", " ", "-", "--", "-1", "0", "1", "1.5", "nan", "inf", "-inf", "1e999", "9" * 30, "9" * 5000,
    "true", "null", "{}", "[]", '{"target":"cpu","values":{"a":null}}', '{"target":3,"values":[]}',
    '{"target":"cpu","values":{"tile.m.0":1e400}}', DEEP, "@", "@.", "@deep.json", "@binary",
    "x" * 300, "a/" * 3000, "m=", "=1", "m=1=2", "m=nan", "m=-1", f"m={'9' * 30}",
    f"m={'9' * 5000}",
    "dtype=", "dtype=\x1b[31m", "\x1b]0;title\x07", "\x00", "a\x00b", "\udcff", "é漢字", "‮", "\n",
    "file", "folder", "folder/", "file/below", "gone/below/below", "/dev/null", "/dev/full", "/",
    "/proc/self/mem", "loop", "binary", "binary.py:f", "binary.jsonl", "binary.xz", "empty",
    "empty.py:f", "empty.jsonl", "empty.json", "empty.parquet", "empty.jsonl.xz", "folder.py:f",
    "bad.py:", ":f", ".py", "sqlite://", "sqlite:///folder", "postgresql://", "nonsense://x/y",
    "http://[", "cpu", "cuda", "matmul", "best", "none", "8x8", "0x0", "(4,8):(8,1)", "0:0", ":",
    "S(9,9,99) o 0 o 4:1", f"{'9' * 30}:1", "1d", "99999999d", "(", "%s", "$HOME", "~", "*",
)  # fmt: skip


_VERDICT = "ok    python"  # the doctor's findings are results


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file, folder, link and garbage of every kind that a value may name."""
    folder = tmp_path_factory.mktemp("place")
    (folder / "folder").mkdir()
    (folder / "folder.py").mkdir()
    (folder / "file").write_text("text\n")
    (folder / "loop").symlink_to("loop")
    (folder / "deep.json").write_text(DEEP)
    for name in ("binary", "binary.py", "binary.jsonl", "binary.xz", "binary.toml"):
        (folder / name).write_bytes(bytes(range(256)) * 9)
    for name in ("py", "jsonl", "json", "parquet", "jsonl.xz", "toml"):
        (folder / f"empty.{name}").write_bytes(b"")
    (folder / "empty").write_bytes(b"")
    with Store(folder / "records.db"):
        pass
    return folder


@pytest.fixture(autouse=True)
def _still(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is measured, and the store is there, empty."""

    def nothing(*_: object, **__: object) -> None:
        raise NothingValid("left out")

    monkeypatch.chdir(place)
    monkeypatch.setenv("TILEWRIGHT_RECORDS", str(place / "records.db"))
    for name in ("run_plan", "run_schedule", "run_beside_library"):
        monkeypatch.setattr(f"explorer.job.{name}", nothing)
    monkeypatch.setattr("explorer.cli.doctor._workers", lambda: _fine())
    monkeypatch.setattr("explorer.cli.watch._serve", nothing)
    monkeypatch.setattr("explorer.farm.engine.CONNECT", 0.2)
    monkeypatch.setattr("explorer.cli.app.app", COMMAND.main)  # made once, not for each line


def _fine() -> Any:
    from explorer.cli.doctor import GOOD, Finding

    return Finding("worker", GOOD, "left out")


def _verbs(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every verb with its words; those of groups have two."""
    for name, found in getattr(command, "commands", {}).items():
        if hasattr(found, "commands"):
            yield from _verbs(found, (*words, name))
        else:
            yield (*words, name), found


load(())
COMMAND = typer.main.get_command(app)
VERBS = dict(_verbs(COMMAND))
FITTING = {
    "operator": "row_sum", "words": ("m=8", "n=8"), "out": "folder", "file": "file",
    "text": "4:1", "sources": ("records.db",), "records": "records.db", "new": "folder",
}  # fmt: skip


def _command_lines(words: tuple[str, ...], verb: Any) -> Iterator[list[str]]:
    """Values in the place of each parameter, other ones for each, the others fitting."""
    for parameter in verb.params:
        if parameter.name == "help":
            continue
        first = crc32(" ".join((*words, str(parameter.name))).encode()) % EVERY
        for value in VALUES[first::EVERY]:
            yield [*words, *_fitting(verb, parameter), *_given(parameter, value)]
        yield [*words, *_fitting(verb, parameter), parameter.opts[-1]]  # without its value


def _fitting(verb: Any, but: Any) -> Iterator[str]:
    for parameter in verb.params:
        wanted = parameter.param_type_name == "argument" or parameter.required
        if wanted and parameter.name != but.name and parameter.name in FITTING:
            found = FITTING[parameter.name]
            for value in (found,) if isinstance(found, str) else found:
                yield from _given(parameter, value)


def _given(parameter: Any, value: str) -> list[str]:
    if parameter.param_type_name == "argument":
        return [value]
    return [parameter.opts[-1]] if parameter.is_flag else [f"{parameter.opts[-1]}={value}"]


def _judge(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What is wrong with how a command line ended; empty if nothing is."""
    try:
        code = cli.invoke(words)
    except BaseException as error:  # noqa: BLE001 (whatever it is, it is the finding)
        capsys.readouterr()
        return f"{type(error).__name__}: {error}"[:300]
    told, said = capsys.readouterr()
    if code not in CODES:
        return f"code {code}"
    one_line = said.startswith("tilewright: ") and said.count("\n") == 1
    if code and not one_line and not told.startswith(_VERDICT):
        return f"code {code} with {said[:300]!r}"
    if any(not (letter.isprintable() or letter == "\n") for letter in said):
        return f"controls the terminal: {said[:300]!r}"
    return ""


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_no_value_brings_a_verb_down(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    found = {}
    for line in _command_lines(words, VERBS[words]):
        wrong = _judge(line, capsys)
        if wrong:
            found[" ".join(word if len(word) < 80 else f"{word[:80]}..." for word in line)] = wrong
    assert not found, json.dumps(found, indent=1)[:6000]
