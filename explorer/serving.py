"""Ask and get: the best known kernel for arguments or for arrays, loaded once in a process.

What happens where none is recorded is the caller's to say: an error, a search now, or one in the
background while a first guess serves. Knows searches, records and exports by their interfaces.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from explorer.errors import NothingValid
from explorer.recall import best_winner
from explorer.request import Request, plan_of, question, untuned, workload_of
from explorer.winner import Winner
from explorer.workload import Workload
from ir.builder import Operator
from ir.errors import TilewrightError
from ir.sources import OperatorLike

_GUESSES = 4  # schedules that are tried, until one is right, to serve while a search runs


class ServedKernel:
    """The best known kernel of a workload as a function of arrays.

    Called as the module that `export` writes: inputs in their order, outputs by name if they are to
    be written in place. While a search runs for it (`tuning`) it may become another, faster one
    between two calls; whoever holds it has the newest.
    """

    def __init__(self, winner: Winner, recorded: bool) -> None:
        self._settled = threading.Event()
        self._settled.set()
        self._trouble = ""
        self.recorded = recorded  # whether records have the workload: else it is a guess
        self._take(winner)

    def _take(self, winner: Winner) -> None:
        void = winner.workload.program.is_void
        function = winner.__call__ if void else winner.function()
        self._now: tuple[Winner, Callable[..., Any]] = winner, function  # at once, for threads

    @property
    def winner(self) -> Winner:
        """As `explorer.best` gives it: the schedule, its seconds, its text and its files."""
        return self._now[0]

    @property
    def workload(self) -> Workload:
        return self.winner.workload

    @property
    def tuning(self) -> bool:
        """Whether a search for something better is under way in the background."""
        return not self._settled.is_set()

    @property
    def trouble(self) -> str:
        """Why the search in the background found nothing; "" if it did, or if there was none."""
        return self._trouble

    def wait(self, seconds: float | None = None) -> bool:
        """Until no search runs in the background; False if one still does after `seconds`."""
        return self._settled.wait(seconds)

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        return self._now[1](*arrays, **named)

    def __repr__(self) -> str:
        winner, state = self.winner, ", tuning" if self.tuning else ""
        arguments = " ".join(f"{name}={value}" for name, value in winner.workload.arguments)
        return f"<kernel {winner.workload.operator} {arguments}: {winner.seconds:.4g} s{state}>"

    def adopt(self, winner: Winner) -> None:
        """Serve what the records have, unless it is slower than the guess that serves."""
        now = self.winner
        if winner.schedule != now.schedule and (self.recorded or winner.seconds <= now.seconds):
            self._take(winner)
        self.recorded = True

    def search(self, request: Request) -> None:
        """Begin a search in the background, whose winner is adopted."""
        from explorer.background import BackgroundSearch

        plan, store = plan_of(self.workload, request), request.store
        self._settled.clear()

        def ended(trouble: str) -> None:
            try:
                self._trouble = trouble
                if not trouble:
                    self.adopt(best_winner(self.workload, store))
            except TilewrightError as error:
                self._trouble = str(error)
            finally:
                self._settled.set()

        try:
            BackgroundSearch(plan, None if store is None else os.fspath(store), ended)
        except BaseException:
            self._settled.set()
            raise


@dataclass(slots=True)
class _Place:
    """Where the kernel of one workload is found, made by one thread at a time."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    served: ServedKernel | None = None


