"""A layer of a transformer before and after its products and attention are tuned kernels.

python experiments/torch_model/compare.py [--trials 64] [--rounds 9] [--tokens 16,128,512]
    [--threads 1 --clock processor]

Each contestant is a process of its own, with the environment that suits it: torch in several
settings, and the same model within `Tuned`. They take turns, each of several calls; what is
compared are medians of the turns. The searches run before, into a store of their own.
On a machine that others use, one thread and its processor time are compared: threads that wait for
each other take many times as long where they share processors.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1]), str(HERE.parent / "cpu")]

TURN = 0.4  # seconds
CLOCKS = {"wall": "wall clock", "processor": "processor time"}
BOUND = {"OMP_PROC_BIND": "close", "OMP_PLACES": "cores"}
CONTESTANTS = {  # (what runs, its environment)
    "torch": ("plain", {}),
    "torch, threads bound": ("plain", BOUND),
    "torch, waiting passively": ("plain", {"OMP_WAIT_POLICY": "passive"}),
    "torch.compile": ("compiled", {}),
    "tuned": ("tuned", {}),
    "tuned, waiting passively": ("tuned", {"OMP_WAIT_POLICY": "passive"}),
}
BEFORE = [name for name in CONTESTANTS if name.startswith("torch")]
AFTER = [name for name in CONTESTANTS if name.startswith("tuned")]


def serve(kind: str, tokens: int, store: str, threads: int, clock: str) -> None:
    """Prepare a contestant, then run a turn for each line that comes."""
    import torch
    from model import WIDTH, Block, Tuned

    import explorer

    now = time.perf_counter if clock == "wall" else time.process_time
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    block, x = Block().eval(), torch.randn(1, tokens, WIDTH)
    with torch.inference_mode():
        expected = block(x)
        call: Any = block
        if kind == "compiled":
            torch._inductor.config.freezing = True  # type: ignore[attr-defined]
            call = torch.compile(block, mode="max-autotune-no-cudagraphs")
        if kind == "tuned":
            explorer.ask_with(store=store, threads=threads)
            Tuned().__enter__()
        error = float((call(x) - expected).abs().max())
        call(x)
        print(json.dumps({"error": error}), flush=True)
        for _ in sys.stdin:
            samples, until = [], time.perf_counter() + TURN
            while time.perf_counter() < until or len(samples) < 3:
                began = now()
                call(x)
                samples.append(now() - began)
            print(json.dumps(statistics.median(samples)), flush=True)


class Contestant:
    """A process that runs a turn when it is asked to."""

    def __init__(self, name: str, tokens: int, store: Path, threads: int, clock: str) -> None:
        kind, variables = CONTESTANTS[name]
        if threads == 1:
            variables = {"OMP_NUM_THREADS": "1"}
        words = [sys.executable, __file__, "--serve", kind, "--tokens", str(tokens)]
        self.process = subprocess.Popen(
            [*words, "--store", str(store), "--threads", str(threads), "--clock", clock],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **variables},
        )
        self.error = self._told()["error"]

    def _told(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def turn(self) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        seconds: float = self._told()
        return seconds

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def search(tokens: int, store: Path, trials: int, threads: int) -> float:
    """Tune what the model asks for; the seconds that it took."""
    import torch
    from model import WIDTH, Block, Tuned

    import explorer

    began = time.monotonic()
    asked = explorer.ask_with(missing="tune", trials=trials, store=store, threads=threads)
    with torch.inference_mode(), Tuned(), asked:
        Block()(torch.randn(1, tokens, WIDTH))
    return time.monotonic() - began


def measured(tokens: int, store: Path, rounds: int, threads: int, clock: str) -> dict[str, Any]:
    """The medians of each contestant's turns, and how busy others kept the machine."""
    from quiet import others, usage

    names = [name for name in CONTESTANTS if threads > 1 or "," not in name]  # else all one
    contestants = {name: Contestant(name, tokens, store, threads, clock) for name in names}
    pids = [contestant.process.pid for contestant in contestants.values()]
    turns: dict[str, list[float]] = {name: [] for name in contestants}
    loads = []
    for number in range(rounds + 1):  # the first warms up
        for name in list(contestants)[:: 1 if number % 2 else -1]:
            before = usage(pids)
            seconds = contestants[name].turn()
            loads.append(others(before, usage(pids)) or 0.0)
            if number:
                turns[name].append(seconds)
    errors = {name: contestant.error for name, contestant in contestants.items()}
    for contestant in contestants.values():
        contestant.end()
    medians = {name: 1e3 * statistics.median(found) for name, found in turns.items()}
    before = min((name for name in BEFORE if name in medians), key=medians.__getitem__)
    after = min((name for name in AFTER if name in medians), key=medians.__getitem__)
    return {
        "case": f"{tokens} tokens", "metric": "time", "unit": "ms", "ours": medians[after],
        "setting": after, "peer": "torch", "peer_setting": before, "peer_value": medians[before],
        "ratio": medians[before] / medians[after], "spread": _spread(turns[after]),
        "peer_spread": _spread(turns[before]), "others": statistics.median(loads),
        "milliseconds": medians, "error": errors[after],
    }  # fmt: skip


