"""Every form of export: out and in is exact, again does no harm, damage is refused."""

from __future__ import annotations

import json
import random
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from records import Job, Record, Store, export_records, import_records, merge
from records.errors import DamagedExport, StoreError, StoreUnavailable, UnusableLocation

Make = Callable[..., Record]


def job(identifier: str = "job-1") -> Job:
    moment = "2026-01-02T03:04:05+00:00"
    return Job(
        id=identifier, operator="matmul", extents="{}", target="cpu", created=moment, updated=moment
    )


@pytest.fixture
def full(path: Path, record: Make) -> Store:
    """Trials with all that is awkward: nothing, quotes, lines, other letters, tiny numbers."""
    store = Store(path)
    awkward = "it's \"quoted\"\n\ttab ünï \U0001f600 \\ {'a': 1}"
    store.add_all(
        [
            record(1, detail=awkward, notes=json.dumps({"spills": 3, awkward: awkward})),
            record(2, status="crash", seconds=None, quartiles=None, error=None, clock_ghz=None),
            record(3, seconds=1.1e-300, compile_seconds=None, kernel_key=""),
            record(4, seconds=0.1 + 0.2, error=5e-324),
            record(5, status="out_of_memory", seconds=None, quartiles=None, repeats=0),
        ]
    )
    return store


