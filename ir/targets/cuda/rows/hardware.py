"""Facts of the GPU: asked of the driver through its C interface, or known for a named card."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

from ir.errors import MissingTarget, UsageError
from ir.peaks import HEADROOM, level_facts, rate_name
from ir.target import Hardware

_ATTRIBUTES = {
    "sms": 16, "shared_bytes": 97, "l2_bytes": 38, "clock_khz": 13, "memory_clock_khz": 36,
    "memory_bus_bits": 37, "major": 75, "minor": 76, "registers": 82,
}  # fmt: skip
_OLDEST_DRIVER = 12000
_FLOPS_PER_SM_CLOCK = 8192  # fp8 on sm_90, the fastest type there is: no kernel may beat it
# Operations of one SM in one clock, by architecture and type of the factors, from NVIDIA's white
# papers (dense; tensor cores where they have the type). Everything but products counts as f32.
_RATES: dict[tuple[int, int], dict[str, int]] = {
    (8, 0): {"i8": 4096, "u8": 4096, "bf16": 2048, "f16": 2048, "tf32": 1024, "f32": 128,
             "f64": 128},
    (8, 6): {"i8": 2048, "u8": 2048, "bf16": 1024, "f16": 1024, "tf32": 512, "f32": 256, "f64": 4},
    (8, 9): {"e4m3": 2048, "e5m2": 2048, "i8": 2048, "u8": 2048, "bf16": 1024, "f16": 1024,
             "tf32": 512, "f32": 256, "f64": 4},
    (9, 0): {"e4m3": 8192, "e5m2": 8192, "i8": 8192, "u8": 8192, "bf16": 4096, "f16": 4096,
             "tf32": 2048, "f32": 256, "f64": 256},
}  # fmt: skip
# The same by engine, type of the factors and of the sum. What an architecture's cards differ in
# (sums in f32 at half the rate on some) is told at the higher rate.
_TENSOR: dict[tuple[int, int], dict[tuple[str, str], int]] = {
    (8, 0): {("f16", "f16"): 2048, ("f16", "f32"): 2048, ("bf16", "f32"): 2048,
             ("tf32", "f32"): 1024, ("i8", "i32"): 4096, ("u8", "i32"): 4096, ("f64", "f64"): 128},
    (8, 6): {("f16", "f16"): 1024, ("f16", "f32"): 1024, ("bf16", "f32"): 1024,
             ("tf32", "f32"): 512, ("i8", "i32"): 2048, ("u8", "i32"): 2048},
    (8, 9): {("f16", "f16"): 1024, ("f16", "f32"): 1024, ("bf16", "f32"): 1024,
             ("tf32", "f32"): 512, ("e4m3", "f16"): 2048, ("e4m3", "f32"): 2048,
             ("e5m2", "f16"): 2048, ("e5m2", "f32"): 2048,
             ("i8", "i32"): 2048, ("u8", "i32"): 2048},
    (9, 0): {("f16", "f16"): 4096, ("f16", "f32"): 4096, ("bf16", "f32"): 4096,
             ("tf32", "f32"): 2048, ("e4m3", "f16"): 8192, ("e4m3", "f32"): 8192,
             ("e5m2", "f16"): 8192, ("e5m2", "f32"): 8192,
             ("i8", "i32"): 8192, ("u8", "i32"): 8192, ("f64", "f64"): 256},
}  # fmt: skip
_CORES: dict[tuple[int, int], dict[tuple[str, str], int]] = {  # bytes by dot products of four
    (8, 0): {("f32", "f32"): 128, ("f16", "f16"): 512, ("bf16", "f32"): 256, ("f64", "f64"): 64,
             ("i32", "i32"): 128, ("i8", "i32"): 512, ("u8", "i32"): 512},
    (8, 6): {("f32", "f32"): 256, ("f16", "f16"): 256, ("bf16", "f32"): 256, ("f64", "f64"): 4,
             ("i32", "i32"): 128, ("i8", "i32"): 512, ("u8", "i32"): 512},
    (9, 0): {("f32", "f32"): 256, ("f16", "f16"): 512, ("bf16", "f32"): 512, ("f64", "f64"): 128,
             ("i32", "i32"): 128, ("i8", "i32"): 512, ("u8", "i32"): 512},
}  # fmt: skip
_CORES[8, 9] = _CORES[8, 6]
_L2_BYTES = 64  # that the L2 cache gives one SM in a clock
_BOOST = {(8, 6): 1.25, (8, 9): 1.25}  # cards that run beyond the clock that their driver tells
KNOWN = {
    "h200": ("NVIDIA H200", 132, 232448, 60 << 20, 1980000, 9, 0, 141 << 30),
    "h100": ("NVIDIA H100 80GB HBM3", 132, 232448, 50 << 20, 1980000, 9, 0, 80 << 30),
    "a100": ("NVIDIA A100-SXM4-80GB", 108, 166912, 40 << 20, 1410000, 8, 0, 80 << 30),
    "rtx4090": ("NVIDIA GeForce RTX 4090", 128, 101376, 72 << 20, 2520000, 8, 9, 24 << 30),
}


def known_hardware(name: str) -> Hardware:
    """The record of a card by name ("h200"), for spaces and text where there is none."""
    if name not in KNOWN:
        raise UsageError(f"unknown GPU {name!r}: known are {', '.join(KNOWN)}")
    label, sms, shared, l2, clock, major, minor, memory = KNOWN[name]
    facts = {
        "sms": sms, "shared_bytes": shared, "l2_bytes": l2, "clock_khz": clock, "major": major,
        "minor": minor, "registers": 65536, "memory_bytes": memory,
    }  # fmt: skip
    return _record(label, facts)


def _record(label: str, facts: dict[str, int]) -> Hardware:
    peak = facts["sms"] * facts["clock_khz"] * 1000 * _FLOPS_PER_SM_CLOCK
    arch = f"sm_{facts['major']}{facts['minor']}" + ("a" if facts["major"] >= 9 else "")
    pairs: list[tuple[str, int | float | str]] = [*sorted(facts.items()), ("peak_flops", peak)]
    return Hardware("cuda", label, (arch,), 1, tuple(pairs))


def stated_peaks(hardware: Hardware) -> dict[str, float]:
    """Operations a second by type at the highest clock, bytes a second; without what is unknown."""
    facts = dict(hardware.facts)
    rates = _RATES.get((int(facts.get("major", 0)), int(facts.get("minor", 0))), {})
    clocks = float(facts.get("sms", 0)) * float(facts.get("clock_khz", 0)) * 1e3
    found = {f"peak_flops.{dtype}": clocks * rate for dtype, rate in rates.items()}
    memory = float(facts.get("memory_clock_khz", 0)) * 1e3 * float(facts.get("memory_bus_bits", 0))
    found |= {"peak_bytes": 2 * memory / 8} if memory else {}  # two transfers a clock
    return found | (_limits(facts, clocks, found.get("peak_bytes", 0.0)) if rates else {})


def _limits(
    facts: Mapping[str, int | float | str], clocks: float, memory: float
) -> dict[str, float]:
    """What no kernel can be faster than, of a known architecture: by engine and type, by level.

    Between two launches the L2 cache keeps what it can hold, and nothing nearer keeps anything.
    """
    arch = int(facts.get("major", 0)), int(facts.get("minor", 0))
    found = {HEADROOM: _BOOST.get(arch, 1.0)}
    for engine, table in (("tensor", _TENSOR[arch]), ("cores", _CORES[arch])):
        for (factors, sums), rate in table.items():
            found[rate_name(engine, factors, sums)] = clocks * rate
    found |= level_facts("l2", clocks * _L2_BYTES, 0.0)
    return found | (
        level_facts("memory", memory, float(facts.get("l2_bytes", 0))) if memory else {}
    )


def device_hardware(device: int = 0) -> Hardware:
    """Facts of a CUDA device; MissingTarget where there is no driver, no device or an old one."""
    driver = _driver()
    version = ctypes.c_int()
    _check(driver, driver.cuDriverGetVersion(ctypes.byref(version)), "cuDriverGetVersion")
    if version.value < _OLDEST_DRIVER:
        have = f"{version.value // 1000}.{version.value % 1000 // 10}"
        raise MissingTarget(f"the NVIDIA driver supports CUDA {have}; 12.0 is needed: update it")
    handle = ctypes.c_int()
    _check(driver, driver.cuDeviceGet(ctypes.byref(handle), device), "cuDeviceGet")
    name = ctypes.create_string_buffer(128)
    _check(driver, driver.cuDeviceGetName(name, 128, handle), "cuDeviceGetName")
    memory = ctypes.c_size_t()
    _check(driver, driver.cuDeviceTotalMem_v2(ctypes.byref(memory), handle), "cuDeviceTotalMem")
    facts = {"memory_bytes": memory.value}
    for key, number in _ATTRIBUTES.items():
        value = ctypes.c_int()
        result = driver.cuDeviceGetAttribute(ctypes.byref(value), number, handle)
        _check(driver, result, "cuDeviceGetAttribute")
        facts[key] = value.value
    return _record(name.value.decode(), facts)


def device_names() -> tuple[str, ...]:
    """What each visible device is called; MissingTarget without a driver."""
    driver = _driver()
    count = ctypes.c_int()
    _check(driver, driver.cuDeviceGetCount(ctypes.byref(count)), "cuDeviceGetCount")
    return tuple(_name(driver, number) for number in range(count.value))


def _name(driver: ctypes.CDLL, device: int) -> str:
    handle = ctypes.c_int()
    _check(driver, driver.cuDeviceGet(ctypes.byref(handle), device), "cuDeviceGet")
    name = ctypes.create_string_buffer(128)
    _check(driver, driver.cuDeviceGetName(name, 128, handle), "cuDeviceGetName")
    return name.value.decode()


def _driver() -> ctypes.CDLL:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise MissingTarget(
            "no NVIDIA driver (libcuda.so.1) on this machine: use --target cpu, or a machine "
            "with a GPU"
        ) from None
    _check(driver, driver.cuInit(0), "cuInit")
    return driver


def _check(driver: ctypes.CDLL, result: int, call: str) -> None:
    if result:
        text = ctypes.c_char_p()
        driver.cuGetErrorString(result, ctypes.byref(text))
        words = (text.value or b"unknown error").decode()
        raise MissingTarget(f"no usable NVIDIA GPU: {call} says {words!r}; see nvidia-smi")
