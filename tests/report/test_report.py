"""The page about a job: what is on it, that it needs nothing else, and how a browser shows it."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import shlex
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer import cli, job
from explorer.baseline import Baseline
from explorer.budget import Budget
from explorer.errors import NothingValid
from explorer.landscape import beyond, importance
from explorer.outcome import Outcome
from explorer.report import figures
from explorer.report.content import content
from explorer.report.disassembly import disassembled, listing
from explorer.report.figures import Mark
from explorer.report.page import LIBRARY, asset, render, render_run
from explorer.report.space import differences, shown
from explorer.report.units import TimeUnit
from explorer.roofline import Roofline
from explorer.story import Story, read_story, run_stories
from ir.schedule import Schedule
from ir.targets.cuda.backend import CudaBackend
from ir.targets.cuda.rows.hardware import known_hardware
from records import Store
from tests.browser import dumped
from tests.job.device import ScriptedDevice
from tests.report.conftest import EXTENTS, MARKUP, timed

VENDOR = Path(figures.__file__).parent / "vendor"
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


def own(page: str) -> str:
    """A page without the library that draws its figures."""
    return page.replace(asset(LIBRARY), "")


def figures_of(page: str) -> dict[str, Any]:
    (data,) = re.findall(r'<script id="figures" type="application/json">(.*?)</script>', page, re.S)
    found: dict[str, Any] = json.loads(data)
    return found


def test_nothing_is_fetched_from_elsewhere(page: str) -> None:
    assert not re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?(?:https?:)?//""", own(page))
    (policy,) = re.findall(r'Content-Security-Policy" content="(.*?)"', page)
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-")
    assert "unsafe-eval" not in policy


def test_the_policy_knows_the_scripts_by_their_digests(page: str) -> None:
    """What a kernel said could not run even if it stood there as markup."""
    scripts = re.findall(r"<script>(.*?)</script>", page, re.S)
    digests = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    assert re.findall(r"'sha256-(.*?)'", page[: page.index("<style>")]) == digests
    assert len(digests) == 2


def test_the_library_is_the_published_one() -> None:
    digest = hashlib.sha256((VENDOR / "echarts.min.js").read_bytes()).hexdigest()
    assert digest == "b66b25aeb4df84e33199dc21694014d336d222cbd9deb0e5a7c14bd6aa0d0fd0"
    assert "Apache License" in (VENDOR / "LICENSE").read_text()
    assert "Apache ECharts" in (VENDOR / "NOTICE").read_text()


def test_what_a_kernel_said_is_text_and_no_markup(page: str) -> None:
    assert MARKUP not in page
    assert html.escape(MARKUP).replace("&#x27;", "&#39;") in page


def test_figures_have_a_mark_for_every_trial_and_a_place(page: str, story: Story) -> None:
    drawn = figures_of(page)
    assert re.findall(r'data-figure="(.*?)"', own(page)) == [
        "by_trial", "by_time", "accuracy", "importance", "together", "parallel",
        *(f"strip{number}" for number in range(6)), "roofline", "finalists",
    ]  # fmt: skip
    assert set(drawn) == set(re.findall(r'data-figure="(.*?)"', own(page)))
    right = sum(trial.outcome.ok for trial in story.trials)
    series = {one["name"]: one["data"] for one in drawn["by_trial"]["option"]["series"]}
    assert (len(series["right"]), len(series["failed"])) == (right, len(story.trials) - right)
    best = [y for _, y in series["best so far"]]
    assert best == sorted(best, reverse=True)
    assert min(point["value"][1] for point in series["right"]) == best[-1]


def test_parallel_coordinates_go_through_every_right_kernel(page: str, story: Story) -> None:
    chart = figures_of(page)["parallel"]["option"]
    axes, (series,) = chart["parallelAxis"], chart["series"]
    right = [trial for trial in story.trials if trial.outcome.ok]
    assert len(series["data"]) == len(right)
    assert all(len(row) == len(axes) for row in series["data"])
    for axis, column in zip(axes[:-1], zip(*series["data"], strict=True), strict=False):
        assert set(column) == set(axis["data"])
    times = [row[-1] for row in series["data"]]
    assert times == sorted(times, reverse=True)  # the fastest are drawn last
    assert chart["visualMap"]["dimension"] == len(axes) - 1


