"""What mkdocs calls while it builds the site: pages from elsewhere, links, figures, command lines.

Knows mkdocs' events; what is made for them is made in the other modules.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # mkdocs loads a hook by its file

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from website import commands, gallery, repository


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Puts the pages of the operators' families into the navigation, behind their index."""
    index = "operators/README.md"
    families = sorted((repository.ROOT / repository.DOCS / "operators").glob("[a-z]*.md"))
    _section(config.nav or [], index).extend(f"operators/{path.name}" for path in families)
    return config


def _section(nav: list[Any], page: str) -> list[Any]:
    """The list of the navigation that has this page; a new one if there is none."""
    for entry in nav:
        for inner in entry.values() if isinstance(entry, dict) else ():
            if isinstance(inner, list) and page in (found := _section(inner, page)):
                return found
    return nav if page in nav else []


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages outside of docs/, the page of the command line, and the figures."""
    for place, path in repository.outside_pages().items():
        files.append(File.generated(config, place, content=path.read_text("utf-8")))
    files.append(File.generated(config, commands.PLACE, content=commands.page()))
    for name, figure in gallery.figures().items():
        files.append(File.generated(config, gallery.place(name), content=figure))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links lead to pages of the site, and figures stand where a page asks for them."""
    place = page.file.src_uri
    return gallery.with_figures(repository.site_links(markdown, place), place)
