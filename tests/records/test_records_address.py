"""Addresses of stores: what they stand for, and that nothing that shows one shows a secret."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from records import Address, Store, StoreError
from records.errors import UnusableLocation

SECRETS = ("hunter22", "p%40ss%2Fword", "p@ss/word", "cert-key", "elsewhere")
URLS = [
    "postgresql://user:hunter22@127.0.0.1:1/base",
    "postgresql://user:p%40ss%2Fword@127.0.0.1:1/base",
    "postgresql://user@127.0.0.1:1/base?password=hunter22",
    "postgresql://127.0.0.1:1/base?user=user&%70assword=p%40ss%2Fword&sslpassword=cert-key",
    "postgresql://user:hunter22@127.0.0.1:1/base?sslpassword=cert-key&passfile=elsewhere",
    "postgresql+psycopg://user@127.0.0.1:1/base?options=-cmine.key%3Dhunter22",
    "postgresql://user@127.0.0.1:1/base?whatever=hunter22&host=127.0.0.1",
]


def is_clean(text: str) -> bool:
    return not any(secret in text for secret in SECRETS)


@dataclass(frozen=True)
class Holder:
    where: Address


@pytest.mark.parametrize("url", URLS)
def test_nothing_shows_a_secret(url: str) -> None:
    address = Address.of(url)
    carried = pickle.loads(pickle.dumps(address))
    shown = [str(address), repr(address), f"{address}", f"{address:>99}", address.shown]
    shown += [repr(Holder(address)), json.dumps(asdict(Holder(address)), default=str)]
    shown += [str(address.server), repr(address.server), repr(vars(type(address)))]
    shown += [repr(pickle.dumps(address)), repr(carried.secrets()), repr([address])]
    assert all(map(is_clean, shown))
    assert "***" in str(address)
    assert copy.deepcopy(address) is copy.copy(address) is address
    assert carried == address == Address.of(str(address))
    assert hash(carried) == hash(address)
    assert not is_clean(repr(address.secrets()))


@pytest.mark.parametrize("url", URLS)
def test_refusals_and_logs_show_no_secret(url: str, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("psycopg")
    with caplog.at_level(logging.DEBUG), pytest.raises(StoreError) as refusal:
        Store(url, busy_seconds=0.1)
    told = traceback.format_exception(refusal.value)
    assert is_clean("".join(told) + caplog.text)
    assert "***" in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "where",
    [
        "postgresql://user:p@ss@host/base",
        "postgresql://user:hunter22@host/base@hunter22",
        "postgresql://user:hunter22#@host/x#hunter22",
        "postgresql://host/postgresql://user:hunter22@host",
        "postgresql:/user:hunter22@host/base",
        "postgresql:user:hunter22@host",
        "mysql://user:hunter22@host/base",
        "hunter22 postgres://x",
        "host=here password=hunter22",
        "host=here PASSWORD = hunter22",
        "records.db?password=hunter22",
        "postgresql://user:hunter22@host:port/base",
        "postgresql://user@host/password=hunter22",
        "://hunter22",
    ],
)
def test_what_is_no_address_is_refused_without_repeating_it(where: str) -> None:
    with pytest.raises(UnusableLocation) as refusal:
        Address.of(where)
    told = "".join(traceback.format_exception(refusal.value))
    assert is_clean(str(refusal.value)), told
    assert "ss@host" not in str(refusal.value)


def test_driver_texts_are_scrubbed() -> None:
    address = Address.of("postgresql://user:p%40ss%2Fword@host/base?sslpassword=ab")
    for text in ("no p@ss/word", "no p%40ss%2Fword", "no P%40SS%2FWORD", "no p%40ss/word"):
        assert address.scrub(text) == "no ***"
    assert address.scrub("about") == "***"  # a short secret is not told by what was replaced
    assert address.scrub("other") == "other"


def test_an_address_is_frozen() -> None:
    address = Address.of("postgresql://user:hunter22@host/base")
    with pytest.raises(AttributeError):
        address.shown = "x"
    with pytest.raises(AttributeError):
        del address.shown
    assert not hasattr(address, "__dict__")


@pytest.mark.parametrize("where", ["records.db", "~/records.db", "sqlite:///records.db"])
def test_files(where: str) -> None:
    address = Address.of(where)
    assert address.path is not None
    assert address.path.is_absolute()
    assert not address.memory
    assert Address.of(address) is address
    assert Address.of(str(address)) == address


def test_places() -> None:
    assert Address.of(":memory:").memory
    assert Address.of("sqlite://").memory
    assert Address.of(":memory:").path is None
    assert str(Address.of("a.db").within(Path("/jobs"))) == "/jobs/a.db"
    assert str(Address.of("/x/a.db").within(Path("/jobs"))) == "/x/a.db"
    server = Address.of("postgresql://user:hunter22@host/base")
    assert server.within(Path("/jobs")) is server
    assert server.there
    assert not Address.of("/nowhere/records.db").there


def test_secrets_reach_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    psycopg = pytest.importorskip("psycopg")
    given: dict[str, object] = {}

    def connect(*_: object, **arguments: object) -> None:
        given.update(arguments)
        raise psycopg.OperationalError("no p@ss/word for user")

    monkeypatch.setattr(psycopg.Connection, "connect", connect)
    monkeypatch.setattr(psycopg, "connect", connect)
    with pytest.raises(StoreError) as refusal:
        Store("postgresql://user:p%40ss%2Fword@host/base?sslpassword=cert-key&sslmode=require")
    assert (given["password"], given["sslpassword"]) == ("p@ss/word", "cert-key")
    assert (given["user"], given["host"], given["sslmode"]) == ("user", "host", "require")
    assert is_clean(str(refusal.value))
