"""LLVM IR text of what touches memory, and the words that every instruction is written with.

`llvm.py` prints the rest. Knows no program.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Sequence
from typing import Any

from ir.targets.cpu.llvm_narrow import NarrowFloats
from ir.targets.cpu.llvm_words import (
    SCALARS,
    signed_bytes,
    suffix,
    table_text,
    type_text,
)
from ir.targets.cpu.nest import NEAR, Instruction, Type, Value
from ir.targets.cpu.permutes import in_registers, permute_row


class MemoryPrinter:
    """Lines of one function: loads, stores, gathers and what they stand on."""

    def __init__(self, isa: tuple[str, ...]) -> None:
        self.narrow = NarrowFloats(self._emit, self._declare_row, isa)
        self.lines: list[str] = []
        self.declared: dict[str, str] = {}
        self.tables: list[str] = []
        self.label = "entry"
        self.labels = 0
        self.constants: dict[int, str] = {}
        self.numbers: dict[int, float] = {}  # of those that a literal, or a splat of one, is

    # -- helpers

    def _name(self, value: Any) -> str:
        if isinstance(value, Value):
            known = self.constants.get(value.id)
            return known if known is not None else f"%v{value.id}"
        return str(value)

    def _typed(self, value: Any) -> str:
        type = value.type if isinstance(value, Value) else Type("i64")
        return f"{type_text(type)} {self._name(value)}"

    def _line(self, text: str) -> None:
        self.lines.append("  " + text)

    def _emit(self, text: str) -> str:
        """A line that names what it computes."""
        self.labels += 1
        self._line(f"%e{self.labels} = {text}")
        return f"%e{self.labels}"

    def _declare_row(self, row: Any) -> None:
        self.declared.setdefault(row.llvm, row.llvm_declaration)

    def _define(self, instruction: Instruction, text: str) -> None:
        assert instruction.result is not None
        self.lines.append(f"  %v{instruction.result.id} = {text}")

    def _declare(self, name: str, result: str, arguments: str) -> str:
        self.declared.setdefault(name, f"{result} @{name}({arguments})")
        return name

    def _call(
        self, instruction: Instruction, name: str, args: tuple[Any, ...], extra: str = ""
    ) -> None:
        result = type_text(instruction.result.type) if instruction.result else "void"
        types = ", ".join(type_text(a.type) if isinstance(a, Value) else "i64" for a in args)
        types += (", " + extra.split(" ")[0]) if extra else ""
        self._declare(name, result, types)
        text = ", ".join(self._typed(a) for a in args) + (", " + extra if extra else "")
        if instruction.result:
            self._define(instruction, f"call {result} @{name}({text})")
        else:
            self._line(f"call void @{name}({text})")

    def _address(self, pointer: Any, at: int) -> str:
        if at == 0:
            return self._name(pointer)
        self.labels += 1
        name = f"%p{self.labels}"
        self._line(f"{name} = getelementptr i8, ptr {self._name(pointer)}, i64 {at}")
        return name

    def _mask(self, active: Container[int], lanes: int) -> str:
        bits = ", ".join("i1 1" if lane in active else "i1 0" for lane in range(lanes))
        return f"<{lanes} x i1> <{bits}>"

    def _fresh_label(self, stem: str) -> str:
        self.labels += 1
        return f"{stem}{self.labels}"

    def _open(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.label = label

    # -- memory

    def _op_load(self, i: Instruction) -> None:
        assert i.result is not None
        type = i.result.type
        pointer = self._address(i.args[0], i.attrs["at"])
        active = i.attrs["mask"]
        if not active:
            self._define(i, f"load {type_text(type)}, ptr {pointer}, align {signed_bytes(type)}")
            return
        self._define(i, self._load_text(type, pointer, active))

    def _load_text(self, type: Type, pointer: str, active: int) -> str:
        """The first `active` elements of a vector, the others 0."""
        word, size = type_text(type), signed_bytes(type)
        if active == type.lanes:
            return f"load {word}, ptr {pointer}, align {size}"
        kinds = f"ptr, i32, <{type.lanes} x i1>, {word}"
        name = self._declare(f"llvm.masked.load.{suffix(type)}.p0", word, kinds)
        mask = self._mask(range(active), type.lanes)
        return f"call {word} @{name}(ptr {pointer}, i32 {size}, {mask}, {word} zeroinitializer)"

    def _op_store(self, i: Instruction) -> None:
        value = i.args[0]
        type = value.type
        pointer = self._address(i.args[1], i.attrs["at"])
        active = i.attrs["mask"]
        if not active and i.attrs["stream"]:
            self._stream(value, pointer)
            return
        if not active:
            align = signed_bytes(type)
            self._line(f"store {self._typed(value)}, ptr {pointer}, align {align}")
            return
        if active == 1:
            self._store_one(value, pointer)
            return
        self._store_lanes(type, self._name(value), pointer, range(active))

    def _store_lanes(self, type: Type, value: str, pointer: str, written: Container[int]) -> None:
        """Some elements of a vector; the others' places are not touched."""
        word, lanes = type_text(type), type.lanes
        kinds = f"{word}, ptr, i32, <{lanes} x i1>"
        name = self._declare(f"llvm.masked.store.{suffix(type)}.p0", "void", kinds)
        mask, size = self._mask(written, lanes), signed_bytes(type)
        self._line(f"call void @{name}({word} {value}, ptr {pointer}, i32 {size}, {mask})")

    def _store_one(self, value: Value, pointer: str) -> None:
        """The first lane. LLVM 22 stores too many bytes where it is masked and was truncated."""
        first = self._emit(f"extractelement {self._typed(value)}, i64 0")
        scalar = Type(value.type.scalar)
        self._line(f"store {type_text(scalar)} {first}, ptr {pointer}, align {scalar.bytes}")

    def _stream(self, value: Value, pointer: str) -> None:
        """A store past the cache where the address allows it, else an ordinary one."""
        size = value.type.bytes
        yes, no, done = (self._fresh_label(s) for s in ("stream", "plain", "stored"))
        self._line(f"%a{yes} = ptrtoint ptr {pointer} to i64")
        self._line(f"%b{yes} = and i64 %a{yes}, {size - 1}")
        self._line(f"%c{yes} = icmp eq i64 %b{yes}, 0")
        self._line(f"br i1 %c{yes}, label %{yes}, label %{no}")
        typed = self._typed(value)
        self._open(yes)
        self._line(f"store {typed}, ptr {pointer}, align {size}, !nontemporal !0")
        self._line(f"br label %{done}")
        self._open(no)
        self._line(f"store {typed}, ptr {pointer}, align {signed_bytes(value.type)}")
        self._line(f"br label %{done}")
        self._open(done)

    def _lane_pointers(self, pointer: Any, at: int, stride: int, lanes: int) -> str:
        base = self._address(pointer, at)
        self.labels += 1
        name = f"%g{self.labels}"
        offsets = ", ".join(f"i64 {lane * stride}" for lane in range(lanes))
        self._line(f"{name} = getelementptr i8, ptr {base}, <{lanes} x i64> <{offsets}>")
        return name

    def _op_gather(self, i: Instruction) -> None:
        assert i.result is not None
        type, active = i.result.type, i.attrs["mask"] or i.result.type.lanes
        step = near_step(type, i.attrs["stride"])
        if step:
            self._define(
                i, self._picked(type, self._address(i.args[0], i.attrs["at"]), step, active)
            )
            return
        pointers = self._lane_pointers(i.args[0], i.attrs["at"], i.attrs["stride"], type.lanes)
        self._gather(i, pointers, active)

    def _picked(self, type: Type, pointer: str, step: int, active: int) -> str:
        """Every `step`-th element, as text: out of the vectors in which they lie, of which nothing
        behind the last one is read. Gathers take a load for each lane."""
        lanes, text = type.lanes, ""
        left = (active - 1) * step + 1  # elements from the first to the last that is wanted
        for number, places in enumerate(near_lanes(lanes, step, active)):
            before = self._emit(text) if text else "zeroinitializer"
            first = number * lanes * signed_bytes(type)
            here = self._emit(f"getelementptr i8, ptr {pointer}, i64 {first}")
            part = self._emit(self._load_text(type, here, min(lanes, left - number * lanes)))
            picks = [lane if at is None else lanes + at for lane, at in enumerate(places)]
            text = self._shuffled(type, before, part, picks)
        return text

    def _shuffled(self, type: Type, left: str, right: str, picks: Sequence[int]) -> str:
        word, places = type_text(type), ", ".join(f"i32 {pick}" for pick in picks)
        mask = f"<{len(picks)} x i32> <{places}>"
        return f"shufflevector {word} {left}, {word} {right}, {mask}"

    def _op_gather_at(self, i: Instruction) -> None:
        assert i.result is not None
        self.labels += 1
        name = f"%g{self.labels}"
        self._line(f"{name} = getelementptr i8, {self._typed(i.args[0])}, {self._typed(i.args[1])}")
        self._gather(i, name, i.result.type.lanes)

    def _op_chosen(self, i: Instruction) -> None:
        """Entries at indices, out of registers where the machine permutes by such."""
        assert i.result is not None
        type, entries, at = i.result.type, i.attrs["entries"], self._typed(i.args[0])
        row = permute_row(type.lanes, len(entries), self.narrow.isa)
        if row is None:
            name = f"table{i.result.id}"
            self.tables.append(table_text(name, entries, type.scalar))
            word = SCALARS[type.scalar]
            self._gather(i, self._emit(f"getelementptr {word}, ptr @{name}, {at}"), type.lanes)
            return
        floats = f"<{type.lanes} x float>"
        words = f"<{type.lanes} x i32>"
        tables = [
            f"{floats} bitcast ({words} <{', '.join(_words(part, type.scalar))}> to {floats})"
            for part in in_registers(entries, type.lanes)
        ]
        kinds = [floats, words, *[floats] * row.both]
        self._declare(row.llvm, floats, ", ".join(kinds))
        asked = [[tables[0], at, tables[1]]] if row.both else [[one, at] for one in tables]
        found = [self._emit(f"call {floats} @{row.llvm}({', '.join(one)})") for one in asked]
        if len(found) > 1:
            last = ", ".join([f"i32 {type.lanes - 1}"] * type.lanes)
            late = self._emit(f"icmp sgt {at}, <{last}>")
            mask = f"<{type.lanes} x i1> {late}"
            found = [self._emit(f"select {mask}, {floats} {found[1]}, {floats} {found[0]}")]
        self._define(i, f"bitcast {floats} {found[0]} to {type_text(type)}")

    def _gather(self, i: Instruction, pointers: str, active: int) -> None:
        assert i.result is not None
        type = i.result.type
        name = self._declare(
            f"llvm.masked.gather.{suffix(type)}.v{type.lanes}p0",
            type_text(type),
            f"<{type.lanes} x ptr>, i32, <{type.lanes} x i1>, {type_text(type)}",
        )
        self._define(
            i,
            f"call {type_text(type)} @{name}(<{type.lanes} x ptr> {pointers}, "
            f"i32 {signed_bytes(type)}, {self._mask(range(active), type.lanes)}, "
            f"{type_text(type)} zeroinitializer)",
        )

    def _op_scatter(self, i: Instruction) -> None:
        value = i.args[0]
        type = value.type
        active = i.attrs["mask"] or type.lanes
        step = near_step(type, i.attrs["stride"])
        if step:
            self._spread(value, self._address(i.args[1], i.attrs["at"]), step, active)
            return
        pointers = self._lane_pointers(i.args[1], i.attrs["at"], i.attrs["stride"], type.lanes)
        name = self._declare(
            f"llvm.masked.scatter.{suffix(type)}.v{type.lanes}p0",
            "void",
            f"{type_text(type)}, <{type.lanes} x ptr>, i32, <{type.lanes} x i1>",
        )
        self._line(
            f"call void @{name}({self._typed(value)}, <{type.lanes} x ptr> {pointers}, "
            f"i32 {signed_bytes(type)}, {self._mask(range(active), type.lanes)})"
        )

    def _spread(self, value: Value, pointer: str, step: int, active: int) -> None:
        """Lanes to every `step`-th element: by vectors in which the others are not written."""
        type, name = value.type, self._name(value)
        lanes, size = type.lanes, signed_bytes(type)
        for number in range((active - 1) * step // lanes + 1):
            sources = [divmod(number * lanes + place, step) for place in range(lanes)]
            written = {
                place: lane
                for place, (lane, rest) in enumerate(sources)
                if not rest and lane < active
            }
            picks = [written.get(place, 0) for place in range(lanes)]
            part = self._emit(self._shuffled(type, name, name, picks))
            here = self._emit(f"getelementptr i8, ptr {pointer}, i64 {number * lanes * size}")
            self._store_lanes(type, part, here, written)

    def _op_prefetch(self, i: Instruction) -> None:
        self._declare("llvm.prefetch.p0", "void", "ptr, i32, i32, i32")
        pointer = self._address(i.args[0], i.attrs["at"])
        self._line(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 0, i32 3, i32 1)")


def near_step(type: Type, stride: int) -> int:
    """Elements from lane to lane where they lie so near that whole vectors are read or written; 0
    where they do not, or each is the next one."""
    step, rest = divmod(stride, signed_bytes(type))
    return step if type.scalar != "i1" and not rest and 1 < step <= NEAR else 0


def near_lanes(lanes: int, step: int, active: int) -> list[list[int | None]]:
    """For each vector that is read: where in it each lane's element lies, if it does."""
    found: list[list[int | None]] = []
    for number in range((active - 1) * step // lanes + 1):
        places = [lane * step - number * lanes for lane in range(lanes)]
        held = [0 <= at < lanes and lane < active for lane, at in enumerate(places)]
        found.append([at if here else None for at, here in zip(places, held, strict=True)])
    return found


def _words(entries: tuple[float, ...], scalar: str) -> list[str]:
    """Entries of 32 bits as LLVM spells the integers of the same bits."""
    kind = "<f" if scalar == "f32" else "<i"
    numbers = (one if scalar == "f32" else int(one) for one in entries)
    return [f"i32 {struct.unpack('<i', struct.pack(kind, number))[0]}" for number in numbers]
