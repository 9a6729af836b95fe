"""What a search's measurer makes of what becomes of its tasks, told by a scripted engine."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from explorer.baseline import Baseline
from explorer.errors import DeviceLost, FarmLost, Uncheckable, WorkerError
from explorer.farm import measurer as module
from explorer.farm.bench import Artifact, Reading, Trouble
from explorer.farm.engine import Broken, Done, Gone, Lost, Task
from explorer.farm.worker import AHEAD
from explorer.outcome import Outcome
from tests.farm.fakes import ScriptedEngine, farm_measurer
from tests.runtime.fake_backend import schedule

FIRST, SECOND = schedule("good", 1), schedule("good", 2)


def reading(key: str = "kernel", seconds: float = 1e-3, worker: str = "one") -> Done:
    outcome = Outcome("ok", seconds, kernel_key=key)
    return Done(Reading(worker, (outcome.to_json(),), 0.5))


def test_a_task_has_the_candidates_key_and_the_kinds_tag() -> None:
    """So that two clients that ask for the same are answered by one measurement."""
    engines = [ScriptedEngine(), ScriptedEngine()]
    for engine in engines:
        farm_measurer(engine).begin([FIRST, SECOND])
    mine, others = ([sent.key for sent in engine.sent] for engine in engines)
    assert mine == others
    assert len(set(mine)) == 2
    assert {sent.tag for sent in engines[0].sent} == {"fake-tag"}


def test_a_task_that_was_lost_is_sent_again_under_another_key() -> None:
    engine = ScriptedEngine()
    measurer = farm_measurer(engine)
    measurer.begin([FIRST])
    engine.sent[0].heard(Lost("workers were lost with it"))
    ours, again = engine.sent[0], None
    measurer._listen(None)
    again = engine.sent[1]
    assert again.key != ours.key
    assert again.arguments == ours.arguments
    ours.heard(reading("late"))  # from a worker that was taken for dead
    again.heard(reading("kernel"))
    ended = measurer.ended()
    assert ended is not None
    assert ended[1].kernel_key == "kernel"
    assert measurer.ended() is None


def test_a_task_that_is_lost_again_and_again_ends_the_job_resumably() -> None:
    engine = ScriptedEngine()
    measurer = farm_measurer(engine)
    measurer.begin([FIRST])
    for _ in range(module.ATTEMPTS - 1):
        engine.sent[-1].heard(Lost("why"))
        measurer._listen(None)
    engine.sent[-1].heard(Lost("why"))
    with pytest.raises(FarmLost, match=r"again and again \(why\).*--resume --workers"):
        measurer.ended()
    assert len(engine.sent) == module.ATTEMPTS
    assert issubclass(FarmLost, DeviceLost)  # which has the code of a lost device


def test_a_worker_without_its_device_is_retired_and_others_go_on() -> None:
    engine = ScriptedEngine()
    measurer = farm_measurer(engine)
    measurer.begin([FIRST])
    engine.sent[0].heard(Done(Trouble("tcp://bad:1", "DeviceLost", "it does not answer")))
    measurer._listen(None)
    assert engine.retired == ["tcp://bad:1"]
    engine.sent[1].heard(reading())
    ended = measurer.ended()
    assert ended is not None
    assert ended[1].ok


def test_what_every_worker_would_say_is_raised() -> None:
    engine = ScriptedEngine()
    measurer = farm_measurer(engine)
    measurer.begin([FIRST])
    engine.sent[0].heard(Done(Trouble("tcp://a:1", "Uncheckable", "nothing is known")))
    with pytest.raises(Uncheckable, match="nothing is known"):
        measurer.ended()
    assert not engine.retired


@pytest.mark.parametrize(
    ("result", "error", "words"),
    [
        (Gone("closed"), FarmLost, r"scheduler does not answer any more \(closed\)"),
        (Broken("AttributeError: x"), WorkerError, "a worker's task failed: AttributeError: x"),
    ],
)
def test_the_end_of_a_farm_is_one_line(
    result: Gone | Broken, error: type[Exception], words: str
) -> None:
    engine = ScriptedEngine()
    measurer = farm_measurer(engine)
    measurer.begin([FIRST])
    engine.sent[0].heard(result)
    with pytest.raises(error, match=words) as raised:
        measurer.ended()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("present", [0, 1])
def test_a_job_without_workers_ends_after_a_while(
    present: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not one whose workers take their time."""
    monkeypatch.setattr(module, "PATROL", 0.01)
    monkeypatch.setattr(module, "ABSENT", 0.05)
    engine = ScriptedEngine()
    measurer = farm_measurer(engine, present=present)
    measurer.begin([FIRST])
    if not present:
        with pytest.raises(FarmLost, match="no worker of fake:test:2"):
            measurer.ended()
        return
    for _ in range(10):
        measurer._listen(None)
    engine.sent[0].heard(reading())
    assert measurer.ended() is not None


def test_the_library_is_timed_by_one_worker_and_finals_take_turns_with_it() -> None:
    engine = ScriptedEngine()
    measurer = farm_measurer(engine, library=True)
    measurer.begin([FIRST])
    library, candidate = engine.sent
    assert (library.method, library.arguments[1:]) == ("compete", ((), 1, True))
    measurer.begin([SECOND])
    assert [sent.method for sent in engine.sent[2:]] == ["measure"]
    facts = '{"library": "BLAS", "outcome": null, "why": ""}'
    library.heard(Done(Reading("one", (), 0.1, facts)))
    candidate.heard(reading())
    assert measurer.ended() is not None
    assert measurer.baseline == Baseline("BLAS")


def test_code_of_finalists_goes_along_as_far_as_workers_have_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = ScriptedEngine()
    both = (Artifact("b.o", b"code"),)
    engine.answers = {"one": both, "two": both, "three": OSError("it is gone")}
    measurer = farm_measurer(engine)
    measurer.begin([FIRST, SECOND])
    engine.sent[0].heard(reading("a"))
    engine.sent[1].heard(reading("b"))
    while measurer.ended() is not None:
        pass

    def answer(tag: str, method: str, tasks: Sequence[Task]) -> None:
        (finals,) = tasks
        assert finals.arguments[-1] == both
        finals.heard(reading("b"))

    monkeypatch.setattr(engine, "send", answer)
    (final,) = measurer.compete([SECOND], 3)
    assert final.ok
    ((_, (_, kernels)),) = engine.asked
    assert kernels == ("b",)


def test_candidates_wait_here_until_a_worker_has_room() -> None:
    """One that waits at a worker is bound to it: no more than what it measures next."""
    engine = ScriptedEngine()
    measurer = farm_measurer(engine, slots=2)
    most = 2 * (1 + AHEAD)
    asked = [schedule("good", number) for number in range(most + 3)]
    measurer.begin(asked)
    assert len(engine.sent) == most
    for number in range(2):
        engine.sent[number].heard(reading(f"kernel{number}"))
    ended = [measurer.ended() for _ in range(2)]
    assert [pair[0] for pair in ended if pair] == asked[:2]
    assert len(engine.sent) == most + 2
    measurer.forget()
    assert all(sent.forgotten for sent in engine.sent[2:])
    measurer.begin(asked[-1:])
    assert [sent.arguments[1] for sent in engine.sent[most + 2 :]] == [asked[-1].to_json()]


def test_more_workers_have_more_groups_under_way() -> None:
    """Four for each that is measured: a group waits for its slowest."""
    depths = [farm_measurer(ScriptedEngine(), slots=slots).depth for slots in (1, 8, 64)]
    assert depths == [2, 3, 5]
