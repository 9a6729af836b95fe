"""Real schedulers and workers of Dask on loopback, killed while they measure."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import explorer
from explorer import cli, job
from explorer.budget import Budget
from explorer.errors import FarmLost
from explorer.farm.farm import Farm
from explorer.recall import DECIDING
from explorer.result import Progress
from records import Store
from tests.docs.pages import blocks
from tests.farm.cluster import START, Cluster
from tests.farm.fakes import HERE, LOG, SECONDS

EXTENTS = {"m": 64, "n": 64, "k": 64}
KILLS, TRIALS = 3, 100


def there(address: str, count: int) -> None:
    """Wait until so many workers measure."""
    until = time.monotonic() + START
    with Farm(address) as farm:
        while time.monotonic() < until:
            if sum(len(kind.workers) for kind in farm.survey("cpu").kinds) == count:
                return
            time.sleep(0.1)
    raise AssertionError(f"not {count} workers within {START} s")


class Killer:
    """Kills one of the processes that a log names, every so many trials."""

    def __init__(self, log: Path, every: int, most: int) -> None:
        self._log, self._every, self._most = log, every, most
        self._random = random.Random(0)
        self._living: set[int] = set()
        self.killed: set[int] = set()

    def __call__(self, progress: Progress) -> None:
        if progress.trial % self._every or len(self.killed) >= self._most:
            return
        seen = {int(line.split()[2]) for line in self._log.read_text().splitlines()}
        living = sorted(seen - self.killed)
        if living:
            victim = self._random.choice(living)
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
            self.killed.add(victim)


def test_what_killed_workers_had_is_measured_again_and_nothing_twice(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    killer = Killer(log, TRIALS // (KILLS + 1), KILLS)
    with Cluster(tmp_path, {LOG: str(log), SECONDS: "0.03"}) as cluster:
        for name in ("one", "two"):
            cluster.worker(name)
        there(cluster.address, 2)
        plan = job.plan_one("matmul", EXTENTS, Budget(TRIALS, None, 16), strategy="random")

        def disturb(progress: Progress) -> None:
            killer(progress)
            if progress.trial == TRIALS - 20:
                cluster.kill("two", signal.SIGTERM)  # leaves for good, as Dask's workers do

        with Farm(cluster.address, maker=f"{HERE}:logging_device") as farm:
            found = job.run_plan(
                farm.placed(plan), store=tmp_path / "r.db", machines=farm, progress=disturb
            )
    assert len(killer.killed) == KILLS
    with Store(tmp_path / "r.db") as store:
        searched = [r for r in store.records() if r.strategy not in DECIDING]
        assert [j.state for j in store.jobs()] == ["done"]
    assert len(searched) == len({r.candidate for r in searched}) == found.trials == TRIALS
    ended = Counter(line.split()[1] for line in _lines(log) if line.startswith("ended"))
    assert {record.schedule_key for record in searched} <= set(ended)
    assert sum(ended.values()) - len(ended) <= KILLS + 1  # answers that were on their way


def _lines(log: Path) -> list[str]:
    return log.read_text().splitlines()


def test_the_command_line_on_real_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that measures, one that was started without the preload; then their scheduler dies."""
    monkeypatch.setattr("explorer.farm.farm.Farm.peaks", lambda *_: {})
    monkeypatch.setattr("explorer.finals.ROUNDS", 1)
    monkeypatch.setattr("explorer.uncommitted.TOGETHER", 0.0)  # each trial is told at once
    monkeypatch.setenv("TILEWRIGHT_RECORDS", str(tmp_path / "r.db"))
    monkeypatch.chdir(tmp_path)

    def said(words: str, code: int = cli.EXIT_DONE) -> str:
        assert cli.invoke(words.split()) == code, capsys.readouterr().err
        heard = capsys.readouterr()
        assert code == cli.EXIT_DONE or heard.err.count("\n") <= 1, heard.err
        return heard.out + heard.err

    with Cluster(tmp_path) as cluster:
        address = cluster.address
        assert "the scheduler has no workers; start some" in said(
            f"tune matmul m=32 n=32 k=32 --workers {address}", cli.EXIT_TARGET
        )
        cluster.worker("good")
        cluster.worker("bare", ["--resources", "cpu=1", "--no-nanny"])
        there(address, 1)
        _both_are_told(said, address)
        _the_page_works(said, address, tmp_path)
        tune = f"tune matmul m=32 n=32 k=32 --workers {address}"
        out = said(f"{tune} --trials 4 --no-baseline --out {tmp_path / 'kernel'}")
        assert "on cpu:" not in out.splitlines()[0]  # one kind: nothing to tell apart
        assert (tmp_path / "kernel" / "matmul.json").exists()
        assert "without --resources cuda=1" in said(f"{tune} --target cuda", cli.EXIT_TARGET)
        assert "each worker of a farm has its own" in said(f"{tune} --devices 1", cli.EXIT_USAGE)
        _records_say_who(tmp_path / "r.db")
        _dies_and_is_resumed(cluster, tmp_path / "r.db")
        monkeypatch.setattr("explorer.farm.engine.CONNECT", 1.0)
        assert "no Dask scheduler answers" in said(f"farm {address}", cli.EXIT_TARGET)


