"""README.md of this folder from the result files: goals beside what was measured, then the tables.

python experiments/h200/table.py [results.json ...] [--readme README.md]
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
Row = dict[str, Any]
TIME, COLD = "time", "time, L2 flushed"
SMALL = ("128x8192x8192", "64x8192x8192", "16x8192x8192", "1x8192x8192")
COMPILED = "torch.compile max-autotune"
ROWS_OF_GEMM = 20


class Found:
    """Rows by case, peer and metric."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = list(rows)

    def where(self, **wanted: str) -> list[Row]:
        return [row for row in self.rows if wanted.items() <= row.items()]

    def times(self, prefix: str, peer: str, metric: str = TIME) -> list[Row]:
        rows = self.where(peer=peer, metric=metric)
        return [row for row in rows if row["case"].startswith(prefix)]

    def one(self, **wanted: str) -> Row | None:
        return next(iter(self.where(**wanted)), None)


@dataclass(frozen=True, slots=True)
class Goal:
    """What a group of ratios should reach; `count` is how many rows make it whole."""

    name: str
    rows: Callable[[Found], list[Row]]
    count: int
    mean: float | None = None
    least: float | None = None
    reached_by: int = 0  # rows that have to be at `least`; all of them without this

    def line(self, found: Found) -> str:
        rows = self.rows(found)
        if not rows:
            return f"| {self.name} | {self.wanted} | not measured | |"
        ratios = [0.0 if row.get("problem") else row["ratio"] for row in rows]
        mean = statistics.geometric_mean(max(ratio, 1e-9) for ratio in ratios)
        told = f"mean {mean:.3f}, least {min(ratios):.3f} ({len(rows)} of {self.count})"
        whole = len(rows) >= self.count
        state = ("yes" if whole else "so far") if self.met(ratios, mean) else "no"
        return f"| {self.name} | {self.wanted} | {told} | {state} |"

    @property
    def wanted(self) -> str:
        words = [f"mean {self.mean:.2f}"] if self.mean else []
        if self.least:
            words.append(f"{self.reached_by or 'every'} at {self.least:.2f}")
        return ", ".join(words)

    def met(self, ratios: list[float], mean: float) -> bool:
        if self.reached_by:
            return sum(r >= (self.least or 0) for r in ratios) >= self.reached_by
        return mean >= (self.mean or 0) and min(ratios) >= (self.least or 0)


def _small(metric: str) -> Callable[[Found], list[Row]]:
    cases = [f"bf16 {shape}" for shape in SMALL]
    return lambda found: [
        row for row in found.times("bf16 ", "cuBLAS", metric) if row["case"] in cases
    ]


def _other_types(found: Found) -> list[Row]:
    plain = [*found.times("f16 ", "cuBLAS"), *found.times("tf32 ", "cuBLAS")]
    return plain + found.times("fp8 ", "cuBLAS fast")


def _rows_of(prefixes: tuple[str, ...], peer: str, metric: str) -> Callable[[Found], list[Row]]:
    return lambda found: [row for p in prefixes for row in found.times(p, peer, metric)]


def _configurations(found: Found) -> list[Row]:
    """Those that ran."""
    return [row for row in found.where(metric="configuration") if row["ran"]]


GOALS = (
    Goal("GEMM bf16 against cuBLAS", _rows_of(("bf16 ",), "cuBLAS", TIME), 20, 1.0, 0.93),
    Goal("the same, m <= 128", _small(TIME), 4, 1.15),
    Goal("the same, single launches, L2 flushed", _small(COLD), 4, 1.15),
    Goal("4096^3 at parity within 120 s", lambda f: f.where(metric="parity_seconds"), 1, None, 1.0),
    Goal("GEMM bf16 against TileLang", _rows_of(("bf16 ",), "TileLang", TIME), 20, 1.05),
    Goal("fp16, tf32, fp8 against cuBLAS", _other_types, 6, None, 0.97),
    Goal("fused against max-autotune", _rows_of(("bias", "gated"), COMPILED, TIME), 9, None, 1.10),
    Goal("softmax, RMSNorm, sums: share of copy rate",
         _rows_of(("softmax", "rmsnorm", "row_sum", "column_sum"), "copy", "bandwidth"), 13,
         None, 0.85),
    Goal("attention against cuDNN", _rows_of(("attention",), "cuDNN", TIME), 8, None, 0.60),
    Goal("search against random draws",
         lambda f: f.where(metric="best after 128 trials"), 6, None, 1.03, 4),
    Goal("configurations of others", _configurations, 20, None, 1.0, 20),
    Goal("median compile, 250 ms", lambda f: f.where(metric="median compile"), 1, None, 1.0),
    Goal("8 trials a second", lambda f: f.where(metric="trials of whole searches"), 1, None, 1.0),
    Goal("1 % fail to compile or run",
         lambda f: f.where(metric="fail to compile or run"), 1, None, 1.0),
    Goal("no wrong results", lambda f: f.where(metric="wrong results"), 1, None, 1.0),
)  # fmt: skip


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _ratio(row: Row | None) -> str:
    return f"{row['ratio']:.3f}" if row else ""


