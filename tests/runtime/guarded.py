"""Exported CPU kernels, called in child processes with every buffer against pages nobody may touch.

A kernel that reads or writes one byte beyond a buffer's end (or before its start) crashes, and the
parent tells which call it was. Cases are drawn from operators' signatures; no operator is named.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import mmap
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from explorer.check import Bounds, poison
from explorer.exporter import export, find_linker
from explorer.runtime.memory import PAGE, protect
from ir.builder import Operator
from ir.dtypes import is_float, numpy_dtype
from ir.errors import Refusal, TilewrightError
from ir.inputs import random_inputs
from ir.kernel import Argument, Kernel
from ir.oracle import evaluate
from ir.program import Program
from ir.schedule import Schedule
from ir.target import Hardware, get_backend
from ir.targets.cpu.standalone import C_FLAGS
from tests.judging import bounds_of

Array = np.ndarray[Any, Any]
SPOTS = ("end", "start", "middle")
ODD = (1, 2, 3, 5, 7, 9, 13, 15, 17, 19, 23, 29, 31, 33, 37, 41, 47, 53, 63, 65, 67, 77, 97, 129)
TYPES = ("f32", "f32", "bf16", "f16", "i8", "f64", "e4m3")
FLOPS, BYTES = 3_000_000, 1 << 20  # of one run of a case, at most
SETS = 3  # of inputs, for each program
_ATTEMPTS = 200  # with odd extents alone
_FILL = 0x5A


@dataclass(frozen=True, slots=True)
class Case:
    """A program with odd extents, and what its outputs are for some sets of inputs."""

    operator: str
    arguments: Mapping[str, Any]
    program: Program
    inputs: tuple[Mapping[str, Array], ...]
    bounds: tuple[Mapping[str, Bounds], ...]


@dataclass(frozen=True, slots=True)
class Told:
    """Calls that were right, and what was wrong with one, in words that find it again."""

    calls: int
    wrong: str = ""


def draw_case(operator: Operator, rng: np.random.Generator) -> Case:
    """A small program of `operator`, whatever its signature allows: where it refuses odd extents,
    some of them are multiples."""
    for attempt in count():
        odd = ODD if attempt < _ATTEMPTS else (*ODD, *(4 * extent for extent in ODD))
        arguments = {
            name: _argument(parameter, rng, odd) for name, parameter in operator.parameters.items()
        }
        given = {name: value for name, value in arguments.items() if value is not None}
        try:
            program = operator.build(**given)
        except TilewrightError:
            continue
        if program.flops <= FLOPS and program.bytes <= BYTES:
            case = case_of(operator.name, given, program, rng)
            if case is not None:
                return case
    raise AssertionError("attempts have no end")


def _argument(parameter: Any, rng: np.random.Generator, odd: Sequence[int]) -> Any:
    """A value by annotation; None leaves the default."""
    kind, required = parameter.annotation, parameter.default is parameter.empty
    if kind in (int, "int"):
        if required:
            return int(rng.choice(odd))
        return int(rng.choice((1, 2, 3, 17))) if rng.random() < 0.25 else None
    if kind in (bool, "bool"):
        return bool(rng.random() < 0.5)
    if parameter.name == "dtype":
        return str(rng.choice(TYPES))
    return None


def case_of(
    name: str, arguments: Mapping[str, Any], program: Program, rng: np.random.Generator
) -> Case | None:
    """The oracle's say on some sets of inputs; None where an integer leaves its range in one."""
    inputs = tuple(random_inputs(program, rng) for _ in range(SETS))
    bounds = []
    for values in inputs:
        exact = evaluate(program, values)
        if not all(_holds(spec.dtype, exact[spec.name]) for spec in program.outputs):
            return None
        bounds.append(bounds_of(program, values))
    return Case(name, arguments, program, inputs, tuple(bounds))


def _holds(dtype: str, values: Array) -> bool:
    """Whether integers of a dtype are that large; what conversions make of others is not said."""
    if is_float(dtype) or dtype == "bool":
        return True
    limits = np.iinfo(numpy_dtype(dtype))
    return bool((values >= limits.min).all() and (values <= limits.max).all())


def schedules(program: Program, hardware: Hardware, count: int, rng: Any) -> list[Schedule]:
    """Rows drawn at random; of several, the first is a seed of the backend's."""
    space = get_backend("cpu").space(program, hardware)
    rows = space.sample(rng, count)
    if count > 1:
        rows[0] = space.seed_rows(rng)[0]
    return [space.schedule(row) for row in rows]


def library(kernel: Kernel, folder: Path, cache: Path, *, from_c: bool = False) -> tuple[Path, str]:
    """The exported shared library and its symbol; `from_c` builds it from the C text."""
    export(kernel, {}, folder, cache_dir=cache)
    manifest = json.loads((folder / f"{kernel.name}.json").read_text())
    built = folder / f"lib{kernel.name}.so"
    if from_c:
        flags = C_FLAGS.replace("-O3", "-O1").split()
        source = str(folder / f"{kernel.name}.c")
        subprocess.run([find_linker() or "cc", *flags, "-o", str(built), source], check=True)
    return built, manifest["symbol"]


