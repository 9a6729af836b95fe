"""Linear layouts over F2: every input bit has a basis, every other value is an XOR of bases.

Owns the value and its algebra (composition, product, inverses, division). All extents are powers
of two. Knows no CuTe layout, no instruction and no bank. (Linear layouts: arXiv 2505.23819.)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from ir.layout import f2
from ir.layout.errors import LayoutError

Dimension = tuple[str, int]  # (name, bits)
Dimensions = tuple[Dimension, ...]
Values = int | NDArray[np.int64]

_TEXT = re.compile(r"\s*(?P<inputs>[^>]*?)\s*->\s*(?P<outputs>[^>]*?)\s*")
_INPUT = re.compile(r"([A-Za-z_]\w*)=((?:\d{1,19}(?:,\d{1,19})*)?)")
_OUTPUT = re.compile(r"([A-Za-z_]\w*):(\d{1,2})")


@dataclass(frozen=True, slots=True)
class Linear:
    """A linear map from named input bits to named output bits.

    `inputs`: (name, bases), the first input in the low bits of the flat coordinate; a basis is the
    image of one input bit. `outputs`: (name, bits), the first output in the low bits of a basis.
    A zero basis replicates. `==` compares the names in their order and the function;
    `same_function` disregards the order. At most 62 bits on either side.

    Lanes 0..3 own two adjacent elements each of a row of 8:

    >>> row = Linear((("register", (1,)), ("lane", (2, 4))), (("n", 3),))
    >>> row.apply(register=1, lane=3)
    {'n': 7}
    >>> str(row)
    'register=1 lane=2,4 -> n:3'
    """

    inputs: tuple[tuple[str, tuple[int, ...]], ...]
    outputs: Dimensions

    def __post_init__(self) -> None:
        for kind, names in (("input", self.input_names), ("output", self.output_names)):
            if len(set(names)) < len(names):
                raise LayoutError(
                    "linear-dimension",
                    f"{len(names)} {kind}s have {len(set(names))} different names: {names}",
                )
        for name, bits in self.outputs:
            if bits < 0:
                raise LayoutError("linear-dimension", f"output {name!r} of {bits} bits, at least 0")
        widest = max(self.in_bits, self.out_bits)
        if widest > 62:
            raise LayoutError("linear-dimension", f"{widest} bits on one side, at most 62")
        for name, bases in self.inputs:
            for bit, basis in enumerate(bases):
                if basis < 0 or basis >> self.out_bits:
                    raise LayoutError(
                        "linear-basis",
                        f"{name}[{bit}] = {basis} does not fit {self.out_bits} output bits",
                    )

    @classmethod
    def identity(cls, bits: int, source: str = "offset", target: str = "index") -> Linear:
        """The map of `bits` bits that changes nothing but the name."""
        return cls(((source, tuple(1 << bit for bit in range(bits))),), ((target, bits),))

    @classmethod
    def zeros(cls, bits: int, source: str, outputs: Dimensions = ()) -> Linear:
        """All `bits` bits of `source` replicate: everything maps to 0."""
        return cls(((source, (0,) * bits),), outputs)

    @classmethod
    def of(
        cls, inputs: Mapping[str, Sequence[Sequence[int]]], outputs: Mapping[str, int]
    ) -> Linear:
        """From bases that are given output by output: {"lane": ((0, 2), (1, 0))}, {"m": 1, "n": 2}.

        LayoutError "linear-basis" where a part does not fit its output.
        """
        dimensions = tuple(outputs.items())
        shifts = _shifts(dimensions)

        def pack(name: str, parts: Sequence[int]) -> int:
            if len(parts) != len(dimensions):
                raise LayoutError(
                    "linear-basis",
                    f"a basis of {name} has {len(parts)} parts for {len(dimensions)} outputs",
                )
            for part, (output, bits) in zip(parts, dimensions, strict=True):
                if part < 0 or part >> bits:
                    raise LayoutError(
                        "linear-basis", f"{name}: {part} does not fit {bits} bits of {output}"
                    )
            return sum(part << shifts[output] for part, output in zip(parts, outputs, strict=True))

        return cls(
            tuple(
                (name, tuple(pack(name, parts) for parts in bases))
                for name, bases in inputs.items()
            ),
            dimensions,
        )

    @classmethod
    def from_columns(
        cls, columns: Sequence[int], inputs: Dimensions, outputs: Dimensions
    ) -> Linear:
        """From the columns of all inputs in a row; LayoutError where their number differs."""
        total = sum(bits for _, bits in inputs)
        if total != len(columns):
            raise LayoutError("linear-dimension", f"{len(columns)} columns for {total} input bits")
        split, start = [], 0
        for name, bits in inputs:
            split.append((name, tuple(columns[start : start + bits])))
            start += bits
        return cls(tuple(split), outputs)

    @classmethod
    def parse(cls, text: str) -> Linear:
        """The inverse of `str`; LayoutError "linear-syntax" with the offending part."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise LayoutError("linear-syntax", f"{text[:60]!r}: inputs -> outputs expected")
        inputs, outputs = [], []
        for part in match["inputs"].split():
            found = _INPUT.fullmatch(part)
            if found is None:
                raise LayoutError("linear-syntax", f"{part[:60]!r}: name=basis,basis expected")
            inputs.append((found[1], tuple(int(basis) for basis in found[2].split(",") if basis)))
        for part in match["outputs"].split():
            found = _OUTPUT.fullmatch(part)
            if found is None:
                raise LayoutError("linear-syntax", f"{part[:60]!r}: name:bits expected")
            outputs.append((found[1], int(found[2])))
        return cls(tuple(inputs), tuple(outputs))

    def __str__(self) -> str:
        inputs = " ".join(f"{name}={','.join(map(str, bases))}" for name, bases in self.inputs)
        return f"{inputs} -> {' '.join(f'{name}:{bits}' for name, bits in self.outputs)}".strip()

    @property
    def input_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.outputs)

    @property
    def dimensions(self) -> Dimensions:
        """(name, bits) of every input."""
        return tuple((name, len(bases)) for name, bases in self.inputs)

    @property
    def columns(self) -> f2.Columns:
        """The bases of all inputs in a row: the matrix."""
        return tuple(basis for _, bases in self.inputs for basis in bases)

    @property
    def in_bits(self) -> int:
        return sum(len(bases) for _, bases in self.inputs)

    @property
    def out_bits(self) -> int:
        return sum(bits for _, bits in self.outputs)

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return 1 << self.in_bits

    def bases(self, name: str) -> f2.Columns:
        """Bases of one input over all outputs; LayoutError "unknown-dimension"."""
        for own, bases in self.inputs:
            if own == name:
                return bases
        raise _unknown(name, self.input_names)

    def has_input(self, name: str) -> bool:
        return name in self.input_names

    def basis(self, name: str, bit: int, output: str) -> int:
        """The part of one basis that belongs to one output."""
        bases = self.bases(name)
        if not 0 <= bit < len(bases):
            raise LayoutError("coordinate-range", f"bit {bit} of {name}, which has {len(bases)}")
        return bases[bit] >> self.shift(output) & (1 << self.bits(output)) - 1

    def bits(self, output: str) -> int:
        """Bits of one output; LayoutError "unknown-dimension"."""
        for name, bits in self.outputs:
            if name == output:
                return bits
        raise _unknown(output, self.output_names)

    def shift(self, output: str) -> int:
        """Position of an output's lowest bit in a basis."""
        self.bits(output)
        return _shifts(self.outputs)[output]

    @overload
    def __call__(self, coordinate: int) -> int: ...
    @overload
    def __call__(self, coordinate: NDArray[Any]) -> NDArray[np.int64]: ...
    def __call__(self, coordinate: int | NDArray[Any]) -> Values:
        """The flat output of a flat coordinate (first input and first output in the low bits)."""
        return _image(self.columns, coordinate, "flat coordinate")

    def apply(self, **coordinates: int | NDArray[Any]) -> dict[str, Values]:
        """Every output for the given inputs (broadcast together); inputs left out are 0.

        LayoutError "unknown-dimension", or "coordinate-range" outside 0 .. 2^bits - 1.
        """
        image: Values = 0
        for name, coordinate in coordinates.items():
            image = image ^ _image(self.bases(name), coordinate, name)
        shifts = _shifts(self.outputs)
        return {name: image >> shifts[name] & (1 << bits) - 1 for name, bits in self.outputs}

    def offsets(self) -> NDArray[np.int64]:
        """The function as a table of 2^in_bits flat outputs, indexed by the flat coordinate."""
        table = np.zeros(self.size, np.int64)
        for bit, column in enumerate(self.columns):
            table[1 << bit : 2 << bit] = table[: 1 << bit] ^ column
        return table

    def compose(self, inner: Linear) -> Linear:
        """First `inner`, then this: inner's outputs feed the inputs of the same names.

        An input that inner does not feed is held at 0. LayoutError "linear-mismatch" where an
        output of inner has no input here or has more bits than it.
        """
        own = dict(self.dimensions)
        placed: list[int] = []
        for name, bits in inner.outputs:
            if bits > own.get(name, 0):
                raise LayoutError(
                    "linear-mismatch", f"{name}: {bits} bits fed into {own.get(name, 0)} bits"
                )
            placed += self.bases(name)[:bits] if bits else ()
        return Linear.from_columns(
            f2.multiply(placed, inner.columns), inner.dimensions, self.outputs
        )

    def product(self, other: Linear) -> Linear:
        """Block-diagonal: `other` repeats this one. Shared names are joined, other's bits above."""
        inputs = _joined(self.dimensions, other.dimensions)
        outputs = _joined(self.outputs, other.outputs)
        above = dict(self.outputs)
        low = _relocation(self.outputs, outputs, {})
        high = _relocation(other.outputs, outputs, above)
        bases: dict[str, tuple[int, ...]] = {name: () for name, _ in inputs}
        for layout, moves in ((self, low), (other, high)):
            for name, columns in layout.inputs:
                bases[name] += tuple(_relocate(column, moves) for column in columns)
        return Linear(tuple(bases.items()), outputs)

    def __mul__(self, other: Linear) -> Linear:
        return self.product(other)

    def select(
        self, inputs: Sequence[str] | None = None, outputs: Sequence[str] | None = None
    ) -> Linear:
        """Only the named inputs (the others at 0) and outputs, in the given order."""
        kept = self.output_names if outputs is None else tuple(outputs)
        dimensions = tuple((name, self.bits(name)) for name in kept)
        moves = _relocation(self.outputs, dimensions, {})
        return Linear(
            tuple(
                (name, tuple(_relocate(column, moves) for column in self.bases(name)))
                for name in (self.input_names if inputs is None else inputs)
            ),
            dimensions,
        )

    def transpose(
        self, inputs: Sequence[str] | None = None, outputs: Sequence[str] | None = None
    ) -> Linear:
        """Reorder the dimensions; LayoutError "linear-dimension" unless each name is there once."""
        for given, own in ((inputs, self.input_names), (outputs, self.output_names)):
            if given is not None and sorted(given) != sorted(own):
                raise LayoutError("linear-dimension", f"{tuple(given)} does not reorder {own}")
        return self.select(inputs, outputs)

    def rename(self, **names: str) -> Linear:
        """Rename inputs and outputs; LayoutError "unknown-dimension" for a name that is neither."""
        for name in names:
            if name not in self.input_names + self.output_names:
                raise _unknown(name, self.input_names + self.output_names)
        return Linear(
            tuple((names.get(name, name), bases) for name, bases in self.inputs),
            tuple((names.get(name, name), bits) for name, bits in self.outputs),
        )

    def reshape(
        self, inputs: Dimensions | None = None, outputs: Dimensions | None = None
    ) -> Linear:
        """The same matrix with its bits grouped into other dimensions, lowest bits first."""
        total = self.out_bits if outputs is None else sum(bits for _, bits in outputs)
        if total != self.out_bits:
            raise LayoutError(
                "linear-dimension", f"{self.out_bits} output bits regrouped into {total}"
            )
        return Linear.from_columns(
            self.columns,
            self.dimensions if inputs is None else inputs,
            self.outputs if outputs is None else outputs,
        )

    def same_function(self, other: Linear) -> bool:
        """Equal as functions of named values: the order and empty dimensions do not matter."""
        return self._ordered() == other._ordered()

    def _ordered(self) -> Linear:
        dimensions, outputs = dict(self.dimensions), dict(self.outputs)
        return self.select(
            sorted(name for name, bits in dimensions.items() if bits),
            sorted(name for name, bits in outputs.items() if bits),
        )

    @property
    def rank(self) -> int:
        return f2.rank(self.columns)

    @property
    def is_injective(self) -> bool:
        return self.rank == self.in_bits

    @property
    def is_surjective(self) -> bool:
        return self.rank == self.out_bits

    def kernel(self) -> f2.Columns:
        """A basis of the flat coordinates that map to 0: what is replicated."""
        return f2.kernel(self.columns)

    def inverse(self) -> Linear:
        """The exact inverse; LayoutError "not-invertible" with the rank and both widths."""
        columns = f2.inverse(self.columns) if self.in_bits == self.out_bits else None
        if columns is None:
            raise LayoutError(
                "not-invertible",
                f"rank {self.rank} of {self.in_bits} input and {self.out_bits} output bits",
            )
        return Linear.from_columns(columns, self.outputs, self.dimensions)

    def right_inverse(self) -> Linear:
        """R with self(R(y)) = y, into the earliest independent input bits, the others 0.

        LayoutError "not-surjective" with the rank and the output bits.
        """
        if not self.is_surjective:
            raise LayoutError("not-surjective", f"rank {self.rank} of {self.out_bits} output bits")
        units = f2.solve(self.columns, (1 << bit for bit in range(self.out_bits)))
        return Linear.from_columns([unit or 0 for unit in units], self.outputs, self.dimensions)

    def left_inverse(self) -> Linear:
        """L with L(self(x)) = x, and 0 on the lowest unit vectors that complete the image.

        LayoutError "not-injective" with the rank and the input bits.
        """
        if not self.is_injective:
            raise LayoutError("not-injective", f"rank {self.rank} of {self.in_bits} input bits")
        full = f2.inverse(self.columns + f2.complement(self.columns, self.out_bits))
        assert full is not None
        mask = (1 << self.in_bits) - 1
        return Linear.from_columns(
            tuple(column & mask for column in full), self.outputs, self.dimensions
        )

    def solve(self, target: Linear) -> Linear:
        """X with self(X(y)) = target(y): from target's inputs to this one's; free bits are 0.

        The earliest inputs are preferred. LayoutError "linear-mismatch" where the outputs differ,
        "no-solution" naming the first basis of target outside this one's image.
        """
        if self.outputs != target.outputs:
            raise LayoutError(
                "linear-mismatch", f"outputs {self.outputs} asked for {target.outputs}"
            )
        columns = []
        solutions = iter(f2.solve(self.columns, target.columns))
        for name, bases in target.inputs:
            for bit, basis in enumerate(bases):
                solution = next(solutions)
                if solution is None:
                    raise LayoutError(
                        "no-solution",
                        f"{name}[{bit}] = {basis} is outside the image of rank {self.rank}",
                    )
                columns.append(solution)
        return Linear.from_columns(columns, target.dimensions, self.dimensions)

    def divide_left(self, tile: Linear) -> Linear:
        """The rest with tile.product(rest) = self, up to the order of dimensions.

        Every dimension of self stays, possibly with 0 bits. LayoutError "not-divisible" names the
        first basis that stands in the way.
        """
        dimensions, outputs = dict(self.dimensions), dict(self.outputs)
        inner, covered = dict(tile.dimensions), dict(tile.outputs)
        for part, whole in ((inner, dimensions), (covered, outputs)):
            for name, bits in part.items():
                if bits > whole.get(name, 0):
                    raise LayoutError(
                        "not-divisible", f"{name}: {bits} bits in {whole.get(name, 0)} bits"
                    )
        moves = _relocation(tile.outputs, self.outputs, {})
        due = {name: [_relocate(basis, moves) for basis in bases] for name, bases in tile.inputs}
        rest = tuple((name, bits - covered.get(name, 0)) for name, bits in self.outputs)
        shifts, kept = _shifts(self.outputs), _shifts(rest)
        taken = sum((1 << bits) - 1 << shifts[name] for name, bits in covered.items())
        down = tuple((shifts[name] + covered.get(name, 0), bits, kept[name]) for name, bits in rest)
        quotient = []
        for name, bases in self.inputs:
            own = due.get(name, [])
            for bit, basis in enumerate(bases):
                if bit < len(own) and basis != own[bit]:
                    raise LayoutError(
                        "not-divisible", f"{name}[{bit}] = {basis}, the tile has {own[bit]}"
                    )
                if bit >= len(own) and basis & taken:
                    raise LayoutError(
                        "not-divisible", f"{name}[{bit}] = {basis} reaches into the tile's {taken}"
                    )
            quotient.append((name, tuple(_relocate(basis, down) for basis in bases[len(own) :])))
        return Linear(tuple(quotient), rest)


