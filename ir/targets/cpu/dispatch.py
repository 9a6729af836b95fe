"""The entries of several kernels of one operator, which choose by extents: as LLVM IR and as C.

`int NAME(extents, arrays)` runs the kernel of these extents or returns `NO_KERNEL`;
`NAME_workspace(extents)` tells the bytes of scratch memory that it takes, and `NAME_with(extents,
arrays, workspace)` runs it on the caller's. Text only, on the pool's symbols and kernels' bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ir.kernel import Argument, Kernel, KernelTable
from ir.kernel.table import Branches
from ir.targets.cpu.entry import TILES_C, Entry, described, scratch_offsets, tiles_llvm

NO_KERNEL = 1  # what an entry returns for extents that no kernel is for
LINE = 64  # what a workspace is aligned to, in bytes

_HEADER = """\
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

/* Runs the kernel for these extents, and returns 0; returns {none}, with nothing read or written,
 * if there is none. There are kernels for
{rows}
 *
 * Arrays are row-major and whole, at multiples of their elements' size. Outputs overlap no other
 * array. Several threads may call it at once: they take turns.
{arguments}
 */
int {symbol}({parameters});

/* The bytes of scratch memory that the kernel for these extents takes; -1 if there is none. */
int64_t {symbol}_workspace({extents});

/* As above, on scratch memory of the caller's: so many bytes at a multiple of {line}, any content.
 * Calls at a time have each their own. */
int {symbol}_with({parameters}, void *workspace);

