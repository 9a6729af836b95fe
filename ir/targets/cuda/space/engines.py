"""The space of a whole program: its engines side by side, of which a schedule chooses one, in each
of its residences.

An engine is what computes the products of matrices: "wgmma" (Hopper's tensor cores, fed by TMA),
"mma" (tensor cores by mma.sync, fed by cp.async) or "fma" (the ordinary units). Each cuts the
program in its own way, so each brings decisions of its own. They are in force with their engine
alone. Names of an engine beside the first begin with its name; mma's always do, so that they mean
the same on every card.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from ir.alternatives import RESIDENCE, Alternatives, chosen
from ir.columns import Columns, Decision
from ir.dtypes import dtype_of
from ir.errors import UsageError
from ir.ops.base import Op
from ir.ops.load import Load
from ir.ops.store import Store
from ir.program import Program
from ir.rewrite.work import Rates
from ir.schedule import Schedule, Value
from ir.space import Constraint, Space
from ir.target import Hardware
from ir.targets.cuda.build.cut import MMA
from ir.targets.cuda.build.kernels import (
    AnyKernel,
    constraints_of,
    decisions_of,
    engines_of,
    is_light,
    kernels_of,
    seeds_of,
)
from ir.targets.cuda.cost.assembled import assembled
from ir.targets.cuda.cost.features import EngineFeatures, Features
from ir.targets.cuda.rows.hardware import stated_peaks
from ir.targets.cuda.space.residences import JOINED, PARTS, ROWS, USUAL, WIDE, pieces_of, residences

ENGINE = "engine"
NEAR = 0.5  # powers of two from the least time up to which nothing else can be much better
FAR = 0.5  # powers of two behind the best estimate up to which a residence is offered
LEAN, LEANER = 1.0, 4  # up to which one is that leaves a share of what the best leaves in memory
MOST = 5  # residences beside the usual one that are offered
GAIN = 0.1  # powers of two that joined axes have to be worth
ROOM = 8  # the part of a card's memory that values between kernels may take
PLAIN = 256  # operations a clock that a processor's plain units do at least, where none are stated
REACHED = 0.25  # share of the plain units' rate that products of matrices come to, as estimated
INTENSITY = 20.0  # plain operations for each byte from memory, where its rate is not known
FIRST = 0  # the code of the value that idle decisions keep


@dataclass(frozen=True)
class Route:
    """One engine's kernels, and how its decisions are named in the program's space."""

    program: Program
    hardware: Hardware
    engine: str
    kernels: tuple[AnyKernel, ...]
    prefix: str
    alone: bool
    residence: str = USUAL

    def decisions(self) -> list[Decision]:
        when = None if self.alone else (ENGINE, self.engine)
        return [
            replace(decision, name=self.prefix + decision.name, when=when)
            for decision in decisions_of(self.program, self.kernels, self.hardware)
        ]

    def constraints(self) -> list[Constraint]:
        return [self._within(rule) for rule in constraints_of(self.program, self.kernels)]

    def _within(self, rule: Constraint) -> Constraint:
        """The constraint on the route's own names, in force where its engine is chosen."""

        def check(columns: Columns) -> Any:
            return rule.check(columns.part(self.prefix))

        def explain(values: Mapping[str, Value]) -> str:
            return rule.explain(self.own(values))

        when = None if self.alone else (ENGINE, self.engine)
        return Constraint(self.prefix + rule.name, rule.needs, check, explain, when=when)

    def seeds(self, features: Features) -> list[dict[str, Value]]:
        chosen: dict[str, Value] = {} if self.alone else {ENGINE: self.engine}
        return [
            {**chosen, **{self.prefix + name: value for name, value in seed.items()}}
            for seed in self._own_seeds(features)
        ]

    def _own_seeds(self, features: Features) -> list[dict[str, Value]]:
        found = [*seeds_of(self.program, self.kernels)]
        decisions = decisions_of(self.program, self.kernels, self.hardware)
        return assembled(found, decisions, features) + found

    def own(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """The values of the engine's decisions, by its own names for them."""
        return {
            name[len(self.prefix) :]: value
            for name, value in values.items()
            if name.startswith(self.prefix)
        }


@lru_cache(maxsize=256)
def routes_of(program: Program, hardware: Hardware, residence: str = USUAL) -> tuple[Route, ...]:
    """A route for each engine that can compute the program."""
    engines = engines_of(program, hardware, residence)
    found = []
    for engine in engines:
        prefix = f"{engine}." if engine == MMA or engine != engines[0] else ""
        kernels = kernels_of(program, hardware, engine, residence)
        alone = len(engines) == 1
        found.append(Route(program, hardware, engine, kernels, prefix, alone, residence))
    return tuple(found)


def route_of(
    program: Program, schedule: Schedule, hardware: Hardware
) -> tuple[Route, dict[str, Value]]:
    """The route that a schedule takes, and the values of its decisions by its own names.

    Raises UsageError for a residence that the program does not have.
    """
    residence, own = chosen(schedule, RESIDENCE, residences(program, int(hardware["sms"])))
    values, routes = own.as_dict(), routes_of(program, hardware, residence)
    route = next((r for r in routes if r.engine == values.get(ENGINE)), routes[0])
    return route, route.own(values)


def rates_of(hardware: Hardware) -> Rates:
    """What the card does in a second, as its data sheet says; of what plain units are able to do,
    products reach a share."""
    peaks = stated_peaks(hardware)
    known = {name.partition(".")[2]: rate for name, rate in peaks.items() if name in _rated(peaks)}
    plain = known.get("f32", hardware["sms"] * PLAIN * hardware["clock_khz"] * 1e3)
    known |= {name: REACHED * rate for name, rate in known.items() if name in ("f32", "f64")}
    room = int(hardware["memory_bytes"]) / ROOM
    return Rates(known, plain / 2, peaks.get("peak_bytes", plain / INTENSITY), room)


def _rated(peaks: Mapping[str, float]) -> set[str]:
    return {name for name in peaks if name.startswith("peak_flops.")}


@lru_cache(maxsize=64)
def space_of(
    program: Program, hardware: Hardware, least: float | None = None, residing: bool = True
) -> Space:
    """Every decision of a program, with constraints and seeds; costs are relative to `least`.

    If `residing`, where the usual residence is far from that, others that have room for their
    tensors are tried until one is near it, and parts wherever blocks are too few for the card: an
    estimate knows bandwidth, not what a single processor has of it. A few are
    offered whose estimates are not far behind the best; a little farther if they leave much less in
    memory.
    """
    found = {USUAL: residence_space(program, hardware, least, USUAL)}
    estimates = {USUAL: _estimate(found[USUAL])}
    known = {_meaning(program, hardware, USUAL)}
    for residence in residences(program, int(hardware["sms"]))[1:] if residing else ():
        whole = [estimates[one] for one in found if PARTS not in one]
        if min(whole) <= NEAR and PARTS not in residence:
            continue
        if _between(program, residence) > int(hardware["memory_bytes"]) // ROOM:
            continue
        with contextlib.suppress(UsageError):
            meaning = _meaning(program, hardware, residence)
            if meaning in known:  # others are cut into the same kernels
                continue
            known.add(meaning)
            space = residence_space(program, hardware, least, residence)
            estimate = _estimate(space)
            if residence not in (JOINED, WIDE) or estimate < estimates[USUAL] - GAIN:
                found[residence], estimates[residence] = space, estimate
    best = min(estimates, key=lambda residence: estimates[residence])
    least, left = estimates[best], _between(program, best)
    near = [
        residence
        for residence in sorted(found, key=lambda residence: estimates[residence])
        if estimates[residence] <= least + FAR
        or (estimates[residence] <= least + LEAN and LEANER * _between(program, residence) < left)
    ]
    offered = {one: space for one, space in found.items() if one in (USUAL, *near[:MOST])}
    owner = next(iter(program.axes), program.name)
    return Alternatives(RESIDENCE, offered, owner, ROWS if best == ROWS else None).space()


def _meaning(program: Program, hardware: Hardware, residence: str) -> tuple[object, ...]:
    """What the kernels of a residence are, by whatever names their tensors between them have."""
    names = {spec.name: spec.name for spec in program.tensors}

    def named(op: Op) -> Op:
        return replace(op, tensor=names[op.tensor]) if isinstance(op, Load | Store) else op

    found: list[object] = []
    for route in routes_of(program, hardware, residence):
        found.append(route.engine)
        for kernel in route.kernels:
            own = kernel.program
            for spec in own.tensors:
                names.setdefault(spec.name, str(len(names)))
            tensors = tuple(replace(spec, name=names[spec.name]) for spec in own.tensors)
            nodes = tuple((named(node.op), node.args, node.type) for node in own.nodes)
            formed = getattr(kernel, "formed", ())  # what it makes besides
            found += [type(kernel), own.extents, tensors, nodes, formed]
    return tuple(found)


def _between(program: Program, residence: str) -> int:
    """Bytes of what kernels leave for each other in a residence."""
    own = {spec.name for spec in program.tensors}
    specs = (s for piece in pieces_of(program, residence) for s in piece.program.outputs)
    return sum(prod(s.shape) * dtype_of(s.dtype).bytes for s in specs if s.name not in own)


def _estimate(space: Space) -> float:
    """Of the seed that looks fastest: how often the time halves from there to the least.

    Seeds that are legal as they are will do; others would have to be mended first.
    """
    rows = space.seed_matrix
    rows = rows[space.legal(rows)] if len(rows) else rows
    if not len(rows):
        rows = space.seed_rows(np.random.default_rng(0))
    if space.estimate is None or not len(rows):
        return 0.0
    return float(space.estimate(space.columns(rows)).min())


def residence_space(
    program: Program, hardware: Hardware, least: float | None, residence: str
) -> Space:
    """The space of all engines in one residence."""
    routes = routes_of(program, hardware, residence)
    decisions = [decision for route in routes for decision in route.decisions()]
    rules = [rule for route in routes for rule in route.constraints()]
    if len(routes) > 1:
        engines = tuple(route.engine for route in routes)
        owner = next(iter(program.axes))
        why = "what computes the products"
        choice = Decision(ENGINE, engines, "tensorize", owner, why, engines[0])
        decisions.insert(0, choice)
        rules.append(_idle(decisions))
    features = _features(program, hardware, routes, least)
    lists = [route.seeds(own) for route, own in zip(routes, features.of_routes, strict=True)]
    seeds = _alternating(lists) if is_light(program) else [seed for one in lists for seed in one]
    estimate = features.estimate
    return Space("cuda", tuple(decisions), tuple(rules), tuple(seeds), features, estimate=estimate)


def _features(
    program: Program, hardware: Hardware, routes: tuple[Route, ...], least: float | None
) -> Features | EngineFeatures:
    if len(routes) == 1 and not routes[0].prefix:
        return Features(program, routes[0].kernels, hardware, least)
    engines = [(route.engine, route.prefix, route.kernels) for route in routes]
    return EngineFeatures(program, engines, hardware, ENGINE, least)


def _idle(decisions: list[Decision]) -> Constraint:
    """What samplers keep to by themselves, for schedules that are written by hand."""
    conditional = [d for d in decisions if d.when is not None]
    own: dict[tuple[str, Value], list[str]] = {}
    for decision in conditional:
        if decision.when is not None:
            own.setdefault(decision.when, []).append(decision.name)

    def check(columns: Columns) -> Any:
        passed: Any = np.ones(columns.rows, dtype=bool)
        for when, names in own.items():
            idle = np.all([columns.codes(name) == FIRST for name in names], axis=0)
            passed &= columns.is_(*when) | idle
        return passed

    def explain(values: Mapping[str, Value]) -> str:
        for d in conditional:
            if d.when and values[ENGINE] != d.when[1] and values[d.name] != d.domain[FIRST]:
                return (
                    f"{d.name}={values[d.name]} with {ENGINE}={values[ENGINE]}; "
                    f"it keeps {d.domain[FIRST]} there"
                )
        return f"{ENGINE}={values[ENGINE]}, 0 decisions of others"

    needs = "decisions of other engines keep their first value"
    return Constraint(ENGINE, needs, check, explain, reads=(ENGINE,))


def _alternating(lists: list[list[dict[str, Value]]]) -> list[dict[str, Value]]:
    """The lists' items in turn: the first of each, the second of each, ..."""
    longest = max(len(one) for one in lists)
    return [one[number] for number in range(longest) for one in lists if number < len(one)]
