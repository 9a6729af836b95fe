"""Matrix products against TileLang: its plain GEMM program, the best of a grid of its own choices.

TileLang is no dependency: --tilelang names a folder that has it (and nvcc is on the path). Takes
schedules from the records of gemm.py's searches.
"""

# mypy: disable-error-code="import-not-found,untyped-decorator,no-untyped-def,valid-type"
# Annotations are evaluated here, because TileLang reads those of its programs.

import argparse
import itertools
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from common import (
    Clock,
    Ours,
    Results,
    Tensors,
    checked,
    failed_row,
    going_on,
    parser,
    pending,
    searched,
    sets_of,
    sm_clock_mhz,
)
from contest import Run, Side, event, interleaved, time_row
from gemm import SHAPES, plain, reference

TILES = (
    (128, 256, 64, 256), (256, 128, 64, 256), (128, 128, 64, 256), (128, 128, 64, 128),
    (64, 256, 64, 128), (128, 64, 64, 128), (64, 128, 64, 128), (64, 64, 64, 128),
    (128, 192, 64, 256), (64, 64, 128, 128), (64, 32, 128, 128),
)  # fmt: skip
STAGES = (3, 4, 2, 6)
PANELS = (10, 0)
COMPILERS = 14
SHARED = 220 << 10
PEER = "TileLang"
TYPES = {"bf16": "bfloat16", "f16": "float16"}
FINALISTS = 3
WRONG = 1e-2
Choice = tuple[int, ...]


def program(m: int, n: int, k: int, dtype: str, choice: Choice) -> Any:
    """TileLang's GEMM of C = A B^T for one choice of tile, threads, stages and raster."""
    import tilelang.language as T

    rows, columns, depth, threads, stages, panel = choice

    @T.prim_func
    def main(
        A: T.Tensor((m, k), dtype),
        B: T.Tensor((n, k), dtype),
        C: T.Tensor((m, n), dtype),
    ):
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


def choices(m: int) -> list[Choice]:
    """The grid, without what is pointless for few rows or has no room in shared memory."""
    return [
        (*tile, stages, panel)
        for tile, stages, panel in itertools.product(TILES, STAGES, PANELS)
        if (tile[0] <= 64 or m > 64) and stages * (tile[0] + tile[1]) * tile[2] * 2 <= SHARED
        and (not panel or m > 256)
    ]  # fmt: skip


def built(m: int, n: int, k: int, dtype: str, choice: Choice) -> Any:
    import tilelang

    return tilelang.compile(program(m, n, k, dtype, choice), target="cuda")


def all_built(
    shape: tuple[int, int, int], dtype: str, seconds: float
) -> tuple[list[tuple[Choice, Any]], Counter[str]]:
    """Kernels that compiled within the time, and why others did not."""
    wanted, end = choices(shape[0]), time.monotonic() + seconds
    found: list[tuple[Choice, Any]] = []
    problems: Counter[str] = Counter()
    with ThreadPoolExecutor(COMPILERS) as pool:
        futures: list[Future[Any]] = [
            pool.submit(built, *shape, TYPES[dtype], choice) for choice in wanted
        ]
        for choice, future in zip(wanted, futures, strict=True):
            if time.monotonic() > end and future.cancel():
                problems["no time"] += 1
                continue
            try:
                found.append((choice, future.result()))
            except Exception as problem:  # noqa: BLE001 (some of its choices do not compile)
                problems[(str(problem).splitlines() or ["?"])[-1][:160]] += 1
    return found, problems


def quick(runs: Sequence[Run]) -> float:
    """Milliseconds of one run over operand sets in turn."""
    start, end = event(), event()
    runs[0]()
    start.record()
    for number in range(8):
        runs[number % len(runs)]()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 8


def on(kernel: Any, tensors: Tensors) -> Run:
    return lambda: kernel(tensors["A"], tensors["B"], tensors["C"])


def finalists(
    kernels: list[tuple[Choice, Any]], sets: list[Tensors], problems: Counter[str]
) -> list[Side]:
    """The fastest that are right, as sides named by their choices."""
    wanted = reference(sets[0])
    timed = []
    for choice, kernel in kernels:
        runs = [on(kernel, tensors) for tensors in sets]
        try:
            error = checked(runs[0], sets[0]["C"], sets[0], lambda _: wanted)["error"]
            if error < WRONG:
                timed.append((quick(runs), choice, runs))
            else:
                problems["wrong"] += 1
        except Exception as problem:  # noqa: BLE001 (a launch that is refused)
            problems[(str(problem).splitlines() or ["?"])[-1][:160]] += 1
    timed.sort(key=lambda row: row[0])
    return [Side(str(choice), runs) for _, choice, runs in timed[:FINALISTS]]


def measured(name: str, arguments: dict[str, Any], settings: argparse.Namespace, clock: Clock,
             results: Results) -> None:  # fmt: skip
    workload, schedule, _ = searched("matmul", arguments, settings, clock)
    shape = (arguments["m"], arguments["n"], arguments["k"])
    sets = sets_of(workload)
    began = time.monotonic()
    limit = min(settings.compile_seconds, clock.left - 20)
    kernels, problems = all_built(shape, arguments["dtype"], limit)
    theirs = finalists(kernels, sets, problems)
    facts: dict[str, Any] = {
        "choices": len(choices(shape[0])), "compiled": len(kernels), "problems": dict(problems),
        "peer_seconds": round(time.monotonic() - began, 1), "schedule": schedule.as_dict(),
    }  # fmt: skip
    if not theirs:
        results.add(failed_row(name, PEER, problems, **facts))
        return
    ours = Ours(workload, schedule)
    runs = [ours.on(tensors) for tensors in sets]
    facts |= checked(runs[0], sets[0]["C"], sets[0], reference)
    mine = Side("ours", runs)
    library = Side("cuBLAS", [plain(tensors) for tensors in sets])
    interleaved([mine, *theirs, library])
    best = min(theirs, key=lambda side: statistics.median(side.samples))
    facts |= {"choice": best.name, "sm_clock_mhz": sm_clock_mhz()}
    facts["cublas"] = statistics.median(library.samples) * 1e6
    best.name = PEER
    results.add(time_row(name, mine, best, **facts))


def cases() -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = [
        (f"bf16 {m}x{n}x{k}", {"m": m, "n": n, "k": k, "dtype": "bf16", "tb": True})
        for m, n, k in SHAPES
    ]
    for size in (4096, 8192):
        sizes = {"m": size, "n": size, "k": size, "dtype": "f16", "tb": True}
        found.append((f"f16 {size}^3", sizes))
    return found


def options() -> argparse.Namespace:
    words = parser(__doc__ or "")
    words.add_argument("--tilelang", help="a folder with TileLang")
    words.add_argument("--compile-seconds", type=float, default=40.0, help="for one shape")
    settings = words.parse_args()
    settings.compare_only = True
    if settings.tilelang:
        sys.path.insert(0, settings.tilelang)
    return settings


def main() -> None:
    settings = options()
    clock, results = Clock(settings.seconds), Results.at(settings.out)
    if not settings.dry:
        try:
            import tilelang  # noqa: F401
        except Exception as problem:  # noqa: BLE001 (it loads compilers and libraries)
            results.add(failed_row("import", PEER, problem))
            return
    for name, arguments in pending(cases(), settings, results, clock, (PEER,), 70.0):
        with going_on():
            measured(name, arguments, settings, clock, results)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
