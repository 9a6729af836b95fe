"""Looking after stores: reading leaves them alone, repairing saves what it can, pruning counts."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from records import Pruned, Pruning, Record, Store, repair
from records.errors import (
    DamagedStore,
    InvalidRecord,
    LockedStore,
    ReadOnlyStore,
    StoreError,
    UnusableLocation,
)
from records.pages import Value, rows_of
from tests.records.postgres import Server

Make = Callable[..., Record]
NOBODY = 65534


@pytest.fixture
def filled(path: Path, record: Make) -> Path:
    with Store(path) as store:
        store.new_job("matmul", "{}", "cpu")
        store.add_all([record(index, detail="x" * 300) for index in range(400)])
    return path


def folder(path: Path) -> dict[str, bytes]:
    """Every file beside the store."""
    return {entry.name: entry.read_bytes() for entry in path.parent.iterdir()}


def read_all(path: Path) -> int:
    with Store(path, read_only=True) as store:
        store.jobs()
        store.workloads()
        assert store.count() == len(list(store.records()))
        return store.check()


class TestReading:
    def test_leaves_everything_as_it_is(self, filled: Path) -> None:
        before, moment = folder(filled), filled.stat().st_mtime_ns
        assert read_all(filled) == 400
        assert folder(filled) == before
        assert filled.stat().st_mtime_ns == moment

    def test_leaves_the_log_of_a_killed_writer(self, path: Path) -> None:
        code = (
            "import sys, os; from records import Store; from tests.records.conftest import *;"
            "Store(sys.argv[1]).add(make_record(1)); os._exit(3)"
        )
        subprocess.run([sys.executable, "-c", code, path], check=False)
        log = path.with_name("records.db-wal")
        before = (path.read_bytes(), log.read_bytes())
        assert len(before[1]) > 0
        assert read_all(path) == 1
        assert (path.read_bytes(), log.read_bytes()) == before

    def test_sees_what_a_writer_commits(self, path: Path, record: Make) -> None:
        with Store(path) as writer:
            writer.add(record(1))
            with Store(path, read_only=True) as reader:
                assert reader.count() == 1
                writer.add(record(2))
                assert reader.count() == 2
            assert writer.add(record(3))
        assert read_all(path) == 3

    def test_of_what_is_not_there_makes_nothing(self, path: Path) -> None:
        with pytest.raises(UnusableLocation, match="name a store that exists"):
            Store(path, read_only=True)
        path.touch()
        with pytest.raises(UnusableLocation, match="holds no store"):
            Store(path, read_only=True)
        assert path.stat().st_size == 0

    def test_writes_nothing(self, filled: Path, record: Make) -> None:
        with Store(filled, read_only=True) as store:
            for action in (
                lambda: store.add(record(999)),
                lambda: store.new_job("matmul", "{}", "cpu"),
                lambda: store.claim(("a",), "one", 60),
                lambda: store.prune(Pruning(keep_best=0)),
            ):
                with pytest.raises(ReadOnlyStore, match="opened to be read"):
                    action()

    @pytest.fixture
    def sealed(self, filled: Path) -> Iterator[Path]:
        """A store in a folder that nobody may write to, not even root for a moment."""
        mode = filled.parent.stat().st_mode
        for above in (filled.parent, *filled.parent.parents):
            if str(above).startswith("/tmp/"):
                above.chmod(above.stat().st_mode | 0o055)
        filled.chmod(0o444)
        filled.parent.chmod(0o555)
        root = not os.geteuid()
        if root:
            os.seteuid(NOBODY)
        yield filled
        if root:
            os.seteuid(0)
        filled.parent.chmod(mode)

    def test_a_sealed_folder_is_no_hindrance(self, sealed: Path) -> None:
        assert read_all(sealed) == 400
        assert list(folder(sealed)) == ["records.db"]

    def test_odd_names_are_names(self, filled: Path) -> None:
        odd = filled.with_name("a ?mode=rw#&%20.db")
        shutil.copy(filled, odd)
        assert read_all(odd) == 400


class TestRepair:
    def test_of_a_sound_store_saves_everything(self, filled: Path, tmp_path: Path) -> None:
        before = folder(filled)
        done = repair(filled, tmp_path / "new.db")
        assert (done.trials, done.jobs) == (400, 1)
        assert (done.unreadable, done.altered, done.factless) == (0, 0, 0)
        with Store(filled) as old, Store(tmp_path / "new.db") as new:
            assert list(new.records()) == list(old.records())
            assert new.jobs() == old.jobs()
        assert filled.read_bytes() == before["records.db"]

    def test_includes_what_a_killed_writer_acknowledged(self, path: Path, tmp_path: Path) -> None:
        code = (
            "import sys, os; from records import Store; from tests.records.conftest import *;"
            "Store(sys.argv[1]).add(make_record(1)); os._exit(3)"
        )
        subprocess.run([sys.executable, "-c", code, path], check=False)
        assert repair(path, tmp_path / "new.db").trials == 1

    def test_of_a_cut_store_saves_what_is_left(self, filled: Path, tmp_path: Path) -> None:
        os.truncate(filled, filled.stat().st_size * 3 // 4 // 4096 * 4096)
        before = filled.read_bytes()
        with pytest.raises(DamagedStore, match="tilewright db repair"):
            Store(filled)
        done = repair(filled, tmp_path / "new.db")
        assert 100 < done.trials < 400
        assert done.unreadable == 400 - done.trials
        assert filled.read_bytes() == before
        with Store(tmp_path / "new.db") as new:
            assert new.check() == done.trials

    def test_of_overwritten_pages_saves_the_others(self, filled: Path, tmp_path: Path) -> None:
        """Be they leaves or what leads to them, and the very first page among them."""
        whole = filled.read_bytes()
        pages = random.Random(4).sample(range(1, len(whole) // 4096), 7)
        for number, page in enumerate([0, *pages]):
            start = page * 4096
            filled.write_bytes(whole[:start] + b"\xa5" * 4096 + whole[start + 4096 :])
            goal = tmp_path / f"new-{number}.db"
            done = repair(filled, goal)
            assert done.trials > 390
            assert done.trials + done.unreadable >= 400 or not page
            with Store(goal) as new:
                assert new.check() == done.trials <= 400

    def test_of_flipped_bits_keeps_no_altered_trial(
        self, filled: Path, tmp_path: Path, record: Make
    ) -> None:
        whole = bytearray(filled.read_bytes())
        rng = random.Random(6)
        for _ in range(40):
            whole[rng.randrange(8192, len(whole))] ^= 1 << rng.randrange(8)
        filled.write_bytes(whole)
        done = repair(filled, tmp_path / "new.db")
        good = {record(index, detail="x" * 300) for index in range(400)}
        with Store(tmp_path / "new.db") as new:
            assert set(new.records()) <= good
            assert 0 < new.count() == done.trials < 400
        assert done.trials + done.unreadable + done.altered >= 390

    def test_of_lost_facts_saves_the_trials(self, filled: Path, tmp_path: Path) -> None:
        with sqlite3.connect(filled) as connection:
            connection.execute("PRAGMA foreign_keys = OFF")
            connection.execute("DELETE FROM facts")
        connection.close()
        done = repair(filled, tmp_path / "new.db")
        assert (done.trials, done.factless, done.altered) == (400, 400, 0)

    @pytest.mark.parametrize("content", [b"hello", b"\0" * 4096, b"SQLite format 3\0" + b"x" * 999])
    def test_of_nothing_says_so(self, path: Path, content: bytes, tmp_path: Path) -> None:
        path.write_bytes(content)
        with pytest.raises(DamagedStore, match="nothing in it can be read"):
            repair(path, tmp_path / "new.db")
        assert [entry.name for entry in tmp_path.iterdir()] == ["records.db"]

    def test_never_writes_over_anything(self, filled: Path, tmp_path: Path) -> None:
        (tmp_path / "new.db").write_text("mine")
        for goal in (tmp_path / "new.db", filled):
            with pytest.raises(UnusableLocation, match="is there already"):
                repair(filled, goal)
        with pytest.raises(UnusableLocation, match="name a store that exists"):
            repair(tmp_path / "none.db", tmp_path / "more.db")
        with pytest.raises(UnusableLocation, match="tools of its own"):
            repair("postgresql://h/d", tmp_path / "more.db")
        with pytest.raises(StoreError, match="cannot write"):
            repair(filled, tmp_path / "none" / "more.db")


VALUES = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-300, 300),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20),
    st.binary(max_size=20),
    st.integers(100, 9000).map("long".__mul__),
)


@given(
    st.lists(st.tuples(VALUES, VALUES, VALUES), max_size=30), st.sampled_from((512, 4096, 65536))
)
@settings(max_examples=20, deadline=None)
def test_pages_hold_the_rows_that_sqlite_finds(rows: list[tuple[Value, ...]], size: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "any.db"
        with sqlite3.connect(path) as connection:
            connection.execute(f"PRAGMA page_size = {size}")
            connection.execute("CREATE TABLE some (a, b, c)")
            connection.executemany("INSERT INTO some VALUES (?, ?, ?)", rows)
        connection.close()
        found = [row for row in rows_of(path) if len(row) == 3]
    assert sorted(map(repr, found)) == sorted(map(repr, rows))


class PruneContract:
    """Subclasses say where a fresh store is."""

    @pytest.fixture
    def where(self) -> str:
        raise NotImplementedError

    @pytest.fixture
    def store(self, where: str) -> Iterator[Store]:
        with Store(where) as store:
            yield store

    def test_by_age_a_candidate_goes_with_its_newest_trial(
        self, store: Store, record: Make
    ) -> None:
        old, new = "2026-01-01T00:00:00+00:00", "2026-03-01T00:00:00+00:00"
        store.add_all([record(1, created=old), record(2, created=old), record(3, created=new)])
        store.add(record(2, created=new, status="wrong_result", seconds=None))
        done = store.prune(Pruning(before="2026-02-01T00:00:00+00:00"))
        assert done == Pruned(trials=1, candidates=1, kept=3, operators=(("matmul", 1),))
        assert {found.schedule_key for found in store.records()} == {
            record(2).schedule_key,
            record(3).schedule_key,
        }
        assert store.check() == 3

    def test_keeps_the_best_of_every_workload(self, store: Store, record: Make) -> None:
        for workload in ("w1", "w2"):
            store.add_all([record(n, seconds=1.0 + n, workload=workload) for n in range(5)])
        store.add(record(0, status="wrong_result", seconds=None, workload="w1"))
        done = store.prune(Pruning(keep_best=2))
        assert (done.trials, done.candidates, done.kept) == (7, 6, 4)
        times = {w: sorted(r.seconds or 0 for r in store.records(workload=w)) for w in ("w1", "w2")}
        assert times == {"w1": [2.0, 3.0], "w2": [1.0, 2.0]}

    def test_the_winner_of_the_finals_stays(self, store: Store, record: Make) -> None:
        lucky = record(1, seconds=1.0)
        store.add_all([lucky, record(1, seconds=2.1, strategy="final")])
        winner = record(2, seconds=2.0, strategy="final")
        store.add_all([record(2, seconds=1.5), winner, record(3, seconds=9.0)])
        store.prune(Pruning(keep_best=1))
        assert {found.schedule_key for found in store.records()} == {
            lucky.schedule_key,
            winner.schedule_key,
        }

    def test_by_generator(self, store: Store, record: Make) -> None:
        store.add_all([record(1), record(1, generator="cpu-2"), record(2)])
        assert store.prune(Pruning(generator="cpu-1")).trials == 2
        assert [found.generator for found in store.records()] == ["cpu-2"]

    def test_all_conditions_must_be_met(self, store: Store, record: Make) -> None:
        store.add_all([record(n, generator=f"cpu-{n % 2}", seconds=1.0 + n) for n in range(8)])
        done = store.prune(Pruning(generator="cpu-1", keep_best=1))
        assert done.trials == 3
        assert store.count(generator="cpu-0") == 4

    def test_a_dry_run_deletes_nothing(self, store: Store, record: Make) -> None:
        store.add_all([record(n) for n in range(6)])
        counted = store.prune(Pruning(keep_best=2), dry_run=True)
        assert store.count() == 6
        assert store.prune(Pruning(keep_best=2)) == counted
        assert store.count() == counted.kept == 2

    def test_numbers_are_not_used_again(self, store: Store, record: Make) -> None:
        store.add_all([record(n) for n in range(6)])
        last = store.last()
        store.prune(Pruning(keep_best=0))
        store.compact()
        store.add(record(9))
        assert store.newer(last)[1] == (record(9),)


class TestPruneFile(PruneContract):
    @pytest.fixture
    def where(self, path: Path) -> str:
        return str(path)


class TestPrunePostgres(PruneContract):
    @pytest.fixture
    def where(self, postgres: Server) -> str:
        return postgres.new_schema()


def test_pruning_needs_a_condition() -> None:
    with pytest.raises(InvalidRecord, match="needs a condition"):
        Pruning()
    with pytest.raises(InvalidRecord, match="give 0 or more"):
        Pruning(keep_best=-1)


def test_compacting_makes_the_file_smaller(filled: Path) -> None:
    with Store(filled) as store:
        store.prune(Pruning(keep_best=3))
        store.compact()
        assert store.check() == 3
    assert filled.stat().st_size < 100_000


def test_compacting_a_store_in_use_is_refused(filled: Path) -> None:
    with Store(filled, busy_seconds=0.1) as store:
        rival = sqlite3.connect(filled, isolation_level=None)
        rival.execute("BEGIN IMMEDIATE")
        with pytest.raises(LockedStore):
            store.compact()
        rival.close()
