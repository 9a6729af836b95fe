"""The objects that live in worker processes: one compiles, one checks and times.

The only code that handles generated code. Knows kernels, expectations and a runtime; no search.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from explorer.afforded import DEVICE
from explorer.check import Bounds, Verdict
from explorer.expectation import Expectation, Expected, Recipe, in_room
from explorer.outcome import Status
from explorer.runtime.base import (
    Array,
    Binary,
    Calling,
    Disassembles,
    HasLibrary,
    HasParts,
    HasRoom,
    Launch,
    LibraryLaunch,
    LoadedKernel,
    MeasuresPeaks,
    Rests,
    Runtime,
    ServesCallers,
    get_runtime,
)
from explorer.runtime.blas import shared_among
from explorer.runtime.eager import Inexpressible
from ir.errors import MissingTarget, Refusal
from ir.kernel import Argument, Kernel
from ir.program import Program
from ir.schedule import Schedule
from ir.target import Backend, Hardware, get_backend
from records import MEMORIES

_AS_TIMED = 3  # runs of one call, which then goes the way of timed ones; odd: see `_examine`


@dataclass(frozen=True, slots=True)
class Compiled:
    """A binary, or why there is none (the constraint that forbids the schedule)."""

    binary: Binary | None
    detail: str
    seconds: float


def backend_at(name: str) -> Backend:
    """A known backend, or the one at `module:class`."""
    module, _, attribute = name.partition(":")
    if not attribute:
        return get_backend(name)
    backend: Backend = getattr(import_module(module), attribute)()
    return backend


def _keep_to(processors: tuple[int, ...]) -> None:
    """Have this process and its threads run there alone, if any are named."""
    if processors and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, processors)


class Compiler:
    """Lowers and compiles schedules of one program."""

    def __init__(
        self,
        program: Program,
        backend: str,
        hardware: Hardware,
        runtime: str,
        cache_dir: Path,
        processors: tuple[int, ...] = (),
    ) -> None:
        _keep_to(processors)
        self._program = program
        self._backend = backend_at(backend)
        self._hardware = hardware
        self._runtime = get_runtime(runtime)
        self._cache_dir = cache_dir

    def compile(self, schedule: Schedule) -> Compiled:
        """Machine code of one schedule."""
        start = time.perf_counter()
        try:
            kernel = self._backend.lower(self._program, schedule, self._hardware)
        except Refusal as refusal:
            return Compiled(None, str(refusal), time.perf_counter() - start)
        binary = self._runtime.compile(kernel, self._cache_dir)
        return Compiled(binary, "", time.perf_counter() - start)


@dataclass(frozen=True, slots=True)
class Timing:
    """How much to measure: few repeats in search, more for finalists."""

    fewest: int = 3
    most: int = 20
    budget: float = 0.04  # seconds of timed runs per candidate
    sample: float = 1e-4  # seconds of the shortest sample: the timer costs 1 % of that at most
    cut: float = 1.6  # a first run that many times the best so far is the last
    slow: float = 1.5  # a median that many times the best so far needs no more than `settled` runs
    settled: int = 5
    steady: float = 0.1  # distance of the quartiles, as a share of the median, that is believed
    again: int = 2  # times that a short contender is measured anew whose samples lie further apart
    sustained: bool = False  # behind a stretch of load, so that clocks are those of long runs
    hiccup: float = (
        0.2  # a first run longer than that is slow, a shorter one may have been disturbed
    )
    once: float = 0.25  # seconds of a first run that is the only one, unless it is a contender's


PARTED = 0.02  # seconds of a first run up to which the time of each of its kernels is taken
_BRIEF = Timing(fewest=3, most=5, budget=0.03, cut=float("inf"), slow=float("inf"))


@dataclass(frozen=True, slots=True)
class Examination:
    """What one candidate did: samples in seconds per run when it was right."""

    status: Status
    samples: tuple[float, ...] = ()
    error: float | None = None
    detail: str = ""
    clock_ghz: float | None = None
    kernel: float | None = None  # seconds of the kernel alone, where samples are of calls
    parts: tuple[tuple[str, float], ...] = ()  # of a run of several kernels: seconds of each


@dataclass(frozen=True, slots=True)
class Operands:
    """Inputs and outputs by name."""

    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]

    def of(self, binary: Binary) -> list[Array]:
        """Those that a kernel takes, in its order."""
        have = {**self.inputs, **self.outputs}
        for argument in binary.operands:
            if argument.name not in have:
                raise LookupError(f"the program has no tensor {argument.name}")
        return [have[argument.name] for argument in binary.operands]


class Examiner:
    """Checks and times binaries against one expectation: made here from a recipe, or read.

    What is checked has guarded ends, and inputs that cannot be written; what is timed lies in
    `memory`, which may be that of callers.
    """

    _lent: Operands | None = None  # the first set as callers have it, where that is timed

    def __init__(
        self,
        source: Expectation | Recipe,
        runtime: str,
        memory: str = MEMORIES[0],
        device: int = 0,
        processors: tuple[int, ...] = (),
    ) -> None:
        _keep_to(processors)
        self._runtime: Runtime = get_runtime(runtime)
        self._prepare(device)
        self._specs = source.outputs
        self._source = source
        self._made: dict[int, Expected] = {}
        self._set(0)
        self._outputs = {
            spec.name: self._runtime.empty(spec.shape, spec.dtype) for spec in self._specs
        }
        self._lent = None if memory == MEMORIES[0] else self._callers()
        if isinstance(source, Recipe):
            self._rehearse()

    def _rehearse(self) -> None:
        """Judge what no kernel wrote: what a device's library has to compile for that takes longer
        than a candidate may, and is none's fault."""
        for spec in self._specs:
            self._runtime.poison(self._outputs[spec.name], spec.dtype)
            self._set(0).bounds[spec.name].rehearse(self._outputs[spec.name])

    def _callers(self) -> Operands:
        """The first set in memory as callers have it: checks guard theirs, timed runs do not."""
        runtime = self._runtime
        assert isinstance(runtime, ServesCallers)
        return Operands(
            {name: runtime.given(array) for name, array in self._set(0).inputs.items()},
            {spec.name: runtime.returned(spec.shape, spec.dtype) for spec in self._specs},
        )

    def _set(self, number: int) -> Expected:
        """One set of operands where kernels read them, and what outputs may be."""
        if number not in self._made:
            self._made[number] = self._placed(number)
        return self._made[number]

    def _placed(self, number: int) -> Expected:
        if isinstance(self._source, Recipe):
            recipe, runtime, arrays = self._source, self._runtime, self._runtime.arrays()
            if not isinstance(runtime, HasRoom):
                return recipe.expected(number, DEVICE, arrays)
            return in_room(
                lambda means: recipe.expected(number, means, arrays), DEVICE, runtime.room
            )
        found = self._source.expected(number)
        inputs = {name: self._runtime.place(array) for name, array in found.inputs.items()}
        return Expected(inputs, found.bounds)

    def _prepare(self, device: int) -> None:
        self._runtime.prepare(device)

    def ready(self) -> None:
        """Nothing to do: an answer shows that the device could be prepared."""

    def rest(self) -> None:
        """Let go of the processors: threads that wait for the next launch go to sleep at once."""
        if isinstance(self._runtime, Rests):
            self._runtime.rest()

    def examine(self, binary: Binary, best: float | None, timing: Timing) -> Examination:
        """Check, time unless it is hopeless, check what is left, and again with other inputs."""
        kernel = self._runtime.load(binary)
        try:
            lent = kernel.bind(self._lent.of(binary)) if self._lent else None
            calling = self._calling(kernel, binary) if timing.sustained else None
            return self._examine(
                lambda n: kernel.bind(self._operands(binary, n)), lent, best, timing, calling
            )
        finally:
            kernel.close()

    def _calling(self, kernel: LoadedKernel, binary: Binary) -> Calling | None:
        """The exported function on what callers give it; None where memory is not as they have."""
        if self._lent is None or not isinstance(self._runtime, ServesCallers):
            return None
        inputs = [a.name for a in binary.operands if a.role == "input"]
        return self._runtime.calling(kernel, [self._lent.inputs[name] for name in inputs])

    def library(self, program: Program, timing: Timing) -> tuple[str, Examination]:
        """Check and time the program in the runtime's array library, whose name is given too.

        It has the processors for itself: what waits here for kernels sleeps, and so do the
        library's own threads when this returns. Raises Inexpressible where there is no such
        library, or no way to say the program.
        """
        if not isinstance(self._runtime, HasLibrary):
            raise Inexpressible(f"{self._runtime.name} has no array library")
        library, lent = self._runtime, self._lent

        def bound(number: int) -> LibraryLaunch:
            return library.library(program, self._set(number).inputs, self._outputs)

        timed = None if lent is None else library.library(program, lent.inputs, lent.outputs)
        name = bound(0).name
        self.rest()
        try:
            return name, self._examine(bound, timed, None, timing)
        finally:
            self.rest()

    def _examine(
        self,
        bound: Callable[[int], Launch],
        lent: Launch | None,
        best: float | None,
        timing: Timing,
        calling: Calling | None = None,
    ) -> Examination:
        """`bound` attaches a set of operands, the second only for contenders; `lent` has those of
        callers, if they are timed. Samples are of `calling` if it is there; the kernel's own time
        is noted then.

        Checks behind an even and an odd number of runs, of one, and of many as they are timed.
        Every check has outputs of another poison, but that of what the timed runs left.
        """
        launch = bound(0)
        first, verdict = self._checked(launch, 0)
        if not verdict.right:
            return Examination("wrong_result", (), verdict.error, verdict.detail)
        parts = _parts(launch, 2) if first <= PARTED else ()
        if _too_long(first, best, timing):
            clock = self._runtime.clock_ghz()
            return Examination(
                "ok", (first,), verdict.error, "slow: timed once", clock, parts=parts
            )
        timed, outputs = launch, self._outputs
        if lent is not None and self._lent is not None:
            timed, outputs = lent, dict(self._lent.outputs)
        if timing.sustained:
            _load(timed, self._runtime.settle)
        samples = _time(timed, first, best, timing if calling is None else _BRIEF)
        again = self._judge(0, outputs) if len(samples) > 1 else verdict
        kernel = None
        if calling is not None:
            kernel = statistics.median(samples)
            samples = _time(calling, kernel, best, timing)
        clock = self._runtime.clock_ghz()
        if timing.sustained:
            parts = _parts(timed, 5)
        if again.right and len(samples) > 1:
            _, again = self._checked(timed, 0, _AS_TIMED, turn=1, outputs=outputs)
        if again.right and calling is not None:
            again = self._judge(0, calling.results)
        if not again.right:
            detail = f"right at first, then not: {again.detail}"
            return Examination("unstable", samples, again.error, detail, clock)
        if len(samples) == 1:
            detail = "far behind: timed once"
            return Examination("ok", samples, verdict.error, detail, clock, parts=parts)
        if best is not None and statistics.median(samples) > timing.slow * best:
            error = max(verdict.error, again.error)
            return Examination("ok", samples, error, "", clock, parts=parts)
        _, other = self._checked(bound(1), 1, turn=2)
        if not other.right:
            detail = f"wrong on a second set of inputs: {other.detail}"
            return Examination("wrong_result", samples, other.error, detail, clock)
        error = max(verdict.error, again.error, other.error)
        return Examination("ok", samples, error, "", clock, kernel, parts)

    def _checked(
        self,
        launch: Launch,
        number: int,
        times: int = 1,
        turn: int = 0,
        outputs: Mapping[str, Array] | None = None,
    ) -> tuple[float, Verdict]:
        """Runs behind one another on outputs poisoned for that turn, and what came of them."""
        outputs = self._outputs if outputs is None else outputs
        for spec in self._specs:
            self._runtime.poison(outputs[spec.name], spec.dtype, turn)
        seconds = launch(times)
        return seconds, self._judge(number, outputs)

    def _judge(self, number: int, outputs: Mapping[str, Array]) -> Verdict:
        worst = Verdict(0.0)
        for name, bounds in self._set(number).bounds.items():
            verdict = self._named(name, bounds, outputs[name])
            if not verdict.right:
                return verdict
            worst = max(worst, verdict, key=lambda v: v.error)
        return worst

    def _named(self, name: str, bounds: Bounds, output: Array) -> Verdict:
        verdict = self._runtime.judge(bounds, output)
        return verdict if verdict.right else Verdict(verdict.error, f"{name}: {verdict.detail}")

    def _operands(self, binary: Binary, number: int) -> list[Array]:
        return Operands(self._set(number).inputs, self._outputs).of(binary)


