"""What this CPU can do at best, measured: multiply-adds in registers, and reading from memory.

Two kernels that do nothing else, run by all threads of the pool. A worker process calls it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np

from explorer.runtime.cpu import compile_kernel, load
from explorer.runtime.memory import aligned_empty
from ir.kernel import Argument, Kernel
from ir.target import Hardware

_CHAINS = 12  # independent sums: more than latency times ports, fewer than AVX2's registers
_ROUNDS = 400_000  # of a multiply-add in each chain: some milliseconds
_SECONDS = 0.15  # of runs, of which the fastest counts
_LARGEST = 256 << 20  # more takes seconds to touch; a larger cache makes memory look faster

_HEAD = """\
declare VECTOR @llvm.fma.NAME(VECTOR, VECTOR, VECTOR)
define void @peak_body(i64 %thread, i64 %threads, ptr %args, ptr %team) {
entry:
  %o.at = getelementptr ptr, ptr %args, i64 1
  %o = load ptr, ptr %o.at
  %a = load ptr, ptr %args
  %skip = mul i64 %thread, SHARE
  %mine = getelementptr float, ptr %a, i64 %skip
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %n1, %loop ]
"""
_TAIL = """\
  %n1 = add i64 %n, STEP
  %on = icmp ult i64 %n1, END
  br i1 %on, label %loop, label %done
done:
SUMS
  %place = mul i64 %thread, LANES
  %o.mine = getelementptr float, ptr %o, i64 %place
  store VECTOR %total, ptr %o.mine, align 4
  ret void
}
"""


def measure_peaks(hardware: Hardware, cache_dir: Path) -> dict[str, float]:
    """`peak_flops.f32` (operations a second) and `peak_bytes` (bytes a second, reading)."""
    lanes = 16 if "avx512f" in hardware.isa else 8 if "avx2" in hardware.isa else 4
    threads = hardware.threads
    flops = 2 * threads * lanes * _CHAINS * _ROUNDS
    share = _bytes_to_read(hardware) // (4 * threads * lanes * _CHAINS) * lanes * _CHAINS
    arithmetic = _fastest(_text(_chains(), lanes, 0, 1, _ROUNDS), lanes, threads, 1, cache_dir)
    step = lanes * _CHAINS
    reading = _text(_reads(lanes), lanes, share, step, share)
    memory = _fastest(reading, lanes, threads, share * threads, cache_dir)
    return {"peak_flops.f32": flops / arithmetic, "peak_bytes": 4 * share * threads / memory}


def _bytes_to_read(hardware: Hardware) -> int:
    """Twice the last cache, as far as that is a small part of the memory."""
    cached = int(dict(hardware.facts).get("l3_bytes", 0))
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(max(2 * cached, 64 << 20), there // 8, _LARGEST)


def _fastest(text: str, lanes: int, threads: int, elements: int, cache_dir: Path) -> float:
    """Seconds of the fastest of some runs."""
    arguments = (
        Argument("A", (elements,), "f32", "input"),
        Argument("O", (lanes * threads,), "f32", "output"),
    )
    kernel = Kernel("peak", "cpu", arguments, (("llvm", text),), "peak_body", threads)
    source = aligned_empty((elements,), "f32")
    source[...] = 0.0
    loaded = load(compile_kernel(kernel, cache_dir))
    launch = loaded.bind([source, np.empty(lanes * threads, np.float32)])
    end = time.perf_counter() + _SECONDS
    times = [launch(), launch()]
    while time.perf_counter() < end:
        times.append(launch())
    loaded.close()
    return min(times)


def _text(body: str, lanes: int, share: int, step: int, end: int) -> str:
    """A loop around `body`, which leaves its sums in %b0, %b1 and so on."""
    vector = f"<{lanes} x float>"
    words = {"VECTOR": vector, "NAME": f"v{lanes}f32", "LANES": str(lanes), "SHARE": str(share)}
    words |= {"STEP": str(step), "END": str(end)}
    text = _HEAD + body + _TAIL.replace("SUMS", _sums())
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    return text


def _started() -> str:
    lines = (
        f"  %a{i} = phi VECTOR [ zeroinitializer, %entry ], [ %b{i}, %loop ]\n" for i in _all()
    )
    return "".join(lines)


def _chains() -> str:
    """Every chain multiplies a constant and adds it."""
    half = "VECTOR splat (float 5.0e-1)"
    lines = (
        f"  %b{i} = call VECTOR @llvm.fma.NAME({half}, {half}, VECTOR %a{i})\n" for i in _all()
    )
    return _started() + "".join(lines)


def _reads(lanes: int) -> str:
    """Every chain adds one vector of this thread's share."""
    lines = (
        f"  %i{i} = add i64 %n, {i * lanes}\n"
        f"  %p{i} = getelementptr float, ptr %mine, i64 %i{i}\n"
        f"  %v{i} = load VECTOR, ptr %p{i}, align 4\n"
        f"  %b{i} = fadd VECTOR %a{i}, %v{i}\n"
        for i in _all()
    )
    return _started() + "".join(lines)


def _sums() -> str:
    names = ["%b0", *(f"%s{i}" for i in range(1, _CHAINS - 1)), "%total"]
    lines = (f"  {names[i]} = fadd VECTOR {names[i - 1]}, %b{i}" for i in range(1, _CHAINS))
    return "\n".join(lines)


def _all() -> range:
    return range(_CHAINS)
