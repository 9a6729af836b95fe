"""The kernels written by hand compile for sm_90a as they stand, without spilling."""

from __future__ import annotations

import pytest

from ir.targets.cuda.prelude import prelude_text
from tests.cuda import kernels

OPTIONS = ("--gpu-architecture=sm_90a", "-std=c++17", "-default-device", "--ptxas-options=-v")
TEXTS = {
    "vector_add": kernels.VECTOR_ADD,
    "gemm_128x256": kernels.gemm(512, 512, 256, 128, 256),
    "gemm_128x128": kernels.gemm(256, 256, 256, 128, 128),
    "gemm_64x64": kernels.gemm(256, 128, 192, 64, 64),
    "mma_gemm": kernels.mma_gemm(128, 64, 160),
    "box_copy": kernels.box_copy(2, 2048, 2048),
    "box_store": kernels.box_store(3, 2048, False),
    "box_add": kernels.box_store(2, 2048, True),
    "wgmma": kernels.one_wgmma("tw_wgmma_m64n128k16_bf16_rs_tb", 128, False, False, 8192),
    "integer_wgmma": kernels.one_wgmma("tw_wgmma_m64n48k32_i8_ss", 48, True, True, 8192),
    "mma": kernels.one_mma("tw_mma_m16n8k32_e4m3", False),
    "tiles": kernels.tiles("tw_stmatrix_x4", 4, 2048),
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.alike(2)
def test_it_compiles_for_the_device(name: str) -> None:
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc", reason="no cuda.bindings")
    text = prelude_text(TEXTS[name]) + TEXTS[name]
    try:
        _, program = nvrtc.nvrtcCreateProgram(text.encode(), b"kernel.cu", 0, [], [])
    except RuntimeError as error:
        pytest.skip(f"no NVRTC library: {error}")
    words = [option.encode() for option in OPTIONS]
    status = nvrtc.nvrtcCompileProgram(program, len(words), words)[0]
    size = nvrtc.nvrtcGetProgramLogSize(program)[1]
    log = bytearray(size)
    nvrtc.nvrtcGetProgramLog(program, log)
    told = bytes(log).decode().rstrip("\0")
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, told
    assert "serializ" not in told, told
    assert "0 bytes spill stores" in told, told
