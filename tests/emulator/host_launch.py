"""One kernel launch on the host machine: parameters, tensor-map records, the runtime's C structure.

Knows the plan's JSON and the runtime's memory layouts; compiles nothing.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ir.layout.widths import bits
from ir.targets.cuda.launch import Parameter, map_faults

Plan = dict[str, Any]
REPORT_BYTES = 1 << 16
REGISTERS = 65536
MAP_MAGIC = 0x74776D70
_ADDED = {"f16": "h", "bf16": "b", "f32": "f", "i32": "i", "i64": "i", "u32": "i"}


@dataclass(frozen=True, slots=True)
class Range:
    """The memory of one argument."""

    name: str
    array: NDArray[Any]

    @property
    def base(self) -> int:
        return int(self.array.ctypes.data)


class _Launch(ctypes.Structure):
    """The runtime's `Launch`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("entry", ctypes.c_void_p),
        ("parameters", ctypes.POINTER(ctypes.c_void_p)),
        ("grid", ctypes.c_uint32 * 3),
        ("cluster", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32),
        ("shared", ctypes.c_uint32),
        ("registers", ctypes.c_uint32),
        ("mode", ctypes.c_uint32),
        ("exact", ctypes.c_uint32),
        ("early", ctypes.c_uint32),
        ("cooperative", ctypes.c_uint32),
        ("limit", ctypes.c_double),
        ("bases", ctypes.POINTER(ctypes.c_uint64)),
        ("sizes", ctypes.POINTER(ctypes.c_uint64)),
        ("writable", ctypes.POINTER(ctypes.c_uint8)),
        ("names", ctypes.POINTER(ctypes.c_char_p)),
        ("ranges", ctypes.c_uint32),
        ("report", ctypes.c_char_p),
        ("report_bytes", ctypes.c_uint64),
    )


def launch_kernel(
    library: ctypes.CDLL,
    kernel: Plan,
    ranges: Sequence[Range],
    mode: int,
    registers: int | None,
    limit: float,
) -> tuple[str, ...]:
    """Run one kernel of a plan; returns its faults. ValueError where an argument has no array."""
    name = kernel["name"]
    values = [_parameter(parameter, ranges) for parameter in kernel["parameters"]]
    faults = tuple(f"launch: {name}: {text}" for _, texts in values for text in texts)
    count = getattr(library, f"rt_count_{name}")()
    if count != len(values):
        faults += (f"launch: {name} takes {count} parameters, the plan has {len(values)}",)
    if faults:
        return faults
    return _run(library, kernel, [value for value, _ in values], ranges, mode, registers, limit)


def _run(
    library: ctypes.CDLL,
    kernel: Plan,
    values: Sequence[bytes],
    ranges: Sequence[Range],
    mode: int,
    registers: int | None,
    limit: float,
) -> tuple[str, ...]:
    held = [_aligned(value) for value in values]
    report = ctypes.create_string_buffer(REPORT_BYTES)
    count, words = len(ranges), ctypes.c_uint64 * len(ranges)
    threads = int(kernel["block"])
    launch = _Launch(
        name=kernel["name"].encode(),
        entry=ctypes.cast(getattr(library, f"rt_entry_{kernel['name']}"), ctypes.c_void_p),
        parameters=(ctypes.c_void_p * len(held))(*(array.ctypes.data for array in held)),
        grid=(ctypes.c_uint32 * 3)(*kernel["grid"]),
        cluster=(ctypes.c_uint32 * 3)(*(kernel.get("cluster") or (1, 1, 1))),
        block=threads,
        shared=int(kernel.get("shared", 0)),
        registers=registers or min(255, REGISTERS // max(threads, 1)) // 8 * 8,
        mode=mode,
        exact=registers is not None,
        early=bool(kernel.get("early")),
        cooperative=bool(kernel.get("cooperative")),
        limit=limit,
        bases=words(*(r.base for r in ranges)),
        sizes=words(*(r.array.nbytes for r in ranges)),
        writable=(ctypes.c_uint8 * count)(*(r.array.flags.writeable for r in ranges)),
        names=(ctypes.c_char_p * count)(*(r.name.encode() for r in ranges)),
        ranges=count,
        report=ctypes.cast(report, ctypes.c_char_p),
        report_bytes=REPORT_BYTES,
    )
    library.rt_launch(ctypes.byref(launch))
    return tuple(report.value.decode().splitlines())


def _aligned(value: bytes) -> NDArray[np.uint8]:
    """The bytes of a parameter on a multiple of 64."""
    room = np.zeros(len(value) + 64, np.uint8)
    first = -int(room.ctypes.data) % 64
    place = room[first : first + len(value)]
    place[:] = np.frombuffer(value, np.uint8)
    return place


def _parameter(parameter: Plan, ranges: Sequence[Range]) -> tuple[bytes, tuple[str, ...]]:
    """A parameter's bytes and what is wrong with it."""
    found = next((r for r in ranges if r.name == parameter["argument"]), None)
    if found is None:
        raise ValueError(f"no array for argument {parameter['argument']}")
    offset = int(parameter.get("offset", 0))
    if parameter["kind"] == "map":
        return _map_record(parameter, found, offset), tuple(_map_faults(parameter, found, offset))
    return struct.pack("<Q", found.base + offset), ()


def _map_record(entry: Plan, found: Range, offset: int) -> bytes:
    """The runtime's `Map` in 128 bytes."""
    tensor = _parameter_of(entry).tensor_map
    dims, strides, box = tensor.extents, tensor.strides, tensor.box
    rank, width = len(dims), bits(tensor.dtype) // 8
    kind = ord(_ADDED.get(entry["dtype"], "-"))
    head = struct.pack(
        "<QBBBBI", found.base + offset, rank, width, int(entry["swizzle"]), kind, MAP_MAGIC
    )
    body = struct.pack(
        "<5Q4Q5H",
        *(*dims, 0, 0, 0, 0)[:5],
        *(*strides, 0, 0, 0, 0)[:4],
        *(*box, 0, 0, 0, 0)[:5],
    )
    return (head + body).ljust(128, b"\0")


def _map_faults(entry: Plan, found: Range, offset: int) -> Iterator[str]:
    """What the driver would refuse, and maps that reach beyond their argument."""
    parameter, name = _parameter_of(entry), entry["argument"]
    yield from (f"map of {name}: {error}" for error in map_faults(parameter))
    tensor = parameter.tensor_map
    last = sum((n - 1) * s for n, s in zip(tensor.extents[1:], tensor.strides, strict=False))
    end = offset + last + tensor.extents[0] * bits(tensor.dtype) // 8
    if end > found.array.nbytes:
        yield f"map of {name}: reaches byte {end} of {found.array.nbytes}"


def _parameter_of(entry: Plan) -> Parameter:
    """The parameter whose JSON this is."""
    dims, strides, box = (tuple(map(int, entry[key])) for key in ("dims", "strides", "box"))
    offset, swizzle = int(entry.get("offset", 0)), int(entry["swizzle"])
    return Parameter(entry["argument"], offset, str(entry["dtype"]), dims, strides, box, swizzle)
