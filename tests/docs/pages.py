"""Finding the examples in the repository's pages."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_NAMED = re.compile(r"# (\w+\.py)\n")
_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of one language, in order."""
    found = _FENCED.findall((ROOT / page).read_text())
    return [text for name, text in found if name == language]


def all_pages() -> list[Path]:
    """Every page that is meant to be read."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def write_named(page: str) -> None:
    """Save the Python blocks that begin with a comment naming their file, as a reader would."""
    for block in blocks(page, "python"):
        if named := _NAMED.match(block):
            Path(named[1]).write_text(block)
