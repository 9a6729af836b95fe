"""The commands on a program of several phases: its schedules are those of any other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from explorer import cli
from explorer.exporter import find_linker

PROGRAMS = Path(__file__).parents[1] / "targets" / "phased.py"
MIXTURE = (f"{PROGRAMS}:mixture", "m=7", "n=29", "k=13")
_USE = """\
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np, outer_states
rng = np.random.default_rng(0)
k, v, q = (rng.standard_normal((7, n)).astype(np.float32) for n in (5, 3, 5))
state, want = np.zeros((5, 3)), []
for step in range(7):
    state = state * 0.9 + np.outer(k[step], v[step])
    want.append(q[step] @ state)
found = outer_states.outer_states(k, v, q)
np.testing.assert_allclose(found[0], want, rtol=1e-4, atol=1e-5)
np.testing.assert_allclose(found[1], state, rtol=1e-4, atol=1e-5)
"""


def test_tune_explain_run_replay(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.invoke(["tune", *MIXTURE, "--trials", "4"]) == cli.EXIT_DONE
    out = capsys.readouterr().out
    schedule = next(line for line in out.splitlines() if line.startswith("schedule "))[9:]
    (tmp_path / "s.json").write_text(schedule)
    given = ("--schedule", f"@{tmp_path / 's.json'}")
    assert cli.invoke(["explain", *MIXTURE, *given]) == cli.EXIT_DONE
    assert "p1.chunk = " in capsys.readouterr().out
    assert cli.invoke(["run", *MIXTURE, *given]) == cli.EXIT_DONE
    assert capsys.readouterr().out.startswith("ok: ")
    pins = [f"--pin={n}={v}" for n, v in json.loads(schedule)["values"].items()]
    again = ["tune", *MIXTURE, "--trials", "1", *pins, "--replay", str(store)]
    assert cli.invoke(again) == cli.EXIT_DONE
    assert cli.invoke(["show", *MIXTURE]) == cli.EXIT_DONE


@pytest.mark.skipif(find_linker() is None, reason="no C compiler here")
def test_an_export_works_alone(tmp_path: Path) -> None:
    program = (f"{PROGRAMS}:outer_states", "t=7", "d=5", "e=3")
    assert cli.invoke(["tune", *program, "--trials", "2"]) == cli.EXIT_DONE
    folder = tmp_path / "kernel"
    assert cli.invoke(["export", *program, "--out", str(folder)]) == cli.EXIT_DONE
    run = [sys.executable, "-I", "-c", _USE, str(folder)]
    done = subprocess.run(run, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
