"""Files of other tuners as records: their units, names, failures; and what is refused."""

from __future__ import annotations

import gzip
import json
import lzma
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from records import Record, Store, export_records, import_records
from records.errors import DamagedExport, StoreError, UnusableLocation
from records.exchange import foreign_records
from tests.records import tuned_files as samples

FORMS: dict[str, Callable[..., dict[str, Any]]] = {
    "t4": samples.t4,
    "kernel-tuner": samples.kernel_tuner,
    "ktt": samples.ktt,
}


def _read(path: Path, **options: str) -> list[Record]:
    found = foreign_records(path, **options)
    assert found is not None
    return found


@pytest.mark.parametrize("form", FORMS)
def test_times_are_in_seconds_whatever_the_file_has(form: str, tmp_path: Path) -> None:
    records = _read(samples.write(tmp_path / "gemm_kernel.json", FORMS[form]()))
    best = min((r for r in records if r.ok), key=lambda record: record.seconds or 1)
    assert best.seconds == pytest.approx(1e-3)
    assert json.loads(best.schedule)["values"] == samples.BEST
    assert best.created.startswith("2024-04-20T16:03:33")
    assert (best.target, best.generator.startswith(f"{form}-")) == (form, True)


@pytest.mark.parametrize(
    ("data", "seconds"),
    [
        (samples.ktt("Nanoseconds", 1e6), 1e-3),
        (samples.ktt("Microseconds", 1e3), 1e-3),
        (samples.ktt("Milliseconds", 1.0), 1e-3),
        (samples.ktt("Seconds", 1e-3), 1e-3),
        (samples.t4("microseconds", 1e3), 1e-3),
        (samples.t4("Nanoseconds", 1e6), 1e-3),
        (samples.t4("us", 1e3), 1e-3),
        (samples.t4("", 1.0), 1e-3),  # Kernel Tuner's conversions leave the unit out
    ],
)
def test_every_unit_of_time(data: dict[str, Any], seconds: float, tmp_path: Path) -> None:
    records = _read(samples.write(tmp_path / "x.json", data))
    assert min(r.seconds for r in records if r.seconds) == pytest.approx(seconds)


@pytest.mark.parametrize("name", ["time", "TotalDuration"])
def test_the_unit_beside_the_measurement_counts(name: str, tmp_path: Path) -> None:
    """Where the file as a whole tells none; also of what is not called time."""
    data = samples.t4()
    del data["metadata"]
    for result in data["results"][:-1]:
        (runtime,) = result["times"].pop("runtimes")
        result["objectives"] = [name]
        result["measurements"] = [
            {"name": "power", "value": 300.0, "unit": "W"},
            {"name": name, "value": 1e3 * runtime, "unit": "microseconds"},
        ]
    records = _read(samples.write(tmp_path / "x.json", data))
    assert min(r.seconds for r in records if r.seconds) == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("form", "failures"),
    [
        ("t4", {"compile_error": 1}),
        ("kernel-tuner", {"compile_error": 1, "crash": 1, "illegal": 1}),
        ("ktt", {"compile_error": 1, "crash": 1, "wrong_result": 1, "illegal": 1}),
    ],
)
def test_failures_keep_their_kind(form: str, failures: dict[str, int], tmp_path: Path) -> None:
    records = _read(samples.write(tmp_path / "x.json", FORMS[form]()))
    failed = [record for record in records if not record.ok]
    assert Counter(record.status for record in failed) == failures
    assert all(record.detail.startswith("recorded as ") for record in failed)
    assert all(record.seconds is None for record in failed)


@pytest.mark.parametrize("form", ["kernel-tuner", "ktt"])
def test_kernel_and_card_are_those_of_the_file(form: str, tmp_path: Path) -> None:
    path = samples.write(tmp_path / "other-Titan.json", FORMS[form]())
    named = {(r.operator, r.hardware) for r in _read(path, operator="mine", card="here")}
    assert named == {(samples.KERNEL, samples.CARD)}


