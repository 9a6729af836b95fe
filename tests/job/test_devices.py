"""Which devices measure: words, refusals, and processors that several share."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from explorer import job
from explorer.devices import Devices, devices_of
from explorer.plan import JobPlan
from explorer.workload import Workload
from ir.errors import UsageError
from ir.targets.cuda.backend import CudaBackend
from ir.targets.cuda.rows.hardware import known_hardware

ONE = Workload.of("matmul", {"m": 8, "n": 8, "k": 8}, threads=1)


@pytest.fixture
def processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 4, 5, 7, 9}, raising=False)


def with_threads(threads: int) -> Workload:
    return replace(ONE, machine=replace(ONE.hardware, threads=threads))


def test_the_first_has_the_machine_for_itself() -> None:
    assert devices_of("0", ONE) == Devices()


def test_processors_are_divided_and_the_rest_compiles(processors: None) -> None:
    assert devices_of("0,1", with_threads(2)) == Devices((0, 1), ((2, 4), (5, 7)), (9,))
    assert devices_of("1", with_threads(2)) == Devices((1,), ((5, 7),), (2, 4, 9))
    assert devices_of("all", with_threads(2)) == Devices((0, 1), ((2, 4), (5, 7)), (9,))
    assert devices_of("all", with_threads(1)).spare == (9,)


def test_what_is_no_device_is_refused(processors: None) -> None:
    with pytest.raises(UsageError, match=r"no device 2: of 5 processors, 2 for each kernel, that"):
        devices_of("0,2", with_threads(2))
    for words in ("", "x", "0,", "-1", "1;2", "0,0"):
        with pytest.raises(UsageError, match="devices="):
            JobPlan("matmul", devices=words)
    with pytest.raises(UsageError, match="devices='one'"):
        job.tune("matmul", {"m": 8, "n": 8, "k": 8}, devices="one", trials=1)


def test_cards_are_of_one_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = Workload.of("matmul", {"m": 64, "n": 64, "k": 64}, "cuda")
    workload = replace(workload, machine=known_hardware("h200"))
    names = ["H200", "H200", "A100"]
    monkeypatch.setattr(CudaBackend, "device_names", lambda _: tuple(names))
    assert devices_of("0,1", workload) == Devices((0, 1))
    assert devices_of("1", workload) == Devices((1,))
    with pytest.raises(UsageError, match=r"several kinds \(A100, H200\)"):
        devices_of("all", workload)
    with pytest.raises(UsageError, match="no device 3: 3 visible to target cuda"):
        devices_of("3", workload)