class LibraryExaminer(Examiner):
    """Examines the library alone, in a process where it has as many `threads` as kernels have."""

    def __init__(
        self, source: Expectation | Recipe, runtime: str, memory: str, threads: int
    ) -> None:
        shared_among(threads)  # or its server was started with as many
        super().__init__(source, runtime, memory)

    def _prepare(self, device: int) -> None:
        if isinstance(self._runtime, HasLibrary):
            self._runtime.prepare_library()


def _parts(launch: Launch, turns: int) -> tuple[tuple[str, float], ...]:
    """The times of a run's kernels, where it is several."""
    return launch.parts(turns) if isinstance(launch, HasParts) else ()


def _too_long(first: float, best: float | None, timing: Timing) -> bool:
    """Whether more runs would take time that others can use: it is long, and not known to be good.

    Before there is a best, that of a search whose kernels all take long is found by single runs.
    """
    return first > timing.once and (best is None or first > timing.cut * best)


def _time(launch: Launch, first: float, best: float | None, timing: Timing) -> tuple[float, ...]:
    """Samples of seconds per run; few when the kernel is slow or far behind the best."""
    warm = first if first > timing.hiccup else launch()
    times = _repeats(warm, timing)
    if times > 1:  # a single short run is mostly its own launch
        warm = launch(times) / times
    if best is not None and warm > timing.cut * best:
        if warm < timing.budget / 4:  # cheap enough to ask again: something may have interfered
            warm = min(warm, *(launch(times) / times for _ in range(2)))
        if warm > timing.cut * best:
            return (warm,)
    samples = _sampled(launch, warm, best, timing)
    for _ in range(timing.again if warm < timing.budget else 0):
        if _spread(samples) <= timing.steady or _behind(samples, best, timing):
            break
        samples = min(samples, _sampled(launch, warm, best, timing), key=_spread)
    return samples


