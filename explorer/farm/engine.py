"""Dask.distributed behind a few calls: connect, ask all workers, send a task, hear what came of it.

The only module that imports Dask. Knows how its tasks and connections fail, and says so in our
errors; it knows nothing of what tasks measure.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import pickle
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

from explorer.errors import NoFarm
from explorer.farm.bench import Trouble
from explorer.farm.station import station_of
from ir.errors import TilewrightError
from ir.printable import shortened

CONNECT = 10.0  # seconds within which a scheduler answers
CLOSE = 5.0
_INSTALL = "Dask.distributed is not installed: pip install 'tilewright[farm]'"


@dataclass(frozen=True, slots=True)
class Done:
    """What a task returned."""

    value: Any


@dataclass(frozen=True, slots=True)
class Lost:
    """A task was given up with the workers that had it, one after another."""

    why: str


@dataclass(frozen=True, slots=True)
class Gone:
    """The scheduler is gone, and with it all tasks."""

    why: str


@dataclass(frozen=True, slots=True)
class Broken:
    """A task raised what it does not raise unless something is wrong with the install."""

    why: str


Result = Done | Lost | Gone | Broken


@dataclass(frozen=True, slots=True)
class Task:
    """A call of a station's method; `heard` hears what came of it, on a thread of its own."""

    key: str
    arguments: tuple[Any, ...]
    heard: Callable[[Result], None]


async def carry_out(topic: str, key: str, method: str, *arguments: Any) -> bytes:
    """A task: a method of the station of the worker that it runs on; a Trouble where that fails for
    a reason that is known. It gives its key and what came of it, pickled.

    That is told at once to whoever listens to `topic`: a result that waits to be fetched
    would be lost with its worker, and measured again. No thread of the worker's waits.
    """
    from distributed import get_worker

    worker = get_worker()
    try:
        asked: Future[Any] = getattr(station_of(str(worker.name)), method)(*arguments)
        found = await asyncio.wrap_future(asked)
    except (TilewrightError, OSError) as error:
        found = Trouble(str(worker.address), type(error).__name__, str(error))
    told = pickle.dumps((key, found))
    worker.log_event(topic, told)
    return told


# what Dask raises for an address that is none, or where nobody answers
_REFUSED = (OSError, ValueError, TypeError, ImportError, RuntimeError, AssertionError)


def _connected(connect: Callable[..., Any], address: str) -> tuple[Any, str]:
    """A client of the scheduler there, or none and what was said instead."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # versions that matter are compared by us
            made = connect(address, timeout=CONNECT, set_as_default=False, name="tilewright")
    except _REFUSED as error:
        return None, shortened(str(error).splitlines()[0] if str(error) else repr(error))
    return made, ""


class Engine:
    """A client of the scheduler at `address`. Raises NoFarm where none answers.

    How the connection is secured is Dask's own configuration (docs/farm.md).
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._futures: dict[str, tuple[Any, Callable[[Result], None]]] = {}
        self._topic = f"tilewright-{uuid4().hex}"
        self._lock = threading.Lock()
        try:
            import distributed
        except ImportError:
            raise NoFarm(_INSTALL) from None
        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # we say it in one line
        self._client, said = _connected(distributed.Client, address)
        if said:
            gc.collect()  # a client that failed closes when it goes: not while another one starts
            raise NoFarm(
                f"{address}: no Dask scheduler answers there ({said}); `tilewright farm` says how "
                "to start one"
            )
        self._client.subscribe_topic(self._topic, self._told)

    def ask_all(self, function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        """What `function` gives on each worker, by address; an exception where it raised there."""
        try:
            found: dict[str, Any] = self._client.run(function, *arguments, on_error="return")
        except (OSError, RuntimeError, ValueError) as error:
            raise NoFarm(f"{self.address}: the scheduler is gone ({error})") from None
        return found

    def send(self, tag: str, method: str, tasks: Sequence[Task]) -> None:
        """Have workers with that tag do these with a method of their stations; a task of a key that
        is under way already, whoever sent it, is not done twice.

        All go in one message: the scheduler takes as long for one as for many.
        """
        columns = zip(*(task.arguments for task in tasks), strict=True)
        keys, count = [task.key for task in tasks], len(tasks)
        with self._lock:
            futures: list[Any] = self._client.map(
                carry_out, [self._topic] * count, keys, [method] * count, *columns,
                key=keys, resources={tag: 1}, pure=False,
            )  # fmt: skip
            for task, future in zip(tasks, futures, strict=True):
                self._futures[task.key] = (future, task.heard)
        for key, future in zip(keys, futures, strict=True):
            future.add_done_callback(partial(self._ended, key))

    def _told(self, event: tuple[float, bytes]) -> None:
        """A worker has something."""
        key, value = pickle.loads(event[1])
        future, heard = self._taken(key)
        if future is not None:
            heard(Done(value))
            future.release()

    def _ended(self, key: str, ended: Any) -> None:
        """A task has ended of which no worker told us: it failed, or was another client's."""
        future, heard = self._taken(key, ended)
        if future is not None:
            heard(_result(future))
            future.release()

    def _taken(self, key: str, only: Any = None) -> tuple[Any, Callable[[Result], None]]:
        """A task that is under way, which is nobody's any more; None if it is forgotten."""
        with self._lock:
            future, heard = self._futures.get(key, (None, _nobody))
            if only is not None and future is not only:
                return None, _nobody
            self._futures.pop(key, None)
            return future, heard

    def forget(self, keys: Sequence[str]) -> None:
        """Give up tasks; what a worker has begun comes to its end unheard."""
        with self._lock:
            found = [self._futures.pop(key, None) for key in keys]
        futures = [pair[0] for pair in found if pair is not None]
        if futures and self._client.status == "running":
            with suppress(Exception):
                self._client.cancel(futures, force=False)

    def retire(self, worker: str) -> None:
        """Have a worker end, whose device does not answer; its tasks go to others."""
        with suppress(Exception):
            self._client.retire_workers([worker])

    def close(self) -> None:
        """End the connection; the scheduler and its workers stay."""
        with suppress(Exception):
            self._client.close(timeout=CLOSE)


def _nobody(result: Result) -> None:
    """Hears what nobody waits for."""


def _result(future: Any) -> Result:
    """What became of a task that has ended."""
    from concurrent.futures import CancelledError

    from distributed import KilledWorker
    from distributed.client import FutureCancelledError

    try:
        return Done(pickle.loads(future.result())[1])
    except KilledWorker as error:
        return Lost(f"workers were lost with it, {error.last_worker.name} the last")
    except (CancelledError, FutureCancelledError) as error:
        return Gone(shortened(str(error).splitlines()[0] if str(error) else "it was cancelled"))
    except (OSError, TimeoutError) as error:
        return Gone(shortened(str(error) or repr(error)))
    except Exception as error:  # noqa: BLE001 (a task may raise anything that an install may)
        return Broken(shortened(f"{type(error).__name__}: {error}"))
