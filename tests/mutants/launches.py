"""Kernels that go wrong with their launches: in one call and not in another, with what was there.

`Faulty` is a runtime around another, of which launches misbehave as it is told. Knows runtimes and
arrays; no program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from explorer.check import TURNS, host, poison_bits
from explorer.runtime.base import Binary, Launch
from ir.dtypes import from_float, is_float, to_float

Arrays = Mapping[str, Any]


@dataclass
class Kernel:
    """What the launches of one kernel share: how often it ran, what it keeps."""

    runs: int = 0
    sets: int = 0
    kept: dict[str, Any] = field(default_factory=dict)


@dataclass
class Around:
    """One launch of a kernel on operand set `number`; outputs are (dtype, array) by name."""

    kernel: Kernel
    number: int
    launch: Launch
    outputs: Mapping[str, tuple[str, Any]]
    put: Callable[[Any, Any], None]

    def run(self, times: int = 1) -> float:
        return self.launch(times)

    def contents(self) -> dict[str, Any]:
        """Copies of the outputs on the host."""
        return {name: np.array(host(array)) for name, (_, array) in self.outputs.items()}

    def leave(self, arrays: Arrays) -> None:
        """Have the outputs hold something else."""
        for name, array in arrays.items():
            self.put(self.outputs[name][1], array)

    def spoil(self) -> None:
        """Get one element wrong."""
        name, (dtype, _) = next(iter(self.outputs.items()))
        copy = self.contents()[name]
        flat = copy.reshape(-1)
        value = np.asarray(to_float(flat, dtype) if is_float(dtype) else flat, np.float64)
        place = int(np.argmax(np.abs(np.nan_to_num(value, nan=0, posinf=0, neginf=0))))
        other = np.array([-value[place] if value[place] else 1.0])
        flat[place] = from_float(other, dtype)[0] if is_float(dtype) else _other(flat, place)
        self.leave({name: copy})


def _other(flat: Any, place: int) -> Any:
    return not flat[place] if flat.dtype == bool else flat[place] ^ 4


Fault = Callable[[Around, int], float]


def _when(wrong: Callable[[Around, int], bool]) -> Fault:
    """One element is wrong in some calls; asked before each run, of which `runs` is the number."""

    def fault(around: Around, times: int) -> float:
        spoils = False
        for _ in range(times):
            around.kernel.runs += 1
            spoils = wrong(around, times)
        seconds = around.run(times)
        if spoils:
            around.spoil()
        return seconds

    return fault


def stale_element(around: Around, times: int) -> float:
    """One element is not written."""
    name = next(iter(around.outputs))
    before = around.contents()[name]
    seconds = around.run(times)
    after = around.contents()[name]
    place = after.size // 2
    after.reshape(-1)[place] = before.reshape(-1)[place]
    around.leave({name: after})
    return seconds


def stale_later(around: Around, times: int) -> float:
    """Nothing is written but in the first call."""
    around.kernel.runs += 1
    if around.kernel.runs == 1:
        return around.run(times)
    before = around.contents()
    seconds = around.run(times)
    around.leave(before)
    return seconds


def second_set_from_first(around: Around, times: int) -> float:
    """Results are kept from the first operand set, and given for the second."""
    seconds = around.run(times)
    if around.number == 0:
        around.kernel.kept = around.contents()
    else:
        around.leave(around.kernel.kept)
    return seconds


def _combined(function: Callable[[Any, Any], Any]) -> Fault:
    """Results are combined with what the outputs held, which nobody cleared."""

    def fault(around: Around, times: int) -> float:
        before = around.contents()
        seconds = around.run(times)
        after = around.contents()
        with np.errstate(all="ignore"):
            around.leave(
                {
                    name: _both(function, before[name], after[name], dtype)
                    for name, (dtype, _) in around.outputs.items()
                }
            )
        return seconds

    return fault


def _both(function: Callable[[Any, Any], Any], before: Any, after: Any, dtype: str) -> Any:
    if not is_float(dtype):
        whole = after.view("u1") if dtype == "bool" else after
        other = before.view("u1") if dtype == "bool" else before
        return function(other, whole).astype(whole.dtype).view(after.dtype)
    found = function(*(np.asarray(to_float(a, dtype), np.float64) for a in (before, after)))
    return from_float(found, dtype)


def _poisoned(around: Around, times: int) -> bool:
    """Whether the outputs hold what no kernel would leave."""
    flat = [(dtype, host(array).reshape(-1)) for dtype, array in around.outputs.values()]
    return any(
        all((a.view(f"u{a.dtype.itemsize}") == poison_bits(dtype, turn)).all() for dtype, a in flat)
        for turn in range(TURNS)
    )


LAUNCHES: dict[str, Fault] = {
    "an element is never written": stale_element,
    "written in the first call alone": stale_later,
    "right in the first call alone": _when(lambda around, _: around.kernel.runs > 1),
    "right in the first three calls": _when(lambda around, _: around.kernel.runs > 3),
    "wrong in every second call": _when(lambda around, _: around.kernel.runs % 2 == 0),
    "right in calls of one run alone": _when(lambda _, times: times > 1),
    "right in checked calls alone": _when(lambda around, times: not _poisoned(around, times)),
    "the second set answered from the first": second_set_from_first,
    "added to what was there": _combined(np.add),
    "the larger of it and what was there": _combined(np.fmax),
    "the smaller of it and what was there": _combined(np.fmin),
}


class Faulty:
    """A runtime whose kernels launch as `fault` has it, if there is one."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.fault: Fault | None = None

    @contextmanager
    def really(self) -> Iterator[None]:
        """Every launch runs, also where the runtime knows what the last one left."""
        replays = getattr(self.inner, "replays", False)
        self.inner.replays = False
        try:
            yield
        finally:
            self.inner.replays = replays

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def load(self, binary: Binary) -> Any:
        loaded = self.inner.load(binary)
        return loaded if self.fault is None else _FaultyKernel(loaded, binary, self.fault, self.put)

    def put(self, array: Any, values: Any) -> None:
        self.inner.put(array, values)


class _FaultyKernel:
    def __init__(self, loaded: Any, binary: Binary, fault: Fault, put: Any) -> None:
        self._loaded, self._binary, self._fault, self._put = loaded, binary, fault, put
        self._kernel = Kernel()

    def bind(self, operands: Sequence[Any]) -> Launch:
        outputs = {
            argument.name: (argument.dtype, array)
            for argument, array in zip(self._binary.operands, operands, strict=True)
            if argument.role == "output"
        }
        launch = self._loaded.bind(operands)
        around = Around(self._kernel, self._kernel.sets, launch, outputs, self._put)
        self._kernel.sets += 1
        return lambda times=1: self._fault(around, times)

    def close(self) -> None:
        self._loaded.close()


def leaves(wrong: Arrays) -> Fault:
    """A kernel that leaves these outputs on the first operand set."""

    def fault(around: Around, times: int) -> float:
        seconds = around.run(times)
        if around.number == 0:
            around.leave({name: wrong[name] for name in around.outputs})
        return seconds

    return fault


def packed_before(wrong: Arrays) -> Fault:
    """A kernel that keeps an operand of the first set: these are its outputs on the second."""

    def fault(around: Around, times: int) -> float:
        seconds = around.run(times)
        if around.number == 1:
            around.leave({name: wrong[name] for name in around.outputs})
        return seconds

    return fault