def _sampled(launch: Launch, warm: float, best: float | None, timing: Timing) -> tuple[float, ...]:
    """Samples of a kernel that takes about `warm` seconds, within the budget."""
    times = _repeats(warm, timing)
    samples: list[float] = []
    fewest = timing.fewest if warm < timing.budget else max(2, timing.fewest - 1)
    end = time.perf_counter() + timing.budget
    while len(samples) < fewest or (len(samples) < timing.most and time.perf_counter() < end):
        samples.append(launch(times) / times)
        if len(samples) >= timing.settled and _behind(samples, best, timing):
            break
    return tuple(samples)


def _behind(samples: Sequence[float], best: float | None, timing: Timing) -> bool:
    """Whether the median leaves no hope to become the best."""
    return best is not None and statistics.median(samples) > timing.slow * best


def _spread(samples: Sequence[float]) -> float:
    """The distance of the quartiles, as a share of the median."""
    if len(samples) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return (high - low) / middle


def _load(launch: Launch, seconds: float) -> None:
    """Keep the device busy for about `seconds`."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        took = launch()
        launch(max(1, int(seconds / 8 / max(took, 1e-9))))


def _repeats(seconds: float, timing: Timing) -> int:
    """Runs in one sample of a kernel that takes `seconds`."""
    return int(timing.sample / max(seconds, 1e-9)) + 1


class Runner:
    """Compiles and runs single kernels: for `run_once`, spill counts and export."""

    def __init__(self, runtime: str, cache_dir: Path) -> None:
        self._runtime = get_runtime(runtime)
        self._cache_dir = cache_dir
        self._ready = False

    def run(self, kernel: Kernel, arrays: Sequence[Array]) -> tuple[float, list[Array]]:
        """Run `kernel` on `arrays` (inputs and outputs, in order); seconds and outputs."""
        self._prepare()
        binary = self._runtime.compile(kernel, self._cache_dir)
        loaded = self._runtime.load(binary)
        operands = [self._operand(*pair) for pair in zip(binary.operands, arrays, strict=True)]
        seconds = loaded.bind(operands)()
        roles = [argument.role for argument in binary.operands]
        outputs = [a for a, role in zip(operands, roles, strict=True) if role == "output"]
        return seconds, [self._runtime.fetch(output) for output in outputs]

    def spills(self, kernel: Kernel) -> int:
        """Spills and reloads in the innermost loops of `kernel`."""
        return self._runtime.spills(kernel)

    def disassembly(self, kernel: Kernel) -> str:
        """The machine code of `kernel` as text; raises MissingTarget where that is not offered."""
        if not isinstance(self._runtime, Disassembles):
            raise MissingTarget(f"target {kernel.target} has no disassembler")
        return self._runtime.disassembly(kernel)

    def peaks(self, hardware: Hardware) -> dict[str, float]:
        """The machine's peaks, where the runtime can measure them; empty where it cannot."""
        if not isinstance(self._runtime, MeasuresPeaks):
            return {}
        self._prepare()
        return self._runtime.peaks(hardware, self._cache_dir)

    def _prepare(self) -> None:
        if not self._ready:
            self._runtime.prepare()
            self._ready = True

    def assemble(self, kernel: Kernel, texts: Sequence[str]) -> bytes:
        """Standalone machine code of `kernel` and the texts around it."""
        return self._runtime.assemble([kernel.texts[0][1], *texts])

    def _operand(self, argument: Argument, array: Array) -> Array:
        if argument.role == "input":
            return self._runtime.place(array)
        output = self._runtime.empty(argument.shape, argument.dtype)
        self._runtime.put(output, array)
        return output
