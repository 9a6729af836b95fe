"""Every Python block of every page runs as it stands: one namespace a page, in an empty folder."""

from __future__ import annotations

from typing import Any

import pytest

from tests.docs.pages import ROOT, all_pages, blocks, write_named

_PAGES = [str(path.relative_to(ROOT)) for path in all_pages()]


@pytest.mark.parametrize("page", [page for page in _PAGES if blocks(page, "python")])
def test_python_blocks_run(page: str) -> None:
    write_named(page)
    namespace: dict[str, Any] = {"__name__": "page"}
    for block in blocks(page, "python"):
        exec(compile(block, page, "exec"), namespace)
