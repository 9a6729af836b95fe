"""The kernels of a program: how it is cut, and which kind each is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache

import numpy as np

from ir.columns import Decision
from ir.errors import Refusal, UsageError
from ir.handed import all_handed
from ir.ops.fold import Fold
from ir.phases import Phase
from ir.program import Program
from ir.rewrite.flattened import laid_flat, with_fewer_axes
from ir.rewrite.grouped import grouped
from ir.schedule import Value
from ir.space import Constraint
from ir.target import Hardware
from ir.targets.cuda.build.cut import (
    CHAINED,
    FMA,
    FORMED,
    MMA,
    RS,
    WGMMA,
    has_products,
    part_name,
)
from ir.targets.cuda.build.formed import Former, absorbed
from ir.targets.cuda.build.partitions import EVERYWHERE, Way, partitions, ways_of
from ir.targets.cuda.build.tried import AnyKernel as AnyKernel
from ir.targets.cuda.build.tried import seeds_alone, space_alone, with_schedules
from ir.targets.cuda.grid.overlap import NAME, PREFETCH, early_decision, starts_early
from ir.targets.cuda.seeds.few_rows import few_rows_seeds
from ir.targets.cuda.seeds.split_seeds import filling
from ir.targets.cuda.space.block import BlockKernel
from ir.targets.cuda.space.cluster_rules import exchange_fits
from ir.targets.cuda.space.mma import MmaKernel
from ir.targets.cuda.space.plain import PlainCudaKernel
from ir.targets.cuda.space.residences import BESIDE, HANDED, HELD, USUAL, pieces_of
from ir.targets.cuda.space.split_rules import (
    merged_inside,
    merged_once,
    parts_in_a_wave,
    whole_parts,
)
from ir.targets.cuda.space.splits import (
    ATOMICS,
    KERNEL,
    LAST,
    MERGE,
    TURNSTILE,
    WHOLE,
    merge_decision,
    merge_of,
    split_choices,
    split_program,
    translated,
)
from ir.targets.cuda.space.tensor import FormedKernel, RegisterKernel, TensorKernel
from ir.targets.cuda.space.warp import WarpKernel

KINDS: Mapping[str, type[TensorKernel] | type[MmaKernel]] = {
    WGMMA: TensorKernel, RS: RegisterKernel, MMA: MmaKernel, CHAINED: WarpKernel,
    FORMED: FormedKernel,
}  # fmt: skip
HANDING = (WGMMA, RS)  # engines whose kernels keep a state that products are added to
CUT_AS = {FORMED: WGMMA, CHAINED: WGMMA}  # engines that cut programs as others do
MANY = 1 << 30
LIGHT = 64  # operations for each byte of traffic, up to which plain units may keep up with memory
SHORT = 4 * LIGHT  # up to which a kernel's start is a part of its time that counts


@lru_cache(maxsize=512)
def kernels_of(
    program: Program, hardware: Hardware, engine: str | None = None, residence: str = USUAL
) -> tuple[AnyKernel, ...]:
    """One kernel, or several in order where the program is cut; UsageError if none can be.

    `engine` computes the products; by default the first one that can. `residence` says what goes
    through memory anyway.
    """
    engine = engine or engines_of(program, hardware, residence)[0]
    phases = pieces_of(program, residence)
    found: list[AnyKernel] = []
    taken = frozenset(spec.name for phase in phases for spec in phase.program.tensors)
    for phase in phases:
        first = len(found) if len(phases) > 1 else None
        beside, across = (residence.startswith(word) for word in (BESIDE, HELD))
        ways = ways_of(residence != USUAL, beside, across)
        kernels: tuple[AnyKernel, ...] = ()
        own = (program, phase, first, taken, hardware)
        if engine == FORMED:
            with suppress(UsageError):  # a phase in which nothing is formed
                kernels = _phase_kernels(*own, engine, ways)
        others = WGMMA if engine == FORMED else engine
        if not kernels and residence == USUAL:  # without which there may be none
            with suppress(UsageError):
                kernels = _phase_kernels(*own, others, ways)
            kernels = kernels or _phase_kernels(*own, others, ways, patient=True)
        found += kernels or _phase_kernels(*own, others, ways)
        taken |= {spec.name for kernel in found for spec in kernel.program.tensors}
    return tuple(found)


def _phase_kernels(
    program: Program, phase: Phase, first: int | None, taken: frozenset[str], hardware: Hardware,
    engine: str, ways: tuple[Way, ...], patient: bool = False,
) -> tuple[AnyKernel, ...]:  # fmt: skip
    """The kernels of one phase, cut in the first of `ways` that has a kernel for each part.

    `first`: how many come before, None where there is no other phase. What is cut gets names that
    are not `taken`. `patient`: schedules of plain units are looked for at length.
    """
    if phase.plain:
        part = phase.program if first is None else _named(program, phase.program, first)
        return (_plain_kernel(part, _mark(first, 0), hardware),)
    problems: list[str] = []
    fallen: list[tuple[AnyKernel, ...]] = []
    flat = laid_flat(phase.program) if engine in KINDS and has_products(phase.program) else ()
    for own in (phase.program, *flat):
        cuts = _cut_kernels(
            program, own, first, taken, hardware, engine, ways, problems, patient, fallen
        )
        for kernels in cuts:
            if not any(_falls_back(kernel, engine) for kernel in kernels):
                return kernels
            fallen.append(kernels)
    if fallen:
        return fallen[0]
    raise UsageError(f"{program.name}: the cuda target cannot compute it: {problems[-1]}")


def _cut_kernels(
    program: Program, phase: Program, first: int | None, taken: frozenset[str],
    hardware: Hardware, engine: str, ways: tuple[Way, ...], problems: list[str], patient: bool,
    fallen: Sequence[tuple[AnyKernel, ...]],
) -> Iterator[tuple[AnyKernel, ...]]:  # fmt: skip
    """Of each way to cut a phase that has a kernel for each part; why others have not. Where some
    are `fallen` back to other units already, none that does is looked for any more."""
    cut, some = CUT_AS.get(engine, engine), False
    for way, parts in partitions(phase, cut, taken, ways):
        if (some or fallen) and way is EVERYWHERE:
            return
        pairs: tuple[tuple[Program, tuple[Former, ...]], ...] = tuple((p, ()) for p in parts)
        if engine == FORMED:
            pairs = absorbed(parts, frozenset(spec.name for spec in program.tensors) | taken)
            if not any(formed for _, formed in pairs):
                problems.append("no operand is formed on its way")
                continue
            parts = tuple(part for part, _ in pairs)
        start = 0 if first is None and len(parts) > 1 else first
        if first is not None:
            parts = tuple(_named(program, part, first + n) for n, part in enumerate(parts))
        try:
            marks = [_mark(start, number) for number in range(len(parts))]
            kernels = tuple(
                _kernel(part, mark, hardware, engine, patient, formed, bool(fallen))
                for part, mark, (_, formed) in zip(parts, marks, pairs, strict=True)
            )
        except Refusal as refusal:
            problems.append(str(refusal))
            continue
        if all(map(_holds_its_outputs, kernels)):
            some = True
            yield kernels


def _holds_its_outputs(kernel: AnyKernel) -> bool:
    """Whether a kernel may write outputs over fewer axes beside others, if it does: one whose
    blocks have tiles of all that is not reduced, where they lack what is."""
    axes = {frozenset(store.axes) for _, store in kernel.program.stores()}
    if isinstance(kernel, BlockKernel):
        widest = frozenset().union(*axes)
        return all(widest - some <= {*kernel.shape.reduced} for some in axes)
    return len(axes) == 1 or isinstance(kernel, TensorKernel)


def _falls_back(kernel: AnyKernel, engine: str) -> bool:
    """Whether other units than the engine's compute products that tensor cores could."""
    own = isinstance(kernel, KINDS.get(engine, BlockKernel))
    own = own or (engine == CHAINED and isinstance(kernel, MmaKernel))
    return not own and has_products(kernel.program)


