"""Statements of a plain kernel as text: of a thread that has a point to itself, or of a group.

A group's threads run alike what stands outside `Spread`. There one thread writes for all. Where
they have to meet is derived by `ir.plain.meetings`. Folds that threads can share are written by
`plain_fold`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod

from ir.plain.accesses import assigned, nested
from ir.plain.code import (
    THREAD,
    Accumulate,
    Assign,
    Between,
    Claim,
    Combine,
    If,
    Let,
    Loop,
    Name,
    PlainKernel,
    Scalar,
    Spread,
    Statement,
    Write,
)
from ir.plain.jammed import can_jam, jammed, renamed
from ir.plain.meetings import Access, Order, accesses_here, accesses_of, anywhere
from ir.plain.products import products_of
from ir.plain.scalars import merged, replaced
from ir.plain.sums import is_combined
from ir.targets.cuda.grid.merging import ARRIVALS
from ir.targets.cuda.plain.plain_ahead import ask_ahead
from ir.targets.cuda.plain.plain_fold import SharedFold
from ir.targets.cuda.plain.plain_held import HeldLoop, waits_of
from ir.targets.cuda.plain.plain_own import OwnFold
from ir.targets.cuda.plain.plain_products import TensorProducts, Tile
from ir.targets.cuda.plain.plain_scalars import Names, PlainScalars
from ir.targets.cuda.plain.plain_shape import folds_of, loops_of_registers
from ir.targets.cuda.plain.plain_weights import Weights
from ir.targets.cuda.plain.plain_words import SharedSum, WordLoop, shares, words_of
from ir.targets.cuda.text import scalars
from ir.targets.cuda.text.writer import Writer

MOST_I32 = 2**31 - 1
MOST_TURNS = 16  # iterations of a shared loop that a thread computes together


@dataclass(frozen=True, slots=True)
class Group:
    """The threads that share a point, how many neighbours along a fold each of them takes, of how
    many blocks they are, how many tiles of a fold a warp asks for ahead, in a ring that begins at a
    byte of shared memory, how many lanes share the sums of an iteration, a warp's tile of
    products on tensor cores, if there are any, and whether what a step reads is asked for in the
    step before."""

    block: int
    run: int
    team: int = 1
    ahead: int = 0
    ring: int = 0
    share: int = 1
    tile: Tile | None = None
    fetch: bool = False

    @property
    def threads(self) -> int:
        return self.block * self.team


class PlainText:
    """Writes a kernel's body; `group` is None where every thread has points of its own. `shared`
    are arrays in shared memory."""

    def __init__(
        self, kernel: PlainKernel, w: Writer, group: Group | None, run: int = 1,
        shared: frozenset[str] = frozenset(), steps: int = 1, fetch: bool = False, pitch: int = 0,
    ) -> None:  # fmt: skip
        self.kernel, self.w, self.group, self.shared = kernel, w, group, shared
        self.names = Names()
        self.scalars = PlainScalars(kernel.arrays, self.names, assigned(kernel.body))
        self.own = frozenset(a.name for a in kernel.arrays if a.place == THREAD)
        self.order = Order(kernel.body, self.own)
        self.folds = folds_of(kernel) if group else ()
        self.unrolled = frozenset() if group else loops_of_registers(kernel)
        self.run_length = run  # iterations of a fold of its own that a thread loads at a time
        self.fetch = fetch  # ask memory for what later steps of such a loop read
        self.sharing = 1  # lanes that share the sums of an iteration that is being written
        self.sent: Mapping[int, str] = {}  # where writes of several steps wait for each other
        self.pitch = pitch  # from row to row of those that pass through shared memory
        self.weights: Mapping[int, Weights] = {}  # operands of a step's products, by their loop
        self.steps = steps  # of a loop whose reads a thread makes before the first of them

    def run(self, statements: Sequence[Statement], together: bool | None = None) -> None:
        """Write a block. `together`: by all threads of a group alike, as a kernel's body is."""
        together = self.group is not None if together is None else together
        for statement in statements:
            self._statement(statement, together)

    def _statement(self, statement: Statement, together: bool) -> None:
        if together and not isinstance(statement, Write | Spread | Accumulate):
            self.meet_before(accesses_here(statement))
        match statement:
            case Let():
                text = self.scalars.given(statement.value, statement.name.dtype)
                self.declare(statement.name, text)
            case Assign():
                text = self.scalars.given(statement.value, statement.name.dtype)
                self.w.line(f"{self.names[statement.name.name]} = {text};")
            case Write():
                self._write(statement, together)
            case Combine():
                self._combine(statement, together)
            case Claim():
                place = f"{self.names[statement.array]}[{self.scalars.text(statement.index)}]"
                self.declare(statement.name, f"tw_claim(&{place})", constant=True)
            case If() | Between():
                sharing, self.sharing = self.sharing, 1  # lanes of others may not come here
                self._sometimes(statement, together)
                self.sharing = sharing
            case Loop() if self.sharing > 1 and is_combined(statement):
                SharedSum(self, statement, self.sharing).write()
            case Loop() if self.steps > 1 and not together and waits_of(self.kernel, statement):
                HeldLoop(self, statement, self.steps, self.fetch).write()
            case Loop():
                words = None if together else words_of(self.kernel, statement, self.scalars.held)
                if words is not None:
                    WordLoop(self, statement, words).write()
                    return
                with self._loop(statement, together):
                    if together and self.group and self.group.fetch:
                        ask_ahead(self, statement)
                    self.run(statement.body, together)
            case Spread():
                self._spread(statement, together)
            case Accumulate():
                self._fold(statement, together)

    def _sometimes(self, statement: If | Between, together: bool) -> None:
        if isinstance(statement, If):
            self._if(statement, together)
            return
        with self._walk(statement, together):
            self.run(statement.body, together)

    def declare(self, name: Name, text: str, constant: bool = False) -> None:
        kind = scalars.register_type(name.dtype)
        self.w.line(f"{'const ' * constant}{kind} {self.names[name.name]} = {text};")

    def fresh(self, stem: str, like: Sequence[Name]) -> list[Name]:
        """New variables of the same types."""
        return [Name(self.names.new(stem), name.dtype) for name in like]

    @property
    def block_of_team(self) -> str:
        """Which of a team's blocks this one is."""
        assert self.group is not None
        return f"tw_block_x() % {self.group.team}"

    # -- meetings

    def meet(self) -> None:
        """All threads have come here; what each wrote is there for the others."""
        self.w.line("tw_sync();")
        if self.group and self.group.team > 1:
            place = f"{ARRIVALS} + point"
            with self.w.block("if (tw_thread() == 0)"):
                self.w.line(f"met += {self.group.team};")
                self.w.line(f"tw_count({place});")
                self.w.line(f"tw_await({place}, met);")
            self.w.line("tw_sync();")
        self.order.met()

    def meet_before(self, accesses: Iterable[Access]) -> None:
        """All threads meet if they have to before accesses that are made next."""
        found = tuple(accesses)
        if self.order.clashes(found):
            self.meet()
        self.order.note(found)

    def begin_again(self, statements: Sequence[Statement] | None = None) -> None:
        """Statements, or all of the kernel, are written next and run several times."""
        if self.group is not None:
            self.order.note(accesses_of(self.kernel.body if statements is None else statements))

    # -- statements

    def _write(self, write: Write, together: bool) -> None:
        place = f"{self.names[write.array]}[{self.scalars.text(write.index)}]"
        if id(write) in self.sent:
            dtype = self.scalars.dtypes[write.array]
            self.w.line(f"{self.sent[id(write)]} = {self.scalars.given_as(write.value, dtype)};")
            return
        value = self.scalars.stored(write.array, write.value)
        accesses = tuple(accesses_here(write))
        if together:
            self.meet_before(access for access in accesses if not access.writes)
        if not together or write.array in self.own:
            self.w.line(f"{place} = {value};")
        elif self.order.clashes(accesses):  # all read what the value is made of, then one writes
            with self.w.block(""):
                storage = scalars.STORAGE[self.scalars.dtypes[write.array]]
                here, found = self.names.fresh("here"), self.names.fresh("value")
                self.w.line(f"const i64 {here} = {self.scalars.text(write.index)};")
                self.w.line(f"const {storage} {found} = {value};")
                self.meet()
                self.w.line(f"if (thread == 0) {self.names[write.array]}[{here}] = {found};")
        else:
            self.w.line(f"if (thread == 0) {place} = {value};")
        if together:
            self.order.note(accesses)

    def _combine(self, combine: Combine, together: bool) -> None:
        place = f"&{self.names[combine.array]}[{self.scalars.text(combine.index)}]"
        value = self.scalars.stored(combine.array, combine.value)
        one = "if (thread == 0) " if together else ""
        dtype = self.scalars.dtypes[combine.array]
        self.w.line(f"{one}tw_combine_{combine.kind}_{dtype}({place}, {value});")

    def _if(self, statement: If, together: bool) -> None:
        with self.order.perhaps(), self.w.block(f"if ({self.scalars.text(statement.condition)})"):
            self.run(statement.body, together)
        if statement.other:
            with self.order.perhaps(), self.w.block("else"):
                self.run(statement.other, together)

    @contextmanager
    def _walk(self, walk: Between, together: bool) -> Iterator[None]:
        """Iterations between bounds that are known at run time."""
        if together:
            self.begin_again(walk.body)
        name, end = self.names[walk.variable.name], self.names.fresh("end")
        self.w.line(f"const i64 {end} = {self.scalars.given(walk.end, 'i64')};")
        self.w.line("#pragma unroll 4")
        first = self.scalars.given(walk.first, "i64")
        head = f"for (i64 {name} = {first}; {name} < {end}; {name}++)"
        with self.order.perhaps(), self.w.block(head):
            yield

    @contextmanager
    def _loop(self, loop: Loop | Accumulate, together: bool) -> Iterator[None]:
        """Iterations one after the other."""
        if together:
            self.begin_again([s for block in nested(loop) for s in block])
        name = self.names[loop.variable.name]
        last = loop.extent - 1
        head = f"for (i64 {name} = 0; {name} < {loop.extent}; {name}++)"
        if loop.backward:
            head = f"for (i64 {name} = {last}; {name} >= 0; {name}--)"
        if id(loop) in self.unrolled:
            self.w.line("#pragma unroll")
        with self.w.block(head):
            yield

    def _spread(self, spread: Spread, together: bool) -> None:
        total = prod(extent for _, extent in spread.variables)
        products = None
        if together and self.group and self.group.tile:
            products = products_of(self.kernel, spread)
        if products is not None and self.group and self.group.tile:
            self.meet_before(anywhere((spread,)))
            weights = self.weights.get(id(spread))
            TensorProducts(self, products, self.group.tile, weights).write()
            return
        step = self.names.fresh("at")
        threads = self.group.threads if together and self.group else 1
        alone = self.group is None and self.kernel.cooperative
        wide = (together or alone) and can_jam(spread)
        run = min(self.run_length, MOST_TURNS) if wide else 1
        share = self.group.share if together and self.group and shares(self.kernel, spread) else 1
        threads //= share
        if together:
            self.meet_before(accesses_of((spread,), share))
        kind = "i32" if total + threads * run <= MOST_I32 else "i64"
        start = "thread" if together and share == 1 else "0"
        head = f"for ({kind} {step} = {start}; {step} < {total}; {step} += {threads * run})"
        with self.w.block(head):
            if share > 1:
                own = self.names.fresh("at")
                self.w.line(f"const {kind} {own} = {step} + thread / {share};")
                self._several(spread, own, kind, total, run, threads, share)
            elif run > 1:
                self._several(spread, step, kind, total, run, threads)
            else:
                self.coordinates(spread.variables, step)
                self.run(spread.body, False)

    def _several(
        self, spread: Spread, first: str, kind: str, total: int, run: int, threads: int,
        share: int = 1,
    ) -> None:  # fmt: skip
        """Several iterations of a thread together: all that they read is under way before one
        writes. Beyond the end is the last one again, which is not written. Where lanes share them,
        each has its share of every sum, and the first one writes."""
        turns, guards = [], []
        alike = spread.variables[-1:] if threads % spread.variables[-1][1] == 0 else ()
        for turn in range(run):
            at = self.names.fresh("at")
            place = f"{first} + {turn * threads}" if turn else first
            self.w.line(f"const {kind} {at} = {place};")
            beyond = total % (threads * run) and (turn or share > 1)
            conditions = [f"{at} < {total}"] if beyond else []
            conditions += [f"thread % {share} == 0"] if share > 1 else []
            guards.append(f"if ({' && '.join(conditions)})" if conditions else "")
            if beyond:
                at = f"({at} < {total} ? {at} : {total - 1})"
            own = {name.name: f"{name.name} of {turn}" for name, _ in spread.variables if turn}
            own |= {name.name: name.name for name, _ in alike}
            turns.append(own)
            known = alike if turn else ()
            variables = [(replace(n, name=own.get(n.name, n.name)), e) for n, e in spread.variables]
            self.coordinates(variables, at, known)
        writes = [s for s in spread.body if isinstance(s, Write)]
        held: list[list[tuple[Write, str]]] = []
        self.sharing = share
        for s in jammed([s for s in spread.body if not isinstance(s, Write)], turns):
            self._statement(s, False)
        self.sharing = 1
        for write in writes:
            values: list[tuple[Write, str]] = []
            for turn_names in turns:
                one = renamed(write, turn_names)
                assert isinstance(one, Write)
                values.append((one, self.names.fresh("held")))
                text = self.scalars.stored(one.array, one.value)
                storage = scalars.STORAGE[self.scalars.dtypes[one.array]]
                self.w.line(f"const {storage} {values[-1][1]} = {text};")
            held.append(values)
        for values in held:
            for guard, (one, value) in zip(guards, values, strict=True):
                place = f"{self.names[one.array]}[{self.scalars.text(one.index)}]"
                self.w.line(f"{guard} {place} = {value};".lstrip())

    def coordinates(
        self,
        variables: Sequence[tuple[Name, int]],
        number: str,
        known: Sequence[tuple[Name, int]] = (),
    ) -> None:
        """Declare the coordinates of a flattened point, the last one fastest, but for those that
        are `known`."""
        inner = prod(extent for _, extent in variables)
        if self._is_divided(variables, number):
            known_number = self.names.fresh("number")
            self.w.line(f"const auto {known_number} = tw_any({number});")
            number = known_number
        for place, (name, extent) in enumerate(variables):
            inner //= extent
            if (name, extent) in known:
                continue
            rest = f"{number} / {inner}" if inner > 1 else number
            if extent == 1:
                rest = "0"
            elif place:
                rest = f"({rest}) % {extent}" if inner > 1 else f"{number} % {extent}"
            self.w.line(f"const i64 {self.names[name.name]} = {rest};")

    @staticmethod
    def _is_divided(variables: Sequence[tuple[Name, int]], number: str) -> bool:
        """Whether coordinates are quotients and remainders by no powers of two."""
        extents = [extent for _, extent in variables[1:]]
        return any(extent & (extent - 1) for extent in extents)

    def _fold(self, fold: Accumulate, together: bool) -> None:
        for state in fold.states:
            self.declare(state, scalars.literal(0, state.dtype))
        if together and self.group and any(fold is one for one in self.folds):
            SharedFold(self, fold, replace(self.group, team=1)).write()
            return
        if not together and self.run_length > 1:
            OwnFold(self, fold, self.run_length).write()
            return
        first = fold.extent - 1 if fold.backward else 0
        with self._loop(fold, together):
            self.run(fold.body, together)
            if together:
                self.meet_before(accesses_here(fold))
            values = self.values(fold)
            at = self.names[fold.variable.name]
            with self.w.block(f"if ({at} == {first})"):
                self.assign(fold.states, values)
            with self.w.block("else"):
                self.merge(fold, fold.states, fold.states, values)
            self.run(fold.keep, together)

    # -- states of a fold

    def values(self, fold: Accumulate, held: Mapping[Scalar, Scalar] | None = None) -> list[Name]:
        """Declare what an iteration brings to a fold; `held`: where there is what it reads."""
        found = self.fresh("x", fold.states)
        for name, value in zip(found, fold.values, strict=True):
            text = self.scalars.given(replaced(value, held or {}), name.dtype)
            self.declare(name, text, constant=True)
        return found

    def assign(self, targets: Sequence[Name], values: Sequence[Scalar]) -> None:
        for target, value in zip(targets, values, strict=True):
            text = self.scalars.given(value, target.dtype)
            self.w.line(f"{self.names[target.name]} = {text};")

    def merge(
        self, fold: Accumulate, targets: Sequence[Name], left: Sequence[Name],
        right: Sequence[Name],
    ) -> None:  # fmt: skip
        """Targets become what comes before and what comes after together."""
        found = merged(fold.merge, left, right)
        if len(found) > 1:  # one may be read for the next after it is written
            held = self.fresh("m", targets)
            for name, value in zip(held, found, strict=True):
                self.declare(name, self.scalars.given(value, name.dtype), constant=True)
            found = list(held)
        self.assign(targets, found)
