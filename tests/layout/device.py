"""Runs single instructions on a CUDA device through CuPy, on register files and bytes from numpy.

Writes the PTX of a row from its name's parts alone; knows no layout.
"""

from __future__ import annotations

import ctypes
from typing import Any

import cupy
import numpy as np
from numpy.typing import NDArray

from ir.layout.instructions.rows import CopyRow, MatrixRow, suffix
from ir.layout.instructions.tma import TensorMap
from ir.layout.widths import bits
from tests.layout.patterns import decode, encode, pack, unpack
from tests.layout.tensors import box_bytes, footprint

Words = NDArray[np.uint32]
OPTIONS = ("--gpu-architecture=sm_90a", "--std=c++17")
SHARED_BYTES = 160 * 1024
PREAMBLE = """
typedef unsigned u32; typedef unsigned long long u64; typedef unsigned char u8;
__device__ __forceinline__ u32 at(const void* p) { return (u32)__cvta_generic_to_shared(p); }
extern __shared__ __align__(1024) u8 shared[];
"""


def kernel(body: str, name: str = "run") -> Any:
    function = cupy.RawModule(code=PREAMBLE + body, options=OPTIONS).get_function(name)
    function.max_dynamic_shared_size_bytes = SHARED_BYTES
    return function


def registers(values: NDArray[Any], dtype: str) -> Words:
    """[thread, value] values -> [thread, register]."""
    patterns = encode(values, dtype)
    if patterns.shape[1] * bits(dtype) < 32:
        raise ValueError("less than a register")
    return pack(patterns, dtype)


def _slots(first: int, count: int) -> str:
    return "{" + ",".join(f"%{first + i}" for i in range(count)) + "}"


def _accumulator(kind: str, count: int) -> tuple[str, str]:
    """C type and asm constraint of accumulator registers."""
    return ("float", "f") if kind == "f32" else ("u32", "r")


def mma(
    row: MatrixRow,
    types: tuple[str, str, str],
    a: NDArray[Any],
    b: NDArray[Any],
    c: NDArray[Any],
) -> NDArray[Any]:
    """D [thread, value] of an mma row for types of A, B and C."""
    words = [registers(part, dtype) for part, dtype in zip((a, b, c), types, strict=True)]
    counts = [word.shape[1] for word in words]
    ctype, letter = _accumulator(types[2], counts[2])
    shape = f"m{row.m}n{row.n}k{row.k}"
    names = [suffix(dtype) for dtype in (types[2], *types)]
    out, na, nb = counts[2], counts[0], counts[1]
    code = (
        f"mma.sync.aligned.{shape}.row.col.{'.'.join(names)} "
        f"{_slots(0, out)}, {_slots(out, na)}, {_slots(out + na, nb)}, "
        f"{_slots(out + na + nb, out)};"
    )
    inputs = ", ".join(
        [f'"r"(a[t * {na} + {i}])' for i in range(na)]
        + [f'"r"(b[t * {nb} + {i}])' for i in range(nb)]
        + [f'"{letter}"(c[t * {out} + {i}])' for i in range(out)]
    )
    outputs = ", ".join(f'"={letter}"(d[t * {out} + {i}])' for i in range(out))
    body = (
        f'extern "C" __global__ void run(const u32* a, const u32* b, const {ctype}* c, {ctype}* d)'
        f'{{ int t = threadIdx.x; asm volatile("{code}" : {outputs} : {inputs}); }}'
    )
    d = cupy.zeros(words[2].shape, cupy.uint32)
    kernel(body)((1,), (row.threads,), (*map(cupy.asarray, words), d))
    return decode(unpack(cupy.asnumpy(d), types[2]), types[2])


