"""The Python module of an exported CUDA kernel: what it launches, on stand-ins for CuPy and torch,
and what it refuses, in words."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from explorer.exporter import export
from tests.runtime import cuda_kernels
from tests.runtime.exported import ADD_SIZES, COPY_SIZES, FACTS, World, operands
from tests.runtime.fake_cupy import Device, Driver, Tensor, placed, values_at


def test_module_imports_without_tilewright_and_cupy(tmp_path: Path, stub_compiler: None) -> None:
    export(cuda_kernels.copied(), FACTS, tmp_path)
    code = f"""
import sys; sys.path.insert(0, {str(tmp_path)!r}); sys.modules["cupy"] = None
import copied
try: copied.run(1)
except ImportError as error: print(error)
print([n for n in ("ir", "explorer", "numpy", "torch", "cuda") if n in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False
    )
    said = done.stdout.splitlines()
    assert said[0].startswith("copied needs CuPy: pip install cupy-cuda13x ("), done.stderr
    assert said[1] == "[]"


def test_cupy_arrays(world: World) -> None:
    a, b, c = operands()
    out = world.module.run(world.array(a), world.array(b))
    assert isinstance(out, world.cupy.ndarray)
    assert np.array_equal(out.values, c)
    addresses = [x.ctypes.data.to_bytes(8, "little") for x in (a, b, out.values)]
    assert world.device.launches == [("add", (8, 1, 1), (128, 1, 1), 0, 5, addresses)]
    assert ("load", b"machine code", 0) in world.device.log
    assert world.module.run(world.array(a), world.array(b), out=out) is out
    assert len([x for x in world.device.log if x[0] == "load"]) == 1
    assert len(world.module._plans) == 1


def test_bfloat16_arrays_come_back_as_they_went_in(world: World) -> None:
    a, b, c = operands()
    named = world.array(a)
    named.dtype = SimpleNamespace(name="bfloat16", str="<V2")
    assert np.array_equal(world.module.run(named, world.array(b)).values, c)


def test_torch_tensors(world: World) -> None:
    a, b, c = operands()
    out = world.module.run(world.tensor(a), world.tensor(b))
    assert isinstance(out, Tensor)
    assert np.array_equal(out.values, c)
    assert world.device.launches[0][4] == 9
    assert ("empty", "torch", 5) in world.device.log
    assert world.module.run(world.tensor(a), world.tensor(b), out) is out


def test_other_arrays_through_dlpack_and_the_array_interface(world: World) -> None:
    a, b, c = operands()
    lent = SimpleNamespace(values=a, __dlpack__=lambda: None, __dlpack_device__=lambda: (2, 0))
    seen: list[object] = []

    def as_array(value: object) -> Any:
        seen.append(value)
        return world.array(b)

    world.cupy.asarray = as_array
    other = SimpleNamespace(__cuda_array_interface__={})
    out = world.module.run(lent, other)
    assert np.array_equal(out.values, c)
    assert seen == [other]


@pytest.mark.parametrize(
    "stream",
    [
        SimpleNamespace(ptr=33),
        SimpleNamespace(cuda_stream=33),
        SimpleNamespace(__cuda_stream__=lambda: (0, 33)),
        33,
    ],
)
def test_streams_of_all_kinds(world: World, stream: object) -> None:
    a, b, _ = operands()
    world.module.run(world.array(a), world.array(b), stream=stream)
    world.module.run(world.tensor(a), world.tensor(b), stream=stream)
    assert [launch[4] for launch in world.device.launches] == [33, 33]
    allocated = [x for x in world.device.log if x[0] == "empty"]
    assert allocated == [("empty", "cupy", 33), ("empty", "torch", 33)]
    with pytest.raises(TypeError, match="added: stream is a str; it must be a stream"):
        world.module.run(world.array(a), world.array(b), stream="no")


def test_the_arrays_device_is_current_during_a_run(world: World) -> None:
    a, b, _ = operands()
    arrays = world.array(a, 1), world.array(b, 1)
    world.module.run(*arrays)
    assert ("load", b"machine code", 1) in world.device.log
    assert world.device.current == 0
    world.device.ensure(1)
    world.module.run(*arrays)
    assert world.device.current == 1
    world.device.context = 0  # a thread that has not used CUDA yet
    world.module.run(*arrays)
    assert world.device.context == 71


def test_other_devices_are_refused(world: World) -> None:
    a, b, _ = operands()
    world.device.capability = "100"
    said = "added: device 0 has compute capability 10.0; this code is for 9.0"
    with pytest.raises(RuntimeError, match=said):
        world.module.run(world.array(a), world.array(b))


def _refusals() -> list[tuple[Callable[[World, Any, Any], Any], type[Exception], str]]:
    strided = np.zeros(2000, np.float32)[::2]
    return [
        (lambda w, a, b: (a[:5], b), ValueError, "A has shape (5,); it must be (1000,)"),
        (
            lambda w, a, b: (b, b),
            TypeError,
            "A has dtype float32; it must be bfloat16 or, as bit patterns, uint16",
        ),
        (
            lambda w, a, b: (w.tensor(b.values), b),
            TypeError,
            "A has dtype torch.float32; it must be torch.bfloat16",
        ),
        (
            lambda w, a, b: (a, w.array(b.values.astype("f8"))),
            TypeError,
            "B has dtype float64; it must be float32",
        ),
        (
            lambda w, a, b: (a, w.array(strided)),
            ValueError,
            "B is not C-contiguous; pass a contiguous copy",
        ),
        (
            lambda w, a, b: (w.tensor(a.values, -1), b),
            ValueError,
            "A is on cpu; it must be on a CUDA device",
        ),
        (
            lambda w, a, b: (a, b.values),
            ValueError,
            "B is on the host (ndarray); it must be on a CUDA device",
        ),
        (
            lambda w, a, b: (a, [1.0]),
            TypeError,
            "B is a list; it must be an array on a CUDA device",
        ),
        (
            lambda w, a, b: (a, w.array(b.values, 1)),
            ValueError,
            "arrays are on devices 0 and 1; use one",
        ),
        (
            lambda w, a, b: (a, w.array(np.frombuffer(bytearray(4008), "f4")[1:1001])),
            ValueError,
            "B must start at a multiple of 16 bytes",
        ),
    ]


@pytest.mark.parametrize(("make", "kind", "said"), _refusals())
def test_arguments_are_refused_in_words(
    make: Callable[[World, Any, Any], Any], kind: type[Exception], said: str, world: World
) -> None:
    a, b, _ = operands()
    with pytest.raises(kind) as error:
        world.module.run(*make(world, world.array(a), world.array(b)))
    assert str(error.value) == f"added: {said}"
    assert not world.device.launches


@pytest.fixture
def installed_torch() -> Any:
    """Imported before the stand-in takes its place: a process imports it once."""
    return pytest.importorskip("torch")


def test_the_installed_torch_is_understood(
    installed_torch: Any, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = installed_torch
    monkeypatch.setitem(sys.modules, "torch", torch)
    a, b = torch.zeros(1000, dtype=torch.bfloat16), torch.zeros(1000)
    with pytest.raises(ValueError, match="added: A is on cpu; it must be on a CUDA device"):
        world.module.run(a, b)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    driver = Driver()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: {"libcuda.so.1": driver}[name])
    return driver


def copying(tmp_path: Path, patch: pytest.MonkeyPatch) -> World:
    def tell(values: list[bytes]) -> None:
        values_at(values[1], "<i4", 1)[...] = 12

    return World(cuda_kernels.copied(), tmp_path, Device(COPY_SIZES, {"tell": tell}), patch)


def test_tensor_maps_workspace_and_two_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stub_compiler: None, driver: Driver
) -> None:
    world = copying(tmp_path, monkeypatch)
    source = world.array(placed(np.zeros((40, 100), np.float32)))
    out = world.module.run(source)
    assert [array.shape for array in out] == [(40, 100), (1,)]
    assert out[1].values[0] == 12
    facts = ([100, 40], [400], [32, 16], [1, 1], 0, 0, 2, 0)
    assert driver.asked == [(7, x.data.ptr, *facts) for x in (source, out[0])]
    clear, copy, tell = world.device.launches
    tally = clear[1].to_bytes(8, "little")
    assert clear[2:] == (0, 4, 5)
    maps = [x.data.ptr.to_bytes(8, "little") * 16 for x in (source, out[0])]
    assert copy == ("copy_tiles", (4, 3, 1), (128, 1, 1), 2056, 5, [*maps, tally])
    assert tell[5] == [tally, out[1].data.ptr.to_bytes(8, "little")]
    assert ("attribute", 100, 8, 2056) in world.device.log

    assert all(x is y for x, y in zip(world.module.run(source, out=out), out, strict=True))
    again = world.module.run(source, out=(out[0], None))
    assert again[0] is out[0]
    assert len(driver.asked) == 2
    assert [x for x in world.device.log if x[0] == "memory"] == [("memory", 512)]
    world.module.run(source, out=out, stream=6)
    assert [x for x in world.device.log if x[0] == "memory"] == [("memory", 512)] * 2
    world.module.run(world.tensor(source.values))
    assert [x for x in world.device.log if x[0] == "memory"] == [("memory", 512)] * 2
    assert ("empty", "torch", 9) in world.device.log
    with pytest.raises(TypeError, match="copied: out must be a tuple of 2: B, tiles"):
        world.module.run(source, out=out[0])


def test_a_tensor_map_that_the_driver_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stub_compiler: None, driver: Driver
) -> None:
    world = copying(tmp_path, monkeypatch)
    driver.error = 1
    with pytest.raises(RuntimeError, match=r"refuses a tensor map \(CUresult 1\)"):
        world.module.run(world.array(placed(np.zeros((40, 100), np.float32))))
    assert not world.device.launches


def test_module_times_itself(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.module._main()
    assert capsys.readouterr().out.startswith("added: ")
    assert world.device.launches


def test_large_clusters_are_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stub_compiler: None
) -> None:
    kernel = cuda_kernels.added()
    plan = json.loads(kernel.text("launch"))
    plan["kernels"][0]["cluster"] = [16, 1, 1]
    kernel = dataclasses.replace(kernel, texts=(kernel.texts[0], ("launch", json.dumps(plan))))
    world = World(kernel, tmp_path, Device(ADD_SIZES), monkeypatch)
    a, b, _ = operands()
    world.module.run(world.array(a), world.array(b))
    assert ("attribute", 100, 14, 1) in world.device.log