def _table(title: str, head: str, lines: list[str]) -> list[str]:
    if not lines:
        return []
    return ["", f"## {title}", "", head, "|" + "---|" * head.count(" | ") + "---|", *lines]


def _speed(row: Row) -> str:
    """TFLOP/s; a causal mask leaves half of the work."""
    work = row.get("flops", 0) / (2 if row["case"].endswith("causal") else 1)
    return _number(work / (row["ours"] * 1e-6) / 1e12) if work else ""


def _effort(row: Row) -> str:
    return f"{row['trials']} in {row['search_seconds']:.0f} s" if row.get("trials") else ""


def _line(row: Row, *more: str) -> str:
    """Case, times, ratios and spread; what is wrong with it behind the case."""
    case = row["case"] + (f" ({row['problem']})" if row.get("problem") else "")
    paired = f"{row['paired_ratio']:.3f}" if "paired_ratio" in row else ""
    cells = (case, _number(row["ours"]), _number(row["peer_value"]), f"{row['ratio']:.3f}",
             paired, _percent(row["spread"]), *more)  # fmt: skip
    return f"| {' | '.join(cells)} |"


def products(found: Found) -> list[str]:
    lines = []
    for prefix in ("bf16 ", "f16 ", "tf32 "):
        for row in found.times(prefix, "cuBLAS"):
            cold = found.one(case=row["case"], peer="cuBLAS", metric=COLD)
            error = f"{row['error']:.1e}" if "error" in row else ""
            lines.append(_line(row, _ratio(cold), _speed(row), _effort(row), error))
    head = ("| m x n x k | ours, us | cuBLAS, us | ratio | by turns | spread | L2 flushed | "
            "TFLOP/s | trials | error |")  # fmt: skip
    return _table("Matrix products against cuBLAS", head, lines)


def narrow(found: Found) -> list[str]:
    rows = [row for row in found.where(metric=TIME) if row["peer"].startswith("cuBLAS ")]
    lines = [_line(row, row["peer"], _speed(row)) for row in rows]
    head = "| case | ours, us | cuBLAS, us | ratio | by turns | spread | accumulation | TFLOP/s |"
    return _table("fp8 (e4m3, one scale a tensor)", head, lines)


def tilelang(found: Found) -> list[str]:
    rows = found.where(metric=TIME, peer="TileLang")
    lines = [
        _line(r, r.get("choice", ""), f"{r.get('compiled', 0)} of {r.get('choices', 0)}")
        for r in rows
    ]
    head = ("| m x n x k | ours, us | TileLang, us | ratio | by turns | spread | "
            "rows, columns, depth, threads, stages, panel | compiled |")  # fmt: skip
    return _table("Matrix products against TileLang", head, lines)


def compared(
    found: Found, title: str, prefixes: tuple[str, ...], rate: Callable[[Row], str]
) -> list[str]:
    """A table of times against every peer of some cases."""
    rows = [row for row in found.where(metric=TIME) if row["case"].startswith(prefixes)]
    lines = [_line(row, row["peer"], rate(row), _effort(row)) for row in rows]
    head = "| case | ours, us | peer, us | ratio | by turns | spread | peer | rate | trials |"
    return _table(title, head, lines)


def memory(found: Found) -> list[str]:
    lines = []
    for row in found.where(metric="bandwidth"):
        torch = found.one(case=row["case"], metric=TIME, peer="torch")
        lines.append(
            f"| {row['case']} | {row['ours']:,.0f} | {row['peer_value']:,.0f} | "
            f"{_percent(row['ratio'])} | {_ratio(torch)} |"
        )
    head = "| case | ours, GB/s | copy, GB/s | share | ratio to torch |"
    return _table("Bound by memory", head, lines)


