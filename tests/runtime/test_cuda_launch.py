"""Loading, binding and timing of CUDA kernels, with CuPy and the driver played by the host."""

from __future__ import annotations

import ctypes
import json
import statistics
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from explorer.runtime import cuda
from explorer.runtime.base import Binary
from explorer.runtime.cache import cached_file
from explorer.runtime.cuda import CudaRuntime
from explorer.runtime.workers import Timing, _time
from ir.kernel import Kernel
from tests.runtime import cuda_kernels

NAMES = ("add", "copy_tiles", "tell")


@dataclass
class Machine:
    """A device whose time passes by `cost` seconds with every launch."""

    cost: float = 1e-5
    l2: int = 1
    now: float = 0.0
    result: int = 0
    log: list[tuple[Any, ...]] = field(default_factory=list)
    captured: list[Any] | None = None
    attributes: list[tuple[int, int, int]] = field(default_factory=list)
    recordings: int = 0
    early: list[int] = field(default_factory=list)

    def launch(self, *call: Any) -> int:
        if self.captured is not None:
            self.captured.append(call)
            return 0
        self.log.append(call)
        self.now += self.cost if call[0] != "clear" else 0.0
        return self.result


class Array(np.ndarray[Any, Any]):
    """numpy's array with CuPy's pointer."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.__array_interface__["data"][0])


class Driver:
    """What the runtime asks of libcuda."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def cuLaunchKernelEx(self, sizes: Any, function: Any, pointers: Any, extra: Any) -> int:
        number, how = (function.value or 0) - 100, sizes._obj
        assert extra is None
        self.machine.early += [how.attributes[i].identifier for i in range(how.count)]
        values = [ctypes.c_uint64.from_address(pointer).value for pointer in pointers]
        sizes = (*how.grid, *how.block)
        return self.machine.launch(NAMES[number], sizes, how.shared, how.stream, values)

    def cuMemsetD8Async(self, pointer: Any, value: int, count: Any, stream: Any) -> int:
        return self.machine.launch("clear", pointer.value, value, count.value, stream.value)

    def cuFuncSetAttribute(self, function: Any, attribute: int, value: int) -> int:
        self.machine.attributes.append((function.value, attribute, value))
        return self.machine.result

    def cuGetErrorString(self, result: int, text: Any) -> int:
        text._obj.value = b"out of luck"
        return 0


class Stream:
    ptr = 77

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def begin_capture(self) -> None:
        self.machine.captured = []
        self.machine.recordings += 1

    def end_capture(self) -> Any:
        calls, self.machine.captured = self.machine.captured or [], None

        def again(stream: Any) -> None:
            for call in calls:
                self.machine.launch(*call)

        return SimpleNamespace(upload=lambda stream: None, launch=again)


class Event:
    def __init__(self, machine: Machine) -> None:
        self.machine, self.at = machine, 0.0

    def record(self, stream: Any) -> None:
        self.at = self.machine.now

    def synchronize(self) -> None:
        assert self.machine.captured is None


class Module:
    def load(self, code: bytes) -> None:
        assert code == b"cubin"

    def get_function(self, name: str) -> Any:
        return SimpleNamespace(ptr=100 + NAMES.index(name))


def library(machine: Machine) -> Any:
    """CuPy, as far as the runtime uses it."""

    def asarray(values: Any) -> Any:
        return np.asarray(values).view(Array)

    def device() -> Any:
        return SimpleNamespace(attributes={"L2CacheSize": machine.l2}, synchronize=lambda: None)

    functions = SimpleNamespace(
        Device=device,
        Stream=lambda non_blocking: Stream(machine),
        Event=lambda: Event(machine),
        get_elapsed_time=lambda first, last: (last.at - first.at) * 1e3,
        function=SimpleNamespace(Module=Module),
        memory=SimpleNamespace(OutOfMemoryError=MemoryError),
    )
    return SimpleNamespace(
        cuda=functions,
        ndarray=Array,
        asarray=asarray,
        asnumpy=np.asarray,
        from_dlpack=lambda array: asarray(np.from_dlpack(array)),
        empty=lambda shape, dtype: asarray(np.empty(shape, dtype)),
        full=lambda size, value, dtype: asarray(np.full(size, value, dtype)),
    )


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    found, driver = library(machine), Driver(machine)
    monkeypatch.setattr(cuda, "cupy", lambda: found)
    monkeypatch.setattr(cuda, "_driver", lambda: driver)
    monkeypatch.setattr(cuda, "encode", lambda driver, pointer, p: ctypes.c_uint64(pointer))
    monkeypatch.setattr(cuda, "_twins", {})
    monkeypatch.setattr(cuda, "_arena", {})
    return machine


