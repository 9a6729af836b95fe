"""What all tests share: how many processes run them, that these keep their bytecode, and that a run
draws what the run before it drew.

A change is judged by what it changes: draws of property tests follow from the tests themselves.
`pytest -m hypothesis --hypothesis-profile random` draws others, to find what nobody thought of.
"""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from explorer.runtime.cpu import request_tile_permission

settings.register_profile("random", deadline=None)
settings.register_profile("same", derandomize=True, deadline=None)  # no test is timed
settings.load_profile("same")

# Tests start hundreds of processes. Each would compile every module anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


_SEEN = pytest.StashKey[int]()

request_tile_permission()  # some tests run kernels in their own process


def pytest_xdist_auto_num_workers() -> int:
    """`-n auto`: one for each processor, at most eight, and one more: some tests wait a while."""
    return min(8, len(os.sched_getaffinity(0))) + 1


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of cases that are alike, every so many-th runs by default; the others are long."""
    seen = Counter[tuple[str, str]]()
    for item in items:
        mark = item.get_closest_marker("alike")
        if mark is None or item.get_closest_marker("long"):
            continue
        function = item.nodeid.partition("::")[0], getattr(item, "originalname", item.name)
        if seen[function] % mark.args[0]:
            item.add_marker(pytest.mark.long)
        seen[function] += 1


_TESTS_BETWEEN = 150  # looks for garbage


def pytest_collection_finish() -> None:
    """Modules and tests are no garbage: nobody looks through them again and again. Nor is what a
    few tests leave much of it: a sixth of the time went into looking as it was made."""
    gc.collect()
    gc.freeze()
    gc.disable()


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Look for garbage now and then; what is none is not looked at again."""
    seen = item.session.stash.get(_SEEN, 0) + 1
    item.session.stash[_SEEN] = seen
    if seen % _TESTS_BETWEEN == 0:
        gc.collect()
        gc.freeze()


@pytest.fixture(autouse=True)
def _nothing_left_ready(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches leave no export of their winners behind, but where that is tested: it takes time."""
    if "explorer.job" in sys.modules and "leaves_ready" not in request.fixturenames:
        monkeypatch.setattr("explorer.job.leave_ready", lambda _: None)


@pytest.fixture(scope="session")
def code_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of machine code for all tests of this process: each has a process server, which
    takes a second to start."""
    return tmp_path_factory.mktemp("code")


@pytest.fixture
def collecting() -> Iterator[None]:
    """Garbage is collected as it is made, as in programs: of tests that count bytes."""
    gc.enable()
    yield
    gc.disable()


@pytest.fixture
def leaves_ready() -> None:
    """Searches leave their winners ready in the cache, as they do for users."""
