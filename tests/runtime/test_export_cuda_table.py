"""CUDA kernels of several extents in one module: which of them runs, on stand-ins for CuPy and
torch, what is refused, and what the files say; a run on a GPU if there is one."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import explorer
from explorer.errors import ExportError
from explorer.exporter import export_table
from explorer.exporters.base import TableFacts
from ir.kernel import KernelTable
from ir.targets.cuda.rows.hardware import known_hardware
from tests.runtime import cuda_kernels
from tests.runtime.exported import World, add_of, operands
from tests.runtime.fake_cupy import Device
from tests.runtime.test_export_cuda import HAS_GPU, HAS_NVRTC

COUNTS = (8, 1000, 1024)


def facts(table: KernelTable) -> TableFacts:
    each = tuple({"seconds": 1e-6 * number} for number, _ in enumerate(table.rows))
    return TableFacts({"operator": table.name}, each)


def world_of(table: KernelTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    names = {f"add_{kernel.key[:12]}": extents[0] for extents, kernel in table.rows}
    bodies = {name: add_of(count) for name, count in names.items()}
    sizes = {name: [8, 8, 8] for name in names}
    return World(table, tmp_path, Device(sizes, bodies), monkeypatch)


@pytest.fixture
def additions() -> KernelTable:
    return cuda_kernels.table({count: cuda_kernels.added(count) for count in COUNTS})


@pytest.fixture
def world(
    additions: KernelTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stub_compiler: None
) -> World:
    return world_of(additions, tmp_path, monkeypatch)


def test_the_kernel_is_chosen_by_shapes(world: World) -> None:
    for count in (*COUNTS, *COUNTS):
        a, b, c = operands(count)
        out = world.module.run(world.array(a), world.array(b))
        assert out.shape == (count,)
        assert np.array_equal(out.values, c)
        tensor = world.module.run(world.tensor(a), world.tensor(b))
        assert np.array_equal(tensor.values, c)
        assert world.module.run(world.array(a), world.array(b), out=out) is out
    assert {launch[1] for launch in world.device.launches} == {(1, 1, 1), (8, 1, 1)}
    assert len([entry for entry in world.device.log if entry[0] == "load"]) == 1
    assert len(world.module._places) == 2 * len(COUNTS)


def test_arrays_that_differ_from_those_of_before_are_seen(world: World) -> None:
    """By strides, devices and contexts, which a look-up by shapes does not tell."""
    a, b, c = operands(8)
    assert np.array_equal(world.module.run(world.array(a), world.array(b)).values, c)
    wide = np.zeros(16, np.float32)[::2]
    with pytest.raises(ValueError, match="added: B is not C-contiguous"):
        world.module.run(world.array(a), world.array(wide))
    with pytest.raises(ValueError, match="arrays are on devices 0 and 1; use one"):
        world.module.run(world.array(a), world.array(b, 1))
    assert world.module.run(world.array(a, 1), world.array(b, 1)).data.device_id == 1
    assert world.device.current == 0
    world.device.context = 0  # a thread that has not used CUDA yet
    assert np.array_equal(world.module.run(world.array(a), world.array(b)).values, c)
    with pytest.raises(ValueError, match="arrays are on devices 0 and 1; use one"):
        world.module.run(world.array(a), world.array(b), out=world.array(np.zeros(8, "f4"), 1))


def test_shapes_without_a_kernel_are_refused_in_a_line(world: World) -> None:
    a, b, _ = operands(9)
    said = r"^added: no kernel for A \(9,\), B \(9,\); there are kernels for n=8; n=1000; n=1024$"
    with pytest.raises(ValueError, match=said):
        world.module.run(world.array(a), world.array(b))
    with pytest.raises(TypeError, match="added: A is a list; it must be an array on a CUDA device"):
        world.module.run([1.0], world.array(b))
    a, b, _ = operands(8)
    with pytest.raises(ValueError, match=r"C has shape \(9,\); it must be \(8,\)"):
        world.module.run(world.array(a), world.array(b), out=world.array(np.zeros(9, "f4")))
    with pytest.raises(TypeError, match="B has dtype float64; it must be float32"):
        world.module.run(world.array(a), world.array(b.astype("f8")))
    assert not world.device.launches


def test_threads_may_call_it_at_once(world: World) -> None:
    wrong = []

    def call(count: int) -> None:
        a, b, c = operands(count)
        for _ in range(50):
            if not np.array_equal(world.module.run(world.array(a), world.array(b)).values, c):
                wrong.append(count)

    threads = [threading.Thread(target=call, args=(count,)) for count in (*COUNTS, *COUNTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_workspaces_are_shared_but_for_what_stays_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stub_compiler: None
) -> None:
    kernels = {
        8: cuda_kernels.added(8, workspace=256),
        16: cuda_kernels.added(16, workspace=512),
        32: cuda_kernels.added(32, workspace=128, clean=64),
        64: cuda_kernels.added(64),
    }
    world = world_of(cuda_kernels.table(kernels), tmp_path, monkeypatch)
    for count in (*kernels, *kernels):
        a, b, c = operands(count)
        assert np.array_equal(world.module.run(world.array(a), world.array(b)).values, c)
    assert [entry for entry in world.device.log if entry[0] == "memory"] == [
        ("memory", 512), ("memory", 128),
    ]  # fmt: skip
    assert [launch[2:4] for launch in world.device.launches if launch[0] == "memset"] == [(0, 64)]
    assert [world.module.workspace(n) for n in (8, 16, 32, 64, 9)] == [256, 512, 128, 0, None]


def test_the_manifest_has_the_table(
    additions: KernelTable, tmp_path: Path, stub_compiler: None
) -> None:
    files = export_table(additions, facts(additions), tmp_path, name="sums")
    assert [path.name for path in files] == ["sums.cu", "sums.cubin", "sums.json", "sums.py"]
    manifest = json.loads((tmp_path / "sums.json").read_text())
    assert manifest["varying"] == ["n"]
    assert [row["extents"] for row in manifest["table"]] == [{"n": count} for count in COUNTS]
    row = manifest["table"][1]
    assert row["facts"] == {"seconds": 1e-6}
    assert row["kernels"][0]["name"] == f"add_{additions.kernels[1].key[:12]}"
    assert row["kernels"][0]["grid"] == [8, 1, 1]
    assert row["workspace_bytes"] == 0
    assert set(manifest["sha256"]) == {"sums.cu", "sums.cubin", "sums.py"}
    assert manifest["build"]["nvcc"].endswith("-o sums.cubin sums.cu")
    text = (tmp_path / "sums.py").read_text()
    assert "('A', (None,), 'bf16', '<u2', 'bfloat16')," in text
    assert "sums(A: bf16[*], B: f32[*]) -> C: f32[*]" in text


def test_kernels_that_arrays_do_not_tell_apart_are_refused(
    tmp_path: Path, stub_compiler: None
) -> None:
    twice = cuda_kernels.table({1: cuda_kernels.added(8), 2: cuda_kernels.added(8, workspace=8)})
    with pytest.raises(ExportError, match="inputs have the same shapes with n=1 and with n=2"):
        export_table(twice, facts(twice), tmp_path / "out")
    other = cuda_kernels.added(16)
    texts = dict(other.texts)
    plan = json.dumps(json.loads(texts["launch"]) | {"arch": "sm_80"})
    other = dataclasses.replace(other, texts=(("cuda", texts["cuda"]), ("launch", plan)))
    apart = cuda_kernels.table({8: cuda_kernels.added(8), 16: other})
    with pytest.raises(ExportError, match="the kernel for n=16 is compiled otherwise than that"):
        export_table(apart, facts(apart), tmp_path / "out")
    with pytest.raises(ExportError, match="'cupy' would hide"):
        export_table(twice, facts(twice), tmp_path / "out", name="cupy")
    assert not list(tmp_path.glob("out/*"))


def products(*heights: int) -> KernelTable:
    """Kernels that the target makes for a card."""
    rows = []
    for m in heights:
        workload = explorer.load("matmul", m=m, n=256, k=64, dtype="bf16", tb=True, target="cuda")
        workload = dataclasses.replace(workload, machine=known_hardware("h200"))
        space = workload.space()
        seeds = space.seed_rows(np.random.default_rng(0))
        rows.append(((m,), workload.kernel(space.schedule(seeds[0]))))
    return KernelTable("matmul", ("m",), tuple(rows))


@pytest.mark.skipif(not HAS_NVRTC, reason="no NVRTC here")
def test_generated_kernels_compile_together(tmp_path: Path, real_compiler: None) -> None:
    table = products(1, 48, 300)
    export_table(table, facts(table), tmp_path, name="products")
    code = (tmp_path / "products.cubin").read_bytes()
    assert code[:4] == b"\x7fELF"
    for kernel in table.kernels:
        assert f"matmul_{kernel.key[:12]}".encode() in code
    source = (tmp_path / "products.cu").read_text()
    plan = table.first.text("launch")
    assert len(cuda_kernels.compiled(source, plan)) == len(code)


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="no NVIDIA device here")
def test_on_a_device(tmp_path: Path, real_compiler: None) -> None:
    additions = cuda_kernels.table({count: cuda_kernels.added(count) for count in COUNTS})
    export_table(additions, facts(additions), tmp_path, name="sums")
    script = Path(__file__).with_name("table_on_device.py")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for command in ([script, tmp_path], [tmp_path / "sums.py"]):
        done = subprocess.run(
            [sys.executable, *map(str, command)],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        print(done.stdout)
        assert done.returncode == 0, done.stdout + done.stderr
