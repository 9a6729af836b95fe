"""Running a page of the tutorial as a reader does: its blocks in order, in one folder."""

from __future__ import annotations

import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from explorer import cli
from tests.docs.pages import ROOT

_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NAMED = re.compile(r"# (\w+\.(?:py|toml))\n")


def in_order(page: str) -> Iterator[tuple[str, str]]:
    """The fenced blocks of a page with their languages."""
    yield from _FENCED.findall((ROOT / page).read_text())


def follow(page: str) -> int:
    """Do what a page says; how many blocks that were.

    A block that begins with its file's name is saved; other Python runs in one namespace; of shell
    every line runs a file or is a command of tilewright.
    """
    namespace: dict[str, Any] = {"__name__": "page"}
    done = 0
    for language, text in in_order(page):
        if named := _NAMED.match(text):
            Path(named[1]).write_text(text)
        elif language == "python":
            exec(compile(text, page, "exec"), namespace)
        elif language == "sh":
            for line in text.splitlines():
                _command(line)
        else:
            continue
        done += 1
    return done


def _command(line: str) -> None:
    words = shlex.split(line)
    if words[0] == "python":
        runpy.run_path(words[1], run_name="__main__")
        return
    assert words[0] == "tilewright", line
    assert cli.invoke(words[1:]) == cli.EXIT_DONE, line
