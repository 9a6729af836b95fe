"""Every Python block of every page runs as it stands: one namespace a page, in an empty folder.

Blocks that need torch are marked `py` on the pages, and run where it is installed. The tutorial's
pages, which mix languages, have a test of their own.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import pytest

from tests.docs.pages import ROOT, all_pages, blocks, write_named
from tests.docs.tutorial import in_order

_PAGES = [str(path.relative_to(ROOT)) for path in all_pages() if path.parent.name != "tutorial"]
_TORCH = importlib.util.find_spec("torch") is not None
_WITH_TORCH = [page for page in _PAGES if blocks(page, "py")]


def _run(page: str, *languages: str) -> None:
    write_named(page)
    namespace: dict[str, Any] = {"__name__": "page"}
    for language, block in in_order(page):
        if language in languages:
            exec(compile(block, page, "exec"), namespace)


@pytest.mark.parametrize("page", [page for page in _PAGES if blocks(page, "python")])
def test_python_blocks_run(page: str) -> None:
    if not (_TORCH and page in _WITH_TORCH):  # else they run below, with those in between
        _run(page, "python")


@pytest.mark.skipif(not _TORCH, reason="torch is not installed: no dependency of ours")
@pytest.mark.parametrize("page", _WITH_TORCH)
def test_blocks_with_torch_run(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("linear", "linears"):  # other tests' packages of these names
        monkeypatch.delitem(sys.modules, package, raising=False)
    _run(page, "python", "py")
