"""Exported CUDA kernels: the files, what the Python module launches (on stand-ins for CuPy and
torch, and on a GPU where there is one), and what it refuses, in words.
"""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from explorer.errors import ExportError
from explorer.exporter import export
from explorer.runtime.base import get_runtime
from explorer.runtime.process import Raised
from ir.errors import MissingTarget
from ir.kernel import Kernel
from tests.runtime import cuda_kernels
from tests.runtime.fake_cupy import Device, Driver, Tensor, make_cupy, make_torch, placed, values_at

FACTS = {"operator": "add", "schedule": {"tile": 4}, "hardware": "cuda:H200", "note": 'a */ """ b'}
ADD_SIZES = {"add": [8, 8, 8]}
COPY_SIZES = {"copy_tiles": [128, 128, 8], "tell": [8, 8]}
HAS_GPU = any(Path("/dev").glob("nvidia[0-9]*"))
HAS_NVRTC = bool(find_spec("cuda") and find_spec("cuda.bindings"))


@pytest.fixture
def stub_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machine code is beside the point."""
    monkeypatch.setattr("explorer.exporters.cuda.ask_once", lambda *_, **__: b"machine code")


@pytest.fixture
def real_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVRTC in this process."""

    def ask(kernel: Kernel, method: str, texts: list[str], **_: object) -> bytes:
        return cuda_kernels.compiled(kernel.text("cuda"), texts[0])

    monkeypatch.setattr("explorer.exporters.cuda.ask_once", ask)


def load(folder: Path, name: str) -> Any:
    """A fresh module object of an exported file."""
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def add_body(values: list[bytes]) -> None:
    a = values_at(values[0], "<u2", 1000).astype(np.uint32) << 16
    values_at(values[2], "<f4", 1000)[...] = a.view(np.float32) + values_at(values[1], "<f4", 1000)


class World:
    """An exported module, with the libraries that it finds."""

    def __init__(
        self, kernel: Kernel, folder: Path, device: Device, patch: pytest.MonkeyPatch
    ) -> None:
        export(kernel, FACTS, folder)
        self.device = device
        self.cupy, self.torch = make_cupy(device), make_torch(device)
        patch.setitem(sys.modules, "cupy", self.cupy)
        patch.setitem(sys.modules, "torch", self.torch)
        self.module = load(folder, kernel.name)

    def array(self, values: Any, device: int = 0) -> Any:
        return self.cupy.ndarray(values, device)

    def tensor(self, values: Any, index: int = 0) -> Tensor:
        name = {"uint16": "bfloat16"}.get(values.dtype.name, values.dtype.name)
        return Tensor(values, getattr(self.torch, name), index)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stub_compiler: None) -> World:
    device = Device(ADD_SIZES, {"add": add_body})
    return World(cuda_kernels.added(), tmp_path, device, monkeypatch)


def operands() -> tuple[Any, Any, Any]:
    """A as bit patterns of bf16, B, and A + B."""
    a = np.arange(1000, dtype=np.float32)
    b = np.linspace(0, 1, 1000, dtype=np.float32)
    bits = (a.view(np.uint32) >> 16).astype(np.uint16)
    return placed(bits), placed(b), (bits.astype(np.uint32) << 16).view(np.float32) + b


def test_files_and_manifest(tmp_path: Path, stub_compiler: None) -> None:
    kernel = cuda_kernels.copied()
    files = export(kernel, FACTS, tmp_path / "out")
    names = ["copied.cu", "copied.cubin", "copied.py", "manifest.json"]
    assert [path.name for path in files] == names
    manifest = json.loads(files[3].read_text())
    sha256 = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in files[:3]}
    tile_map = {
        "kind": "map", "argument": "A", "offset": 0, "dtype": "f32", "dims": [100, 40],
        "strides": [400], "box": [32, 16], "swizzle": 0, "l2": 128,
    }  # fmt: skip
    tally = {"kind": "pointer", "argument": "workspace", "offset": 256}
    tiles = {"kind": "pointer", "argument": "tiles", "offset": 0}
    assert manifest == {
        "name": "copied",
        "target": "cuda",
        "arch": "sm_90a",
        "arguments": [
            {"name": "A", "shape": [40, 100], "dtype": "f32", "role": "input"},
            {"name": "B", "shape": [40, 100], "dtype": "f32", "role": "output"},
            {"name": "tiles", "shape": [1], "dtype": "i32", "role": "output"},
            {"name": "workspace", "shape": [512], "dtype": "u8", "role": "workspace"},
        ],
        "workspace_bytes": 512,
        "clean": [],
        "kernels": [
            {
                "name": "copy_tiles", "grid": [4, 3, 1], "block": 128, "cluster": [1, 1, 1],
                "shared": 2056, "parameters": [tile_map, tile_map | {"argument": "B"}, tally],
                "zero": [[256, 4]],
            },
            {
                "name": "tell", "grid": [1, 1, 1], "block": 1, "cluster": [1, 1, 1],
                "shared": 0, "parameters": [tally, tiles], "zero": [],
            },
        ],
        "kernel_key": kernel.key,
        "facts": FACTS,
        "notes": {"registers": 16},
        "build": {
            "nvcc": "nvcc -cubin -gencode arch=compute_90a,code=sm_90a -std=c++17 "
            "-o copied.cubin copied.cu",
            "nvrtc": "--gpu-architecture=sm_90a -std=c++17 -default-device",
        },
        "sha256": sha256,
    }  # fmt: skip