def test_what_two_decisions_do_together_is_told_apart() -> None:
    """A sum of parts is no interaction, a product of signs is nothing else; noise is neither."""
    rng = np.random.default_rng(0)
    one, two = (rng.integers(0, 8, 4096).astype(np.int16) for _ in range(2))
    added = one * 1.0 + 3.0 * two
    joined = np.where((one < 4) == (two < 4), 1.0, -1.0)
    noise = rng.normal(size=4096)
    assert beyond(added, one, two) < 0.001
    assert beyond(joined, one, two) > 0.95
    assert beyond(added / added.std() + joined, one, two) == pytest.approx(0.5, abs=0.03)
    assert beyond(noise, one, two) < 0.01
    assert beyond(np.ones(4096), one, two) == 0.0
    skewed = np.where(rng.random(4096) < 0.7, one, two).astype(np.int16)  # as legal rows are
    assert beyond(one + skewed * 2.0, one, skewed) < 0.001


def test_the_best_stands_beside_the_others(story: Story) -> None:
    told = differences(story)
    names = [name for name, _ in told["compared"]]
    assert names[0] == "best"
    assert len(names) > 2
    best = story.best_schedule
    differing = {name for name, _, _ in told["differing"]}
    for name, _, cells in told["differing"]:
        assert cells[0] == (shown(best.get(name, "")), False)
        assert any(differs for _, differs in cells)
    finalist = next(trial for trial in story.finals if trial.schedule != best)
    changed = {
        d.name
        for d in story.space().decisions
        if shown(best.get(d.name, "")) != shown(finalist.schedule.get(d.name, ""))
    }
    assert changed <= differing


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
    assert ("rate", "8.389 GB/s") in told.values["tiles"]
    assert "roofline" not in told.figures


def test_failures_stand_by_kind_with_an_example(story: Story) -> None:
    failures = {failure.status: failure for failure in content(story).values["failures"]}
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
def test_a_browser_shows_it(page: str, story: Story, tmp_path: Path, width: int) -> None:
    """A real one draws every figure, with a size and a mark for every trial, and no line of
    complaint; what it shows does not run out of the window."""
    file = tmp_path / "page.html"
    file.write_text(page)
    shown = dumped(file.as_uri(), tmp_path, width)
    assert f'data-drawn="{len(figures_of(page))}"' in shown
    assert shown.count("<svg") == len(figures_of(page))
    (course,) = re.findall(r'data-figure="by_trial".*?<svg(.*?)</svg>', shown, re.S)[:1]
    assert course.count("<path") > len(story.trials)
    assert "Uncaught" not in shown


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


