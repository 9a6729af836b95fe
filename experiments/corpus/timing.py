"""Builds, checks and times what searches found, in turns with peers: a line of JSON for each.

    python timing.py TARGET

Reads requests from standard input; an answer is rows, what is known so far, and an empty line. On
CUDA whatever goes wrong in a kernel may spoil the process, so it ends; a new one takes over.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import torch  # noqa: E402
from benches import Bench, Side, bench_for, everywhere, in_turns  # noqa: E402
from peers import Plan, plans  # noqa: E402

from explorer.peaks import measured_peaks, stated_peaks  # noqa: E402
from explorer.roofline import PEAK_BYTES, Roofline  # noqa: E402
from explorer.workload import Workload  # noqa: E402
from ir.errors import TilewrightError  # noqa: E402
from ir.schedule import Schedule  # noqa: E402

Row = dict[str, Any]
ENOUGH = 10.0  # seconds after which, beside one compilation, no other plan is tried
_MODE = "max-autotune-no-cudagraphs"  # graphs are captured here, of all alike


class TooLong(Exception):
    """What took longer than it may."""


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raises TooLong in the midst of what takes longer."""

    def ring(*_: object) -> None:
        raise TooLong(f"no end within {seconds:.0f} s")

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def say(row: Row) -> None:
    print(json.dumps(row), flush=True)


def words_of(problem: BaseException) -> str:
    lines = str(problem).strip().splitlines()
    return f"{type(problem).__name__}: {lines[0] if lines else ''}"[:200]


class Ours:
    """The kernel of a schedule: its facts, and it as a side."""

    def __init__(self, workload: Workload, schedule: str, bench: Bench) -> None:
        self.workload, self.bench = workload, bench
        found = Schedule.from_json(schedule)
        workload.refuse_illegal(found)
        self.kernel = workload.kernel(found)

    def facts(self) -> Row:
        texts = dict(self.kernel.texts)
        count = len(json.loads(texts["launch"])["kernels"]) if "launch" in texts else 1
        program = self.workload.program
        return {
            "kernels": count, "flops": program.flops, "bytes": program.bytes,
            "workspace": sum(a.bytes for a in self.kernel.arguments if a.role == "workspace"),
        }  # fmt: skip

    def bound(self) -> float | None:
        """The roofline's seconds; memory counts, since operand sets together exceed the caches."""
        hardware = self.workload.hardware
        facts: Row = dict(hardware.facts) | stated_peaks(self.workload.backend, hardware)
        facts |= measured_peaks(self.workload.target, hardware)
        found = Roofline.of(self.workload.program, facts)
        peak = float(facts.get(PEAK_BYTES) or 0)
        memory = found.bytes / peak if peak else 0.0
        return max(found.arithmetic_seconds or 0.0, memory) or None


def shared(row: Row) -> Row:
    """With the share of the bound."""
    bound = row.get("bound")
    return row | {"share": bound / row["seconds"] if bound else None}


def compiled(plan: Plan) -> Plan:
    torch._dynamo.reset()
    function = torch.compile(plan.function, mode=_MODE, dynamic=False)
    return dataclasses.replace(plan, name=f"{plan.name}, compiled", function=function)


