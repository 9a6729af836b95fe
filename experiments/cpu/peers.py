"""One contestant in a process of its own: answers JSON lines on standard input with JSON lines.

`python peers.py torch` (numpy, ours): {"operator": ...} prepares, {"seconds": S} times,
{"judge": true} tells the error of what was timed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

THREADS = 2
WARM_SECONDS = 0.15  # threads that the system had put on one processor need so long to part
Run = Callable[[], Any]


def inputs_of(operator: str, arguments: dict[str, Any]) -> tuple[Any, dict[str, np.ndarray]]:
    """The program, and the same random inputs for every contestant."""
    from ir.oracle import random_inputs
    from ir.registry import load_operator

    program = load_operator(operator).build(**arguments)
    return program, random_inputs(program, np.random.default_rng(7))


def plain(array: np.ndarray) -> np.ndarray:
    """A copy in memory as it is had unasked: no contestant has large pages for what it is given."""
    from explorer.runtime.memory import plain_copy

    return plain_copy(array)


class Numpy:
    def prepare(
        self, operator: str, arguments: dict[str, Any], extra: dict[str, Any]
    ) -> Run | None:
        if operator != "matmul" or arguments["dtype"] != "f32":
            return None
        _, data = inputs_of(operator, arguments)
        a, b = plain(data["A"]), plain(data["B"])
        out = plain(np.empty((a.shape[0], b.shape[1]), np.float32))
        return lambda: np.matmul(a, b, out=out)

    def numbers(self, result: Any, operator: str) -> np.ndarray:
        return np.asarray(result)


class Torch:
    def __init__(self) -> None:
        import torch

        torch.set_num_threads(THREADS)
        torch.set_grad_enabled(False)
        self.torch = torch

    def tensor(self, array: np.ndarray, dtype: str) -> Any:
        t = self.torch.from_numpy(np.ascontiguousarray(array)).clone()  # aligned to 64 bytes
        return t.view(self.torch.bfloat16) if dtype == "bf16" else t

    def prepare(
        self, operator: str, arguments: dict[str, Any], extra: dict[str, Any]
    ) -> Run | None:
        program, data = inputs_of(operator, arguments)
        dtypes = {spec.name: spec.dtype for spec in program.inputs}
        tensors = {name: self.tensor(array, dtypes[name]) for name, array in data.items()}
        run: Run = getattr(self, f"_{operator}")(tensors, arguments)
        return run

    def numbers(self, result: Any, operator: str) -> np.ndarray:
        """The result as numpy has it, axes in our order."""
        if operator == "conv2d":
            result = result.permute(0, 2, 3, 1)
        found: np.ndarray = result.double().numpy()
        return found

    def _matmul(self, t: dict[str, Any], arguments: dict[str, Any]) -> Run:
        if arguments["dtype"] == "i8":
            return lambda: self.torch._int_mm(t["A"], t["B"])
        return self._fastest([lambda: t["A"] @ t["B"], self._into(t)])

    def _into(self, t: dict[str, Any]) -> Run:
        """A product that allocates nothing."""
        out = t["A"] @ t["B"]
        return lambda: self.torch.mm(t["A"], t["B"], out=out)

    def _fastest(self, runs: Sequence[Run]) -> Run:
        """The run with the least best of three times, warmed up."""

        def seconds(run: Run) -> float:
            run()
            return min(repeat(run, 0.02, 3))

        return min(runs, key=seconds)

    def _matmul_bias_act(self, t: dict[str, Any], arguments: dict[str, Any]) -> Run:
        gelu = self.torch.nn.functional.gelu
        return lambda: gelu(self.torch.addmm(t["bias"], t["A"], t["B"])) + t["residual"]

    def _gated_mlp(self, t: dict[str, Any], arguments: dict[str, Any]) -> Run:
        silu = self.torch.nn.functional.silu
        return lambda: silu(t["X"] @ t["W1"]) * (t["X"] @ t["W3"])

    def _softmax(self, t: dict[str, Any], arguments: dict[str, Any]) -> Run:
        out = self.torch.empty_like(t["X"])
        return lambda: self.torch.softmax(t["X"], 1, out=out)

    def _layernorm(self, t: dict[str, Any], arguments: dict[str, Any]) -> Run:
        norm, shape = self.torch.nn.functional.layer_norm, t["gamma"].shape
        return lambda: norm(t["X"], shape, t["gamma"], t["beta"])

    def _rmsnorm(self, t: dict[str, Any], arguments: dict[str, Any]) -> Run:
        norm, shape = self.torch.nn.functional.rms_norm, t["gamma"].shape
        return lambda: norm(t["X"], shape, t["gamma"])

    def _attention(self, t: dict[str, Any], arguments: dict[str, Any]) -> Run:
        attend = self.torch.nn.functional.scaled_dot_product_attention
        return lambda: attend(t["Q"], t["K"], t["V"], is_causal=arguments["causal"])

    def _gaussian(self, t: dict[str, Any], arguments: dict[str, Any]) -> Run:
        """Chunks of rows, |x|^2 + |y|^2 - 2 x.y by one matmul each; the fastest of four sizes."""
        x, y, v = t["x"], t["y"], t["v"]
        scale = -0.5 / arguments["d"]  # the operator's default s^2 is d

        def chunked(rows: int) -> Run:
            def run() -> Any:
                parts, squares = [], (y * y).sum(1)
                for start in range(0, x.shape[0], rows):
                    block = x[start : start + rows]
                    norms = (block * block).sum(1)
                    distance = self.torch.addmm(squares, block, y.T, alpha=-2.0)
                    distance.add_(norms[:, None]).mul_(scale).exp_()
                    parts.append(distance @ v)
                return self.torch.cat(parts)

            return run

        return self._fastest([chunked(rows) for rows in (64, 256, 1024, 4096)])

    def _conv2d(self, t: dict[str, Any], arguments: dict[str, Any]) -> Run:
        last = self.torch.channels_last
        x = t["X"].permute(0, 3, 1, 2).contiguous(memory_format=last)
        w = t["W"].permute(3, 2, 0, 1).contiguous(memory_format=last)
        return lambda: self.torch.nn.functional.conv2d(x, w, padding=arguments["padding"])


class Ours:
    """The module that the schedule is exported as, called on arrays as callers have them."""

    def prepare(
        self, operator: str, arguments: dict[str, Any], extra: dict[str, Any]
    ) -> Run | None:
        from explorer.winner import Winner
        from explorer.workload import Workload
        from ir.schedule import Schedule

        program, data = inputs_of(operator, arguments)
        workload = Workload.of(operator, arguments, threads=THREADS)
        schedule = Schedule.from_json(extra["schedule"])
        call = Winner(workload, schedule, 1.0, checked=True)
        arrays = [plain(data[spec.name]) for spec in program.inputs]
        self.output: Any = None

        def run() -> Any:
            self.output = call(*arrays)
            return self.output

        return run


def judged(contestant: Any, run: Run, request: dict[str, Any]) -> dict[str, float]:
    """Largest absolute error against float64 along three places of one axis, and the scale there.

    Of our kernel, it is what the timed runs left behind that is judged.
    """
    from ir.dtypes import to_float
    from ir.oracle import evaluate

    program, data = inputs_of(request["operator"], request["arguments"])
    _, store = next(iter(program.stores()))
    shape = program.outputs[0].shape
    place = next((number for number, extent in enumerate(shape) if extent >= 3), 0)
    at = np.unique([0, (shape[place] - 1) // 2, shape[place] - 1])
    expected = evaluate(program, data, {store.axes[place]: at})[store.tensor]
    if isinstance(contestant, Ours):
        left = contestant.output[0] if isinstance(contestant.output, tuple) else contestant.output
        result = to_float(np.asarray(left), program.outputs[0].dtype)
    else:
        result = contestant.numbers(run(), request["operator"])
    found = np.asarray(np.take(result, at, axis=place), np.float64)
    if found.shape != expected.shape:
        raise ValueError(f"the result is {found.shape}, not {expected.shape}")
    error = np.abs(found - expected)
    worst = float(error.max()) if np.isfinite(error).all() else 1e300
    return {"error": worst, "scale": float(np.abs(expected).max())}


def repeat(run: Run, seconds: float, most: int = 200) -> list[float]:
    """Times of runs for at least `seconds`; at least one, at most `most`."""
    samples: list[float] = []
    until = time.perf_counter() + seconds
    while not samples or (time.perf_counter() < until and len(samples) < most):
        began = time.perf_counter()
        run()
        samples.append(time.perf_counter() - began)
    return samples


def serve(name: str) -> None:
    contestant: Any = {"torch": Torch, "numpy": Numpy, "ours": Ours}[name]()
    run: Run | None = None
    prepared: dict[str, Any] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if "operator" in request:
            prepared = request
            run = contestant.prepare(request["operator"], request["arguments"], request)
            answer: dict[str, Any] = {"ready": run is not None}
            if run is not None:
                run()
        elif "judge" in request:
            assert run is not None
            answer = judged(contestant, run, prepared)
        else:
            assert run is not None
            repeat(run, WARM_SECONDS)
            answer = {"seconds": repeat(run, request["seconds"])}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
