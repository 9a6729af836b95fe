"""The part of an exported CUDA module that loads its code and launches its kernels, as text."""

from __future__ import annotations

LAUNCHING = r'''class _Code:
    """The kernels on one device, loaded until the process ends."""

    def __init__(self, cupy, device):
        driver = cupy.cuda.driver
        path = Path(__file__).with_name(f"{NAME}.cubin")
        if not path.exists():
            raise FileNotFoundError(f"{path} is missing: it belongs beside {NAME}.py")
        module = driver.moduleLoadData(path.read_bytes())
        self.context = driver.ctxGetCurrent()
        self.functions = [_functions(driver, module, variant.kernels) for variant in _VARIANTS]


def _functions(driver, module, kernels):
    """Those of one variant, allowed what they ask for."""
    functions = [driver.moduleGetFunction(module, kernel[0]) for kernel in kernels]
    for function, (_, _, cluster, _, shared, _, _, _) in zip(functions, kernels):
        driver.funcSetAttribute(function, _MAX_DYNAMIC_SHARED, shared)
        if cluster[0] * cluster[1] * cluster[2] > 8:
            driver.funcSetAttribute(function, _NON_PORTABLE_CLUSTER, 1)
    return functions


def _load(cupy, device):
    """The code of `device`, which is current."""
    global _context
    with _lock:
        _context = cupy.cuda.driver.ctxGetCurrent
        if device not in _loaded:
            _refuse_device(cupy.cuda.Device(device).compute_capability, device)
            _loaded[device] = _Code(cupy, device)
        return _loaded[device]


def _refuse_device(found, device):
    """`found` is the device's compute capability, such as "90"."""
    wanted = ARCH[3:].rstrip("af")
    newer = found[:-1] == wanted[:-1] and int(found) >= int(wanted)
    if found != wanted and (ARCH[-1] == "a" or not newer):
        there, here = f"{found[:-1]}.{found[-1]}", f"{wanted[:-1]}.{wanted[-1]}"
        raise RuntimeError(
            f"{NAME}: device {device} has compute capability {there}; this code is for {here}"
        )


def _pack(place, stream, addresses):
    """The launches of one run on `addresses`, and the memory that holds their parameters."""
    cupy, variant, device = place.cupy, place.variant, place.device
    for row, address in zip((*variant.inputs, *variant.outputs), addresses):
        if address % _ALIGNMENT:
            raise ValueError(f"{NAME}: {row[0]} must start at a multiple of {_ALIGNMENT} bytes")
    key = (variant.number, device, stream, addresses)
    if variant.workspace:
        addresses = (*addresses, _workspace(place.kind, device, stream, variant))
    calls, kept = [], []
    for function, kernel in zip(place.code.functions[variant.number], variant.kernels):
        _, grid, _, block, shared, clear, attribute, parameters = kernel
        for offset, count in clear:
            what = (addresses[-1] + offset, 0, count, stream)
            calls.append((cupy.cuda.runtime.memsetAsync, what))
        words, pointers = _parameters(parameters, addresses)
        if attribute:
            asked = ctypes.pointer(_Attribute(attribute, (1,)))
            sizes = _Sizes((*grid, block, 1, 1, shared), stream, asked, 1)
            what = (ctypes.byref(sizes), ctypes.c_void_p(function), pointers, None)
            calls.append((_driver().cuLaunchKernelEx, what))
        else:
            what = (function, *grid, block, 1, 1, shared, stream, ctypes.addressof(pointers), 0)
            calls.append((cupy.cuda.driver.launchKernel, what))
        kept.append((words, pointers))
    if len(_plans) >= _PLANS_KEPT:
        _plans.clear()
    plan = _plans[key] = (tuple(calls), tuple(kept))
    return plan


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = (("name", ctypes.c_uint64), ("value", ctypes.c_int * 16))


class _Sizes(ctypes.Structure):
    """CUlaunchConfig: blocks, threads and bytes of shared memory; stream; attributes."""

    _fields_ = (
        ("sizes", ctypes.c_uint * 7), ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)), ("count", ctypes.c_uint),
    )  # fmt: skip


def _workspace(kind, device, stream, variant):
    """The address of the workspace that serves one stream for good.

    Variants share it, except for those whose part of it stays zero between runs.
    """
    sharing = [v.workspace for v in _VARIANTS if not v.clean]
    own, size = (variant.number, variant.workspace) if variant.clean else (None, max(sharing))
    with _lock:
        key = (device, stream, own)
        if key not in _workspaces:
            _workspaces[key] = kind.scratch(stream, size)
            for offset, count in variant.clean:
                address = _workspaces[key][1] + offset
                _cupy().cuda.runtime.memsetAsync(address, 0, count, stream)
        return _workspaces[key][1]


def _parameters(parameters, addresses):
    """The values of a kernel's parameters, and the pointers to them that a launch takes."""
    sizes = [1 if tile is None else 16 for _, _, tile in parameters]
    words = (ctypes.c_uint64 * (sum(sizes) or 1))()
    pointers = (ctypes.c_void_p * (len(sizes) or 1))()
    at = 0
    for number, (operand, offset, tile) in enumerate(parameters):
        pointers[number] = ctypes.addressof(words) + 8 * at
        address = addresses[operand] + offset
        words[at : at + sizes[number]] = [address] if tile is None else _tensor_map(address, tile)
        at += sizes[number]
    return words, pointers


@functools.lru_cache(maxsize=4096)
def _tensor_map(address, tile):
    """The 16 words of a tensor map. They are made at a multiple of 128 bytes, as cuda.h asks."""
    kind, extents, strides, box, swizzle, promotion = tile
    rank = len(extents)
    room = (ctypes.c_uint64 * 32)()
    start = -ctypes.addressof(room) % 128
    error = _encoder()(
        ctypes.addressof(room) + start, kind, rank, address,
        (ctypes.c_uint64 * rank)(*extents), (ctypes.c_uint64 * rank)(*strides),
        (ctypes.c_uint32 * rank)(*box), (ctypes.c_uint32 * rank)(*[1] * rank),
        0, swizzle, promotion, 0,
    )  # fmt: skip
    if error:
        raise RuntimeError(f"{NAME}: the driver refuses a tensor map (CUresult {error}): {tile}")
    return tuple(room[start // 8 : start // 8 + 16])


@functools.cache
def _driver():
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")


@functools.cache
def _encoder():
    """cuTensorMapEncodeTiled of the driver."""
    encode = _driver().cuTensorMapEncodeTiled
    long, short = ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint32)
    address, number = ctypes.c_void_p, ctypes.c_int
    encode.argtypes = [
        address, number, ctypes.c_uint32, address, long, long, short, short, *[number] * 4,
    ]  # fmt: skip
    encode.restype = number
    return encode


def _random(row):
    """Normal floats, random bytes; 32-bit and wider integers are 0, as they may be indices."""
    import numpy as np

    _, shape, dtype, stored, _ = row
    generator = np.random.default_rng(0)
    size = min(int(np.prod(shape)), 1 << 22)
    if dtype in ("u8", "i8", "bool"):
        values = generator.integers(0, 2 if dtype == "bool" else 128, size).astype(stored)
    elif dtype == "bf16":
        values = (generator.standard_normal(size, np.float32).view(np.uint32) >> 16).astype(stored)
    elif dtype in ("f16", "f32", "f64"):
        values = generator.standard_normal(size, np.float32).astype(stored)
    else:
        values = np.zeros(size, stored)
    return _cupy().asarray(np.resize(values, shape))


def _milliseconds(times, inputs, out):
    """CUDA events around `times` runs, for each of them."""
    cuda = _cupy().cuda
    start, end = cuda.Event(), cuda.Event()
    start.record()
    for _ in range(times):
        run(*inputs, out=out)
    end.record()
    end.synchronize()
    return cuda.get_elapsed_time(start, end) / times


def _main():
    for variant in _VARIANTS:
        inputs = [_random(row) for row in variant.inputs]
        out = run(*inputs)
        _milliseconds(3, inputs, out)
        times = max(1, min(1000, int(2 / max(_milliseconds(3, inputs, out), 1e-3))))
        middle = sorted(_milliseconds(times, inputs, out) for _ in range(21))[10] * 1e3
        name = f"{NAME} {_words_of(variant.extents)}".strip()
        print(f"{name}: {middle:.2f} us a run (median of 21 x {times}, on the same arrays)")


if __name__ == "__main__":
    _main()
'''
