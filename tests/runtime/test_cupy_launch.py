"""CuPy as a baseline, with CuPy played by numpy and cuBLAS by its products: results and graphs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from explorer.runtime import cublas, cuda, cupy_library
from explorer.runtime.cuda import CudaRuntime
from ir.dtypes import from_float, numpy_dtype, to_float
from ir.registry import load_operator
from ir.scalar import scalar_function
from tests.runtime.library_contract import LibraryContract, launched
from tests.runtime.test_cuda_launch import Array, Event, Machine, Stream, library

MATMUL = {"m": 16, "n": 12, "k": 8}


def kernel(inputs: str, outputs: str, body: str) -> Callable[..., Any]:
    """What CuPy compiles of the three texts that the library gives it."""

    def run(x: Any, out: Any = None) -> Any:
        if outputs == "uint16 y":
            result = from_float(x, "bf16")
        elif inputs == "uint16 x":
            result = to_float(x, "bf16").astype(np.float32)
        else:
            assert "erf(x)" in body
            result = scalar_function("erf").meaning(x)
        if out is not None:
            out[...] = result
        return result.view(Array)

    return run


class Cupy:
    """The device of `test_cuda_launch`, and numpy for everything else."""

    __version__ = "14.2.0"

    def __init__(self, machine: Machine) -> None:
        made = library(machine)
        vars(made.cuda).update(
            MemoryPool=lambda: SimpleNamespace(malloc=None),
            using_allocator=lambda malloc: contextlib.nullcontext(),
            ExternalStream=lambda pointer: contextlib.nullcontext(),
            runtime=SimpleNamespace(memGetInfo=lambda: (1 << 30, 1 << 30), free=lambda _: None),
        )
        self.reducers: list[list[str]] = []
        self._core = SimpleNamespace(set_reduction_accelerators=self.reducers.append)
        self.__dict__.update(vars(made), ElementwiseKernel=kernel)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    found, refuse = Machine(), SimpleNamespace(capture=False, product=False)
    module = Cupy(found)

    def multiply(left: Any, right: Any, dtypes: tuple[str, str, str], out: Any) -> bool:
        """As cuBLAS: floats of any type, and int8 whose rows are multiples of four bytes."""
        assert cublas.multiplies(*dtypes)
        if refuse.product or (refuse.capture and found.captured is not None):
            raise NotImplementedError("not while a stream is captured")
        if dtypes[0] == "i8" and left.shape[2] % 4:
            return False
        found.launch("gemm", out.ctypes.data)
        wide = [to_float(np.asarray(x), t) for x, t in zip((left, right), dtypes[:2], strict=True)]
        out[...] = from_float(np.matmul(*wide), dtypes[2]).astype(numpy_dtype(dtypes[2]))
        return True

    for where in (cuda, cupy_library):
        monkeypatch.setattr(where, "cupy", lambda: module)
    monkeypatch.setattr(cublas, "multiply", multiply)
    cupy_library._kernel.cache_clear()
    yield SimpleNamespace(device=found, refuse=refuse, reducers=module.reducers)
    cupy_library._kernel.cache_clear()


class TestCupyOnTheHost(LibraryContract):
    @pytest.fixture
    def runtime(self, machine: Any, monkeypatch: pytest.MonkeyPatch) -> CudaRuntime:
        """Nothing is captured, since this device's graphs repeat launches and not what they do."""

        def refuse(stream: Stream) -> None:
            raise NotImplementedError("no graphs here")

        def record(event: Event, stream: Any) -> None:
            event.machine.now += 1e-9
            event.at = event.machine.now

        monkeypatch.setattr(Stream, "begin_capture", refuse)
        monkeypatch.setattr(Event, "record", record)
        return CudaRuntime()


def test_runs_after_the_first_are_replayed_from_graphs(machine: Any) -> None:
    device = machine.device
    device.l2 = 5 * 4 * (16 * 8 + 8 * 12 + 16 * 12) // 3
    launch, _, _ = launched(CudaRuntime(), load_operator("matmul").build(**MATMUL))
    assert launch() == pytest.approx(device.cost)
    assert (device.recordings, launch.captured) == (0, False)  # type: ignore[attr-defined]
    device.log.clear()
    assert launch() == pytest.approx(device.cost)
    assert (device.recordings, launch.captured) == (5, True)  # type: ignore[attr-defined]
    outputs = [call[1] for call in device.log]
    assert len(set(outputs[:5])) == 5
    assert outputs[5] == outputs[0]
    assert launch(24) == pytest.approx(24 * device.cost)
    assert device.recordings == 6


def test_the_library_alone_has_sums_that_take_long_to_compile(machine: Any) -> None:
    launch, _, _ = launched(CudaRuntime(), load_operator("matmul").build(**MATMUL))
    assert machine.reducers == []
    launch()
    assert machine.reducers == [["cub"], []]
    machine.refuse.product = True
    with pytest.raises(NotImplementedError):
        launched(CudaRuntime(), load_operator("matmul").build(**MATMUL))[0]()
    assert machine.reducers[2:] == [["cub"], []]


def test_what_is_compiled_in_the_first_run_is_not_timed(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, multiply, compiling = machine.device, cublas.multiply, [1.06]

    def compiled(*arguments: Any, **options: Any) -> bool:
        device.now += compiling.pop() if compiling else 0.0
        return multiply(*arguments, **options)

    monkeypatch.setattr(cublas, "multiply", compiled)
    launch, _, _ = launched(CudaRuntime(), load_operator("matmul").build(**MATMUL))
    assert launch() == pytest.approx(device.cost)
    assert not compiling


def test_what_cannot_be_captured_is_called(machine: Any) -> None:
    machine.refuse.capture = True
    launch, _, _ = launched(CudaRuntime(), load_operator("matmul").build(**MATMUL))
    for times in (1, 1, 30):
        assert launch(times) == pytest.approx(times * machine.device.cost)
    assert not launch.captured  # type: ignore[attr-defined]
    assert (machine.device.recordings, machine.device.captured) == (1, None)
    assert len(machine.device.log) == 32


def test_failures_are_raised_and_end_no_process(machine: Any) -> None:
    machine.refuse.product = True
    launch, _, _ = launched(CudaRuntime(), load_operator("matmul").build(**MATMUL))
    with pytest.raises(NotImplementedError):
        launch()


@pytest.mark.parametrize(
    ("operator", "arguments", "name"),
    [
        ("matmul", MATMUL | {"dtype": "bf16", "batch": 2}, "cuBLAS (CuPy 14.2)"),
        ("matmul", MATMUL | {"dtype": "i8"}, "cuBLAS (CuPy 14.2)"),
        ("matmul", MATMUL | {"dtype": "u8"}, "CuPy 14.2"),
        ("matmul_bias_act", MATMUL, "CuPy 14.2 with cuBLAS"),
        ("row_sum", {"m": 4, "n": 8}, "CuPy 14.2"),
    ],
)
def test_it_is_called_by_what_does_the_work(
    operator: str, arguments: dict[str, Any], name: str, machine: Any
) -> None:
    launch, _, _ = launched(CudaRuntime(), load_operator(operator).build(**arguments))
    assert launch.name == name
