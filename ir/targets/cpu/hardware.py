"""Facts of the host's CPU, read from the operating system once. No code generation here."""

from __future__ import annotations

import os
import platform
from functools import cache, lru_cache
from pathlib import Path

from ir.errors import MissingTarget, UsageError
from ir.target import Hardware

_FLAGS = (
    "avx2",
    "fma",
    "avx512f",
    "avx512_bf16",
    "avx512_vnni",
    "amx_tile",
    "amx_bf16",
    "amx_int8",
)


@lru_cache(maxsize=1)
def _cpuinfo() -> dict[str, str]:
    """The first processor's fields of /proc/cpuinfo; empty where there is none."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return {}
    fields = {}
    for line in text.split("\n\n")[0].splitlines():
        name, _, value = line.partition(":")
        fields[name.strip()] = value.strip()
    return fields


@cache
def _cache_bytes(level: int, default: int) -> int:
    for index in range(5):
        folder = Path(f"/sys/devices/system/cpu/cpu0/cache/index{index}")
        try:
            if (folder / "level").read_text().strip() != str(level):
                continue
            if (folder / "type").read_text().strip() == "Instruction":
                continue
            return int((folder / "size").read_text().strip().rstrip("K")) * 1024
        except (OSError, ValueError):
            continue
    return default


def _isa(flags: set[str]) -> tuple[str, ...]:
    found = [flag for flag in _FLAGS if flag in flags]
    if "avx2" in found and not {"fma", "f16c"} <= flags:
        found.remove("avx2")
    if not {"avx512dq", "avx512bw", "avx512vl"} <= flags:  # what generated code takes for granted
        found = [flag for flag in found if not flag.startswith("avx512")]
    return tuple(flag for flag in found if flag != "fma")


def available_threads() -> int:
    """CPUs that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def host_hardware(threads: int | None = None) -> Hardware:
    """This host; raises MissingTarget where it is not 64-bit x86, UsageError for threads."""
    if platform.machine() not in ("x86_64", "AMD64"):
        raise MissingTarget(
            f"target cpu: generates x86-64 code, this machine is {platform.machine()}; "
            "run on an x86-64 machine"
        )
    count = available_threads() if threads is None else threads
    if not 1 <= count <= 64:
        raise UsageError(f"threads={count}: must be between 1 and 64")
    info = _cpuinfo()
    isa = _isa(set(info.get("flags", "").split()))
    name = info.get("model name", platform.processor() or "x86-64")
    identity = "-".join(info.get(k, "?") for k in ("vendor_id", "cpu family", "model"))
    facts = (
        ("l1_bytes", _cache_bytes(1, 32 << 10)),
        ("l2_bytes", _cache_bytes(2, 512 << 10)),
        ("l3_bytes", _cache_bytes(3, 8 << 20)),
        ("model", name),
    )
    return Hardware("cpu", identity, isa, count, facts)