@pytest.mark.parametrize(
    ("name", "options", "kernel", "card"),
    [
        ("gemm-RTX_3090.json", {}, "gemm", "RTX_3090"),
        ("gemm.A100.json.gz", {}, "gemm", "A100"),
        ("gemm_milo.json", {}, "gemm_milo", "unknown"),
        ("gemm_milo_A100.json", {"operator": "gemm_milo"}, "gemm_milo", "A100"),
        ("A4000_T4.json.gz", {"operator": "gemm"}, "gemm", "A4000_T4"),
        ("results.json", {"operator": "gemm", "card": "H200"}, "gemm", "H200"),
    ],
)
def test_names_that_a_file_does_not_tell_are_its_own(
    name: str, options: dict[str, str], kernel: str, card: str, tmp_path: Path
) -> None:
    records = _read(samples.write(tmp_path / name, samples.t4()), **options)
    assert {(record.operator, record.hardware) for record in records} == {(kernel, card)}


def test_t4_may_tell_its_card(tmp_path: Path) -> None:
    """As KTT's T4 files do."""
    path = samples.write(tmp_path / "x.json", samples.t4(device=samples.CARD, autotuner="KTT"))
    assert {record.hardware for record in _read(path)} == {samples.CARD}


@pytest.mark.parametrize("form", FORMS)
def test_packed_or_not_a_file_is_the_same(form: str, tmp_path: Path) -> None:
    plain = samples.write(tmp_path / "x.json", FORMS[form]())
    strong = tmp_path / "x.json.xz"
    strong.write_bytes(lzma.compress(plain.read_bytes()))
    members = tmp_path / "x.json.gz"  # two members one after the other are one file
    content = plain.read_bytes()
    members.write_bytes(gzip.compress(content[:99], mtime=0) + gzip.compress(content[99:]))
    with Store(":memory:") as store:
        assert import_records(store, plain).added == 9
        assert import_records(store, strong).added == 0
        assert import_records(store, members).added == 0


def test_no_two_files_share_a_key(tmp_path: Path) -> None:
    """Also those that call their kernel alike, tell no card, and are called alike."""
    files = [
        ("a", samples.t4()), ("b", samples.t4("microseconds", 1e3)), ("c", samples.t4(factor=2)),
        ("d", samples.ktt()), ("e", samples.ktt(factor=2e3)), ("f", samples.kernel_tuner()),
        ("g", samples.kernel_tuner(device_name="A100")),
        ("h", samples.kernel_tuner(problem_size=[8192, 8192])),
        ("i", samples.kernel_tuner(tune_params={"block_size_x": [16], "rows": [1]})),
    ]  # fmt: skip
    with Store(":memory:") as store:
        for folder, data in files:
            (tmp_path / folder).mkdir()
            path = samples.write(tmp_path / folder / "gemm_kernel.json", data)
            assert import_records(store, path).added == 9
        assert len({row.workload for row in store.workloads()}) == len(files)


def test_a_cache_that_has_grown_adds_to_its_workload(tmp_path: Path) -> None:
    whole = samples.kernel_tuner()
    part = whole | {"cache": dict(list(whole["cache"].items())[:4])}
    with Store(":memory:") as store:
        assert import_records(store, samples.write(tmp_path / "a.json", part)).added == 4
        assert import_records(store, samples.write(tmp_path / "b.json", whole)).added == 5
        assert len(store.workloads()) == 1


@pytest.mark.parametrize("end", [1, 2])
def test_a_cache_in_use_is_read_as_far_as_it_goes(end: int, tmp_path: Path) -> None:
    """Kernel Tuner closes it only when it is done; an entry may be followed by a comma."""
    data = samples.kernel_tuner()
    text = json.dumps(data | {"cache": data["cache"]})[:-2] + "," * (end - 1) + "\n"
    (tmp_path / "cache.json").write_text(text)
    assert len(_read(tmp_path / "cache.json")) == 9
    (tmp_path / "cache.json").write_text(text[:-40])
    with pytest.raises(DamagedExport, match="it is not JSON"):
        foreign_records(tmp_path / "cache.json")