def _mark(first: int | None, number: int) -> str:
    """What ends the names of a kernel's decisions: nothing where it is the only one."""
    return "" if first is None else f".{first + number}"


def _named(program: Program, part: Program, number: int) -> Program:
    """Kernels of several phases are numbered as one list."""
    return part.named(part_name(program, number))


@lru_cache(maxsize=256)
def engines_of(program: Program, hardware: Hardware, residence: str = USUAL) -> tuple[str, ...]:
    """Units that can compute the program's products, those of most operations a second first.

    An engine that cuts the program into more kernels than another is left out, as is one that forms
    operands, or chains products by mma.sync, and saves none. Plain units stand beside tensor cores
    only where memory is the limit or they save a cut: elsewhere they would only cost trials.
    """
    found: list[str] = []
    fewest = MANY
    handing = HANDED in residence
    for engine, kind in KINDS.items():
        if handing and engine not in HANDING:
            continue
        try:
            kernels = kernels_of(program, hardware, engine, residence)
        except UsageError:
            continue
        most = fewest - 1 if engine in (FORMED, CHAINED) else fewest
        if any(_shows(kernel, kind) for kernel in kernels) and len(kernels) <= most:
            found = [engine] if engine == CHAINED else [*found, engine]
            fewest = len(kernels)
    if found == [RS] and residence == USUAL:  # others' names of decisions do not depend on it
        found, fewest = [], MANY
    if found and handing:
        return tuple(found)
    if found and residence != USUAL:
        with suppress(UsageError):
            count = len(kernels_of(program, hardware, FMA, residence))
            found += [FMA] if is_light(program) or count < fewest else []
        return tuple(found)
    if not found or is_light(program) or len(kernels_of(program, hardware, FMA)) < fewest:
        found.append(FMA)
    return tuple(found)


