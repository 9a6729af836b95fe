"""What a runtime is to the rest: it turns a kernel into machine code, and runs it on this device.

A runtime lives in worker processes only. It knows kernels and arrays; no program, no search.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from explorer.check import Bounds, Verdict
from explorer.runtime.known import RUNTIMES
from ir.errors import MissingTarget
from ir.kernel import Argument, Kernel
from ir.target import Hardware

if TYPE_CHECKING:
    from ir.program import Program

Array = NDArray[Any]


class CompileError(Exception):
    """The compiler does not accept a kernel's text."""


@dataclass(frozen=True, slots=True)
class Binary:
    """Machine code of one kernel, on disk, and what launching it takes."""

    key: str
    path: str
    entry: str
    threads: int
    arguments: tuple[Argument, ...]
    notes: tuple[tuple[str, str | int | float | bool], ...] = ()
    plan: str = ""  # how it is launched, where the target needs to be told

    @property
    def operands(self) -> tuple[Argument, ...]:
        """The arguments that the caller provides: inputs and outputs, in the kernel's order."""
        return tuple(a for a in self.arguments if a.role != "workspace")


class Launch(Protocol):
    """A loaded kernel with its operands bound."""

    def __call__(self, times: int = 1) -> float:
        """Run `times` times back to back; returns the seconds of all of them together."""
        ...


@runtime_checkable
class HasParts(Protocol):
    """What a launch may offer besides, where a run is several kernels: the time of each."""

    def parts(self, turns: int) -> tuple[tuple[str, float], ...]:
        """Names and median seconds of a run's kernels over so many turns, in order; what lies
        between is in them."""
        ...


class LoadedKernel(Protocol):
    """Machine code in this process."""

    def bind(self, operands: Sequence[Array]) -> Launch:
        """Attach operands (inputs and outputs, in order); workspace is allocated inside."""
        ...

    def close(self) -> None:
        """Unmap the code; launches of it are void after that."""
        ...


class Runtime(Protocol):
    """One device's compile, load, memory and clock."""

    name: str
    settle: float  # seconds of load after which clocks are those of long runs
    apart: bool  # whether operands lie in a memory of the device's own, where the oracle runs too
    exclusive: bool  # whether what else this machine does would disturb kernels: it computes them

    def preload(self, cache_dir: Path, task: str = "run") -> None:
        """Import what is slow to import, without starting threads or a driver: forks follow.

        `task` is what they are for: "compile", or to "run" kernels, which may be all.
        """
        ...

    def prepare(self, device: int = 0) -> None:
        """Make this worker process ready to run kernels on that device; raises MissingTarget."""
        ...

    def compile(self, kernel: Kernel, cache_dir: Path) -> Binary:
        """Machine code of `kernel`, from the cache when it is there."""
        ...

    def spills(self, kernel: Kernel) -> int:
        """Register spills and reloads in the innermost loops of the kernel's machine code."""
        ...

    def assemble(self, texts: Sequence[str]) -> bytes:
        """Machine code of several texts linked into one, to be used without this runtime.

        The last one's definitions are what others can link with.
        """
        ...

    def load(self, binary: Binary) -> LoadedKernel:
        """Map `binary` into this process."""
        ...

    def place(self, array: Array) -> Array:
        """A copy where kernels may read but, if the device can forbid it, not write."""
        ...

    def empty(self, shape: tuple[int, ...], dtype: str) -> Array:
        """Memory for an output."""
        ...

    def put(self, array: Array, values: Array) -> None:
        """Copy values of the host into an array of `empty`."""
        ...

    def arrays(self) -> Any:
        """The array module whose arrays lie where operands do."""
        ...

    def compiled_arrays(self, cache_dir: Path) -> Path:
        """The folder in which that module keeps what it compiles; one that is not there if none."""
        ...

    def fetch(self, array: Array) -> Array:
        """The array in the host's memory, as numpy's."""
        ...

    def poison(self, array: Array, dtype: str, turn: int = 0) -> None:
        """Fill an output with what no kernel would write, another pattern every turn."""
        ...

    def judge(self, bounds: Bounds, array: Array) -> Verdict:
        """Compare an output with what it may be."""
        ...

    def clock_ghz(self) -> float | None:
        """The device's clock at this moment, if it can be told."""
        ...


@runtime_checkable
class MeasuresPeaks(Protocol):
    """What a runtime may offer besides: the peaks of its device, measured."""

    def peaks(self, hardware: Hardware, cache_dir: Path) -> dict[str, float]:
        """Operations a second (`peak_flops`, or `peak_flops.DTYPE`) and bytes (`peak_bytes`)."""
        ...


@runtime_checkable
class Disassembles(Protocol):
    """What a runtime may offer besides: a kernel's machine code as text."""

    def disassembly(self, kernel: Kernel) -> str:
        """Instructions a line each, labels of their own; raises MissingTarget without the tool."""
        ...


@runtime_checkable
class HasRoom(Protocol):
    """What a runtime may offer besides: how much memory its device has left."""

    def room(self) -> int:
        """Bytes that are free now, once this process gives back what it does not use."""
        ...


@runtime_checkable
class Rests(Protocol):
    """What a runtime may offer besides: to let go of the processors between kernels."""

    def rest(self) -> None:
        """Return when no thread of this process but the caller's runs or waits for a processor."""
        ...


@runtime_checkable
class ServesCallers(Protocol):
    """What a runtime may offer besides: kernels timed as those call them who have them exported."""

    def given(self, array: Array) -> Array:
        """A copy of an input in memory as callers have it."""
        ...

    def returned(self, shape: tuple[int, ...], dtype: str) -> Array:
        """An output in memory as exported modules return it."""
        ...

    def calling(self, kernel: Any, inputs: Sequence[Array]) -> Calling:
        """The exported module's own function of a kernel that this runtime has loaded."""
        ...


class Calling(Launch, Protocol):
    """Runs of a module's function; `results` are the outputs of the last one by name."""

    results: Mapping[str, Array]


class LibraryLaunch(Launch, Protocol):
    """A program on its operands, evaluated op by op by an array library called `name`."""

    name: str


@runtime_checkable
class HasLibrary(Protocol):
    """What a runtime may offer besides: its device's array library, as a baseline of kernels."""

    def prepare_library(self) -> None:
        """Make a worker process ready that runs no kernels, only the library."""
        ...

    def library(
        self, program: Program, inputs: Mapping[str, Array], outputs: Mapping[str, Array]
    ) -> LibraryLaunch:
        """The program on arrays of `place` and `empty`; raises Inexpressible, MissingTarget."""
        ...


def get_runtime(target: str) -> Runtime:
    """The runtime of `target`, a known name or `module:class`; raises MissingTarget."""
    place = RUNTIMES.get(target, target)
    module, _, attribute = place.partition(":")
    if not attribute:
        raise MissingTarget(f"no runtime for target {target!r}: known are {', '.join(RUNTIMES)}")
    runtime: Runtime = getattr(import_module(module), attribute)()
    return runtime
