"""What a farm loses when workers are killed, and how busy many of them are kept.

    python experiments/farm/farm.py kills --scratch FOLDER [--kills 50] [--workers 4]
    python experiments/farm/farm.py busy --scratch FOLDER [--workers 64] [--trials 4096]

`kills` measures every schedule of a pinned space of real kernels on one worker, and again on four
that are killed at random (SIGKILL; Dask's nanny starts them again). `busy` has a real scheduler,
connections and store, and workers that take as long as recorded trials on an H200 took. Rows are
kept in results.json, which README.md tells.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from experiments.farm import makers  # noqa: E402
from explorer import job  # noqa: E402
from explorer.budget import Budget  # noqa: E402
from explorer.farm.farm import Farm  # noqa: E402
from explorer.recall import DECIDING  # noqa: E402
from explorer.result import PlanResult, Progress  # noqa: E402
from ir.target import get_backend  # noqa: E402
from records import Record, Store  # noqa: E402
from tests.farm.cluster import Cluster  # noqa: E402

RESULTS = HERE / "results.json"
EXTENTS = {"m": 64, "n": 64, "k": 64}
PINS = {
    "order.1": "m n", "order.0": "m n", "chunk": "block", "lane.s0": "n", "micro.s0": "rows",
    "stream": False, "prefetch.s0": 0, "pack.s0.A": "no", "pack.s0.B": "no", "row.s0": "m",
    "parallel": "m", "tile.m.1": 64, "tile.n.1": 64, "unroll.s0": 1, "vectors.s0": 2,
}  # fmt: skip
_FEW_PROCESSORS = {  # what Dask samples a hundred times a second in each worker, for its dashboard
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "10s",
}
GAP = 2.0  # seconds between two kills, on average


def searched(store: Path) -> list[Record]:
    """The trials of a search, without its finals."""
    with Store(store) as records:
        return [record for record in records.records() if record.strategy not in DECIDING]


def there(address: str, count: int) -> None:
    """Wait until so many workers measure."""
    with Farm(address) as farm:
        while sum(len(kind.workers) for kind in farm.survey("cpu").kinds) < count:
            time.sleep(0.2)


def living(address: str) -> list[int]:
    """The processes of the workers that there are."""
    with Farm(address) as farm:
        return [
            found for found in farm._engine.ask_all(os.getpid).values() if isinstance(found, int)
        ]


class Killer(threading.Thread):
    """Kills workers at random moments until it has killed so many, or the search is over."""

    def __init__(self, address: str, kills: int) -> None:
        super().__init__(daemon=True)
        self._address, self._kills, self._random = address, kills, random.Random(1)
        self.killed = 0
        self.over = threading.Event()

    def run(self) -> None:
        while self.killed < self._kills:
            if self.over.wait(self._random.expovariate(1 / GAP)):
                return
            with suppress(Exception):
                os.kill(self._random.choice(living(self._address)), signal.SIGKILL)
                self.killed += 1


def search(address: str, store: Path, trials: int, strategy: str, maker: str, **about: Any) -> Any:
    """One search on the farm; what was found, and its seconds."""
    plan = job.plan_one(
        "matmul", EXTENTS, Budget.of(trials=trials), strategy=strategy, baseline=False, **about
    )
    began = time.monotonic()
    with Farm(address, maker=f"experiments.farm.makers:{maker}") as farm:
        found = job.run_plan(farm.placed(plan), store=store, machines=farm)
    return found, time.monotonic() - began


def exhausted(folder: Path, count: int, kills: int) -> dict[str, Any]:
    """A whole space on so many workers, of which some are killed meanwhile."""
    folder.mkdir()
    log = folder / "log"
    with Cluster(folder, {makers.LOG: str(log)}) as cluster:
        for number in range(count):
            cluster.worker(f"w{number}")
        there(cluster.address, count)
        killer = Killer(cluster.address, kills)
        killer.start()
        passes, seconds, stores = 0, 0.0, []
        while not passes or (killer.killed < kills and passes < 40):
            store = folder / f"{passes}.db"
            seconds += search(cluster.address, store, 4000, "exhaustive", "noted", pins=PINS)[1]
            stores.append(searched(store))
            passes += 1
        killer.over.set()
    return {"kills": killer.killed, "seconds": seconds, "passes": stores, "log": log}


def kernels(records: list[Record]) -> dict[str, str]:
    """Outcomes by kernel; of what has none, by schedule."""
    return {record.kernel_key or record.schedule_key: record.status for record in records}


def kills(scratch: Path, workers: int, most: int) -> list[dict[str, Any]]:
    alone = exhausted(scratch / "alone", 1, 0)
    many = exhausted(scratch / "many", workers, most)
    wanted = kernels(alone["passes"][0])
    found = [kernels(one) for one in many["passes"]]
    lost = sum(len(wanted.keys() - one.keys()) for one in found)
    others = sum(1 for one in found for key in wanted if one.get(key) != wanted[key])
    twice = sum(len(one) - len({record.candidate for record in one}) for one in many["passes"])
    alike = sum(len(one) - len(kernels(one)) for one in many["passes"])
    lines = [line.split() for line in many["log"].read_text().splitlines()]
    began, ended = (
        Counter(words[2] for words in lines if words[1] == what) for what in ("began", "ended")
    )
    whole = len(many["passes"])
    again = sum(max(0, count - whole) for count in ended.values())
    cut = sum(began.values()) - sum(ended.values())
    case = (
        f"{workers} workers, {many['kills']} kills, {whole} whole spaces of {len(wanted)} kernels"
    )
    figures = {
        "records as on one worker": (len(wanted) * whole - lost - others, len(wanted) * whole),
        "kernels lost": (lost, 0),
        "kernels with another status": (others, 0),
        "candidates recorded twice": (twice, 0),
        "kernels recorded twice": (alike, 0),
        "measurements cut short by a kill": (cut, None),
        "measured again, the answer lost with its worker": (again, None),
    }
    rows = [row(case, name, "count", ours, goal) for name, (ours, goal) in figures.items()]
    pace = many["seconds"] / whole
    return [*rows, row(case, "seconds of a whole space", "s", round(pace, 1), alone["seconds"])]


def row(case: str, metric: str, unit: str, ours: float, goal: float | None) -> dict[str, Any]:
    """One figure, and what it should be or what it is compared with."""
    return {"case": case, "metric": metric, "unit": unit, "ours": ours, "goal": goal}


def busy(scratch: Path, workers: int, trials: int, strategy: str) -> list[dict[str, Any]]:
    scratch.mkdir(exist_ok=True)
    makers.recorded()
    store = scratch / "busy.db"
    settings = {makers.LOG: str(scratch / "log"), **_FEW_PROCESSORS}
    with Cluster(scratch, settings) as cluster:
        each = 16
        hosts = [
            subprocess.Popen(
                [sys.executable, str(HERE / "workers.py"), cluster.address, str(first), str(each)],
                env=os.environ | settings | {"PYTHONPATH": str(ROOT)},
                cwd=scratch,
            )
            for first in range(0, workers, each)
        ]
        there(cluster.address, workers)
        marks: list[Mark] = []
        clocks = {
            "client": Processors([os.getpid()]),
            "scheduler": Processors([cluster.pid("scheduler")]),
            "workers": Processors([host.pid for host in hosts]),
            "all programs": Processors(),
        }

        def mark(progress: Progress) -> None:
            spent = {name: clock.seconds() for name, clock in clocks.items()}
            marks.append(Mark(time.time(), spent))

        plan = job.plan_one(
            "matmul", EXTENTS, Budget.of(trials=trials), strategy=strategy, baseline=False
        )
        with Farm(cluster.address, maker="experiments.farm.makers:simulated") as farm:
            placed = farm.placed(plan)
            began = time.time()
            found = job.run_plan(placed, store=store, machines=farm, progress=mark)
        for host in hosts:
            host.terminate()
        for host in hosts:
            host.wait()
    return _busy_rows(workers, strategy, found, store, began, marks)


def _busy_rows(
    workers: int,
    strategy: str,
    found: PlanResult,
    store: Path,
    began: float,
    marks: list[Mark],
) -> list[dict[str, Any]]:
    """Busy seconds as the trials have them, from the first to the last one that was told.

    Of the steady part: without the first few, when workers still start, and the last few, when
    there is nothing left to send.
    """
    records = searched(store)
    takes = [makers.seconds_of(vars_of(record)) for record in records]
    first, last = 4 * workers, len(marks) - 4 * workers
    start, end = marks[first], marks[last]
    wall = end.moment - start.moment
    spent = {name: end.spent[name] - start.spent[name] for name in end.spent}
    share = sum(takes[first + 1 : last + 1]) / (wall * workers)
    clocked = _had_one(store.with_name("log"), start.moment, end.moment) / (wall * workers)
    mean = sum(takes) / len(takes)
    case = f"{workers} simulated workers, {strategy}, {len(records)} trials of {mean:.2f} s"
    whole = marks[-1].moment - began
    return [
        row(case, "busy, by the workers' clocks", "%", round(100 * clocked, 1), 90),
        row(case, "busy, by the seconds that were to be waited", "%", round(100 * share, 1), None),
        row(case, "busy, first and last trials included", "%",
            round(100 * sum(takes) / (whole * workers), 1), None),
        *(row(case, name, "cores", round(seconds / wall, 2), 1 if name == "client" else None)
          for name, seconds in spent.items()),
        row(case, "outcomes a second", "1/s", round((last - first) / wall, 1), None),
        row(case, "load of the machine's 2 processors (os.getloadavg), all programs", "1 min",
            round(os.getloadavg()[0], 1), None),
        row(case, "recorded", "count", len({record.candidate for record in records}), found.trials),
    ]  # fmt: skip


def _had_one(log: Path, start: float, end: float) -> float:
    """Seconds between two moments in which workers had a candidate, over all of them."""
    began: dict[str, float] = {}
    found = 0.0
    for moment, what, key, _ in map(str.split, log.read_text().splitlines()):
        if what == "began":
            began[key] = float(moment)
        else:
            found += max(0.0, min(end, float(moment)) - max(start, began[key]))
    return found


def vars_of(record: Record) -> dict[str, Any]:
    """As the recorded trial that it was made of."""
    return {"compile_seconds": record.compile_seconds or 0.0}


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment at which a trial was told, and the seconds of processors that were taken so far."""

    moment: float
    spent: Mapping[str, float]


