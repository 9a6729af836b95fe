"""What this CPU can do at best, measured: multiply-adds in registers, and reading from each level.

By the kernels that the backend has for it, run by all threads of the pool. A worker process calls
it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from explorer.runtime.cpu import compile_kernel, load
from explorer.runtime.memory import aligned_empty
from ir.peaks import HEADROOM, level_facts, rate_name
from ir.target import Hardware, HasPeakKernels, PeakKernel, get_backend

_SECONDS = 0.03  # of runs, of which the fastest counts
_LARGEST = 256 << 20  # more takes seconds to touch; a larger cache makes memory look faster
_CLOCKS = 2.0  # by what factor one machine's clocks, and so its peaks, differ from hour to hour
_SHARED = 2.0  # and those of levels of which other machines of the host take a part, unseen
_CACHES = Path("/sys/devices/system/cpu")


def measure_peaks(hardware: Hardware, cache_dir: Path) -> dict[str, float]:
    """Operations a second by engine and type (`ir.peaks`), bytes a second by level, reading.

    Besides `peak_flops.f32` and `peak_bytes`, the peaks that reports draw.
    """
    found = {HEADROOM: _CLOCKS}
    for one in _source().arithmetic_kernels(hardware):
        found[one.name] = _speed(one, cache_dir)
    found["peak_flops.f32"] = found[rate_name("vectors", "f32", "f32")]
    return found | _levels(hardware, cache_dir)


def _source() -> HasPeakKernels:
    backend = get_backend("cpu")
    assert isinstance(backend, HasPeakKernels)
    return backend


def _levels(hardware: Hardware, cache_dir: Path) -> dict[str, float]:
    """Bandwidths of the caches and of the memory, as far as one is larger than those nearer.

    Of the first cache none: what lies there takes no longer than the call.
    """
    threads, facts = hardware.threads, dict(hardware.facts)
    first, second = (int(facts.get(name, 0)) for name in ("l1_bytes", "l2_bytes"))
    last = max(int(facts.get("l3_bytes", 0)), _last_caches())
    own, all_caches = first + second, threads * (first + second) + last
    # What is not larger than the caches shows their bandwidth, which is no less than memory's.
    memory = _reading(hardware, _bytes_to_read(hardware) // threads, cache_dir)
    found = level_facts("memory", _SHARED * memory, all_caches)
    slowest = memory  # no level is slower than those farther: where one seems so, it was disturbed
    size = min(4 * second, last // (2 * threads))
    if size > own:
        slowest = max(slowest, _reading(hardware, size, cache_dir))
        found |= level_facts("l3", _SHARED * slowest, threads * own)
    if second // 2 > first:
        near = max(slowest, _reading(hardware, second // 2, cache_dir))
        found |= level_facts("l2", near, threads * first)
    return found | {"peak_bytes": memory}


def _reading(hardware: Hardware, share: int, cache_dir: Path) -> float:
    """Bytes a second of all threads, each of which reads so many again and again."""
    return _speed(_source().reading_kernel(hardware, share), cache_dir)


def _last_caches() -> int:
    """Bytes of all last caches of this machine together: several, where sockets or chiplets have
    one each; 0 where the system does not tell."""
    found: dict[str, int] = {}
    for index in _CACHES.glob("cpu[0-9]*/cache/index3"):
        try:
            size = (index / "size").read_text().strip().rstrip("K")
            found[(index / "shared_cpu_list").read_text().strip()] = int(size) << 10
        except (OSError, ValueError):
            continue
    return sum(found.values())


def _bytes_to_read(hardware: Hardware) -> int:
    """Twice the last cache, as far as that is a small part of the memory."""
    cached = int(dict(hardware.facts).get("l3_bytes", 0))
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(max(2 * cached, 64 << 20), there // 8, _LARGEST)


def _speed(one: PeakKernel, cache_dir: Path) -> float:
    """Work a second of the fastest of some runs."""
    source, goal = (aligned_empty(argument.shape, "f32") for argument in one.kernel.arguments)
    source[...] = 0.0
    loaded = load(compile_kernel(one.kernel, cache_dir))
    launch = loaded.bind([source, goal])
    end = time.perf_counter() + _SECONDS
    times = [launch(), launch()]
    while time.perf_counter() < end:
        times.append(launch())
    loaded.close()
    return one.work / min(times)
