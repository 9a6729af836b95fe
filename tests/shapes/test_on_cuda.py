"""Ranges on the CUDA target: on a scripted card, and on a card where there is one."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import explorer
from explorer import cli
from explorer.plan import plan_of
from explorer.recall import best_winner
from explorer.shapes.choice import choice_for
from explorer.shapes.fitted import fitted
from explorer.shapes.members import Members
from explorer.shapes.plan import split
from explorer.shapes.result import FamilyResult
from explorer.shapes.table import Settled, Table
from ir.inputs import random_inputs
from ir.schedule import Schedule
from ir.targets.cuda.rows.hardware import known_hardware
from tests.emulator.emulate import compiler
from tests.job.device import ScriptedDevice
from tests.judging import bounds_of
from tests.runtime.test_export_cuda import HAS_GPU
from tests.targets.cuda_cases import HARDWARE, built, drawn
from tests.targets.test_cuda_emulated import problems

PRODUCT: dict[str, Any] = {"n": 512, "k": 256, "dtype": "bf16", "tb": True, "target": "cuda"}
WORDS = ("n=512", "k=256", "dtype=bf16", "tb=true", "--target", "cuda")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A store, and a card that answers by the schedule."""
    folder = tmp_path_factory.mktemp("ranges")
    device = ScriptedDevice()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEWRIGHT_RECORDS", str(folder / "records.db"))
        patch.setenv("TILEWRIGHT_CACHE", str(folder / "cache"))
        patch.setattr("explorer.search.Measurer", device)
        patch.setattr("explorer.shapes.tuning.Measurer", device)
        patch.setattr("ir.targets.cuda.backend.device_hardware", lambda: known_hardware("h200"))
        for module in ("cuda", "cuda_table"):
            patch.setattr(f"explorer.exporters.{module}.ask_once", lambda *_, **__: b"code")
        yield folder / "records.db"


@pytest.fixture(scope="module")
def found(place: Path) -> FamilyResult:
    return explorer.tune_range("matmul", m=range(1, 8193), trials=48, **PRODUCT)


def test_any_extent_has_a_legal_schedule_with_a_kernel(found: FamilyResult) -> None:
    assert found.searched[:2] == ((8192,), (1,))
    assert found.regrets
    for extent in (1, 7, 64, 129, 2049, 8192):
        winner = found.winner(m=extent)
        assert winner.workload.target == "cuda"
        assert winner.workload.space().refusal(winner.schedule) is None
        assert winner.kernel().arguments[0].shape == (extent, 256)
        assert best_winner(winner.workload).seconds > 0


def test_schedules_of_both_ends_are_carried_to_all_others(found: FamilyResult) -> None:
    """However large the tiles are: what is not legal is drawn again."""
    ends = [found.family.workload((m,)) for m in (1, 8192)]
    for end in ends:
        space = end.space()
        for row in space.seed_rows(np.random.default_rng(0))[:6]:
            for m in (1, 3, 100, 4097):
                there = found.family.workload((m,))
                schedule = fitted(there, space.schedule(row))
                assert schedule is not None
                assert there.space().refusal(schedule) is None


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("there", [1, 9, 65, 130])
@pytest.mark.alike(2)
def test_carried_kernels_mean_their_program(there: int) -> None:
    """Those of 256 rows on fewer, emulated."""
    given: dict[str, Any] = {"n": 72, "k": 40, "dtype": "bf16", "tb": True}
    program = built("matmul", {"m": there, **given})
    inputs = random_inputs(program, np.random.default_rng(there))
    wanted = bounds_of(program, inputs)
    workload = replace(explorer.load("matmul", m=there, target="cuda", **given), machine=HARDWARE)
    far = built("matmul", {"m": 256, **given})
    for turn, schedule in enumerate(drawn(far, there, 2, 2)):
        own = fitted(workload, schedule)
        assert own is not None
        kernel = workload.kernel(own)
        assert not problems(program, kernel, inputs, wanted, 5 * turn), own.to_json()


