"""Register tiles along an axis under many schedules, counted block by block as they are emitted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ir.stages import Stage
from ir.targets.cpu.regions import Array, Regions


@dataclass(frozen=True)
class Tiles:
    """Register tiles along one axis: whole ones, shorter ones, the mean length of these (rows or
    elements), and the share of the tiles' room that is used."""

    full: Array
    tails: Array
    tail: Array
    filled: Array


def tiles_along(regions: Regions, stage: Stage, role: str, step: Array, unit: Array) -> Tiles:
    """Register tiles along the axis of a role ("lane", "row"); one where there is none.

    Tails are told in `unit`s for one element.
    """
    rows = regions.columns.rows
    full, tails, points = np.ones(rows), np.zeros(rows), step
    for axis in stage.parallel:
        here = regions.flag(f"{role}.{stage.name}", axis) > 0
        if not here.any():
            continue
        whole, some = cut(regions, axis, step)
        full, tails = np.where(here, whole, full), np.where(here, some, tails)
        points = np.where(here, regions.span(axis), points)
    tail = (points - full * step) / np.maximum(tails, 1.0)
    filled = points / np.maximum((full + tails) * step, 1.0)
    return Tiles(full, tails, np.maximum(tail, 0.0) * unit, filled)


def cut(regions: Regions, axis: str, step: Array) -> tuple[Array, Array]:
    """Whole steps and shorter ones over all blocks of an axis."""
    span, outer, inner = regions.span(axis), regions.outer[axis], regions.inner[axis]
    full, tails = np.zeros(regions.columns.rows), np.zeros(regions.columns.rows)
    large = np.floor(span / outer)
    for length, times in ((outer, large), (span - large * outer, 1.0)):
        small = np.floor(length / inner)
        for block, each in ((inner, small), (length - small * inner, 1.0)):
            full = full + times * each * np.floor(block / step)
            tails = tails + times * each * (block % step > 0)
    return full, tails
