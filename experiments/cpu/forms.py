"""Programs searched from their plain text beside the best form that we know by hand, interleaved.

python experiments/cpu/forms.py [--trials 128] [--rounds 15] [--only NAME,...]

Both are searched with as many trials, the hand's with its form as written; then both are called on
the same arrays in turn. The table has the plain text's kernel as written (no other form, usual
residence), too.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import report  # noqa: E402
from form_cases import PAIRS, Pair  # noqa: E402

TURN = 0.05  # seconds of calls at a time


def pins_of(operator: Any) -> dict[str, str]:
    """What keeps a program as it is written."""
    from ir.target import get_backend

    backend = get_backend("cpu")
    space = backend.space(operator.build(), backend.hardware())
    names = {decision.name for decision in space.decisions}
    plain = {"form": "written", "residence": "usual"}
    phases = {
        name: "usual" for name in names if name.startswith("p") and name.endswith(".residence")
    }
    return {name: value for name, value in {**plain, **phases}.items() if name in names}


def contestants(pair: Pair, trials: int, store: Path) -> dict[str, Any]:
    """The winners by name."""
    import explorer

    def searched(operator: Any, pins: dict[str, str]) -> Any:
        return explorer.tune(operator, trials=trials, store=store, baseline=False, pins=pins)

    return {
        "plain": searched(pair.plain, {}),
        "hand": searched(pair.hand, {}),
        "as written": searched(pair.plain, pins_of(pair.plain)),
    }


def timed(found: dict[str, Any], rounds: int) -> dict[str, list[float]]:
    """Medians of turns, each contestant once a round."""
    from ir.inputs import drawn_inputs

    arrays = list(drawn_inputs(found["plain"].program, 0).values())
    turns: dict[str, list[float]] = {name: [] for name in found}
    for number in range(rounds):
        for name in list(found)[:: 1 if number % 2 else -1]:
            shaped = [
                array.reshape(spec.shape)
                for array, spec in zip(arrays, found[name].program.inputs, strict=True)
            ]
            samples, until = [], time.perf_counter() + TURN
            while time.perf_counter() < until or len(samples) < 3:
                began = time.perf_counter()
                found[name](*shaped)
                samples.append(time.perf_counter() - began)
            turns[name].append(statistics.median(samples))
    return turns


def measured(pair: Pair, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        found = contestants(pair, options.trials, Path(folder) / "records.db")
        turns = timed(found, options.rounds)
        medians = {name: 1e3 * statistics.median(values) for name, values in turns.items()}
        ratios = [hand / plain for plain, hand in zip(turns["plain"], turns["hand"], strict=True)]
        chosen = {
            name.rsplit(".", 1)[-1]: str(value)
            for name, value in found["plain"].best.values
            if name.rsplit(".", 1)[-1] in ("form", "residence")
        }
    return {
        "case": pair.name, "unit": "ms", **medians, "ratio": statistics.median(ratios),
        "form": chosen.get("form", "written"),
    }  # fmt: skip


def page(found: dict[str, Any]) -> str:
    head = found["header"]
    lines = [
        "# Forms on a CPU",
        "",
        f"{head['hardware']} ({head['model']}), {head['threads']} threads, {head['date']}, "
        f"commit {head['commit']}.",
        f"`{head['command']}`; milliseconds of a call, medians; ratio: by hand over plain text.",
        "",
        "| program | plain text, searched | by hand, searched | ratio | as written | form found |",
        "|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        lines.append(
            f"| {row['case']} | {row['plain']:.3g} | {row['hand']:.3g} | {row['ratio']:.2f} | "
            f"{row['as written']:.3g} | {row['form']} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    wanted = set(filter(None, options.only.split(",")))
    rows = []
    for pair in PAIRS:
        if not wanted or pair.name in wanted:
            rows.append(measured(pair, options))
            print(json.dumps(rows[-1]), flush=True)
            found = {"header": report.header("llvmlite"), "rows": rows}
            (HERE / "forms.json").write_text(json.dumps(found, indent=1) + "\n")
            (HERE / "forms.md").write_text(page(found))


if __name__ == "__main__":
    main()
