"""Pages of the repository that lie outside of docs/, and links between all of them.

The repository's own links stay as they are read there: relative paths. Here they are made those
of the site. Knows paths and text; nothing of mkdocs.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
DOCS = "docs/"
OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_FENCED = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)


def outside_pages() -> dict[str, Path]:
    """Pages of the site that lie outside of docs/, by their place in the site."""
    found = {place: ROOT / path for path, place in OUTSIDE.items()}
    for path in sorted((ROOT / "experiments").rglob("*.md")):
        found[path.relative_to(ROOT).as_posix()] = path
    return found


def place_of(path: str) -> str | None:
    """Where a file of the repository is in the site; None if it is not there."""
    if path in OUTSIDE:
        return OUTSIDE[path]
    if path.startswith(DOCS):
        return path.removeprefix(DOCS)
    return path if path.startswith("experiments/") and path.endswith(".md") else None


def path_of(place: str) -> str:
    """Where a page of the site lies in the repository."""
    back = {there: path for path, there in OUTSIDE.items()}
    if place in back:
        return back[place]
    return place if place.startswith("experiments/") else DOCS + place


def site_links(text: str, place: str) -> str:
    """The text of a page with links that lead to pages of the site.

    What is in the repository alone (a module, a licence) keeps its words and loses its link.
    """
    pieces = _FENCED.split(text)  # every other piece is a block of code
    return "".join(
        piece if number % 2 else _LINK.sub(lambda found: _link(found, place), piece)
        for number, piece in enumerate(pieces)
    )


def _link(found: re.Match[str], place: str) -> str:
    words, target = found[1], found[2]
    path, hash_, anchor = target.partition("#")
    if "://" in target or not path:
        return found[0]
    here = PurePosixPath(path_of(place)).parent
    there = place_of(os.path.normpath(here / path))
    if there is None:
        return words
    relative = os.path.relpath(there, PurePosixPath(place).parent)
    return f"[{words}]({relative}{hash_}{anchor})"
