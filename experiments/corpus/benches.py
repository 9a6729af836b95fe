"""Sides that take turns on one device: our kernel and a peer on the same operands.

On CUDA a block is a graph of runs over operand sets that together exceed the L2 cache; on a CPU
both have the same operands in memory as callers have them, and threads of the one sleep while the
other runs.
"""

from __future__ import annotations

import gc
import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from peers import Plan, outputs_of
from peers.plan import TYPES, of_bytes, of_numpy

from explorer.afforded import DEVICE, HOST
from explorer.check import Bounds, admitted, host, widen
from explorer.expectation import Expected
from explorer.recipe import recipe_of
from explorer.runtime.base import get_runtime
from explorer.settings import cache_dir
from explorer.workload import Workload
from ir.dtypes import is_float, numpy_dtype
from ir.kernel import Kernel

TURN_SECONDS = 1.2  # of all turns together
MOST_TURNS, LEAST_TURNS = 16, 2
BLOCK_SECONDS = 2e-3
LONG = 0.3  # seconds of a run that is timed a few times only
VERY_LONG = 2.0  # of one that is timed once
_L2_TIMES, _MOST_SETS, _MOST_BYTES = 3, 24, 2 << 30
_GRAPH_BELOW, _MOST_RUNS = 5e-3, 96
_OFF = {"f32": 2e-3, "tf32": 5e-3, "f16": 1e-2, "bf16": 3e-2, "e4m3": 8e-2, "i8": 3e-2}
_KNOWN = 0.5  # of its size may an element be in doubt, to be compared
_OFF_PLACES = 0.02  # share of whole numbers: ties are anybody's
_ORACLE_SHARE = 0.25  # of what a search's check may take


@dataclass
class Side:
    """One competitor: `runs` has a run for each operand set."""

    runs: list[Callable[[], Any]]
    samples: list[float] = field(default_factory=list)
    quick: float = 0.0
    in_graph: bool = False

    @property
    def median(self) -> float:
        return statistics.median(self.samples) if self.samples else self.quick

    def prepare(self) -> None:
        """Warm up; `quick` is a first time."""
        raise NotImplementedError

    def block(self) -> float:
        """Seconds of a run."""
        raise NotImplementedError

    def drop(self) -> None:
        """Free what timing took."""


def in_turns(sides: Sequence[Side]) -> None:
    """A B B A and so on, for about a second, or as often as one cannot do without."""
    for side in sides:
        if not side.quick:
            side.prepare()
    for side in sides:
        if side.quick < LONG:
            side.block()
    sides = [side for side in sides if side.quick < VERY_LONG]
    until = time.perf_counter() + TURN_SECONDS
    for turn in range(MOST_TURNS):
        if turn >= LEAST_TURNS and time.perf_counter() > until:
            break
        for side in sides if turn % 2 else sides[::-1]:
            side.samples.append(side.block())


class Bench:
    """The operands of a workload, and sides that run on them."""

    spoiled = False  # whether what failed may disturb what comes next in this process

    def __init__(self, workload: Workload, share: float) -> None:
        self.workload, self.program = workload, workload.program
        self.runtime = get_runtime(workload.target)
        self.sets = 1
        self.specs = {s.name: s for s in (*self.program.inputs, *self.program.outputs)}
        self.shapes = {spec.name: spec.shape for spec in self.program.outputs}
        means = DEVICE if self.runtime.apart else HOST
        means = replace(means, flops=share * means.flops, elements=share * means.elements)
        xp = self.runtime.arrays() if self.runtime.apart else np
        self.expected: Expected = recipe_of(
            self.program, 7, workload.backend, workload.hardware
        ).expected(0, means, xp)

    def off(self, plan: Plan) -> str:
        """What is wrong with what a plan gives, in words."""
        found = outputs_of(plan.run(), self.shapes)
        for name, bounds in self.expected.bounds.items():
            dtype = self.specs[name].dtype
            error = _error(bounds, self._array(found[name].to(TYPES[dtype]), name), dtype)
            types = [spec.dtype for spec in self.specs.values()]
            narrow = max(_OFF.get(t, 0.0) for t in types)
            places = 1.0 if {"bf16", "f16", "i8"} & set(types) else _OFF_PLACES
            room = narrow if is_float(dtype) or dtype == "i8" else places
            if not error <= room:
                return f"{name} is off by {error:.2g}"
        return ""

    def tensors(self, number: int) -> dict[str, torch.Tensor]:
        """The inputs of an operand set."""
        raise NotImplementedError

    def _array(self, tensor: torch.Tensor, name: str) -> Any:
        raise NotImplementedError

    def our_side(self, kernel: Kernel) -> tuple[Side, str]:
        """Our kernel, and what was wrong with its first run."""
        raise NotImplementedError

    def peer_side(self, plans: Sequence[Plan]) -> Side:
        raise NotImplementedError

    def recover(self) -> None:
        """After a peer that failed."""

    def judged(self, outputs: dict[str, Any]) -> str:
        for name, bounds in self.expected.bounds.items():
            verdict = self.runtime.judge(bounds, outputs[name])
            if not verdict.right:
                return f"{name}: {verdict.detail}"
        return ""

    @staticmethod
    def clean() -> None:
        """Free what the last operator took."""
        torch._dynamo.reset()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
            get_runtime("cuda").arrays().get_default_memory_pool().free_all_blocks()