class Peers:
    """The plans of an operator: the fastest right one on the first operand set."""

    def __init__(self, bench: Bench, request: Row) -> None:
        self._bench, self._request = bench, request
        self.troubles: list[str] = []
        self._until = time.monotonic() + ENOUGH + request["compile_seconds"]

    def found(self, number: int = 0) -> list[Plan]:
        request, tensors = self._request, self._bench.tensors(number)
        found = plans(request["name"], tensors, request["arguments"])
        if request.get("packs"):
            from packs import more_plans

            found += more_plans(request["name"], tensors, request["arguments"], request["packs"])
        wanted = request.get("against")
        if not wanted:
            return [plan for plan in found if not plan.part]
        return [plan for plan in found if any(text in plan.name for text in wanted)]

    def best(self) -> tuple[int, Plan, Side] | None:
        """Its number among all plans, itself as it is called, and a side of the first set."""
        best: tuple[float, int, Plan, Side] | None = None
        for number, plan in enumerate(self.found()):
            for way in self._ways(plan):
                if best and time.monotonic() > self._until:
                    break
                side = self._tried(way)
                if side is not None and (best is None or side.quick < best[0]):
                    best = (side.quick, number, way, side)
        return best[1:] if best else None

    def compile(self) -> list[str]:
        """Names of what torch compiled; it runs once, so that the compiler's cache has it all."""
        done = []
        for way in (compiled(plan) for plan in self.found() if plan.fused):
            try:
                with within(self._request["compile_seconds"]):
                    way.run()
                done.append(way.name)
            except Exception as problem:  # noqa: BLE001 - a peer that fails is told in words
                self.troubles.append(f"{way.name}: {words_of(problem)}")
        return done

    def _ways(self, plan: Plan) -> Iterator[Plan]:
        if not plan.only:
            yield plan
        if plan.fused and self._request["compile_seconds"]:
            yield compiled(plan)

    def _tried(self, plan: Plan) -> Side | None:
        limit = self._request["compile_seconds"] or 20.0
        try:
            with within(limit):
                wrong = self._bench.off(plan) if plan.checked else ""
            if wrong:
                self.troubles.append(f"{plan.name}: {wrong}")
                return None
            side = self._bench.peer_side([plan])
            side.prepare()
            return side
        except Exception as problem:  # noqa: BLE001 - a peer that fails is told in words
            self.troubles.append(f"{plan.name}: {words_of(problem)}")
            self._bench.recover()
            return None

    def whole(self, number: int, plan: Plan, first: Side) -> Side:
        """A side of all operand sets."""
        rest = range(1, self._bench.sets)
        if not rest:
            return first
        first.drop()
        tensors = [plan.tensors, *(self.found(other)[number].tensors for other in rest)]
        return self._bench.peer_side([dataclasses.replace(plan, tensors=t) for t in tensors])


def timed(request: Row, target: str) -> None:
    """Says what is known of one operator, in parts."""
    everywhere()  # a workload counts the processors
    workload = Workload.of(request["name"], request["arguments"], target)
    workload.refuse_unmeasurable()
    bench = bench_for(target, workload)
    row: Row = {}
    ours: Side | None = None
    if request.get("schedule") and not request.get("only_compile"):
        kernel = Ours(workload, request["schedule"], bench)
        row = kernel.facts() | {"bound": kernel.bound()}
        ours, wrong = bench.our_side(kernel.kernel)
        if wrong:
            say(row | {"failed": f"wrong when built again: {wrong}"})
            ours = None
        else:
            ours.prepare()
            say(shared(row | {"seconds": ours.quick}))
    if request.get("only_compile"):
        peers = Peers(bench, request)
        say({"compiled": peers.compile(), "peer_failed": peers.troubles})
    elif request["peers"]:
        beside(Peers(bench, request), bench, ours, row)
    elif ours is not None:
        in_turns([ours])
        say(shared(row | {"seconds": ours.median}))


def beside(peers: Peers, bench: Bench, ours: Side | None, row: Row) -> None:
    """The strongest peer, and both in turns."""
    best = peers.best()
    if best is None:
        sides = [ours] if ours else []
        found: Row = {"peer_failed": "; ".join(peers.troubles) or "no peer"}
    else:
        side = peers.whole(*best)
        sides = [ours, side] if ours else [side]
        found = {"peer": best[1].name, "peer_troubles": peers.troubles}
    in_turns(sides)
    if best is not None:
        found["peer_seconds"] = sides[-1].median
        found["peer_captured"] = sides[-1].in_graph
    if ours is not None:
        found |= shared(row | {"seconds": ours.median})
        if best is not None:
            found["ratio"] = sides[-1].median / ours.median
    say(found)


def main() -> None:
    target = sys.argv[1]
    torch.set_grad_enabled(False)
    for line in sys.stdin:
        began, spoiled = time.monotonic(), False
        try:
            timed(json.loads(line), target)
        except TilewrightError as error:
            say({"failed": words_of(error)})
        except Exception as problem:  # noqa: BLE001 - the next operator has its turn
            say({"failed": words_of(problem)})
            spoiled = target == "cuda"
        ending = spoiled or Bench.spoiled
        say({"time_took": round(time.monotonic() - began, 1), "ending": ending})
        print(flush=True)
        if ending:
            return
        Bench.clean()


if __name__ == "__main__":
    main()
