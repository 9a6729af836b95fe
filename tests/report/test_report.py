"""The page about a job: what is on it, that it needs nothing else, and how a browser shows it."""

from __future__ import annotations

import html
import json
import re
import shlex
import shutil
import struct
import subprocess
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer import cli, job
from explorer.baseline import Baseline
from explorer.budget import Budget
from explorer.errors import NothingValid
from explorer.landscape import importance
from explorer.outcome import Outcome
from explorer.report import charts
from explorer.report.charts import Mark
from explorer.report.content import content
from explorer.report.page import render
from explorer.report.svg import Axis
from explorer.report.units import TimeUnit
from explorer.roofline import Roofline
from explorer.story import Story, read_story
from ir.schedule import Schedule
from ir.targets.cuda.backend import CudaBackend
from ir.targets.cuda.hardware import known_hardware
from records import Store
from tests.job.device import ScriptedDevice
from tests.report.conftest import EXTENTS, MARKUP, timed

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SECTIONS = (
    "The course of the search",
    "The space",
    "Against the machine",
    "Finalists",
    "Failures",
    "The best kernel",
)


@pytest.fixture(scope="module")
def story(story_store: Path) -> Story:
    with Store(story_store) as store:
        return read_story(store)


@pytest.fixture(scope="module")
def page(story: Story) -> str:
    return render(story)


def test_every_section_is_there_in_order(page: str) -> None:
    assert tuple(re.findall(r"<h2>(.*?)</h2>", page)) == SECTIONS


def test_nothing_is_fetched_from_elsewhere(page: str) -> None:
    assert not re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?(?:https?:)?//""", page)
    assert "<script" not in page
    assert "default-src 'none'" in page


def test_what_a_kernel_said_is_text_and_no_markup(page: str) -> None:
    assert MARKUP not in page
    assert html.escape(MARKUP).replace("&#x27;", "&#39;") in page


def test_charts_are_sound_xml_with_a_mark_for_every_trial(page: str, story: Story) -> None:
    charts = [ElementTree.fromstring(text) for text in re.findall(r"<svg.*?</svg>", page, re.S)]
    assert len(charts) == 2 * (2 + 1 + 1 + 1) + 6
    right = sum(trial.outcome.ok for trial in story.trials)
    course = charts[0]
    dots = [node for node in course.iter("circle") if node.get("class") == "trial"]
    failed = [node for node in course.iter("rect") if node.get("class") == "failed"]
    assert (len(dots), len(failed)) == (right, len(story.trials) - right)
    for chart in charts:
        width, height = map(float, str(chart.get("viewBox")).split()[2:])
        for node in chart.iter("circle"):
            assert 0 <= float(node.get("cx", -1)) <= width
            assert 0 <= float(node.get("cy", -1)) <= height


def test_the_rate_of_a_copy_is_told_in_bytes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fixed = Outcome("ok", 1e-3, (1e-3, 1e-3), 9)
    monkeypatch.setattr(
        "explorer.search.Measurer", ScriptedDevice(lambda s: replace(fixed, kernel_key=s.key))
    )
    copy = f"{Path(__file__).parents[1]}/targets/unseen.py:turned"
    plan = job.plan_one(copy, {"a": 64, "b": 128, "c": 128}, Budget(4, None, 4))
    job.run_plan(plan, store=tmp_path / "records.db", peaks=[{"peak_flops.f32": 4e11}])
    with Store(tmp_path / "records.db") as store:
        told = content(read_story(store))
    assert ("rate", "8.389 GB/s") in told["tiles"]
    assert told["roofline"] == ""


def test_failures_stand_by_kind_with_an_example(story: Story) -> None:
    failures = {failure.status: failure for failure in content(story)["failures"]}
    assert set(failures) >= {"wrong_result", "timeout", "crash"}
    assert failures["timeout"].detail == "no answer within 10 s"
    told = {trial.schedule.to_json() for trial in story.trials if not trial.outcome.ok}
    assert {failure.schedule for failure in failures.values()} <= told
    assert sum(failure.count for failure in failures.values()) == len(told)


def test_the_decisions_that_matter_come_first(story: Story) -> None:
    """The scripted device's times depend on the register tile and on packing, and on no others."""
    space = story.space()
    rows = space.sample(np.random.default_rng(0), 400)
    trials = [(schedule, timed(schedule)) for schedule in map(space.schedule, rows)]
    shares = importance(space, trials)
    assert next(iter(shares)) in {"rows.s0", "vectors.s0", "pack.s0.A"}
    assert shares["rows.s0"] > 0.05
    assert all(shares[name] < 0.03 for name in ("stream", "chunk", "prefetch.s0", "order.1"))
    assert all(0.0 <= share <= 1.0 for share in shares.values())
    assert importance(space, trials[:10]) == {}