def test_the_next_nearest_schedule_is_taken_where_one_fits_nowhere(
    found: FamilyResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = found.family.workload((64,)).space()
    rows = space.seed_rows(np.random.default_rng(0))
    schedules = list(dict.fromkeys(map(space.schedule, rows)))[:6]
    assert len(schedules) == 6
    points = [100, 110, 120, 130, 140, 4000]
    table = Table(
        found.table.varying, found.table.fixed,
        tuple(Settled((m,), s, 1e-3, 1) for m, s in zip(points, schedules, strict=True)),
    )  # fmt: skip

    def far_alone(workload: Any, schedule: Schedule, pins: Any = None) -> Schedule | None:
        return fitted(workload, schedule, pins) if schedule == schedules[-1] else None

    monkeypatch.setattr("explorer.shapes.members.fitted", far_alone)
    monkeypatch.setattr("explorer.shapes.members.rescaled", lambda *_: None)
    choice = choice_for(table, (101,), Members(found.family.workload))
    assert choice is not None
    assert choice.row.point == (4000,)


def test_ranges_of_a_file_are_on_cuda(place: Path) -> None:
    arguments = {"m": "1..64", "n": 64, "k": 64, "dtype": "bf16"}
    job = {"operator": "matmul", "arguments": arguments, "trials": 16, "target": "cuda"}
    (family,) = split(plan_of({"trials": 16, "job": [job]})).families
    assert family.family.target == "cuda"


def test_the_commands_take_ranges_and_any_extent(
    found: FamilyResult, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["tune", "matmul", "m=1..64", *WORDS, "--trials", "16", "--format", "json"]
    assert cli.invoke(words) == cli.EXIT_DONE
    assert json.loads(capsys.readouterr().out)["table"]
    words = ["explain", "matmul", "m=4243", *WORDS, "--schedule", "best"]
    assert cli.invoke(words) == cli.EXIT_DONE
    assert capsys.readouterr().out
    words = ["export", "matmul", "m=7,64,4243", *WORDS, "--out", str(tmp_path), "--name", "rows"]
    assert cli.invoke(words) == cli.EXIT_DONE
    assert f"wrote {tmp_path / 'rows.cubin'}" in capsys.readouterr().out
    manifest = json.loads((tmp_path / "rows.json").read_text())
    assert [row["extents"] for row in manifest["table"]] == [{"m": m} for m in (7, 64, 4243)]
    assert [row["arguments"][0]["shape"] for row in manifest["table"]] == [
        [m, 256] for m in (7, 64, 4243)
    ]
    words = [*words[:-4], "--torch", "--out", str(tmp_path / "rows_of_torch")]
    assert cli.invoke(words) == cli.EXIT_DONE
    text = (tmp_path / "rows_of_torch/__init__.py").read_text()
    assert 'DEVICE = "cuda"' in text
    assert "((4243,), ((4243, 256), (512, 256)), ((4243, 512),))," in text
    assert (tmp_path / "rows_of_torch/forward/matmul.cubin").exists()


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="no NVIDIA device here")
def test_on_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_RECORDS", str(tmp_path / "records.db"))
    torch = pytest.importorskip("torch")
    ranged = explorer.tune_range("matmul", m="1..512", trials=24, **PRODUCT)
    b = torch.randn(512, 256, device="cuda").bfloat16()
    heights = [1, 77, 300, 512]
    given = PRODUCT | {"m": heights}
    explorer.export("matmul", tmp_path / "plain", name="rows_plain", **given)
    explorer.export_torch("matmul", tmp_path / "rows_torch", **given)
    monkeypatch.syspath_prepend(str(tmp_path / "plain"))
    monkeypatch.syspath_prepend(str(tmp_path))
    import rows_plain  # type: ignore[import-not-found]
    import rows_torch  # type: ignore[import-not-found]

    compiled = torch.compile(
        lambda a: rows_torch.matmul(a, b).relu(), dynamic=True, backend="aot_eager"
    )
    for m in heights:
        winner = ranged.winner(m=m)
        assert winner.workload.space().refusal(winner.schedule) is None
        a = torch.randn(m, 256, device="cuda").bfloat16()
        wanted = a @ b.T
        calls = (rows_plain.run, rows_torch.matmul, explorer.kernel("matmul", m=m, **PRODUCT))
        for call in calls:
            torch.testing.assert_close(call(a, b), wanted, rtol=2e-2, atol=1e-1)
        torch.testing.assert_close(compiled(a), wanted.relu(), rtol=2e-2, atol=1e-1)
        torch.library.opcheck(rows_torch._plain, (a, b))
    assert "rows_plain" in sys.modules
    assert replace(ranged.family, target="cuda") == ranged.family
