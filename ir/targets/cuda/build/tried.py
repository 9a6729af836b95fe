"""The kinds of kernels, what each offers by itself, and whether it has a schedule at all."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ir.errors import Refusal, UsageError
from ir.schedule import Value
from ir.space import Space
from ir.targets.cuda.space.block import BlockKernel
from ir.targets.cuda.space.mma import MmaKernel
from ir.targets.cuda.space.plain import PlainCudaKernel
from ir.targets.cuda.space.probing import once, seeds_once
from ir.targets.cuda.space.tensor import TensorKernel

AnyKernel = BlockKernel | TensorKernel | MmaKernel | PlainCudaKernel


def with_schedules(kernel: AnyKernel, patient: bool = True) -> AnyKernel:
    """The kernel, if some schedule of it is legal; Refusal otherwise."""
    (_has_schedules if patient else _has_near_schedules)(kernel)
    return kernel


@once
def _has_schedules(kernel: AnyKernel) -> None:
    _look_for_one(kernel, True)


@once
def _has_near_schedules(kernel: AnyKernel) -> None:
    _look_for_one(kernel, False)


def _look_for_one(kernel: AnyKernel, patient: bool) -> None:
    try:
        space_alone(kernel).any_legal(np.random.default_rng(0), patient)
    except UsageError as error:
        raise Refusal("schedule", str(error)) from None


def space_alone(kernel: AnyKernel) -> Space:
    """The space of one kernel alone."""
    if isinstance(kernel, TensorKernel):
        return kernel.alone
    rules, seeds = tuple(kernel.constraints()), seeds_alone(kernel)
    return Space("cuda", tuple(kernel.decisions()), rules, seeds)


@lru_cache(maxsize=1024)
def seeds_alone(kernel: AnyKernel) -> tuple[dict[str, Value], ...]:
    if isinstance(kernel, TensorKernel):
        return kernel.alone.seeds
    return seeds_once(kernel, kernel.decisions())