def _shifts(dimensions: Dimensions) -> dict[str, int]:
    shifts, start = {}, 0
    for name, bits in dimensions:
        shifts[name] = start
        start += bits
    return shifts


def _joined(first: Dimensions, second: Dimensions) -> Dimensions:
    joined = dict(first)
    for name, bits in second:
        joined[name] = joined.get(name, 0) + bits
    return tuple(joined.items())


Moves = tuple[tuple[int, int, int], ...]  # (from bit, number of bits, to bit)


def _relocation(source: Dimensions, target: Dimensions, above: Mapping[str, int]) -> Moves:
    """Where each output's bits go, `above[name]` bits up; outputs that target lacks are dropped."""
    old, new = _shifts(source), _shifts(target)
    return tuple(
        (old[name], bits, new[name] + above.get(name, 0)) for name, bits in source if name in new
    )


def _relocate(column: int, moves: Moves) -> int:
    return sum((column >> start & (1 << bits) - 1) << to for start, bits, to in moves)


def _image(columns: f2.Columns, coordinate: int | NDArray[Any], what: str) -> Values:
    extent = 1 << len(columns)
    if isinstance(coordinate, np.ndarray):
        array = coordinate.astype(np.int64)
        if array.size and not 0 <= int(array.min()) <= int(array.max()) < extent:
            raise LayoutError(
                "coordinate-range",
                f"{what} from {array.min()} to {array.max()}, legal are 0 to {extent - 1}",
            )
        image = np.zeros_like(array)
        for bit, column in enumerate(columns):
            image ^= (array >> bit & 1) * column
        return image
    if not 0 <= coordinate < extent:
        raise LayoutError("coordinate-range", f"{what} {coordinate}, legal are 0 to {extent - 1}")
    return f2.apply(columns, int(coordinate))


def _unknown(name: str, known: Sequence[str]) -> LayoutError:
    return LayoutError("unknown-dimension", f"no dimension {name!r}: known are {', '.join(known)}")
