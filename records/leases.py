"""Leases: which searcher is about to measure a candidate, so that no other does the same.

A lease ends with its release, with the death of its owner's process where that can be seen, and
otherwise when its seconds have passed since it was taken or renewed. Times are seconds of a clock
that all users of a store share; only differences count. A clock that was set back prolongs a lease
by no more than its own length: whoever meets a lease from the future dates it to the present.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable

from sqlalchemy import Connection, delete, func, select, text, update

from records.errors import InvalidRecord
from records.owner import is_gone
from records.rows import insert_of
from records.schema import leases

_TURN = 0x4C454153  # names the turn that users of one server take
_OWNER_LIMIT = 255


def take_turn(connection: Connection) -> None:
    """Let one user at a time change leases: SQLite's writers do so anyway, a server's do not."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_TURN})"))


def present(connection: Connection, clock: Callable[[], float] | None) -> float:
    """The time by `clock`, or by the clock that all users of this database share.

    That is the server's, or the machine's monotonic clock, which nobody can set.
    """
    if clock is not None:
        return clock()
    if connection.dialect.name == "postgresql":
        epoch = func.extract("epoch", func.clock_timestamp())
        return float(connection.execute(select(epoch)).scalar_one())
    return time.monotonic()


def claim(
    connection: Connection, candidates: Iterable[str], owner: str, seconds: float, now: float
) -> set[str]:
    """Lease what no living other holds; returns the candidates that are now `owner`'s."""
    _check(owner, seconds)
    wanted = sorted(set(candidates))
    if not wanted:
        return set()
    ours = _claimed(connection, wanted, owner, seconds, now)
    if len(ours) < len(wanted) and _end_dead_leases(connection, owner, now):
        ours |= _claimed(connection, wanted, owner, seconds, now)
    return ours


def _claimed(
    connection: Connection, wanted: list[str], owner: str, seconds: float, now: float
) -> set[str]:
    """Those of `wanted` that nobody else has a lease of, be it dead or alive."""
    rows = [{"candidate": c, "owner": owner, "began": now, "seconds": seconds} for c in wanted]
    statement = insert_of(connection, leases)
    renewed = statement.on_conflict_do_update(
        index_elements=[leases.c.candidate],
        set_={name: statement.excluded[name] for name in ("began", "seconds")},
        where=leases.c.owner == statement.excluded.owner,
    )
    connection.execute(renewed, rows)
    ours = (leases.c.owner == owner) & leases.c.candidate.in_(wanted)
    return set(connection.execute(select(leases.c.candidate).where(ours)).scalars())


def holder(connection: Connection, candidate: str, now: float) -> str | None:
    """The living owner that holds a candidate; None where nobody does."""
    wanted = select(leases).where(leases.c.candidate == candidate)
    row = connection.execute(wanted).first()
    if row is None or row.began + row.seconds <= now or is_gone(row.owner):
        return None
    return str(row.owner)


def renew(connection: Connection, owner: str, now: float) -> int:
    """Let the leases of `owner` count from now; returns how many it still holds.

    Those of others that are over go: `claim` looks at them only where they are in the way.
    """
    _end_dead_leases(connection, owner, now)
    mine = update(leases).where(leases.c.owner == owner).values(began=now)
    return connection.execute(mine).rowcount


def end(connection: Connection, owner: str, candidates: Collection[str] | None) -> int:
    """End these leases of `owner`, or all of them; returns how many there were."""
    mine = delete(leases).where(leases.c.owner == owner)
    if candidates is not None:
        mine = mine.where(leases.c.candidate.in_(candidates))
    return connection.execute(mine).rowcount


def _end_dead_leases(connection: Connection, owner: str, now: float) -> bool:
    """Remove the leases that have run out or whose owners are gone; whether there were any."""
    connection.execute(update(leases).where(leases.c.began > now).values(began=now))
    owners = select(leases.c.owner).where(leases.c.owner != owner).distinct()
    dead = [name for name in connection.execute(owners).scalars() if is_gone(name)]
    over = (leases.c.began + leases.c.seconds <= now) & (leases.c.owner != owner)
    return connection.execute(delete(leases).where(over | leases.c.owner.in_(dead))).rowcount > 0


def _check(owner: str, seconds: float) -> None:
    if not 0 < len(owner) <= _OWNER_LIMIT:
        raise InvalidRecord(f"a lease needs an owner of 1 to {_OWNER_LIMIT} letters, not {owner!r}")
    if not (0 < seconds < math.inf):
        raise InvalidRecord(f"a lease lasts a finite time above 0, not {seconds!r} seconds")
