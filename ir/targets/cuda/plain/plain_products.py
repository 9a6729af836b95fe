"""Products of matrices in loops that a block's threads share, on mma.sync.

A warp has a tile of rows by columns at a time, in fragments of m16n8k16 that the layout synthesis
lays out (`layouts/woven.py`): a lane has four neighbours along the depth, so that what lies side by
side is one word of eight bytes. Operands are read from where they are, in one of three ways: words
along the depth,
`ldmatrix` with rows and columns swapped where neighbours of an array in shared memory lie across
it, or elements, which may be any expressions. One of f32 is split into parts in registers, each of
which is a fragment.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

from ir.layout.expressions import ZERO, Expression, remainder, variable
from ir.layout.printing import summand
from ir.plain.accesses import every
from ir.plain.code import GROUP, Element, Let, Name, PlainKernel, Scalar
from ir.plain.products import Product, Products, Variables
from ir.plain.scalars import rebuilt
from ir.plain.strides import Walk
from ir.targets.cuda.layouts.frame import WARP
from ir.targets.cuda.layouts.lanes import matrix_row, place
from ir.targets.cuda.layouts.placed import ThreadValues
from ir.targets.cuda.layouts.woven import COLUMNS, DEPTH, ROWS, woven
from ir.targets.cuda.plain.plain_words import remainder as left_over
from ir.targets.cuda.text import scalars

if TYPE_CHECKING:
    from ir.targets.cuda.plain.plain_text import PlainText
    from ir.targets.cuda.plain.plain_weights import Weights

NONE = "none"
HALF = 8  # rows of a fragment's halves, and of the matrices that ldmatrix moves
_QUAD = 4  # neighbours along the depth that a lane has
_TOGETHER = 4  # steps along the depth that the compiler sees at once
_SPLIT = 2.0  # instructions for a part of a lane's neighbours


Key = tuple[str, Scalar]  # the type that is multiplied, and an operand whose depth has no name
_Loaded = dict[tuple[bool, str, Scalar], str]  # fragments by side, type and value of an operand


def key_of(product: Product, is_rows: bool) -> Key:
    """What tells the operands of products apart."""
    by: dict[Scalar, Scalar] = {product.depth: Name("", product.depth.dtype)}
    return product.dtype, rebuilt(product.left if is_rows else product.right, by.get)


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows and columns that a warp has at a time, in instructions."""

    rows: int
    columns: int

    def within(self, products: Products) -> Tile:
        """No more than there are."""
        _, rows, columns = products.sides
        return Tile(min(self.rows, -(-rows // ROWS)), min(self.columns, -(-columns // COLUMNS)))

    def units(self, products: Products) -> tuple[int, int, int]:
        """How many tiles there are: of products side by side, along rows, along columns."""
        batch, rows, columns = products.sides
        return batch, -(-rows // (ROWS * self.rows)), -(-columns // (COLUMNS * self.columns))


def tile_of(name: str) -> Tile | None:
    """The tile of a warp, in instructions, by its rows and columns; None where there is none."""
    if name == NONE:
        return None
    rows, columns = map(int, name.split("x"))
    return Tile(rows // ROWS, columns // COLUMNS)


def held_bytes(product: Product) -> int:
    """Of an element of rows that wait in shared memory: as it is multiplied, or f32 to be split."""
    return 4 if product.parts[0] > 1 else 2


class TensorProducts:
    """Writes the products of one shared loop, and what is behind them."""

    def __init__(
        self, text: PlainText, products: Products, tile: Tile, weights: Weights | None = None
    ) -> None:
        self.weights = weights  # operands that wait in shared memory
        self.text, self.w, self.names = text, text.w, text.names
        self.products, self.tile = products, tile.within(products)
        self.line, self.deep, self.across = map(self.names.fresh, ("line", "deep", "across"))
        self.row, self.column, self.slot = map(self.names.fresh, ("row", "column", "slot"))
        self.sums = {p.sum.name: self.names.fresh("sums") for p in products.products}

    def write(self) -> None:
        assert self.text.group is not None
        w, unit = self.w, self.names.fresh("unit")
        batch, down, along = self.tile.units(self.products)
        team = self.text.group.team
        warps, end = self.text.group.threads // WARP, batch * down * along
        held = woven(self.products.products[0].dtype)
        (line, deep), (_, across) = (place(x, thread=self.lane) for x in (held.rows, held.sums))
        for name, value in ((self.line, line), (self.deep, deep), (self.across, across)):
            w.line(f"const i32 {name} = {value};")
        own = f"thread / {WARP}"
        if team > 1:  # neighbouring tiles are of different processors
            own = f"tw_thread() / {WARP} * {team} + {self.text.block_of_team}"
        if self.weights:  # a block has whole rows of tiles
            end, warps, own = self.weights.own * along, warps // team, f"tw_thread() / {WARP}"
        with w.block(f"for (i32 {unit} = {own}; {unit} < {end}; {unit} += {warps})"):
            if not self.weights:
                self._tile(f"({unit} / {along})", down, f"{unit} % {along}")
                return
            w.line(f"const i32 {self.slot} = {unit} / {along};")
            tile = f"({self.slot} * {team} + {self.text.block_of_team})"
            with w.block(f"if ({tile} < {self.weights.lines})"):
                self._tile(tile, down, f"{unit} % {along}")

    def _tile(self, line: str, down: int, column: str) -> None:
        """The tile of a line (of products side by side, along rows) and a column."""
        self.text.coordinates(self.products.batch, f"({line} / {down})")
        self.w.line(f"const i32 {self.row} = {line} % {down} * {ROWS * self.tile.rows};")
        self.w.line(f"const i32 {self.column} = {column} * {COLUMNS * self.tile.columns};")
        for extent in dict.fromkeys(one.extent for one in self.products.products):
            self._sums([one for one in self.products.products if one.extent == extent])
        self._behind()

    @property
    def lane(self) -> Expression:
        """The thread's number in its warp."""
        group = self.text.group
        assert group is not None
        return remainder(variable("thread", group.threads), WARP)

    @contextmanager
    def unrolled(self, stem: str, count: int, step: int = 1) -> Iterator[str]:
        name = self.names.fresh(stem)
        self.w.line("#pragma unroll")
        with self.w.block(f"for (i32 {name} = 0; {name} < {count}; {name} += {step})"):
            yield name

    # -- a product

    def _sums(self, products: list[Product]) -> None:
        """Sums of as many terms, all in one loop: what operands they share is loaded once."""
        rows, columns, w = self.tile.rows, self.tile.columns, self.w
        depth = self.names.fresh("depth")
        for product in products:
            w.line(f"f32 {self.sums[product.sum.name]}[{rows}][{columns}][4] = {{}};")
        w.line(f"#pragma unroll {2 * _TOGETHER if self.weights else _TOGETHER}")
        head = f"for (i32 {depth} = 0; {depth} < {products[0].extent}; {depth} += {DEPTH})"
        with w.block(head):
            loaded: _Loaded = {}
            for product in products:
                left, right = (self._loaded(product, one, depth, loaded) for one in (True, False))
                with self.unrolled("r", rows) as r, self.unrolled("c", columns) as c:
                    verb = f"tw_mma_m16n8k16_{product.dtype}"
                    into = f"{self.sums[product.sum.name]}[{r}][{c}]"
                    for i, j in product.pairs:
                        own, other = (
                            part_of(left, product.parts[0], i),
                            part_of(right, product.parts[1], j),
                        )
                        w.line(f"{verb}({into}, {own}[{r}], {other}[{c}]);")

    def _loaded(
        self,
        product: Product,
        is_rows: bool,
        depth: str,
        loaded: _Loaded,
    ) -> str:
        """The fragments of a step of an operand, unless another product has them."""
        side = Side(self.text.kernel, self.text.shared, self.products, product, is_rows)
        own = key_of(product, is_rows)
        key = (is_rows, *own)
        if key not in loaded:
            loaded[key] = self.names.fresh("left" if is_rows else "right")
            size = f"[{self.tile.rows}][4]" if is_rows else f"[{self.tile.columns}][2]"
            size = f"[{side.parts}]{size}" if side.parts > 1 else size
            self.w.line(f"u32 {loaded[key]}{size};")
            loads = _Loads(self, side, loaded[key], depth)
            if is_rows and self.weights and own in self.weights.operands:
                start, pitch = self.weights.offset(own), self.weights.pitch(product)
                loads.held(start, self.weights.height, pitch)
            else:
                loads.load()
        return loaded[key]

    def _behind(self) -> None:
        """What is done with every sum of a lane's."""
        _, rows, columns = self.products.sides
        with (
            self.unrolled("r", self.tile.rows) as r,
            self.unrolled("c", self.tile.columns) as c,
            self.unrolled("e", 4) as e,
        ):
            at, over = self.names.fresh("at"), self.names.fresh("over")
            held = woven(self.products.products[0].dtype).sums
            down, across = map(summand, place(held, variable(e, 4), ZERO))
            row = f"{self.row} + {r} * {ROWS} + {down} + {self.line}"
            column = f"{self.column} + {c} * {COLUMNS} + {self.across} + {across}"
            self.w.line(f"const i32 {at} = {row}, {over} = {column};")
            ends = [f"{at} < {rows}"] if rows % (ROWS * self.tile.rows) else []
            ends += [f"{over} < {columns}"] if columns % (COLUMNS * self.tile.columns) else []
            with self.w.block(f"if ({' && '.join(ends)})" if ends else ""):
                self.text.coordinates(self.products.rows, at)
                self.text.coordinates(self.products.columns, over)
                for name, sums in self.sums.items():
                    self.w.line(f"f32 {self.names[name]} = {sums}[{r}][{c}][{e}];")
                self.text.run(self.products.behind, False)


def part_of(fragments: str, parts: int, number: int | str) -> str:
    """The fragments of one part of an operand."""
    return f"{fragments}[{number}]" if parts > 1 else fragments


@dataclass(frozen=True)
class Side:
    """One operand of a product: its value, whose variables are rows or columns."""

    kernel: PlainKernel
    shared: frozenset[str]
    products: Products
    product: Product
    is_rows: bool

    @property
    def value(self) -> Scalar:
        return self.product.left if self.is_rows else self.product.right

    @property
    def parts(self) -> int:
        return self.product.parts[0 if self.is_rows else 1]

    @property
    def variables(self) -> Variables:
        return self.products.rows if self.is_rows else self.products.columns

    @property
    def extent(self) -> int:
        return prod(extent for _, extent in self.variables)

    @property
    def ends(self) -> bool:
        """Whether the last step along the depth is partial."""
        return bool(self.product.extent % DEPTH)

    @property
    def runs_along_depth(self) -> bool:
        """Whether neighbours along the depth lie side by side."""
        return self.raw is not None and self._stride(self.raw, self.product.depth.name) == 1

    @property
    def loads(self) -> float:
        """Instructions that load half a fragment of rows, or one of columns."""
        if self.parts > 1:
            return (1.0 if self.is_words else float(_QUAD)) + _SPLIT * self.parts
        return 0.5 if self.is_across else 1.0 if self.is_words else float(_QUAD)

    @property
    def raw(self) -> Element | None:
        """The operand, if it is an element that is stored in the type that is multiplied, or that
        is split."""
        value = self.value
        stored = {array.name: array.dtype for array in self.kernel.arrays}
        kind = "f32" if self.parts > 1 else self.product.dtype
        return value if isinstance(value, Element) and stored[value.array] == kind else None

    @cached_property
    def is_words(self) -> bool:
        """Whether a lane's neighbours along the depth are one word."""
        raw, depth = self.raw, self.product.depth.name
        return (
            raw is not None
            and self.product.extent % _QUAD == 0
            and self._stride(raw, depth) == 1
            and left_over(raw.index, _QUAD, depth) == 0
            and self._is_aligned(raw)
        )

    @cached_property
    def is_across(self) -> bool:
        """Whether eight neighbours that the operand's fastest variable tells lie side by side in
        shared memory, and no fragment is partial along the depth."""
        raw, own = self.raw, self.variables[-1]
        return (
            raw is not None
            and self.parts == 1
            and raw.array in self.shared
            and own[1] % HALF == 0
            and not self.ends
            and self._stride(raw, own[0].name) == 1
            and left_over(raw.index, HALF, own[0].name) == 0
        )

    def _stride(self, element: Element, variable: str) -> int | None:
        lets = {s.name.name: s.value for s in every(self.kernel.body) if isinstance(s, Let)}
        return Walk(variable, lets).stride(element.index)

    def _is_aligned(self, element: Element) -> bool:
        """Whether an array begins at a multiple of words: those of a block do, and inputs."""
        inputs = {spec.name for spec in self.kernel.tensors if spec.role == "input"}
        places = {array.name: array.place for array in self.kernel.arrays}
        return places[element.array] == GROUP or element.array in inputs


class _Loads:
    """Loads one operand's fragments of a step along the depth."""

    def __init__(self, owner: TensorProducts, side: Side, into: str, depth: str) -> None:
        self.owner, self.text, self.w, self.names = owner, owner.text, owner.w, owner.names
        self.side, self.product, self.into, self.depth = side, side.product, into, depth
        self.is_rows, self.first = side.is_rows, owner.row if side.is_rows else owner.column
        tile = owner.tile
        self.halves = 2 * tile.rows if side.is_rows else tile.columns
        unit = ROWS * tile.rows if side.is_rows else COLUMNS * tile.columns
        self.partial = bool(side.extent % unit)

    def load(self) -> None:
        if self.side.is_across:
            self._matrices()
            return
        with self.owner.unrolled("h", self.halves) as half:
            at = self.names.fresh("at")
            self.w.line(f"i32 {at} = {self.first} + {half} * {HALF} + {self.owner.line};")
            if self.partial:
                last = self.side.extent - 1
                self.w.line(f"{at} = {at} <= {last} ? {at} : {last};")
            self.text.coordinates(self.side.variables, at)
            if self.side.parts > 1:
                self._split(half)
            elif self.side.is_words:
                self._words(*self._halves(self.into, half))
            else:
                self._elements(*self._halves(self.into, half))

    def _halves(self, into: str, half: str) -> tuple[str, str]:
        """The words of a fragment that have the first and the last of a lane's neighbours."""
        if not self.is_rows:
            return f"{into}[{half}][0]", f"{into}[{half}][1]"
        return f"{into}[{half} / 2][{half} % 2]", f"{into}[{half} / 2][{half} % 2 + 2]"

    def _split(self, half: str) -> None:
        """Words of every part of a lane's neighbours."""
        self._parted(half, self._wide_word() if self.side.is_words else self._found("f32"))

    def _parted(self, half: str, found: str) -> None:
        parts = range(self.side.parts)
        halves = [self._halves(part_of(self.into, len(parts), n), half) for n in parts]
        for word in (0, 1):
            words = ", ".join(own[word] for own in halves)
            pair = f"{found}[{2 * word}], {found}[{2 * word + 1}]"
            self.w.line(f"tw_split_bf16({pair}, {words});")

    def _wide_word(self) -> str:
        """A lane's neighbours, which are one word of sixteen bytes."""
        raw, name = self.side.raw, self.names[self.product.depth.name]
        assert raw is not None
        found, word = self.names.fresh("found"), self.names.fresh("word")
        self.w.line(f"f32 {found}[{_QUAD}];")
        with self.w.block(""):
            self.w.line(f"const i64 {name} = {self.depth} + {self.owner.deep};")
            place = f"{self.names[raw.array]} + {self.text.scalars.text(raw.index)}"
            shared = raw.array in self.side.shared
            verb = (
                f"tw_load_shared_16(tw_shared_address({place}))"
                if shared
                else (f"tw_load_16({place})")
            )
            self.w.line(f"tw_vec16 {word} = {{}};")
            guard = f"if ({name} < {self.product.extent}) " if self.side.ends else ""
            self.w.line(f"{guard}{word} = {verb};")
            for n in range(_QUAD):
                self.w.line(f"{found}[{n}] = tw_float({word}.w[{n}]);")
        return found

    def held(self, start: int, height: int, pitch: int) -> None:
        """Words of what lies in shared memory from byte `start` on, tile after tile."""
        with self.owner.unrolled("h", self.halves) as half, self.w.block(""):
            row = f"({self.owner.slot} * {height} + {half} * {HALF} + {self.owner.line})"
            place = f"{row} * {pitch} + {self.depth} + {self.owner.deep}"
            word, size = self.names.fresh("word"), held_bytes(self.product)
            address = f"tw_shared_address(tw_shared_base()) + {start} + ({place}) * {size}"
            load = f"tw_load_shared_{_QUAD * size}({address})"
            self.w.line(f"const tw_vec{_QUAD * size} {word} = {load};")
            if self.side.parts > 1:
                found = self.names.fresh("found")
                values = ", ".join(f"tw_float({word}.w[{n}])" for n in range(_QUAD))
                self.w.line(f"const f32 {found}[{_QUAD}] = {{{values}}};")
                self._parted(half, found)
                return
            for n, into in enumerate(self._halves(self.into, half)):
                self.w.line(f"{into} = {word}.w[{n}];")

    def _words(self, low: str, high: str) -> None:
        raw, end = self.side.raw, self.product.extent
        assert raw is not None
        name = self.names[self.product.depth.name]
        word = self.names.fresh("word")
        with self.w.block(""):
            self.w.line(f"const i64 {name} = {self.depth} + {self.owner.deep};")
            place = f"{self.names[raw.array]} + {self.text.scalars.text(raw.index)}"
            verb = f"tw_load_8({place})"
            if raw.array in self.side.shared:
                verb = f"tw_load_shared_8(tw_shared_address({place}))"
            self.w.line(f"tw_vec8 {word} = {{}};")
            guard = f"if ({name} < {end}) " if self.side.ends else ""
            self.w.line(f"{guard}{word} = {verb};")
            self.w.line(f"{low} = {word}.w[0];")
            self.w.line(f"{high} = {word}.w[1];")

    def _found(self, kind: str) -> str:
        """A lane's neighbours one by one: values, or bits as they are stored (`kind` u32)."""
        raw, name = self.side.raw, self.names[self.product.depth.name]
        found = self.names.fresh("found")
        self.w.line(f"{kind} {found}[{_QUAD}];")
        with self.owner.unrolled("j", _QUAD) as j:
            self.w.line(f"const i64 {name} = {self.depth} + {self.owner.deep} + {j};")
            if raw is None or kind == "f32":
                text = self.text.scalars.text(self.side.value)
            else:
                text = f"(u32){self.names[raw.array]}[{self.text.scalars.text(raw.index)}]"
            if self.side.ends:
                text = f"{name} < {self.product.extent} ? {text} : ({kind})0"
            self.w.line(f"{found}[{j}] = {text};")
        return found

    def _elements(self, low: str, high: str) -> None:
        raw = self.side.raw
        found = self._found("f32" if raw is None else "u32")
        for into, first in ((low, 0), (high, 2)):
            pair = [f"{found}[{first}]", f"{found}[{first + 1}]"]
            text = f"{pair[0]} | {pair[1]} << 16"
            if raw is None:
                text = scalars.pack_word(pair, self.product.dtype)
            self.w.line(f"{into} = {text};")

    def _matrices(self) -> None:
        """Two matrices for each half of eight: what a lane has of the depth first and last. Of
        four, those of rows go through halves first, those of columns along the depth."""
        into, held = self.into, woven(self.product.dtype)
        if self.halves > 1:
            both = held.rows if self.is_rows else held.two_columns
            with self.owner.unrolled("h", self.halves // 2) as pair:
                where = self._matrix(f"{pair} * {2 * HALF}", both, 4)
                words = [f"{into}[{pair} * 2 + {n // 2}][{n % 2}]" for n in range(4)]
                if self.is_rows:
                    words = [f"{into}[{pair}][{n}]" for n in range(4)]
                self.w.line(f"tw_ldmatrix_x4_trans({where}, {', '.join(words)});")
        if self.halves % 2:
            with self.w.block(""):
                last = self.halves - 1
                where = self._matrix(str(last * HALF), held.columns, 2)
                self.w.line(f"tw_ldmatrix_x2_trans({where}, {into}[{last}][0], {into}[{last}][1]);")

    def _matrix(self, start: str, held: ThreadValues, matrices: int) -> str:
        """The address that a lane gives: of one row of a matrix."""
        raw, at = self.side.raw, self.names.fresh("at")
        assert raw is not None
        line, row = matrix_row(held, 16, matrices, True, self.owner.lane)
        parts = (self.first, start, *([summand(line)] if line != ZERO else []))
        self.w.line(f"i32 {at} = {' + '.join(parts)};")
        if self.partial:
            last = self.side.extent - HALF
            self.w.line(f"{at} = {at} <= {last} ? {at} : {last};")
        self.text.coordinates(self.side.variables, at)
        name = self.names[self.product.depth.name]
        self.w.line(f"const i64 {name} = {self.depth} + {summand(row)};")
        return f"tw_shared_address({self.names[raw.array]} + {self.text.scalars.text(raw.index)})"
