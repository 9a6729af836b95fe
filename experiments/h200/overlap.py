"""Attention forward with order and turns of its loop as decisions, and pinned to the first ones.

FA3_LIBRARY=.../_vllm_fa3_C.abi3.so python experiments/h200/overlap.py --out overlap.json

One search for each row; what it found, the same schedule with these decisions pinned,
FlashAttention-3 (from that library, in its own layout of operands) and cuDNN are measured in one
run, in turns.
"""

from __future__ import annotations

import os
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from common import (
    WRONG,
    Clock,
    Results,
    Tensors,
    compare,
    going_on,
    options,
    pending,
    pinned,
    plain_name,
)
from contest import Run
from torch.nn.attention import SDPBackend, sdpa_kernel

from explorer.job import tune
from explorer.workload import Workload
from ir.schedule import Schedule

SEARCH = 11.0  # seconds for each row
WRONG_NARROW = 5e-2  # operands of three bits of digits: the peer's own error is half of it
PINS = {
    "straight": {"order": "straight", "turns": "free"}, "in step": {"turns": "free"},
    "static": {"scheduler": "static"},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """One attention: what differs from bf16, all keys, as many heads of keys as of queries."""

    b: int
    heads: int
    length: int
    d: int
    causal: bool = False
    dtype: str = "bf16"
    kv_heads: int = 0
    window: int = 0
    cap: float = 0.0
    dv: int = 0

    @property
    def name(self) -> str:
        words = [f"attention {self.b}x{self.heads}x{self.length}x{self.d}"]
        words += [f"/{self.dv}"] * bool(self.dv) + [" causal"] * (self.causal and not self.window)
        words += [f" window {self.window}"] * bool(self.window) + [" soft cap"] * bool(self.cap)
        words += [f" {self.kv_heads} kv heads"] * bool(self.kv_heads)
        return "".join(words) + (f" {self.dtype}" if self.dtype != "bf16" else "")

    @property
    def operator(self) -> str:
        return "softcap_attention" if self.cap else "attention"

    @property
    def arguments(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "b": self.b, "heads": self.heads, "sq": self.length, "d": self.d,
            "causal": self.causal, "dtype": self.dtype,
        }  # fmt: skip
        rest = {"kv_heads": self.kv_heads, "window": self.window, "cap": self.cap, "dv": self.dv}
        rest |= {"out": "bf16"} if self.narrow else {}
        return found | {name: value for name, value in rest.items() if value}

    @property
    def narrow(self) -> bool:
        """Whether operands have 8 bits; the result is of bf16 then, as the peer's is."""
        return self.dtype == "e4m3"

    def share(self) -> float:
        """Scores that count, of all."""
        n = self.length
        if self.window:
            return (n * self.window - self.window * (self.window - 1) / 2) / n**2
        return 0.5 if self.causal else 1.0


CASES = (
    Case(4, 16, 4096, 128), Case(4, 16, 4096, 128, True), Case(16, 16, 1024, 128),
    Case(16, 16, 1024, 128, True), Case(1, 16, 16384, 128), Case(1, 16, 16384, 128, True),
    Case(4, 32, 4096, 64), Case(4, 32, 4096, 64, True), Case(4, 16, 4096, 96),
    Case(2, 16, 4096, 256), Case(2, 16, 4096, 256, True), Case(1, 64, 4096, 192, True, dv=128),
    Case(1, 64, 8192, 128, True, kv_heads=8), Case(1, 32, 8192, 128, True, window=1024),
    Case(2, 16, 4096, 128, True, cap=50.0), Case(1, 32, 1024, 128, False, "f16"),
    Case(4, 16, 2048, 128, True, "f16"), Case(4, 16, 4096, 128, False, "e4m3"),
    Case(4, 16, 4096, 128, True, "e4m3"), Case(1, 16, 16384, 128, False, "e4m3"),
    Case(1, 16, 16384, 128, True, "e4m3"), Case(2, 16, 4096, 256, True, cap=50.0),
    Case(1, 32, 8192, 128, True, window=1024, cap=50.0),
)  # fmt: skip


def flash3(case: Case) -> Any:
    """FlashAttention-3 on packed sequences."""

    def make(tensors: Tensors) -> Run:
        torch.ops.load_library(os.environ["FA3_LIBRARY"])
        forward = torch.ops._vllm_fa3_C.fwd
        length = case.length
        q = tensors["Q"].reshape(case.b, case.heads, length, case.d)
        packed = (
            x.transpose(1, 2).flatten(0, 1).contiguous() for x in (q, tensors["K"], tensors["V"])
        )
        q, k, v = packed
        out = torch.empty(*q.shape[:2], v.shape[2], dtype=q.dtype, device="cuda")
        out = None if case.narrow else out  # which makes one of bf16
        ends = torch.arange(0, (case.b + 1) * length, length, device="cuda", dtype=torch.int32)
        left = case.window - 1 if case.window else -1

        def run() -> torch.Tensor:
            return forward(
                q, k, v, None, None, None, out, ends, ends, None, None, None, length, length,
                None, None, None, None, None, None, None, None, None, case.d**-0.5, case.causal,
                left, 0 if case.window else -1, case.cap, True, None, 1, None, 0, None, 1, 0, None,
            )[0]  # fmt: skip

        run()
        return run

    return make


def cudnn(case: Case) -> Any:
    """torch's attention by cuDNN, which repeats no keys of groups."""

    def make(tensors: Tensors) -> Run:
        q = tensors["Q"].reshape(case.b, case.heads, case.length, case.d)
        k, v = tensors["K"], tensors["V"]

        def run() -> None:
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                F.scaled_dot_product_attention(
                    q, k, v, is_causal=case.causal, enable_gqa=bool(case.kv_heads)
                )

        run()
        return run

    return make


def reference(case: Case) -> Any:
    """A head at a time in f32."""

    def head(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = q.float() @ k.float().T / case.d**0.5
        if case.cap:
            scores = case.cap * torch.tanh(scores / case.cap)
        place = torch.arange(case.length, device="cuda")
        behind = place[:, None] - place
        if case.causal or case.window:
            scores.masked_fill_(behind < 0, -torch.inf)
        if case.window:
            scores.masked_fill_(behind >= case.window, -torch.inf)
        return torch.softmax(scores, 1) @ v.float()

    def make(tensors: Tensors) -> torch.Tensor:
        q, k, v = (tensors[name] for name in "QKV")
        flat, group = q.reshape(case.b, case.heads, case.length, case.d), case.heads // k.shape[1]
        parts = [
            torch.stack([head(flat[b, h], k[b, h // group], v[b, h // group])
                         for h in range(case.heads)])
            for b in range(case.b)
        ]  # fmt: skip
        return torch.stack(parts).reshape(*q.shape[:-1], v.shape[-1])

    return make


def page(told: dict[str, Any]) -> str:
    """The rows as a page."""
    peers = (*PINS, "FlashAttention-3", "cuDNN")
    head, cases = told["header"], list(dict.fromkeys(row["case"] for row in told["rows"]))
    versions = ", ".join(f"{name} {number}" for name, number in head["versions"].items())
    lines = [
        "# Attention with its blocks overlapped, and one by one", "",
        f"{head['hardware']}, {versions}, {head['date']}; `{told['rows'][0]['command']}`.", "",
        f"A search of {SEARCH:.0f} s for each row; all sides in one run, in turns, medians. Ratios "
        "above 1: ours is faster. `straight`: the schedule found, with `order=straight` and "
        "`turns=free`; `in step`: with `turns=free` alone; `static`: with `scheduler=static`. In "
        "e4m3 FlashAttention-3 ran in processes of its own, before and after ours (`apart.py`).",
        "",
        f"| case | us | TFLOP/s | order | turns | {' | '.join(peers)} | best peer | trials |",
        f"|{'---|' * (8 + len(PINS) + 1)}",
    ]  # fmt: skip
    ratios: dict[str, list[float]] = {name: [] for name in (*peers, "best peer")}
    for case in cases:
        here = [row for row in told["rows"] if row["case"] == case and row["metric"] == "time"]
        by_peer = {row["peer"]: row["ratio"] for row in here}
        rivals = [by_peer[name] for name in peers if name in by_peer and name not in PINS]
        if rivals:
            by_peer["best peer"] = min(rivals)
        one = here[0]
        every = Schedule.from_json(one["schedule"]).as_dict()
        chosen = {plain_name(name): value for name, value in every.items()}
        cells = [f"{by_peer[name]:.3f}" if name in by_peer else "" for name in ratios]
        for name, ratio in by_peer.items():
            ratios[name].append(ratio)
        rate = one["counted"] / one["ours"] / 1e6
        order, turns = chosen.get("order", ""), chosen.get("turns", "")
        lines.append(
            f"| {case} | {one['ours']:.1f} | {rate:.0f} | `{order}` | `{turns}` | "
            f"{' | '.join(cells)} | {one['trials']} |"
        )
    means = [
        f"{statistics.geometric_mean(found):.3f}" if found else "" for found in ratios.values()
    ]
    return "\n".join([*lines, f"| geometric mean | | | | | {' | '.join(means)} | |", ""])


def main() -> None:
    settings = options(__doc__ or "")
    clock, results = Clock(settings.seconds), Results.at(settings.out)
    names = (*PINS, "FlashAttention-3", "cuDNN")
    rows = [(case.name, case) for case in CASES]
    for name, case in pending(rows, settings, results, clock, names, SEARCH + 9):
        with going_on(), torch.no_grad():
            workload = Workload.of(case.operator, case.arguments, "cuda", None)
            found = tune(
                case.operator, case.arguments, target="cuda", seconds=SEARCH,
                store=settings.store, model="none", baseline=False,
            )  # fmt: skip
            print(name, found.best.to_json(), flush=True)
            sides = {title: pinned(workload, found.best, pins) for title, pins in PINS.items()}
            if not case.narrow:  # whose kernels fail here: they have a run of their own
                sides["FlashAttention-3"] = flash3(case)
            if not (case.window or case.cap or case.narrow):
                sides["cuDNN"] = cudnn(case)
            facts = {
                "trials": found.trials, "schedule": found.best.to_json(),
                "counted": workload.program.flops * case.share(),
            }  # fmt: skip
            wrong = WRONG_NARROW if case.narrow else WRONG
            compare(name, workload, found.best, sides, reference(case), results, facts, wrong)
    told = {"header": results.head, "rows": list(results.rows.values())}
    Path(settings.out).with_suffix(".md").write_text(page(told))


if __name__ == "__main__":
    main()
