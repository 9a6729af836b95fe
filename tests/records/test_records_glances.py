"""The best of many trials is found among few of them: the same as among all."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.recall import FINAL, HEAT, best_known, best_of
from records import Record, Store, glances
from records.rows import Selection
from tests.records.conftest import make_record
from tests.records.postgres import Server
from tests.records.test_records_schema import OLD_STORES, restore

Make = Callable[..., Record]
MINE: Selection = {"workload": "a" * 64, "target": "cpu", "hardware": "b" * 64, "memory": "huge"}

TRIALS = st.lists(
    st.tuples(
        st.integers(0, 6),  # whose
        st.sampled_from(["evolutionary", "random", FINAL, HEAT]),
        st.sampled_from(["ok"] * 8 + ["wrong_result", "crash", "timeout", "compile_error"]),
        st.integers(1, 9),
        st.booleans(),
    ),
    max_size=25,
)


def made(number: int, trial: tuple[int, str, str, int, bool]) -> Record:
    """Of a candidate; in doubt, if other programs had the processors."""
    whose, strategy, status, time, crowded = trial
    notes = '{"crowded": true, "foreign_load": 0.5}' if crowded else "{}"
    return make_record(
        whose, strategy=strategy, status=status, notes=notes, quartiles=None,
        seconds=time * 1e-3 if status == "ok" else None,
        created=f"2026-01-02T03:04:{number:02d}+00:00",
    )  # fmt: skip


@given(TRIALS, st.sampled_from([1, 2, 5, 64]))
@settings(deadline=None, max_examples=50)
def test_it_is_that_of_all(trials: list[tuple[int, str, str, int, bool]], some: int) -> None:
    """Also where few of the fastest are read first."""
    records = [made(number, trial) for number, trial in enumerate(trials)]
    other = [make_record(9, seconds=1e-9, quartiles=None, workload="c" * 64, strategy=FINAL)]
    with Store(":memory:") as store:
        store.add_all([*records, *other])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(glances, "_SOME", some)
            assert best_known(store, MINE) == best_of(store.records(**MINE))


def test_slow_trials_are_not_looked_at(tmp_path: Path, record: Make) -> None:
    """The index has strategies before times, and each is entered at its fastest trial."""
    path = tmp_path / "records.db"
    plans: list[str] = []
    with Store(path) as store:
        kinds = ["evolutionary", FINAL, HEAT, "random"]
        store.add_all(record(n, strategy=kind) for n in range(9) for kind in kinds)
    with Store(path, read_only=True) as store, store._database.reading() as connection:
        ask = glances._Asking(connection, {"generator": record(0).generator, **MINE})
        assert ask.names(glances._STRATEGIES) == set(kinds)
        for query in (glances._STRATEGIES, glances._FASTER):
            told = ask.rows(f"EXPLAIN QUERY PLAN {query}", strategy="random", limit=1.0, most=2)
            plans += [row.detail for row in told if " trials " in row.detail]
    assert all("USING COVERING INDEX ix_trials_best" in plan for plan in plans)
    assert "strategy=? AND seconds<?" in plans[-1]


def test_of_many_candidates_few_are_read(tmp_path: Path, record: Make) -> None:
    searched = [record(n, quartiles=None) for n in range(1200)]
    finals = [record(n, quartiles=None, strategy=FINAL) for n in range(3, 9)]
    with Store(tmp_path / "records.db") as store:
        store.add_all([*searched, *finals])
        best = best_known(store, MINE)
        assert best == best_of(store.records(**MINE)) == searched[0]
        from explorer.recall import RULES

        assert len(store.contenders(RULES, **MINE)) == 3 + 2 * 6
        store.add_all(record(n, quartiles=None, strategy=FINAL) for n in range(3))
        assert best_known(store, MINE) == record(0, quartiles=None, strategy=FINAL)


def test_a_server_says_the_same(postgres: Server, record: Make) -> None:
    searched = [record(n, quartiles=None) for n in range(100)]
    finals = [record(n, quartiles=None, strategy=FINAL) for n in range(3, 9)]
    damned = record(0, quartiles=None, seconds=None, status="crash")
    with Store(postgres.new_schema()) as store:
        for more in (searched, finals, [damned]):
            store.add_all(more)
            assert best_known(store, MINE) == best_of(store.records(**MINE))


def test_a_damaged_row_is_passed_over(tmp_path: Path, record: Make) -> None:
    path = tmp_path / "records.db"
    with Store(path) as store:
        store.add_all(record(n, quartiles=None, strategy=FINAL) for n in range(3))
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE trials SET seconds = 1e-9 WHERE number = 3")
    raw.close()
    with Store(path, read_only=True) as store:
        found = best_known(store, MINE)
    assert found == record(0, quartiles=None, strategy=FINAL)


@pytest.mark.parametrize("dump", OLD_STORES, ids=lambda dump: dump.name)
def test_of_an_older_store_too(dump: Path, tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    restore(dump, path)
    with Store(path, read_only=True) as store:
        best = best_known(store, MINE)
        assert best is not None
        assert best == best_of(store.records(**MINE))
        assert best_known(store, MINE | {"memory": "plain"}) is None
