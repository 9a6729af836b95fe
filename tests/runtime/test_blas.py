"""The BLAS of this process computes in one thread while somebody wants that, and then as before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from explorer.runtime import blas


class Library:
    """Counts what it was told."""

    def __init__(self, threads: int) -> None:
        self.told = [threads]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    known = Library(6)

    def switches(maps: Path) -> Iterator[tuple[object, object]]:
        yield known.told.append, lambda: known.told[-1]

    monkeypatch.setattr(blas, "_switches", switches)
    return known


def test_the_last_who_leaves_gives_the_threads_back(library: Library) -> None:
    with blas.one_thread():
        with blas.one_thread():
            assert library.told == [6, 1]
        assert library.told == [6, 1]
    assert library.told == [6, 1, 6]


def test_they_are_given_back_after_a_failure(library: Library) -> None:
    with pytest.raises(ValueError, match="none"), blas.one_thread():
        raise ValueError("none")
    assert library.told == [6, 1, 6]


def test_threads_are_told_where_there_is_a_switch(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert blas.can_be_told()
    assert blas.shared_among(3)
    assert library.told == [6, 3]
    monkeypatch.setattr(blas, "_switches", lambda _: iter(()))
    assert not blas.can_be_told()
    assert not blas.shared_among(4)


def test_libraries_are_found_by_what_the_process_has_mapped(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text(
        "7f00-7f01 r-xp 0 08:01 5  /a folder/numpy.libs/libscipy_openblas64_-1.so\n"
        "7f01-7f02 r-xp 0 08:01 5  /a folder/numpy.libs/libscipy_openblas64_-1.so\n"
        "7f02-7f03 r-xp 0 08:01 6  /usr/lib/libc.so.6\n"
        "7f03-7f04 rw-p 0 00:00 0\n"
    )
    assert blas._loaded(maps) == ("/a folder/numpy.libs/libscipy_openblas64_-1.so",)
    assert blas._loaded(tmp_path / "none") == ()
    with blas.one_thread(maps):  # what is not there is passed over
        assert np.ones((2, 2)).sum() == 4
