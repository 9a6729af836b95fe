"""Compile, cache, load and launch on this machine's CPU; in a child process, as everywhere."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from explorer.errors import WorkerError
from explorer.runtime.memory import LINE, aligned_empty, read_only_copy
from explorer.runtime.once import run_once, spills_once
from ir.target import get_backend
from tests.runtime.fake_backend import EXTENT, kernel


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def run(what: str, cache: Path, threads: int = 2) -> tuple[np.ndarray, np.ndarray]:
    given = np.arange(EXTENT, dtype=np.float32)
    _, (output,) = run_once(
        kernel(what, threads), [given, np.zeros_like(given)], cache_dir=cache, timeout=20
    )
    return given, output


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_runs_on_any_number_of_threads(cache: Path, threads: int) -> None:
    given, output = run("barriers", cache, threads)
    assert np.array_equal(output, 2 * given)


def test_damaged_cache_entry_is_rebuilt(cache: Path) -> None:
    run("good", cache)
    for path in cache.rglob("*.o"):
        path.write_bytes(path.read_bytes()[:100])
    given, output = run("good", cache)
    assert np.array_equal(output, 2 * given)
    assert not list(cache.rglob("tmp*"))


def test_bad_text_is_an_error_in_words(cache: Path) -> None:
    with pytest.raises(WorkerError, match="expected instruction opcode"):
        run("bad_ir", cache)


_FMA = "declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)\n"


def _accumulate(count: int) -> str:
    """A loop that keeps `count` vectors of 512 bits alive."""
    phis = "\n".join(
        f"  %a{i} = phi <16 x float> [ zeroinitializer, %entry ], [ %b{i}, %loop ]"
        for i in range(count)
    )
    updates = "\n".join(
        f"  %b{i} = call <16 x float> @llvm.fma.v16f32(<16 x float> %x, <16 x float> %x, "
        f"<16 x float> %a{i})"
        for i in range(count)
    )
    stores = "\n".join(
        f"  %p{i} = getelementptr <16 x float>, ptr %args, i64 {i}\n"
        f"  store <16 x float> %b{i}, ptr %p{i}"
        for i in range(count)
    )
    return f"""{_FMA}
define void @doubled_body(i64 %thread, i64 %threads, ptr %args, ptr %team) {{
entry:
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %k1, %loop ]
{phis}
  %at = getelementptr <16 x float>, ptr %team, i64 %k
  %x = load <16 x float>, ptr %at
{updates}
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, %threads
  br i1 %more, label %loop, label %done
done:
{stores}
  ret void
}}
"""


def test_spills_of_the_hot_loop_are_counted(cache: Path) -> None:
    base = kernel("good")
    few = dataclasses.replace(base, texts=(("llvm", _accumulate(6)),))
    many = dataclasses.replace(base, texts=(("llvm", _accumulate(64)),))
    assert spills_once(few, cache_dir=cache) == 0
    assert spills_once(many, cache_dir=cache) > 20


def test_arrays_are_aligned_and_read_only_copies_are(cache: Path) -> None:
    for shape in ((3,), (100, 7), (1 << 20,)):
        for guard in (False, True):
            array = aligned_empty(shape, "f32", guard=guard)
            assert array.ctypes.data % LINE == 0
            assert array.shape == shape
            array[...] = 1
    copy = read_only_copy(np.ones(5, np.float32), "f32")
    with pytest.raises(ValueError, match="read-only"):
        copy[0] = 2


def test_parent_loads_no_code_generator() -> None:
    code = "import sys, explorer.measure; print('llvmlite' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd()
    )
    assert done.stdout.strip() == "False"


def test_peaks_are_measured_and_bound_what_kernels_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a worker process; whatever else this machine does."""
    from explorer.busy import ForeignLoad
    from explorer.peaks import measured_peaks

    monkeypatch.setattr(ForeignLoad, "share", lambda *_: 0.0)
    hardware = get_backend("cpu").hardware()
    found = measured_peaks("cpu", hardware, tmp_path)
    rates = {name for name in found if name.startswith("rate.")}
    assert rates >= {"rate.vectors.f32.f32", "rate.vectors.f64.f64"}
    assert ("rate.tiles.bf16.f32" in rates) == ("amx_bf16" in hardware.isa)
    assert ("rate.vectors.bf16.f32" in rates) == ("avx512_bf16" in hardware.isa)
    others = {"peak_flops.f32", "peak_bytes", "headroom", "bandwidth.memory", "nearer.memory"}
    assert set(found) >= rates | others
    assert found["nearer.memory"] >= hardware["l3_bytes"]
    if "amx_bf16" in hardware.isa:
        assert found["rate.tiles.bf16.f32"] > 2 * found["rate.vectors.f32.f32"]
    caches = [found[name] for name in ("bandwidth.l2", "bandwidth.l3") if name in found]
    assert all(speed >= found["peak_bytes"] for speed in caches)  # however busy the machine is
    lanes = 16 if "avx512f" in hardware.isa else 8 if "avx2" in hardware.isa else 4
    fastest = hardware.threads * 2 * lanes * 2 * 8e9  # two units a core at 8 GHz
    assert fastest / 1000 < found["peak_flops.f32"] < fastest
    assert 1e8 < found["peak_bytes"] < 4e12


def test_peaks_that_were_disturbed_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from explorer import peaks
    from explorer.busy import ForeignLoad
    from explorer.runtime.process import Answer

    hardware = get_backend("cpu").hardware()
    asked: list[float] = []

    class Asked:
        pid = 1

        def __init__(self, *_: object) -> None:
            pass

        def ask(self, *_: object) -> Answer:
            asked.append(1.0)
            return Answer({"peak_bytes": float(len(asked))})

        def close(self) -> None:
            pass

    monkeypatch.setattr(peaks, "Worker", Asked)
    monkeypatch.setattr(peaks, "process_server", lambda *_: None)
    for loads, expected in (((0.5, 0.5), {}), ((0.5, 0.0), 4.0), ((), 4.0)):
        left = list(loads)
        monkeypatch.setattr(ForeignLoad, "share", lambda *_, left=left: left.pop(0))
        found = peaks.measured_peaks("cpu", hardware, tmp_path)
        assert found == (expected and {"peak_bytes": expected})
    peaks.forget_peaks(hardware, tmp_path)
    peaks.forget_peaks(hardware, tmp_path)
    monkeypatch.setattr(ForeignLoad, "share", lambda *_: 0.0)
    assert peaks.measured_peaks("cpu", hardware, tmp_path) == {"peak_bytes": 5.0}


_APART = """
import ctypes, os
from explorer.runtime.cpu import pool
ready, libc = pool(), ctypes.CDLL(None)
ready.repeat(ready.idle, None, 2, 1)
allowed = sorted(os.sched_getaffinity(0))
def stays(mask):
    count = 0
    for _ in range(40):
        os.sched_setaffinity(0, {allowed[1]})
        os.sched_setaffinity(0, mask)
        ready.repeat(ready.idle, None, 2, 1)
        count += libc.sched_getcpu() == allowed[1]
    assert os.sched_getaffinity(0) == set(mask)
    return count
print(stays(allowed), stays(allowed[1:2]))
"""


@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="one processor",
)
def test_the_caller_leaves_the_processor_of_a_worker() -> None:
    """And one that is kept there stays."""
    done = subprocess.run(
        [sys.executable, "-c", _APART], capture_output=True, text=True, check=True
    )
    moved, kept = map(int, done.stdout.split())
    assert moved < 10
    assert kept == 40
