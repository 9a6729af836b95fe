"""Matrix instructions laid over tiles: which digit of the tile each digit of the instruction is.

A tiling picks a row, the roles of the operands, the warps along m and n, and for each axis a map of
instruction digits onto tile digits: any one-to-one map of k is right as long as A and B agree, of m
and n as long as the accumulator agrees. Owns that choice. Knows no other op and no memory layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from ir.layout.instructions import MatrixRow, matrix_rows
from ir.layout.synthesis.digits import LANE_DIGITS, NOBODY, Space, Spread, radices
from ir.layout.synthesis.problem import Tile, TileOp, TileProgram

Place = tuple[str, int]
"""A digit of an instruction: axis letter and step along it."""
Piece = tuple[str, int, int]
"""The same with its radix."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """The digits of one register operand of an instruction: of its threads, and of its values."""

    threads: tuple[Place, ...]
    values: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """What is decided about a gemm before any digit is mapped. `slots`: for each thread digit past
    the instruction's own, the instruction axis ("m" or "n") it runs along. `wide`: digits of k that
    the operands read from memory by one lane shall hold in a row, 0 for the instruction's order."""

    op: int
    row: MatrixRow
    swapped: bool
    slots: tuple[str, ...]
    warps: tuple[int, int]
    wide: int = 0


@dataclass(frozen=True, slots=True)
class Tiling:
    """A choice with its digit maps. `place[(letter, step)]` is the tile digit of an instruction
    digit, `warp` the tile digit of each thread digit past the instruction's, `repeats` what is left
    of each axis, lowest first. `tiles` are the names in the instruction's roles a, b, c."""

    choice: Choice
    place: Mapping[Place, int]
    warp: tuple[int, ...]
    repeats: Mapping[str, tuple[int, ...]]
    tiles: tuple[str, str, str]
    outer: tuple[int, ...]

    def fragment(self, role: str) -> Fragment:
        return fragment(self.choice.row, role, self.outer)

    def ordered(self, letter: str) -> tuple[int, ...]:
        """Tile digits of the instruction's own along `letter`, lowest instruction digit first."""
        steps = sorted(step for name, step in self.place if name == letter)
        return tuple(self.place[letter, step] for step in steps)

    def warps_along(self, letter: str) -> tuple[int, ...]:
        return tuple(
            digit
            for digit, along in zip(self.warp, self.choice.slots, strict=True)
            if along == letter
        )

    def whole(self, letter: str) -> tuple[int, ...]:
        """All digits of an axis in the order in which the instruction counts, repeats, then
        warps."""
        return (*self.ordered(letter), *self.repeats[letter], *self.warps_along(letter))


@lru_cache(maxsize=1024)
def fragment(row: MatrixRow, role: str, outer: tuple[int, ...]) -> Fragment:
    """The digits of a register operand, read off its row; odd primes of `outer` come last."""
    operand = {"a": row.a, "b": row.b, "c": row.c}[role]
    letters = {"a": "mk", "b": "nk", "c": "mn"}[role]
    first = operand.extents[0]

    def pieces(mode: int) -> Iterator[Piece]:
        for extent, stride in operand.layout.mode(mode).flat():
            for radix in radices(extent, outer):
                inner = stride < first
                yield letters[not inner], stride if inner else stride // first, radix
                stride *= radix

    return Fragment(tuple((letter, step) for letter, step, _ in pieces(0)), tuple(pieces(1)))


@lru_cache(maxsize=1024)
def pieces_of(row: MatrixRow, letter: str, outer: tuple[int, ...]) -> tuple[Piece, ...]:
    """The digits of one of the instruction's axes, lowest first."""
    found, step = [], 1
    for radix in radices({"m": row.m, "n": row.n, "k": row.k}[letter], outer):
        found.append((letter, step, radix))
        step *= radix
    return tuple(found)


def roles(program: TileProgram, op: TileOp, swapped: bool) -> tuple[Tile, Tile, Tile]:
    """The tiles in the instruction's roles a, b, c."""
    first, second = (program.tile(name) for name in op.inputs)
    output = program.tile(op.outputs[0])
    return (second, first, output) if swapped else (first, second, output)


