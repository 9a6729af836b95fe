"""The CUDA runtime where there is no GPU: compiling, caching, words for what is missing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from explorer import cli
from explorer.runtime import nvrtc
from explorer.runtime.cache import cached_file, read_cached
from explorer.runtime.cuda import CudaRuntime, cupy
from ir.errors import MissingTarget
from tests.targets.cuda_cases import BACKEND, HARDWARE, built, drawn

LOG = """
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized \
due to insufficient register resources for the wgmma pipeline in the function 'matmul'
ptxas info    : Compiling entry function 'matmul' for 'sm_90a'
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 168 registers, used 16 barriers
ptxas info    : Compiling entry function 'merge' for 'sm_90a'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers
"""


def test_what_the_log_says() -> None:
    found = nvrtc.resources_of(LOG)
    assert (found.registers, found.stack, found.spill_stores, found.spill_loads) == (168, 16, 8, 12)
    assert found.serialised
    assert "register" in found.serialised[0]
    assert nvrtc.Resources.from_json(found.to_json()) == found


def test_a_cubin_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    program = built("softmax", {"m": 64, "n": 64})
    kernel = BACKEND.lower(program, drawn(program, 0, 1, 0)[0], HARDWARE)
    first = CudaRuntime().compile(kernel, tmp_path)
    assert dict(first.notes)["spills"] == 0
    assert json.loads(first.plan)["kernels"][0]["name"] == "softmax"

    def refuse(*_: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(nvrtc, "compile_text", refuse)
    assert CudaRuntime().compile(kernel, tmp_path) == first


def test_a_damaged_file_is_made_again(tmp_path: Path) -> None:
    path = cached_file(tmp_path, "key", ".cubin", lambda: b"code")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(OSError, match="damaged"):
        read_cached(path)
    assert read_cached(cached_file(tmp_path, "key", ".cubin", lambda: b"fresh")) == b"fresh"


def test_no_bindings_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(MissingTarget, match=r"tilewright\[cuda13\]") as found:
        nvrtc.version()
    assert "\n" not in str(found.value)


def test_no_cupy_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    cupy.cache_clear()
    with pytest.raises(MissingTarget, match="no CuPy") as found:
        CudaRuntime().prepare()
    cupy.cache_clear()
    assert "\n" not in str(found.value)


def _no_driver() -> bool:
    try:
        BACKEND.hardware()
    except MissingTarget:
        return True
    return False


@pytest.mark.skipif(not _no_driver(), reason="there is a GPU")
@pytest.mark.parametrize("verb", ["tune", "space"])
def test_verbs_without_a_gpu_say_so_in_one_line(
    verb: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_RECORDS", str(tmp_path / "records.db"))
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    words = [verb, "matmul", "--target", "cuda", "m=64", "n=64", "k=64", "dtype=bf16"]
    code = cli.invoke(words)
    error = capsys.readouterr().err.strip()
    assert code == cli.EXIT_TARGET
    assert "NVIDIA" in error
    assert "\n" not in error
