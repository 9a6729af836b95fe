"""A script, run by a test where there is a GPU: calls the exported modules in the folder that it is
given, with CuPy arrays, torch tensors and other libraries', on streams of all kinds and in graphs.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np


class Lent:
    """An array by the CUDA array interface alone."""

    def __init__(self, array: Any) -> None:
        self.__cuda_array_interface__ = array.__cuda_array_interface__


class LentByDlpack:
    """An array by DLPack alone."""

    def __init__(self, array: Any) -> None:
        self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__


def check_addition(added: Any, cupy: Any, torch: Any) -> dict[str, Callable[[], object]]:
    """C = A + B in every way; returns calls whose time is of interest."""
    a, b = np.arange(1000, dtype=np.float32), np.linspace(0, 1, 1000, dtype=np.float32)
    bits = (a.view(np.uint32) >> 16).astype(np.uint16)
    c = (bits.astype(np.uint32) << 16).view(np.float32) + b
    a_cupy, b_cupy = cupy.asarray(bits), cupy.asarray(b)
    c_cupy = added.run(a_cupy, b_cupy)
    assert isinstance(c_cupy, cupy.ndarray)
    assert np.array_equal(c_cupy.get(), c)
    for other in (Lent(b_cupy), LentByDlpack(b_cupy)):
        assert np.array_equal(added.run(a_cupy, other).get(), c)

    a_torch = torch.from_numpy(bits.view(np.int16)).cuda().view(torch.bfloat16)
    b_torch = torch.from_numpy(b).cuda()
    want = torch.from_numpy(c).cuda()
    c_torch = added.run(a_torch, b_torch)
    assert isinstance(c_torch, torch.Tensor)
    assert torch.equal(c_torch, want)
    out = torch.full_like(b_torch, 7.0)
    assert added.run(a_torch, b_torch, out=out) is out
    assert torch.equal(out, want)

    torch.cuda.synchronize()
    for stream in (cupy.cuda.Stream(non_blocking=True), torch.cuda.Stream()):
        pair = added.run(a_cupy, b_cupy, stream=stream), added.run(a_torch, b_torch, stream=stream)
        stream.synchronize()
        assert np.array_equal(pair[0].get(), c)
        assert torch.equal(pair[1], want)
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
        assert torch.equal(added.run(a_torch, b_torch), want)

    found = []
    thread = threading.Thread(target=lambda: found.append(added.run(a_torch, b_torch)))
    thread.start()
    thread.join()
    assert torch.equal(found[0], want)
    try:
        added.run(a_cupy, cupy.zeros(1001, "f4")[1:])
    except ValueError as error:
        print(error)
    else:
        raise AssertionError("a misaligned array was accepted")
    return {
        "cupy, out given": lambda: added.run(a_cupy, b_cupy, out=c_cupy),
        "cupy": lambda: added.run(a_cupy, b_cupy),
        "torch, out given": lambda: added.run(a_torch, b_torch, out=out),
        "torch": lambda: added.run(a_torch, b_torch),
    }


def check_copy(copied: Any, cupy: Any, torch: Any) -> dict[str, Callable[[], object]]:
    """Tensor maps, a workspace that is cleared each time, two launches and two outputs."""
    source = cupy.asarray(np.random.default_rng(0).random((40, 100), np.float32))
    for _ in range(3):
        copy, tiles = copied.run(source)
        assert cupy.array_equal(source, copy)
        assert int(tiles[0]) == 12
    tensor = torch.rand(40, 100, device="cuda")
    for _ in range(3):
        copy, tiles = copied.run(tensor)
        assert torch.equal(tensor, copy)
        assert tiles.item() == 12
    for bad in (tensor.cpu(), tensor.double(), tensor.t(), torch.rand(100, 40, device="cuda").t()):
        try:
            copied.run(bad)
        except (TypeError, ValueError) as error:
            print(error)
        else:
            raise AssertionError("a wrong tensor was accepted")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        copy, tiles = copied.run(tensor)
    for _ in range(2):
        copy.zero_()
        graph.replay()
        assert torch.equal(tensor, copy)
        assert tiles.item() == 12
    return {"two launches, a clear": lambda: copied.run(tensor)}


def main(folder: str) -> None:
    sys.path.insert(0, folder)
    cupy, torch = import_module("cupy"), import_module("torch")
    calls = check_addition(import_module("added"), cupy, torch)
    calls |= check_copy(import_module("copied"), cupy, torch)
    for name, call in calls.items():
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(1000):
            call()
        print(f"{name}: {(time.perf_counter() - start) * 1e3:.1f} us of host time a call")
    torch.cuda.synchronize()
    assert not {"ir", "explorer"} & set(sys.modules)
    print("good")


if __name__ == "__main__":
    main(sys.argv[1])
