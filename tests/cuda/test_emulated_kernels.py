"""Right kernels are right in every completion order, and nothing is said against them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cuda import kernels
from tests.cuda.run import Arrays, gemm_arrays, in_modes, needs_compiler, small
from tests.emulator.emulate import MODES, CompileError, emulate, make_room
from tests.layout.patterns import decode

pytestmark = needs_compiler


def test_there_are_sixteen_modes() -> None:
    assert len({mode.bits for mode in MODES}) == 16


def test_vector_add() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(2048).astype(np.float32) for _ in range(2))
    arrays = {"a": a, "b": b, "c": np.zeros_like(a)}
    for mode, run in in_modes(kernels.VECTOR_ADD, kernels.vector_add_plan(4), arrays):
        assert run.faults == (), mode
        np.testing.assert_array_equal(run.outputs["c"], a + b)


@pytest.mark.parametrize(
    ("m", "n", "k", "bm", "bn", "cluster", "clusters"),
    [
        (512, 512, 256, 128, 256, 2, 1),
        (256, 256, 256, 128, 128, 2, 2),
        (256, 128, 192, 64, 64, 2, 1),
        (256, 128, 192, 128, 64, 1, 2),
        (512, 64, 128, 64, 64, 4, 1),
    ],
)
@pytest.mark.alike(2)
def test_pipelined_gemm(
    m: int, n: int, k: int, bm: int, bn: int, cluster: int, clusters: int
) -> None:
    """Persistent blocks run several tiles: phases and slots carry over."""
    source = kernels.gemm(m, n, k, bm, bn, cluster=cluster)
    plan = kernels.gemm_plan(m, n, k, bm, bn, cluster=cluster, clusters=clusters)
    arrays, wanted = gemm_arrays(m, n, k)
    for mode, run in in_modes(source, plan, arrays):
        assert run.faults == (), mode
        np.testing.assert_array_equal(run.outputs["c"], wanted)


def test_mma_gemm() -> None:
    rng = np.random.default_rng(1)
    m, n, k = 128, 64, 160
    a, b = small(rng, (m, k)), small(rng, (k, n))
    arrays = {"a": a, "b": b, "c": np.zeros((m, n), np.float32)}
    for mode, run in in_modes(kernels.mma_gemm(m, n, k), kernels.mma_gemm_plan(m, n), arrays):
        assert run.faults == (), mode
        np.testing.assert_array_equal(run.outputs["c"], decode(a, "bf16") @ decode(b, "bf16"))


def test_box_copy_fills_with_zero() -> None:
    source = np.arange(1, 49 * 40 + 1, dtype=np.float32).reshape(49, 40)
    record = kernels.tensor_map("source", "f32", (40, 49), (160,), (32, 16), 128)
    plan = kernels.box_copy_plan(record, 2048)
    arrays: Arrays = {
        "source": source,
        "at": np.array([20, 40], np.int32),
        "to": np.zeros(2048, np.uint8),
    }
    rows, chunks = np.arange(16)[:, None], np.arange(8)[None, :]
    for mode, run in in_modes(kernels.box_copy(2, 2048, 2048), plan, arrays):
        assert run.faults == (), mode
        lines = run.outputs["to"].view(np.float32).reshape(16, 8, 4)
        box = lines[rows, chunks ^ rows % 8].reshape(16, 32)
        np.testing.assert_array_equal(box[:9, :20], source[40:, 20:])
        assert not box[9:].any()
        assert not box[:, 20:].any()


def test_a_text_with_the_device_prelude_is_the_same() -> None:
    a = np.ones(512, np.float32)
    arrays = {"a": a, "b": a, "c": np.zeros_like(a)}
    source = f"asm of the device\n//@ kernel\n{kernels.VECTOR_ADD}"
    run = emulate(source, kernels.vector_add_plan(1), arrays)
    assert run.faults == ()
    assert run.outputs["c"].tolist() == [2.0] * 512


def test_workspace_is_poisoned_then_cleared_where_the_plan_says() -> None:
    text = """
TW_KERNEL peek(const u32* scratch, u32* out) {
  if (tw_thread() < 8) tw_store_4(out + tw_thread(), tw_load_4(scratch + tw_thread()));
}
"""
    plan = kernels.plan("peek", [kernels.pointer("workspace"), kernels.pointer("out")])
    plan["workspace_bytes"] = 64
    plan["kernels"][0]["zero"] = [[8, 8]]
    run = emulate(text, plan, {"out": np.zeros(8, np.uint32)})
    poison = 0xFFFFFFFF
    assert run.outputs["out"].tolist() == [poison, poison, 0, 0, *[poison] * 4]


def test_a_text_that_is_no_cpp_is_refused_with_the_compilers_words() -> None:
    with pytest.raises(CompileError, match="error"):
        emulate("TW_KERNEL broken() { nonsense; }", kernels.plan("broken", []), {})


def test_room_is_made_beside_another_process_that_makes_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel may be gone between being listed and being looked at, as a dangling link is."""
    monkeypatch.setattr("tests.emulator.emulate.KEPT", 2)
    (tmp_path / "kernel-a.so").symlink_to(tmp_path / "gone")
    (tmp_path / "kernel-b.so").touch()
    make_room(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kernel-b.so"]
