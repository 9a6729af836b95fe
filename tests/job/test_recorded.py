"""Kernels that another tuner recorded, searched and shown as a stranger would have it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import explorer
from explorer import cli
from explorer.job import Progress
from explorer.recorded import recording_of
from explorer.recorded_space import recorded_space, schedules_of
from explorer.strategies.base import REGISTRY
from ir.errors import UsageError
from records import Store, import_records
from tests.records import tuned_files as samples

FORMS: dict[str, Callable[..., dict[str, Any]]] = {
    "t4": samples.t4,
    "kernel-tuner": samples.kernel_tuner,
    "ktt": samples.ktt,
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return samples.write(tmp_path / f"{samples.KERNEL}-A100.json.gz", samples.t4())


def _told(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = cli.invoke([str(word) for word in words])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ending", [".json", ".json.gz"])
def test_a_file_of_every_form_is_searched(form: str, ending: str, tmp_path: Path) -> None:
    path = samples.write(tmp_path / f"{samples.KERNEL}{ending}", FORMS[form]())
    found = explorer.tune(samples.KERNEL, replay=path, trials=9)
    assert found.best.as_dict() == samples.BEST
    assert found.seconds == pytest.approx(1e-3)
    assert found.trials == 9


@pytest.mark.parametrize("strategy", [name for name in sorted(REGISTRY) if name != "replay"])
def test_every_strategy_runs_and_repeats_itself(strategy: str, tmp_path: Path) -> None:
    """Over a sparse space: a tenth of the product of its domains, some of it failed."""
    if strategy.startswith("optuna"):
        pytest.importorskip("optuna")
    if strategy == "optuna-cmaes":
        pytest.importorskip("cmaes")
    path = samples.write(tmp_path / "sparse.json", _sparse())
    courses = []
    for _ in range(2):
        asked: list[str] = []

        def note(progress: Progress, asked: list[str] = asked) -> None:
            asked.append(progress.schedule.key)

        options: dict[str, Any] = {"strategy": strategy, "trials": 40, "seed": 3}
        result = explorer.tune("-", replay=path, progress=note, **options)
        courses.append(asked)
        assert result.trials == len(set(asked)) == 40
        assert "illegal" not in dict(result.outcomes)
    assert courses[0] == courses[1]


def _sparse() -> dict[str, Any]:
    data = samples.t4()
    whole = list(product(range(8), (1, 2, 4, 8, 16), ("row", "column"), range(5)))
    rows = np.random.default_rng(0).permutation(len(whole))[: len(whole) // 4]
    first = data["results"][0]
    data["results"] = [
        first
        | {"configuration": dict(zip("abcd", whole[row], strict=True))}
        | {"times": {"runtimes": [1.0 + row % 17]}}
        | ({} if row % 11 else {"invalidity": "runtime", "times": {}})
        for row in rows.tolist()
    ]
    return data


def test_the_fastest_of_one_card_are_tried_first_on_another(file: Path, tmp_path: Path) -> None:
    here = samples.write(tmp_path / f"{samples.KERNEL}-A40.json", samples.t4(factor=2.0))
    options: dict[str, Any] = {"start_from": file, "strategy": "replay", "trials": 2}
    found = explorer.tune(samples.KERNEL, replay=here, **options)
    assert found.best.as_dict() == samples.BEST
    assert found.seconds == pytest.approx(2e-3)


@pytest.mark.parametrize(
    ("values", "domain"),
    [
        ((4, 1, 16), (1, 4, 16)),
        (("4", "1", "16"), (1, 4, 16)),  # KTT's T4 files write numbers so
        ((4.0, 1.0, 16), (1, 4, 16)),
        ((0.5, 10, 2.0), ("0.5", "2.0", "10")),
        ((True, False), (False, True)),
        ((True, 1, "1"), ("1", "true")),
        (("b", "a"), ("a", "b")),
        (("04", "4"), ("04", "4")),
        (([32, 4], [8, 8], None), ("[32,4]", "[8,8]", "null")),
        ((1 << 70, 1), ("1", str(1 << 70))),
    ],
)
def test_parameters_of_any_kind_become_decisions(
    values: Sequence[Any], domain: Sequence[Any]
) -> None:
    configurations = [{"x": value, "y": 1} for value in values]
    space = recorded_space("t4", configurations)
    assert space.decision("x").domain == tuple(domain)
    for schedule in schedules_of(space, configurations):
        assert space.refusal(schedule) is None


def test_only_what_was_recorded_is_legal() -> None:
    configurations = [{"x": x, "y": (3 * x) % 5} for x in range(5)]
    space = recorded_space("t4", configurations)
    rows = np.array([[x, y] for x in range(5) for y in range(5)], dtype=np.int16)
    assert [tuple(row) for row in rows[space.legal(rows)]] == [(x, (3 * x) % 5) for x in range(5)]
    rng = np.random.default_rng(0)
    mended = space.repair(rng, rows)
    assert space.legal(mended).all()
    assert ((mended != rows).sum(axis=1) <= 1).all()
    assert space.legal(space.sample(rng, 50)).all()
    assert len(np.concatenate(list(space.exhaustive(2)))) == 5
    assert len(np.concatenate(list(space.pin(x=2).exhaustive()))) == 1
    with pytest.raises(UsageError, match="none of 5 recorded configurations has x=2, y=0"):
        space.pin(x=2, y=0).sample(rng, 1)
    refusal = space.refusal(space.schedule(np.array([0, 1], dtype=np.int16)))
    assert refusal is not None
    assert "none of the 5 configurations" in str(refusal)


def test_configurations_of_two_spaces_are_refused(tmp_path: Path) -> None:
    data = samples.t4()
    data["results"][3]["configuration"] = {"other": 1}
    path = samples.write(tmp_path / "x.json", data)
    with pytest.raises(UsageError, match=r"result 4: parameter .* not of one space"):
        recording_of(None, {}, path)
    with pytest.raises(UsageError, match="no configuration is recorded"):
        recorded_space("t4", [])


def test_what_a_replay_shows(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tune = ("tune", samples.KERNEL, "--replay", file, "--trials", 9)
    code, out, _ = _told(capsys, *tune)
    assert code == 0
    first = f"replays {samples.KERNEL} card=A100: 9 configurations, 8 of them right, the best 1.000"
    assert out.startswith(first)
    assert "number 1 of 8 recorded, 1.000 times the best" in out
    assert "9 trials in" in out
    assert "1 compile_error" in out
    assert "GB/s" not in out
    assert "job " not in out
    _, out, _ = _told(capsys, *tune, "--format", "json")
    told = {"configurations": 9, "right": 8, "best_seconds": pytest.approx(1e-3), "rank": 1}
    assert json.loads(out)["recorded"] == told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--out", "kernel"), "there are its times alone, and nothing to export"),
        (("--target", "cuda"), "--target cannot be given here: the kernel was recorded by anoth"),
        (("--threads", "2"), "--threads cannot be given here"),
        (("--pin", "rows=3"), "rows: '3' is not in its domain: 1, 2, 4"),
        (("--pin", "height=3"), "no decision 'height' in this space"),
        (("m=512",), "nothing with m=512 is recorded there; there is gemm_kernel card=A100"),
        (("--strategy", "replay"), "name records with --start-from"),
        (("--start-from", "nowhere.db"), "nowhere.db: no such file"),
    ],
)
def test_what_does_not_go_with_it(
    words: Sequence[str], said: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = _told(capsys, "tune", samples.KERNEL, "--replay", file, *words, "--trials", 2)
    assert code == 2
    assert said in err
    assert err.count("\n") == 1


def test_a_kernel_is_chosen_by_name_and_card(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two cards, two kernels and two sizes in one store; none of them is mistaken for another."""
    store = tmp_path / "all.db"
    big = {"problem_size": [8192, 8192]}
    files = {
        "a.json": samples.kernel_tuner(), "b.json": samples.kernel_tuner(**big),
        "gemm_kernel-A40.json": samples.t4(factor=2.0), "c.json": samples.ktt(kernel="prefixes"),
    }  # fmt: skip
    for name, data in files.items():
        code, out, _ = _told(
            capsys, "db", "import", samples.write(tmp_path / name, data), "--records", store
        )
        assert (code, out) == (0, "read 9 trials, 9 of them new\n")
    tune = ("tune", "--replay", store, "--trials", 9, "--format", "json")
    for words, said in (
        ((), "4 kernels are recorded there, name one by their name"),
        (("gemm_kernel",), "3 kernels are recorded there, name one by card="),
        (("gemm_kernel", f"card={samples.CARD}"), "2 kernels are recorded there"),
        (("gem",), "no kernel 'gem' is recorded there; there is"),
        (("matmul", "m=8", "n=8", "k=8"), "no kernel 'matmul' is recorded there"),
    ):
        code, _, err = _told(capsys, *tune, *words)
        assert (code, said in err) == (2, True), err
    for words, seconds in (
        (("prefixes",), 1e-3),
        (("gemm_kernel", "card=A40"), 2e-3),
        (("gemm_kernel", "size=8192x8192"), 1e-3),
    ):
        code, out, _ = _told(capsys, *tune, *words)
        assert json.loads(out)["seconds"] == pytest.approx(seconds)
    _, out, _ = _told(capsys, "top", "gemm_kernel", "--records", store)
    assert out.count("of 9 trials on") == 3
    assert "gemm_kernel: 2.000 ms\n  of 9 trials on A40, 2024-04-20" in out
    assert f"gemm_kernel size=8192x8192: 1.000 ms\n  of 9 trials on {samples.CARD}" in out
    for verb in ("export", "run", "explain"):
        code, _, err = _told(capsys, verb, "prefixes", "--records", store)
        assert code == 2
        said = "prefixes was recorded by another tuner (ktt): there are its times alone, and "
        assert said in err
        assert f"nothing to {verb}" in err


