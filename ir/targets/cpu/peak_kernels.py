"""Kernels that do one thing as fast as this CPU can: multiply and add in registers, or read.

Each is made of a row of `instructions`; how fast they are is measured elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ir.kernel import Argument, Kernel
from ir.peaks import rate_name
from ir.target import Hardware, PeakKernel
from ir.targets.cpu.instructions import DOTS, TILE_CONFIG, TILE_RELEASE, DotRow

_CHAINS = 12  # independent sums: more than latency times ports, fewer than AVX2's registers
_ROUNDS = 200_000  # of a multiply-add in each chain: a millisecond
_TILE_ROUNDS = 40_000
_TILE_CHAINS = 4  # sums in tiles; the other four hold factors
_MOST_READ = 32 << 20  # bytes that a thread reads of a cache in one run
_VECTOR_BYTES = 64
_ZERO = "void @llvm.x86.tilezero(i8 immarg)"

_HEAD = """\
DECLARED
define void @peak_body(i64 %thread, i64 %threads, ptr %args, ptr %team) {
entry:
  %o.at = getelementptr ptr, ptr %args, i64 1
  %o = load ptr, ptr %o.at
  %a = load ptr, ptr %args
  %skip = mul i64 %thread, SHARE
  %mine = getelementptr float, ptr %a, i64 %skip
BEGUN
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %n1, %loop ]
"""
_TAIL = """\
  %n1 = add i64 %n, STEP
  %on = icmp ult i64 %n1, END
  br i1 %on, label %loop, label %done
done:
SUMS
  ret void
}
"""
_STORE = """
  %place = mul i64 %thread, 16
  %o.mine = getelementptr float, ptr %o, i64 %place
  store VECTOR %total, ptr %o.mine, align 4"""


@dataclass(frozen=True, slots=True)
class _Unit:
    """An instruction of a vector: the type that it sums, how that is added, its call on %a{i}, and
    the operations of one."""

    vector: str
    add: str
    call: str
    operations: int
    declared: str = ""


def arithmetic(hardware: Hardware) -> Iterator[PeakKernel]:
    """One kernel for each engine and type of factors, by the name of its rate."""
    for name, unit in _units(hardware):
        work = hardware.threads * unit.operations * _CHAINS * _ROUNDS
        yield PeakKernel(name, _kernel(_chained(unit), hardware, 1), work)
    for row in _tiles(hardware):
        work = hardware.threads * _tile_operations(row) * _TILE_CHAINS * _TILE_ROUNDS
        name = rate_name("tiles", row.row, row.acc)
        yield PeakKernel(name, _kernel(_tiled(row), hardware, 1), work)


def reading(hardware: Hardware, share: int) -> PeakKernel:
    """Every thread reads `share` bytes of its own, small ones again and again."""
    lanes, threads = _lanes(hardware), hardware.threads
    step = lanes * _CHAINS
    elements = max(step, share // 4 // step * step)
    passes = max(1, _MOST_READ // (4 * elements))
    text = _read_text(lanes, elements, passes)
    kernel = _kernel(text, hardware, elements * threads)
    return PeakKernel("", kernel, 4 * elements * passes * threads)


def _kernel(text: str, hardware: Hardware, elements: int) -> Kernel:
    arguments = (
        Argument("A", (elements,), "f32", "input"),
        Argument("O", (16 * hardware.threads,), "f32", "output"),
    )
    return Kernel("peak", "cpu", arguments, (("llvm", text),), "peak_body", hardware.threads)


def _units(hardware: Hardware) -> Iterator[tuple[str, _Unit]]:
    """Multiply-adds of floats, and each dot product of vectors, by the name of its rate."""
    lanes = _lanes(hardware)
    for dtype, scalar, count in (("f32", "float", lanes), ("f64", "double", lanes // 2)):
        vector = f"<{count} x {scalar}>"
        name = f"@llvm.fma.v{count}{dtype}"
        half = f"{vector} splat ({scalar} 5.0e-1)"
        call = f"call {vector} {name}({half}, {half}, {vector} %a{{i}})"
        declared = f"declare {vector} {name}({vector}, {vector}, {vector})"
        rate = rate_name("vectors", dtype, dtype)
        yield rate, _Unit(vector, "fadd", call, 2 * count, declared)
    for row in DOTS:
        if row.llvm and row.kind == "vector" and row.isa in hardware.isa and not row.lane_first:
            rate = rate_name("vectors", row.row, row.acc)
            yield rate, _of_row(row)


def _of_row(row: DotRow) -> _Unit:
    """A row of 512-bit vectors on constant operands."""
    vector, _, rest = row.llvm_declaration.partition(" @")
    operands = rest.partition("(")[2].rstrip(")").split(", ")[1]
    scalar = operands.split(" x ")[1].rstrip(">")
    one = f"{operands} splat ({scalar} {'1.0' if scalar == 'bfloat' else '1'})"
    call = f"call {vector} @{row.llvm}({vector} %a{{i}}, {one}, {one})"
    operations = 2 * row.depth * (_VECTOR_BYTES // 4)
    add = "fadd" if row.acc == "f32" else "add"
    return _Unit(vector, add, call, operations, f"declare {row.llvm_declaration}")


def _tiles(hardware: Hardware) -> Iterator[DotRow]:
    """One row of tiles for each type of factors."""
    rows = {row.row: row for row in reversed(DOTS) if row.kind == "tile"}
    return (row for row in rows.values() if row.isa in hardware.isa)


def _lanes(hardware: Hardware) -> int:
    return 16 if "avx512f" in hardware.isa else 8 if "avx2" in hardware.isa else 4


def _chained(unit: _Unit) -> str:
    """Every chain multiplies constants and adds them to what it has."""
    calls = "".join(f"  %b{i} = {unit.call.format(i=i)}\n" for i in _all())
    return _loop(unit, _started() + calls, share=0, step=1, end=_ROUNDS)


def _read_text(lanes: int, share: int, passes: int) -> str:
    """Every chain adds one vector of this thread's share, which is gone through many times."""
    vector = f"<{lanes} x float>"
    unit = _Unit(vector, "fadd", "", 0)
    lines = [
        "  %m = phi i64 [ 0, %entry ], [ %m1, %loop ]\n",
        "  %m.next = add i64 %m, STEP\n",
        f"  %m.ends = icmp uge i64 %m.next, {share}\n",
        "  %m1 = select i1 %m.ends, i64 0, i64 %m.next\n",
    ]
    lines += (
        f"  %i{i} = add i64 %m, {i * lanes}\n"
        f"  %p{i} = getelementptr float, ptr %mine, i64 %i{i}\n"
        f"  %v{i} = load VECTOR, ptr %p{i}, align 4\n"
        f"  %b{i} = fadd VECTOR %a{i}, %v{i}\n"
        for i in _all()
    )
    body = lines[0] + _started() + "".join(lines[1:])
    return _loop(unit, body, share, lanes * _CHAINS, share * passes)