def axes_of(op: TileOp, swapped: bool) -> dict[str, str]:
    """Axis names of the instruction's m, n, k."""
    m, n, k = (str(op.attribute(letter)) for letter in "mnk")
    return {"m": n, "n": m, "k": k} if swapped else {"m": m, "n": n, "k": k}


def prefix_digits(bits: int) -> int:
    """Elements that share a 32-bit register, as a number of binary digits."""
    return max(0, 5 - (bits.bit_length() - 1))


class Mapper:
    """Maps the digits of one choice; operands whose spread is known already fix what they can."""

    def __init__(self, space: Space, program: TileProgram, choice: Choice) -> None:
        self.space, self.choice = space, choice
        op = program.ops[choice.op]
        self.op = op
        self.tiles = roles(program, op, choice.swapped)
        self.axes = axes_of(op, choice.swapped)
        self.place: dict[Place, int] = {}
        self.warp: list[int] = [NOBODY] * len(choice.slots)
        self.outer = tuple(radix for _, radix in space.threads if radix != 2)
        self.lanes = len(fragment(choice.row, "c", self.outer).threads)

    def solve(self, known: Mapping[str, Spread]) -> Tiling | None:
        """A tiling that agrees with as many known operands as it can, accumulator last; None if
        the digits do not fit the tile at all."""
        for role, tile in zip("abc", self.tiles, strict=True):
            if tile.scope == "register" and tile.name in known:
                self._adopt(role, known[tile.name])
        if self.choice.wide and not any(letter == "k" for letter, _ in self.place):
            self._widen()
        if not self._complete():
            return None
        repeats = {letter: self._left(letter) for letter in "mnk"}
        names = (self.tiles[0].name, self.tiles[1].name, self.tiles[2].name)
        return Tiling(self.choice, dict(self.place), tuple(self.warp), repeats, names, self.outer)

    def _adopt(self, role: str, spread: Spread) -> bool:
        """Take the digits that a known spread puts where the instruction has its own."""
        place, warp = dict(self.place), list(self.warp)
        shape = fragment(self.choice.row, role, self.outer)
        if any(
            not self._put(place, item, 2, digit)
            for item, digit in zip(shape.threads, spread.threads, strict=False)
        ):
            return False
        letters = {"a": "mk", "b": "nk", "c": "mn"}[role]
        for at, (along, digit) in enumerate(
            zip(self.choice.slots, spread.threads[self.lanes :], strict=True)
        ):
            if along not in letters:
                if digit != NOBODY:
                    return False
                continue
            mine = digit != NOBODY and self.space.axis[digit] == self.axes[along]
            if not mine or warp[at] not in (NOBODY, digit):
                return False
            warp[at] = digit
        if not self._adopt_values(place, shape, spread):
            return False
        self.place, self.warp = place, warp
        return True

    def _adopt_values(self, place: dict[Place, int], shape: Fragment, spread: Spread) -> bool:
        for letter, step, radix in shape.values:
            if (letter, step) in place:
                if place[letter, step] not in spread.values:
                    return False
                continue
            digit = next(
                (
                    digit
                    for digit in spread.values
                    if self.space.axis[digit] == self.axes[letter]
                    and self.space.radix[digit] == radix
                    and digit not in place.values()
                ),
                NOBODY,
            )
            if not self._put(place, (letter, step), radix, digit):
                return False
        return True

    def _put(self, place: dict[Place, int], item: Place, radix: int, digit: int) -> bool:
        """Whether instruction digit `item` may be tile digit `digit`; notes it if so."""
        if item in place:
            return place[item] == digit
        fits = (
            digit != NOBODY
            and self.space.axis[digit] == self.axes[item[0]]
            and self.space.radix[digit] == radix
            and digit not in place.values()
        )
        if fits:
            place[item] = digit
        return fits

    def _widen(self) -> None:
        """K so that a lane's values, and then its repeats, are the lowest digits of the axis."""
        shape = fragment(self.choice.row, "b" if self.choice.row.kind == "mma" else "a", self.outer)
        binary = [digit for digit in self.space.of[self.axes["k"]] if self.space.radix[digit] == 2]
        own = [(letter, step) for letter, step, _ in shape.values if letter == "k"]
        lanes = [item for item in shape.threads if item[0] == "k"]
        wide = max(len(own), min(self.choice.wide, len(binary) - len(lanes)))
        if len(binary) < wide + len(lanes):
            return
        self.place.update(zip(own, binary, strict=False))
        self.place.update(zip(lanes, binary[wide:], strict=False))

    def _complete(self) -> bool:
        """Map the rest: instruction digits upwards from the lowest, warps downwards from the
        highest."""
        for letter in "mnk":
            free = [
                digit
                for digit in self.space.of[self.axes[letter]]
                if digit not in self.place.values() and digit not in self.warp
            ]
            for name, step, radix in pieces_of(self.choice.row, letter, self.outer):
                if (name, step) in self.place:
                    continue
                digit = next((item for item in free if self.space.radix[item] == radix), NOBODY)
                if digit == NOBODY:
                    return False
                free.remove(digit)
                self.place[name, step] = digit
            if not self._complete_warps(letter, free):
                return False
        return True

    def _complete_warps(self, letter: str, free: list[int]) -> bool:
        slots = list(zip(self.choice.slots, self.space.threads[self.lanes :], strict=True))
        for at in reversed(range(len(slots))):
            along, (_, radix) = slots[at]
            if along != letter or self.warp[at] != NOBODY:
                continue
            digit = next((d for d in reversed(free) if self.space.radix[d] == radix), NOBODY)
            if digit == NOBODY:
                return False
            free.remove(digit)
            self.warp[at] = digit
        return True

    def _left(self, letter: str) -> tuple[int, ...]:
        used = {*self.place.values(), *self.warp}
        return tuple(d for d in self.space.of[self.axes[letter]] if d not in used)


