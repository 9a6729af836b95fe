"""What a right kernel must compute: sets of random inputs, and an interval for each output element.

Made once per job where the kernels run: on a device by the process that measures, on the host in a
process of its own, which leaves files that every later worker maps. Knows programs and arrays; no
kernel, schedule or device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from explorer.afforded import (
    HOST,
    SMALLEST,
    STEPPED,
    Means,
    afforded,
    elements_of,
    first_steps,
    output_axes,
    picks_of,
    sample_axes,
)
from explorer.check import LEANING, Bounds, host
from explorer.errors import Uncheckable
from explorer.runtime.memory import freed_memory_kept
from ir.dtypes import is_float
from ir.ops.base import TensorSpec
from ir.ops.fold import Fold
from ir.ops.reduce import Contract
from ir.program import Program
from ir.roundoff import FORMATS, Accumulations, ErrorModel

if TYPE_CHECKING:
    from ir.oracle import Answer

Array = NDArray[Any]
SETS = 2
_VAGUE = 0.5  # of an output's size: by how much
_PROBE = 1 / 64  # of the means, that shows whether there are to be trials
_LITTLE = 0.1  # of that size, up to which a trial tells how far it may be off
_ALONE = 0.5  # share of a line's elements that trials move little, below which it tells of none
_MANY = 0.1  # of its elements may be off where it is looked up by trial
_TRIED = 4  # points of an axis of which what goes step by step is tried with drawn roundings
_BLIND = 0.5  # share of an output of which nothing is known that is too much to call it checked


def in_room(make: Callable[[Means], Expected], means: Means, room: Callable[[], int]) -> Expected:
    """What `make` makes, again in smaller pieces while memory is too short for large ones.

    `room` tells how many bytes are left, and gives back what nobody uses. Raises MemoryError.
    """
    means = means.within(room())
    while True:
        try:
            made = make(means)
        except MemoryError:
            if means.piece <= SMALLEST:
                raise
        else:
            room()
            return made
        means = replace(means, piece=max(SMALLEST, means.piece // 4)).within(room())


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that an expectation follows from: the same on every machine.

    A kernel may also be off by what a right one of the equal programs `forms` may be.
    """

    program: Program
    seed: int
    accumulations: Accumulations = ()
    forms: tuple[Program, ...] = ()

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return self.program.outputs

    def expected(self, number: int, means: Means, xp: Any = np) -> Expected:
        """Operand set `number`, with all outputs if `means` allow it, else a sample of each.

        What goes step by step is evaluated on the host, of few points, where that ends sooner: a
        small step is over there before a device has begun with it. Raises Uncheckable where inputs
        say too little about the outputs.
        """
        from ir.inputs import drawn_inputs
        from ir.loops import one_by_one

        inputs = drawn_inputs(self.program, self.seed * SETS + number, xp)
        given = means.of_set(number)
        program = self._evaluated(given)
        folds = any(isinstance(n.op, Fold) and is_float(n.dtype) for n in program.nodes)
        probe: Probe | None = None
        if folds and not one_by_one(program):
            probe = self._probed(program, given, inputs, xp)
            given = probe.means
        means, picked = afforded(program, given, self.seed * SETS + number, self.forms)
        read, where, unknown = inputs, xp, frozenset[str]()
        if means is STEPPED:
            read, where = {name: host(array) for name, array in inputs.items()}, np
            begun, unknown = first_steps(program, means.again if number else 1.0)
            picked |= begun
        model = error_model(program, self.accumulations)
        known = probe.answers if probe is not None and probe.covers(means, picked) else None
        found, picked = _answers(program, read, model, picked, where, means, known=known)
        for form in self.forms:
            reaches = _reaches(program, form, inputs, model, picked, xp, given)
            found = {name: _wider(answer, reaches[name]) for name, answer in found.items()}
        picks, leaning = picks_of(program, picked, xp), leaning_of(program, self.accumulations)
        bounds = {
            spec.name: Bounds.around(
                _placed(found[spec.name], xp), spec.dtype, picks.get(spec.name), leaning
            )
            if spec.name not in unknown
            else Bounds.of_nothing(spec.dtype, len(spec.shape), xp)
            for spec in program.outputs
        }
        _refuse_blind(program, bounds)
        return Expected(inputs, bounds)

    def _probed(
        self, program: Program, means: Means, inputs: Mapping[str, Array], xp: Any
    ) -> Probe:
        """A few outputs, and the means of one evaluation; less where they show that there are to be
        as many runs as trials take, each over what is evaluated."""
        from ir.oracle import answers
        from ir.perturbed import RUNS

        few = replace(means, flops=_PROBE * means.flops, elements=_PROBE * means.elements)
        _, picked = afforded(program, few, self.seed, self.forms)
        model = error_model(program, self.accumulations)
        found = answers(program, inputs, model, picked, xp=xp, room=means.piece)
        runs = 1 + RUNS if any(map(_is_vague, found.values())) else 1
        each = replace(means, flops=means.flops / runs, elements=means.elements / runs)
        return Probe(each, picked, found)

    def _evaluated(self, means: Means) -> Program:
        """The program, or the same with stored axes apart from those that are summed, where all of
        it is too much and a sample of that is less."""
        from ir.rewrite.unsummed import unsummed

        if self.forms or elements_of(self.program, {}) <= means.elements:
            return self.program
        other = unsummed(self.program)
        counts = [
            elements_of(one, {axis: len(points) for axis, points in picked.items()})
            for one in (self.program, other)
            for picked in (sample_axes(one, np.random.default_rng(self.seed), means),)
        ]
        return other if counts[1] < counts[0] else self.program


