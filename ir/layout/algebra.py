"""The algebra of layouts: coalescing, composition, complement, inverse, product, granularity.

Definitions are CuTe's (NVIDIA CUTLASS documentation, "CuTe Layout Algebra"; C. Cecka, arXiv
2603.02298). Results are exact functions or refusals: where the usual rules by modes would be wrong
at some point, a LayoutError says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from ir.layout import tree
from ir.layout.errors import LayoutError
from ir.layout.layout import Layout, concat
from ir.layout.tree import IntTree

Modes = list[tuple[int, int]]
_CHECKED = 1 << 22  # sizes up to which a composition may be proven point by point
UNIT = Layout(1, 0)


def from_modes(modes: Iterable[tuple[int, int]]) -> Layout:
    """A flat layout of (extent, stride) pairs; one pair makes a bare mode, none makes 1:0."""
    pairs = list(modes)
    if not pairs:
        return UNIT
    if len(pairs) == 1:
        return Layout(*pairs[0])
    return Layout(tuple(e for e, _ in pairs), tuple(s for _, s in pairs))


# -- simplification


def coalesce(layout: Layout, profile: IntTree | None = None) -> Layout:
    """The same function of an index in the fewest flat modes.

    With a `profile`, its leaves say which modes are simplified on their own; modes beyond it stay.
    Raises LayoutError (rank) when the profile has more modes than the layout.
    """
    if not isinstance(profile, tuple):
        return from_modes(_merged(layout.flat()))
    if len(profile) > layout.rank:
        raise LayoutError("rank", f"profile of {len(profile)} modes on {layout.rank} of {layout}")
    parts = [coalesce(*pair) for pair in zip(layout.modes, profile, strict=False)]
    return concat(*parts, *layout.modes[len(profile) :])


def _merged(pairs: Iterable[tuple[int, int]]) -> Modes:
    """Modes without extents of 1, neighbours joined where one goes on from the other."""
    found: Modes = []
    for extent, stride in pairs:
        if extent == 1:
            continue
        if found and stride == found[-1][0] * found[-1][1]:
            found[-1] = (found[-1][0] * extent, found[-1][1])
        else:
            found.append((extent, stride))
    return found


def filter_zeros(layout: Layout) -> Layout:
    """The layout with extent 1 wherever the stride is 0: every offset once, same profile."""
    shape = tree.like(layout.shape, iter([e if s else 1 for e, s in layout.flat()]))
    return Layout(shape, layout.stride)


# -- composition


def composition(outer: Layout, inner: Layout) -> Layout:
    """R with R(c) = outer(inner(c)) for every coordinate of `inner`, of inner's profile.

    The last mode of `outer` goes on beyond its extent. Raises LayoutError: divisibility where no
    such layout can be built mode by mode, not-admissible where its modes carry into each other or
    step backwards.
    """
    pairs = _with_end(outer)
    result = _compose_tree(pairs, inner.shape, inner.stride, outer, inner)
    if not _carries_nothing(pairs, inner):
        _prove(result, outer, inner)
    return result


def _with_end(layout: Layout) -> Modes:
    """Coalesced modes of which the last still is the one along which indices go on."""
    *inner, last = layout.flat()
    pairs = _merged(inner)
    if pairs and last[1] == pairs[-1][0] * pairs[-1][1]:
        return [*pairs[:-1], (pairs[-1][0] * last[0], pairs[-1][1])]
    return [*pairs, last]


def _compose_tree(
    pairs: Modes, shape: IntTree, stride: IntTree, outer: Layout, inner: Layout
) -> Layout:
    if isinstance(shape, tuple):
        assert isinstance(stride, tuple)
        parts = zip(shape, stride, strict=True)
        return concat(*(_compose_tree(pairs, *part, outer, inner) for part in parts))
    assert isinstance(stride, int)
    assert isinstance(shape, int)
    if stride < 0 and shape > 1:
        raise LayoutError("not-admissible", f"{inner} has the negative stride {stride}")
    try:
        return from_modes(_compose_leaf(pairs, shape, stride))
    except LayoutError as error:
        raise LayoutError(error.code, f"{outer} after {inner}: {error}") from None


def _compose_leaf(pairs: Modes, count: int, step: int) -> Modes:
    """Modes of `pairs` after count:step: divide by step from the left, then keep count."""
    if step == 0 or count == 1:
        return [(count, 0)]
    found: Modes = []
    for extent, stride in pairs[:-1]:
        if (count - 1) * step < extent:
            break
        if step >= extent:
            step = _exact(step, extent, "stride")
            continue
        taken = min(_exact(extent, step, "extent"), count)
        found.append((taken, stride * step))
        count, step = _exact(count, taken, "count"), 1
        if count == 1:
            return _joined(found)
    else:
        stride = pairs[-1][1]
    return _joined([*found, (count, stride * step)])


def _joined(modes: Modes) -> Modes:
    return _merged(modes) or [(1, 0)]


def _exact(whole: int, part: int, what: str) -> int:
    if whole % part:
        raise LayoutError("divisibility", f"{what} {whole} is not divisible by {part}")
    return whole // part


def _carries_nothing(pairs: Modes, inner: Layout) -> bool:
    """Whether sums of inner's offsets never carry from one mode of the outer layout to the next.

    Then the composition by modes is exact: the digits of a sum are the sums of the digits.
    """
    reach = [0] * len(pairs)
    for extent, stride in inner.flat():
        if extent == 1 or stride == 0:
            continue
        digits = _largest_digits(pairs, extent, stride)
        if digits is None:
            return False
        reach = [a + b for a, b in zip(reach, digits, strict=True)]
    return all(r < extent for r, (extent, _) in zip(reach[:-1], pairs[:-1], strict=True))


def _largest_digits(pairs: Modes, count: int, step: int) -> list[int] | None:
    """The largest digit that count:step reaches in each mode, each a multiple of its own step."""
    digits = []
    for extent, _ in pairs[:-1]:
        if count == 1:
            digits.append(0)
        elif (count - 1) * step < extent:
            digits.append((count - 1) * step)
            count = 1
        elif step >= extent:
            if step % extent:
                return None
            digits.append(0)
            step //= extent
        else:
            if extent % step or count % (extent // step):
                return None
            digits.append(extent - step)
            count, step = count // (extent // step), 1
    return [*digits, (count - 1) * step]


def _prove(result: Layout, outer: Layout, inner: Layout) -> None:
    """Compare with the definition at every point."""
    if inner.size > _CHECKED:
        raise LayoutError(
            "not-admissible",
            f"{outer} after {inner}: {inner.size} points, {_CHECKED} can be proven",
        )
    wanted, found = outer.at(inner.offsets()), result.offsets()
    wrong = np.flatnonzero(wanted != found)
    if wrong.size:
        at = int(wrong[0])
        raise LayoutError(
            "not-admissible",
            f"{outer} after {inner} is no layout by modes: at {at} it is {int(wanted[at])}, "
            f"and {result} gives {int(found[at])}",
        )


def along_axes(layout: Layout, shape: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
    """Modes of a layout of indices into `shape`, each as parts (axis, extent, stride) that move
    along one axis of it; axis -1 for what does not move. LayoutError as `composition` raises it.
    """
    apart = tree.compact(tuple(2 * extent for extent in shape))  # so that no two axes join
    assert isinstance(apart, tuple)
    starts = tree.flatten(apart)
    for extent, stride in layout.flat():
        for size, reach in composition(Layout(shape, apart), Layout(extent, stride)).flat():
            axis = sum(start <= reach for start in starts) - 1
            if size > 1:
                yield axis, size, reach // starts[axis] if reach else 0


# -- complement and inverses


def _sorted(layout: Layout) -> Modes:
    """Modes that move, by stride; raises LayoutError (not-injective) for what overlaps."""
    modes = sorted((stride, extent) for extent, stride in filter_zeros(layout).flat() if extent > 1)
    if modes and modes[0][0] < 0:
        raise LayoutError("not-injective", f"{layout} has the negative stride {modes[0][0]}")
    return [(extent, stride) for stride, extent in modes]


def complement(layout: Layout, size: int = 1) -> Layout:
    """What is missing: ordered, disjoint from `layout` but for 0, together covering [0, size).

    `size` is rounded up to whole repetitions; modes of stride 0 do not count. Raises LayoutError:
    not-injective where the layout overlaps itself, divisibility where no layout fills its gaps.
    """
    found: Modes = []
    reach, whole = 1, None  # `whole`: what is covered without a gap, once that is not `reach`
    for extent, stride in _sorted(layout):
        if stride < reach:
            return _between(layout, found, size, whole or reach)
        if stride % reach and whole is None:
            whole = stride // reach * reach
            if size > whole:
                raise LayoutError(
                    "divisibility", f"{layout}: stride {stride} is not divisible by {reach}"
                )
        found.append((stride // reach, reach))
        reach = stride * extent
    found.append((-(-size // reach), reach))
    return from_modes(_merged(found))


def _between(layout: Layout, found: Modes, size: int, whole: int) -> Layout:
    """The complement of a layout of which a mode steps inside smaller ones: no more than fills
    `size`, which must be within the `whole` that `found` fills beside the smaller modes."""
    rest = from_modes(_merged((min(e, -(-size // s)), s) for e, s in found if s < size))
    own = filter_zeros(layout)
    if size > whole or not concat(own, rest).injective:
        code = "divisibility" if own.injective else "not-injective"
        raise LayoutError(code, f"{layout}: a stride steps inside smaller modes, {size} to cover")
    return rest


def right_inverse(layout: Layout) -> Layout:
    """R with layout(R(i)) = i on the largest prefix [0, n) of offsets that there is one for.

    Of a layout that meets an offset twice, modes and first parts of modes are tried, each in steps
    by one: (2,3):(1,1) gives 3:2, though (2,2):(1,4) goes one further.
    """
    best: dict[int, tuple[int, Modes]] = {}  # by where a chain of modes starts: its end, and it
    steps = _indexed(layout)
    for start in sorted({stride for stride, _, _ in steps if stride > 0}, reverse=True):
        ends = [later // start for later in best if later % start == 0]
        chosen: tuple[int, Modes] = (start, [])
        for _, extent, index in [step for step in steps if step[0] == start]:
            for count in (extent, *(end for end in ends if end < extent)):
                end, rest = best.get(start * count, (start * count, []))
                if end > chosen[0]:
                    chosen = end, [(count, index), *rest]
        best[start] = chosen
    return from_modes(_merged(best.get(1, (1, []))[1]))


def _indexed(layout: Layout) -> list[tuple[int, int, int]]:
    """(stride, extent, indices from one step to the next) of every mode of more than one step."""
    found, step = [], 1
    for extent, stride in layout.flat():
        if extent > 1:
            found.append((stride, extent, step))
        step *= extent
    return found


# -- products


def logical_product(layout: Layout, copies: Layout) -> Layout:
    """(layout, its repetitions): the second mode walks them in the order of `copies`.

    Raises LayoutError: what complement and composition raise.
    """
    free = complement(layout, layout.size * copies.cosize)
    return concat(layout, composition(free, copies))


# -- vectors and granularity


def max_common_vector(left: Layout, right: Layout) -> int:
    """How many first offsets both layouts reach in the same order of indices: a copy's vector."""
    indices = right_inverse(right).offsets()
    inside = indices < min(left.size, right.size)
    same = inside & (left.at(indices) == np.arange(indices.size))
    return int(indices.size if same.all() else max(1, same.argmin()))


