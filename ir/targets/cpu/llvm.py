"""Prints a nest function as LLVM IR text, with the vectors already in it. Knows no program."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ir.targets.cpu.llvm_memory import MemoryPrinter
from ir.targets.cpu.llvm_words import (
    BIT_FOLDS,
    CALLS,
    EXTREMES,
    FLOAT_PREDICATES,
    FOLDS,
    INT_FOLDS,
    INT_PREDICATES,
    PLAIN,
    SCALARS,
    conversion,
    literal,
    suffix,
    table_text,
    type_text,
)
from ir.targets.cpu.narrow import FORMATS
from ir.targets.cpu.nest import (
    WRAPPING,
    Block,
    Branch,
    Comment,
    Function,
    Instruction,
    Loop,
    Operand,
    Value,
)


class LlvmPrinter(MemoryPrinter):
    """One use per function: `LlvmPrinter(isa).module(function)`."""

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
        return "\n".join([*header, *declares, *self.tables, "", *self.lines, "", *nontemporal, ""])

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
                sums = i.op in WRAPPING and not i.attrs.get("wraps")
                flags = " nsw" if sums else ""
            left, right = (self._name(a) for a in i.args)
            self._define(i, f"{PLAIN[i.op]}{flags} {type_text(i.result.type)} {left}, {right}")
        else:
            self._call(i, f"llvm.{CALLS[i.op]}.{suffix(i.result.type)}", i.args)

    def _extreme(self, i: Instruction) -> None:
        """max(a, b) as a compare and a select: one instruction on x86, NaN from the second.

        A number known here goes first. Else a NaN of the first, which is often the result so far,
        comes through; one of the second, which is not waited for, is put in its place.
        """
        assert i.result is not None
        type, bit = type_text(i.result.type), type_text(i.result.type.of("i1"))
        left, right = (self._name(a) for a in i.args)
        whole = i.op in ("fmaximum", "fminimum") and not self._is_number(i.args[0])
        if whole:
            left, right = right, left
        self._line(f"%x{i.result.id} = fcmp {EXTREMES[i.op]} {type} {left}, {right}")
        chosen = f"select {bit} %x{i.result.id}, {type} {left}, {type} {right}"
        if not whole or self._is_number(i.args[1]):
            return self._define(i, chosen)
        self._line(f"%y{i.result.id} = {chosen}")
        self._line(f"%u{i.result.id} = fcmp uno {type} {left}, {left}")
        self._define(i, f"select {bit} %u{i.result.id}, {type} {left}, {type} %y{i.result.id}")

    def _is_number(self, operand: Operand) -> bool:
        """Whether an operand is a constant other than NaN."""
        value = self.numbers.get(operand.id) if isinstance(operand, Value) else operand
        return value is not None and not math.isnan(value)

    _op_fmax = _op_fmin = _op_fmaximum = _op_fminimum = _extreme

    def _op_fneg(self, i: Instruction) -> None:
        self._define(i, f"fneg {self._typed(i.args[0])}")

    def _op_constant(self, i: Instruction) -> None:
        assert i.result is not None
        type = i.result.type
        self.numbers[i.result.id] = i.args[0]
        text = literal(i.args[0], type.scalar)
        if type.lanes:
            scalar = SCALARS[type.scalar]
            text = "<" + ", ".join([f"{scalar} {text}"] * type.lanes) + ">"
        self.constants[i.result.id] = text

    def _op_table(self, i: Instruction) -> None:
        assert i.result is not None
        name = f"table{i.result.id}"
        self.tables.append(table_text(name, *i.args))
        self.constants[i.result.id] = f"@{name}"

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

    def _op_convert(self, i: Instruction) -> None:
        assert i.result is not None
        source, target = i.args[0].type, i.result.type
        formats = FORMATS.get(source.scalar), FORMATS.get(target.scalar)
        if any(formats):
            value = self._name(i.args[0])
            self.constants[i.result.id] = self.narrow.convert(value, *formats, source.lanes)
            return
        word = conversion(source.scalar, target.scalar, i.attrs["unsigned"])
        if word == "fptosi" and not i.attrs.get("inside"):
            return self._call(i, f"llvm.fptosi.sat.{suffix(target)}.{suffix(source)}", i.args)
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
        if i.args[0].id in self.numbers:
            self.numbers[i.result.id] = self.numbers[i.args[0].id]
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
            words = BIT_FOLDS if scalar.scalar == "i1" else INT_FOLDS
            self._call(i, f"llvm.vector.reduce.{words[kind]}.{suffix(type)}", i.args)
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
            self._define(i, f"call nsz {text} @{name}({self._typed(i.args[0])})")

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