@dataclass(frozen=True, slots=True)
class Probe:
    """The outputs at the points `picked`, and what may be spent on more."""

    means: Means
    picked: Mapping[str, Array]
    answers: dict[str, Answer]

    def covers(self, means: Means, picked: Mapping[str, Array]) -> bool:
        """Whether there is no more to be evaluated (of what no point stands alone in, say)."""
        alike = self.picked.keys() == picked.keys() and means.piece == self.means.piece
        return alike and all(np.array_equal(self.picked[axis], picked[axis]) for axis in picked)


def _answers(
    program: Program, inputs: Mapping[str, Array], model: ErrorModel,
    picked: dict[str, Array], xp: Any, means: Means, fewer: bool = True,
    known: dict[str, Answer] | None = None,
) -> tuple[dict[str, Answer], dict[str, Array]]:  # fmt: skip
    """What outputs are, and how far each may be off: by trial where the analysis says nothing. And
    the sample that this is of, which may be smaller (`fewer`) where steps are tried one by one.
    `known` are the outputs, if they are."""
    from ir.loops import one_by_one
    from ir.oracle import answers, sampled

    found = known or answers(program, inputs, model, picked, xp=xp, room=means.piece)
    if not any(map(_is_vague, found.values())):
        return found, picked
    if fewer and one_by_one(program):
        found, picked = _fewer(program, found, picked, means)
    exact = {name: answer.value for name, answer in found.items()}
    reaches = sampled(program, inputs, model, exact, picked, xp=xp, room=means.piece)
    return {name: _nearer(answer, reaches[name]) for name, answer in found.items()}, picked


def _fewer(
    program: Program, found: dict[str, Answer], picked: dict[str, Array], means: Means
) -> tuple[dict[str, Answer], dict[str, Array]]:
    """Answers at a few points of the longest axis that all outputs have, the last among them: at
    fewer, where all runs at so many are more than is there to spend."""
    from ir.perturbed import RUNS

    stores = {store.tensor: store.axes for _, store in program.stores()}
    shared = {*output_axes(program)}.intersection(*stores.values())
    points = {axis: picked.get(axis, np.arange(program.axes[axis])) for axis in sorted(shared)}
    axis = max(points, key=lambda name: len(points[name]), default="")
    if not axis:
        return found, picked
    lengths, tried = {name: len(array) for name, array in picked.items()}, _TRIED
    while tried > 1 and RUNS * elements_of(program, lengths | {axis: tried}) > means.elements:
        tried //= 2
    if len(points[axis]) <= tried:
        return found, picked
    places = np.linspace(len(points[axis]) - 1, 0, tried).astype(np.int64)[::-1]
    answers = {
        name: replace(
            answer, value=answer.value.take(places, stores[name].index(axis)),
            reach=answer.reach.take(places, stores[name].index(axis)),
        )
        for name, answer in found.items()
    }  # fmt: skip
    return answers, picked | {axis: points[axis][places]}