def upcast(layout: Layout, count: int) -> Layout:
    """Offsets in elements `count` times as wide: upcast(L)(c) covers what L(c) // count did.

    Raises LayoutError: divisibility where steps begin inside wide elements or go on in the next
    one unevenly, not-injective where modes inside one add up to more.
    """
    if count < 1:
        raise LayoutError("extent", f"elements {count} times as wide: at least 1")
    pairs, reach = [], 0
    for extent, stride in layout.flat():
        inside = _inside(extent, stride, count)
        if inside is None:
            raise LayoutError(
                "divisibility",
                f"{layout}: mode {extent}:{stride} does not fill elements of {count}",
            )
        reach += (inside - 1) * stride
        if inside == extent and extent > 1:
            pairs.append((1, 0))
        else:
            wide = -(-abs(stride * inside) // count)
            pairs.append((extent // inside, wide if stride > 0 else -wide))
    if reach >= count:
        raise LayoutError(
            "not-injective", f"{layout}: modes below {count} add up to {reach} and carry over it"
        )
    return _rebuilt(layout, pairs)


def _inside(extent: int, stride: int, count: int) -> int | None:
    """Steps of a mode that lie in one element of `count`; None where they lie unevenly."""
    if extent == 1 or stride % count == 0:
        return 1
    if 0 < (extent - 1) * stride < count:
        return extent
    fits = stride > 0 and count % stride == 0 and extent % (count // stride) == 0
    return count // stride if fits else None


def _rebuilt(layout: Layout, pairs: Modes) -> Layout:
    """A layout of the same profile with other leaves."""
    shape = tree.like(layout.shape, iter([extent for extent, _ in pairs]))
    return Layout(shape, tree.like(layout.shape, iter([stride for _, stride in pairs])))