def _spread(values: list[float]) -> float:
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return (high - low) / middle


def page(found: dict[str, Any]) -> str:
    """The results as tables, followed by what NOTES.md says."""
    head, rows = found["header"], found["rows"]
    versions = ", ".join(f"{name} {value}" for name, value in head["versions"].items())
    lines = [
        "# A torch model before and after", "",
        "A layer of a transformer of GPT-2's width (768, 12 heads, 3072 hidden) in float32, batch",
        "1, causal: as torch runs it, and with its four linear layers and its attention replaced",
        f"by tuned kernels. Medians of {CLOCKS[head['clock']]}.", "",
        f"{head['model']}, {head['threads']} threads, {', '.join(head['isa'])}. {versions}. "
        f"{head['date']}, commit {head['commit']}.", "",
        f"    {head['command']}", "",
        "| tokens | before, ms | torch's fastest setting | after, ms | ours | times as fast "
        "| spread before, after | searched, s |",
        "|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for row in rows:
        spreads = f"{row['peer_spread']:.0%}, {row['spread']:.0%}"
        cells = [
            row["case"].split()[0], f"{row['peer_value']:.2f}", row["peer_setting"],
            f"{row['ours']:.2f}", row["setting"], f"{row['ratio']:.2f}", spreads,
            f"{row['search_seconds']:.0f}",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    names = list(rows[0]["milliseconds"])
    lines += ["", "All settings, medians in ms:", ""]
    lines += [f"| tokens | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for row in rows:
        times = " | ".join(f"{row['milliseconds'][name]:.2f}" for name in names)
        lines.append(f"| {row['case'].split()[0]} | {times} |")
    told = ", ".join(f"{row['error']:.1e} at {row['case']}" for row in rows)
    busy = ", ".join(f"{row['others']:.0%}" for row in rows)
    lines += ["", f"Largest difference from torch's result: {told}.", ""]
    lines += [f"Share of the machine that other programs took, median of turns: {busy}.", ""]
    notes = HERE / "NOTES.md"
    return "\n".join(lines) + ("\n" + notes.read_text() if notes.exists() else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", default="16,128,512")
    parser.add_argument("--trials", type=int, default=64, help="of each kernel's search")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    parser.add_argument("--store", help="records to go on with; default: none that are kept")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--page", action="store_true", help="write the tables again")
    options = parser.parse_args()
    if options.serve:
        facts = int(options.tokens), options.store, options.threads, options.clock
        serve(options.serve, *facts)
        return
    if not options.page:
        from report import header

        head = header("torch", "llvmlite", threads=options.threads) | {"clock": options.clock}
        head["command"] = (
            f"python experiments/torch_model/{' '.join(['compare.py', *sys.argv[1:]])}"
        )
        rows = []
        with tempfile.TemporaryDirectory() as scratch:
            store = Path(options.store or f"{scratch}/records.db")
            for tokens in map(int, options.tokens.split(",")):
                took = search(tokens, store, options.trials, options.threads)
                facts = options.rounds, options.threads, options.clock
                rows.append({**measured(tokens, store, *facts), "search_seconds": took})
                print({k: v for k, v in rows[-1].items() if k != "error"}, flush=True)
        options.out.write_text(json.dumps({"header": head, "rows": rows}, indent=1) + "\n")
    (options.out.parent / "README.md").write_text(page(json.loads(options.out.read_text())))


if __name__ == "__main__":
    main()
