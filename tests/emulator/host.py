"""The host text of the prelude: the wrappers of device.py and families.py, for g++ and no GPU.

`host_prelude(text)` emits what one kernel uses, `runtime_text()` the machine behind it, which is
compiled once. Both texts together run a kernel's unchanged text on fibers.
"""

from __future__ import annotations

import re
from functools import cache

from ir.targets.cuda.prelude import narrow, sections, wrapper_names
from ir.targets.cuda.prelude.families import WGMMA_KINDS
from tests.emulator import (
    host_grid,
    host_machine,
    host_matrix,
    host_memory,
    host_races,
    host_schedule,
    host_signals,
    host_tensor,
    host_text,
    host_types,
)

_TMA_LOAD = re.compile(r"tw_tma_load_([1-5])d(_multicast)?(_hint)?$")
_TMA_STORE = re.compile(r"tw_tma_(store|add)_([1-5])d$")
_TMA_PREFETCH = re.compile(r"tw_tma_prefetch_([1-5])d$")
_WGMMA = re.compile(r"tw_wgmma_m64n(\d+)k(\d+)_(\w+?)_(ss|rs)(_ta)?(_tb)?$")
_MMA = re.compile(r"tw_mma_m16n8k(\d+)_(\w+)$")
_DEVICE_ONLY = re.compile(r"\basm\b|\b__|\batomic|\*\)\w")
_KINDS = (
    "bf16", "f16", "tf32", "e4m3", "e5m2", "e4m3e5m2", "e5m2e4m3", "i8", "u8", "u8i8", "i8u8",
)  # fmt: skip
"""In the order of the runtime's `Kind`."""


@cache
def host_sections() -> dict[str, str]:
    """Wrapper name -> host text."""
    found: dict[str, str] = {}
    for part in [*host_text.TEXT.split("//@ ")[1:], *narrow.TEXT.split("//@ ")[1:]]:
        names, _, text = part.partition("\n")
        for name in names.split():
            found[name] = text.replace("NAME", name)
    return found


def host_prelude(text: str) -> str:
    """Host text of the types and of every wrapper that `text` needs.

    ValueError names a wrapper that has none.
    """
    parts = [host_types.TEXT]
    for name in wrapper_names(text):
        part = host_wrapper(name)
        if part is None:
            raise ValueError(f"{name} has no host text")
        parts.append(part)
    return "".join(parts)


def host_wrapper(name: str) -> str | None:
    """The host text of one wrapper: its own, its family's, or the device's if that is plain C++."""
    found = host_sections().get(name) or host_family_text(name)
    if found is None and not _DEVICE_ONLY.search(sections().get(name, "asm")):
        found = sections()[name]
    return found


def runtime_text() -> str:
    """C++ of the machine: no kernel's text, so that one object serves them all."""
    parts = (
        host_machine,
        host_races,
        host_memory,
        host_tensor,
        host_matrix,
        host_schedule,
        host_grid,
        host_signals,
    )
    return "".join(part.TEXT for part in parts)


def host_family_text(name: str) -> str | None:
    """The host text of a generated wrapper; None if `name` is of no family."""
    if match := _TMA_LOAD.match(name):
        return _tma_load(name, int(match[1]), bool(match[2]), bool(match[3]))
    if match := _TMA_STORE.match(name):
        return _tma_store(name, match[1] == "add", int(match[2]))
    if match := _TMA_PREFETCH.match(name):
        return _tma_prefetch(name, int(match[1]))
    if match := _WGMMA.match(name):
        turns = 2 * bool(match[5]) + 4 * bool(match[6])
        return _wgmma(name, int(match[1]), int(match[2]), match[3], match[4] == "ss", turns)
    if match := _MMA.match(name):
        return _mma(name, int(match[1]), match[2])
    return None


def _coordinates(rank: int) -> tuple[str, str]:
    """Parameters `i32 c0, ...` and the array that holds them."""
    names = [f"c{i}" for i in range(rank)]
    return ", ".join(f"i32 {c}" for c in names), f"const i32 at[] = {{{', '.join(names)}}};"


def _tma_load(name: str, rank: int, multicast: bool, hint: bool) -> str:
    parameters, array = _coordinates(rank)
    extra = f"{'u32 mask, ' * multicast}{'u64, ' * hint}"
    mask = "mask" if multicast else "0"
    check = f'  if (!mask) rt_complain("{name}: empty mask");\n' if multicast else ""
    return (
        f"TW_INLINE void {name}(u32 destination, const tw_tensor_map* map, u32 barrier, "
        f"{extra}{parameters}) {{\n  {array}\n{check}"
        f'  rt_tma_load("{name}", destination, map, barrier, {mask}, {rank}, at);\n}}\n'
    )


def _tma_store(name: str, add: bool, rank: int) -> str:
    parameters, array = _coordinates(rank)
    return (
        f"TW_INLINE void {name}(const tw_tensor_map* map, u32 source, {parameters}) {{\n"
        f'  {array}\n  rt_tma_store("{name}", map, source, {rank}, at, {int(add)});\n}}\n'
    )


def _tma_prefetch(name: str, rank: int) -> str:
    parameters, _ = _coordinates(rank)
    return (
        f"TW_INLINE void {name}(const tw_tensor_map* map, {parameters}) {{\n"
        f"  rt_prefetch_map(map);\n}}\n"
    )


def _wgmma(name: str, n: int, k: int, dtype: str, shared: bool, turns: int) -> str | None:
    kind = WGMMA_KINDS.get(dtype)
    if kind is None or kind.k != k:
        return None
    scalar = "f32" if kind.accumulator == "f32" else "i32"
    a, place = ("u64 a", "a, nullptr") if shared else ("const u32 (&a)[4]", "0, a")
    return (
        f"TW_INLINE void {name}({scalar} (&d)[{n // 2}], {a}, u64 b, i32 keep) {{\n"
        f'  rt_wgmma("{name}", {_KINDS.index(dtype)}, {n}, d, {place}, b, '
        f"{int(shared) + turns}, keep);\n}}\n"
    )


def _mma(name: str, k: int, dtype: str) -> str | None:
    kind = WGMMA_KINDS.get(dtype)
    if kind is None or kind.k != k:
        return None
    scalar = "f32" if kind.accumulator == "f32" else "i32"
    return (
        f"TW_INLINE void {name}({scalar} (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {{\n"
        f'  rt_mma("{name}", {_KINDS.index(dtype)}, d, a, b);\n}}\n'
    )