def _middling(sizes: Any) -> float:
    return float(np.median(sizes)) if sizes.size else 0.0


def _error(bounds: Bounds, array: Any, dtype: str) -> float:
    """The norm of the difference over that of what is right; of whole numbers the share outside."""
    known = array if bounds.picks is None else array[bounds.picks]
    flat, low, high = (t.reshape(-1) for t in (known, bounds.low, bounds.high))
    step = max(1, flat.size >> 22)
    flat, low, high = (host(t[::step]) for t in (flat, low, high))
    if not is_float(dtype) and dtype != "i8":
        return float(1 - admitted(flat, low, high, dtype).mean()) if flat.size else 0.0
    have = (widen(flat, dtype) if is_float(dtype) else flat).astype(np.float64)
    low, high = low.astype(np.float64), high.astype(np.float64)
    sure = np.isfinite(low) & np.isfinite(high)
    low, high = np.where(sure, low, 0), np.where(sure, high, 0)
    middle, half = (low + high) / 2, (high - low) / 2
    sure &= half <= _KNOWN * np.maximum(abs(middle), _middling(abs(middle[sure])))
    want = np.where(sure, middle, 0)
    gap = np.where(sure, have - want, 0)
    return float(np.linalg.norm(gap) / (np.linalg.norm(want) or 1.0))


def bench_for(target: str, workload: Workload) -> Bench:
    return CudaBench(workload) if target == "cuda" else CpuBench(workload)


# --- on a CPU -------------------------------------------------------------------------------------

_everywhere = os.sched_getaffinity(0)
_PAUSE = 0.02  # torch's threads spin a little while
_BLOCK, _SAMPLE, _MOST_SAMPLES = 0.03, 1e-4, 200


def everywhere() -> None:
    """Go back to all processors, which kernels of the row before have left."""
    os.sched_setaffinity(0, _everywhere)


@dataclass
class CpuSide(Side):
    """`kernel` is set for ours, which tells its own time and has threads of its own."""

    kernel: Any = None
    runtime: Any = None
    times: int = 1

    def prepare(self) -> None:
        self.quick = self.block()
        if self.quick < LONG:
            self.quick = self.block()
            self.times = max(1, math.ceil(_SAMPLE / max(self.quick, 1e-7)))

    def block(self) -> float:
        """The median of samples: others on this machine disturb some of them."""
        self.runtime.rest()
        ours = self.kernel is not None
        os.sched_setaffinity(0, {min(_everywhere)} if ours else _everywhere)
        if not ours:
            time.sleep(_PAUSE)
        samples, until = [], time.perf_counter() + _BLOCK
        if self.quick and self.quick < LONG:
            self._sample()
        while not samples or (time.perf_counter() < until and len(samples) < _MOST_SAMPLES):
            samples.append(self._sample())
        return statistics.median(samples)

    def _sample(self) -> float:
        if self.kernel is not None:
            seconds: float = self.kernel(self.times) / self.times
            return seconds
        began = time.perf_counter()
        for _ in range(self.times):
            self.runs[0]()
        return (time.perf_counter() - began) / self.times


class CpuBench(Bench):
    """Torch's threads start first, with all processors; ours keep clear of the first one."""

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload, _ORACLE_SHARE)
        os.sched_setaffinity(0, _everywhere)
        torch.set_num_threads(workload.hardware.threads)
        torch.ones(1 << 20).exp_()
        runtime: Any = self.runtime
        runtime.prepare()
        self._inputs = {n: runtime.given(array) for n, array in self.expected.inputs.items()}

    def tensors(self, number: int) -> dict[str, torch.Tensor]:
        return {n: of_numpy(a, self.specs[n].dtype) for n, a in self._inputs.items()}

    def _array(self, tensor: torch.Tensor, name: str) -> Any:
        flat = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
        return flat.view(numpy_dtype(self.specs[name].dtype)).reshape(tensor.shape)

    def our_side(self, kernel: Kernel) -> tuple[Side, str]:
        runtime: Any = self.runtime
        loaded = runtime.load(runtime.compile(kernel, cache_dir()))
        outputs = {n: runtime.returned(s, self.specs[n].dtype) for n, s in self.shapes.items()}
        for name, array in outputs.items():
            runtime.poison(array, self.specs[name].dtype)
        have = {**self._inputs, **outputs}
        launch = loaded.bind([have[a.name] for a in loaded.binary.operands])
        os.sched_setaffinity(0, {min(_everywhere)})
        launch()
        return CpuSide([], kernel=launch, runtime=runtime), self.judged(outputs)

    def peer_side(self, plans: Sequence[Plan]) -> Side:
        return CpuSide([plan.run for plan in plans], runtime=self.runtime)