@pytest.mark.parametrize("name", ["out.jsonl", "out.json"])
def test_our_export_of_it_replays_too(name: str, file: Path, tmp_path: Path) -> None:
    from records import export_records

    with Store(tmp_path / "a.db") as store:
        import_records(store, file)
        export_records(store, tmp_path / name)
    found = explorer.tune(samples.KERNEL, replay=tmp_path / name, trials=9)
    assert found.best.as_dict() == samples.BEST


def test_a_file_of_ours_asks_for_its_operator(tmp_path: Path) -> None:
    path = samples.write(tmp_path / "empty.json", {"results": [], "tilewright": {}})
    with pytest.raises(UsageError, match="Missing argument 'OPERATOR'"):
        explorer.tune(None, replay=path, trials=2)  # type: ignore[arg-type]


def test_what_holds_nothing_is_told(tmp_path: Path) -> None:
    path = samples.write(tmp_path / "empty.json", {"results": []})
    with pytest.raises(UsageError, match="it holds no results"):
        explorer.tune("-", replay=path, trials=2)
    with Store(tmp_path / "a.db"):
        pass
    with pytest.raises(UsageError, match="no kernel of another tuner is recorded there"):
        explorer.tune("-", replay=tmp_path / "a.db", trials=2)


def test_names_that_no_program_could_have(tmp_path: Path) -> None:
    path = samples.write(tmp_path / "x.json", samples.ktt(kernel="void gemm<8>(float*)"))
    found = explorer.tune("-", replay=path, trials=9)
    assert found.workload.operator == "void gemm<8>(float*)"
    assert found.best.as_dict() == samples.BEST