def test_the_commands_rebuild_the_kernel(
    page: str,
    story: Story,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TILEWRIGHT_RECORDS", str(tmp_path / "records.db"))
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    found = re.findall(r'<pre class="command">(.*?)</pre>', page, re.S)
    run, export, tune = (shlex.split(html.unescape(command))[1:] for command in found)
    assert cli.invoke([*run, "--format", "json"]) == cli.EXIT_DONE
    assert json.loads(capsys.readouterr().out)["status"] == "ok"
    assert cli.invoke(export) == cli.EXIT_DONE
    assert story.kernel(story.best_schedule).text("c") in html.unescape(page)
    assert (tmp_path / "kernel" / "matmul.c").exists()
    assert tune[:2] == ["tune", "matmul"]
    assert tune[tune.index("--pin") + 1] == "unroll.s0=1"


@pytest.mark.parametrize("width", [1000, 500])
def test_a_browser_shows_it(page: str, tmp_path: Path, width: int) -> None:
    """A real one: it lays out every chart with a size, and the picture is not empty."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        pytest.skip(f"no browser here: none of {', '.join(BROWSERS)}")
    file, picture = tmp_path / "page.html", tmp_path / "page.png"
    file.write_text(page)
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    options += [f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},2400"]
    command = [browser, *options, f"--screenshot={picture}", file.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    data = picture.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (width, 2400)
    assert len(data) > 60_000  # a page without charts is a third of that


def test_an_interrupted_job_has_a_page(
    story_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No finals, too few trials for a model, no peak known."""
    path = tmp_path / "records.db"
    monkeypatch.setattr("explorer.search.Measurer", ScriptedDevice(timed))

    def stop(progress: Any) -> None:
        if progress.trial == 5:
            raise KeyboardInterrupt

    found = job.tune("matmul", EXTENTS, trials=20, store=path, progress=stop)
    with Store(path) as store:
        story = read_story(store, found.job[:5])
    text = render(story)
    assert "The job ended before its finals" in text
    assert "Too few kernels were right for a model" in text
    assert "peak for the program's element type is not known" in text


def test_a_job_without_a_valid_trial_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "records.db")
    monkeypatch.setattr("explorer.search.Measurer", ScriptedDevice(lambda _: Outcome("crash")))
    with pytest.raises(NothingValid):
        job.tune("matmul", EXTENTS, trials=3, store=path)
    page = tmp_path / "page.html"
    assert cli.invoke(["report", "--records", path, "--out", str(page)]) == cli.EXIT_NOTHING
    assert "none of its 3 trials was valid" in capsys.readouterr().err
    assert not page.exists()