class FormContract:
    """Subclasses name the form, its ending, and whether it carries jobs."""

    form: ClassVar[str]
    ending: ClassVar[str]
    jobs: ClassVar[int] = 1

    @pytest.fixture
    def export(self, full: Store, tmp_path: Path) -> Path:
        full.put_job(job())
        goal = tmp_path / f"out{self.ending}"
        assert export_records(full, goal) == 5
        return goal

    def test_round_trip_is_exact(self, full: Store, export: Path) -> None:
        with Store(":memory:") as other:
            done = import_records(other, export)
            assert (done.read, done.added, done.jobs) == (5, 5, self.jobs)
            assert list(other.records()) == list(full.records())
            assert other.jobs() == full.jobs()[: self.jobs]
            again = import_records(other, export)
            assert (again.read, again.added, again.jobs) == (5, 0, 0)

    def test_the_form_may_be_named(self, full: Store, tmp_path: Path) -> None:
        goal = tmp_path / "out.data"
        export_records(full, goal, form=self.form)
        with Store(":memory:") as other:
            assert import_records(other, goal, form=self.form).added == 5

    def test_export_takes_a_selection(self, full: Store, tmp_path: Path) -> None:
        goal = tmp_path / f"some{self.ending}"
        assert export_records(full, goal, status="crash") == 1
        assert export_records(full, goal, status="timeout") == 0
        with Store(":memory:") as other:
            assert import_records(other, goal).read == 0

    def test_more_than_a_page(
        self, path: Path, record: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for place in ("records.store.PAGE", "records.files.PAGE"):
            monkeypatch.setattr(place, 7)
        goal = tmp_path / f"many{self.ending}"
        with Store(path) as store, Store(":memory:") as other:
            store.add_all([record(index) for index in range(40)])
            export_records(store, goal)
            assert import_records(other, goal).added == 40
            assert list(other.records()) == list(store.records())

    def test_flipped_bits_are_refused_or_harmless(self, full: Store, export: Path) -> None:
        whole = export.read_bytes()
        rng = random.Random(5)
        refused = 0
        for _ in range(40):
            at = rng.randrange(len(whole))
            flipped = whole[:at] + bytes([whole[at] ^ 1 << rng.randrange(8)]) + whole[at + 1 :]
            export.write_bytes(flipped)
            with Store(":memory:") as store:
                try:
                    import_records(store, export)
                except DamagedExport:
                    refused += 1
                    assert (store.count(), store.jobs()) == (0, ())
                else:
                    assert list(store.records()) == list(full.records())
        assert refused > 10

    def test_cut_files_are_refused(self, export: Path) -> None:
        whole = export.read_bytes()
        for share in (0.0, 0.1, 0.5, 0.9, 0.999):
            export.write_bytes(whole[: int(len(whole) * share)])
            with Store(":memory:") as store:
                with pytest.raises(DamagedExport):
                    import_records(store, export)
                assert store.count() == 0

    def test_failed_export_leaves_the_old_one(
        self, full: Store, export: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = export.read_bytes()

        def full_disk(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.fsync", full_disk)
        with pytest.raises(StoreUnavailable, match="No space left on device"):
            export_records(full, export)
        assert export.read_bytes() == before
        assert sorted(entry.suffix for entry in export.parent.glob(".*")) == []

    def test_no_room_leaves_the_old_one(
        self, full: Store, export: Path, record: Make, tmp_path: Path
    ) -> None:
        """The operating system lets no file grow past what the old one takes."""
        old = export.read_bytes()
        with Store(":memory:") as larger:
            larger.add_all([record(n, detail=f"{n:x}" * 400) for n in range(300)])
            before = resource.getrlimit(resource.RLIMIT_FSIZE)
            try:
                resource.setrlimit(resource.RLIMIT_FSIZE, (len(old), before[1]))
                with pytest.raises(StoreUnavailable, match="cannot write") as refusal:
                    export_records(larger, export)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert "\n" not in str(refusal.value)
        assert export.read_bytes() == old
        assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []

    def test_places_that_cannot_be(self, full: Store, path: Path, tmp_path: Path) -> None:
        for call in (export_records, import_records):
            with pytest.raises(UnusableLocation, match="is the store itself"):
                call(full, path, form=self.form)
        missing = tmp_path / "none" / f"out{self.ending}"
        for call in (export_records, import_records):
            with pytest.raises(StoreUnavailable, match="No such file"):
                call(full, missing)

    def test_an_import_that_breaks_off_goes_on(
        self, full: Store, export: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("records.files.PAGE", 2)
        with Store(":memory:") as other:
            add_all, calls = other.add_all, iter(range(9))

            def break_off(records: list[Record]) -> int:
                if next(calls) == 1:
                    raise KeyboardInterrupt
                return add_all(records)

            monkeypatch.setattr(other, "add_all", break_off)
            with pytest.raises(KeyboardInterrupt):
                import_records(other, export)
            assert other.count() == 2
            assert len(other.jobs()) == self.jobs
            assert import_records(other, export).added == 3
            assert list(other.records()) == list(full.records())


class TestJsonLines(FormContract):
    form, ending = "jsonl", ".jsonl"


class TestParquet(FormContract):
    form, ending = "parquet", ".parquet"

    @pytest.fixture(autouse=True)
    def library(self) -> None:
        pytest.importorskip("duckdb", reason="no library: pip install 'tilewright[parquet]'")

    def test_other_tools_read_it(self, export: Path) -> None:
        import duckdb

        query = "SELECT operator, min(seconds), count(*) FROM read_parquet(?) GROUP BY ALL"
        assert duckdb.execute(query, [str(export)]).fetchall() == [("matmul", 1.1e-300, 5)]

    def test_files_without_later_columns_are_read(
        self, full: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from records import parquet

        columns = [name for name in parquet._columns() if name != "memory"]
        old = tmp_path / "old.parquet"
        with monkeypatch.context() as patch:
            patch.setattr(parquet, "_columns", lambda: columns)
            export_records(full, old)
        with Store(":memory:") as store:
            import_records(store, old)
            assert list(store.records()) == list(full.records())

    def test_file_of_something_else_is_refused(self, tmp_path: Path) -> None:
        import duckdb

        other = tmp_path / "other.parquet"
        duckdb.execute(f"COPY (SELECT 1 AS a) TO '{other}'")
        with Store(":memory:") as store, pytest.raises(DamagedExport, match="no export of Tilew"):
            import_records(store, other)

    def test_altered_rows_are_found_and_the_others_salvaged(self, export: Path) -> None:
        import duckdb

        altered = export.with_name("altered.parquet")
        notes = duckdb.execute(
            "SELECT key, value FROM parquet_kv_metadata(?)", [str(export)]
        ).fetchall()
        told = ", ".join(f"{k.decode()}: '{v.decode()}'" for k, v in notes)
        changed = "SELECT * REPLACE (CASE WHEN repeats = 0 THEN 9 ELSE repeats END AS repeats)"
        source = f"{changed} FROM read_parquet('{export}')"
        duckdb.execute(f"COPY ({source}) TO '{altered}' (FORMAT parquet, KV_METADATA {{{told}}})")
        with Store(":memory:") as store:
            with pytest.raises(DamagedExport, match="row 5: its content does not match"):
                import_records(store, altered)
            done = import_records(store, altered, salvage=True)
            assert (done.added, done.damaged) == (4, (5,))

    def test_missing_library_is_told_with_its_remedy(
        self, full: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "duckdb", None)
        with pytest.raises(StoreUnavailable, match=r"pip install 'tilewright\[parquet\]'"):
            export_records(full, tmp_path / "out.parquet")


class TestT4(FormContract):
    form, ending, jobs = "t4", ".json", 0

    def test_it_keeps_to_the_schema(self, export: Path) -> None:
        """What the schema requires, and the names that the tools which read T4 look for."""
        data = json.loads(export.read_text())
        assert data["schema_version"] == "1.0.0"
        assert data["metadata"]["timeunit"] == "seconds"
        words = {"timeout", "compile", "runtime", "correctness", "constraints", "correct"}
        for result in data["results"]:
            assert {"configuration", "times", "invalidity", "correctness"} <= set(result)
            assert result["invalidity"] in words
            assert (result["correctness"] == 1) == (result["invalidity"] == "correct")
            assert result["objectives"] == ["time"]
            (time,) = result["measurements"]
            assert isinstance(time["value"], float if result["correctness"] else str)
        first = data["results"][0]
        assert first["configuration"] == {"tile.m.1": 1}
        assert first["times"] == {
            "compilation_time": 0.02,
            "compilation": 0.02,
            "runtimes": [0.001001],
        }

    def test_a_file_holds_one_space(self, full: Store, tmp_path: Path, record: Make) -> None:
        full.add(record(1, workload="c" * 64))
        with pytest.raises(UnusableLocation, match="select one workload"):
            export_records(full, tmp_path / "out.json")
        assert not (tmp_path / "out.json").exists()
        assert export_records(full, tmp_path / "out.json", workload="a" * 64) == 5

    def test_salvage_takes_the_good_results(self, full: Store, export: Path) -> None:
        data = json.loads(export.read_text())
        data["results"][1]["tilewright"]["record"]["repeats"] = 7
        data["results"][3]["times"]["runtimes"] = [1.0]
        export.write_text(json.dumps(data))
        with Store(":memory:") as store:
            with pytest.raises(DamagedExport, match="result 2: its content does not match"):
                import_records(store, export)
            done = import_records(store, export, salvage=True)
            assert (done.added, done.damaged) == (3, (2, 4))


BEYOND = 10**400  # no float


def foreign(**changes: Any) -> dict[str, Any]:
    result = {
        "timestamp": "2025-03-17 07:10:18.518878+00:00",
        "configuration": {"block_size_x": 32, "use_shared": "yes", "factor": 0.5},
        "times": {"compilation": 400.0, "runtimes": [3.0, 1.0, 2.0], "framework": 1.0},
        "invalidity": "correct",
        "correctness": 1,
        "measurements": [{"name": "time", "value": 2.5, "unit": "ms"}],
        "objectives": ["time"],
    }
    return result | changes


def write_foreign(path: Path, *results: Any, **more: Any) -> Path:
    path.write_text(json.dumps({"schema_version": "1.0.0", "results": results} | more))
    return path


def test_results_of_other_tools_are_taken_in(tmp_path: Path) -> None:
    file = write_foreign(
        tmp_path / "gemm.A100.json",
        foreign(),
        foreign(configuration={"x": 1}, invalidity="compile", times={}),
        foreign(configuration={"x": 2}, times={"compilation_time": 100}, timestamp="lately"),
    )
    with Store(":memory:") as store:
        assert import_records(store, file).added == 3
        good, failed, plain = store.records(operator="gemm")
        assert import_records(store, file).added == 0
        assert import_records(store, file, operator="gemm_a100").added == 3
    assert json.loads(good.schedule)["values"] == foreign()["configuration"]
    assert good.seconds == pytest.approx(2e-3)
    assert good.quartiles == pytest.approx((1.5e-3, 2.5e-3))
    assert good.repeats == 3
    assert good.compile_seconds == pytest.approx(0.4)
    assert good.created == "2025-03-17T07:10:18.518878+00:00"
    assert (failed.status, failed.seconds) == ("compile_error", None)
    assert plain.seconds == pytest.approx(2.5e-3)
    assert plain.created.startswith("1970")
    assert len({good.workload, failed.workload, plain.workload}) == 1


@pytest.mark.parametrize(
    ("unit", "factor"), [("seconds", 1.0), ("miliseconds", 1e-3), ("microseconds", 1e-6)]
)
def test_the_unit_of_time_is_the_files_own(tmp_path: Path, unit: str, factor: float) -> None:
    file = write_foreign(tmp_path / "gemm.json", foreign(), metadata={"timeunit": unit})
    with Store(":memory:") as store:
        import_records(store, file)
        assert next(store.records()).seconds == pytest.approx(2 * factor)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("hello", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ("[]", "it lacks results"),
        ('{"results": 3}', "it lacks results"),
        ('{"results": [3]}', "result 1: it is not a result"),
        ('{"results": [{}]}', "result 1: it lacks its configuration"),
        (json.dumps({"results": [foreign(), foreign(invalidity="bad")]}), "result 2: invalidity"),
        (json.dumps({"results": [foreign(times={}, measurements=[])]}), "no time of it is told"),
        (
            json.dumps({"results": [foreign(times={"runtimes": [10**400]}, measurements=[])]}),
            "time",
        ),
        (json.dumps({"results": [{"tilewright": {"key": "", "record": None}}]}), "is missing"),
        (json.dumps({"results": [foreign(configuration={"x": float("nan")})]}), "cannot be stored"),
        (json.dumps({"results": [], "metadata": {"timeunit": "weeks"}}), "'weeks' is not known"),
        ('{"results": [{"tilewright": 3}]}', "its record is missing"),
    ],
)
def test_what_is_no_t4_is_refused(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "x.json").write_text(content)
    with Store(":memory:") as store, pytest.raises(DamagedExport, match=words) as refusal:
        import_records(store, tmp_path / "x.json")
    assert "\n" not in str(refusal.value)


def test_unknown_form_is_refused(full: Store, tmp_path: Path) -> None:
    with pytest.raises(UnusableLocation, match="there are jsonl, parquet, t4"):
        export_records(full, tmp_path / "x", form="csv")


def test_merge_brings_jobs_before_their_trials(
    full: Store, record: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    full.put_job(job())
    with Store(":memory:") as goal:

        def broken(records: list[Record]) -> int:
            raise StoreError("broken")

        monkeypatch.setattr(goal, "add_all", broken)
        with pytest.raises(StoreError, match="broken"):
            merge(full, goal)
        assert [known.id for known in goal.jobs()] == ["job-1"]
        monkeypatch.undo()
        done = merge(full, goal)
        assert (done.read, done.added, done.jobs) == (5, 5, 0)
        assert merge(full, goal).added == 0
        assert list(goal.records()) == list(full.records())
