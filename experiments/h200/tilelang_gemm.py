"""Matrix products against TileLang (its plain GEMM program, best of a grid of its own choices).

TileLang is no dependency: put it on the path, with nvcc. Needs the records of gemm.py's searches.
"""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from common import (
    Clock,
    Ours,
    Results,
    Run,
    Side,
    Tensors,
    chosen,
    interleaved,
    options,
    searched,
    sets_of,
    time_row,
)
from gemm import SHAPES, plain

TILES = (
    (128, 256, 64, 256), (256, 128, 64, 256), (128, 128, 64, 256), (128, 128, 64, 128),
    (64, 256, 64, 128), (128, 64, 64, 128), (64, 128, 64, 128), (64, 64, 64, 128),
    (128, 192, 64, 256),
)  # fmt: skip
STAGES = (2, 3, 4)
PANELS = (0, 10)
COMPILERS = 12


def program(m: int, n: int, k: int, choice: tuple[int, ...]) -> Any:
    """TileLang's GEMM of C = A B^T for one choice of tile, stages, threads and raster."""
    import tilelang.language as T

    rows, columns, depth, threads, stages, panel = choice
    dtype = "bfloat16"

    @T.prim_func
    def main(
        A: T.Tensor((m, k), dtype),
        B: T.Tensor((n, k), dtype),
        C: T.Tensor((m, n), dtype),
    ):  # type: ignore[no-untyped-def]
        with T.Kernel(T.ceildiv(n, columns), T.ceildiv(m, rows), threads=threads) as (bx, by):
            left = T.alloc_shared((rows, depth), dtype)
            right = T.alloc_shared((columns, depth), dtype)
            total = T.alloc_fragment((rows, columns), "float")
            T.use_swizzle(panel_size=max(1, panel), enable=panel > 0)
            T.clear(total)
            for step in T.Pipelined(T.ceildiv(k, depth), num_stages=stages):
                T.copy(A[by * rows, step * depth], left)
                T.copy(B[bx * columns, step * depth], right)
                T.gemm(left, right, total, transpose_B=True)
            T.copy(total, C[by * rows, bx * columns])

    return main


def built(m: int, n: int, k: int, choice: tuple[int, ...]) -> Any:
    import tilelang

    try:
        return tilelang.compile(program(m, n, k, choice), target="cuda")
    except Exception as problem:  # noqa: BLE001 (some of its choices do not compile)
        print(f"TileLang {m}x{n}x{k} {choice}: {str(problem).splitlines()[-1:]}", flush=True)
        return None


def quick(run: Run) -> float:
    run()
    torch.cuda.synchronize()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(5):
        run()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 5


def best_kernel(m: int, n: int, k: int, tensors: Tensors) -> tuple[Any, tuple[int, ...], int]:
    choices = [
        (*tile, stages, panel)
        for tile, stages, panel in itertools.product(TILES, STAGES, PANELS)
        if (tile[0] <= 64 or m > 64) and stages * (tile[0] + tile[1]) * tile[2] * 2 <= 220 << 10
    ]
    with ThreadPoolExecutor(COMPILERS) as pool:
        kernels = list(pool.map(lambda choice: built(m, n, k, choice), choices))
    found = []
    wanted = tensors["A"].float() @ tensors["B"].float().t()
    for choice, kernel in zip(choices, kernels, strict=True):
        if kernel is None:
            continue
        try:
            seconds = quick(lambda: kernel(tensors["A"], tensors["B"], tensors["C"]))  # noqa: B023
        except Exception as problem:  # noqa: BLE001
            print(f"TileLang {m}x{n}x{k} {choice}: {problem}", flush=True)
            continue
        error = (tensors["C"].float() - wanted).norm() / wanted.norm()
        if error < 1e-2:
            found.append((seconds, choice, kernel))
    seconds, choice, kernel = min(found, key=lambda row: row[0])
    return kernel, choice, len(choices)


def main() -> None:
    settings = options(__doc__ or "")
    settings.compare_only = True
    clock, results = Clock(settings.seconds), Results.at(settings.out)
    for m, n, k in SHAPES:
        name = f"bf16 {m}x{n}x{k}"
        if not chosen(name, settings.cases) or clock.left < 45:
            continue
        if results.has(name, "TileLang 0.1.15"):
            continue
        arguments = {"m": m, "n": n, "k": k, "dtype": "bf16", "tb": True}
        workload, schedule, _ = searched("matmul", arguments, settings, clock)
        sets = sets_of(workload)
        began = time.monotonic()
        kernel, choice, count = best_kernel(m, n, k, sets[0])
        seconds = time.monotonic() - began

        def peer(tensors: Tensors) -> Run:
            return lambda: kernel(tensors["A"], tensors["B"], tensors["C"])  # noqa: B023

        ours = Ours(workload, schedule)
        mine = Side("ours", [ours.on(tensors) for tensors in sets])
        theirs = Side("TileLang 0.1.15", [peer(tensors) for tensors in sets])
        library = Side("cuBLAS", [plain(tensors) for tensors in sets])
        interleaved([mine, theirs, library])
        facts = {"choice": choice, "choices": count, "peer_seconds": round(seconds, 1)}
        results.add(time_row(name, mine, theirs, **facts))
        del sets, mine, theirs, library
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