# --- on CUDA --------------------------------------------------------------------------------------


@dataclass
class CudaSide(Side):
    """Graphs where they can be captured; `stream` is torch's, on which all is queued."""

    capture: bool = True
    graph: Any = None
    count: int = 1

    def prepare(self) -> None:
        self.count = 1
        self.quick = self._launched()
        if self.quick < VERY_LONG:  # which was not warm
            self.quick = self._launched()
        if self.quick < LONG:
            self.count = 3
            self.quick = self._launched()
        wanted = math.ceil(BLOCK_SECONDS / max(self.quick, 1e-6))
        rounds = max(1, min(wanted, _MOST_RUNS) // len(self.runs))
        self.count = rounds * len(self.runs) if self.quick < LONG else 1
        if self.capture and self.quick < _GRAPH_BELOW:
            self._capture()
        if self.quick < LONG:
            self.block()
            self.quick = min(self.block() for _ in range(3))

    def _capture(self) -> None:
        """A graph of the runs; what cannot be captured is launched, and the process ends after."""
        for run in self.runs:
            run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                for number in range(self.count):
                    self.runs[number % len(self.runs)]()
        except (RuntimeError, AssertionError):
            Bench.spoiled = True
            torch.cuda.synchronize()
            return
        self.graph, self.in_graph = graph, True
        self.graph.replay()
        torch.cuda.synchronize()

    def _launched(self) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        for number in range(self.count):
            self.runs[number % len(self.runs)]()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3 / self.count

    def block(self) -> float:
        if self.graph is None:
            return self._launched()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        self.graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3 / self.count

    def drop(self) -> None:
        self.graph = None


class CudaBench(Bench):
    """Inputs drawn on the device; further sets are copies of the first."""

    def __init__(self, workload: Workload) -> None:
        torch.cuda.init()
        get_runtime("cuda").prepare()
        free, _ = torch.cuda.mem_get_info()
        if 6 * workload.program.bytes > free:
            raise MemoryError(f"{free / 2**30:.0f} GiB of device memory are free")
        tf32 = "tf32" in [spec.dtype for spec in workload.program.inputs]
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32
        torch.backends.cudnn.benchmark = True
        super().__init__(workload, _ORACLE_SHARE)
        xp = self.runtime.arrays()
        xp.cuda.Device().synchronize()
        empty: Any = self.runtime.empty
        outputs = {n: empty(s, self.specs[n].dtype) for n, s in self.shapes.items()}
        first = {**self.expected.inputs, **outputs}
        total = sum(array.nbytes for array in first.values())
        l2 = torch.cuda.get_device_properties(0).L2_cache_size
        count = min(_MOST_SETS, -(-_L2_TIMES * l2 // total), _MOST_BYTES // total)
        self.sets = int(max(1, count))
        copies = [{n: a.copy() for n, a in first.items()} for _ in range(1, self.sets)]
        self._sets: list[dict[str, Any]] = [first, *copies]
        xp.cuda.Device().synchronize()

    def tensors(self, number: int) -> dict[str, torch.Tensor]:
        found = {}
        for spec in self.program.inputs:
            array = self._sets[number][spec.name]
            raw = torch.from_dlpack(array.reshape(-1).view(np.uint8))
            found[spec.name] = of_bytes(raw, spec.dtype, spec.shape)
        return found

    def _array(self, tensor: torch.Tensor, name: str) -> Any:
        xp = self.runtime.arrays()
        flat = xp.from_dlpack(tensor.contiguous().reshape(-1).view(torch.uint8))
        return flat.view(numpy_dtype(self.specs[name].dtype)).reshape(tensor.shape)

    def our_side(self, kernel: Kernel) -> tuple[Side, str]:
        """Launches on torch's current stream, checked once on the first set."""
        runtime: Any = self.runtime
        binary = runtime.compile(kernel, cache_dir())
        loaded = runtime.load(binary)
        outputs = {name: self._sets[0][name] for name in self.shapes}
        for name, array in outputs.items():
            runtime.poison(array, self.specs[name].dtype)
        runtime.arrays().cuda.Device().synchronize()
        runs = [self._run(loaded, binary, arrays) for arrays in self._sets]
        runs[0]()
        torch.cuda.synchronize()
        return CudaSide(runs), self.judged(outputs)

    def _run(self, loaded: Any, binary: Any, arrays: dict[str, Any]) -> Callable[[], None]:
        calls = loaded.calls([arrays[argument.name] for argument in binary.operands])

        def run() -> None:
            stream = torch.cuda.current_stream().cuda_stream
            for call in calls:
                call.run(stream)

        return run

    def peer_side(self, plans: Sequence[Plan]) -> Side:
        return CudaSide([plan.run for plan in plans], capture=plans[0].captured)

    def recover(self) -> None:
        """An error of CUDA stays in the process; raises it again."""
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
