"""Two kernels written by hand, in the form that the CUDA target's have: an addition of vectors on
plain pointers, and a copy by tensor maps with a workspace, two launches and two outputs.
"""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

from ir.kernel import Argument, Kernel, KernelTable

ADD = r"""
extern "C" __global__ void add(const unsigned short* A, const float* B, float* C) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < COUNT) C[i] = __uint_as_float((unsigned)A[i] << 16) + B[i];
}
"""

COPY = r"""
struct alignas(64) tensor_map { unsigned long long words[16]; };

extern "C" __global__ void copy_tiles(
    const __grid_constant__ tensor_map A_map, const __grid_constant__ tensor_map B_map,
    unsigned* tally) {
  extern __shared__ __align__(1024) unsigned char shared[];
  unsigned tile = (unsigned)__cvta_generic_to_shared(shared), barrier = tile + 2048;
  if (threadIdx.x != 0) return;
  int x = blockIdx.x * 32, y = blockIdx.y * 16;
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 2048;"
               ::"r"(barrier) : "memory");
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3}], [%4];"
      ::"r"(tile), "l"(&A_map), "r"(x), "r"(y), "r"(barrier) : "memory");
  asm volatile(
      "{\n.reg .pred done;\nagain:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n@!done bra again;\n}"
      ::"r"(barrier) : "memory");
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
      ::"l"(&B_map), "r"(x), "r"(y), "r"(tile) : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  atomicAdd(tally, 1u);
}

extern "C" __global__ void tell(const unsigned* tally, int* tiles) { *tiles = (int)*tally; }
"""


def _kernel(
    name: str, arguments: list[Argument], source: str, kernels: list[dict[str, Any]], **more: Any
) -> Kernel:
    plan = {"arch": "sm_90a", "options": [], "workspace_bytes": 0, "kernels": kernels, **more}
    texts = (("cuda", source), ("launch", json.dumps(plan)))
    return Kernel(
        name, "cuda", tuple(arguments), texts, kernels[0]["name"], 0, (("registers", 16),)
    )


def _launch(name: str, grid: list[int], shared: int, parameters: list[Any]) -> dict[str, Any]:
    sizes = {"grid": grid, "block": 128, "cluster": [1, 1, 1], "shared": shared}
    return {"name": name, **sizes, "parameters": parameters, "zero": []}


def pointer(argument: str, offset: int = 0) -> dict[str, Any]:
    return {"kind": "pointer", "argument": argument, "offset": offset}


def added(count: int = 1000, workspace: int = 0, clean: int = 0) -> Kernel:
    """C = A + B over some elements; A is bf16. The workspace is for show."""
    arguments = [
        Argument("A", (count,), "bf16", "input"),
        Argument("B", (count,), "f32", "input"),
        Argument("C", (count,), "f32", "output"),
    ]
    parameters = [pointer("A"), pointer("B"), pointer("C")]
    if workspace:
        arguments.append(Argument("workspace", (workspace,), "u8", "workspace"))
    launch = _launch("add", [-(-count // 128), 1, 1], 0, parameters)
    more = {"workspace_bytes": workspace, "clean": [[0, clean]]} if clean else {}
    source = ADD.replace("COUNT", str(count))
    if workspace:
        more |= {"workspace_bytes": workspace}
    return _kernel("added", arguments, source, [launch], **more)


def table(kernels: dict[int, Kernel]) -> KernelTable:
    """Additions by their counts."""
    return KernelTable("added", ("n",), tuple(((n,), kernel) for n, kernel in kernels.items()))


def copied() -> Kernel:
    """B = A over 40 x 100 elements by tiles of 16 x 32, and how many tiles were copied."""
    arguments = [
        Argument("A", (40, 100), "f32", "input"),
        Argument("B", (40, 100), "f32", "output"),
        Argument("tiles", (1,), "i32", "output"),
        Argument("workspace", (512,), "u8", "workspace"),
    ]
    sizes = {"dims": [100, 40], "strides": [400], "box": [32, 16], "swizzle": 0, "l2": 128}
    maps = [
        {"kind": "map", "argument": name, "offset": 0, "dtype": "f32", **sizes} for name in "AB"
    ]
    copy = _launch("copy_tiles", [4, 3, 1], 2056, [*maps, pointer("workspace", 256)])
    copy["zero"] = [[256, 4]]
    tell = _launch("tell", [1, 1, 1], 0, [pointer("workspace", 256), pointer("tiles")])
    tell["block"] = 1
    return _kernel("copied", arguments, COPY, [copy, tell], workspace_bytes=512)


def compiled(source: str, plan: str) -> bytes:
    """The cubin of a source, by NVRTC in this process."""
    nvrtc = import_module("cuda.bindings.nvrtc")
    facts = json.loads(plan)
    standard = facts.get("standard", "c++17")
    options = [f"--gpu-architecture={facts['arch']}", f"-std={standard}", "-default-device"]
    options += facts["options"]
    program = _done(nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], []))
    encoded = [option.encode() for option in options]
    if nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)[0]:
        log = bytearray(_done(nvrtc.nvrtcGetProgramLogSize(program)))
        nvrtc.nvrtcGetProgramLog(program, log)
        raise AssertionError(log.decode())
    code = bytearray(_done(nvrtc.nvrtcGetCUBINSize(program)))
    nvrtc.nvrtcGetCUBIN(program, code)
    return bytes(code)


def _done(answer: tuple[Any, ...]) -> Any:
    assert not answer[0], answer[0]
    return answer[1]
