"""Leases: one living holder for each candidate, whatever the database, the clock and death do."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from records import Store, new_owner
from records.errors import InvalidRecord
from records.owner import is_gone
from tests.records.postgres import Server

PROCESSES = multiprocessing.get_context("fork")
ABC = ("a" * 64, "b" * 64, "c" * 64)
A, B, C = ABC


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class LeaseContract:
    """Subclasses say where a fresh store is."""

    @pytest.fixture
    def where(self) -> str:
        raise NotImplementedError

    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @pytest.fixture
    def store(self, where: str, clock: Clock) -> Iterator[Store]:
        with Store(where, lease_clock=clock) as store:
            yield store

    def test_what_one_has_another_does_not_get(self, store: Store) -> None:
        assert store.claim((A, B), "one", 60) == {A, B}
        assert store.claim((B, C), "two", 60) == {C}
        assert store.claim(ABC, "one", 60) == {A, B}
        assert store.claim((), "one", 60) == set()

    def test_what_is_released_is_free(self, store: Store) -> None:
        store.claim(ABC, "one", 60)
        assert store.release("one", (A, A)) == 1
        assert store.release("two", (B,)) == 0
        assert store.claim(ABC, "two", 60) == {A}
        assert store.release("one") == 2
        assert store.claim(ABC, "two", 60) == {A, B, C}

    def test_a_lease_ends_when_it_is_not_renewed(self, store: Store, clock: Clock) -> None:
        store.claim((A,), "one", 60)
        clock.now += 59
        assert store.claim((A,), "two", 60) == set()
        clock.now += 1
        assert store.claim((A,), "two", 60) == {A}
        assert store.heartbeat("one") == 0

    def test_who_holds_it_can_be_asked(self, store: Store, clock: Clock) -> None:
        assert store.holder(A) is None
        store.claim((A,), "one", 60)
        assert store.holder(A) == "one"
        clock.now += 60
        assert store.holder(A) is None
        store.claim((A,), "two", 60)
        store.release("two")
        assert store.holder(A) is None

    def test_a_heartbeat_renews_all_leases_of_its_owner(self, store: Store, clock: Clock) -> None:
        store.claim((A, B), "one", 60)
        store.claim((C,), "two", 60)
        for _ in range(3):
            clock.now += 40
            assert store.heartbeat("one") == 2
        assert store.claim(ABC, "three", 60) == {C}

    def test_a_claim_renews_what_one_has(self, store: Store, clock: Clock) -> None:
        store.claim((A,), "one", 60)
        clock.now += 40
        store.claim((A,), "one", 60)
        clock.now += 40
        assert store.claim((A,), "two", 60) == set()

    def test_a_clock_set_back_keeps_the_living_and_lets_the_dead_go(
        self, store: Store, clock: Clock
    ) -> None:
        store.claim((A, B), "one", 60)
        store.claim((C,), "dead", 60)
        clock.now -= 1_000_000
        assert store.claim(ABC, "two", 60) == set()
        clock.now += 30
        store.heartbeat("one")
        clock.now += 30
        assert store.claim(ABC, "two", 60) == {C}
        assert store.heartbeat("one") == 2

    def test_a_clock_set_back_again_and_again_lets_the_dead_go(
        self, store: Store, clock: Clock
    ) -> None:
        store.claim((A,), "dead", 60)
        for _ in range(5):
            clock.now -= 500
            assert store.claim((A,), "two", 60) == set()
        clock.now += 60
        assert store.claim((A,), "two", 60) == {A}

    def test_a_clock_set_forward_ends_what_is_not_renewed(self, store: Store, clock: Clock) -> None:
        store.claim((A, B), "one", 60)
        clock.now += 1_000_000
        store.heartbeat("one")
        assert store.claim((A,), "two", 60) == set()

    @pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
    def test_a_lease_for_ever_is_refused(self, store: Store, seconds: float) -> None:
        with pytest.raises(InvalidRecord, match="finite time above 0"):
            store.claim((A,), "one", seconds)

    @pytest.mark.parametrize("owner", ["", "x" * 256])
    def test_an_owner_needs_a_name(self, store: Store, owner: str) -> None:
        with pytest.raises(InvalidRecord, match="1 to 255"):
            store.claim((A,), owner, 60)

    def test_the_leases_of_a_dead_process_are_free_at_once(self, store: Store) -> None:
        reader, writer = os.pipe()
        child = PROCESSES.Process(target=lambda: os.write(writer, new_owner().encode()))
        child.start()
        child.join()
        owner = os.read(reader, 1000).decode()
        os.close(reader)
        os.close(writer)
        store.claim((A,), owner, 3600)
        assert store.claim((A, B), new_owner(), 60) == {A, B}

    def test_rivals_share_without_overlap(self, where: str, store: Store) -> None:
        if where == ":memory:":
            pytest.skip("a store in memory is its own")
        names = [f"{number:064}" for number in range(60)]
        got: dict[str, set[str]] = {}

        def take(owner: str) -> None:
            with Store(where) as mine:
                got[owner] = set()
                for start in range(0, 60, 6):
                    got[owner] |= mine.claim(names[start : start + 12], owner, 60)

        threads = [threading.Thread(target=take, args=(f"rival-{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(len(found) for found in got.values()) == 60
        assert set.union(*got.values()) == set(names)


class TestFile(LeaseContract):
    @pytest.fixture
    def where(self, path: Path) -> str:
        return str(path)


class TestMemory(LeaseContract):
    @pytest.fixture
    def where(self) -> str:
        return ":memory:"


class TestPostgres(LeaseContract):
    @pytest.fixture
    def where(self, postgres: Server) -> str:
        return postgres.new_schema()


def test_the_clock_of_a_server_is_its_own(postgres: Server) -> None:
    with Store(postgres.new_schema()) as store:
        assert store.claim((A,), "one", 1.0) == {A}
        assert store.claim((A,), "two", 60) == set()
        time.sleep(1.05)
        assert store.claim((A,), "two", 60) == {A}


def test_the_clock_of_a_file_cannot_be_set(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(path) as store:
        store.claim((A,), "one", 60)
        monkeypatch.setattr(time, "time", lambda: 4e9)
        assert store.claim((A,), "two", 60) == set()


def test_an_owner_is_not_gone_while_its_process_lives() -> None:
    mine = new_owner()
    assert mine != new_owner()
    assert not is_gone(mine)


@pytest.mark.parametrize(
    "change",
    [
        lambda parts: ["other boot", *parts[1:]],
        lambda parts: [parts[0], "other name space", *parts[2:]],
        lambda parts: parts[:4],
        lambda parts: [*parts[:2], "nonsense", *parts[3:]],
        lambda parts: [*parts[:2], str(10**30), *parts[3:]],
    ],
)
def test_of_a_stranger_nothing_is_known(change: Callable[[list[str]], list[str]]) -> None:
    assert not is_gone("/".join(change(new_owner().split("/"))))


def test_a_later_process_of_the_same_number_is_another() -> None:
    parts = new_owner().split("/")
    assert is_gone("/".join([*parts[:3], "1", parts[4]]))


def test_a_zombie_is_gone() -> None:
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(writer, new_owner().encode())
        os._exit(0)
    owner = os.read(reader, 1000).decode()
    os.close(reader)
    os.close(writer)
    deadline = time.monotonic() + 10
    while not is_gone(owner):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.waitpid(pid, 0)
