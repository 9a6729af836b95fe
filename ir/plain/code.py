"""What a plain kernel is made of: independent points, loops, scalars, arrays. Knows no target.

A kernel runs its body once for each of `points`. If it is not `cooperative`, one thread does so.
If it is, a group of threads does: all of them run the body alike, but for `Spread`, whose
iterations they share and behind which they wait for each other. A target without such groups runs
a `Spread` as loops. Every scalar is of a compute type (`ir.dtypes.compute_dtype`) or an index
(i64); elements are widened where they are read and rounded where they are written.
"""

from __future__ import annotations

from dataclasses import dataclass

from ir.merges import Merge
from ir.ops.base import TensorSpec
from ir.ops.map import Map

TENSOR, GROUP, THREAD = "tensor", "group", "thread"  # where an array is


# --- scalars ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Number:
    """A constant; `dtype` is that of the scalar."""

    value: float | int | bool
    dtype: str


@dataclass(frozen=True, slots=True)
class Name:
    """A variable: of a loop (i64), or one that a statement defines."""

    name: str
    dtype: str = "i64"


@dataclass(frozen=True, slots=True)
class Call:
    """A function of `ir.scalar`, of scalars of one type (`where`: behind a condition).

    `like` is the function with its attributes, where it has some; `source` the dtype whose bits a
    bitcast takes.
    """

    function: str
    args: tuple[Scalar, ...]
    dtype: str
    like: Map | None = None
    source: str = ""


@dataclass(frozen=True, slots=True)
class Convert:
    """A scalar as any dtype has it, and then widened again: a narrow float's is rounded."""

    arg: Scalar
    to: str
    dtype: str  # compute type of `to`, or i64 for an index


@dataclass(frozen=True, slots=True)
class Element:
    """An array's element at a flat index, widened; the index is inside, or the read not made."""

    array: str
    index: Scalar
    dtype: str


Scalar = Number | Name | Call | Convert | Element


# --- statements ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Let:
    """Defines a variable for the rest of the block; `Assign` may change it."""

    name: Name
    value: Scalar


@dataclass(frozen=True, slots=True)
class Assign:
    name: Name
    value: Scalar


@dataclass(frozen=True, slots=True)
class Write:
    """An element of an array becomes a scalar, rounded to the array's dtype."""

    array: str
    index: Scalar
    value: Scalar


@dataclass(frozen=True, slots=True)
class Combine:
    """An element becomes what it is together with a scalar, as a scatter of `kind` combines them.

    Points may meet in one: but for sums of floats, what comes of it does not depend on their order
    (`is_free`).
    """

    kind: str
    array: str
    index: Scalar
    value: Scalar


@dataclass(frozen=True, slots=True)
class Claim:
    """`name` becomes an element of a group's array of i32, which becomes one more.

    Iterations of a `Spread` may meet in it: each gets a number of its own, in any order.
    """

    name: Name
    array: str
    index: Scalar


@dataclass(frozen=True, slots=True)
class If:
    """`body` where the condition (bool) holds; its reads are not made elsewhere.

    `often` is how often it is thought to hold, for who estimates.
    """

    condition: Scalar
    body: tuple[Statement, ...]
    other: tuple[Statement, ...] = ()
    often: float = 1.0


@dataclass(frozen=True, slots=True)
class Loop:
    """One iteration after the other, from 0 or, `backward`, from the last one."""

    variable: Name
    extent: int
    body: tuple[Statement, ...]
    backward: bool = False


@dataclass(frozen=True, slots=True)
class Between:
    """One iteration after the other, from `first` to before `end`, of which there may be none.

    `often` is how many there are thought to be, for who estimates.
    """

    variable: Name
    first: Scalar
    end: Scalar
    body: tuple[Statement, ...]
    often: int


@dataclass(frozen=True, slots=True)
class Spread:
    """Iterations over all points of `variables`, in any order and by any thread of the group."""

    variables: tuple[tuple[Name, int], ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Accumulate:
    """A fold along a loop: at each iteration `body` runs, then `states` become what `merge` makes
    of them and of `values`, at the first iteration `values`; then `keep` runs.

    `values` are scalars of the states' types; `keep` reads the states, and nothing of `body`. The
    states stay defined behind it. `body` writes nothing, and `keep` nothing that other iterations
    touch, so that iterations may be shared as long as the order of merging is that of the loop.
    """

    variable: Name
    extent: int
    backward: bool
    body: tuple[Statement, ...]
    values: tuple[Scalar, ...]
    states: tuple[Name, ...]
    merge: Merge
    keep: tuple[Statement, ...] = ()


Statement = Let | Assign | Write | Combine | Claim | If | Loop | Between | Spread | Accumulate


def is_free(kind: str, dtype: str) -> bool:
    """Whether elements of a compute type may be combined in any order, to the same bits."""
    return kind != "sum" or dtype in ("i32", "i64")


# --- kernels ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Array:
    """`size` elements: a tensor of the program, or memory of a group or of a thread.

    What a group's or a thread's holds at the beginning is not known. Of a tensor that is `partly`
    written, elements that nobody wrote are anything.
    """

    name: str
    dtype: str
    size: int
    place: str = TENSOR
    partly: bool = False


@dataclass(frozen=True, slots=True)
class PlainKernel:
    """See the module's text. `tensors` are the program's; `arrays` hold them and all others.

    With `rounds` all points are run so often, those of one round behind all of the round before,
    whose number the variable has; what was written in one may be read in the next.
    """

    name: str
    tensors: tuple[TensorSpec, ...]
    arrays: tuple[Array, ...]
    points: tuple[tuple[Name, int], ...]
    body: tuple[Statement, ...]
    cooperative: bool = False
    rounds: tuple[Name, int] | None = None