def operand_spread(tiling: Tiling, role: str) -> Spread:
    """The spread that the instruction wants of a register operand: its own values first, then the
    repeats along k (of the accumulator: n), then those along m or n."""
    shape = tiling.fragment(role)
    letters = {"a": "mk", "b": "nk", "c": "mn"}[role]
    warps = tuple(
        digit if along in letters else NOBODY
        for digit, along in zip(tiling.warp, tiling.choice.slots, strict=True)
    )
    outer, inner = letters[0], letters[1]
    return Spread(
        tuple(tiling.place[item] for item in shape.threads) + warps,
        tuple(tiling.place[letter, step] for letter, step, _ in shape.values)
        + tiling.repeats[inner]
        + tiling.repeats[outer],
    )


def packed_alike(tiling: Tiling, role: str, spread: Spread, bits: int) -> bool:
    """Whether elements that share a register are the instruction's own neighbours."""
    shape = tiling.fragment(role)
    count = prefix_digits(bits)
    own = tuple(tiling.place[letter, step] for letter, step, _ in shape.values[:count])
    return spread.values[:count] == own


def instruction_values(tiling: Tiling, role: str) -> tuple[int, ...]:
    """Tile digits of the values of one issue, fastest first."""
    shape = tiling.fragment(role)
    return tuple(tiling.place[letter, step] for letter, step, _ in shape.values)


