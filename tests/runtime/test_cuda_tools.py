"""Parts of the CUDA runtime beside the device: notes, caches, tensor maps, verdicts, the verbs."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer import cli
from explorer.check import poison
from explorer.runtime import cuda, nvrtc
from explorer.runtime.base import CompileError, get_runtime
from explorer.runtime.cuda import CudaRuntime
from explorer.runtime.tensor_map import ALIGNMENT, SIZE, encode
from ir.dtypes import WHOLE_BYTES, numpy_dtype
from ir.errors import MissingTarget
from tests.judging import exactly
from tests.runtime.fake_cuda_backend import kernel

# -- compiling


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """NVRTC that makes some bytes of any source, and keeps what it was given."""
    seen: list[str] = []

    def compile_text(source: str, arch: str, options: object = ()) -> tuple[bytes, Any]:
        seen.append(source)
        return f"code of {arch}".encode(), nvrtc.Resources(40, 16, 8, 4, ("a reason",))

    monkeypatch.setattr(nvrtc, "compile_text", compile_text)
    monkeypatch.setattr(nvrtc, "version", lambda: "13.0")
    return seen


def files(folder: Path, suffix: str) -> Path:
    (found,) = folder.rglob(f"*{suffix}")
    return found


def test_what_the_compiler_says_becomes_notes(tmp_path: Path, compiler: list[str]) -> None:
    binary = CudaRuntime().compile(kernel("good"), tmp_path)
    notes = dict(binary.notes)
    assert (notes["registers"], notes["spills"], notes["serialised"]) == (40, 12, "a reason")
    assert json.loads(binary.plan)["kernels"][0]["name"] == binary.entry == "doubled"
    assert [argument.name for argument in binary.operands] == ["A", "O"]


@pytest.mark.parametrize("suffix", [".cubin", ".json"])
@pytest.mark.parametrize("damage", ["cut", "gone", "changed"])
def test_either_file_is_made_again(
    suffix: str, damage: str, tmp_path: Path, compiler: list[str]
) -> None:
    first = CudaRuntime().compile(kernel("good"), tmp_path)
    path = files(tmp_path, suffix)
    whole = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(whole[:-1] if damage == "cut" else whole[:-1] + b"?")
    assert CudaRuntime().compile(kernel("good"), tmp_path) == first
    assert path.read_bytes() == whole
    assert len(compiler) == 2


def test_other_compilers_have_files_of_their_own(
    tmp_path: Path, compiler: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("13.0", "13.1"):
        monkeypatch.setattr(nvrtc, "version", lambda found=version: found)
        CudaRuntime().compile(kernel("good"), tmp_path)
        CudaRuntime().compile(kernel("good", 1), tmp_path)
    assert len(compiler) == len(list(tmp_path.rglob("*.cubin"))) == 4


def test_a_kernel_that_does_not_compile_leaves_no_file(tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    with pytest.raises(CompileError, match=r"kernel\.cu") as found:
        CudaRuntime().compile(kernel("no_text"), tmp_path)
    assert "\n" not in str(found.value)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_reasons_are_told_once() -> None:
    line = "wgmma.mma_async instructions are serialized due to {} in the function 'k'\n"
    found = nvrtc.resources_of(line.format("one") * 2 + line.format("another") + "Used 9 registers")
    assert found.serialised == ("one", "another")
    assert (found.registers, found.stack) == (9, 0)
    assert nvrtc.resources_of("") == nvrtc.Resources()


@pytest.mark.parametrize("answer", [RuntimeError("libnvrtc.so.13 is not there"), (7, 0, 0)])
def test_a_library_that_does_not_answer_is_one_line(
    answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Bindings:
        @staticmethod
        def nvrtcVersion() -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

    monkeypatch.setattr(nvrtc, "bindings", lambda: Bindings)
    with pytest.raises(MissingTarget, match=r"NVRTC does not .*pip install") as found:
        nvrtc.version()
    assert "\n" not in str(found.value)


# -- tensor maps


class Driver:
    """cuTensorMapEncodeTiled that fills the map and keeps its arguments."""

    def __init__(self, result: int = 0) -> None:
        self.result = result
        self.seen: list[Any] = []

    def cuTensorMapEncodeTiled(self, target: Any, *arguments: Any) -> int:
        address = ctypes.cast(target, ctypes.c_void_p).value or 0
        ctypes.memset(address, 0x5A, SIZE)
        plain = [list(a) if isinstance(a, ctypes.Array) else a for a in arguments]
        self.seen = [address, *(a.value if hasattr(a, "value") else a for a in plain)]
        return self.result


MAP: dict[str, Any] = {
    "kind": "map", "argument": "A", "offset": 0, "dtype": "bf16", "dims": [100, 7, 3],
    "strides": [208, 1456], "box": [64, 4, 1], "swizzle": 128, "l2": 256,
}  # fmt: skip


def test_a_tensor_map_is_what_the_plan_says() -> None:
    driver = Driver()
    block = encode(driver, 4096, MAP)  # type: ignore[arg-type]
    address, kind, rank, pointer, dims, strides, box, steps, *modes = driver.seen
    assert address == ctypes.addressof(block)
    assert address % ALIGNMENT == 0
    assert bytes(block) == b"\x5a" * SIZE
    assert (kind, rank, pointer) == (9, 3, 4096)
    assert (dims, strides, box, steps) == ([100, 7, 3], [208, 1456], [64, 4, 1], [1, 1, 1])
    assert modes == [0, 3, 3, 0]  # no interleaving, 128-byte swizzle, 256-byte lines, zeros outside


def test_a_map_of_a_vector_has_no_strides() -> None:
    driver = Driver()
    encode(driver, 64, MAP | {"dims": [100], "strides": [], "box": [64]})  # type: ignore[arg-type]
    assert driver.seen[2] == 1


def test_a_map_that_the_driver_refuses_is_named() -> None:
    with pytest.raises(RuntimeError, match="tensor map of A: CUDA error 1"):
        encode(Driver(1), 4096, MAP)  # type: ignore[arg-type]


# -- verdicts: numpy stands in for CuPy


class Stand:
    """numpy by CuPy's names."""

    asnumpy = staticmethod(np.asarray)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> CudaRuntime:
    monkeypatch.setattr(cuda, "cupy", Stand)
    return CudaRuntime()