def test_source_tells_how_to_launch(tmp_path: Path, stub_compiler: None) -> None:
    export(cuda_kernels.copied(), FACTS, tmp_path)
    header, _, source = (tmp_path / "copied.cu").read_text().partition("*/\n")
    assert source == cuda_kernels.COPY
    for line in (
        "copied: generated by Tilewright.",
        '  schedule: {"tile": 4}',
        "  A: f32[40, 100], input",
        "  workspace: 512 bytes of scratch memory",
        "  copy_tiles: grid 4 x 3 x 1, cluster 1 x 1 x 1, 128 threads a block, 2,056 bytes of "
        "dynamic shared memory",
        "    first clear 4 bytes of the workspace at 256",
        "    parameter 1: tensor map by value on B: f32, extents [100, 40], strides [400] bytes, "
        "box [32, 16], swizzle 0, L2 128 (innermost first)",
        "    parameter 2: address of workspace + 256 bytes",
    ):
        assert f" * {line}\n" in header


@pytest.mark.skipif(not HAS_NVRTC, reason="no NVRTC here")
def test_exported_source_makes_the_exported_code(tmp_path: Path, real_compiler: None) -> None:
    kernel = cuda_kernels.copied()
    export(kernel, FACTS, tmp_path)
    code = cuda_kernels.compiled((tmp_path / "copied.cu").read_text(), kernel.text("launch"))
    assert code[:4] == b"\x7fELF"
    assert len(code) == len((tmp_path / "copied.cubin").read_bytes())


class NoCompiler:
    """A worker whose runtime finds no toolchain."""

    def __init__(self, *_: object) -> None: ...

    def ask(self, *_: object) -> Raised:
        return Raised("MissingTarget", "no NVRTC: pip install nvidia-cuda-nvrtc")

    def close(self) -> None: ...


def test_no_compiler_is_a_missing_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("explorer.runtime.once.Worker", NoCompiler)
    monkeypatch.setattr("explorer.runtime.once.process_server", lambda *_: None)
    with pytest.raises(MissingTarget, match=r"^no NVRTC: pip install"):
        export(cuda_kernels.added(), FACTS, tmp_path / "out")
    assert not list(tmp_path.glob("out/*"))


@pytest.mark.skipif(not HAS_NVRTC, reason="no NVRTC here")
def test_machine_code_comes_from_the_runtime_in_a_worker(tmp_path: Path) -> None:
    try:
        get_runtime("cuda")
    except MissingTarget as error:
        pytest.skip(str(error))
    export(cuda_kernels.copied(), FACTS, tmp_path / "out", cache_dir=tmp_path / "cache")
    assert (tmp_path / "out" / "copied.cubin").read_bytes()[:4] == b"\x7fELF"


@pytest.mark.parametrize("name", ["a-b", "lambda", "copy", "cupy"])
def test_names_that_cannot_be_modules_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=name):
        export(dataclasses.replace(cuda_kernels.added(), name=name), {}, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"argument": "Z"}, "add has no argument 'Z'"),
        ({"kind": "map", "dtype": "f8"}, "tensor maps hold no 'f8'"),
    ],
)
def test_plans_that_name_what_is_not_there(
    change: dict[str, str], said: str, tmp_path: Path, stub_compiler: None
) -> None:
    kernel = cuda_kernels.added()
    plan = json.loads(kernel.text("launch"))
    plan["kernels"][0]["parameters"][0] |= change
    texts = (kernel.texts[0], ("launch", json.dumps(plan)))
    with pytest.raises(ExportError, match=said):
        export(dataclasses.replace(kernel, texts=texts), {}, tmp_path / "out")


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


def test_the_installed_torch_is_understood(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    torch = pytest.importorskip("torch")
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


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="no NVIDIA device here")
def test_on_a_device(tmp_path: Path, real_compiler: None) -> None:
    for kernel in (cuda_kernels.added(), cuda_kernels.copied()):
        export(kernel, FACTS, tmp_path)
    script = Path(__file__).with_name("export_on_device.py")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for command in ([script, tmp_path], [tmp_path / "added.py"], [tmp_path / "copied.py"]):
        done = subprocess.run(
            [sys.executable, *map(str, command)],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        print(done.stdout)
        assert done.returncode == 0, done.stdout + done.stderr