DEPTH = {"operand-types": 0, "warp-group": 2, "m-extent": 3, "n-extent": 3, "k-extent": 3}
"""How far an instruction came before it was refused; 1 for the scopes of its operands."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """An instruction that was looked at and cannot be used, with the numbers."""

    code: str
    text: str


def candidate_rows(
    program: TileProgram, op: TileOp, sm: int, family: str, pinned: bool | None
) -> tuple[list[tuple[MatrixRow, bool]], list[Rejection]]:
    """Rows and roles that fit the types, scopes and extents of a gemm, and why others do not, those
    last that came closest. `pinned`: whether the operands are to be swapped, None if either way."""
    found: list[tuple[MatrixRow, bool]] = []
    refused: dict[tuple[str, str], Rejection] = {}
    groups, odd = divmod(program.threads, 128)
    for swapped in (False, True) if pinned is None else (pinned,):
        a, b, c = roles(program, op, swapped)
        named = axes_of(op, swapped)
        extents = {letter: dict((*a.axes, *b.axes))[axis] for letter, axis in named.items()}
        if not matrix_rows(a.dtype, sm):
            text = f"no instruction of sm_{sm} multiplies {a.dtype} of {a.bits} bits ({a.name})"
            refused.setdefault(("", a.dtype), Rejection("operand-types", text))
        for row in matrix_rows(a.dtype, sm):
            if family and not (row.name == family or row.name.startswith(family + ".")):
                continue
            why = _unfit(row, (a, b, c), extents, groups if not odd else 0, program.threads)
            if why is None:
                found.append((row, swapped))
            else:
                refused.setdefault((row.kind, why.code), why)
    kinds = {row.kind for row, _ in found}
    told = [why for (kind, _), why in refused.items() if kind not in kinds or why.code not in DEPTH]
    return found, sorted(told, key=lambda why: DEPTH.get(why.code, 1))


def _unfit(
    row: MatrixRow,
    tiles: tuple[Tile, Tile, Tile],
    extents: Mapping[str, int],
    groups: int,
    threads: int,
) -> Rejection | None:
    """The first reason why a row cannot compute a gemm, if any."""
    a, b, c = tiles
    if b.dtype not in row.b.dtypes or c.dtype not in row.c.dtypes:
        return Rejection(
            "operand-types",
            f"{row.name}: {a.dtype} x {b.dtype} into {c.dtype}; takes "
            f"{row.b.dtypes} into {row.c.dtypes}",
        )
    for tile, operand in ((a, row.a), (b, row.b)):
        if tile.scope != operand.scope:
            return Rejection(
                f"{row.kind}-operand-scope",
                f"{row.name}: {tile.name} is in {tile.scope}, read from {operand.scope}",
            )
    if row.kind == "wgmma" and not groups:
        return Rejection(
            "warp-group", f"{row.name}: {threads} threads are no whole number of 128-thread groups"
        )
    for letter, due in (("m", row.m), ("n", row.n), ("k", row.k)):
        if extents[letter] % due:
            return Rejection(
                f"{letter}-extent",
                f"{row.name}: {letter} extent {extents[letter]} is no multiple of {due}",
            )
    return None


def choices(
    space: Space, program: TileProgram, position: int, found: list[tuple[MatrixRow, bool]]
) -> list[Choice]:
    """All divisions of the warps over m and n that fit, for the rows given; the widest n alone of
    the rows that differ in nothing else."""
    op = program.ops[position]
    pinned = dict(program.pins.warps).get(position)
    result: dict[tuple[object, ...], Choice] = {}
    for row, swapped in sorted(found, key=lambda item: (-item[0].n, -item[0].k, item[0].name)):
        lanes = LANE_DIGITS if row.threads == 32 else LANE_DIGITS + 2
        for slots in _divisions(len(space.threads) - lanes):
            counts = _counts(space, slots, lanes)
            own = 4 if row.kind == "wgmma" else 1
            as_program = (counts[1], counts[0] * own) if swapped else (counts[0] * own, counts[1])
            if pinned is not None and pinned != as_program:
                continue
            if not _divides(program, op, row, swapped, counts):
                continue
            key = (row.kind, row.name.rpartition(".")[2], swapped, counts)
            result.setdefault(key, Choice(position, row, swapped, slots, counts))
    return list(result.values())


@lru_cache(maxsize=16)
def _divisions(count: int) -> tuple[tuple[str, ...], ...]:
    """Ways to give `count` thread digits to m or n."""
    if count == 0:
        return ((),)
    return tuple((letter, *rest) for rest in _divisions(count - 1) for letter in "mn")


def _counts(space: Space, slots: tuple[str, ...], lanes: int) -> tuple[int, int]:
    spans = list(zip(slots, space.threads[lanes:], strict=True))
    m = prod(radix for letter, (_, radix) in spans if letter == "m")
    return m, prod(radix for letter, (_, radix) in spans if letter == "n")


def _divides(
    program: TileProgram, op: TileOp, row: MatrixRow, swapped: bool, counts: tuple[int, int]
) -> bool:
    tiles = roles(program, op, swapped)
    named = axes_of(op, swapped)
    extents = dict(tiles[2].axes)
    m, n = extents[named["m"]], extents[named["n"]]
    return m % (row.m * counts[0]) == 0 and n % (row.n * counts[1]) == 0