def wgmma(
    row: MatrixRow,
    types: tuple[str, str, str],
    memory: NDArray[np.uint8],
    a: list[NDArray[Any]] | list[int],
    b: list[int],
    c: NDArray[Any],
    majors: tuple[str, str],
) -> NDArray[Any]:
    """D after all k steps; `a`: register files or descriptors, `b`: descriptors, one a step."""
    from_registers = isinstance(a[0], np.ndarray)
    start = registers(c, types[2])
    count = start.shape[1]
    ctype, letter = _accumulator(types[2], count)
    body = _wgmma_body(row, types, count, letter, ctype, from_registers, majors)
    first = (
        np.stack([registers(np.asarray(part), types[0]) for part in a])
        if from_registers
        else np.array(a, dtype=np.uint64)
    )
    d = cupy.asarray(start)
    kernel(body)(
        (1,),
        (128,),
        (
            cupy.asarray(memory),
            np.int32(memory.size),
            cupy.asarray(first),
            cupy.asarray(np.array(b, dtype=np.uint64)),
            np.int32(len(b)),
            d,
        ),
        shared_mem=SHARED_BYTES,
    )
    return decode(unpack(cupy.asnumpy(d), types[2]), types[2])


def _wgmma_body(
    row: MatrixRow,
    types: tuple[str, str, str],
    count: int,
    letter: str,
    ctype: str,
    from_registers: bool,
    majors: tuple[str, str],
) -> str:
    names = ".".join(suffix(dtype) for dtype in (types[2], types[0], types[1]))
    operand = _slots(count, 4) if from_registers else f"%{count}"
    flags = "" if types[2] == "i32" else ", 1, 1"
    if bits(types[0]) == 16:
        turned = [int(major == "mn") for major in majors]
        flags += f", {turned[1]}" if from_registers else f", {turned[0]}, {turned[1]}"
    after = count + (4 if from_registers else 1)
    code = (
        f"wgmma.mma_async.sync.aligned.m64n{row.n}k{row.k}.{names} "
        f"{_slots(0, count)}, {operand}, %{after}, 1{flags};"
    )
    a_inputs = (
        ", ".join(f'"r"(first[(s * 128 + t) * 4 + {i}])' for i in range(4))
        if from_registers
        else '"l"(first[s] + base)'
    )
    outputs = ", ".join(f'"+{letter}"(r[{i}])' for i in range(count))
    pointer = "const u32*" if from_registers else "const u64*"
    return f"""
    extern "C" __global__ void __launch_bounds__(128) run(const u8* memory, int size,
        {pointer} first, const u64* second, int steps, {ctype}* d) {{
      int t = threadIdx.x;
      for (int i = t; i < size; i += 128) shared[i] = memory[i];
      asm volatile("fence.proxy.async;" ::: "memory");
      __syncthreads();
      u64 base = at(shared) >> 4;
      {ctype} r[{count}];
      for (int i = 0; i < {count}; i++) r[i] = d[t * {count} + i];
      for (int s = 0; s < steps; s++) {{
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        asm volatile("{code}" : {outputs} : {a_inputs}, "l"(second[s] + base));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
      }}
      for (int i = 0; i < {count}; i++) d[t * {count} + i] = r[i];
    }}"""


def matrix_copy(
    row: CopyRow, memory: NDArray[np.uint8], addresses: NDArray[Any], words: Words
) -> tuple[Words, NDArray[np.uint8]]:
    """Registers and memory after one ldmatrix or stmatrix of `words` [lane, matrix]."""
    count = row.matrices
    form = f"{row.kind}.sync.aligned.m8n8.x{count}{'.trans' if row.transposed else ''}.shared.b16"
    if row.kind == "ldmatrix":
        outputs = ", ".join(f'"=r"(r[{i}])' for i in range(count))
        step = f'asm volatile("{form} {_slots(0, count)}, [%{count}];" : {outputs} : "r"(p));'
    else:
        inputs = ", ".join(f'"r"(r[{i}])' for i in range(count))
        target = _slots(1, count)
        step = f'asm volatile("{form} [%0], {target};" :: "r"(p), {inputs} : "memory");'
    body = f"""
    extern "C" __global__ void run(u8* memory, int size, const u32* addresses, u32* words) {{
      int t = threadIdx.x; u32 r[{count}];
      for (int i = t; i < size; i += 32) shared[i] = memory[i];
      for (int i = 0; i < {count}; i++) r[i] = words[t * {count} + i];
      __syncwarp();
      u32 p = at(shared) + addresses[t];
      {step}
      __syncwarp();
      for (int i = t; i < size; i += 32) memory[i] = shared[i];
      for (int i = 0; i < {count}; i++) words[t * {count} + i] = r[i];
    }}"""
    on_device = cupy.asarray(memory)
    held = cupy.asarray(np.ascontiguousarray(words))
    where = cupy.asarray(addresses.astype(np.uint32))
    kernel(body)((1,), (32,), (on_device, np.int32(memory.size), where, held), shared_mem=65536)
    return cupy.asnumpy(held), cupy.asnumpy(on_device)


