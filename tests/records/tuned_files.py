"""Small result files as other tuners write them, made by hand: one kernel, two parameters."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

CARD = "NVIDIA GeForce RTX 3090"
KERNEL = "gemm_kernel"
WIDTHS, ROWS = (16, 32, 64), (1, 2, 4)
BEST = {"block_size_x": 32, "rows": 2}


def milliseconds(width: int, rows: int) -> float:
    """Of the configuration; the best is 32 by 2, which takes one."""
    return 1.0 + abs(width - 32) / 16 + abs(rows - 2)


def t4(unit: str = "milliseconds", factor: float = 1.0, **metadata: Any) -> dict[str, Any]:
    """All configurations but one, which failed to compile."""
    results = [
        _t4_result({"block_size_x": w, "rows": r}, milliseconds(w, r) * factor)
        for w in WIDTHS
        for r in ROWS
    ]
    results[-1] |= {"invalidity": "compile", "correctness": 0, "times": {}, "measurements": []}
    return {
        "schema_version": "1.0.0",
        "metadata": {"timeunit": unit} | metadata,
        "results": results,
    }


def _t4_result(configuration: dict[str, Any], time: float) -> dict[str, Any]:
    return {
        "timestamp": "2024-04-20 16:03:33+00:00",
        "configuration": configuration,
        "times": {"runtimes": [time], "compilation_time": 400.0},
        "invalidity": "correct",
        "correctness": 1,
        "measurements": [{"name": "time", "value": time, "unit": ""}],
        "objectives": ["time"],
    }


def kernel_tuner(**changes: Any) -> dict[str, Any]:
    """A cache of schema 1.1 with a failure of every kind."""
    failures = {(64, 4): "CompilationFailedConfig", (64, 1): "RuntimeFailedConfig"}
    failures |= {(16, 4): "InvalidConfig"}
    cache = {}
    for width in WIDTHS:
        for rows in ROWS:
            time = milliseconds(width, rows)
            cache[f"{width},{rows}"] = {
                "block_size_x": width,
                "rows": rows,
                "time": failures.get((width, rows), time),
                "times": [] if (width, rows) in failures else [time, time, 9 * time],
                "compile_time": 400.0,
                "verification_time": 0,
                "benchmark_time": 1.0,
                "strategy_time": 0,
                "framework_time": 1.0,
                "timestamp": "2024-04-20 16:03:33.502007+00:00",
            }
    return {
        "schema_version": "1.1.0",
        "device_name": CARD,
        "kernel_name": KERNEL,
        "problem_size": [4096, 4096],
        "tune_params_keys": ["block_size_x", "rows"],
        "tune_params": {"block_size_x": list(WIDTHS), "rows": list(ROWS)},
        "objective": "time",
        "cache": cache,
    } | changes


def ktt(unit: str = "Microseconds", factor: float = 1e3, kernel: str = KERNEL) -> dict[str, Any]:
    """Results of KTT with a failure of every kind that it tells."""
    failures = {(64, 4): "CompilationFailed", (64, 1): "ComputationFailed"}
    failures |= {(16, 4): "ValidationFailed", (64, 2): "DeviceLimitsExceeded"}
    return {
        "Metadata": {
            "ComputeApi": "CUDA", "Device": CARD, "KttVersion": "2.1.0",
            "TimeUnit": unit, "Timestamp": "2024-04-20 16:03:33 UTC",
        },
        "Results": [
            {
                "KernelName": kernel,
                "Status": failures.get((width, rows), "Ok"),
                "TotalDuration": 0.0
                if (width, rows) in failures
                else milliseconds(width, rows) * factor,
                "ComputationResults": [],
                "Configuration": [
                    {"Name": "block_size_x", "Value": width, "ValueType": "UnsignedInt"},
                    {"Name": "rows", "Value": rows, "ValueType": "UnsignedInt"},
                ],
            }
            for width in WIDTHS
            for rows in ROWS
        ],
    }  # fmt: skip


def write(path: Path, data: dict[str, Any]) -> Path:
    """As JSON, packed if the name says so."""
    text = json.dumps(data).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path
