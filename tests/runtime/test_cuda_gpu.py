"""The CUDA runtime on a GPU: loading, timing, judging; kernels that fault or hang."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer.check import Bounds
from explorer.runtime.cuda import CudaRuntime
from explorer.runtime.process import Answer, Died, Worker, process_server
from ir.errors import MissingTarget
from ir.kernel import Argument, Kernel
from ir.oracle import random_inputs
from tests.judging import bounds_of, exactly
from tests.targets.cuda_cases import BACKEND, HARDWARE, built

try:
    CudaRuntime().prepare()
    MISSING = ""
except MissingTarget as missing:
    MISSING = str(missing)

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(MISSING), reason=MISSING or "-")]
WORDS = 1 << 26


def hand_made(body: str, shared: int = 0, outputs: int = WORDS) -> Kernel:
    """A kernel `k(const float* A, float* C)` of 1024 blocks of 256 threads."""
    source = (
        'extern "C" __global__ void __launch_bounds__(256) k(const float* A, float* C) {\n'
        "  extern __shared__ float room[];\n  long i = blockIdx.x * 256l + threadIdx.x;\n"
        f"{body}\n}}\n"
    )
    parameters = [{"kind": "pointer", "argument": name, "offset": 0} for name in "AC"]
    one = {"name": "k", "grid": [1024, 1, 1], "block": 256, "cluster": [1, 1, 1], "shared": shared}
    plan = {"arch": "sm_90a", "options": [], "workspace_bytes": 0,
            "kernels": [{**one, "parameters": parameters, "zero": []}]}  # fmt: skip
    arguments = (
        Argument("A", (WORDS,), "f32", "input"),
        Argument("C", (outputs,), "f32", "output"),
    )
    texts = (("cuda", source), ("launch", json.dumps(plan)))
    return Kernel("k", "cuda", arguments, texts, "k", 0)


COPY = f"  for (; i < {WORDS}; i += 1024 * 256) C[i] = A[i];"
FAULT = "  C[i + (1l << 40)] = A[i];"
HANG = "  while (((volatile const float*)A)[0] != 12345.0f) {}"


def test_a_copy_takes_what_copies_take(tmp_path: Path) -> None:
    runtime = CudaRuntime()
    kernel = runtime.load(runtime.compile(hand_made(COPY), tmp_path))
    values = np.random.default_rng(0).standard_normal(WORDS, dtype=np.float32)
    source, target = runtime.place(values), runtime.empty((WORDS,), "f32")
    launch = kernel.bind([source, target])
    launch()
    assert np.array_equal(runtime.fetch(target), values)
    seconds = launch(20) / 20
    assert 8 * WORDS / 6e12 < seconds < 8 * WORDS / 2e11


def test_much_shared_memory(tmp_path: Path) -> None:
    body = "  room[threadIdx.x + 40000] = A[0]; __syncthreads();\n" + COPY.replace(
        "A[i]", "room[(threadIdx.x ^ 1) + 40000]"
    )
    runtime = CudaRuntime()
    kernel = runtime.load(runtime.compile(hand_made(body, 200 << 10), tmp_path))
    source = runtime.place(np.full(WORDS, 3.0, np.float32))
    target = runtime.empty((WORDS,), "f32")
    kernel.bind([source, target])()
    assert np.all(runtime.fetch(target) == 3.0)


def on_device(bounds: Bounds) -> Bounds:
    """The same bounds where outputs of kernels are."""
    place = CudaRuntime().place
    return replace(bounds, low=place(bounds.low), high=place(bounds.high))


def test_judging_on_the_device() -> None:
    runtime = CudaRuntime()
    wanted = np.random.default_rng(1).standard_normal((300, 200))
    bounds = on_device(exactly(wanted, "f32"))
    array = runtime.empty((300, 200), "f32")
    runtime.poison(array, "f32")
    assert "60000 never written" in runtime.judge(bounds, array).detail
    runtime.put(array, wanted.astype(np.float32))
    assert runtime.judge(bounds, array).right
    wrong = wanted.astype(np.float32)
    wrong[7, 5] += 1
    runtime.put(array, wrong)
    assert "[7, 5]" in runtime.judge(bounds, array).detail


def test_arrays_of_torch_are_bound_in_place(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    runtime = CudaRuntime()
    kernel = runtime.load(runtime.compile(hand_made(COPY), tmp_path))
    source = torch.randn(WORDS, device="cuda")
    target = torch.empty_like(source)
    torch.cuda.synchronize()
    kernel.bind([source, target])()
    assert torch.equal(source, target)


OPERATORS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("matmul", {"m": 300, "n": 520, "k": 264, "dtype": "bf16", "tb": True}),
    ("matmul", {"m": 64, "n": 256, "k": 4096, "dtype": "f16"}),
    ("scaled_matmul", {"m": 128, "n": 256, "k": 512}),
    ("gated_mlp", {"m": 128, "n": 264, "k": 256, "dtype": "bf16"}),
    ("attention", {"b": 2, "heads": 4, "sq": 300, "d": 64, "dtype": "bf16", "causal": True}),
    ("layernorm", {"m": 100, "n": 1000, "dtype": "bf16"}),
    ("column_sum", {"m": 1000, "n": 200}),
    ("conv2d", {"n": 2, "h": 16, "w": 16, "c": 64, "f": 64, "padding": 1, "dtype": "bf16"}),
)


@pytest.mark.parametrize(("name", "arguments"), OPERATORS)
def test_seeds_are_right(name: str, arguments: dict[str, Any], tmp_path: Path) -> None:
    runtime, program = CudaRuntime(), built(name, arguments)
    rng = np.random.default_rng(2)
    inputs = random_inputs(program, rng)
    wanted = {name: on_device(b) for name, b in bounds_of(program, inputs).items()}
    placed = {key: runtime.place(value) for key, value in inputs.items()}
    space = BACKEND.space(program, HARDWARE)
    for row in space.seed_rows(rng):
        kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
        binary = runtime.compile(kernel, tmp_path)
        outputs = {s.name: runtime.empty(s.shape, s.dtype) for s in program.outputs}
        for spec in program.outputs:
            runtime.poison(outputs[spec.name], spec.dtype)
        operands = [(placed | outputs)[argument.name] for argument in binary.operands]
        runtime.load(binary).bind(operands)()
        for name, bounds in wanted.items():
            verdict = runtime.judge(bounds, outputs[name])
            assert verdict.right, (verdict.detail, space.schedule(row).to_json())


@pytest.mark.parametrize(("body", "status"), [(FAULT, "crash"), (HANG, "timeout")])
def test_a_bad_kernel_takes_only_its_worker_along(body: str, status: str, tmp_path: Path) -> None:
    server = process_server("cuda", tmp_path)
    worker = Worker(server, "explorer.runtime.workers:Runner", "cuda", tmp_path)
    arrays = [np.ones(WORDS, np.float32), np.zeros(WORDS, np.float32)]
    try:
        reply = worker.ask(20.0, "run", hand_made(body), arrays)
        assert isinstance(reply, Died)
        assert reply.status == status
        again = worker.ask(60.0, "run", hand_made(COPY), arrays)
        assert isinstance(again, Answer)
        assert np.array_equal(again.value[1][0], arrays[0])
    finally:
        worker.close()