DRIVER_TYPE = {"u8": 0, "i32": 3, "f16": 6, "f32": 7, "bf16": 9}
DRIVER_SWIZZLE = {"none": 0, "32B": 1, "64B": 2, "128B": 3}


def encode_map(tensor: TensorMap, address: int) -> NDArray[np.uint8] | int:
    """The 128 bytes of a driver's tensor map, or the driver's error code."""
    rank = len(tensor.extents)
    room = np.zeros(128 + 64, np.uint8)
    offset = -room.ctypes.data % 64
    function = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled
    result = function(
        ctypes.c_void_p(room.ctypes.data + offset),
        ctypes.c_int(DRIVER_TYPE[tensor.dtype]),
        ctypes.c_uint32(rank),
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * rank)(*tensor.extents),
        (ctypes.c_uint64 * max(1, rank - 1))(*tensor.strides),
        (ctypes.c_uint32 * rank)(*tensor.box),
        (ctypes.c_uint32 * rank)(*(1,) * rank),
        ctypes.c_int(0),
        ctypes.c_int(DRIVER_SWIZZLE[tensor.mode]),
        ctypes.c_int(0),
        ctypes.c_int(0),
    )
    return int(result) if result else room[offset : offset + 128].copy()


def tma_load(
    tensor: TensorMap, stored: NDArray[np.uint8], base: int, at: int, coordinates: tuple[int, ...]
) -> NDArray[np.uint8]:
    """Shared memory (first filled with 255) after loading one box to byte `at`."""
    rank = len(coordinates)
    room = cupy.zeros(stored.size + 1024, cupy.uint8)
    skip = -room.data.ptr % 256
    room[skip : skip + stored.size] = cupy.asarray(stored)
    encoded = encode_map(tensor, room.data.ptr + skip + base)
    assert isinstance(encoded, np.ndarray), f"driver refuses with {encoded}"
    where = ", ".join(f"%{3 + i}" for i in range(rank))
    places = ", ".join(f'"r"({value})' for value in coordinates)
    size = at + footprint(tensor) + 256
    body = f"""
    extern "C" __global__ void run(const void* map, u8* out) {{
      __shared__ __align__(8) u64 barrier;
      int t = threadIdx.x;
      for (int i = t; i < {size}; i += 32) shared[i] = 255;
      if (t == 0) {{
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(at(&barrier)) : "memory");
        asm volatile("fence.proxy.async;" ::: "memory");
      }}
      asm volatile("fence.proxy.async;" ::: "memory");
      __syncthreads();
      if (t == 0) {{
        asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;"
            :: "l"(map) : "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], {box_bytes(tensor)};"
            :: "r"(at(&barrier)) : "memory");
        asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile"
            ".mbarrier::complete_tx::bytes [%0], [%1, {{{where}}}], [%2];"
            :: "r"(at(shared) + {at}), "l"(map), "r"(at(&barrier)), {places} : "memory");
      }}
      u32 done = 0;
      for (int tries = 0; tries < 1000000 && !done; tries++)
        asm volatile("{{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0;"
            " selp.u32 %0, 1, 0, p; }}" : "=r"(done) : "r"(at(&barrier)) : "memory");
      for (int i = t; i < {size}; i += 32) out[i] = done ? shared[i] : 0;
    }}"""
    out = cupy.zeros(size, cupy.uint8)
    on_device = cupy.asarray(encoded)
    assert on_device.data.ptr % 64 == 0
    kernel(body)((1,), (32,), (on_device, out), shared_mem=SHARED_BYTES)
    return np.asarray(cupy.asnumpy(out), dtype=np.uint8)