def _reaches(
    program: Program, form: Program, inputs: Mapping[str, Array], model: ErrorModel,
    picked: Mapping[str, Array], xp: Any, means: Means,
) -> dict[str, Array]:  # fmt: skip
    """How far outputs may be off at the points picked as a form computes them: along axes that it
    has in other words (in chunks), or sums over, it is evaluated whole."""
    own = {axis: points for axis, points in picked.items() if axis in output_axes(form)}
    answers, _ = _answers(form, inputs, model, own, xp, means, fewer=False)
    found = dict[str, Array]()
    for _, store in program.stores():
        lengths = [len(own[a]) if a in own else program.axes[a] for a in store.axes]
        reach = answers[store.tensor].reach.reshape(lengths)
        where = np if isinstance(reach, np.ndarray) else xp
        for place, axis in enumerate(store.axes):
            if axis in picked and axis not in own:
                reach = reach.take(where.asarray(picked[axis]), place)
        found[store.tensor] = reach
    return found


def _wider(answer: Answer, reach: Array) -> Answer:
    """The exact values as they are, and as far around them as either form may be off."""
    mine, reach = answer.reach, reach.reshape(answer.reach.shape)
    if type(mine) is not type(reach):  # one of them was found on the host
        mine, reach = host(mine), host(reach)
    return replace(answer, reach=np.maximum(mine, reach))


def _nearer(answer: Answer, reach: Array) -> Answer:
    """The exact values, as far around them as either way says that they may be off: by trial only
    where that is little, for what is off by much may be anything in the next trial. So may what is
    off by little in the midst of that: another choice (of two that are as good) moves all elements
    of a line, and a few of them not far."""
    little = reach <= _LITTLE * _size_of(answer)
    for axis in range(little.ndim):
        little = little & (little.mean(axis=axis, keepdims=True) >= _ALONE)
    nearer = little & (reach < answer.reach)
    return replace(answer, reach=np.where(nearer, reach, answer.reach))


def _size_of(answer: Answer) -> Any:
    """The root of the mean square of an output's finite elements."""
    size = np.where(np.isfinite(answer.value), answer.value, 0.0)
    return np.sqrt(np.square(size).mean())


def _placed(answer: Answer, xp: Any) -> Answer:
    """The answer as arrays of `xp`."""
    return replace(answer, value=xp.asarray(answer.value), reach=xp.asarray(answer.reach))


@dataclass(frozen=True, slots=True)
class Expected:
    """One set of operands: inputs in storage dtype, and what each output may be."""

    inputs: Mapping[str, Array]
    bounds: Mapping[str, Bounds]


def error_model(program: Program, accumulations: Accumulations = ()) -> ErrorModel:
    """The roundoffs by which right kernels of `program` may differ from the oracle."""
    units = [FORMATS[spec.dtype].unit for spec in program.outputs if is_float(spec.dtype)]
    wide = [unit <= FORMATS["f32"].unit for unit in units]
    return ErrorModel(
        accumulations, min(units) if units and not any(wide) else 0.0, any(wide) and not all(wide)
    )


def leaning_of(program: Program, accumulations: Accumulations) -> float:
    """By which part right outputs may be too small in the mean: sums that truncate lean."""
    model, lean = ErrorModel(accumulations), LEANING
    for node in program.nodes:
        if isinstance(node.op, Contract) and is_float(node.op.acc):
            types = [program.nodes[arg].dtype for arg in node.args]
            terms = prod(program.axes[axis] for axis in node.op.over)
            lean += model.accumulation(types[0], types[1], node.op.acc).bias(terms)
    return lean


