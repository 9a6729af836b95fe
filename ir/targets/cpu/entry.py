"""The plain entry of an exported kernel, `void name(const T* A, ..., T* C)`, as LLVM IR and as C.

Text only. It stands on the pool's symbols and on the kernel's body.
"""

from __future__ import annotations

import platform

from ir.kernel import Argument, Kernel
from ir.targets.cpu.c import RESERVED_WORDS

_C_TYPES = {
    "f64": "double",
    "f32": "float",
    "tf32": "float",
    "f16": "uint16_t",
    "bf16": "uint16_t",
    "e4m3": "uint8_t",
    "i64": "int64_t",
    "i32": "int32_t",
    "i8": "int8_t",
    "u8": "uint8_t",
    "bool": "uint8_t",
}

_TILES_LLVM = """
; Linux gives tile registers (AMX) to processes that ask; a refusal is found by the kernel's author.
declare i64 @syscall(i64, ...)
define internal void @request_tiles() {
  %ignored = call i64 (i64, ...) @syscall(i64 158, i64 4131, i64 18)
  ret void
}
@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }]
  [{ i32, ptr, ptr } { i32 65535, ptr @request_tiles, ptr null }]
"""

_TILES_C = """
#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
/* Linux gives tile registers (AMX) to processes that ask. */
__attribute__((constructor)) static void request_tiles(void) { syscall(158, 0x1023, 18); }
#endif
"""


def signature_c(kernel: Kernel) -> str:
    """The C prototype of the plain entry, without a semicolon."""
    names = _c_names(kernel)
    parameters = ", ".join(_parameter(a, names[a.name]) for a in _operands(kernel))
    return f"void {kernel.name}({parameters})"


def _parameter(argument: Argument, name: str) -> str:
    const = "const " if argument.role == "input" else ""
    return f"{const}{_C_TYPES[argument.dtype]} *{name}"


def _c_names(kernel: Kernel) -> dict[str, str]:
    """What C calls each operand: its own name where C and the entry's own words allow it."""
    taken = {*RESERVED_WORDS, *_C_TYPES.values(), "scratch", "slot", kernel.name, kernel.entry}
    names = {}
    for argument in _operands(kernel):
        name = argument.name.replace(".", "_")
        while name in taken or name.startswith("tilewright_"):
            name = f"p_{name}"
        taken.add(name)
        names[argument.name] = name
    return names


def entry_c(kernel: Kernel) -> str:
    """C text to stand behind the pool and the kernel's body."""
    offsets, total = scratch_offsets(kernel)
    names = _c_names(kernel)
    values = [
        f"scratch + {offsets[a.name]}" if a.role == "workspace" else f"(void *){names[a.name]}"
        for a in kernel.arguments
    ]
    lines = [_TILES_C, f"{signature_c(kernel)} {{"]
    if total:
        lines += [
            "  static void *slot;",
            f"  char *scratch = (char *)tilewright_scratch_take(&slot, {total});",
        ]
    lines += [
        f"  void *args[] = {{{', '.join(values)}}};",
        f"  tilewright_launch({kernel.entry}, args, {kernel.threads});",
    ]
    if total:
        lines.append("  tilewright_scratch_give(&slot, scratch);")
    return "\n".join([*lines, "}", ""])


def entry_llvm(kernel: Kernel) -> str:
    """An LLVM module with the plain entry, to be linked with the kernel's and the pool's."""
    offsets, total = scratch_offsets(kernel)
    parameters = ", ".join(f"ptr %at.{argument.name}" for argument in _operands(kernel))
    lines = [
        "declare void @tilewright_launch(ptr, ptr, i64)",
        "declare ptr @tilewright_scratch_take(ptr, i64)",
        "declare void @tilewright_scratch_give(ptr, ptr)",
        f"declare void @{kernel.entry}(i64, i64, ptr, ptr)",
        "@scratch.slot = internal global ptr null, align 64",
        _tiles_llvm(),
        f"define void @{kernel.name}({parameters}) {{",
        f"  %args = alloca [{len(kernel.arguments)} x ptr], align 16",
    ]
    if total:
        lines.append(
            f"  %scratch = call ptr @tilewright_scratch_take(ptr @scratch.slot, i64 {total})"
        )
    for position, argument in enumerate(kernel.arguments):
        value = f"%at.{argument.name}"
        if argument.role == "workspace":
            lines.append(
                f"  {value} = getelementptr i8, ptr %scratch, i64 {offsets[argument.name]}"
            )
        lines.append(f"  %args.{position} = getelementptr ptr, ptr %args, i64 {position}")
        lines.append(f"  store ptr {value}, ptr %args.{position}")
    launch = f"ptr @{kernel.entry}, ptr %args, i64 {kernel.threads}"
    lines.append(f"  call void @tilewright_launch({launch})")
    if total:
        lines.append("  call void @tilewright_scratch_give(ptr @scratch.slot, ptr %scratch)")
    return "\n".join([*lines, "  ret void", "}", ""])


def scratch_offsets(kernel: Kernel) -> tuple[dict[str, int], int]:
    """Where each workspace lies in one scratch block, and the bytes of that block."""
    offsets, total = {}, 0
    for argument in kernel.arguments:
        if argument.role == "workspace":
            offsets[argument.name] = total
            total += -(-argument.bytes // 64) * 64
    return offsets, total


def _operands(kernel: Kernel) -> tuple[Argument, ...]:
    return tuple(argument for argument in kernel.arguments if argument.role != "workspace")


def _tiles_llvm() -> str:
    linux_x86 = platform.system() == "Linux" and platform.machine() == "x86_64"
    return _TILES_LLVM if linux_x86 else ""