class Room:
    """Memory for one array between two pages that may not be touched."""

    def __init__(self, argument: Argument) -> None:
        self.argument = argument
        self.bytes = -(-(argument.bytes + 192) // PAGE) * PAGE
        self._mapping = mmap.mmap(-1, self.bytes + 2 * PAGE)
        self.whole = np.frombuffer(self._mapping, np.uint8)
        self.first = self.whole.ctypes.data + PAGE
        for page in (self.first - PAGE, self.first + self.bytes):
            protect(page, PAGE, readable=False)
        self.inner = self.whole[PAGE : PAGE + self.bytes]

    def place(self, spot: str, rng: np.random.Generator) -> Array:
        """The array at one end or the other, or anywhere that suits its elements."""
        storage = numpy_dtype(self.argument.dtype)
        slack = self.bytes - self.argument.bytes
        steps = min(slack, 192) // storage.itemsize
        places = {"start": 0, "end": slack, "middle": int(rng.integers(steps)) * storage.itemsize}
        start = places[spot]
        view = self.inner[start : start + self.argument.bytes].view(storage)
        return view.reshape(self.argument.shape)

    def writable(self) -> None:
        _allow(self.first, self.bytes)

    def sealed(self) -> None:
        protect(self.first, self.bytes, readable=True)


def _allow(address: int, size: int) -> None:
    rights = mmap.PROT_READ | mmap.PROT_WRITE
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), rights):
        raise OSError(ctypes.get_errno(), "mprotect failed")


def call_guarded(
    case: Case, kernel: Kernel, built: tuple[Path, str], calls: int, seed: int, limit: float = 120.0
) -> Told:
    """`calls` calls in a child process; how many were right, and the first that was not."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        _child(case, kernel, built, calls, seed, writer, limit)
    os.close(writer)
    with os.fdopen(reader, "rb") as lines:
        told = lines.read().decode().splitlines()
    _, status = os.waitpid(child, 0)
    right = told.count("right")
    last = told[-1] if told else "not loaded"
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return Told(right, f"{name} in call {right}: {last}")
    return Told(right, "" if right == calls else f"call {right}: {last}")


def _child(
    case: Case,
    kernel: Kernel,
    built: tuple[Path, str],
    calls: int,
    seed: int,
    pipe: int,
    limit: float,
) -> None:
    """Never returns; a line before each call and one after it go to `pipe`."""
    try:
        faulthandler.disable()  # crashes are told by the parent
        signal.setitimer(signal.ITIMER_REAL, limit)
        path, symbol = built
        function = getattr(ctypes.CDLL(str(path)), symbol)
        function.restype = None
        rng = np.random.default_rng(seed)
        operands = [a for a in kernel.arguments if a.role != "workspace"]
        rooms = [Room(argument) for argument in operands]
        for number in range(calls):
            spots = [SPOTS[number]] * len(rooms) if number < 2 else _spots(len(rooms), rng)
            chosen = number % SETS
            os.write(pipe, f"inputs {chosen}, buffers at {' '.join(spots)}\n".encode())
            wrong = _once(case, function, rooms, spots, chosen, rng)
            os.write(pipe, f"{wrong or 'right'}\n".encode())
            if wrong:
                break
    except Exception as error:  # noqa: BLE001 -- told to the parent, whatever it is
        os.write(pipe, f"{type(error).__name__}: {error}\n".encode())
    os._exit(0)


def _spots(count: int, rng: np.random.Generator) -> list[str]:
    return [str(spot) for spot in rng.choice(SPOTS, count)]


def _once(
    case: Case, function: Any, rooms: Sequence[Room], spots: Sequence[str], chosen: int, rng: Any
) -> str:
    """One call; what was wrong with it."""
    arrays = []
    for room, spot in zip(rooms, spots, strict=True):
        room.writable()
        room.inner[:] = _FILL
        array = room.place(spot, rng)
        if room.argument.role == "input":
            array[...] = case.inputs[chosen][room.argument.name]
            room.sealed()
        else:
            poison(array, room.argument.dtype)
        arrays.append(array)
    function(*(ctypes.c_void_p(array.ctypes.data) for array in arrays))
    for room, array in zip(rooms, arrays, strict=True):
        if room.argument.role != "output":
            continue
        verdict = case.bounds[chosen][room.argument.name].judge(array)
        if verdict.detail:
            return f"{room.argument.name}: {verdict.detail}"
        array[...] = np.frombuffer(bytes([_FILL]) * array.nbytes, array.dtype).reshape(array.shape)
        if (room.inner != _FILL).any():
            return f"{room.argument.name}: bytes around it were written"
    return ""


def drawn(
    operators: Sequence[Operator], cases: int, each: int, threads: Sequence[int], seed: int
) -> Iterator[tuple[Case, Schedule, Kernel | None]]:
    """Kernels of `each` schedules of `cases` programs of every operator; None if refused."""
    backend = get_backend("cpu")
    for number in range(cases):
        for place, operator in enumerate(operators):
            rng = np.random.default_rng((seed, number, place))
            case = draw_case(operator, rng)
            hardware = backend.hardware(threads[(number + place) % len(threads)])
            for schedule in schedules(case.program, hardware, each, rng):
                yield case, schedule, _lowered(case.program, schedule, hardware)


def _lowered(program: Program, schedule: Schedule, hardware: Hardware) -> Kernel | None:
    try:
        return get_backend("cpu").lower(program, schedule, hardware, full=True)
    except Refusal:
        return None