class Processors:
    """Seconds of processors that some processes have taken; by default all that there are."""

    def __init__(self, processes: Sequence[int] = ()) -> None:
        paths = [f"/proc/{process}/stat" for process in processes] or ["/proc/stat"]
        self._files = [os.open(path, os.O_RDONLY) for path in paths]
        # after the name: of a process user, system; of all user, nice, system, idle, waiting, ...
        self._fields = (11, 12) if processes else (0, 1, 2, 5, 6)

    def seconds(self) -> float:
        """So far."""
        return sum(map(self._ticks, self._files)) / os.sysconf("SC_CLK_TCK")

    def _ticks(self, file: int) -> int:
        line = os.pread(file, 4096, 0).decode().splitlines()[0]
        fields = line.removeprefix("cpu ").rpartition(")")[2].split()
        return sum(int(fields[place]) for place in self._fields)


def keep(rows: list[dict[str, Any]], command: str) -> None:
    """Replace the rows of the same experiment, and write the table."""
    known = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    rows = [one | {"command": command} for one in rows]
    kept = [one for one in known if one["command"] != command] + rows
    hardware = get_backend("cpu").hardware()
    header = {
        "hardware": hardware.key, "model": dict(hardware.facts).get("model"),
        "date": str(date.today()), "python": platform.python_version(),
        "distributed": version("distributed"), "commit": _commit(),
    }  # fmt: skip
    RESULTS.write_text(json.dumps({"header": header, "rows": kept}, indent=1) + "\n")
    for one in rows:
        print(f"{one['case']}: {one['metric']} {one['ours']} {one['unit']} (goal {one['goal']})")


def _commit() -> str:
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    )
    return found.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("kills", "busy"))
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--trials", type=int, default=4096)
    parser.add_argument("--strategy", default="evolutionary")
    parser.add_argument("--stretch", default="1", help="times what a recorded trial took")
    given = parser.parse_args()
    os.environ[makers.STRETCH] = given.stretch
    os.environ["TILEWRIGHT_CACHE"] = str(given.scratch / "client")
    given.scratch.mkdir(parents=True, exist_ok=True)
    if given.what == "kills":
        rows = kills(given.scratch, given.workers or 4, given.kills)
    else:
        rows = busy(given.scratch, given.workers or 64, given.trials, given.strategy)
    words = [word for word in sys.argv[1:] if word not in ("--scratch", str(given.scratch))]
    keep(rows, f"python experiments/farm/farm.py {' '.join(words)} --scratch FOLDER")


if __name__ == "__main__":
    main()