#ifdef __cplusplus
}}
#endif
"""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """The entries of `table` as `symbol`; `bodies` are its kernels as they are called there."""

    table: KernelTable
    bodies: tuple[Kernel, ...]
    symbol: str
    entry: Entry  # of the first kernel, whose operands all have
    extents: tuple[str, ...]  # what C calls the arguments that choose

    @classmethod
    def of(cls, table: KernelTable, bodies: Sequence[Kernel], symbol: str = "") -> Dispatch:
        symbol = symbol or table.symbol
        entry = Entry.of(table.first, symbol)
        taken = {*entry.names.values(), "workspace", "status"}
        extents = [name if name not in taken else f"extent_{name}" for name in table.varying]
        return cls(table, tuple(bodies), symbol, entry, tuple(extents))

    @property
    def weak(self) -> bool:
        """Whether any other of that name is the same."""
        return self.symbol == self.table.symbol

    @property
    def room(self) -> int:
        """Bytes of scratch memory in which every kernel's fits."""
        return max(scratch_offsets(kernel)[1] for kernel in self.bodies)

    def signature(self) -> str:
        """The C prototype, without a semicolon."""
        return f"int {self.symbol}({self._parameters()})"

    def header(self) -> str:
        """C and C++ that declares the entries and says what they take."""
        rows = [f" *   {self.table.words(extents)}" for extents, _ in self.table.rows]
        arguments = [described(a, self.entry.names[a.name], self._extents_of(n))
                     for n, a in enumerate(self._operands)]  # fmt: skip
        return _HEADER.format(
            none=NO_KERNEL, line=LINE, symbol=self.symbol, rows="\n".join(rows),
            arguments="\n".join(f" *   {words}" for words in arguments),
            parameters=self._parameters(), extents=self._declared(),
        )  # fmt: skip

    # --- C ---------------------------------------------------------------------------------------

    def c(self) -> str:
        """C text to stand behind the pool and the kernels' bodies."""
        marks = 'weak, visibility("default")' if self.weak else 'visibility("default")'
        extents, values = ", ".join(self.extents), ", ".join(self.entry.names.values())
        room = self._switch_c(lambda number: f"return {scratch_offsets(self.bodies[number])[1]};")
        runs = self._switch_c(lambda n: f"tilewright_run_{n}({values}, workspace); return 0;")
        return "\n\n".join([
            TILES_C.strip("\n"),
            *(self._run_c(number) for number in range(len(self.bodies))),
            f"__attribute__(({marks}))\nint64_t {self.symbol}_workspace({self._declared()}) "
            f"{{\n{room}\n  return -1;\n}}",
            f"__attribute__(({marks}))\nint {self.symbol}_with({self._parameters()}, "
            f"void *workspace) {{\n{runs}\n  return {NO_KERNEL};\n}}",
            f"__attribute__(({marks}))\n{self.signature()} {{\n"
            + self._whole_c(extents, values) + "\n}\n",
        ])  # fmt: skip

    def _whole_c(self, extents: str, values: str) -> str:
        """Of the plain entry, which has scratch memory of its own."""
        call = f"{self.symbol}_with({extents}, {values}, "
        if not self.room:
            return f"  return {call}0);"
        return f"""\
  static void *slot;
  if ({self.symbol}_workspace({extents}) <= 0) return {call}0);
  void *workspace = tilewright_scratch_take(&slot, {self.room});
  int status = {call}workspace);
  tilewright_scratch_give(&slot, workspace);
  return status;"""

    def _run_c(self, number: int) -> str:
        """A kernel on its operands and its scratch memory."""
        kernel = self.bodies[number]
        offsets, total = scratch_offsets(kernel)
        values = [
            f"(char *)workspace + {offsets[a.name]}"
            if a.role == "workspace"
            else f"(void *){self.entry.names[a.name]}"
            for a in kernel.arguments
        ]
        unused = "" if total else "  (void)workspace;\n"
        return (
            f"static void tilewright_run_{number}({self.entry.parameters()}, void *workspace) {{\n"
            f"{unused}"
            f"  void *args[] = {{{', '.join(values)}}};\n"
            f"  tilewright_launch({kernel.entry}, args, {kernel.threads});\n}}"
        )

    def _switch_c(self, leaf: Callable[[int], str]) -> str:
        """Nested switches over the extents, with what is done for each kernel."""

        def text(branches: Branches, depth: int) -> list[str]:
            pad = "  " * (depth + 1)
            lines = [f"{pad}switch ({self.extents[depth]}) {{"]
            for extent, below in branches.items():
                if isinstance(below, int):
                    lines.append(f"{pad}case {extent}: {leaf(below)}")
                else:
                    lines += [f"{pad}case {extent}:", *text(below, depth + 1), f"{pad}  break;"]
            return [*lines, f"{pad}}}"]

        return "\n".join(text(self.table.branches(), 0))

    # --- LLVM ------------------------------------------------------------------------------------

    def llvm(self) -> str:
        """An LLVM module with the entries, to be linked with the kernels' and the pool's."""
        weak = "weak " if self.weak else ""
        extents = ", ".join(f"i64 %x.{n}" for n in range(len(self.extents)))
        values = ", ".join(f"ptr %at.{n}" for n in range(len(self._operands)))
        given = f"{extents}, {values}"
        room = self._switch_llvm(lambda n: [f"ret i64 {scratch_offsets(self.bodies[n])[1]}"])
        runs = self._switch_llvm(
            lambda n: [f"call void @run.{n}({values}, ptr %workspace)", "ret i32 0"]
        )
        return "\n".join([
            "declare void @tilewright_launch(ptr, ptr, i64)",
            "declare ptr @tilewright_scratch_take(ptr, i64)",
            "declare void @tilewright_scratch_give(ptr, ptr)",
            *(f"declare void @{kernel.entry}(i64, i64, ptr, ptr)" for kernel in self.bodies),
            "@scratch.slot = internal global ptr null, align 64",
            tiles_llvm(),
            *(line for number in range(len(self.bodies)) for line in self._run_llvm(number)),
            f"define {weak}i64 @{self.symbol}_workspace({extents}) {{", *room,
            "none:", "  ret i64 -1", "}",
            f"define {weak}i32 @{self.symbol}_with({given}, ptr %workspace) {{", *runs,
            "none:", f"  ret i32 {NO_KERNEL}", "}",
            f"define {weak}i32 @{self.symbol}({given}) {{", *self._whole_llvm(extents, given), "}",
            "",
        ])  # fmt: skip

    def _whole_llvm(self, extents: str, given: str) -> list[str]:
        """Of the plain entry, which has scratch memory of its own."""
        return f"""\
  %bytes = call i64 @{self.symbol}_workspace({extents})
  %some = icmp sgt i64 %bytes, 0
  br i1 %some, label %scratch, label %plain
plain:
  %alone = call i32 @{self.symbol}_with({given}, ptr null)
  ret i32 %alone
scratch:
  %block = call ptr @tilewright_scratch_take(ptr @scratch.slot, i64 {max(self.room, LINE)})
  %status = call i32 @{self.symbol}_with({given}, ptr %block)
  call void @tilewright_scratch_give(ptr @scratch.slot, ptr %block)
  ret i32 %status""".splitlines()

    def _run_llvm(self, number: int) -> list[str]:
        """A kernel on its operands and its scratch memory."""
        kernel, places = self.bodies[number], {a.name: n for n, a in enumerate(self._operands)}
        offsets, _ = scratch_offsets(kernel)
        given = ", ".join(f"ptr %at.{n}" for n in range(len(places)))
        lines = [f"define internal void @run.{number}({given}, ptr %workspace) {{"]
        lines.append(f"  %args = alloca [{len(kernel.arguments)} x ptr], align 16")
        for place, argument in enumerate(kernel.arguments):
            value = f"%at.{places.get(argument.name)}"
            if argument.role == "workspace":
                value, at = f"%scratch.{place}", offsets[argument.name]
                lines.append(f"  {value} = getelementptr i8, ptr %workspace, i64 {at}")
            lines.append(f"  %args.{place} = getelementptr ptr, ptr %args, i64 {place}")
            lines.append(f"  store ptr {value}, ptr %args.{place}")
        launch = f"ptr @{kernel.entry}, ptr %args, i64 {kernel.threads}"
        return [*lines, f"  call void @tilewright_launch({launch})", "  ret void", "}"]

    def _switch_llvm(self, leaf: Callable[[int], list[str]]) -> list[str]:
        """Switches over the extents, with what is done for each kernel, up to the label %none."""
        lines: list[str] = []
        waiting: list[tuple[str, Branches, int]] = [("", self.table.branches(), 0)]
        while waiting:
            label, branches, depth = waiting.pop(0)
            lines += [f"{label}:"] if label else []
            cases = {extent: f"at.{label or 's'}.{extent}" for extent in branches}
            listed = " ".join(f"i64 {extent}, label %{name}" for extent, name in cases.items())
            lines.append(f"  switch i64 %x.{depth}, label %none [{listed}]")
            for extent, below in branches.items():
                if isinstance(below, int):
                    lines += [f"{cases[extent]}:", *(f"  {line}" for line in leaf(below))]
                else:
                    waiting.append((cases[extent], below, depth + 1))
        return lines

    # --- words -----------------------------------------------------------------------------------

    @property
    def _operands(self) -> tuple[Argument, ...]:
        return self.table.operands(self.table.first)

    def _declared(self) -> str:
        return ", ".join(f"int64_t {name}" for name in self.extents)

    def _parameters(self) -> str:
        return f"{self._declared()}, {self.entry.parameters()}"

    def _extents_of(self, place: int) -> str:
        """The shape of an operand: where it varies, one of several numbers."""
        dims = self.table.dims(place)
        told = [str(dim[0]) if len(dim) == 1 else f"({' | '.join(map(str, dim))})" for dim in dims]
        return " x ".join(told) or "one value"
