"""Fixtures of the records tests: a factory of plausible trials and a place for a store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from records import Record
from tests.records.postgres import Server, find_programs


def make_record(index: int = 0, **changes: Any) -> Record:
    """A good trial; different for every `index`, the same for the same one."""
    values: dict[str, Any] = {
        "workload": "a" * 64,
        "operator": "matmul",
        "extents": '{"k":512,"m":512,"n":512}',
        "target": "cpu",
        "hardware": "b" * 64,
        "hardware_facts": '{"isa":["avx2"],"threads":2}',
        "generator": "cpu-1",
        "threads": 2,
        "schedule": json.dumps({"target": "cpu", "values": {"tile.m.1": index}}),
        "kernel_key": f"kernel-{index}",
        "status": "ok",
        "seconds": 1e-3 + index * 1e-6,
        "quartiles": (1e-3, 1.5e-3 + index * 1e-6),
        "repeats": 5,
        "error": 1e-7,
        "compile_seconds": 0.02,
        "clock_ghz": 2.5,
        "created": "2026-01-02T03:04:05+00:00",
        "job": "job-1",
        "strategy": "evolutionary",
    }
    return Record(**(values | changes))


@pytest.fixture
def record() -> Callable[..., Record]:
    return make_record


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "records.db"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A running PostgreSQL server; skips where there is none, or no driver for it."""
    pytest.importorskip("psycopg", reason="no driver: pip install 'tilewright[postgres]'")
    programs = find_programs()
    if programs is None:
        pytest.skip("no PostgreSQL server on this machine: initdb, pg_ctl and postgres not found")
    server = Server(programs)
    yield server
    server.close()
