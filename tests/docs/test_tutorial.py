"""The pages of the tutorial work as they stand, one block after another."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.docs.tutorial import follow, in_order

FOLDER = ROOT / "docs/tutorial"
PAGES = sorted(f"docs/tutorial/{path.name}" for path in FOLDER.glob("*.md"))
NEED_TORCH = ("docs/tutorial/model.md",)


@pytest.fixture(autouse=True)
def importing(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a page saves can be imported, and is forgotten behind it."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(place))
    yield
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(place):
            del sys.modules[name]


@pytest.mark.parametrize("page", [page for page in PAGES if list(in_order(page))])
def test_the_blocks_of_a_page_work(page: str) -> None:
    if page in NEED_TORCH and importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed: no dependency of the product or of its tests")
    done = follow(page)
    assert done == sum(language in ("python", "sh", "toml") for language, _ in in_order(page))


def test_every_page_is_found_from_the_first() -> None:
    links = re.findall(r"\]\(([\w-]+\.md)\)", (FOLDER / "README.md").read_text())
    assert {f"docs/tutorial/{name}" for name in links} | {"docs/tutorial/README.md"} == set(PAGES)


def test_replacing_takes_ten_lines() -> None:
    """Without imports and empty lines, as the page says."""
    (block,) = (text for _, text in in_order(NEED_TORCH[0]) if text.startswith("# tuned.py"))
    lines = [line for line in block.splitlines()[1:] if line.strip()]
    assert sum(not line.startswith(("import ", "from ")) for line in lines) == 10


def test_the_table_is_the_experiment_s() -> None:
    page = (ROOT / NEED_TORCH[0]).read_text()
    table = re.findall(r"^\|.*\|$", page, re.M)
    measured = (ROOT / "experiments/torch_model/README.md").read_text().splitlines()
    assert len(table) > 2
    assert set(table) <= set(measured)