def test_the_command_writes_one_file(
    story_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    words = ["report", "--records", str(story_store), "--out"]
    assert cli.invoke([*words, str(page)]) == cli.EXIT_DONE
    assert capsys.readouterr().out == f"wrote {page}\n"
    assert page.read_text().startswith("<!doctype html>")
    for out in (tmp_path, tmp_path / "gone" / "page.html"):
        assert cli.invoke([*words, str(out)]) == cli.EXIT_USAGE
    assert cli.invoke(["report", "zz", "--records", str(story_store)]) == cli.EXIT_USAGE


def test_without_jinja2_the_extra_is_named(
    story: Story, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ir.errors import MissingTarget

    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    with pytest.raises(MissingTarget, match=r"tilewright\[report\]"):
        render(story)


def test_a_job_of_a_machine_that_is_not_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Space, kernel and roofline are those of the machine that the records name."""
    path = tmp_path / "records.db"
    monkeypatch.setattr("explorer.search.Measurer", ScriptedDevice())
    with monkeypatch.context() as patch:
        patch.setattr(CudaBackend, "hardware", lambda *_: known_hardware("h200"))
        extents = {"m": 256, "n": 256, "k": 256, "dtype": "bf16", "tb": True}
        found = job.tune("matmul", extents, target="cuda", trials=6, store=path)
    page = tmp_path / "page.html"
    assert cli.invoke(["report", "--records", str(path), "--out", str(page)]) == cli.EXIT_DONE
    text = page.read_text()
    assert "matmul m=256 n=256 k=256 dtype=bf16 tb=true" in text
    assert "NVIDIA H200" in text
    assert "Its text in cuda" in text
    assert "--target cuda" in text
    assert cli.invoke(["explain", "--job", found.job, "--records", str(path)]) == cli.EXIT_DONE
    assert "stages = " in capsys.readouterr().out


def test_a_kernel_that_cannot_be_written_any_more_is_said_so(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ir.errors import Refusal

    def refuse(*_: object) -> None:
        raise Refusal("rule", "numbers")

    monkeypatch.setattr(Story, "kernel", refuse)
    assert "cannot write the kernel" in render(replace(story))


@pytest.mark.parametrize(
    ("flops", "size", "peak", "memory", "seconds", "bound"),
    [
        (1000, 10, 100.0, 100.0, 10.0, "arithmetic"),
        (1000, 10, 100.0, 0.5, 20.0, "memory"),
        (1000, 10, 100.0, None, 10.0, "arithmetic"),
        (1000, 10, None, 1.0, None, ""),
    ],
)
def test_rooflines(
    flops: int,
    size: int,
    peak: float | None,
    memory: float | None,
    seconds: float | None,
    bound: str,
) -> None:
    roof = Roofline(flops, size, peak, memory)
    assert (roof.seconds, roof.bound) == (seconds, bound)
    assert roof.share(40.0) == (None if seconds is None else seconds / 40.0)


def test_the_roof_has_a_slope_where_memory_may_be_the_bound() -> None:
    unit = TimeUnit.for_seconds(1e-3)
    marks = [Mark(1.0, 1e-3, ""), Mark(2.0, 2e-3, "", doubted=True), Mark(3.0, None, "")]
    flat = charts.roofline(Roofline(10**6, 10**4, 1e9), marks, 1.25e-3, unit)
    sloped = charts.roofline(Roofline(10**6, 10**4, 1e9, 1e6), marks, 1.25e-3, unit)
    corners = [re.search(r'<path d="M(.*?)"', text) for text in (flat, sloped)]
    assert [match.group(1).count("L") for match in corners if match] == [1, 2]
    assert "best 800 MFLOP/s" in sloped  # the winner's time, though a trial was faster
    assert [sloped.count(f'class="{style}"') for style in ("trial", "doubted")] == [1, 1]


def test_one_figure_stands_for_the_best_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Finals say what it takes; a search's single times are lower by luck. Everywhere."""
    path = tmp_path / "records.db"

    def slower(schedule: Schedule) -> Outcome:
        found = timed(schedule)
        return replace(found, seconds=1.27 * found.seconds) if found.seconds else found

    monkeypatch.setattr("explorer.search.Measurer", ScriptedDevice(timed, slower))
    plan = job.plan_one("matmul", EXTENTS, Budget(20, None, 4), strategy="random")
    (result,) = job.run_plan(plan, store=path, peaks=[{"peak_flops.f32": 4e11}]).results
    with Store(path) as store:
        page = render(read_story(store))
    gigaflops = result.gflops
    shown = re.findall(r">best ([\d.]+) GFLOP/s</text>", page)
    (headline,) = re.findall(r"<b>([\d.]+) GFLOP/s</b>", page)
    assert [float(figure) for figure in (headline, *shown)] == [pytest.approx(gigaflops, 1e-3)] * 3
    for words in (["top"], ["explain", "--job", result.job],
                  ["explain", "matmul", "m=64", "n=64", "k=64", "--schedule", "best"]):  # fmt: skip
        assert cli.invoke([*words, "--records", str(path)]) == cli.EXIT_DONE
        told = re.findall(r"([\d.]+) GFLOP/s", capsys.readouterr().out)
        assert [float(figure) for figure in told] == [pytest.approx(gigaflops, abs=0.06)], words


@pytest.mark.parametrize("chart", ["wide", "narrow"])
def test_no_letters_leave_a_chart_or_run_into_others(page: str, chart: str) -> None:
    """By the width of a letter of 11 pixels; a narrow chart is shown at its own size."""
    drawn = re.findall(rf'<div class="{chart}">(<svg.*?</svg>)', page, re.S)
    assert len(drawn) == 5
    for figure in map(ElementTree.fromstring, drawn):
        width = float(str(figure.get("viewBox")).split()[2])
        assert width == {"wide": 760, "narrow": 360}[chart]
        rows: dict[float, list[tuple[float, float]]] = {}
        for node in figure.iter("text"):
            x, long = float(node.get("x", 0)), 6.0 * len(node.text or "")
            start = x - {"start": 0, "middle": long / 2, "end": long}[node.get("text-anchor", "")]
            assert -2 <= start <= start + long <= width + 2, node.text
            if node.get("class") == "tick":
                rows.setdefault(float(node.get("y", 0)), []).append((start, start + long))
        for found in map(sorted, rows.values()):
            for before, after in pairwise(found):
                assert before[1] <= after[0], found


@pytest.mark.parametrize(
    ("low", "high", "log", "expected"),
    [
        (0, 80, False, [0, 20, 40, 60, 80]),
        (0.95, 21, True, [1, 2, 5, 10, 20]),
        (1e-6, 1e2, True, [10.0**power for power in range(-6, 3)]),
        (2.05, 2.21, True, [2.05, 2.1, 2.15, 2.2]),
        (1e-6, 1e6, True, [10.0**power for power in range(-6, 7, 2)]),
    ],
)
def test_ticks_are_round_numbers_within_the_axis(
    low: float, high: float, log: bool, expected: list[float]
) -> None:
    axis = Axis(low, high, 0, 100, log)
    assert axis.ticks() == pytest.approx(expected)
    assert (axis.at(low), axis.at(high), axis.at(high * 9)) == (0, 100, 100)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2.0, "2 s"), (0.0012345, "1.234 ms"), (3e-6, "3 µs"), (5e-11, "0.05 ns")],
)
def test_times_have_a_handy_unit(seconds: float, text: str) -> None:
    assert TimeUnit.for_seconds(seconds).text(seconds) == text