def _tiled(row: DotRow) -> str:
    """Four sums of products of the other four tiles, all of which are zero."""
    declared = {
        TILE_CONFIG.llvm_declaration,
        TILE_RELEASE.llvm_declaration,
        _ZERO,
        row.llvm_declaration,
    }
    begun = "\n".join(
        [
            "  %c = alloca [64 x i8], align 64",
            "  store <64 x i8> zeroinitializer, ptr %c, align 64",
            "  store i8 1, ptr %c, align 1",
            "  %c.row = getelementptr i8, ptr %c, i64 16",
            "  store <8 x i16> splat (i16 64), ptr %c.row, align 16",
            "  %c.rows = getelementptr i8, ptr %c, i64 48",
            "  store <8 x i8> splat (i8 16), ptr %c.rows, align 16",
            f"  call void @{TILE_CONFIG.llvm}(ptr %c)",
            *(f"  call void @llvm.x86.tilezero(i8 {tile})" for tile in range(8)),
        ]
    )
    calls = (
        f"  call void @{row.llvm}(i8 {tile}, i8 {4 + tile // 2}, i8 {6 + tile % 2})\n"
        for tile in range(_TILE_CHAINS)
    )
    text = _HEAD + "".join(calls) + _TAIL
    words = {"DECLARED": "\n".join(f"declare {words}" for words in sorted(declared))}
    words |= {"BEGUN": begun, "SUMS": f"  call void @{TILE_RELEASE.llvm}()", "SHARE": "0"}
    return _filled(text, words | {"STEP": "1", "END": str(_TILE_ROUNDS)})


def _tile_operations(row: DotRow) -> int:
    """Of 16 rows by 16 lanes."""
    return 2 * 16 * 16 * 16 * row.depth


def _loop(unit: _Unit, body: str, share: int, step: int, end: int) -> str:
    """A loop around `body`, which leaves its sums in %b0, %b1 and so on."""
    words = {"DECLARED": unit.declared, "BEGUN": "", "SUMS": _sums(unit.add) + _STORE}
    words |= {"VECTOR": unit.vector, "SHARE": str(share), "STEP": str(step), "END": str(end)}
    return _filled(_HEAD + body + _TAIL, words)


def _filled(text: str, words: dict[str, str]) -> str:
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    return text


def _started() -> str:
    lines = (
        f"  %a{i} = phi VECTOR [ zeroinitializer, %entry ], [ %b{i}, %loop ]\n" for i in _all()
    )
    return "".join(lines)


def _sums(add: str) -> str:
    names = ["%b0", *(f"%s{i}" for i in range(1, _CHAINS - 1)), "%total"]
    lines = (f"  {names[i]} = {add} VECTOR {names[i - 1]}, %b{i}" for i in range(1, _CHAINS))
    return "\n".join(lines)


def _all() -> range:
    return range(_CHAINS)
