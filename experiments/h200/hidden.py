"""What stands beside products of matrices: epilogues, and weights that are widened on the way.

python experiments/h200/hidden.py --out hidden.json [--cases 'bias' 'int4' ...]

One search for each row, and one for the plain product of the same shape in bf16 (of as many
operations, where two products are gated). All sides run in one process, in turns: ours, our plain
product, and for weights that are widened cuBLAS in bf16 on weights that already are.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from common import Clock, Ours, Peer, Results, Tensors, compare, going_on, options, pending
from contest import Run

from explorer.job import JobResult, tune
from explorer.workload import Workload

SEARCH, PLAIN = 14.0, 10.0  # seconds
OWN, LIBRARY = "our plain product", "cuBLAS"
Function = Callable[[Tensors], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Case:
    """An operator, what it comes to in f32, and the shape of the plain product beside it."""

    name: str
    operator: str
    arguments: dict[str, Any]
    right: Function
    shape: tuple[int, int, int]
    wide: Function | None = None


def activated(t: Tensors) -> torch.Tensor:
    product = t["A"].float() @ t["B"].float().t() + t["bias"].float()
    return F.gelu(product) + t["residual"].float()


def gated(t: Tensors) -> torch.Tensor:
    x = t["X"].float()
    return F.silu(x @ t["W1"].float().t()) * (x @ t["W3"].float().t())


def halves(t: Tensors) -> torch.Tensor:
    """Weights of four bits, two in a byte, with a scale for 128 of them."""
    packed = t["W"].view(torch.uint8).flatten(1).int()
    whole = torch.stack([packed % 16, packed // 16], 2).flatten(1) - 8
    return whole * t["scale"].float().repeat_interleave(whole.shape[1] // t["scale"].shape[1], 1)


def in_bytes(t: Tensors) -> torch.Tensor:
    return t["W"].float() * t["scale"][:, None]


def multiplied(wide: Function) -> Function:
    return lambda t: t["A"].float().flatten(1) @ wide(t).t()


def cases() -> list[Case]:
    found = []
    for m in (4096, 2048, 512):
        for n, k in ((14336, 4096), (4096, 14336)):
            sizes = {"m": m, "n": n, "k": k, "dtype": "bf16", "tb": True}
            name = f"bias gelu residual {m}x{n}x{k}"
            found.append(Case(name, "matmul_bias_act", sizes, activated, (m, n, k)))
        sizes = {"m": m, "n": 14336, "k": 4096, "dtype": "bf16", "tb": True}
        name = f"gated {m}x14336x4096"
        found.append(Case(name, "gated_mlp", sizes, gated, (m, 2 * 14336, 4096)))
    for m in (4096, 64, 16, 1):
        sizes = {"m": m, "n": 7168, "k": 4096}
        for kind, operator, more, wide in (
            ("int4", "w4a16_matmul", {}, halves), ("i8", "w8a16_matmul", {}, in_bytes),
            ("e4m3", "w8a16_matmul", {"weights": "e4m3"}, in_bytes),
        ):  # fmt: skip
            right = multiplied(wide)
            name, shape = f"{kind} {m}x7168x4096", (m, 7168, 4096)
            found.append(Case(name, operator, sizes | more, right, shape, wide))
    return found


def search(operator: str, arguments: dict[str, Any], seconds: float, store: str) -> JobResult:
    return tune(
        operator, arguments, target="cuda", seconds=seconds, store=store, model="none",
        baseline=False,
    )  # fmt: skip


class Plain:
    """Plain products in bf16, each searched once."""

    def __init__(self, store: str) -> None:
        self.store = store
        self.found: dict[tuple[int, int, int], Ours] = {}

    def of(self, shape: tuple[int, int, int]) -> Ours:
        if shape not in self.found:
            m, n, k = shape
            sizes: dict[str, Any] = {"m": m, "n": n, "k": k, "dtype": "bf16", "tb": True}
            best = search("matmul", sizes, PLAIN, self.store).best
            self.found[shape] = Ours(Workload.of("matmul", sizes, "cuda", None), best)
        return self.found[shape]


def sides(case: Case, plain: Plain) -> dict[str, Peer]:
    """Our plain product on operands of its own; cuBLAS on the weights, wide already."""
    m, n, k = case.shape

    def operands(tensors: Tensors) -> Tensors:
        wide = case.wide(tensors) if case.wide else torch.randn(n, k, device="cuda")
        a = tensors["A"] if "A" in tensors else tensors["X"]
        c = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
        return {"A": a.reshape(m, k), "B": wide.bfloat16(), "C": c}

    def own(tensors: Tensors) -> Run:
        return plain.of(case.shape).on(operands(tensors))

    def library(tensors: Tensors) -> Run:
        x = operands(tensors)
        return lambda: torch.mm(x["A"], x["B"].t(), out=x["C"])

    return {OWN: own, LIBRARY: library}


def page(told: dict[str, Any]) -> str:
    """The rows as a page."""
    head = told["header"]
    versions = ", ".join(f"{name} {number}" for name, number in head["versions"].items())
    commands = "; ".join(f"`{one}`" for one in dict.fromkeys(r["command"] for r in told["rows"]))
    lines = [
        "# Beside products of matrices: epilogues and widened weights", "",
        f"{head['hardware']}, {versions}, {head['date']}; {commands}.", "",
        f"A search of {SEARCH:.0f} s for each row, of {PLAIN:.0f} s for the plain product; medians "
        "of blocks in turns, in one run. Ratios above 1: ours is faster. The plain product has as "
        "many operations and operands in bf16; cuBLAS too, on weights that are wide already.", "",
        "| case | us | our plain product, us | ratio | cuBLAS, us | ratio | L2 flushed | trials |",
        f"|{'---|' * 8}",
    ]  # fmt: skip
    kinds: dict[str, list[tuple[float, float]]] = {}
    for name in dict.fromkeys(row["case"] for row in told["rows"]):
        rows = {(r["peer"], r["metric"]): r for r in told["rows"] if r["case"] == name}
        own, library = rows.get((OWN, "time")), rows.get((LIBRARY, "time"))
        if own is None or library is None:
            continue
        flushed = rows.get((LIBRARY, "time, L2 flushed"))
        cold = f"{flushed['ratio']:.2f}" if flushed else ""
        lines.append(
            f"| {name} | {own['ours']:.1f} | {own['peer_value']:.1f} | {own['ratio']:.3f} "
            f"| {library['peer_value']:.1f} | {library['ratio']:.3f} | {cold} | {own['trials']} |"
        )
        words, sizes = name.rsplit(" ", 1)
        few = "" if words.startswith(("bias", "gated")) else f", m = {sizes.split('x')[0]}"
        kinds.setdefault(words + few, []).append((own["ratio"], library["ratio"]))
    for words, ratios in kinds.items():
        mine, theirs = (statistics.geometric_mean(column) for column in zip(*ratios, strict=True))
        lines.append(f"| mean: {words} | | | {mine:.3f} | | {theirs:.3f} | | |")
    return "\n".join([*lines, ""])


def main() -> None:
    settings = options(__doc__ or "")
    clock, results = Clock(settings.seconds), Results.at(settings.out)
    plain = Plain(settings.store)
    rows = [(case.name, case) for case in cases()]
    for name, case in pending(rows, settings, results, clock, (OWN,), SEARCH + PLAIN + 10):
        with going_on(), torch.no_grad():
            workload = Workload.of(case.operator, case.arguments, "cuda", None)
            found = search(case.operator, case.arguments, SEARCH, settings.store)
            print(name, found.best.to_json(), flush=True)
            facts = {"trials": found.trials, "schedule": found.best.to_json()}
            peers = sides(case, plain)
            compare(name, workload, found.best, peers, case.right, results, facts)
    told = {"header": results.head, "rows": list(results.rows.values())}
    Path(settings.out).with_suffix(".md").write_text(page(told))


if __name__ == "__main__":
    main()
