"""The forms of a program: equal programs that rules make of it, found to saturation within a bound.

Best first: the form of least work is rewritten next, at every node where a rule matches, and what
has the canonical form of a known one is dropped. Work is counted on paper: arithmetic by unit, and
bytes of tensors and of what one sum leaves for another. A form is offered where it needs less work
than the program as written, or as much with less to compute for the operands of its products.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from ir.errors import ProgramError
from ir.narrow_parts import PART, PRODUCTS
from ir.program import Program
from ir.rewrite import (
    accumulated,
    banded,
    block_masks,
    contracted,
    diagonal,
    digits,
    keyed,
    landed,
    narrowing,
    phased,
    placed,
    prefixed,
    rebased,
    rereading,
    scanned,
    selected,
    strided,
    tabulated,
    tiered,
    unshifted,
)
from ir.rewrite.canonical import canonical
from ir.rewrite.chunks import NAME, WHY, chunked
from ir.rewrite.graft import copy_node, graft
from ir.rewrite.patterns import build, matches, parsed
from ir.rewrite.rules import REGROUPED, RULES, Rule
from ir.rewrite.viewed import viewed
from ir.rewrite.work import Rates, Work, work_of
from ir.tiles import Tile

WRITTEN = "written"
WHOLE = (
    keyed, placed, landed, accumulated, scanned, rereading, strided, tiered, unshifted, rebased,
    contracted, selected, prefixed, phased, banded,
)  # of a program  # fmt: skip
EFFORT = 2_500  # nodes of all programs that are looked at
STRAY = 2.0  # times the least work, up to which a form is rewritten further
LESS = 0.9  # times the work as written, below which a form is offered for that alone
SPARED = 0.98  # the same of tables, which spare what each point would compute
ALIKE = 1.02  # up to which it counts as the same work
BOUNDED = 2  # forms of least work of which those with bounds of their masks are looked at
NARROWED = 4  # forms of least work of which those with narrow products are looked at
OFFERED = 4  # forms beside the program as written
DIGITS = 6  # of a form's canonical hash, in its name


@dataclass(frozen=True, slots=True)
class Step:
    """A rule, and the node of the program before at which it was applied."""

    rule: str
    node: int


@dataclass(frozen=True)
class Form:
    """One of several equal programs, by what it was derived.

    `rounds_as` is the form that it rounds like, if that is another one.
    """

    program: Program
    key: str
    work: Work
    steps: tuple[Step, ...] = ()
    cancels: bool = False
    rounds_as: Program | None = None

    @property
    def judged(self) -> Program:
        """The program that tells what a kernel of the form may be off by."""
        return self.rounds_as or self.program

    @property
    def family(self) -> str:
        """The step that is a matter of size, if one is: others are compared within it."""
        return next((step.rule for step in self.steps if step.rule.startswith(NAME)), "")

    @property
    def waits(self) -> bool:
        """Whether places wait for a whole extreme, which its work does not tell."""
        return any(step.rule == placed.NAME for step in self.steps)

    @property
    def tabulated(self) -> bool:
        """Whether it has tables, which spare what the work of others does not count."""
        return any(step.rule == tabulated.NAME for step in self.steps)

    @property
    def kind(self) -> str:
        """That step without its size."""
        return NAME if self.family else ""

    @property
    def name(self) -> str:
        """Of its size and last rule, and of its canonical form: the same in any version."""
        if not self.steps:
            return WRITTEN
        words = dict.fromkeys((self.family, self.steps[-1].rule, self.key[:DIGITS]))
        return "-".join(filter(None, words))


@dataclass(frozen=True, slots=True)
class Forms:
    """Those that are offered, the one as written first; how many there are, and whether more."""

    offered: tuple[Form, ...]
    known: int
    complete: bool
    left_out: tuple[tuple[Form, str], ...] = field(default=())


@lru_cache(maxsize=256)
def _forms(
    program: Program, products: tuple[tuple[str, float], ...], rates: tuple[float, float, float]
) -> Forms:
    return _Search(program, Rates(dict(products), *rates)).run()


def forms_of(program: Program, rates: Rates) -> Forms:
    """The forms of a program by the work they are on a machine."""
    others = (rates.other, rates.bytes, rates.room)
    return _forms(program, tuple(sorted(rates.products.items())), others)


class _Search:
    def __init__(self, program: Program, rates: Rates) -> None:
        self.rates, program = rates, narrowing.unwidened(viewed(program))
        self.written = Form(program, canonical(program), work_of(program, rates))
        self.known: dict[str, Form] = {self.written.key: self.written}
        self.chunks = any(True for _ in chunked(self.written.program))  # without any other step

    def run(self) -> Forms:
        queue = [(self.written.work.seconds, 0, self.written)]
        effort, number = 0, 0
        while queue and effort < EFFORT:
            seconds, _, form = heapq.heappop(queue)
            if seconds > STRAY * self._least():
                continue
            for step, cancels, program in self._steps(form):
                effort += len(program.nodes)
                program = narrowing.unwidened(viewed(program))
                key = canonical(program)
                if key in self.known:
                    continue
                work = work_of(program, self.rates)
                steps, doubt = (*form.steps, step), form.cancels or cancels
                self.known[key] = new = Form(program, key, work, steps, doubt)
                number += 1
                heapq.heappush(queue, (work.seconds, number, new))
        self._narrow()
        self._bound()
        self._tabulate()
        self._together()
        return self._chosen(complete=not queue)

    def _narrow(self) -> None:
        """Add what the best forms are with their wide products in narrow parts, and those that
        would be best if all such products took no longer than that."""
        known, hoped = list(self.known.values()), self._hoped()
        best = sorted(known, key=lambda form: form.work.seconds)[:NARROWED]
        near = sorted(known, key=lambda form: work_of(form.program, hoped).seconds)[:NARROWED]
        some = {form.key: form for form in (*best, *near)}
        for form in (*some.values(), *self._best_of_families([*some.values()])):
            for apart in (False, True):
                found = narrowing.narrowed(form.program, apart)
                if found is None or found.bytes > 2 * self.rates.room:  # written once, read once
                    continue
                key, work = canonical(found.program), work_of(found.program, self.rates)
                work = Work(work.seconds + found.bytes / self.rates.bytes, work.operands)
                steps = (*form.steps, Step(narrowing.NAME, found.node))
                new = Form(found.program, key, work, steps, form.cancels, form.judged)
                self.known.setdefault(key, new)

    def _hoped(self) -> Rates:
        """The rates of a machine that has products of wide numbers in parts."""
        products = self.rates.products
        most = max(products.get(narrowing.WIDE, 0.0), products.get(PART, 0.0) / PRODUCTS)
        own = {**products, narrowing.WIDE: most} if most else products
        return Rates(own, self.rates.other, self.rates.bytes, self.rates.room)

    def _bound(self) -> None:
        """Add what the best forms are with bounds of their masks of data."""
        best = sorted(self.known.values(), key=lambda form: form.work.seconds)[:BOUNDED]
        for form in {one.key: one for one in (self.written, *best)}.values():
            found = block_masks.bounded(form.program)
            if found is not None:
                work = Work(form.work.seconds * found.share, form.work.operands)
                steps = (*form.steps, Step(block_masks.NAME, found.node))
                key = canonical(found.program)
                new = Form(found.program, key, work, steps, form.cancels, form.judged)
                self.known.setdefault(key, new)

    def _tabulate(self) -> None:
        """Add what the best forms are with tables of what is made of differences of coordinates."""
        best = sorted(self.known.values(), key=lambda form: form.work.seconds)[:BOUNDED]
        for form in {one.key: one for one in (self.written, *best)}.values():
            found = tabulated.tabulated(form.program)
            if found is not None:
                work = Work(self._spared(form, found.spared), form.work.operands)
                steps = (*form.steps, Step(tabulated.NAME, found.node))
                key = canonical(found.program)
                new = Form(found.program, key, work, steps, form.cancels, form.judged)
                self.known.setdefault(key, new)

    def _spared(self, form: Form, operations: int) -> float:
        """Seconds of a form without so many operations, most of which its work does not count."""
        seconds, less = form.work.seconds, operations / self.rates.other
        return seconds - less if less < seconds / 2 else seconds * seconds / (seconds + 2 * less)

    def _together(self) -> None:
        """Add the program as written with batches of small products taken together."""
        found = diagonal.diagonal(self.written.program)
        if found is not None:
            own = work_of(found.program, self.rates)
            less = (1 - found.share) * self.written.program.bytes / self.rates.bytes
            work = Work(own.seconds - less, self.written.work.operands)
            step, key = Step(diagonal.NAME, found.node), canonical(found.program)
            new = Form(found.program, key, work, (step,), rounds_as=self.written.judged)
            self.known.setdefault(key, new)

    def _best_of_families(self, known: list[Form]) -> list[Form]:
        """The least work of each family that none of the known is of."""
        found: dict[str, Form] = {}
        for form in sorted(self.known.values(), key=lambda form: form.work.seconds):
            found.setdefault(form.family, form)
        there = {form.family for form in known}
        return [form for family, form in found.items() if family not in there]

    def _steps(self, form: Form) -> Iterator[tuple[Step, bool, Program]]:
        if not form.steps and (apart := digits.digits(form.program)) != form.program:
            yield Step(digits.NAME, 0), False, apart
        own = all(step.rule == digits.NAME for step in form.steps)
        if own or not (form.family or self.chunks):
            for name, node, program in chunked(form.program):
                yield Step(name, node), True, program  # differences of sums up to two points
        for whole in WHOLE:
            if (found := whole.rewritten(form.program)) is not None:
                yield Step(whole.NAME, found[0]), False, found[1]
        yield from rewritten(form.program)

    def _least(self) -> float:
        return min(form.work.seconds for form in self.known.values())

    def _chosen(self, complete: bool) -> Forms:
        others = [form for form in self.known.values() if form.steps]
        others.sort(key=lambda form: (form.work.seconds, form.work.operands, len(form.steps)))
        offered, left = [self.written], []
        for form in others:
            reason = self._refused(form, offered)
            if reason:
                left.append((form, reason))
            else:
                offered.append(form)
        return Forms(tuple(offered), len(self.known), complete, tuple(left))

    def _refused(self, form: Form, offered: list[Form]) -> str:
        """Why a form is not offered beside those that are; empty if it is."""
        here, written = form.work, self.written.work
        alike = [
            other for other in self.known.values()
            if other.waits <= form.waits and (form.tabulated or not other.tabulated)
        ]  # fmt: skip
        best = min(other.work.seconds for other in alike)
        others = [other for other in offered[1:] if other.family == form.family]
        if here.seconds > 1 / LESS * best and not (form.family and not others):
            return f"{here.seconds / best:.2f} times the least work"
        share = SPARED if form.tabulated else LESS
        less = here.seconds < share * written.seconds
        fewer = here.seconds < ALIKE * written.seconds and here.operands < written.operands
        if not less and not fewer:
            return f"{here.seconds / written.seconds:.2f} times the work as written"
        others = [o for o in others if o.waits == form.waits and o.tabulated == form.tabulated]
        better = [other for other in others if _as_good(other.work, here)]
        if better:
            return f"no less work than {better[0].name}"
        return "" if len(offered) <= OFFERED else f"{OFFERED} forms of less work are offered"


def _as_good(left: Work, right: Work) -> bool:
    """Whether a form leaves nothing to be gained by another one."""
    return left.seconds <= right.seconds and left.operands <= right.operands


def reason_of(step: str) -> str:
    """Why a step gives an equal program, and what it does to rounding."""
    if step.startswith(NAME):
        return f"{WHY} ({REGROUPED})"
    if step == diagonal.NAME:
        return f"{diagonal.WHY} ({diagonal.ROUNDING})"
    if step == tabulated.NAME:
        return f"{tabulated.WHY} ({tabulated.ROUNDING})"
    if step == block_masks.NAME:
        return f"{block_masks.WHY} ({block_masks.ROUNDING})"
    for one in (*WHOLE, digits, narrowing):
        if step == one.NAME:
            return f"{one.WHY} ({one.ROUNDING})"
    return next(f"{rule.why} ({rule.rounding})" for rule in RULES if rule.name == step)


def rewritten(
    program: Program, rules: tuple[Rule, ...] = RULES
) -> Iterator[tuple[Step, bool, Program]]:
    """Every program that one rule makes of this one at one node, and whether it may cancel."""
    for root in range(len(program.nodes)):
        for rule in rules:
            for made in applied(rule, program, root):
                yield Step(rule.name, root), rule.cancels, made


def applied(rule: Rule, program: Program, root: int) -> Iterator[Program]:
    """What a rule makes of a program at a node, in every way in which it matches."""
    node = program.nodes[root]
    for match in matches(parsed(rule.left), program, root):
        axes = rule.condition(match)
        if axes is None:
            continue
        found = type(match)(program, root, match.tiles, {**match.over, **axes}, match.acc)
        graph = graft(program)
        made: dict[int, Tile] = {}
        for position in range(root):
            args = [made[arg] for arg in program.nodes[position].args]
            made[position] = copy_node(graph, program, position, args)
        try:
            new = build(parsed(rule.right), graph, found, made)
        except ProgramError:  # the right side has no type: operands of other kinds
            continue
        if set(new.axes) != set(node.axes) or new.dtype != node.dtype:
            continue
        made[root] = new
        for position in range(root + 1, len(program.nodes)):
            args = [made[arg] for arg in program.nodes[position].args]
            made[position] = copy_node(graph, program, position, args)
        yield graph.program()
