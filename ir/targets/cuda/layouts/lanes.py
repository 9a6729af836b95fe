"""Where threads are, as expressions of their number: computed from layouts, never written by hand.

Of a frame, of the registers of an instruction, and of the rows of 8x8 matrices that the lanes of
ldmatrix and stmatrix address. Emits nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from ir.layout.addresses import address
from ir.layout.algebra import coalesce, from_modes
from ir.layout.expressions import ZERO, Expression, total, variable
from ir.layout.instructions import find
from ir.layout.instructions.rows import MatrixRow
from ir.layout.layout import Layout
from ir.targets.cuda.layouts.frame import GROUP, WARP, Frame, ThreadDigit
from ir.targets.cuda.layouts.placed import NOBODY, Step, ThreadValues, thread_values

LANE_BITS = 5
REGISTER = 32  # bits
COLUMNS = 8  # of one mma.sync


def thread_part(frame: Frame, axis: str, thread: str) -> Expression:
    """The thread's share of the coordinate along an axis of a frame."""
    modes = tuple((digit.size, digit.stride(axis)) for digit in frame.threads)
    return _part(modes, thread, frame.team)


def digits_part(frame: Frame, digits: Sequence[ThreadDigit], thread: str) -> Expression:
    """The thread number with all other digits 0: no two of what these digits tell apart are one."""
    modes = tuple(
        (digit.size, weight if any(digit is one for one in digits) else 0)
        for weight, digit in frame.weights()
    )
    return _part(modes, thread, frame.team)


@lru_cache(maxsize=4096)
def _part(modes: tuple[tuple[int, int], ...], thread: str, count: int) -> Expression:
    return address(coalesce(from_modes(modes)), variable(thread, count))


@lru_cache(maxsize=64)
def operand(instruction: str, role: str) -> ThreadValues:
    """How an instruction holds an operand ("a", "b" or "c") in registers."""
    row = find(instruction)
    assert isinstance(row, MatrixRow)
    held = getattr(row, role)
    return thread_values(str(held.layout), held.extents)


@lru_cache(maxsize=256)
def place(
    held: ThreadValues, value: Expression = ZERO, thread: Expression | None = None
) -> tuple[Expression, Expression]:
    """Where a value of a thread, of number `lane` if none is given, lies along both axes of its
    tile."""
    own = _lane(held) if thread is None else thread
    first, second = (
        total(
            address(_along(held.threads, axis), own),
            address(_along(held.values, axis), value),
        )
        for axis in (0, 1)
    )
    return first, second


def places_of_values(held: ThreadValues) -> tuple[tuple[int, int], ...]:
    """How far each value of a thread lies from its first, along both axes of the tile."""
    along = [_along(held.values, axis).offsets().tolist() for axis in (0, 1)]
    return tuple(zip(*along, strict=True))


@lru_cache(maxsize=256)
def matrix_row(
    held: ThreadValues,
    bits: int,
    matrices: int,
    transposed: bool,
    thread: Expression | None = None,
) -> tuple[Expression, Expression]:
    """The first point of the row that a lane, of number `lane` if none is given, addresses, along
    both axes of the tile.

    A register holds a part of each row of one matrix, of values of so many `bits`; `matrices`
    registers that follow each other in a thread are moved at once. Lanes that are not asked are as
    those that are. `transposed`: rows of the matrices run along the other axis than registers do.
    """
    packed = (REGISTER // bits).bit_length() - 1
    threads, values = tuple(_binary(held.threads)), tuple(_binary(held.values))
    rows = (values[0], *threads[:2]) if transposed else threads[2:LANE_BITS]
    picked = values[packed : packed + matrices.bit_length() - 1]
    idle = (Step(NOBODY, 2, 0),) * (2 - len(picked))
    steps = (*rows, *picked, *idle, *threads[LANE_BITS:])
    own = _lane(held) if thread is None else thread
    first, second = (address(_along(steps, axis), own) for axis in (0, 1))
    return first, second


def fragment_row(
    held: ThreadValues, part: str, blocks: int, bits: int, transposed: bool,
    thread: Expression | None = None,
) -> tuple[Expression, Expression]:  # fmt: skip
    """The same of mma.sync's operand "a", whose four matrices are read at once, or of "b", of whose
    8-column `blocks`, if there are several, two are."""
    if part == "b" and blocks > 1:
        held = ThreadValues(held.threads, (*held.values, Step(0, 2, COLUMNS)))
    matrices = 4 if part == "a" or blocks > 1 else 2
    return matrix_row(held, bits, matrices, transposed, thread)


def _lane(held: ThreadValues) -> Expression:
    count = 1
    for step in held.threads:
        count *= step.size
    assert count in (WARP, GROUP), held
    return variable("lane", count)


def _along(steps: Sequence[Step], axis: int) -> Layout:
    """The digits' layout along one axis."""
    modes = [(step.size, step.stride if step.axis == axis else 0) for step in steps]
    return coalesce(from_modes(modes))


def _binary(steps: Iterable[Step]) -> Iterator[Step]:
    """Digits of two steps each, up to the first that has an odd factor."""
    for step in steps:
        size, stride = step.size, step.stride
        while size % 2 == 0:
            yield Step(step.axis, 2, stride)
            size, stride = size // 2, stride * 2
        if size > 1:
            return
