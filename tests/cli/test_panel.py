"""The live panel and the plain lines, from one account of a run."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from explorer.baseline import Baseline
from explorer.budget import Budget
from explorer.cli.panel import REFRESH, LivePanel
from explorer.cli.progress import Account, Lines
from explorer.outcome import Outcome, Status
from explorer.plan import JobPlan, Plan
from explorer.result import Progress
from explorer.roofline import Roofline
from ir.schedule import Schedule

SCHEDULE = Schedule.of("cpu", {"x": 1})
FLOPS = 2_000_000
ROOF = Roofline(FLOPS, 1000, 4e9, 1e9)  # half a millisecond at least


def account(jobs: int = 1, seconds: float | None = None) -> Account:
    plans = tuple(JobPlan(f"op{n}", (("m", 8),)) for n in range(jobs))
    return Account(Plan(plans, Budget(40, seconds, 8)), (ROOF,) * jobs)


def told(trial: int, best: float | None, **more: Any) -> Progress:
    status: Status = more.pop("status", "ok")
    notes = more.pop("notes", ())
    outcome = Outcome(status, best if status == "ok" else None, notes=notes)
    elapsed = more.pop("elapsed", trial * 0.5)
    more.setdefault("trials", trial)
    return Progress(trial, SCHEDULE, outcome, best, elapsed, FLOPS, **more)


def panel_text(panel: LivePanel, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(panel.render())
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def panel_of(made: Account, **options: Any) -> LivePanel:
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    return LivePanel(made, console, **options)


def test_one_job() -> None:
    made = account(seconds=60.0)
    with panel_of(made) as panel:
        panel.show(told(1, 2e-3))
        panel.show(told(2, 1e-3, regret=0.034))
        panel.show(told(3, 1e-3, status="timeout", regret=0.034))
        text = panel_text(panel)
    assert "op0 m=8" in text
    assert "1.000 ms, 2.0 GFLOP/s" in text
    assert "50 % of the machine's peak" in text
    assert "0.0005 s at least, bound by arithmetic" in text
    assert "regret 3.4 %" in text
    assert "3 of 40, 2.0 a second" in text
    assert "2 s, 58 s left" in text
    assert "2 ok, 1 timeout" in text
    assert "warning" not in text


def test_without_peak_regret_or_time_limit_nothing_is_made_up() -> None:
    made = Account(account().plan, (Roofline(FLOPS, 1000),))
    with panel_of(made) as panel:
        assert "nothing valid yet" in panel_text(panel)
        panel.show(told(1, 2e-3))
        text = panel_text(panel)
    for word in ("peak", "regret", "left", "other programs"):
        assert word not in text


LIBRARY = Baseline("cuBLAS (CuPy 14.2)", Outcome("ok", 1.5e-3))
NONE = Baseline(why="array libraries have no carry")


def test_the_best_stands_beside_the_library() -> None:
    with panel_of(account()) as panel:
        panel.show(told(1, None, status="crash", baseline=LIBRARY))
        assert re.search(r"baseline +cuBLAS \(CuPy 14\.2\) +1\.500 ms", panel_text(panel))
        panel.show(told(2, 1e-3, baseline=LIBRARY))
        assert re.search(r"baseline +1\.50x cuBLAS \(CuPy 14\.2\) +1\.500 ms", panel_text(panel))
        panel.show(told(3, 1e-3, baseline=NONE))
        assert re.search(r"baseline +none +array libraries have no carry", panel_text(panel))


def test_lines_say_the_ratio_and_once_that_there_is_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Lines(account(jobs=2)) as lines:
        lines.show(told(1, 1e-3, trials=1, baseline=LIBRARY))
        lines.show(told(1, 1e-3, number=1, trials=2, baseline=NONE))
        lines.show(told(2, 5e-4, number=1, trials=3, baseline=NONE))
    first, missing, second, third = capsys.readouterr().out.splitlines()
    assert first.endswith("50 % of the machine's peak, 1.50x cuBLAS (CuPy 14.2)")
    assert missing == "op1 m=8: no baseline: array libraries have no carry"
    assert second.endswith("50 % of the machine's peak")
    assert "0.5000 ms" in third


def test_several_jobs() -> None:
    made = account(jobs=2)
    with panel_of(made) as panel:
        panel.show(told(1, 1e-3, number=1, trials=1))
        panel.show(told(2, 1e-3, number=1, trials=2, status="crash"))
        lines = panel_text(panel).splitlines()
    assert "2 jobs" in lines[0]
    (row,) = (line for line in lines if "op1 m=8" in line)
    assert row.split()[3:] == ["2", "1.000", "ms,", "2.0", "GFLOP/s", "50", "%", "1", "│"]
    (row,) = (line for line in lines if "op0 m=8" in line)
    assert "nothing valid yet" in row


def test_foreign_load_is_shown_while_it_lasts() -> None:
    made = account()
    with panel_of(made) as panel:
        panel.show(told(1, 1e-3, notes=(("foreign_load", 0.3), ("crowded", True))))
        assert "other programs use 30 % of the processors" in panel_text(panel)
        panel.show(told(2, 1e-3, notes=(("foreign_load", 0.4),)))
        shown = panel_text(panel)
        assert "other programs use" not in shown
        assert re.search(r"crowded +other programs had 30 % of the processors", shown)
        panel.show(told(3, 0.9e-3))
        assert "other programs" not in panel_text(panel)


def test_it_is_drawn_between_trials_and_not_too_often() -> None:
    now = [0.0]
    made = account()
    file = io.StringIO()
    console = Console(file=file, width=100, force_terminal=True)
    with LivePanel(made, console, clock=lambda: now[0]) as panel:
        size = len(file.getvalue())
        panel.show(told(1, 1e-3))
        drawn = len(file.getvalue())
        assert drawn > size
        now[0] += REFRESH / 2
        panel.show(told(2, 1e-3))
        assert len(file.getvalue()) == drawn
        now[0] += REFRESH
        panel.show(told(3, 1e-3))
        assert len(file.getvalue()) > drawn
    last = file.getvalue().rpartition("╭")[2]
    assert "3 of 40" in last


def test_the_rate_is_that_of_this_process() -> None:
    made = account()
    for trial in range(1, 11):
        made.note(told(trial, 1e-3, elapsed=100.0, replayed=True))
    assert made.rate is None
    made.note(told(11, 1e-3, elapsed=102.0))
    made.note(told(12, 1e-3, elapsed=104.0))
    assert made.rate == pytest.approx(0.5)
    assert made.replayed == 10


def test_lines_tell_improvements_and_now_and_then_where_one_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Lines(account(jobs=2)) as lines:
        lines.show(told(1, None, status="crash", trials=1))
        lines.show(told(2, 1e-3, trials=2))
        lines.show(told(3, 1e-3, trials=3))
        lines.show(told(1, 5e-3, number=1, trials=4))
        lines.show(told(4, 1e-3, trials=32))
    first, second, third = capsys.readouterr().out.splitlines()
    assert first.endswith("trial    2 of 40  op0 m=8: best 1.000 ms, 2.0 GFLOP/s, "
                          "50 % of the machine's peak  (1 crash)")  # fmt: skip
    assert "op1 m=8: best 5.000 ms" in second
    assert "trial   32 of 40" in third


def test_lines_leave_out_what_was_measured_before_an_interruption(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Lines(account()) as lines:
        lines.show(told(1, 1e-3, replayed=True))
        assert capsys.readouterr().out == ""
        lines.show(told(2, 1e-4))
        lines.show(told(3, 1e-5))
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == "goes on after trial 1"
    assert "trial    2" in second
    assert "trial    3" in third
