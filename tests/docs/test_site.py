"""The site builds strictly from the pages, loads nothing from elsewhere, and shows every name."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import explorer
import ir
import records
from explorer.cli.app import VERBS
from tests.docs.pages import ROOT, all_pages
from website import gallery, repository

needs_mkdocs = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("mkdocs", "material", "mkdocstrings")),
    reason="mkdocs is not installed: pip install -e '.[docs]'",
)
_LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?([^\"'\s>]+)"
    r"|<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|preload|preconnect|icon))[^>]*\bhref=[\"']?([^\"'\s>]+)"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As CI builds it: a warning is an error."""
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@needs_mkdocs
def test_every_page_is_on_the_site(site: Path) -> None:
    for path in all_pages():
        place = repository.place_of(path.relative_to(ROOT).as_posix())
        if place is not None:  # what lies elsewhere at the top is nobody's page
            page = site / place.removesuffix(".md").replace("README", "index")
            assert page.with_name(f"{page.name}.html").is_file(), path


@needs_mkdocs
def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    """Neither fonts nor scripts: it works without a network."""
    for path in site.rglob("*.html"):
        for found in _LOADED.findall(path.read_text()):
            assert not re.match(r"(?:\w+:)?//", "".join(found)), (path, found)
    for path in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(?:\w+:)?//", path.read_text()), path


@needs_mkdocs
@pytest.mark.parametrize("package", [explorer, ir, records], ids=lambda package: package.__name__)
def test_every_public_name_has_an_entry(site: Path, package: object) -> None:
    name, names = package.__name__, package.__all__  # type: ignore[attr-defined]
    page = (site / f"reference/{name}.html").read_text()
    assert [one for one in names if f'id="{name}.{one}"' not in page] == []


@needs_mkdocs
def test_every_verb_is_shown(site: Path) -> None:
    page = (site / "reference/command-line.html").read_text()
    assert [verb for verb in VERBS if f'id="tilewright-{verb}"' not in page] == []


@needs_mkdocs
def test_every_figure_is_on_the_page_that_asks_for_it(site: Path) -> None:
    page = (site / "gallery/index.html").read_text()
    for name, figure in gallery.figures().items():
        assert (site / gallery.place(name)).read_text() == figure
        assert re.search(rf'src="?{name}\.svg', page), name


def test_figures_are_asked_for_once() -> None:
    pages = (path.read_text() for path in (ROOT / "docs").rglob("*.md"))
    assert sorted(name for page in pages for name in gallery.asked(page)) == sorted(gallery.FIGURES)


@pytest.mark.parametrize("name", gallery.FIGURES)
def test_a_figure_is_the_same_whenever_it_is_made(name: str) -> None:
    """To the byte, is well-formed, and loads nothing."""
    figure = gallery.FIGURES[name].svg()
    assert figure == gallery.figures()[name]
    root = ET.fromstring(figure)
    assert root.tag.endswith("svg")
    assert root.attrib["aria-label"]
    assert "href" not in figure
    assert len(list(root.iter("{http://www.w3.org/2000/svg}circle"))) > 1


def test_links_of_the_repository_become_links_of_the_site() -> None:
    def changed(text: str, place: str) -> str:
        return repository.site_links(text, place)

    assert changed("[a](docs/jobs.md#b)", "index.md") == "[a](jobs.md#b)"
    assert changed("[`a`](../README.md)", "jobs.md") == "[`a`](index.md)"
    assert changed("[a](../../README.md#b)", "tutorial/team.md") == "[a](../index.md#b)"
    here = "[a](../experiments/cpu/README.md)"
    assert changed(here, "exports.md") == "[a](experiments/cpu/README.md)"
    assert changed("[a](../ir/text.py), [b](https://x.org)", "x.md") == "a, [b](https://x.org)"
    assert changed("```py\nx[a](docs/b.md)\n```", "index.md") == "```py\nx[a](docs/b.md)\n```"
