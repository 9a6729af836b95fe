"""CuPy, torch and the driver without a GPU, as far as exported modules use them.

Device memory is the host's; launches are recorded and then run as Python functions on the addresses
that they were given.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

Body = Callable[[list[bytes]], None]


class Device:
    """The machine behind both libraries: what was asked of it, and what it has."""

    def __init__(self, sizes: dict[str, list[int]], bodies: dict[str, Body] | None = None) -> None:
        self.sizes, self.bodies = sizes, bodies or {}
        self.names = list(sizes)
        self.current, self.context, self.capability = 0, 70, "90"
        self.stream, self.torch_stream = 5, 9
        self.allocating = [self.stream]
        self.log: list[tuple[Any, ...]] = []
        self.launches: list[tuple[Any, ...]] = []
        self.keep: list[Any] = []

    def function(self, module: int, name: str) -> int:
        """Exported functions have a hash behind their names, by which a test may tell them."""
        known = name if name in self.names else name.rpartition("_")[0]
        return 100 + self.names.index(known)

    def launch(self, function: int, *facts: int) -> None:
        """`facts` are grid, block, shared memory, stream, pointers to parameters, and 0."""
        name = self.names[function - 100]
        sizes = self.sizes[name]
        pointers = (ctypes.c_void_p * len(sizes)).from_address(facts[8])
        values = [ctypes.string_at(p, size) for p, size in zip(pointers, sizes, strict=True) if p]
        self.launches.append((name, facts[:3], facts[3:6], facts[6], facts[7], values))
        assert facts[9] == 0
        if name in self.bodies:
            self.bodies[name](values)

    def memset(self, address: int, value: int, count: int, stream: int) -> None:
        self.launches.append(("memset", address, value, count, stream))
        ctypes.memset(address, value, count)

    def ensure(self, device: int) -> None:
        self.current = device
        self.context = 70 + device


def values_at(address: bytes, dtype: str, count: int) -> Any:
    """The numbers at an address that a launch was given as its parameter."""
    start = int.from_bytes(address, "little")
    room = (ctypes.c_char * (np.dtype(dtype).itemsize * count)).from_address(start)
    return np.frombuffer(memoryview(room), dtype)


class _Array:
    def __init__(self, values: Any, device: int = 0) -> None:
        self.values = values
        self.shape, self.dtype = values.shape, values.dtype
        self.flags = SimpleNamespace(c_contiguous=values.flags.c_contiguous)
        self.data = SimpleNamespace(ptr=values.ctypes.data, device_id=device)

    def __getitem__(self, what: Any) -> _Array:
        return _Array(self.values[what], self.data.device_id)


def _aligned(shape: tuple[int, ...], dtype: Any) -> Any:
    """Host memory at a multiple of 512 bytes, as a device's allocator gives it."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    room = np.full(count + 512, 0xAA, np.uint8)
    start = -room.ctypes.data % 512
    return room[start : start + count].view(dtype).reshape(shape)


def placed(values: Any) -> Any:
    """A copy of `values` in aligned memory."""
    copy = _aligned(values.shape, values.dtype)
    copy[...] = values
    return copy


