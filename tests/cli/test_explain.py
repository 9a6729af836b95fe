"""explain: what decisions mean, why a schedule is refused, how it did beside its neighbours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import explorer
from explorer import cli, job
from explorer.landscape import beside, by_value
from explorer.outcome import Outcome
from ir.schedule import Schedule
from tests.job.device import ScriptedDevice, by_key
from tests.space.toy import tiling_space as toy_space

WORDS = ("matmul", "m=32", "n=32", "k=32")
WORKLOAD = explorer.load("matmul", m=32, n=32, k=32)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> ScriptedDevice:
    scripted = ScriptedDevice()
    monkeypatch.setattr("explorer.search.Measurer", scripted)
    return scripted


def explained(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.invoke(["explain", *words]) == cli.EXIT_DONE
    return capsys.readouterr().out


def test_the_space_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    text = explained(capsys, *WORDS)
    found = json.loads(explained(capsys, *WORDS, "--format", "json"))
    space = WORKLOAD.space()
    assert [row["name"] for row in found["decisions"]] == list(space.names)
    for decision in space.decisions:
        assert f"  {decision.name} ({decision.group}, of {decision.owner}): {decision.why}" in text
    for rule in space.constraints:
        assert f"  {rule.name}: {rule.needs}" in text
        assert {"name": rule.name, "needs": rule.needs} in found["constraints"]


def test_a_refusal_has_every_constraint_with_its_own_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    space = WORKLOAD.space()
    drawn = space.shape.draw(np.random.default_rng(0), 400)
    violations = space.violations(drawn)
    number = int(np.flatnonzero(violations.sum(axis=1) == 2)[0])
    schedule = space.schedule(drawn[number])
    found = json.loads(
        explained(capsys, *WORDS, "--schedule", schedule.to_json(), "--format", "json")
    )
    broken = [c for c, bad in zip(space.constraints, violations[number], strict=True) if bad]
    assert found["legal"] is False
    assert [row["name"] for row in found["refused_by"]] == [rule.name for rule in broken]
    assert found["refused_by"][0]["detail"] == broken[0].explain(schedule.as_dict())
    text = explained(capsys, *WORDS, "--schedule", schedule.to_json())
    for rule in broken:
        assert f"refused by {rule.name}: {rule.explain(schedule.as_dict())}\n" in text
        assert f"  it needs: {rule.needs}\n" in text


def test_remedies_are_single_changes_that_help(capsys: pytest.CaptureFixture[str]) -> None:
    space = WORKLOAD.space()
    drawn = space.shape.draw(np.random.default_rng(1), 400)
    curable = (row for row in drawn[~space.legal(drawn)] if len(space.neighbours(row)))
    schedule = space.schedule(next(curable))
    words = [*WORDS, "--schedule", schedule.to_json()]
    found = json.loads(explained(capsys, *words, "--format", "json"))
    assert found["remedies"]
    for remedy in found["remedies"]:
        values = schedule.as_dict()
        assert values[remedy["decision"]] == remedy["from"]
        values[remedy["decision"]] = remedy["to"]
        assert space.refusal(Schedule.of("cpu", values)) is None
    assert "made legal by any of\n" in explained(capsys, *words)


def test_a_job_is_explained_by_its_own_trials(
    device: ScriptedDevice, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = job.tune("matmul", {"m": 32, "n": 32, "k": 32}, trials=30, store=store)
    found = json.loads(explained(capsys, "--job", result.job[:6], "--format", "json"))
    assert found["schedule"] == json.loads(result.best.to_json())
    assert found["legal"]
    assert [trial["seconds"] for trial in found["trials"]] == [result.seconds]
    for choice in found["decisions"]:
        assert sum(effect["trials"] for effect in choice["tried"]) == 30
        assert min(e["best"] for e in choice["tried"] if e["best"]) == result.seconds
    assert found["neighbours"]
    counts = {len(neighbour["changes"]) for neighbour in found["neighbours"]}
    assert len(counts) == 1
    text = explained(capsys, "--job", result.job)
    assert f"measured schedules that differ in {counts.pop()} decision" in text
    assert "best with it " in text


def test_the_best_of_a_workload(
    device: ScriptedDevice, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.invoke(["explain", *WORDS, "--schedule", "best"]) == cli.EXIT_NOTHING
    capsys.readouterr()
    result = job.tune("matmul", {"m": 32, "n": 32, "k": 32}, trials=9, store=store)
    found = json.loads(explained(capsys, *WORDS, "--schedule", "best", "--format", "json"))
    assert found["schedule"] == json.loads(result.best.to_json())


def test_a_schedule_of_another_space_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["explain", *WORDS, "--schedule", '{"target":"cpu","values":{"rows.s9":1}}']
    assert cli.invoke(words) == cli.EXIT_USAGE
    assert "no decision 'rows.s9'" in capsys.readouterr().err


def test_neighbours_are_the_nearest_the_fastest_first() -> None:
    space = toy_space()
    rows = space.sample(np.random.default_rng(0), 1)
    near = space.neighbours(rows[0])[:3]
    far = space.sample(np.random.default_rng(1), 5)
    mine = space.schedule(rows[0])
    others = [space.schedule(row) for row in (*near, *far)]
    failed = Outcome("crash")
    trials = [(mine, by_key(mine)), (others[0], failed), *((s, by_key(s)) for s in others[1:])]
    found = beside(space, mine, trials)
    assert {len(difference.changes) for difference in found} == {1}
    assert len(found) >= 3
    times = [d.outcome.seconds for d in found if d.outcome.seconds is not None]
    assert times == sorted(times)
    assert found[-1].outcome.status == "crash"
    name, before, after = found[0].changes[0]
    assert mine[name] == before != after
    assert beside(space, mine, trials[:1]) == ()


def test_values_are_counted_with_their_best_and_usual_time() -> None:
    space = toy_space()
    rows = space.sample(np.random.default_rng(0), 40)
    schedules = list(map(space.schedule, rows))
    trials = [(s, Outcome("timeout") if n % 8 == 0 else by_key(s)) for n, s in enumerate(schedules)]
    for name, effects in by_value(space, trials).items():
        domain = space.decision(name).domain
        assert [effect.value for effect in effects] == [
            value for value in domain if any(s[name] == value for s in schedules)
        ]
        assert sum(effect.tried for effect in effects) == 40
        assert sum(effect.right for effect in effects) == 35
        for effect in effects:
            if effect.best is not None and effect.median is not None:
                assert effect.best <= effect.median


def test_decisions_of_other_routes_are_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    """A schedule keeps their first values; what it is made of is what it takes."""
    sizes: dict[str, Any] = {"b": 2, "heads": 4, "kv_heads": 2, "sk": 64, "d": 32}
    words = ("decode_attention", *(f"{name}={size}" for name, size in sizes.items()), "dtype=bf16")
    space = (
        explorer.load("decode_attention", target="cuda", dtype="bf16", **sizes).on("h200").space()
    )
    assert any(decision.when for decision in space.decisions)
    schedule = space.schedule(space.sample(np.random.default_rng(0), 1)[0])
    words += ("--target", "cuda", "--hardware", "h200", "--schedule", schedule.to_json())
    text = explained(capsys, *words, "--format", "json")
    told = {row["name"]: row["value"] for row in json.loads(text)["decisions"]}
    taken = schedule.as_dict()
    for decision in space.decisions:
        parent, value = decision.when or ("", None)
        in_force = not parent or (parent in told and taken[parent] == value)
        assert (decision.name in told) == in_force
    assert len(told) < len(space.names)