def test_without_jinja2_its_install_is_named(
    story: Story, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ir.errors import MissingTarget

    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    with pytest.raises(MissingTarget, match="pip install jinja2"):
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
    flat, sloped = Roofline(10**6, 10**4, 1e9), Roofline(10**6, 10**4, 1e9, 1e6)
    assert [len(figures.roof_line(roof)) for roof in (flat, sloped)] == [2, 3]
    drawn = figures.roofline(sloped, marks, 1.25e-3, unit)["option"]["series"]
    assert [len(one["data"]) for one in drawn] == [3, 2, 1]
    assert "best 800 MFLOP/s" in drawn[2]["data"][0]["name"]  # though a trial was faster
    course = figures.course(marks, unit, "trial")["option"]["series"]
    assert [len(one["data"]) for one in course] == [1, 1, 1, 2]


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
    shown = re.findall(r'"formatter":"best ([\d.]+) GFLOP/s"', page)
    (headline,) = re.findall(r"<b>([\d.]+) GFLOP/s</b>", page)
    assert [float(figure) for figure in (headline, *shown)] == [pytest.approx(gigaflops, 1e-3)] * 2
    for words in (["top"], ["explain", "--job", result.job],
                  ["explain", "matmul", "m=64", "n=64", "k=64", "--schedule", "best"]):  # fmt: skip
        assert cli.invoke([*words, "--records", str(path)]) == cli.EXIT_DONE
        told = re.findall(r"([\d.]+) GFLOP/s", capsys.readouterr().out)
        assert [float(figure) for figure in told] == [pytest.approx(gigaflops, abs=0.06)], words


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
    assert ('"baseline: ' in text) is (library is NEAR)
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


_LOOPS = """
f:
  xor %eax, %eax
.LBB0_1: # outer
  vmovups (%rdi), %zmm0
.LBB0_2:
  vfmadd231ps (%rsi), %zmm1, %zmm0 # a comment
  vfmadd231ps (%rdx), %zmm1, %zmm2
  addq $64, %rsi
  jne .LBB0_2
.LBB0_3:
  movq %rax, (%rdi)
  jne .LBB0_3
  jmp .LBB0_1
  ret
"""
_SASS = """
.text.f:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_0:
        /*0010*/                   LDS R4, [R2] ;
        /*0020*/                   HMMA.16816.F32 R8, R4, R6, R8 ;
                                                      /* 0x000fe200078e00ff */
        /*0030*/              @!P0 BRA `(.L_x_0) ;
.L_x_1:
        /*0040*/                   BRA `(.L_x_1);
"""


def test_the_hot_loop_is_the_innermost_one_with_most_arithmetic() -> None:
    found = listing(_LOOPS)
    assert found.loops == 2
    assert found.hot is not None
    assert (found.hot.arithmetic, found.hot.instructions) == (2, 4)
    assert found.hot_text.splitlines()[0] == ".LBB0_2:"
    assert found.hot_text.splitlines()[-1].strip() == "jne .LBB0_2"
    card = listing(_SASS)
    assert card.hot is not None
    assert dict(card.hot.mnemonics) == {"LDS": 1, "HMMA.16816.F32": 1, "BRA": 1}
    assert "0x000fe200078e00ff" not in card.text
    assert listing("f:\n ret").hot is None


def test_the_page_has_the_machine_code_of_this_very_kernel(story: Story) -> None:
    """Made again by a worker for this machine; one from elsewhere says why there is none."""
    found = disassembled(story)
    assert found.why == ""
    assert found.hot is not None
    assert found.hot.arithmetic
    text = html.unescape(render(story, found))
    assert found.hot_text in text
    assert "Its machine code" in text
    elsewhere = replace(story, hardware=replace(story.hardware, name="another"))
    assert "another machine" in disassembled(elsewhere).why
    assert "There is no disassembly: the job ran on another" in render(
        story, disassembled(elsewhere)
    )


def test_a_run_of_many_jobs_is_one_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table of all, then each with its own figures; jobs without a right kernel have a line."""

    def all_but_softmax(schedule: Schedule) -> Outcome:
        return timed(schedule) if "pack.s0.A" in schedule.as_dict() else Outcome("crash")

    monkeypatch.setattr("explorer.search.Measurer", ScriptedDevice(all_but_softmax))
    path = tmp_path / "records.db"
    jobs = [{"operator": "matmul", "arguments": {"m": 64, "n": n, "k": 64}} for n in (64, 96)]
    jobs.append({"operator": "softmax", "arguments": {"m": 64, "n": 64}})
    job.tune_all({"trials": 36, "batch": 6, "job": jobs}, store=path)
    with Store(path) as store:
        names = [one.id for one in store.jobs()]
        stories = run_stories(store, names[1])
    assert [one.job.id for one in stories] == names
    text = render_run([(one, None) for one in stories])
    assert re.findall(r'<section id="(.*?)"', text) == ["job-0", "job-1"]
    drawn = figures_of(text)
    assert next(iter(drawn)) == "courses"
    assert len(drawn["courses"]["option"]["series"]) == 2
    assert set(drawn) == set(re.findall(r'data-figure="(.*?)"', own(text)))
    assert "<td>softmax m=64 n=64</td>" in text
    page = tmp_path / "page.html"
    words = ["report", names[2], "--run", "--no-disassembly", "--records", str(path)]
    assert cli.invoke([*words, "--out", str(page)]) == cli.EXIT_DONE
    assert page.read_text() == text