def test_older_caches_have_no_number_and_another_failure(tmp_path: Path) -> None:
    data = samples.kernel_tuner()
    del data["schema_version"], data["problem_size"]
    data["cache"]["16,1"]["time"] = 1e20
    first = _read(samples.write(tmp_path / "x.json", data))[0]
    assert (first.status, first.generator) == ("crash", "kernel-tuner-0")


def _without(data: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name not in names}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"a": 1}, "nothing in it is called 'results'"),
        (samples.t4() | samples.ktt(), "it mixes T4 results and results of KTT"),
        (samples.kernel_tuner() | {"results": []}, "it mixes T4 results and a cache"),
        (_without(samples.kernel_tuner(), "tune_params_keys"), "which parameters were tuned"),
        (samples.kernel_tuner(cache=[1]), "it holds no configurations"),
        (samples.kernel_tuner(cache={"1": {"rows": 2}}), "result 1: it lacks its parameter"),
        (samples.kernel_tuner(cache={"1": 7}), "result 1: it is not a configuration"),
        (
            samples.kernel_tuner(cache={"1": {"block_size_x": 1, "rows": 1, "time": "Oops"}}),
            "time 'Oops' is no number",
        ),
        (samples.kernel_tuner(cache={"1": {"block_size_x": 1, "rows": 1}}), "no time of it"),
        (_without(samples.ktt(), "Metadata"), "TimeUnit: unit of time '' is not known"),
        (samples.ktt("Fortnights"), "unit of time 'Fortnights' is not known"),
        (samples.ktt() | {"Results": 3}, "it is no list"),
        (samples.ktt() | {"Results": [3]}, "result 1: it is not a result"),
        (samples.ktt() | {"Results": [{"Status": "Fine"}]}, "status 'Fine' is not known"),
        (samples.ktt() | {"Results": [{"Status": "Ok"}]}, "no TotalDuration"),
        (
            samples.ktt() | {"Results": [{"Status": "Ok", "TotalDuration": 1}]},
            "it lacks its configuration",
        ),
    ],
)
def test_what_is_damaged_or_mixed_is_told_in_a_line(
    content: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with Store(":memory:") as store, pytest.raises(DamagedExport, match=words) as refusal:
        import_records(store, samples.write(tmp_path / "x.json", content))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.json", b"<?xml version='1.0'?>", "not JSON but XML"),
        ("x.json", gzip.compress(b"{}", mtime=0), "not JSON but packed"),
        ("x.json.gz", b"{}", "cannot be unpacked"),
        ("x.json.gz", gzip.compress(b"{}" * 99, mtime=0)[:-9], "cannot be unpacked"),
        ("x.json.gz", gzip.compress(b"{}", mtime=0) + b"more", "more follows after its end"),
    ],
)
def test_files_of_another_kind_are_told(
    name: str, content: bytes, words: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DamagedExport, match=words):
        foreign_records(tmp_path / name)


def test_a_form_may_be_named_if_it_is_that_of_the_file(tmp_path: Path) -> None:
    path = samples.write(tmp_path / "results", samples.ktt())
    with Store(":memory:") as store:
        assert import_records(store, path, form="ktt").added == 9
        with pytest.raises(DamagedExport, match="it is results of KTT, not a cache of Kernel"):
            import_records(store, path, form="kernel-tuner")
        with pytest.raises(UnusableLocation, match="no form 'ktt' of export"):
            export_records(store, tmp_path / "out.json", form="ktt")
        with pytest.raises(UnusableLocation, match="exports are not packed"):
            export_records(store, tmp_path / "out.json.gz")


def test_salvage_takes_the_sound_results(tmp_path: Path) -> None:
    data = samples.ktt()
    data["Results"][1]["Status"] = "Fine"
    path = samples.write(tmp_path / "x.json", data)
    with Store(":memory:") as store:
        with pytest.raises(StoreError):
            import_records(store, path)
        done = import_records(store, path, salvage=True)
        assert (done.added, done.damaged) == (8, (2,))
