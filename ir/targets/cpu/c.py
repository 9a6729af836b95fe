"""Prints a nest function as C that people can read: GNU vectors, for gcc >= 11 and clang.

The twin of `llvm.py`; statements and names are made here. Knows no program.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ir.c_words import C_WORDS
from ir.targets.cpu.c_flow import Usage
from ir.targets.cpu.c_prelude import Prelude
from ir.targets.cpu.c_values import ATOM, SUM, Expression, Values, near_stride
from ir.targets.cpu.nest import (
    Block,
    Branch,
    Comment,
    Function,
    Instruction,
    Loop,
    Operand,
    Type,
    Value,
)

# Names that neither a variable nor an operand may have in C.
RESERVED_WORDS = C_WORDS | {"thread", "threads", "args", "team"}
# Names that the text's own helpers and types begin with or contain (`c_prelude`).
_HELPERS = re.compile(
    r"(.*_)?v\d+(i|u|f|bf|e)\d.*|.*_(at|of)(_.*)?|(load|store|stream|scatter|gather|spread|splat|"
    r"collect|lanes|select|max|min|interleave)_.*"
)
_EXTERNALS = {
    "tilewright_barrier": "void tilewright_barrier(void *team);",
    "tilewright_ticket": "int64_t tilewright_ticket(void *team, int64_t slot);",
}
_WIDTH = 100
_LONGEST = 64  # longer expressions get a name


def safe_name(name: str) -> str:
    """`name`, or one near it where the headers may have a macro or this text a helper so called."""
    macro = name.isupper() and (len(name) > 3 or "_" in name)
    return f"{name}_" if macro or _HELPERS.fullmatch(name) else name


class _Names:
    """Unique names within the enclosing scopes; siblings may reuse them."""

    def __init__(self) -> None:
        self._scopes: list[set[str]] = [set(RESERVED_WORDS)]

    def new(self, stem: str) -> str:
        stem = safe_name(stem)
        name, number = stem, 0
        while any(name in scope for scope in self._scopes):
            number += 1
            name = f"{stem}_{number}"
        self._scopes[-1].add(name)
        return name

    @contextmanager
    def scope(self) -> Iterator[None]:
        self._scopes.append(set())
        yield
        self._scopes.pop()


class CPrinter:
    """One use per function: `CPrinter(function).text()`."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.usage = Usage(function)
        self.prelude = Prelude()
        self.values = Values(self.prelude)
        self.names = _Names()
        self.lines: list[str] = []
        self.depth = 1
        self.shared: dict[int, str] = {}  # values that live in a variable of a loop
        self.mutable: list[set[str]] = [set()]  # loop variables declared in each open block

    def text(self) -> str:
        """The whole text: types, helpers, the function."""
        for parameter in self.function.parameters:
            self.values.known[parameter.id] = Expression(parameter.name)
        self._block(self.function.block)
        head = (
            f"static void {self.function.name}(int64_t thread, int64_t threads, void **args, "
            "void *team) {"
        )
        unused = [p.name for p in self.function.parameters if not self.usage.count.get(p.id)]
        quiet = ["  " + " ".join(f"(void){name};" for name in unused)] if unused else []
        note = (
            f"/* {self.function.name}: every thread of the team runs it. Pointers count bytes; "
            "vNtype is N lanes. */"
        )
        body = "\n".join([note, head, *quiet, *self.lines, "}"])
        return f"{self.prelude.text()}\n{body}\n"

    # -- lines

    def _line(self, text: str) -> None:
        indent = "  " * self.depth
        if len(indent) + len(text) <= _WIDTH:
            self.lines.append(indent + text)
            return
        self.lines += textwrap.wrap(
            text,
            _WIDTH,
            initial_indent=indent,
            subsequent_indent=indent + "    ",
            break_long_words=False,
            break_on_hyphens=False,
        )

    def _comment(self, text: str) -> None:
        self._line(f"/* {text.replace('*/', '* /')} */")

    @contextmanager
    def _braces(self, head: str, tail: str = "}") -> Iterator[None]:
        self._line(head + " {")
        self.depth += 1
        self.mutable.append(set())
        with self.names.scope():
            yield
        self.mutable.pop()
        self.depth -= 1
        self._line(tail)

    # -- blocks

    def _block(self, block: Block) -> None:
        for number, item in enumerate(block.body):
            if isinstance(item, Comment):
                self._comment(item.text)
            elif isinstance(item, Loop):
                self._loop(item)
            elif isinstance(item, Branch):
                if id(item) not in self.usage.idle:
                    self._branch(item)
            elif item.result is None or item.result.id not in self.usage.dead:
                following = block.body[number + 1] if number + 1 < len(block.body) else None
                self._instruction(item, block, following)

    def _instruction(self, i: Instruction, block: Block, following: Any) -> None:
        if i.op == "constant":
            assert i.result is not None
            self.values.known[i.result.id] = self.values.constant(i)
            return
        if i.op in ("store", "scatter", "prefetch", "call", "intrinsic"):
            self._effect(i, block)
            return
        self._define(i, self._expression(i), block, following)

    def _expression(self, i: Instruction) -> Expression:
        """Reading the kernel's arguments is spelled as an index."""
        team_args = self.function.parameters[2]
        if i.op == "load" and i.args[0] is team_args and i.result and i.result.type.scalar == "ptr":
            return Expression(f"args[{i.attrs['at'] // 8}]")
        return self.values.expression(i)

    def _define(self, i: Instruction, expression: Expression, block: Block, following: Any) -> None:
        """Give the result a name, or let its only user spell it out."""
        result = i.result
        assert result is not None
        variable = self.shared.get(result.id)
        if variable is not None:
            self._line(f"{variable} = {expression.text};")
            return
        deferrable = self._deferrable(i, block, following) and len(expression.text) <= _LONGEST
        if expression.level == ATOM and expression.text.isidentifier():
            deferrable = True
        if deferrable:
            self.values.known[result.id] = expression
            return
        name = self.names.new(self._stem(i))
        kind = self.prelude.type(result.type)
        space = "" if kind.endswith("*") else " "
        self._line(f"{kind}{space}{name} = {expression.text};")
        self.values.known[result.id] = Expression(name)

    def _deferrable(self, i: Instruction, block: Block, following: Any) -> bool:
        assert i.result is not None
        alone, user = self.usage.sole_user(i.result, block)
        if not alone:
            return False
        if i.op not in ("load", "gather", "gather_at", "call"):
            return True
        if not isinstance(following, Instruction) or user is not following:
            return False
        if following.result is None or following.result.id in self.shared:
            return following.op == "store"
        return not self.usage.sole_user(following.result, block)[0]

    def _stem(self, i: Instruction) -> str:
        """What a temporary is called after."""
        assert i.result is not None
        if i.result.name:
            return i.result.name if i.result.name.isidentifier() else "x"
        if i.op == "fold":
            return str(i.attrs["kind"])
        if i.result.type.scalar == "ptr":
            return "p"
        if i.result.type == Type("i64"):
            return "ticket" if i.op == "call" else "at"
        if i.result.type.scalar == "i1":
            return "when"
        return "x" if i.op in ("load", "gather", "gather_at") else "t"

    # -- effects

    def _effect(self, i: Instruction, block: Block) -> None:
        if i.op in ("call", "intrinsic"):
            self._call(i, block)
            return
        if i.op == "prefetch":
            pointer = self.values.address(i.args[0], i.attrs["at"])
            self._line(f"__builtin_prefetch({pointer.text}, 0, 3);")
            return
        value = self.values.operand(i.args[0])
        pointer = self.values.address(i.args[1], i.attrs["at"])
        type, mask = i.args[0].type, i.attrs["mask"]
        if i.op == "scatter":
            stride, count = i.attrs["stride"], mask or type.lanes
            name = self.prelude.scatter(type, near_stride(stride, type.lanes))
            self._line(f"{name}({pointer.text}, {value.text}, {stride}, {count});")
        elif mask:
            self._line(f"{self.prelude.store_first(type)}({pointer.text}, {value.text}, {mask});")
        else:
            streams = i.attrs["stream"] and type.lanes
            name = self.prelude.stream(type) if streams else self.prelude.store(type)
            self._line(f"{name}({pointer.text}, {value.text});")

    def _call(self, i: Instruction, block: Block) -> None:
        if i.op == "call":
            callee = i.attrs["callee"]
            self.prelude.declare(callee, _EXTERNALS[callee])
        elif any(isinstance(a, Value) and a.type.scalar == "ptr" for a in i.args):
            # The compiler does not see what such an instruction reads: stores come first.
            self._line('__asm__ volatile("" ::: "memory");')
        expression = self.values.expression(i)
        if i.result is None:
            self._line(f"{expression.text};")
        else:
            self._define(i, expression, block, None)

    # -- loops

    def _loop(self, loop: Loop) -> None:
        variables = self._carried(loop)
        counted = isinstance(loop.low, int) and isinstance(loop.high, int)
        low, high = self.values.operand(loop.low), self.values.operand(loop.high)
        stem = loop.variable.name if loop.variable.name.isidentifier() else "i"
        if loop.runs and not counted:
            name = self.names.new(stem)
            step = f"{name}++" if loop.step == 1 else f"{name} += {loop.step}"
            self._line(f"int64_t {name} = {low.text};")
            with self._braces("do", f"}} while ({name} < {high.at(SUM)});"):
                self._body(loop, name, variables)
                self._line(f"{step};")
        else:
            with self.names.scope():
                name = self.names.new(stem)
                step = f"{name}++" if loop.step == 1 else f"{name} += {loop.step}"
                head = f"for (int64_t {name} = {low.text}; {name} < {high.at(SUM)}; {step})"
                with self._braces(head):
                    self._body(loop, name, variables)
        for result, variable in zip(loop.results, variables, strict=True):
            self.values.known[result.id] = Expression(variable, ATOM, frozenset((variable,)))

    def _body(self, loop: Loop, name: str, variables: Sequence[str]) -> None:
        self.values.known[loop.variable.id] = Expression(name)
        pending: list[tuple[str, Operand]] = []
        for carried, yielded, variable in zip(
            loop.carried, loop.block.yields, variables, strict=True
        ):
            self.values.known[carried.id] = Expression(variable, ATOM, frozenset((variable,)))
            chain = self.usage.chain(loop.block, carried, yielded)
            for value in chain or ():
                self.shared[value.id] = variable
                self.values.known[value.id] = self.values.known[carried.id]
            if chain is None:
                pending.append((variable, yielded))
        self._block(loop.block)
        self._assign(pending)

    def _assign(self, pending: list[tuple[str, Operand]]) -> None:
        """All of `variable = value` at once: through temporaries where one reads another."""
        values = [self.values.operand(value) for _, value in pending]
        targets = {variable for variable, _ in pending}
        tangled = any(
            expression.reads & (targets - {variable})
            for (variable, _), expression in zip(pending, values, strict=True)
        )
        if tangled:
            for place, (_, value) in enumerate(pending):
                kind = self.prelude.type(value.type if isinstance(value, Value) else Type("i64"))
                name = self.names.new("next")
                self._line(f"{kind} {name} = {values[place].text};")
                values[place] = Expression(name)
        for (variable, _), expression in zip(pending, values, strict=True):
            self._line(f"{variable} = {expression.text};")

    def _carried(self, loop: Loop) -> list[str]:
        """A variable for each carried value, with its initial value in it."""
        variables: list[str] = []
        groups: dict[str, list[str]] = {}
        for initial, result in zip(loop.initial, loop.results, strict=True):
            variable = self.shared.get(result.id)
            if variable is not None:
                self._start(variable, initial)
            else:
                variable = self._inherited(initial)
            if variable is None:
                stem = "acc" if result.type.lanes else "sum"
                variable = self.names.new(stem)
                self.mutable[-1].add(variable)
                start = self.values.operand(initial).text
                zero = f"({self.prelude.type(result.type)}){{0}}"
                groups.setdefault(self.prelude.type(result.type), []).append(
                    f"{variable} = {'{0}' if start == zero else start}"
                )
            variables.append(variable)
        for kind, declared in groups.items():
            self._declare(kind, declared)
        return variables

    def _start(self, variable: str, initial: Operand) -> None:
        """Bring `initial` into a variable made before the loop, unless it is there already."""
        start = self.values.operand(initial).text
        if start != variable:
            self._line(f"{variable} = {start};")

    def _declare(self, kind: str, items: Sequence[str]) -> None:
        """Several variables of one type, as many on a line as fit."""
        text = f"{kind.removesuffix('*').rstrip()} "
        star = "*" if kind.endswith("*") else ""
        indent = "  " * self.depth
        for number, item in enumerate(items):
            piece = star + item + (";" if number + 1 == len(items) else ", ")
            if len(indent) + len(text) + len(piece.rstrip()) > _WIDTH:
                self.lines.append(indent + text.rstrip())
                text = "    "
            text += piece
        self.lines.append(indent + text)

    def _inherited(self, initial: Operand) -> str | None:
        """The variable of a loop before, when only this loop reads it."""
        if not isinstance(initial, Value) or self.usage.count.get(initial.id) != 1:
            return None
        text = self.values.known[initial.id].text
        return text if text in self.mutable[-1] else None

    # -- branches

    def _branch(self, branch: Branch) -> None:
        places = [n for n, r in enumerate(branch.results) if r.id not in self.usage.dead]
        names = {place: self._result(branch.results[place]) for place in places}
        groups: dict[str, list[str]] = {}
        for place, name in names.items():
            kind = self.prelude.type(branch.results[place].type)
            groups.setdefault(kind, []).append(name)
        for kind, declared in groups.items():
            self._declare(kind, declared)
        condition = self.values.operand(branch.condition)
        has_other = bool(branch.other.body or names)
        with self._braces(f"if ({condition.text})", "} else {" if has_other else "}"):
            self._side(branch.then, names)
        if has_other:
            head = self.lines.pop().strip().removesuffix(" {")
            with self._braces(head):
                self._side(branch.other, names)
        for place, name in names.items():
            known = Expression(name, ATOM, frozenset((name,)))
            self.values.known[branch.results[place].id] = known

    def _result(self, result: Value) -> str:
        """A variable for what a branch yields; a loop that alone reads it may take it over."""
        name = self.names.new("acc" if result.type.lanes else "sum")
        self.mutable[-1].add(name)
        return name

    def _side(self, block: Block, names: Mapping[int, str]) -> None:
        for place, name in names.items():
            value = block.yields[place]
            if isinstance(value, Value) and self.usage.sole_user(value, block) == (True, None):
                self.shared[value.id] = name
        self._block(block)
        for place, name in names.items():
            value = block.yields[place]
            if not isinstance(value, Value) or self.shared.get(value.id) != name:
                self._line(f"{name} = {self.values.operand(value).text};")
            elif value.id in self.values.known and self.values.known[value.id].text != name:
                self._line(f"{name} = {self.values.known[value.id].text};")


def print_c(function: Function) -> str:
    """C text of `function`: a static SPMD body, to stand behind the pool's text."""
    return CPrinter(function).text()
