"""Finding the examples in the repository's pages."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", "docs/records.md")  # authors' page: tests/ir
_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of one language, in order."""
    found = _FENCED.findall((ROOT / page).read_text())
    return [text for name, text in found if name == language]


def all_pages() -> list[Path]:
    """Every page that is meant to be read."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