def make_cupy(device: Device) -> Any:
    """A module that stands for CuPy."""
    cupy: Any = ModuleType("cupy")

    def empty(shape: tuple[int, ...], dtype: Any) -> _Array:
        device.log.append(("empty", "cupy", device.allocating[-1]))
        return _Array(_aligned(shape, dtype), device.current)

    def memory(size: int) -> Any:
        device.log.append(("memory", size))
        device.keep.append(_aligned((size,), np.uint8))
        return SimpleNamespace(ptr=device.keep[-1].ctypes.data)

    class Stream:
        @classmethod
        @contextmanager
        def from_external(cls, other: Any) -> Iterator[None]:
            device.allocating.append(other.__cuda_stream__()[1])
            yield
            device.allocating.pop()

    def load(image: bytes) -> int:
        device.log.append(("load", image, device.current))
        return 1

    cupy.ndarray, cupy.empty = _Array, empty
    cupy.asarray = lambda value: _Array(placed(np.asarray(value)))
    cupy.from_dlpack = lambda value: _Array(value.values)
    driver = SimpleNamespace(
        ctxGetCurrent=lambda: device.context,
        moduleLoadData=load,
        moduleGetFunction=device.function,
        funcSetAttribute=lambda *facts: device.log.append(("attribute", *facts)),
        launchKernel=device.launch,
    )
    runtime = SimpleNamespace(
        getDevice=lambda: device.current, setDevice=device.ensure, memsetAsync=device.memset
    )
    cupy.cuda = SimpleNamespace(
        driver=driver,
        runtime=runtime,
        Stream=Stream,
        Memory=memory,
        Event=_Event,
        get_elapsed_time=lambda start, end: 0.5,
        get_current_stream=lambda: SimpleNamespace(ptr=device.stream),
        Device=lambda number: SimpleNamespace(compute_capability=device.capability),
    )
    return cupy


class _Event:
    def record(self) -> None: ...

    def synchronize(self) -> None: ...


class _TorchDtype:
    def __init__(self, name: str, stored: str) -> None:
        self.name, self.stored = name, stored

    def __repr__(self) -> str:
        return f"torch.{self.name}"


_TorchDtype.__module__ = "torch"
_TORCH_DTYPES = (("bfloat16", "<u2"), ("float32", "<f4"), ("int32", "<i4"), ("uint8", "|u1"))


class Tensor:
    """What a module asks of a torch tensor; on the host if `index` is -1."""

    def __init__(self, values: Any, dtype: _TorchDtype, index: int = 0) -> None:
        self.values, self.dtype, self.index = values, dtype, index
        self.shape = values.shape
        self.device = f"cuda:{index}" if index >= 0 else "cpu"

    def get_device(self) -> int:
        return self.index

    def is_contiguous(self) -> bool:
        return bool(self.values.flags.c_contiguous)

    def data_ptr(self) -> int:
        return int(self.values.ctypes.data)


def make_torch(device: Device) -> Any:
    """A module that stands for torch."""
    torch: Any = ModuleType("torch")
    for name, stored in _TORCH_DTYPES:
        setattr(torch, name, _TorchDtype(name, stored))

    def empty(shape: tuple[int, ...], *, dtype: _TorchDtype, device: str) -> Tensor:
        where.log.append(("empty", "torch", where.allocating[-1]))
        return Tensor(_aligned(shape, dtype.stored), dtype, int(device.removeprefix("cuda:")))

    @contextmanager
    def entered(stream: Any) -> Iterator[None]:
        where.allocating.append(stream.cuda_stream)
        yield
        where.allocating.pop()

    where = device
    torch.Tensor, torch.empty, torch.device = Tensor, empty, str
    torch.cuda = SimpleNamespace(
        current_stream=lambda number: SimpleNamespace(cuda_stream=where.torch_stream),
        stream=entered,
        ExternalStream=lambda handle, device: SimpleNamespace(cuda_stream=handle),
    )
    return torch


_PROTOTYPE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint64),
    ctypes.POINTER(ctypes.c_uint32), ctypes.POINTER(ctypes.c_uint32),
    ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int,
)  # fmt: skip


class Driver:
    """cuTensorMapEncodeTiled as a C function that keeps what it is given."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.error = 0
        self.cuTensorMapEncodeTiled: Any = _PROTOTYPE(self._encode)

    def _encode(self, room: int, kind: int, rank: int, address: int, *facts: Any) -> int:
        extents, strides, box, steps = facts[:4]
        shape = (extents[:rank], strides[: rank - 1], box[:rank], steps[:rank])
        self.asked.append((kind, address, *shape, *facts[4:]))
        assert room % 128 == 0
        (ctypes.c_uint64 * 16).from_address(room)[:] = [address] * 16
        return self.error