@pytest.mark.parametrize("dtype", sorted(WHOLE_BYTES))
def test_poison_is_the_hosts(dtype: str, runtime: CudaRuntime) -> None:
    here, there = (np.zeros((3, 5), numpy_dtype(dtype)) for _ in range(2))
    poison(here, dtype)
    runtime.poison(there, dtype)
    assert here.tobytes() == there.tobytes()
    verdict = runtime.judge(exactly(np.zeros((3, 5)), dtype), there)
    assert "15 never written" in verdict.detail


# -- found by name, told by the verbs


def test_the_runtime_is_found_by_its_targets_name() -> None:
    assert get_runtime("cuda").name == "cuda"
    with pytest.raises(MissingTarget, match="known are cpu, cuda"):
        get_runtime("metal")


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(name: str, *_: object, **__: object) -> None:
        raise OSError(name)

    monkeypatch.setenv("TILEWRIGHT_RECORDS", str(tmp_path / "records.db"))
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("ir.targets.cuda.rows.hardware.ctypes.CDLL", missing)


def test_targets_lists_what_is_missing(no_gpu: None, capsys: pytest.CaptureFixture[str]) -> None:
    from explorer.cli import targets

    assert "no NVIDIA driver" in str(targets._facts("cuda")["missing"])


def test_doctor_says_why_nothing_runs_on_a_gpu(no_gpu: None) -> None:
    from explorer.cli import doctor

    found = doctor._cuda()
    assert (found.what, found.verdict) == ("cuda", "note")
    assert "no NVIDIA driver" in found.advice
    assert "\n" not in found.advice


ANY = ("--schedule", '{"target":"cuda","values":{}}')


@pytest.mark.parametrize(
    ("verb", "more"), [("tune", ()), ("space", ()), ("run", ANY), ("export", ANY)]
)
def test_no_gpu_is_one_line_and_the_code_of_a_missing_target(
    verb: str,
    more: tuple[str, ...],
    no_gpu: None,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    words = ["matmul", "--target", "cuda", "m=64", "n=64", "k=64", "dtype=bf16"]
    assert cli.invoke([verb, *words, *more]) == cli.EXIT_TARGET == 6
    said = capsys.readouterr()
    assert said.err.startswith("tilewright: no NVIDIA driver")
    assert said.err.count("\n") == 1
    assert not (tmp_path / "records.db").exists()
