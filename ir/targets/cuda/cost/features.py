"""What a learned model sees of a schedule on a GPU: numbers that mean the same for every program.

The two heaviest kernels of a program have a slot each; a slot has columns for either kind.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property, lru_cache
from math import log2

import numpy as np
from numpy.typing import NDArray

from ir.dtypes import dtype_of
from ir.program import Program
from ir.space import Columns, Constraint
from ir.target import Hardware
from ir.targets.cuda.build.kernels import AnyKernel
from ir.targets.cuda.cost.block_costs import BlockCosts
from ir.targets.cuda.cost.costs import Table, TensorCosts, least_clocks
from ir.targets.cuda.cost.known import Answers, ByRow
from ir.targets.cuda.cost.mma_costs import MmaCosts
from ir.targets.cuda.cost.plain_costs import PlainCosts
from ir.targets.cuda.grid.overlap import NAME
from ir.targets.cuda.space.mma import MmaKernel
from ir.targets.cuda.space.plain import PlainCudaKernel
from ir.targets.cuda.space.probing import alike
from ir.targets.cuda.space.tensor import TensorKernel

SLOTS = 2
TIMES = ("clocks", "traffic")
TENSOR_NAMES = (
    "rows", "columns", "walk", "tiles", "steps", "own", "swap", "consumers", "stages", "wait",
    "epilogue_slots", "partition.rows", "partition.columns", "partition.whole", "epilogue.tma",
    "persistent", "registers", "raster", "parts", "shared", "resident", "accumulators",
    "cluster.down", "cluster.across", "waves", "balance", "bound", "memory", "store",
    "promotion", "streams.rows", "streams.columns", "merges.last", "warps", "fragments", "unit",
    "merges.atomics", "merges.turnstile", "merging", "raster.across", "extra.held",
    "extra.streamed", "warps.depth", "epilogue.staged", "blocks", "late", "drawn",
    "weights",
)  # fmt: skip
BLOCK_NAMES = (
    "threads", "blocks", "trips", "held", "resident", "waves", "balance", "vector", "busy",
    "moved", "work", "lane.tile", "lane.own", "reduced.tile", "reduced.own", "walkers", "ahead",
    "parts", "prefetch", "keep", "loads.first", "stores.stream", "waits.registers",
    "spread", "beside", "share", "multiplies",
)  # fmt: skip


class KernelCosts:
    """Costs of one kernel. `times` are those estimates of its table that all kernels count with,
    "clocks" and "traffic"; `legal` says which rows the kernel by itself allows."""

    def __init__(self, kernel: AnyKernel) -> None:
        self._kernel = kernel
        names = [decision.name for decision in kernel.decisions()]
        times, legal = _answers(alike(kernel))
        self._times = ByRow(self._asked, names, times)
        self._legal = ByRow(self._allowed, names, legal)

    @cached_property
    def _costs(self) -> TensorCosts | MmaCosts | BlockCosts | PlainCosts:
        kernel = self._kernel
        if isinstance(kernel, TensorKernel):
            return TensorCosts(kernel)
        if isinstance(kernel, MmaKernel):
            return MmaCosts(kernel)
        if isinstance(kernel, PlainCudaKernel):
            return PlainCosts(kernel)
        return BlockCosts(kernel, kernel.hardware)

    def table(self, columns: Columns) -> Table:
        return self._costs.table(columns)

    def times(self, columns: Columns) -> Table:
        return dict(zip(TIMES, self._times(columns).T, strict=True))

    def legal(self, columns: Columns) -> NDArray[np.bool_]:
        return np.asarray(self._legal(columns)[:, 0], dtype=np.bool_)

    def _asked(self, columns: Columns) -> NDArray[np.float64]:
        table = self._costs.table(columns)
        return np.stack([table[name] for name in TIMES], axis=1).astype(np.float64)

    def _allowed(self, columns: Columns) -> NDArray[np.bool_]:
        passed = np.ones(columns.rows, dtype=bool)
        for rule in self._rules:
            passed &= np.asarray(rule.check(columns), dtype=bool)
        return passed[:, None]

    @cached_property
    def _rules(self) -> tuple[Constraint, ...]:
        return tuple(self._kernel.constraints())


@lru_cache(maxsize=256)
def _answers(kernel: Hashable) -> tuple[Answers, Answers]:
    """What is known of kernels that are alike: their times, and whether they are legal."""
    return {}, {}


@lru_cache(maxsize=512)
def costs_of(kernel: AnyKernel) -> KernelCosts:
    """Those of a kernel that engines and residences have in common are the same."""
    return KernelCosts(kernel)


class Features:
    """Callable: columns -> (names, float32 matrix). The names are the same for every program."""

    def __init__(
        self,
        program: Program,
        kernels: tuple[AnyKernel, ...],
        hardware: Hardware,
        least: float | None = None,
    ) -> None:
        self.program, self.hardware, self.least = program, hardware, least
        self.kernels = tuple(sorted(kernels, key=lambda kernel: -_weight(kernel.program)))

    @property
    def of_routes(self) -> tuple[Features, ...]:
        """The features of each engine that is a choice: of the one that there is."""
        return (self,)

    @cached_property
    def costs(self) -> tuple[KernelCosts, ...]:
        return tuple(map(costs_of, self.kernels))

    @cached_property
    def ideal(self) -> float:
        """Clocks that the program takes at least, or those to which costs are relative."""
        if self.least is not None:
            return self.least
        return least_clocks(self.program, self.hardware)

    def __call__(self, columns: Columns) -> tuple[tuple[str, ...], NDArray[np.float32]]:
        kernels = [
            costs.table(columns) if number < SLOTS else costs.times(columns)
            for number, costs in enumerate(self.costs)
        ]
        table = self._workload(columns.rows) | self._estimates(kernels, columns.rows)
        table["early"] = _early(columns)
        for number in range(SLOTS):
            here = kernels[number] if number < len(kernels) else {}
            tensor = number < len(kernels) and _on_tensor_cores(self.kernels[number])
            for kind, names in (("tensor", TENSOR_NAMES), ("block", BLOCK_NAMES)):
                given = here if tensor == (kind == "tensor") else {}
                for name in names:
                    values = given.get(name, np.full(columns.rows, np.nan))
                    table[f"kernel{number}.{kind}.{name}"] = values
        matrix = np.empty((columns.rows, len(table)), dtype=np.float32)
        for number, column in enumerate(table.values()):
            matrix[:, number] = column
        return tuple(table), matrix

    def estimate(self, columns: Columns) -> NDArray[np.float32]:
        """The feature "total.estimate" alone."""
        kernels = [costs.times(columns) for costs in self.costs]
        return self._estimates(kernels, columns.rows)["total.estimate"].astype(np.float32)

    def _workload(self, rows: int) -> Table:
        """Facts of the program and the card: the same for every schedule."""
        program, hardware = self.program, self.hardware
        clock = hardware["clock_khz"] * 1e3
        values: dict[str, float] = {
            "seconds.ideal": log2(self.ideal / clock),
            "program.flops": log2(max(1, program.flops)),
            "program.bytes": log2(program.bytes),
            "program.intensity": log2(max(1, program.flops) / program.bytes),
            "program.kernels": len(self.kernels),
            "program.products": sum(map(_on_tensor_cores, self.kernels)),
            "program.narrowest": min(dtype_of(spec.dtype).bytes for spec in program.tensors),
            "machine.sms": hardware["sms"],
            "machine.l2": log2(hardware["l2_bytes"]),
        }
        return {name: np.full(rows, float(value)) for name, value in values.items()}

    def _estimates(self, kernels: list[Table], rows: int) -> Table:
        """Times of all kernels together, relative to the least possible."""
        zero = np.zeros(rows)
        clock = self.hardware["clock_khz"] * 1e3
        clocks = sum((table["clocks"] for table in kernels), zero)
        traffic = sum((table["traffic"] for table in kernels), zero)
        return {
            "total.estimate": np.log2(clocks / self.ideal),
            "seconds.traffic": np.log2(np.maximum(traffic, 1.0) / clock),
            "total.heaviest": kernels[0]["clocks"] / clocks,
        }


class EngineFeatures:
    """Features of a program that several engines may compute: each row's are its own engine's.

    `engines`: name of the engine, prefix of its decisions, and its kernels; of one alone there is
    no `choice`.
    """

    def __init__(
        self,
        program: Program,
        engines: Sequence[tuple[str, str, tuple[AnyKernel, ...]]],
        hardware: Hardware,
        choice: str,
        least: float | None = None,
    ) -> None:
        self.choice = choice
        self.engines = tuple(
            (name, prefix, Features(program, kernels, hardware, least))
            for name, prefix, kernels in engines
        )

    @property
    def of_routes(self) -> tuple[Features, ...]:
        """The features of each engine that is a choice."""
        return tuple(features for _, _, features in self.engines)

    def __call__(self, columns: Columns) -> tuple[tuple[str, ...], NDArray[np.float32]]:
        names: tuple[str, ...] = ()
        found = []
        for here, features, own in self._parts(columns):
            if own.rows or not names:
                names, values = features(own)
                found.append((here, values))
        matrix = np.empty((columns.rows, len(names)), dtype=np.float32)
        for here, values in found:
            matrix[here] = values
        return names, matrix

    def estimate(self, columns: Columns) -> NDArray[np.float32]:
        """The feature "total.estimate" alone."""
        found = np.empty(columns.rows, dtype=np.float32)
        for here, features, own in self._parts(columns):
            if own.rows:
                found[here] = features.estimate(own)
        return found

    def _parts(self, columns: Columns) -> Iterator[tuple[NDArray[np.bool_], Features, Columns]]:
        """The rows of each engine, and its own decisions there."""
        for name, prefix, features in self.engines:
            alone = len(self.engines) == 1
            here = np.ones(columns.rows, bool) if alone else columns.is_(self.choice, name)
            part = columns.where(here)
            yield here, features, part.part(prefix) if prefix else part


def _early(columns: Columns) -> NDArray[np.float64]:
    """Whether kernels start while those before them run; nowhere on cards without that."""
    if NAME not in columns:
        return np.zeros(columns.rows)
    return np.asarray(columns[NAME], dtype=np.float64)


def _on_tensor_cores(kernel: AnyKernel) -> bool:
    return isinstance(kernel, (TensorKernel, MmaKernel))


def _weight(program: Program) -> float:
    """By which kernels are ranked: arithmetic, or bytes where there is little."""
    return program.flops + 100.0 * program.bytes