def binary(kernel: Kernel, folder: Path) -> Binary:
    path = cached_file(folder, kernel.key, ".cubin", lambda: b"cubin")
    return Binary(
        kernel.key, str(path), kernel.entry, 0, kernel.arguments, (), kernel.text("launch")
    )


def operands(found: Binary) -> list[Any]:
    runtime = CudaRuntime()
    return [runtime.empty(argument.shape, argument.dtype) for argument in found.operands]


def test_launches_are_those_of_the_plan(machine: Machine, tmp_path: Path) -> None:
    """Cleared before each run, in the plan's order, on one stream, at the arguments' addresses."""
    found = binary(cuda_kernels.copied(), tmp_path)
    arrays = operands(found)
    launch = CudaRuntime().load(found).bind(arrays)
    assert launch() == pytest.approx(2 * machine.cost)
    a, b, tiles = (array.data.ptr for array in arrays)
    clear, copy, tell = machine.log
    room = clear[1] - 256
    assert clear == ("clear", room + 256, 0, 4, Stream.ptr)
    assert copy == ("copy_tiles", (4, 3, 1, 128, 1, 1), 2056, Stream.ptr, [a, b, room + 256])
    assert tell == ("tell", (1, 1, 1, 1, 1, 1), 0, Stream.ptr, [room + 256, tiles])


def test_scratch_memory_is_poisoned_and_shared(machine: Machine, tmp_path: Path) -> None:
    found = binary(cuda_kernels.copied(), tmp_path)
    loaded = CudaRuntime().load(found)
    for _ in range(2):
        loaded.bind(operands(found))()
    assert {call[1] for call in machine.log if call[0] == "clear"} == {machine.log[0][1]}
    assert (cuda._arena["workspace"] == 0xFF).all()


def test_several_operand_sets_take_turns(machine: Machine, tmp_path: Path) -> None:
    """As many as exceed the L2 three times; the first run is on the caller's own arrays."""
    found = binary(cuda_kernels.added(), tmp_path)
    arrays = operands(found)
    machine.l2, machine.cost = sum(array.nbytes for array in arrays), 1.0
    launch = CudaRuntime().load(found).bind(arrays)
    launch()
    assert launch(7) == pytest.approx(7.0)
    outputs = [call[4][2] for call in machine.log]
    assert outputs[0] == outputs[1] == arrays[2].data.ptr
    assert len(set(outputs)) == 3
    assert outputs[1:4] == outputs[4:7]


def test_kernels_of_one_run_are_timed_each(machine: Machine, tmp_path: Path) -> None:
    """In the plan's order; a run of one kernel has no parts."""
    found = binary(cuda_kernels.copied(), tmp_path)
    parts = CudaRuntime().load(found).bind(operands(found)).parts(2)
    assert [name for name, _ in parts] == ["copy_tiles", "tell"]
    assert [seconds for _, seconds in parts] == pytest.approx([machine.cost] * 2)
    alone = binary(cuda_kernels.added(), tmp_path)
    assert CudaRuntime().load(alone).bind(operands(alone)).parts(2) == ()


def test_short_kernels_are_replayed_as_a_graph(machine: Machine, tmp_path: Path) -> None:
    found = binary(cuda_kernels.added(), tmp_path)
    launch = CudaRuntime().load(found).bind(operands(found))
    launch()
    for times in (2, 24, 100):
        assert launch(times) == pytest.approx(times * machine.cost)
    assert machine.recordings == 1
    assert {call[0] for call in machine.log} == {"add"}


def test_long_kernels_are_not(machine: Machine, tmp_path: Path) -> None:
    machine.cost = 1e-3
    found = binary(cuda_kernels.added(), tmp_path)
    launch = CudaRuntime().load(found).bind(operands(found))
    launch()
    assert launch(3) == pytest.approx(3e-3)
    assert (machine.recordings, len(machine.log)) == (0, 4)