class Kernels:
    """The kernels that this process has asked for. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: dict[Hashable, ServedKernel] = {}
        self._places: dict[Hashable, _Place] = {}

    def get(
        self,
        operator: OperatorLike,
        arrays: tuple[Any, ...],
        arguments: Mapping[str, Any],
        request: Request,
        refresh: bool = False,
    ) -> ServedKernel:
        """The kernel that was asked for so before, else as records, searches or guesses have it."""
        asked = question(operator, arrays, arguments, request)
        served = None if asked is None else self._asked.get(asked)
        if served is not None and not refresh and (served.recorded or _serves(served, request)):
            return served
        workload = workload_of(operator, arrays, arguments, request)
        place = self._place(workload, request)
        with place.lock:
            served = place.served = _found(place.served, workload, request, refresh)
        if asked is not None:
            self._asked[asked] = served
        return served

    def _place(self, workload: Workload, request: Request) -> _Place:
        facts = (workload.program.key, workload.target, workload.hardware.key, workload.memory)
        with self._lock:
            return self._places.setdefault((*facts, request.address), _Place())


def _serves(served: ServedKernel, request: Request) -> bool:
    """Whether a guess will do."""
    return request.missing == "background" and (served.tuning or bool(served.trouble))


def _found(
    served: ServedKernel | None, workload: Workload, request: Request, refresh: bool
) -> ServedKernel:
    """What serves from now on; raises NothingValid where there is none and none is wanted."""
    if served is not None and not refresh and (served.recorded or _serves(served, request)):
        return served
    if served is not None and request.missing == "tune":
        served.wait()
    try:
        winner = best_winner(workload, request.store)
    except NothingValid:
        if served is not None and (served.recorded or (served.tuning and _serves(served, request))):
            return served
        return _made(served, workload, request)
    if served is None:
        return ServedKernel(winner, recorded=True)
    served.adopt(winner)
    return served


def _made(served: ServedKernel | None, workload: Workload, request: Request) -> ServedKernel:
    """A kernel of which nothing is recorded."""
    if request.missing == "error":
        raise NothingValid(untuned(workload, request)) from None
    if request.missing == "tune":
        winner = _tuned(workload, request)
        if served is None:
            return ServedKernel(winner, recorded=True)
        served.adopt(winner)
        return served
    served = served or ServedKernel(_guess(workload), recorded=False)
    served.search(request)
    return served


def _tuned(workload: Workload, request: Request) -> Winner:
    """What a search finds now."""
    from explorer.job import run_plan, single

    return single(run_plan(plan_of(workload, request), store=request.store)).winner


def _guess(workload: Workload) -> Winner:
    """The cheapest seed, by the backend's estimate, that is right; raises NothingValid."""
    import numpy as np

    from explorer.job import run_schedule
    from explorer.strategies.opening import first_rows

    workload.refuse_unmeasurable()
    space = workload.space()
    said = "the space has no seed"
    for row in first_rows(space, space.seed_rows(np.random.default_rng(0)))[:_GUESSES]:
        schedule = space.schedule(row)
        outcome = run_schedule(workload, schedule)
        if outcome.ok and outcome.seconds is not None:
            return Winner(workload, schedule, outcome.seconds, checked=True)
        said = f"{outcome.status}: {outcome.detail}"
    raise NothingValid(f"{workload.operator}: no first guess was right ({said}); tune it")


_KERNELS = Kernels()
_usual = Request()
os.register_at_fork(after_in_child=_KERNELS.__init__)  # type: ignore[misc]


class Until:
    """What `ask_with` says, until the context ends."""

    def __init__(self, before: Request) -> None:
        self._before = before

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        global _usual
        _usual = self._before


def ask_with(**options: Any) -> Until:
    """See `explorer.ask_with`."""
    global _usual
    until = Until(_usual)
    _usual = replace(_usual, **options)
    return until


def kernel(
    operator: OperatorLike,
    arrays: tuple[Any, ...],
    arguments: Mapping[str, Any],
    *,
    refresh: bool,
    **options: Any,
) -> ServedKernel:
    """See `explorer.kernel`."""
    said = {name: value for name, value in options.items() if value is not None}
    request = replace(_usual, **said) if said else _usual
    return _KERNELS.get(operator, arrays, arguments, request, refresh)


def call(operator: Operator, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """An operator on arrays: arguments by their names, other names are of its tensors."""
    known = _parameters(operator)
    arguments = {name: value for name, value in named.items() if name in known}
    rest = {name: value for name, value in named.items() if name not in known}
    return _KERNELS.get(operator, arrays, arguments, _usual)(*arrays, **rest)


@lru_cache(maxsize=1024)
def _parameters(operator: Operator) -> frozenset[str]:
    return frozenset(operator.parameters)