def _shows(kernel: AnyKernel, kind: type[TensorKernel] | type[MmaKernel]) -> bool:
    """Whether a kernel is of an engine's kind, and does what others do not."""
    if kind is RegisterKernel:
        return isinstance(kernel, RegisterKernel) and bool(kernel.roles.computed)
    return isinstance(kernel, kind)


def is_light(program: Program) -> bool:
    """Whether memory, not arithmetic, is surely the limit."""
    return program.flops <= LIGHT * program.bytes


def _kernel(
    part: Program, mark: str, hardware: Hardware, engine: str, patient: bool,
    formed: tuple[Former, ...] = (), strict: bool = False,
) -> AnyKernel:  # fmt: skip
    """On an engine; what it refuses on the tensor cores of every card, then on plain units, unless
    it is products and only the engine's own units are asked for (`strict`)."""
    if formed:
        return _formed_kernel(part, mark, hardware, formed)
    engine = WGMMA if engine == FORMED else engine
    if any(isinstance(node.op, Fold) for node in part.nodes):
        found = _tensor_kernel(part, mark, hardware, engine) if engine in HANDING else None
        if found is None or not all_handed(part):
            raise Refusal("handed", "kernels on wgmma that have its products hand a state on")
        return found
    kinds = (MMA, CHAINED) if engine == CHAINED else (engine, MMA)
    for kind in dict.fromkeys(kinds if engine in KINDS else ()):
        found = _tensor_kernel(part, mark, hardware, kind)
        if found is not None and not (strict and _falls_back(found, engine)):
            return found
    if strict and has_products(part):
        raise Refusal("units", f"products that {engine} does not compute")
    return _block_kernel(part, mark, hardware, patient)


@lru_cache(maxsize=1024)
def _tensor_kernel(part: Program, mark: str, hardware: Hardware, engine: str) -> AnyKernel | None:
    """The kernel on tensor cores, if there is one: ways to cut a program have parts in common. Axes
    that lie behind one another are one where they are refused as several."""
    kind = KINDS[engine]
    assert kind is not FormedKernel
    own = grouped(part)
    for one in (own, *(with_fewer_axes(own) if has_products(own) else ())):
        with suppress(Refusal):
            return with_schedules(kind(one, mark, hardware))
    return None


@lru_cache(maxsize=256)
def _formed_kernel(
    part: Program, mark: str, hardware: Hardware, formed: tuple[Former, ...]
) -> AnyKernel:
    """The kernel that forms its operands; Refusal if there is none."""
    return with_schedules(FormedKernel(part, mark, hardware, formed))