def _the_page_works(said: Callable[..., str], address: str, folder: Path) -> None:
    """What it has to be typed for Tilewright; what for Dask, the cluster was started with."""
    (jobs,) = blocks("docs/farm.md", "toml")
    (folder / "jobs.toml").write_text(jobs)
    lines = [line for block in blocks("docs/farm.md", "sh") for line in block.splitlines()]
    ours = [line.removeprefix("tilewright ") for line in lines if line.startswith("tilewright ")]
    assert len(ours) == 4
    told = [said(line.replace("tcp://HOST:8786", address)) for line in ours]
    assert "matmul m=64 n=64 k=64 on cpu:" in told[-1]
    assert "softmax m=64 n=64 on cpu:" in told[-1]


def _both_are_told(said: Callable[..., str], address: str) -> None:
    facts = json.loads(said(f"farm {address} --format json"))
    (kind,) = facts["kinds"]
    assert (kind["workers"], kind["slots"]) == (["good"], 1)
    ((_, why),) = facts["left_out"]
    assert why == "it was started without --preload explorer.farm.worker"
    assert "1 worker, 1 candidates at a time (good)" in said(f"farm {address}")


def _records_say_who(path: Path) -> None:
    with Store(path) as store:
        notes = [json.loads(record.notes) for record in store.records()]
    assert {note["worker"] for note in notes} == {"good"}


def _dies_and_is_resumed(cluster: Cluster, path: Path) -> None:
    """What was acknowledged is kept, and goes on wherever the same hardware is: here, on this."""

    def stop(progress: Progress) -> None:
        if progress.trial == 3:
            cluster.kill("scheduler")

    with pytest.raises(FarmLost) as raised:
        explorer.tune(
            "matmul", m=24, n=24, k=24, seed=1, trials=400, baseline=False, store=path,
            workers=cluster.address, progress=stop,
        )  # fmt: skip
    assert cli.exit_code(raised.value) == cli.EXIT_LOST
    assert "\n" not in str(raised.value)
    with Store(path) as store:
        stopped = store.jobs()[-1]
        kept = list(store.records(job=stopped.id))
    assert stopped.state == "stopped"
    assert 3 <= len(kept) < 400
    resumed = explorer.resume(stopped.id, store=path, progress=_ends_at(len(kept) + 4))
    (result,) = resumed.results
    assert result.trials >= len(kept) + 4
    assert result.resumed == len(kept)


def _ends_at(trial: int) -> Callable[[Progress], None]:
    """Ctrl-C once so many trials are there."""

    def progress(told: Progress) -> None:
        if told.trial >= trial:
            raise KeyboardInterrupt

    return progress
