"""Every seeded mistake is caught: by a fault, in all modes or in those where it can show."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cuda import kernels
from tests.cuda.run import Arrays, gemm_arrays, in_modes, needs_compiler
from tests.emulator.emulate import MODES, emulate

pytestmark = needs_compiler
SIZES = (512, 256, 256, 128, 256)
REGISTERS = 168
RELEASE = "if (k > 0 && thread < CLUSTER) tw_barrier_arrive_at(empty + 8 * previous, thread);"
RELEASE_LAST = "      if (thread < CLUSTER) tw_barrier_arrive_at(empty + 8 * previous, thread);\n"
RETIRE = f"tw_wgmma_wait<1>();\n        {RELEASE}"
READ_WAIT = "if (thread == 0) tw_store_wait_read<0>();\n"
SYNC = "      tw_group_sync(group, 128);\n"

GEMM_BUGS: dict[str, tuple[dict[str, str], str, int]] = {
    # what is edited, words of the fault, modes of 16 that must catch it
    "wrong parity": (
        {"stage = 0, parity = 1;": "stage = 0, parity = 0;"},
        "deadlock: cta 0 warp 0, cta 1 warp 0 in tw_barrier_wait_cluster(barrier at shared byte "
        "213016, parity 0)",
        16,
    ),
    "fewer bytes expected": ({"STAGE_BYTES);": "STAGE_BYTES - 128);"}, "-128 bytes to come", 16),
    "only A expected": (
        {"(barrier, STAGE_BYTES)": "(barrier, A_BYTES)"},
        "that an unfinished copy writes",
        8,
    ),
    "no proxy fence": (
        {"      tw_fence_async();\n": ""},
        "tw_tma_store_2d: reads shared memory written without tw_fence_async",
        16,
    ),
    "slot released early": (
        {RETIRE: RELEASE.replace("k > 0 && ", "").replace("previous", "stage"), RELEASE_LAST: ""},
        "overwrites shared memory that an unfinished wgmma or bulk store reads",
        8,
    ),
    "no barrier before staging is reused": (
        {READ_WAIT + SYNC: READ_WAIT},
        "tw_stmatrix_x4: overwrites shared memory that an unfinished wgmma or bulk store reads",
        8,
    ),
    "no read wait before staging is reused": (
        {READ_WAIT: ""},
        "tw_stmatrix_x4: overwrites shared memory that an unfinished wgmma or bulk store reads",
        16,
    ),
    "no barrier before the store": (
        {SYNC + "      if (thread == 0) {": "      if (thread == 0) {"},
        "tw_tma_store_2d: reads shared memory written without tw_fence_async",
        8,
    ),
    "no final wait": (
        {"    if (thread == 0) tw_store_wait<0>();\n": ""},
        "exit: bulk stores not waited for",
        16,
    ),
    "register pool too small": (
        {"tw_registers_up<232>": "tw_registers_up<240>"},
        "tw_registers_up<240>: needs 2304 registers of a pool that has 256",
        16,
    ),
    "data read before it landed": (
        {"        tw_barrier_wait(full + 8 * stage, parity);\n": ""},
        "reads shared memory that an unfinished copy writes",
        2,
    ),
    "a peer may have left": (
        {"  }\n  tw_cluster_sync();\n}": "  }\n}"},
        "has left the kernel",
        16,
    ),
    "a peer may not have begun": (
        {"  tw_cluster_sync();\n  if (group": "  tw_sync();\n  if (group"},
        "no mbarrier was initialised",
        16,
    ),
    "no wgmma fence": ({"        tw_wgmma_fence();\n": ""}, "no tw_wgmma_fence", 16),
    "no commit": ({"        tw_wgmma_commit();\n": ""}, "exit: wgmma without", 16),
    "barriers not fenced": (
        {"    tw_fence_barrier_init();\n": ""},
        "lacks tw_fence_barrier_init",
        16,
    ),
    "groups disagree on a barrier's threads": (
        {"tw_fence_async();\n" + SYNC: "tw_fence_async();\n" + SYNC.replace("128", "96")},
        "tw_group_sync",
        16,
    ),
}


def edited(source: str, edits: dict[str, str]) -> str:
    for old, new in edits.items():
        assert old in source, old
        source = source.replace(old, new)
    return source


@pytest.mark.parametrize("name", GEMM_BUGS)
@pytest.mark.alike(2)
def test_a_seeded_bug_is_caught(name: str) -> None:
    edits, words, modes = GEMM_BUGS[name]
    source, plan = edited(kernels.gemm(*SIZES), edits), kernels.gemm_plan(*SIZES)
    arrays, _ = gemm_arrays(*SIZES[:3])
    found = [run.faults for _, run in in_modes(source, plan, arrays, REGISTERS)]
    told = [faults for faults in found if any(words in fault for fault in faults)]
    assert len(told) >= modes, found[0]


def test_the_unedited_kernel_has_no_fault_with_the_same_registers() -> None:
    arrays, _ = gemm_arrays(*SIZES[:3])
    runs = in_modes(kernels.gemm(*SIZES), kernels.gemm_plan(*SIZES), arrays, REGISTERS)
    assert {run.faults for _, run in runs} == {()}


def one(
    body: str, arrays: Arrays | None = None, *, block: int = 64, shared: int = 4096
) -> tuple[str, ...]:
    """Faults of a kernel `one(in, out)` with this body, joined over two orders."""
    given = {"in": np.zeros(256, np.uint32), "out": np.zeros(256, np.uint32)} | (arrays or {})
    text = f"TW_KERNEL one(const u32* in, u32* out) {{\n{body}\n}}\n"
    parameters = [kernels.pointer("in"), kernels.pointer("out")]
    plan = kernels.plan("one", parameters, block=block, shared=shared)
    runs = [emulate(text, plan, given, mode=mode) for mode in (MODES[0], MODES[-1])]
    return tuple(fault for run in runs for fault in run.faults)


BASE = "const u32 base = tw_shared_address(tw_shared_base()); const i32 t = tw_thread();\n"
INIT = BASE + "if (t == 0) tw_barrier_init(base, 1); tw_sync();\n"
SMALL_BUGS: dict[str, tuple[str, str]] = {
    "store past the end": (
        "tw_store_4(out + 193 + tw_thread(), 1);",
        "tw_store_4: out of bounds, byte 1024 from the start of out",
    ),
    "store half past the end": (
        "tw_store_16(out + 255, tw_vec16{});",
        "tw_store_16: 16 bytes at byte 1020 of out leave its 1024 bytes",
    ),
    "load before the start": (
        "tw_store_4(out, tw_load_4(in - 1));",
        "tw_load_4: out of bounds, byte -4 from the start of in",
    ),
    "misaligned vector": (
        "tw_load_16(in + 1);",
        "tw_load_16: misaligned, byte 4 of in is no multiple of 16",
    ),
    "shared store past the end": (
        BASE + "tw_store_shared_4(base + 4096, 0);",
        "tw_store_shared_4: 4 bytes at shared byte 4096 leave the 4096 there are",
    ),
    "misaligned shared load": (
        BASE + "tw_load_shared_16(base + 8);",
        "tw_load_shared_16: misaligned, shared byte 8",
    ),
    "read of what another thread wrote, without a barrier": (
        BASE + "tw_store_shared_4(base + 4 * t, 1); tw_load_shared_4(base + 4 * (63 - t));",
        "a race, no barrier is between it and what thread",
    ),
    "write of what another thread reads, without a barrier": (
        BASE + "tw_load_shared_4(base + 4 * (63 - t)); tw_store_shared_4(base + 4 * t, 1);",
        "a race, no barrier is between it and what",
    ),
    "copy to where another thread copied before, without a barrier": (
        BASE + "tw_copy_async_4(base + 4 * t, in + t, 4); tw_copy_async_commit();"
        "tw_copy_async_wait<0>(); tw_load_shared_4(base + 4 * t);"
        "tw_copy_async_4(base + 4 * (63 - t), in, 4); tw_copy_async_commit();"
        "tw_copy_async_wait<0>();",
        "tw_copy_async_4: a race",
    ),
    "divergent shuffle": (
        "if (tw_thread() % 32 < 16) tw_store_4(out, tw_bits(tw_shuffle_f32(1, 1)));",
        "while lanes 0xffff of the warp are in tw_shuffle_f32",
    ),
    "lanes in two wrappers": (
        "if (tw_thread() % 32 < 16) tw_shuffle_f32(1, 1); else tw_shuffle_i32(1, 1);",
        "divergent warp",
    ),
    "barrier not initialised": (
        BASE + "tw_barrier_wait(base, 0);",
        "tw_barrier_wait: no mbarrier was initialised at shared byte 0",
    ),
    "barrier overwritten": (
        INIT + "if (t == 1) tw_store_shared_4(base, 0);",
        "tw_store_shared_4: overwrites the mbarrier at shared byte 0",
    ),
    "barrier overwritten through a pointer": (
        INIT + "if (t == 1) { tw_shared_base()[3] = 1; tw_barrier_arrive(base); }",
        "the mbarrier at shared byte 0 was overwritten",
    ),
    "too many arrivals": (
        INIT + "if (t == 0) tw_barrier_expect(base, 16); tw_sync(); tw_barrier_arrive(base);",
        "more arrivals at the mbarrier at shared byte 0 than its count of 1",
    ),
    "cp.async read before its wait": (
        BASE + "tw_copy_async_16(base + 16 * t, in, 16); tw_copy_async_commit();"
        "tw_load_shared_16(base + 16 * t); tw_copy_async_wait<0>();",
        "tw_load_shared_16: reads shared memory that an unfinished copy writes",
    ),
    "cp.async not waited for": (
        BASE + "tw_copy_async_16(base + 16 * t, in, 16); tw_copy_async_commit();",
        "exit: cp.async not waited for",
    ),
    "pointer far away": (
        "tw_shared_base()[300000] = 1;",
        "crash: an ordinary pointer leaves its memory (300000 bytes from",
    ),
    "endless reading": (
        "while (tw_load_4(in) == 0) {}",
        "time limit",
    ),
    "endless computing": (
        "for (volatile int i = 0; i >= 0; i = 0) {}",
        "time limit of 0.2 s is over between two wrappers",
    ),
    "division by zero": ("tw_store_4(out, 7 / (tw_thread() / 1024));", "integer division by zero"),
    "endless recursion": (
        "struct Deep { static int f(volatile int* x) { volatile int y[64]; y[5] = *x + 1;"
        " return f(y + 5) + y[5]; } }; volatile int z = 0; tw_store_4(out, Deep::f(&z));",
        "crash: the thread's stack of 128 KiB is full",
    ),
    "a barrier nobody joins": (
        "if (tw_thread() < 32) tw_group_sync(1, 64);",
        "deadlock: cta 0 warp 0 in tw_group_sync(1, 64): 32 arrived",
    ),
    "a named barrier of half a warp": ("tw_group_sync(1, 16);", "tw_group_sync(1, 16): legal are"),
    "a parity that is none": (
        BASE + "if (t == 0) { tw_barrier_init(base, 1); tw_barrier_wait(base, 3); }",
        "tw_barrier_wait: parity 3",
    ),
}


@pytest.mark.parametrize("name", SMALL_BUGS)
def test_a_small_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.emulator.emulate.LIMIT", 0.2)
    body, words = SMALL_BUGS[name]
    found = one(body)
    assert any(words in fault for fault in found), found


def test_a_read_only_array_must_not_be_written() -> None:
    held = np.zeros(256, np.uint32)
    held.flags.writeable = False
    found = one("tw_store_4((void*)in, 1);", {"in": held})
    assert "tw_store_4: writes in, which is read only" in found[0]


def test_a_fault_names_kernel_block_and_thread() -> None:
    found = one("if (tw_thread() == 37) tw_store_4(out + 256, 1);")
    assert found[0].endswith("[one: block (0,0,0) thread 37]")


def test_a_box_that_starts_between_granules_is_a_fault() -> None:
    record = kernels.tensor_map("source", "f32", (64, 8), (256,), (32, 8), 128)
    arrays: Arrays = {
        "source": np.zeros((8, 64), np.float32),
        "at": np.array([2, 0], np.int32),
        "to": np.zeros(1024, np.uint8),
    }
    run = emulate(kernels.box_copy(2, 1024, 1024), kernels.box_copy_plan(record, 1024), arrays)
    words = "tw_tma_load_2d: innermost coordinate 2 of 4-byte elements is not on 16 bytes"
    assert words in run.faults[0]


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ({"strides": [40]}, "stride of 40 bytes"),
        ({"box": [64, 8]}, "swizzle 128B spans 128"),
        ({"dims": [64, 9]}, "map of source: reaches byte 2304 of 2048"),
    ],
)
def test_maps_that_the_driver_refuses(edit: kernels.Plan, words: str) -> None:
    record = kernels.tensor_map("source", "f32", (64, 8), (256,), (32, 8), 128) | edit
    arrays: Arrays = {
        "source": np.zeros((8, 64), np.float32),
        "at": np.zeros(2, np.int32),
        "to": np.zeros(1024, np.uint8),
    }
    run = emulate(kernels.box_copy(2, 1024, 1024), kernels.box_copy_plan(record, 1024), arrays)
    assert any(words in fault for fault in run.faults), run.faults


def test_a_plan_must_agree_with_the_text() -> None:
    arrays, _ = gemm_arrays(*SIZES[:3])
    plan = kernels.gemm_plan(*SIZES)
    plan["kernels"][0]["cluster"] = [1, 1, 1]
    assert "cluster" in emulate(kernels.gemm(*SIZES), plan, arrays).faults[0]
    plan = kernels.gemm_plan(*SIZES)
    plan["kernels"][0]["parameters"].pop()
    assert "takes 3 parameters" in emulate(kernels.gemm(*SIZES), plan, arrays).faults[0]