@lru_cache(maxsize=1024)
def _plain_kernel(part: Program, mark: str, hardware: Hardware) -> AnyKernel:
    """The kernel of a plain phase, which engines and residences have in common."""
    return PlainCudaKernel(part, mark, hardware)


def _block_kernel(part: Program, mark: str, hardware: Hardware, patient: bool) -> AnyKernel:
    """The kernel on plain units, which several engines may fall back to."""
    found = _block_or_why(part, mark, hardware, patient)
    if isinstance(found, Refusal):
        raise found
    return found


@lru_cache(maxsize=1024)
def _block_or_why(
    part: Program, mark: str, hardware: Hardware, patient: bool
) -> AnyKernel | Refusal:
    """The kernel, or why there is none: that takes a search, and ways to cut share their parts."""
    try:
        return with_schedules(BlockKernel(part, mark, hardware), patient)
    except Refusal as refusal:
        return refusal.with_traceback(None)


def choices_of(program: Program, kernels: tuple[AnyKernel, ...]) -> tuple[str, ...]:
    """Ways to split a summed axis over blocks, for a program that is one product."""
    if len(kernels) != 1 or not isinstance(kernels[0], TensorKernel | MmaKernel):
        return (WHOLE,)
    if not kernels[0].splits:
        return (WHOLE,)
    own, roles = kernels[0].program.axes, kernels[0].roles
    if any(program.axes.get(axis) != extent for axis, extent in own.items()):
        return (WHOLE,)  # axes that are one in the kernel are several to split
    several = isinstance(kernels[0], MmaKernel) or bool(roles.computed or roles.folded)
    found = split_choices(program, roles, several)
    if len(found) == 1 or _split_alike(program, found[1], kernels[0]):
        return found
    merged = _merge(program, kernels, found[1].partition(":")[0]) is not None
    return found if merged else (WHOLE,)


@lru_cache(maxsize=512)
def _split_alike(program: Program, choice: str, kernel: AnyKernel) -> bool:
    """Whether the same kind of kernel computes the parts of a sum, of which it has the tiles, for
    another one to add them."""
    engine = next(name for name, kind in KINDS.items() if type(kernel) is kind)
    try:
        parts = kernels_of(split_program(program, choice), kernel.hardware, engine)
    except UsageError:
        return False
    own = {one.name: one.domain[0] for one in kernel.decisions()}
    tiles = {
        decision.name
        for one in parts if type(one) is type(kernel)
        for decision in one.decisions() if decision.name.startswith("tile.")
        if decision.name not in translated(own, choice, one.mark)
    }  # fmt: skip
    return not tiles and {type(one) for one in parts} <= {type(kernel), BlockKernel}


def decisions_of(
    program: Program, kernels: tuple[AnyKernel, ...], hardware: Hardware
) -> tuple[Decision, ...]:
    found = [decision for kernel in kernels for decision in kernel.decisions()]
    early = early_decision(program, hardware)
    found += [early] if early is not None else []
    choices = choices_of(program, kernels)
    if len(choices) > 1:
        axis = choices[1].partition(":")[0]
        found.append(
            Decision("split", choices, "split", axis, "parts of a sum, each added by other blocks",
                     WHOLE)
        )  # fmt: skip
        merge = _merge(program, kernels, axis)
        found += [merge] if merge is not None else []
    return tuple(found)


def _merge(program: Program, kernels: tuple[AnyKernel, ...], axis: str) -> Decision | None:
    (kernel,) = kernels
    if not isinstance(kernel, TensorKernel):
        return None
    return merge_decision(kernel.program, kernel.roles, axis)


def constraints_of(program: Program, kernels: tuple[AnyKernel, ...]) -> tuple[Constraint, ...]:
    found = [rule for kernel in kernels for rule in kernel.constraints()]
    choices = choices_of(program, kernels)
    if len(choices) > 1 and isinstance(kernels[0], TensorKernel):
        axis = choices[1].partition(":")[0]
        found.append(whole_parts(program, choices))
        if not _split_alike(program, choices[1], kernels[0]):
            found.append(merged_inside())
        if _merge(program, kernels, axis) is not None:
            found += [merged_once(), parts_in_a_wave(choices), exchange_fits(kernels[0])]
    return tuple(found)