@pytest.mark.parametrize(("shared", "asked"), [(48 << 10, []), (200 << 10, [(100, 8, 200 << 10)])])
def test_much_shared_memory_is_asked_for(
    shared: int, asked: list[Any], machine: Machine, tmp_path: Path
) -> None:
    found = binary(cuda_kernels.added(), tmp_path)
    plan = json.loads(found.plan)
    plan["kernels"][0]["shared"] = shared
    CudaRuntime().load(replace(found, plan=json.dumps(plan)))
    assert machine.attributes == asked
    machine.result = 1
    if asked:
        with pytest.raises(RuntimeError, match=r"204800 bytes of shared memory: out of luck"):
            CudaRuntime().load(replace(found, plan=json.dumps(plan)))


def test_arrays_of_others_are_bound_where_they_are(machine: Machine, tmp_path: Path) -> None:
    class Foreign:
        """An array that offers DLPack alone."""

        def __init__(self, values: Any) -> None:
            self.values = values

        def __dlpack__(self, **words: Any) -> Any:
            return self.values.__dlpack__(**words)

        def __dlpack_device__(self) -> Any:
            return self.values.__dlpack_device__()

    found = binary(cuda_kernels.added(), tmp_path)
    own = [np.zeros(1000, dtype) for dtype in (np.uint16, np.float32, np.float32)]
    foreign: list[Any] = [Foreign(array) for array in own]
    CudaRuntime().load(found).bind(foreign)()
    assert machine.log[0][4] == [array.ctypes.data for array in own]


def test_a_refused_launch_ends_the_process(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    """A CUDA error stays with its context: a fresh worker has to take over."""

    class Ended(BaseException):
        pass

    def end(status: int) -> None:
        raise Ended(status)

    monkeypatch.setattr("os._exit", end)
    found = binary(cuda_kernels.added(), tmp_path)
    launch = CudaRuntime().load(found).bind(operands(found))
    machine.result = 719
    with pytest.raises(Ended):
        launch()
    assert "launch: out of luck (CUDA error 719)" in capfd.readouterr().err


@pytest.mark.parametrize("early", [False, True])
def test_early_kernels_are_launched_so(machine: Machine, tmp_path: Path, early: bool) -> None:
    kernel = cuda_kernels.added()
    plan = json.loads(kernel.text("launch"))
    plan["kernels"][0]["early"] = early
    found = replace(binary(kernel, tmp_path), plan=json.dumps(plan))
    CudaRuntime().load(found).bind(operands(found))()
    assert machine.early == ([6] if early else [])


def test_a_short_kernel_is_not_told_from_its_launch_alone() -> None:
    """A first run that is mostly launching does not end the timing of a kernel that is fast."""

    class Launch:
        def __call__(self, times: int = 1) -> float:
            return 8e-6 if times == 1 else times * 3e-6

    samples = _time(Launch(), 9e-6, 3.1e-6, Timing())
    assert len(samples) >= Timing().fewest
    assert statistics.median(samples) == pytest.approx(3e-6)


class Disturbed:
    """Takes a millisecond a run; the first `odd` runs, every other one, take twice as long."""

    def __init__(self, odd: int) -> None:
        self.odd = odd
        self.runs = 0

    def __call__(self, times: int = 1) -> float:
        self.runs += 1
        slow = self.runs <= self.odd and self.runs % 2
        return times * (2e-3 if slow else 1e-3)


def test_a_contender_whose_samples_lie_apart_is_measured_again() -> None:
    launch = Disturbed(odd=25)
    samples = _time(launch, 1e-3, 1.2e-3, Timing(budget=10.0))
    assert sorted(samples)[15] == pytest.approx(1e-3)
    assert launch.runs > 40
    hopeless = Disturbed(odd=1000)
    assert len(_time(hopeless, 1e-3, None, Timing(budget=10.0))) == 20
    assert hopeless.runs <= 2 + 20 * (1 + Timing().again)
    behind = Disturbed(odd=1000)
    assert len(_time(behind, 1e-3, 0.7e-3, Timing(budget=10.0, cut=9.0))) <= 20
    assert behind.runs <= 22
