"""The figures of the gallery, each made from the results that an experiment left as JSON.

They are made when the site is built, so no figure can differ from its numbers. A page asks for one
by `<!-- figure: NAME -->`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath
from typing import Any

from website.charts import Row, courses, points
from website.repository import ROOT

FOLDER = "gallery"
_ASKED = re.compile(r"^<!-- figure: ([\w-]+) -->$", re.MULTILINE)
_FASTER = "times as fast as {}"


@dataclass(frozen=True, slots=True)
class Figure:
    """What a figure shows, for those who cannot see it; the results that it is made from; how."""

    about: str
    results: str  # below experiments/
    draw: Callable[[Any], str]

    def svg(self) -> str:
        return self.draw(json.loads((ROOT / "experiments" / self.results).read_text("utf-8")))


def place(name: str) -> str:
    """Where a figure is in the site."""
    return f"{FOLDER}/{name}.svg"


@cache
def figures() -> Mapping[str, str]:
    """The text of every figure by its name."""
    return {name: figure.svg() for name, figure in FIGURES.items()}


def with_figures(text: str, page: str) -> str:
    """The text of a page with links to the figures that it asks for; KeyError if there is none."""

    def shown(found: re.Match[str]) -> str:
        where = os.path.relpath(place(found[1]), PurePosixPath(page).parent)
        return f"![{FIGURES[found[1]].about}]({where})"

    return _ASKED.sub(shown, text)


def asked(text: str) -> list[str]:
    """The names of the figures that a page asks for."""
    return _ASKED.findall(text)


def _timed(rows: Iterable[Mapping[str, Any]], *peers: str) -> list[Row]:
    """The ratios of times to those of peers, by case."""
    return [
        Row(row["case"], (row["ratio"],))
        for row in rows
        if row["metric"] == "time" and row["peer"] in peers
    ]


def _beside(*peers: str) -> Callable[[Any], str]:
    """A chart of how we stand beside a peer."""
    title = _FASTER.format(" or ".join(peers))
    return lambda found: points(_timed(found["rows"], *peers), ["ratio"], title)


def _corpus(found: Any) -> str:
    """Every operator that has a peer, by how it stands beside it."""
    rows = [
        Row(f"{name} ({row['setting']})", (row["ratio"],))
        for name, row in found["rows"].items()
        if row.get("ratio")
    ]
    rows.sort(key=lambda row: -(row.values[0] or 0))
    return points(rows, ["ratio"], _FASTER.format("the best peer"))


def _players(found: Any) -> str:
    """The mean over all spaces of the fraction of the optimum, by evaluations; ours come first."""
    spaces = list(found["played"].values())
    names = sorted(spaces[0], key=lambda name: (not name.startswith("evolutionary"), name))
    lines = {
        name: [
            (float(count), sum(space[name]["at"][count] for space in spaces) / len(spaces))
            for count in spaces[0][name]["at"]
        ]
        for name in names
    }
    return courses(lines, ("evaluations", "fraction of the optimum"))


def _regrets(found: Any) -> str:
    """The regret of the first five of each ranking, for what a model had not seen."""
    metric, others = "top5 regret, median over workloads", ("neighbour", "traffic", "random")
    rows = [row for row in found["rows"] if row["metric"] == metric]
    by_case: dict[str, dict[str, Any]] = {}
    for row in rows:
        by_case.setdefault(row["case"], {"model": row["ours"]})[row["peer"]] = row["peer_value"]
    series = ("model", *others)
    lines = [
        Row(case.replace("cuda", "CUDA").replace("cpu", "CPU"), tuple(map(values.get, series)))
        for case, values in by_case.items()
    ]
    return points(lines, series, "best time of the first five, over the best of all")


def _first_trials(found: Any) -> str:
    """Searches of sixteen trials with the shipped model and without."""
    rows = [
        Row(
            re.sub(r"[{}':]", "", row["case"]),
            (row["ours"] / row["peer_value"], row["without_model"] / row["peer_value"]),
        )
        for row in found["rows"]
    ]
    return points(rows, ("with the model", "without"), "best of 16 trials, over the best known")


def _forms(found: Any) -> str:
    """Plain texts with their forms, and without, beside the best equal program known by hand."""
    rows = [
        Row(
            row["case"].replace("_", " "),
            (row["plain"] / row["hand"], row["as written"] / row["hand"]),
        )
        for row in found["rows"]
    ]
    return points(rows, ("forms searched", "as written"), "time, over the best form by hand")


def _torch_model(found: Any) -> str:
    """Times of a torch model as it is, in its best setting, and with tuned kernels."""
    rows = [Row(row["case"], (row["ours"], row["peer_value"])) for row in found["rows"]]
    return points(rows, ("with tuned kernels", "torch at its fastest"), "milliseconds", even=None)


FIGURES: Mapping[str, Figure] = {
    "torch-model": Figure(
        "Time of a layer of a transformer in torch, before and after",
        "torch_model/results.json",
        _torch_model,
    ),
    "cpu-torch": Figure(
        "Speed of tuned CPU kernels over torch's, by case",
        "cpu/results.json",
        _beside("torch"),
    ),
    "forms": Figure(
        "Time of searched programs over that of the best form known by hand",
        "cpu/forms.json",
        _forms,
    ),
    "h200-cublas": Figure(
        "Speed of tuned matrix products over cuBLAS, by case",
        "h200/results.json",
        _beside("cuBLAS"),
    ),
    "h200-operators": Figure(
        "Speed of tuned operators on an H200 over the best peer's",
        "corpus/corpus-cuda.json",
        _corpus,
    ),
    "search": Figure(
        "Fraction of the optimum by evaluations, for seven searches",
        "search/results.json",
        _players,
    ),
    "cost-model": Figure(
        "Regret of the first five of a ranking, by what ranked",
        "model/results.json",
        _regrets,
    ),
    "first-trials": Figure(
        "Best of sixteen trials over the best known, with the shipped model and without",
        "model/first_trials.json",
        _first_trials,
    ),
}