def numbers(found: Found, title: str, metrics: tuple[str, ...]) -> list[str]:
    rows = [row for metric in metrics for row in found.where(metric=metric)]
    lines = [
        f"| {r['case']} | {r['metric']} | {_number(r['ours'])} {r['unit']} | "
        f"{_number(r['peer_value'])} ({r['peer']}) | {r['ratio']:.3f} |"
        for r in rows
    ]
    return _table(title, "| case | metric | ours | beside | ratio |", lines)


def _result(row: Row) -> str:
    if row["problem"] or not row["ours"]:
        return str(row["problem"] or ("wrong" if row["ran"] else "spills"))
    return "right" if row["ran"] else "compiled"


def coverage(found: Found) -> list[str]:
    lines = [
        f"| {r['case']} | {r['regime']} | {r['registers'] or ''} | {r['spills']} | "
        f"{'' if r['error'] is None else format(r['error'], '.1e')} | {_result(r)} |"
        for r in found.where(metric="configuration")
    ]
    head = "| configuration | regime | registers | bytes spilled | error | result |"
    return _table("Configurations that others measured as best", head, lines)


def failures(found: Found) -> list[str]:
    lines = [
        f"| {r['case']} | {r['peer']} | {r['problem']} |" for r in found.where(metric="failed")
    ]
    return _table("Peers that gave no time", "| case | peer | problem |", lines)


def opening(head: Row, rows: Sequence[Row]) -> list[str]:
    versions = ", ".join(f"{name} {value}" for name, value in head["versions"].items())
    commits = ", ".join(dict.fromkeys(row["commit"] for row in rows if "commit" in row))
    commands = dict.fromkeys(row["command"] for row in rows if "command" in row)
    return [
        "# Tuned kernels on an H200, beside libraries and compilers",
        "",
        f"{head['hardware']}. {versions}. {head['date']}, commit {commits}.",
        "",
        *(f"    {command}" for command in commands),
        "",
        "Ratio: the peer's median time over ours, above 1 we are faster; by turns: the median of "
        "the ratios of neighbouring blocks. Spread: between the quartiles of our blocks, over "
        "their median. Graphs of runs over operand sets beyond three times the L2 cache; L2 "
        "flushed: single launches behind a write of 256 MiB. Random normal inputs; errors are "
        "norms of differences from f32 or f64 over norms.",
    ]  # fmt: skip


def _flops(row: Row) -> str:
    return f"{_speed(row)} TFLOP/s" if row.get("flops") else ""


def page(head: Row, rows: Sequence[Row], notes: Path) -> str:
    found = Found(rows)
    lines = opening(head, rows)
    lines += ["", "## Goals", "", "| what | goal | measured | reached |", "|---|---|---|---|"]
    lines += [goal.line(found) for goal in GOALS]
    lines += [*products(found), *narrow(found), *tilelang(found)]
    lines += compared(found, "Fused", ("bias", "gated"), _flops)
    lines += compared(found, "Attention forward", ("attention",), _flops)
    lines += memory(found)
    lines += numbers(found, "Search", ("best after 128 trials", "parity_seconds"))
    rates = ("median compile", "trials of whole searches", "fail to compile or run")
    lines += numbers(found, "Throughput", (*rates, "wrong results"))
    lines += [*coverage(found), *failures(found)]
    if notes.exists():
        lines += ["", notes.read_text().strip()]
    return "\n".join(lines) + "\n"


def merged(files: Sequence[Path]) -> tuple[Row, list[Row]]:
    """The header of the first file and the rows of all; of equal rows the last."""
    head: Row = {}
    rows: dict[tuple[str, str, str], Row] = {}
    for file in files:
        kept = json.loads(file.read_text())
        head = head or kept["header"]
        rows |= {(r["case"], r["peer"], r["metric"]): r for r in kept["rows"]}
    return head, list(rows.values())


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("files", nargs="*", type=Path, default=[HERE / "results.json"])
    words.add_argument("--readme", type=Path, default=HERE / "README.md")
    settings = words.parse_args()
    head, rows = merged(settings.files)
    settings.readme.write_text(page(head, rows, settings.readme.parent / "NOTES.md"))


if __name__ == "__main__":
    main()
