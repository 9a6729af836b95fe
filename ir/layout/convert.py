"""Between CuTe's layouts and linear ones over F2, and layouts of odd parts.

A conversion is exact or refused with the numbers that stand in the way. `Mixed` holds what neither
form takes whole: odd extents and strides as outer modes around a power-of-two core.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ir.layout.algebra import coalesce, from_modes
from ir.layout.errors import LayoutError
from ir.layout.layout import Layout, concat
from ir.layout.linear import Linear
from ir.layout.swizzle import AnyLayout, Composed, Swizzle, swizzled

Pairs = tuple[tuple[int, int], ...]


def to_linear(layout: AnyLayout, inputs: Sequence[str] = (), output: str = "offset") -> Linear:
    """The same function with a bit for every power of two; top modes become `inputs`.

    Without `inputs` the whole coordinate is one input, "index". LayoutError: not-linear for an
    extent that is no power of two, for steps whose sums would carry, for a shift before a swizzle;
    rank where the names do not fit the modes.
    """
    if isinstance(layout, Composed):
        if layout.offset:
            raise LayoutError(
                "not-linear",
                f"{layout} adds {layout.offset} before the swizzle: 0 maps to "
                f"{layout.swizzle(layout.offset)}, not to 0",
            )
        plain = to_linear(layout.layout, inputs, output)
        columns = [layout.swizzle(column) for column in plain.columns]
        bits = max((column.bit_length() for column in columns), default=0)
        return Linear.from_columns(columns, plain.dimensions, ((output, bits),))
    modes = _named(layout, inputs)
    found = [_columns(layout, mode.flat()) for _, mode in modes]
    _refuse_carries(layout)
    bits = (layout.cosize - 1).bit_length()
    return Linear(
        tuple((name, tuple(own)) for (name, _), own in zip(modes, found, strict=True)),
        ((output, bits),),
    )


def _named(layout: Layout, inputs: Sequence[str]) -> list[tuple[str, Layout]]:
    if not inputs:
        return [("index", layout)]
    if len(inputs) != layout.rank:
        raise LayoutError("rank", f"{len(inputs)} names for {layout.rank} modes of {layout}")
    return list(zip(inputs, layout.modes, strict=True))


def _columns(layout: Layout, pairs: Pairs) -> list[int]:
    found: list[int] = []
    for extent, stride in pairs:
        if extent & (extent - 1):
            raise LayoutError("not-linear", f"{layout}: extent {extent} is no power of two")
        if extent > 1 and stride < 0:
            raise LayoutError("not-linear", f"{layout}: stride {stride} is below 0")
        found += [stride << bit for bit in range(extent.bit_length() - 1)]
    return found


def _refuse_carries(layout: Layout) -> None:
    """Two modes that reach the same bit add up to a carry; XOR would lose it."""
    owners: dict[int, tuple[int, int]] = {}
    for extent, stride in layout.flat():
        for number in range(extent.bit_length() - 1):
            for bit in range(stride.bit_length() + number):
                if not stride << number >> bit & 1:
                    continue
                if bit in owners:
                    raise LayoutError(
                        "not-linear",
                        f"{layout}: modes {owners[bit][0]}:{owners[bit][1]} and {extent}:{stride} "
                        f"both reach bit {bit}, so their sums carry",
                    )
                owners[bit] = (extent, stride)


def to_layout(linear: Linear) -> AnyLayout:
    """The layout with a top mode for every input (a single input's modes stand alone).

    A matrix that is one swizzle after unit columns gives a `Composed`. LayoutError (no-layout)
    names the first column that no single swizzle explains.
    """
    plain = _unit_layout(linear)
    if plain is not None:
        return plain
    for swizzle in _swizzles(linear.out_bits):
        columns = [swizzle(column) for column in linear.columns]
        bits = max((column.bit_length() for column in columns), default=0)
        undone = Linear.from_columns(columns, linear.dimensions, (("offset", bits),))
        layout = _unit_layout(undone)
        if layout is not None:
            return swizzled(swizzle, layout)
    odd = next(column for column in linear.columns if column & (column - 1))
    raise LayoutError(
        "no-layout", f"column {odd} has {odd.bit_count()} bits, and no one swizzle leaves units"
    )


def _unit_layout(linear: Linear) -> Layout | None:
    """The layout of a matrix whose columns are units or zero, else None."""
    if any(column & (column - 1) for column in linear.columns):
        return None
    if len({c for c in linear.columns if c}) < sum(c > 0 for c in linear.columns):
        return None
    modes = [coalesce(from_modes((2, column) for column in own)) for _, own in linear.inputs]
    return modes[0] if len(modes) == 1 else concat(*modes)


def _swizzles(bits: int) -> Iterator[Swizzle]:
    """Every swizzle within so many bits, the fewest bits first."""
    for count in range(1, bits // 2 + 1):
        for base in range(bits - 2 * count + 1):
            for shift in range(count, bits - base - count + 1):
                yield Swizzle(count, base, shift)
                yield Swizzle(count, base, -shift)


@dataclass(frozen=True, slots=True)
class Mixed:
    """Inputs of any extent: `core` takes the low bits of each, `outer` a layout of the rest.

    The value is core(low bits) + the sum of the outer layouts. An input's extent is
    2^(its core bits) times its outer size.
    """

    core: Linear
    outer: tuple[Layout, ...]

    def __post_init__(self) -> None:
        if len(self.outer) != len(self.core.inputs):
            raise LayoutError(
                "rank", f"{len(self.outer)} outer layouts for {len(self.core.inputs)} inputs"
            )

    @property
    def extents(self) -> tuple[tuple[str, int], ...]:
        """(name, extent) of every input."""
        pairs = zip(self.core.dimensions, self.outer, strict=True)
        return tuple((name, outer.size << bits) for (name, bits), outer in pairs)

    def apply(self, **coordinates: int | NDArray[Any]) -> NDArray[np.int64]:
        """Values at coordinates (broadcast together); inputs left out are 0.

        LayoutError: unknown-dimension, or coordinate-range with the extent.
        """
        known = dict(self.extents)
        total: NDArray[np.int64] = np.zeros((), np.int64)
        image: NDArray[np.int64] = np.zeros((), np.int64)
        for name, given in coordinates.items():
            if name not in known:
                raise LayoutError("unknown-dimension", f"no input {name!r}: {', '.join(known)}")
            value = np.asarray(given, dtype=np.int64)
            if value.size and not 0 <= value.min() <= value.max() < known[name]:
                raise LayoutError(
                    "coordinate-range",
                    f"{name} from {value.min()} to {value.max()}, legal are 0 to {known[name] - 1}",
                )
            number = self.core.input_names.index(name)
            bits = self.core.dimensions[number][1]
            low = self.core.select([name])(value & ((1 << bits) - 1))
            image = image ^ low
            total = total + self.outer[number].at(value >> bits)
        return image + total

    def offsets(self) -> NDArray[np.int64]:
        """The function as a table, the first input fastest."""
        sizes = [extent for _, extent in self.extents]
        grid = np.indices(sizes[::-1])[::-1]
        names = [name for name, _ in self.extents]
        values = self.apply(**{name: grid[i] for i, name in enumerate(names)})
        return np.asarray(values, dtype=np.int64).reshape(-1)


def to_mixed(layout: Layout, inputs: Sequence[str] = ()) -> Mixed:
    """Any layout as bits as far as they go from the left of each mode, then outer modes.

    An odd factor is never split: 24:64 is eight by bits and three outside. Bits that another mode
    reaches too are left to the outer layouts, which add.
    """
    modes = _named(layout, inputs)
    taken: set[int] = set()
    inner, outer = [], []
    for name, mode in modes:
        columns, rest = _split(mode.flat(), taken)
        inner.append((name, tuple(columns)))
        outer.append(from_modes(rest))
    bits = max((c.bit_length() for _, own in inner for c in own), default=0)
    return Mixed(Linear(tuple(inner), (("offset", bits),)), tuple(outer))


def _split(pairs: Pairs, taken: set[int]) -> tuple[list[int], list[tuple[int, int]]]:
    """Columns of the leading bits, and the modes that are left."""
    columns: list[int] = []
    for place, (extent, stride) in enumerate(pairs):
        used = 1
        while extent % (2 * used) == 0 and _free(stride * used, taken):
            columns.append(stride * used)
            taken.add(stride * used)
            used *= 2
        if used < extent:
            return columns, [(extent // used, stride * used), *pairs[place + 1 :]]
    return columns, []


def _free(column: int, taken: set[int]) -> bool:
    return column == 0 or (column > 0 and column & (column - 1) == 0 and column not in taken)
