"""The commands on real kernels of this machine's CPU, small ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from explorer import cli
from explorer.exporter import find_linker

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "explorer.cli")
MATMUL = ("matmul", "m=48", "n=40", "k=33")


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT)}


def test_tune_run_export(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way: search, go on, rebuild, export, and use what was exported."""
    assert cli.invoke(["tune", *MATMUL, "--trials", "12"]) == cli.EXIT_DONE
    out = capsys.readouterr().out
    assert "trial    1 of 12" in out
    assert "GFLOP/s" in out
    schedule = next(line for line in out.splitlines() if line.startswith("schedule "))[9:]

    assert cli.invoke(["tune", *MATMUL, "--trials", "4", "--format", "json"]) == cli.EXIT_DONE
    found = json.loads(capsys.readouterr().out)
    assert found["known"] == 12
    assert found["trials"] == sum(found["outcomes"].values()) == 4

    (tmp_path / "s.json").write_text(schedule)
    assert cli.invoke(["run", *MATMUL, "--schedule", f"@{tmp_path / 's.json'}"]) == cli.EXIT_DONE
    out = capsys.readouterr().out
    assert out.startswith("ok: ")
    assert "register spills in hot loops: " in out
    assert cli.invoke(["run", *MATMUL, "--format", "json"]) == cli.EXIT_DONE
    assert json.loads(capsys.readouterr().out)["status"] == "ok"

    folder = tmp_path / "kernel"
    assert cli.invoke(["export", *MATMUL, "--out", str(folder)]) == cli.EXIT_DONE
    assert f"wrote {folder / 'matmul.c'}" in capsys.readouterr().out
    if find_linker():
        _use(folder)
    assert cli.invoke(["export", *MATMUL, "--out", str(folder), "--name", "mine"]) == cli.EXIT_DONE
    assert "void mine(const float *A" in (folder / "mine.h").read_text()
    capsys.readouterr()
    monkeypatch.setattr("explorer.exporter.find_linker", lambda: None)
    monkeypatch.setattr("explorer.exporters.library.find_linker", lambda: None)
    alone = tmp_path / "alone"
    assert cli.invoke(["export", *MATMUL, "--out", str(alone)]) == cli.EXIT_DONE
    told = capsys.readouterr().err
    assert told.startswith("no shared library: no C compiler was found; install gcc or clang")
    assert (alone / "matmul.o").exists()
    assert not list(alone.glob("*.so"))


def _use(folder: Path) -> None:
    """Call the exported module in a process that cannot import Tilewright."""
    rng = np.random.default_rng(0)
    left, right = rng.random((48, 33), np.float32), rng.random((33, 40), np.float32)
    np.savez(folder / "in.npz", left=left, right=right)
    code = (
        "import numpy as np, matmul; d = np.load('in.npz'); "
        "np.save('out.npy', matmul.matmul(d['left'], d['right']))"
    )
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, timeout=60)
    assert np.allclose(np.load(folder / "out.npy"), left @ right, rtol=1e-4)


def test_an_operator_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "from ir import exp, operator, reduce\n\n\n"
        "@operator\n"
        "def spread(g, m: int, n: int):\n"
        "    rows, columns = g.axes(m=m, n=n)\n"
        "    x = g.input('X', (rows, columns), 'f32')\n"
        "    g.output('Y', exp(x * x) - reduce('max', x, over=columns), 'f32')\n"
    )
    assert cli.invoke(["tune", "mine.py:spread", "m=17", "n=33", "--trials", "3"]) == cli.EXIT_DONE
    assert "3 trials" in capsys.readouterr().out


def test_space(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["space", "matmul", "m=1024", "n=1024", "k=1024"]
    assert cli.invoke(words) == cli.EXIT_DONE
    text = capsys.readouterr().out
    assert text.startswith("matmul: ")
    assert cli.invoke([*words, "--format", "json"]) == cli.EXIT_DONE
    described = json.loads(capsys.readouterr().out)
    assert described["legal"] >= 10**6
    for decision in described["decisions"]:
        assert f"  {decision['name']} " in text
        assert decision["why"]
    for constraint in described["constraints"]:
        assert f"{constraint['name']}: {constraint['needs']}" in text


def test_the_space_of_a_card_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*MATMUL, "dtype=bf16", "--target", "cuda", "--format", "json", "--hardware"]
    engines = {}
    for card in ("h200", "rtx4090"):
        assert cli.invoke(["space", *words, card]) == cli.EXIT_DONE
        decisions = json.loads(capsys.readouterr().out)["decisions"]
        engines[card] = next(d["domain"] for d in decisions if d["name"] == "engine")
        assert cli.invoke(["explain", *words, card]) == cli.EXIT_DONE
        assert len(json.loads(capsys.readouterr().out)["decisions"]) == len(decisions)
    assert set(engines["h200"]) - set(engines["rtx4090"]) == {"wgmma"}


def test_pins_narrow_the_space(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["space", *MATMUL, "--format", "json"]
    cli.invoke(words)
    whole = json.loads(capsys.readouterr().out)
    domain = next(d["domain"] for d in whole["decisions"] if d["name"] == "rows.s0")
    assert cli.invoke([*words, "--pin", "rows.s0=4"]) == cli.EXIT_DONE
    pinned = json.loads(capsys.readouterr().out)
    assert pinned["pinned"] == {"rows.s0": 4}
    assert pinned["size"] * len(domain) == whole["size"]


def test_show_and_targets(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.invoke(["show", "softmax", "m=4", "n=8"]) == cli.EXIT_DONE
    plain = capsys.readouterr().out
    assert cli.invoke(["show", "softmax", "m=4", "n=8", "--streamed"]) == cli.EXIT_DONE
    assert capsys.readouterr().out != plain
    assert cli.invoke(["targets", "--format", "json"]) == cli.EXIT_DONE
    found = json.loads(capsys.readouterr().out)
    assert found["targets"]["cpu"]["threads"] >= 1
    assert "matmul" in found["operators"]


def test_no_words_are_a_call_for_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.invoke([]) == cli.EXIT_DONE
    out = capsys.readouterr().out
    assert all(f"  {verb} " in out for verb in ("tune", "space", "run", "export"))


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from explorer.cli import invoke; invoke(['--help']); "
        "heavy = {'numpy', 'networkx', 'xgboost', 'llvmlite', 'sqlalchemy', 'scipy', 'rich'}; "
        "print(heavy & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment()
    )
    assert done.stderr.strip() == "set()"


def test_ctrl_c_keeps_what_is_measured_and_prints_the_best(store: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "tune", *MATMUL, "--trials", "100000", "--strategy", "random"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert process.stdout is not None
    while "trial   32 " not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=30)
    assert process.returncode == cli.EXIT_INTERRUPTED
    assert "\nschedule {" in out
    assert error.startswith("tilewright: interrupted; ")
    assert error.count("\n") == 1

    from records import Store

    with Store(store) as records:
        assert records.count() >= 32
        assert [job.state for job in records.jobs()] == ["stopped"]


def test_a_reader_that_leaves_is_no_error() -> None:
    command = " ".join([*COMMAND, "targets"])
    done = subprocess.run(
        ["bash", "-c", f"{command} | true; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        env=environment(),
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_effort_names_a_budget(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["tune", *MATMUL, "--effort", "quick", "--trials", "3", "--format", "json"]
    assert cli.invoke(words) == cli.EXIT_DONE
    assert json.loads(capsys.readouterr().out)["trials"] == 3
    assert cli.invoke(["tune", *MATMUL, "--effort", "quik"]) == cli.EXIT_USAGE
    assert "quick, standard, deep" in capsys.readouterr().err
