"""Prints a nest function as LLVM IR text, with the vectors already in it. Knows no program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ir.targets.cpu.llvm_narrow import NarrowFloats
from ir.targets.cpu.llvm_words import (
    CALLS,
    FLOAT_PREDICATES,
    FOLDS,
    INT_FOLDS,
    INT_PREDICATES,
    PLAIN,
    SCALARS,
    conversion,
    literal,
    signed_bytes,
    suffix,
    type_text,
)
from ir.targets.cpu.narrow import FORMATS
from ir.targets.cpu.nest import (
    Block,
    Branch,
    Comment,
    Function,
    Instruction,
    Loop,
    Type,
    Value,
)


class LlvmPrinter:
    """One use per function: `LlvmPrinter(isa).module(function)`."""

    def __init__(self, isa: tuple[str, ...]) -> None:
        self.narrow = NarrowFloats(self._emit, self._declare_row, isa)
        self.lines: list[str] = []
        self.declared: dict[str, str] = {}
        self.label = "entry"
        self.labels = 0
        self.constants: dict[int, str] = {}

    def module(self, function: Function) -> str:
        """The whole module text: the function and the declarations it needs."""
        names = ", ".join(f"{type_text(p.type)} %v{p.id}" for p in function.parameters)
        self.lines.append(f"define void @{function.name}({names}) nounwind {{")
        self.lines.append("entry:")
        self._block(function.block)
        self.lines.append("  ret void")
        self.lines.append("}")
        header = [f"; {function.name}: SPMD body (thread, threads, args, team)"]
        declares = [f"declare {text}" for _, text in sorted(self.declared.items())]
        nontemporal = ["!0 = !{i32 1}"]
        return "\n".join([*header, *declares, "", *self.lines, "", *nontemporal, ""])

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

    def _mask(self, lanes: int, active: int) -> str:
        bits = ", ".join("i1 1" if lane < active else "i1 0" for lane in range(lanes))
        return f"<{lanes} x i1> <{bits}>"

    # -- structure

    def _block(self, block: Block) -> None:
        for item in block.body:
            if isinstance(item, Instruction):
                getattr(self, f"_op_{item.op}", self._generic)(item)
            elif isinstance(item, Loop):
                self._loop(item)
            elif isinstance(item, Branch):
                self._branch(item)
            elif isinstance(item, Comment):
                self._line(f"; {item.text}")

    def _fresh_label(self, stem: str) -> str:
        self.labels += 1
        return f"{stem}{self.labels}"

    def _open(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.label = label

    def _loop(self, loop: Loop) -> None:
        head, body, done = (self._fresh_label(s) for s in ("head", "body", "done"))
        before = self.label
        step = f"%n{self._fresh_label('')}"
        high = self._name(loop.high)
        self._line(f"br label %{head}")
        self._open(head)
        latch = f"@@{head}@@"
        position = len(self.lines)
        variable = f"%v{loop.variable.id}"
        self._line(
            f"{variable} = phi i64 [ {self._name(loop.low)}, %{before} ], [ {step}, %{latch} ]"
        )
        for value, initial in zip(loop.carried, loop.initial, strict=True):
            self._line(
                f"%v{value.id} = phi {type_text(value.type)} "
                f"[ {self._name(initial)}, %{before} ], [ @@y{value.id}@@, %{latch} ]"
            )
        if not loop.runs:
            self._line(f"%t{head} = icmp slt i64 {variable}, {high}")
            self._line(f"br i1 %t{head}, label %{body}, label %{done}")
            self._open(body)
        self._block(loop.block)
        self._line(f"{step} = add nuw nsw i64 {variable}, {loop.step}")
        if loop.runs:
            self._line(f"%t{head} = icmp slt i64 {step}, {high}")
            self._line(f"br i1 %t{head}, label %{head}, label %{done}")
        else:
            self._line(f"br label %{head}")
        last = self.label
        self._patch(position, loop, latch, last)
        self._open(done)
        origin: Sequence[Any] = loop.block.yields if loop.runs else loop.carried
        for result, value in zip(loop.results, origin, strict=True):
            self.constants[result.id] = self._name(value)

    def _patch(self, position: int, loop: Loop, latch: str, last: str) -> None:
        for row in range(position, position + 1 + len(loop.carried)):
            text = self.lines[row].replace(latch, last)
            if row > position:
                index = row - position - 1
                text = text.replace(
                    f"@@y{loop.carried[index].id}@@", self._name(loop.block.yields[index])
                )
            self.lines[row] = text

    def _branch(self, branch: Branch) -> None:
        then, other, done = (self._fresh_label(s) for s in ("then", "else", "join"))
        has_other = bool(branch.other.body) or bool(branch.results)
        target = other if has_other else done
        self._line(f"br i1 {self._name(branch.condition)}, label %{then}, label %{target}")
        self._open(then)
        self._block(branch.then)
        left = self.label
        self._line(f"br label %{done}")
        right = left
        if has_other:
            self._open(other)
            self._block(branch.other)
            right = self.label
            self._line(f"br label %{done}")
        self._open(done)
        for i, result in enumerate(branch.results):
            yes, no = self._name(branch.then.yields[i]), self._name(branch.other.yields[i])
            self._line(
                f"%v{result.id} = phi {type_text(result.type)} [ {yes}, %{left} ], "
                f"[ {no}, %{right} ]"
            )

    # -- instructions

    def _generic(self, i: Instruction) -> None:
        assert i.result is not None
        if i.op in PLAIN:
            flags = " contract" if i.op in ("fadd", "fsub", "fmul") else ""
            if i.op in ("idiv", "irem", "iadd", "isub", "imul") and i.result.type.lanes == 0:
                flags = " nsw" if i.op in ("iadd", "isub", "imul") else ""
            left, right = (self._name(a) for a in i.args)
            self._define(i, f"{PLAIN[i.op]}{flags} {type_text(i.result.type)} {left}, {right}")
        else:
            name = CALLS[i.op]
            if i.op in ("fmax", "fmin"):
                return self._float_extreme(i)
            self._call(i, f"llvm.{name}.{suffix(i.result.type)}", i.args)

    def _float_extreme(self, i: Instruction) -> None:
        """max(a, b) as a compare and a select: one instruction on x86, NaN from the second."""
        assert i.result is not None
        type = type_text(i.result.type)
        left, right = (self._name(a) for a in i.args)
        predicate = "ogt" if i.op == "fmax" else "olt"
        bit = type_text(i.result.type.of("i1"))
        self._line(f"%x{i.result.id} = fcmp {predicate} {type} {left}, {right}")
        self._define(i, f"select {bit} %x{i.result.id}, {type} {left}, {type} {right}")

    def _op_fneg(self, i: Instruction) -> None:
        self._define(i, f"fneg {self._typed(i.args[0])}")

    def _op_constant(self, i: Instruction) -> None:
        assert i.result is not None
        type = i.result.type
        text = literal(i.args[0], type.scalar)
        if type.lanes:
            scalar = SCALARS[type.scalar]
            text = "<" + ", ".join([f"{scalar} {text}"] * type.lanes) + ">"
        self.constants[i.result.id] = text

    def _op_lanes(self, i: Instruction) -> None:
        assert i.result is not None
        scalar = SCALARS[i.result.type.scalar]
        items = ", ".join(f"{scalar} {lane}" for lane in range(i.result.type.lanes))
        self.constants[i.result.id] = f"<{items}>"

    def _op_offset(self, i: Instruction) -> None:
        self._define(i, f"getelementptr i8, {self._typed(i.args[0])}, {self._typed(i.args[1])}")

    def _op_icmp(self, i: Instruction) -> None:
        predicate = INT_PREDICATES[i.attrs["predicate"]]
        self._define(i, f"icmp {predicate} i64 {self._name(i.args[0])}, {self._name(i.args[1])}")

    def _op_cmp(self, i: Instruction) -> None:
        left, right = i.args
        table = FLOAT_PREDICATES if left.type.is_float else INT_PREDICATES
        word = "fcmp" if left.type.is_float else "icmp"
        predicate = table[i.attrs["predicate"]]
        self._define(i, f"{word} {predicate} {self._typed(left)}, {self._name(right)}")

    def _op_select(self, i: Instruction) -> None:
        self._define(i, "select " + ", ".join(self._typed(a) for a in i.args))

    def _op_load(self, i: Instruction) -> None:
        assert i.result is not None
        type = i.result.type
        pointer = self._address(i.args[0], i.attrs["at"])
        active = i.attrs["mask"]
        if not active:
            self._define(i, f"load {type_text(type)}, ptr {pointer}, align {signed_bytes(type)}")
            return
        name = self._declare(
            f"llvm.masked.load.{suffix(type)}.p0",
            type_text(type),
            f"ptr, i32, <{type.lanes} x i1>, {type_text(type)}",
        )
        self._define(
            i,
            f"call {type_text(type)} @{name}(ptr {pointer}, i32 {signed_bytes(type)}, "
            f"{self._mask(type.lanes, active)}, {type_text(type)} zeroinitializer)",
        )

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
        name = self._declare(
            f"llvm.masked.store.{suffix(type)}.p0",
            "void",
            f"{type_text(type)}, ptr, i32, <{type.lanes} x i1>",
        )
        self._line(
            f"call void @{name}({self._typed(value)}, ptr {pointer}, "
            f"i32 {signed_bytes(type)}, {self._mask(type.lanes, active)})"
        )

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
        type = i.result.type
        pointers = self._lane_pointers(i.args[0], i.attrs["at"], i.attrs["stride"], type.lanes)
        self._gather(i, pointers, i.attrs["mask"] or type.lanes)

    def _op_gather_at(self, i: Instruction) -> None:
        assert i.result is not None
        self.labels += 1
        name = f"%g{self.labels}"
        self._line(f"{name} = getelementptr i8, {self._typed(i.args[0])}, {self._typed(i.args[1])}")
        self._gather(i, name, i.result.type.lanes)

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
            f"i32 {signed_bytes(type)}, {self._mask(type.lanes, active)}, "
            f"{type_text(type)} zeroinitializer)",
        )

    def _op_scatter(self, i: Instruction) -> None:
        value = i.args[0]
        type = value.type
        pointers = self._lane_pointers(i.args[1], i.attrs["at"], i.attrs["stride"], type.lanes)
        active = i.attrs["mask"] or type.lanes
        name = self._declare(
            f"llvm.masked.scatter.{suffix(type)}.v{type.lanes}p0",
            "void",
            f"{type_text(type)}, <{type.lanes} x ptr>, i32, <{type.lanes} x i1>",
        )
        self._line(
            f"call void @{name}({self._typed(value)}, <{type.lanes} x ptr> {pointers}, "
            f"i32 {signed_bytes(type)}, {self._mask(type.lanes, active)})"
        )

    def _op_prefetch(self, i: Instruction) -> None:
        self._declare("llvm.prefetch.p0", "void", "ptr, i32, i32, i32")
        pointer = self._address(i.args[0], i.attrs["at"])
        self._line(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 0, i32 3, i32 1)")

    def _op_convert(self, i: Instruction) -> None:
        assert i.result is not None
        source, target = i.args[0].type, i.result.type
        formats = FORMATS.get(source.scalar), FORMATS.get(target.scalar)
        if any(formats):
            value = self._name(i.args[0])
            self.constants[i.result.id] = self.narrow.convert(value, *formats, source.lanes)
            return
        word = conversion(source.scalar, target.scalar, i.attrs["unsigned"])
        self._define(i, f"{word} {self._typed(i.args[0])} to {type_text(target)}")

    def _op_bitcast(self, i: Instruction) -> None:
        assert i.result is not None
        source, target = type_text(i.args[0].type), type_text(i.result.type)
        if source == target:
            self.constants[i.result.id] = self._name(i.args[0])
            return
        self._define(i, f"bitcast {source} {self._name(i.args[0])} to {target}")

    def _op_splat(self, i: Instruction) -> None:
        assert i.result is not None
        type = type_text(i.result.type)
        lanes = i.result.type.lanes
        self._line(
            f"%s{i.result.id} = insertelement {type} poison, {self._typed(i.args[0])}, i64 0"
        )
        self._define(
            i,
            f"shufflevector {type} %s{i.result.id}, {type} poison, <{lanes} x i32> zeroinitializer",
        )

    def _op_fold(self, i: Instruction) -> None:
        assert i.result is not None
        type, scalar = i.args[0].type, i.result.type
        kind = i.attrs["kind"]
        if not scalar.is_float:
            self._call(i, f"llvm.vector.reduce.{INT_FOLDS[kind]}.{suffix(type)}", i.args)
            return
        name = f"llvm.vector.reduce.{FOLDS[kind]}.{suffix(type)}"
        text = type_text(scalar)
        if kind in ("sum", "prod"):
            self._declare(name, text, f"{text}, {type_text(type)}")
            start = literal(0.0 if kind == "sum" else 1.0, scalar.scalar)
            self._define(
                i, f"call reassoc {text} @{name}({text} {start}, {self._typed(i.args[0])})"
            )
        else:
            self._declare(name, text, type_text(type))
            self._define(i, f"call nnan {text} @{name}({self._typed(i.args[0])})")

    def _op_interleave(self, i: Instruction) -> None:
        lanes = i.args[0].type.lanes
        order = ", ".join(f"i32 {lane}, i32 {lane + lanes}" for lane in range(lanes))
        type = type_text(i.args[0].type)
        self._define(
            i,
            f"shufflevector {type} {self._name(i.args[0])}, {type} "
            f"{self._name(i.args[1])}, <{2 * lanes} x i32> <{order}>",
        )

    def _op_intrinsic(self, i: Instruction) -> None:
        row = i.attrs["row"]
        args = ", ".join(self._given(a) if isinstance(a, Value) else f"i8 {a}" for a in i.args)
        suffix = getattr(row, "suffix", "")
        args = f"{args}, {suffix}" if suffix else args
        self._declare_row(row)
        if i.result is not None:
            self._define(i, f"call {type_text(i.result.type)} @{row.llvm}({args})")
        else:
            self._line(f"call void @{row.llvm}({args})")

    def _given(self, value: Value) -> str:
        """An operand of an instruction row, which takes bf16 as LLVM's own type."""
        if value.type.scalar != "bf16":
            return self._typed(value)
        type = f"<{value.type.lanes} x bfloat>"
        return f"{type} {self._emit(f'bitcast {self._typed(value)} to {type}')}"

    def _op_call(self, i: Instruction) -> None:
        self._call(i, i.attrs["callee"], i.args)


def print_llvm(function: Function, isa: tuple[str, ...] = ()) -> str:
    """LLVM IR text of `function` for machines with `isa` (none: any x86-64)."""
    return LlvmPrinter(isa).module(function)