def test_older_records_are_placed_by_the_clock(story_store: Path, tmp_path: Path) -> None:
    """Stores of earlier versions note no seconds with a trial."""
    path = tmp_path / "records.db"
    with Store(story_store) as old, Store(path) as new:
        (told,) = old.jobs()
        new.put_job(told)
        for number, record in enumerate(old.records(strategy="evolutionary")):
            created = datetime.fromisoformat(told.created) + timedelta(seconds=number)
            new.add(replace(record, notes="{}", created=created.isoformat()))
        story = read_story(new)
    assert [round(trial.elapsed) for trial in story.trials] == list(range(80))


def library(seconds: float) -> Baseline:
    notes = (("turns", 5),)
    return Baseline("BLAS (arrays 1)", Outcome("ok", seconds, (seconds, seconds), 9, notes=notes))


NEAR, FAR = library(2.5e-6), library(9e-5)


@pytest.mark.parametrize(
    ("library", "shown"),
    [
        (NEAR, r"The winner: [\d.]+x BLAS \(arrays 1\).*joint noise [\d.]+ %"),
        (FAR, r"The winner: [\d.]+x BLAS"),
        (Baseline(why="there is no such <thing>"), "no baseline: there is no such &lt;thing&gt;"),
    ],
)
def test_the_baseline_stands_beside_the_finalists(
    library: Baseline, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "records.db"
    monkeypatch.setattr("explorer.search.Measurer", ScriptedDevice(timed, library=library))
    found = job.tune("matmul", EXTENTS, trials=12, strategy="random", store=path)
    job.tune("matmul", EXTENTS, trials=12, strategy="random", store=path, seed=1)
    with Store(path) as store:
        story, first = read_story(store), read_story(store, found.job)
    text = render(story)
    assert re.search(shown, text)
    assert ("of the speed of BLAS" in text) is (library.seconds is not None)
    assert (">baseline</text>" in text) is (library is NEAR)
    assert "The fastest new finalist:" in text
    assert "The fastest new finalist:" not in render(first)
    assert first.best_schedule == found.best


def test_a_peak_for_the_dtype_goes_first(story: Story) -> None:
    program = story.workload.program
    facts = {"peak_flops": 5.0, "peak_flops.f32": 3.0, "peak_bytes": 0}
    assert Roofline.of(program, facts).peak_flops == 3.0
    assert Roofline.of(program, {"peak_flops": 5.0}).peak_flops == 5.0
    assert Roofline.of(program, facts).peak_bytes is None
    assert Roofline.of(program, {"peak_bytes": 7.0, "l2_bytes": 1000}).peak_bytes == 7.0
    assert Roofline.of(program, {"peak_bytes": 7.0, "l3_bytes": 10**6}).peak_bytes is None
    assert not Roofline.of(program, {}).known
