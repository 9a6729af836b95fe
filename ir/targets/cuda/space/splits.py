"""The decision to split a summed axis over blocks: partial sums in memory, and who adds them.

Where a kernel adds them, the split program is cut like any other; its product takes the decisions
of the whole one, and the kernels that merge take their first choice. `merging`, `running` and
`tensor_exchange` have the other ways.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from ir.columns import Decision
from ir.errors import UsageError
from ir.program import Program
from ir.rewrite.split import split
from ir.schedule import Value
from ir.stages import is_reduction, reduced_axes
from ir.targets.cuda.build.products import product_of, volume
from ir.targets.cuda.build.roles import Roles

WHOLE = "none"
MERGE = "merge"
KERNEL, LAST, ATOMICS, TURNSTILE = "kernel", "last", "atomics", "turnstile"
CLUSTER = "cluster"
PARTS = (2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32)
GRAIN = 64  # parts are whole multiples of this many points
FEWEST = 257  # points that a part must have to be a kernel of its own
MOST_PARTIAL = 256 << 20  # bytes of partial sums


@lru_cache(maxsize=256)
def split_program(program: Program, choice: str) -> Program:
    """The program for a value of the decision, "axis:parts"."""
    axis, _, parts = choice.partition(":")
    return split(program, axis, int(parts))


def split_choices(program: Program, roles: Roles, several: bool = False) -> tuple[str, ...]:
    """Values of the decision for a program that is one plain product.

    With `several`, the outermost axis of a sum over several may be split.
    """
    found = [WHOLE]
    if (
        roles.inner
        or (len(roles.walked) != 1 and not several)
        or _has_columns_apart(program, roles)
    ):
        return (WHOLE,)
    axis = next((name for name in roles.walked if program.axes[name] > 1), roles.walked[0])
    extent, total = program.axes[axis], volume(program, roles.walked)
    output = 4 * volume(program, (*roles.rows, *roles.columns, *roles.batch))
    for parts in PARTS:
        whole = extent % parts == 0 and total // parts % GRAIN == 0
        fits = whole and total // parts >= FEWEST
        if not fits or output * parts * len(roles.sums) > MOST_PARTIAL:
            continue
        try:
            split_program(program, f"{axis}:{parts}")
        except UsageError:
            break
        found.append(f"{axis}:{parts}")
    return tuple(found)


def _has_columns_apart(program: Program, roles: Roles) -> bool:
    """Whether blocks have columns of their own for what is reduced behind the product: the parts of
    a split one are reduced elsewhere, so that its kernel has other tiles."""
    products = {product.position for product in roles.outer}
    summed = {
        axis for position, node in enumerate(program.nodes)
        if is_reduction(node) and position not in products for axis in reduced_axes(node)
    }  # fmt: skip
    natural = {axis for p in products for axis in _batch_of(program, p)}
    return bool(summed & {*roles.columns}) and bool({*roles.batch} - natural)


def _batch_of(program: Program, position: int) -> tuple[str, ...]:
    product = product_of(program, position)
    return product.batch if product is not None else ()


def merge_decision(program: Program, roles: Roles, axis: str) -> Decision | None:
    """The fix-up of the parts, where there is a choice: products are all that the kernel sums."""
    products = {product.position for product in roles.outer}
    sums = {n for n, node in enumerate(program.nodes) if is_reduction(node)}
    if sums != products:
        return None
    why = (
        "who adds the parts of a sum: a second kernel, the last block to arrive, every block "
        "atomically, every block in its turn, or the blocks of a cluster among themselves"
    )
    ways = (KERNEL, LAST, ATOMICS, TURNSTILE, CLUSTER)
    return Decision(MERGE, ways, "split", axis, why, KERNEL, unsaid=KERNEL)


def merge_of(values: Mapping[str, Value]) -> str:
    """The fix-up of the parts; schedules from before there was a choice have a second kernel."""
    return str(values.get(MERGE, KERNEL))


def parts_of(values: Mapping[str, Value]) -> int:
    """Parts that the blocks of one kernel add among themselves."""
    choice = str(values.get("split", WHOLE))
    inside = choice != WHOLE and merge_of(values) != KERNEL
    return int(choice.partition(":")[2]) if inside else 1


def translated(values: Mapping[str, Value], choice: str, mark: str) -> dict[str, Value]:
    """A schedule's values with the split axis' tile given to the axis inside a part."""
    axis = choice.partition(":")[0]
    found = {name: value for name, value in values.items() if name not in ("split", MERGE)}
    if f"tile.{axis}" in found:
        found[f"tile.{axis}_in{mark}"] = found.pop(f"tile.{axis}")
    if mark:
        for name in list(found):
            if not name.endswith(mark):
                found[f"{name}{mark}"] = found.pop(name)
    return found