def _legal_seeds(kernel: AnyKernel) -> tuple[dict[str, Value], ...]:
    """The seeds of a kernel on tensor cores that are legal in it alone; all of others."""
    seeds = seeds_alone(kernel)
    if not isinstance(kernel, TensorKernel):
        return seeds
    space = kernel.alone
    legal = space.legal(space.seed_matrix)
    return tuple(seed for seed, fine in zip(seeds, legal, strict=True) if fine) or seeds


def seeds_of(program: Program, kernels: tuple[AnyKernel, ...]) -> tuple[dict[str, Value], ...]:
    """Seeds of all kernels joined, shorter lists repeated; small tiles with split sums too. Of
    several kernels those are joined that are legal: few are at the same places of all lists."""
    several = len(kernels) > 1
    lists = [_legal_seeds(kernel) if several else seeds_alone(kernel) for kernel in kernels]
    longest = max(len(seeds) for seeds in lists)
    joined = []
    for number in range(longest):
        values: dict[str, Value] = {}
        for seeds in lists:
            values |= seeds[number % len(seeds)]
        joined.append(values)
    if program.flops <= SHORT * program.bytes:  # what starting early costs or saves shows
        late = {NAME: False} | {name: 0 for kernel in kernels for name in _asking(kernel)}
        joined += [{**values, **late} for values in joined]
    choices = choices_of(program, kernels)
    computed = isinstance(kernels[0], TensorKernel) and kernels[0].roles.computed
    splits = [
        {**values, "split": c}
        for c in choices[1:]
        for values in (
            joined[:6] if computed else filling(kernels[0], joined, int(c.partition(":")[2]))
        )
    ]
    splits = splits[:: max(1, len(splits) // 12)]
    if len(choices) > 1 and _merge(program, kernels, choices[1].partition(":")[0]) is not None:
        splits += [
            {**values, MERGE: way} for way in (LAST, ATOMICS, TURNSTILE) for values in splits
        ]
    few = []
    if len(kernels) == 1 and isinstance(kernels[0], TensorKernel) and kernels[0].splits:
        few = few_rows_seeds(kernels[0], choices)
        asking = dict.fromkeys(_asking(kernels[0]), 2)
        splits += [{**values, **asking} for values in joined[:4] if asking]
    return tuple(few + joined + splits)


def _asking(kernel: AnyKernel) -> list[str]:
    """Decisions that have to be off in a kernel that does not start early."""
    wanted = kernel.name(PREFETCH)
    return [decision.name for decision in kernel.decisions() if decision.name == wanted]


def scheduled_kernels(
    program: Program, values: Mapping[str, Value], hardware: Hardware, engine: str | None,
    residence: str = USUAL,
) -> tuple[tuple[AnyKernel, ...], Mapping[str, Value]]:  # fmt: skip
    """The kernels of a schedule, and the values that they read."""
    choice = str(values.get("split", WHOLE))
    if choice != WHOLE and merge_of(values) == KERNEL:
        return _split(program, choice, values, hardware, engine)
    return kernels_of(program, hardware, engine, residence), values


def _split(
    program: Program, choice: str, values: Mapping[str, Value], hardware: Hardware,
    engine: str | None,
) -> tuple[tuple[AnyKernel, ...], dict[str, Value]]:  # fmt: skip
    """Kernels of the split program, and the values that they read."""
    kernels = kernels_of(split_program(program, choice), hardware, engine)
    found: dict[str, Value] = {NAME: starts_early(values)}
    for kernel in kernels:
        if isinstance(kernel, TensorKernel | MmaKernel):
            found |= kernel.adapted(translated(values, choice, kernel.mark))
        else:
            found |= first_legal(kernel)
    return kernels, found


@lru_cache(maxsize=1024)
def _legal_seed(kernel: AnyKernel) -> tuple[tuple[str, Value], ...]:
    space = space_alone(kernel)
    rows = space.seed_rows(np.random.default_rng(0))
    if not len(rows):
        rows = space.sample(np.random.default_rng(0), 1)
    return tuple(space.schedule(rows[0]).as_dict().items())


def first_legal(kernel: AnyKernel) -> dict[str, Value]:
    """The first seed of a block kernel that is legal."""
    return dict(_legal_seed(kernel))
