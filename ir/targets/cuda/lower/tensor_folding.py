"""Products that begin anew in every block, as text: by parts of rows, and what folds them.

What a block's products are folded with is loaded a step before it is used, and copied when its
step begins. Each part of rows has registers of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from ir.kernel.body import TENSOR, Operation
from ir.kernel.tile_kernel import BLOCK, NEVER, At, Do, Loop, Statement
from ir.targets.cuda.build.products import Product
from ir.targets.cuda.build.tensor_kernel import LOADED
from ir.targets.cuda.text import scalars
from ir.targets.cuda.text.registers import Fragment

if TYPE_CHECKING:
    from ir.targets.cuda.lower.tensor_consumer import ConsumerPrinter

Loaded = tuple[Mapping[str, str], Mapping[int, Fragment]]  # origins of a block, values there


def block_text(at: At) -> str:
    """The number of a block."""
    if not at.of or not at.number:
        return str(at)
    return f"({at.of} {'+' if at.number > 0 else '-'} {abs(at.number)})"


class Folding:
    """Prints what one role does for products that are folded at once."""

    def __init__(self, printer: ConsumerPrinter) -> None:
        self.printer, self.lowering, self.plan = printer, printer.lowering, printer.plan
        self.kernel, self.w, self.e = printer.kernel, printer.w, printer.e
        self.nodes = printer.plan.program.nodes
        self.loaded: list[Mapping[int, Fragment]] = []  # a step before it is used
        self.beside: dict[int, Loaded] = {}  # by how many blocks later
        self.pieces: dict[tuple[int, int, int], Fragment] = {}  # sums by product, block and rows
        self.end = ""  # the last block's number

    def piece(self, product: Product, one: Do) -> Fragment:
        """The sums of some rows of a block."""
        return self.pieces[product.position, one.at.number, one.piece or 0]

    def products(self, body: Sequence[Statement]) -> None:
        """Products of parts of rows, each in registers of its own."""
        self.pieces = {}
        for one in body:
            if not isinstance(one, Do) or self.kernel.operation(one.operation).unit != TENSOR:
                continue
            with self.e.at(self.plan.places_of(one.piece or 0)):
                for part in self.kernel.operation(one.operation).parts:
                    key = (part.node, one.at.number, one.piece or 0)
                    self.pieces[key] = self.e.accumulator(self.printer.products[part.node], 1)
        self.printer.all(body)

    def load(self, one: Do) -> None:
        """Load what a block's products are folded with: of the first blocks, or a step before."""
        if one.later.of == NEVER:
            if not one.at.number:
                self.loaded, self.end = [], self.w.name("last_block")
                self.w.line(f"const i32 {self.end} = max(blocks - 1, 0);")
            self.loaded.append(self._loads(f"min({one.at}, {self.end})"))
            return
        found = self._loads(f"min({one.at.of} + {one.at.number}, {self.end})")
        blocks = len(self.beside)
        for position, value in self.loaded[one.at.number - blocks].items():
            self._assign(value, found[position])

    def _loads(self, place: str) -> dict[int, Fragment]:
        origins = self.lowering.walk_origins(self.w, place)
        parts = self.kernel.operation(LOADED).parts
        with self._at((origins, {})):
            return {
                part.node: self.e.fragment(part.node)
                for part in parts if part.node not in self.e.values
            }  # fmt: skip

    def _copied(self, position: int, one: Fragment) -> Fragment:
        kind = scalars.register_type(self.nodes[position].dtype)
        found = replace(one, name=self.w.name(f"{one.name}_here"))
        self.w.line(f"{kind} {found.name}[{one.count}];")
        self._assign(found, one)
        return found

    def _assign(self, target: Fragment, source: Fragment) -> None:
        with self.e.each(target.digits) as point:
            places = (self.e.element(one, point) for one in (target, source))
            self.w.line(f"{' = '.join(places)};")

    @contextmanager
    def _at(self, loaded: Loaded) -> Iterator[None]:
        """What is written inside is about another block."""
        e, saved = self.e, self.e.origins
        with e.scope():
            e.origins = {**saved, **loaded[0]}
            e.values.update(loaded[1])
            yield
        e.origins = saved

    def fold(self, operation: Operation, one: Do) -> None:
        """Fold the products of some rows of a block."""
        places = self.plan.places_of(one.piece or 0)
        with self._at(self.beside[one.at.number]), self.e.at(places):
            for product in self.plan.roles.outer:
                fragment = self.piece(product, one)
                self.e.hold(fragment)
                self.e.values[product.position] = fragment
            with self.w.block(""):
                for part in operation.parts:
                    self.printer.reduce(part)

    def loop(self, loop: Loop) -> None:
        """One block or two in a step, or the block that pairs leave over."""
        head = "for (i32 block = 0; block < blocks; block++)"
        if loop.step > 1:
            self.w.line("i32 block = 0;")
            head = f"for (; block + {loop.step - 1} < blocks; block += {loop.step})"
        elif loop.first == At(BLOCK):
            head = "if (block < blocks)"
        with self.w.block(head), self.e.scope(), self.e.repeating(True):
            self.beside, count = {}, sum(isinstance(one, Do) for one in loop.body)
            for number in range(count):
                origins = self.lowering.walk_origins(self.w, block_text(At(BLOCK, number)))
                values = {p: self._copied(p, one) for p, one in self.loaded[number].items()}
                self.beside[number] = (origins, values)
            self.printer.all(loop.body)
