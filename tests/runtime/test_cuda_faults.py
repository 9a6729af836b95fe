"""Whatever a CUDA kernel does, the outcome is typed and the next candidate is measured right."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer.measure import Measurer
from explorer.runtime import cuda_launch, nvrtc
from explorer.runtime.cuda import CudaRuntime
from explorer.runtime.workers import Timing
from ir.errors import MissingTarget
from tests.emulator.emulate import compiler, emulate
from tests.runtime import cuda_kernels
from tests.runtime.fake_cuda_backend import EXTENT, FAULTS, HARDWARE, PROGRAM, kernel, schedule
from tests.targets.cuda_cases import BACKEND, built, drawn

PLACE = "tests.runtime.fake_cuda_backend:FakeCudaBackend"
COMPILED = (
    "good",
    "hang",
    *(what for what, status, _ in FAULTS if status in ("crash", "unstable")),
)


def missing(prepare: Any) -> str:
    try:
        prepare()
    except MissingTarget as problem:
        return str(problem)
    return ""


NO_GPU, NO_NVRTC = missing(CudaRuntime().prepare), missing(nvrtc.version)
needs_nvrtc = pytest.mark.skipif(bool(NO_NVRTC), reason=NO_NVRTC or "-")
needs_gpu = pytest.mark.skipif(bool(NO_GPU), reason=NO_GPU or "-")


# -- without a GPU


@needs_nvrtc
@pytest.mark.parametrize("what", COMPILED)
def test_bad_kernels_compile(what: str) -> None:
    code, resources = nvrtc.compile_text(kernel(what).text("cuda"), "sm_90a")
    assert code
    assert resources.registers


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize(
    ("what", "right", "words"),
    [
        ("good", EXTENT, ""),
        ("wrong", 0, ""),
        ("untouched", EXTENT - 7, ""),
        ("fault", 0, "leaves its memory"),
        ("too_many_threads", 0, "2048 threads"),
        ("too_much_shared", 0, "307200 bytes of shared memory"),
    ],
)
def test_the_emulator_sees_what_a_device_sees(what: str, right: int, words: str) -> None:
    made = kernel(what)
    values = np.random.default_rng(0).standard_normal(EXTENT, dtype=np.float32)
    arrays = {"A": values, "O": np.zeros_like(values)}
    run = emulate(made.text("cuda"), made.text("launch"), arrays, limit=10)
    assert np.count_nonzero(arrays["O"] == 2 * values) == right
    assert bool(run.faults) == bool(words)
    assert words in " ".join(run.faults)


# -- on a GPU


def make(cache: Path, deadline: float = 20.0) -> Measurer:
    return Measurer(
        PROGRAM,
        PLACE,
        HARDWARE,
        cache_dir=cache,
        deadline_s=deadline,
        runtime="cuda",
        compilers=2,
        timing=Timing(budget=0.01),
    )


@pytest.fixture(scope="module")
def measurer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measurer]:
    with make(tmp_path_factory.mktemp("cache")) as measurer:
        yield measurer


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(("what", "status", "words"), FAULTS)
def test_a_fault_is_a_typed_outcome(measurer: Measurer, what: str, status: str, words: str) -> None:
    measurer.best = None
    measurer.kernels = {}
    broken, good = measurer.measure([schedule(what), schedule("good")])
    assert (broken.status, words in broken.detail) == (status, True), broken
    assert "\n" not in broken.detail
    assert good.ok, good


@pytest.mark.gpu
@needs_gpu
def test_a_hanging_kernel_ends_at_its_deadline(tmp_path: Path) -> None:
    with make(tmp_path, deadline=8.0) as measurer:
        assert next(measurer.measure([schedule("good")])).ok
        start = time.monotonic()
        hung, good = measurer.measure([schedule("hang"), schedule("good", 1)])
    assert hung.status == "timeout", hung
    assert good.ok, good
    assert time.monotonic() - start < 30


@pytest.mark.gpu
@needs_gpu
def test_good_kernels_are_measured(measurer: Measurer) -> None:
    measurer.best = None
    first, second = measurer.compete([schedule("good"), schedule("good", 1)], rounds=3)
    for outcome in (first, second):
        assert outcome.ok, outcome
        assert outcome.seconds is not None
        assert outcome.quartiles is not None
        assert outcome.quartiles[0] <= outcome.seconds <= outcome.quartiles[1]
        assert 2e-7 < outcome.seconds < 1e-4


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("matmul", {"m": 520, "n": 264, "k": 1024, "dtype": "bf16", "tb": True}),
        ("attention", {"b": 1, "heads": 4, "sq": 300, "d": 64, "dtype": "bf16", "causal": True}),
        ("softmax", {"m": 100, "n": 1000, "dtype": "bf16"}),
    ],
)
def test_drawn_schedules_are_right(name: str, arguments: dict[str, Any], tmp_path: Path) -> None:
    program, hardware = built(name, arguments), BACKEND.hardware()
    with Measurer(program, "cuda", hardware, cache_dir=tmp_path, deadline_s=60.0) as measurer:
        for outcome in measurer.measure(drawn(program, 1, 4, 20)):
            assert outcome.ok, outcome


@pytest.mark.gpu
@needs_gpu
def test_tensor_maps_workspace_and_several_launches(tmp_path: Path) -> None:
    """Partial boxes at the ends, a counter that is cleared before each run, two outputs."""
    runtime, rng = CudaRuntime(), np.random.default_rng(0)
    binary = runtime.compile(cuda_kernels.copied(), tmp_path)
    values = rng.standard_normal((40, 100), dtype=np.float32)
    arrays = [runtime.place(values), runtime.empty((40, 100), "f32"), runtime.empty((1,), "i32")]
    launch = runtime.load(binary).bind(arrays)
    for times in (1, 1, 5):
        runtime.poison(arrays[1], "f32")
        launch(times)
        assert np.array_equal(runtime.fetch(arrays[1]), values)
        assert runtime.fetch(arrays[2]).tolist() == [12]


@pytest.mark.gpu
@needs_gpu
def test_graphs_take_what_plain_launches_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime, program = CudaRuntime(), built("softmax", {"m": 8192, "n": 4096, "dtype": "bf16"})
    made = BACKEND.lower(program, drawn(program, 0, 1, 0)[0], BACKEND.hardware())
    loaded = runtime.load(runtime.compile(made, tmp_path))
    arrays = [runtime.empty((8192, 4096), "bf16") for _ in range(2)]
    runtime.put(arrays[0], np.zeros((8192, 4096), np.uint16))
    seconds = []
    for below in (0.0, 1.0):
        monkeypatch.setattr(cuda_launch, "_GRAPH_BELOW", below)
        launch = loaded.bind(arrays)
        launch()
        seconds.append(min(launch(48) / 48 for _ in range(3)))
    assert max(seconds) < 1.3 * min(seconds), seconds