def _is_vague(answer: Answer) -> bool:
    """Whether many elements may be off by as much as the output's own size."""
    if answer.value.dtype.kind != "f" or not answer.value.size:
        return False
    return bool((answer.reach > _VAGUE * _size_of(answer)).mean() > _MANY)


def _refuse_blind(program: Program, bounds: Mapping[str, Bounds]) -> None:
    for name, bound in bounds.items():
        share = bound.unbounded / max(1, bound.low.size)
        if share > _BLIND:
            raise Uncheckable(
                f"{program.name}: {share:.0%} of {name} may be anything on random inputs: numbers "
                "on the way leave the range of their type, or cancel to nothing; say what the "
                "inputs are, as in g.input(..., values=uniform(0, 0.1))"
            )


# --- on the host: files -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Expectation:
    """Where the files of a recipe's sets are."""

    folder: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    scales: tuple[tuple[str, tuple[float, ...]], ...]
    leaning: float
    sampled: tuple[tuple[int, str], ...]  # sets and outputs of which a sample is known

    def input(self, number: int, name: str) -> Array:
        """One input of set `number`, mapped from its file."""
        loaded: Array = np.load(_file(self.folder, number, name), mmap_mode="r")
        return loaded

    def bounds(self, number: int, spec: TensorSpec) -> Bounds:
        """What output `spec` may be for set `number`."""
        low, high = (np.load(_file(self.folder, number, spec.name, end)) for end in ("low", "high"))
        picks = None
        if (number, spec.name) in self.sampled:
            places = range(len(spec.shape))
            picks = tuple(
                np.load(_file(self.folder, number, spec.name, f"pick{dim}")) for dim in places
            )
        scale = dict(self.scales)[spec.name][number]
        return Bounds(spec.dtype, low, high, scale, picks, self.leaning)

    def expected(self, number: int) -> Expected:
        """Set `number`, from its files."""
        return Expected(
            {spec.name: self.input(number, spec.name) for spec in self.inputs},
            {spec.name: self.bounds(number, spec) for spec in self.outputs},
        )


class ExpectationMaker:
    """The worker's object: `make` writes the files."""

    def __init__(self, recipe: Recipe, folder: str) -> None:
        self._recipe = recipe
        self._folder = folder

    def make(self) -> Expectation:
        """Draw inputs, ask the oracle, save both."""
        with freed_memory_kept():
            return self._made()

    def _made(self) -> Expectation:
        program, scales = self._recipe.program, dict[str, tuple[float, ...]]()
        sampled: set[tuple[int, str]] = set()
        for number in range(SETS):
            found = self._recipe.expected(number, HOST)
            for name, array in found.inputs.items():
                _write(_file(self._folder, number, name), array)
            for name, bounds in found.bounds.items():
                self._save(number, name, bounds)
                scales[name] = (*scales.get(name, ()), bounds.scale)
                sampled |= {(number, name)} if bounds.picks is not None else set()
        return Expectation(
            self._folder, program.inputs, program.outputs, tuple(scales.items()),
            leaning_of(program, self._recipe.accumulations), tuple(sorted(sampled)),
        )  # fmt: skip

    def _save(self, number: int, name: str, bounds: Bounds) -> None:
        _write(_file(self._folder, number, name, "low"), bounds.low)
        _write(_file(self._folder, number, name, "high"), bounds.high)
        for dim, pick in enumerate(bounds.picks or ()):
            _write(_file(self._folder, number, name, f"pick{dim}"), pick)


def _write(file: Path, array: Array) -> None:
    """Raises OSError that says what to do, where a disk is full or files have a limit."""
    try:
        np.save(file, array)
    except OSError as error:
        raise OSError(
            f"{file.parent}: no room for {array.nbytes:,} bytes of operands ({error}): free some "
            "there, or raise the limit on files (ulimit -f)"
        ) from error


def _file(folder: str, number: int, name: str, part: str = "value") -> Path:
    return Path(folder) / f"{number}.{name}.{part}.npy"


# --- samples ------------------------------------------------------------------------------------
