"""The plain entry of an exported kernel, `void symbol(const T* A, ..., T* C)`, as LLVM IR and C.

Text only. It stands on the pool's symbols and on the kernel's body.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass

from ir.c_words import OTHER_WORDS
from ir.kernel import Argument, Kernel
from ir.targets.cpu.c import RESERVED_WORDS, safe_name

_C_TYPES = {
    "f64": "double",
    "f32": "float",
    "tf32": "float",
    "f16": "uint16_t",
    "bf16": "uint16_t",
    "e4m3": "uint8_t",
    "e5m2": "uint8_t",
    "e8m0": "uint8_t",
    "i64": "int64_t",
    "i32": "int32_t",
    "u32": "uint32_t",
    "i16": "int16_t",
    "u16": "uint16_t",
    "i8": "int8_t",
    "u8": "uint8_t",
    "bool": "uint8_t",
}

_PATTERNS = ("f16", "bf16", "e4m3", "e5m2", "e8m0")  # to C they are integers

_HEADER = """\
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

/* Arrays are row-major and whole, at multiples of their elements' size. Outputs overlap no other
 * array. Several threads may call it at once: they take turns.
{arguments}
 */
{signature};

#ifdef __cplusplus
}}
#endif
"""

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

TILES_C = """
#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
/* Linux gives tile registers (AMX) to processes that ask. */
__attribute__((constructor)) static void request_tiles(void) { syscall(158, 0x1023, 18); }
#endif
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """The entry of `kernel` as `symbol`, which is the kernel's own unless the user chose it.

    One that holds a hash of the kernel is weak, as any other like it is the same kernel; of two
    that the user gave one name the linker complains.
    """

    kernel: Kernel
    symbol: str
    names: dict[str, str]  # what C calls each operand

    @classmethod
    def of(cls, kernel: Kernel, symbol: str = "") -> Entry:
        symbol = symbol or kernel.symbol
        return cls(kernel, symbol, _c_names(kernel, symbol))

    @property
    def weak(self) -> bool:
        return self.symbol == self.kernel.symbol

    def parameters(self) -> str:
        """The operands as C declares them."""
        operands = _operands(self.kernel)
        return ", ".join(_parameter(a, self.names[a.name]) for a in operands)

    def signature(self) -> str:
        """The C prototype, without a semicolon."""
        return f"void {self.symbol}({self.parameters()})"

    def header(self) -> str:
        """C and C++ that declares the entry and says what it takes."""
        rows = [described(a, self.names[a.name]) for a in _operands(self.kernel)]
        return _HEADER.format(
            arguments="\n".join(f" *   {row}" for row in rows), signature=self.signature()
        )

    def c(self) -> str:
        """C text to stand behind the pool and the kernel's body."""
        kernel = self.kernel
        offsets, total = scratch_offsets(kernel)
        values = [
            f"scratch + {offsets[a.name]}"
            if a.role == "workspace"
            else f"(void *){self.names[a.name]}"
            for a in kernel.arguments
        ]
        marks = 'weak, visibility("default")' if self.weak else 'visibility("default")'
        lines = [TILES_C, f"__attribute__(({marks}))", f"{self.signature()} {{"]
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

    def llvm(self) -> str:
        """An LLVM module with the entry, to be linked with the kernel's and the pool's."""
        kernel = self.kernel
        offsets, total = scratch_offsets(kernel)
        places = {a.name: f"%at.{place}" for place, a in enumerate(kernel.arguments)}
        parameters = ", ".join(f"ptr {places[a.name]}" for a in _operands(kernel))
        lines = [
            "declare void @tilewright_launch(ptr, ptr, i64)",
            "declare ptr @tilewright_scratch_take(ptr, i64)",
            "declare void @tilewright_scratch_give(ptr, ptr)",
            f"declare void @{kernel.entry}(i64, i64, ptr, ptr)",
            "@scratch.slot = internal global ptr null, align 64",
            tiles_llvm(),
            f"define {'weak ' if self.weak else ''}void @{self.symbol}({parameters}) {{",
            f"  %args = alloca [{len(kernel.arguments)} x ptr], align 16",
        ]
        if total:
            lines.append(
                f"  %scratch = call ptr @tilewright_scratch_take(ptr @scratch.slot, i64 {total})"
            )
        for position, argument in enumerate(kernel.arguments):
            value = places[argument.name]
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


def entry_llvm(body: str, threads: int, count: int, fixed: Mapping[int, int]) -> str:
    """A module with `tilewright_entry`, which launches the mapped code `body` as `Entry` does.

    Of the kernel's `count` arguments those in `fixed` have addresses, the others are parameters.
    """
    given = (f"ptr %at.{place}" for place in range(count) if place not in fixed)
    lines = [
        "declare void @tilewright_launch(ptr, ptr, i64)",
        f"declare void @{body}(ptr, i64, i64)",
        f"define void @tilewright_entry({', '.join(given)}) {{",
        f"  %args = alloca [{count} x ptr], align 16",
    ]
    for place in range(count):
        value = f"inttoptr (i64 {fixed[place]} to ptr)" if place in fixed else f"%at.{place}"
        lines.append(f"  %args.{place} = getelementptr ptr, ptr %args, i64 {place}")
        lines.append(f"  store ptr {value}, ptr %args.{place}")
    launch = f"ptr @{body}, ptr %args, i64 {threads}"
    return "\n".join([*lines, f"  call void @tilewright_launch({launch})", "  ret void", "}", ""])


def _parameter(argument: Argument, name: str) -> str:
    const = "const " if argument.role == "input" else ""
    return f"{const}{_C_TYPES[argument.dtype]} *{name}"


def described(argument: Argument, name: str, extents: str = "") -> str:
    """One operand in words, for the header; `extents` are those of its shape, if it has several."""
    extents = extents or " x ".join(map(str, argument.shape)) or "one value"
    bits = ", as bit patterns" if argument.dtype in _PATTERNS else ""
    return f"{name}: {argument.role}, {argument.holds}{bits}, {extents}"


def _c_names(kernel: Kernel, symbol: str) -> dict[str, str]:
    """What C calls each operand: its own name where C and the entry's own words allow it."""
    taken = {*RESERVED_WORDS, *_C_TYPES.values(), "scratch", "slot", symbol, kernel.entry}
    taken |= {kernel.name, *OTHER_WORDS}  # the header may define the kernel's name
    names = {}
    for argument in _operands(kernel):
        name = safe_name(argument.name.replace(".", "_"))
        while name in taken or name.startswith("tilewright_"):
            name = f"p_{name}"
        taken.add(name)
        names[argument.name] = name
    return names


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


def tiles_llvm() -> str:
    linux_x86 = platform.system() == "Linux" and platform.machine() == "x86_64"
    return _TILES_LLVM if linux_x86 else ""
