"""A target, an instruction and a pass that nothing else knows: all they need is in this file.

The card has an engine that copies, called `dma`, and a matrix unit, called `mac`, that runs beside
threads. Kernels of matrix products are built, changed by the passes that every target has and by
one of its own, and printed in a language of its own, which the test runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest

from ir.columns import Decision
from ir.inputs import random_inputs
from ir.kernel import Argument, Kernel
from ir.kernel.body import Body, Operation, Part
from ir.kernel.meaning import run
from ir.kernel.passes import Pass, Pieces, Place, Roles, Synchronise, after_each
from ir.kernel.rules import verify
from ir.kernel.strip import Strip
from ir.kernel.tile_kernel import (
    BLOCK,
    NESTED,
    NEVER,
    SYNCS,
    Do,
    KernelError,
    Loop,
    Ring,
    Statement,
    Sync,
    Tile,
    TileKernel,
    When,
    rewritten,
    walk,
)
from ir.kernel.tiling import Tiling
from ir.oracle import evaluate
from ir.program import Program
from ir.registry import load_operator
from ir.schedule import Schedule
from ir.space import Space
from ir.target import Backend, Hardware

ONCE = When(NEVER)


@dataclass(frozen=True)
class Traced:
    """A pass of its own: what is done is told, ahead of it."""

    word: str

    def __call__(self, kernel: TileKernel) -> TileKernel:
        told = Operation("tell", "threads", (), ())

        def change(one: Statement) -> tuple[Statement, ...]:
            named = isinstance(one, Do) and one.operation == self.word
            return (Do("tell", later=ONCE), one) if named else (one,)

        body = rewritten(kernel.body, change)
        return replace(kernel, operations=(*kernel.operations, told), body=body)


class AbacusBackend:
    """A card of 1 matrix unit."""

    name, generator = "abacus", "abacus-1"

    def hardware(self, threads: int | None = None) -> Hardware:
        return Hardware("abacus", "one matrix unit", ("mac",), 1, ())

    def space(self, program: Program, hardware: Hardware) -> Space:
        why = "points of the axis in one tile"
        tiles = [Decision(f"tile.{a}", (16, 32), "tile", a, why) for a in program.axes]
        slots = Decision("slots", (2, 3), "pipeline", "k", "slots of the ring")
        wait = Decision("wait", (0, 1), "pipeline", "k", "blocks that run into the next")
        return Space(self.name, (*tiles, slots, wait))

    def built(self, program: Program, schedule: Schedule) -> TileKernel:
        """The sequential kernel of a product C = A B, stored as it is."""
        tile = {axis: int(schedule[f"tile.{axis}"]) for axis in program.axes}
        a, b, product, *_, store = range(len(program.nodes))
        names = {a: "A", b: "B", product: "C"}
        tiles = tuple(
            Tile(names[node], node, "registers" if node == product else "shared", "f32",
                 tuple((axis, tile[axis]) for axis in program.nodes[node].axes))
            for node in (a, b, product)
        )  # fmt: skip
        fetch = Operation("fetch", "copy", ("A", "B"), ("A", "B"), ("queue",),
                          (Part("copy", a, "dma"), Part("copy", b, "dma")))  # fmt: skip
        body = self.body(program)
        done = (
            Operation("start", "threads", (), ("C",), (), (Part("start", product),)),
            Operation("store", "threads", ("C",), (), (), (Part("store", store),)),
        )
        loop = Loop(BLOCK, (Do("fetch"), Do("multiply")))
        statements = (Loop("tile", (Do("start", later=ONCE), loop, Do("store", later=ONCE))),)
        rings = (Ring("queue", ("A", "B"), int(schedule["slots"])),)
        return TileKernel(
            program.name, tiles, rings, (fetch, *body.operations, *done), statements
        )  # fmt: skip

    def body(self, program: Program) -> Body:
        parts = (Part("mma", 2, "mac"),)
        return Body((Operation("multiply", "tensor", ("A", "B", "C"), ("C",), ("queue",), parts),))

    def passes(self, program: Program, schedule: Schedule) -> tuple[Pass, ...]:
        strip = Strip(self.body(program), 1, bool(schedule["wait"]))
        return (
            Roles(("dma",)), Pieces(strip), Synchronise(strip=strip), Place(), Traced("store"),
        )  # fmt: skip

    def lower(
        self, program: Program, schedule: Schedule, hardware: Hardware, full: bool = False
    ) -> Kernel:
        *_, (_, kernel) = after_each(self.built(program, schedule), self.passes(program, schedule))
        text = "\n".join(self._printed(kernel, kernel.body, 0))
        arguments = tuple(Argument(s.name, s.shape, s.dtype, s.role, "") for s in program.tensors)
        return Kernel(program.name, self.name, arguments, (("abacus", text),), program.name, 0, ())

    def standalone(self, kernel: Kernel, symbol: str = "") -> None:
        raise NotImplementedError

    def _printed(
        self, kernel: TileKernel, body: tuple[Statement, ...], depth: int
    ) -> Iterator[str]:
        """One printer: a line for each statement, and for each part its instruction."""
        for one in body:
            if isinstance(one, Do):
                for part in kernel.operation(one.operation).parts or (Part("map", 0, "TELL"),):
                    yield f"{'  ' * depth}{part.by or part.kind} %{part.node} {one.at}"
            else:
                yield f"{'  ' * depth}{one}"
            if isinstance(one, NESTED):
                yield from self._printed(kernel, one.body, depth + 1)


BACKEND = AbacusBackend()
PROGRAM = load_operator("matmul").build(m=40, n=50, k=70)


def schedules() -> list[Schedule]:
    space = BACKEND.space(PROGRAM, BACKEND.hardware())
    rows = space.sample(np.random.default_rng(0), 12)
    return [space.schedule(row) for row in rows]


def test_it_is_a_target() -> None:
    def wanted(backend: Backend) -> str:
        return backend.name

    assert wanted(BACKEND) == "abacus"  # type: ignore[arg-type]
    assert len(schedules()) == 12


@pytest.mark.parametrize("number", range(12))
def test_its_kernels_mean_the_program_behind_every_pass(number: int) -> None:
    schedule = schedules()[number]
    inputs = random_inputs(PROGRAM, np.random.default_rng(number))
    wanted = evaluate(PROGRAM, inputs)["C"]
    tiles = {axis: int(schedule[f"tile.{axis}"]) for axis in PROGRAM.axes}
    made = after_each(BACKEND.built(PROGRAM, schedule), BACKEND.passes(PROGRAM, schedule))
    for name, kernel in made:
        verify(kernel)
        assert TileKernel.parse(str(kernel)) == kernel
        synchronised = any(isinstance(one, Sync) for one in walk(kernel.body))
        for late, last in ((True, False), (False, True))[: 1 + synchronised]:
            found = run(kernel, PROGRAM, inputs, Tiling(tiles, ("k",)), late, last)["C"]
            assert np.allclose(found, wanted, 1e-6, 1e-6), name


def test_its_text_has_its_instructions_and_its_pass() -> None:
    schedule = Schedule.of(
        "abacus", {"tile.m": 16, "tile.n": 16, "tile.k": 16, "slots": 2, "wait": 1}
    )
    text = BACKEND.lower(PROGRAM, schedule, BACKEND.hardware()).text("abacus")
    lines = [line.strip() for line in text.splitlines()]
    assert lines.count("dma %0 block") == lines.count("mac %2 block") == 1
    assert lines[lines.index("TELL %0 block") + 1].startswith("store %")
    assert "sync await 1" in lines
    assert {line.split()[1] for line in lines if line.startswith("sync")} <= SYNCS.keys()


def test_a_ring_without_room_is_found_before_there_is_text() -> None:
    """Blocks that run into the next hold a slot while the next one is waited for."""
    values = {"tile.m": 16, "tile.n": 16, "tile.k": 16, "slots": 1, "wait": 1}
    schedule = Schedule.of("abacus", values)
    *_, (_, kernel) = after_each(
        BACKEND.built(PROGRAM, schedule), BACKEND.passes(PROGRAM, schedule)
    )
    inputs = random_inputs(PROGRAM, np.random.default_rng(0))
    tiles = dict.fromkeys(PROGRAM.axes, 16)
    with pytest.raises(KernelError, match="nobody goes on: sync free queue of slot 1"):
        run(kernel, PROGRAM, inputs, Tiling(tiles, ("k",)))
