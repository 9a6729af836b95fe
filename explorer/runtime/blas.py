"""Threads of the BLAS that numpy has loaded into this process.

Each matrix of a strategy is small. Shared among threads it takes as long where processors are
free, and tens of times as long where others have work for them: whoever comes last is waited for,
and threads spin for a tenth of a second after each product. Knows no search.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path

from explorer.runtime.together import Together

_NAMES = ("openblas", "mkl_rt", "libblis")  # of libraries
_CALLS = (  # that set and tell the number, under the names that builds give them
    ("scipy_openblas_set_num_threads64_", "scipy_openblas_get_num_threads64_"),
    ("scipy_openblas_set_num_threads", "scipy_openblas_get_num_threads"),
    ("openblas_set_num_threads64_", "openblas_get_num_threads64_"),
    ("openblas_set_num_threads", "openblas_get_num_threads"),
    ("MKL_Set_Num_Threads", "MKL_Get_Max_Threads"),
    ("bli_thread_set_num_threads", "bli_thread_get_num_threads"),
)
_holders = Together()


def one_thread(maps: Path = Path("/proc/self/maps")) -> AbstractContextManager[None]:
    """BLAS computes in the thread that calls it, until the last of those who want that leaves.

    Where the library or its switch is not found, nothing happens.
    """
    return _holders.hold(partial(_alone, maps))


@contextmanager
def _alone(maps: Path) -> Iterator[None]:
    before = [(switch, tell()) for switch, tell in _switches(maps)]
    for switch, _ in before:
        switch(1)
    yield
    for switch, threads in before:
        switch(threads)


def shared_among(threads: int, maps: Path = Path("/proc/self/maps")) -> bool:
    """Have BLAS share its work among so many threads from now on; False where it cannot be told."""
    switches = tuple(_switches(maps))
    for switch, _ in switches:
        switch(threads)
    return bool(switches)


def can_be_told(maps: Path = Path("/proc/self/maps")) -> bool:
    """Whether the BLAS that is loaded has a switch for the number of its threads."""
    return any(True for _ in _switches(maps))


def _switches(maps: Path) -> Iterator[tuple[Callable[[int], object], Callable[[], int]]]:
    """What sets and what tells the number of threads, of each BLAS that is loaded."""
    for path in _loaded(maps):
        with suppress(OSError):
            library = ctypes.CDLL(path)
            for setter, getter in _CALLS:
                if hasattr(library, setter) and hasattr(library, getter):
                    yield getattr(library, setter), getattr(library, getter)
                    break


def _loaded(maps: Path) -> tuple[str, ...]:
    """The files of BLAS libraries in this process; none where the system does not tell."""
    try:
        lines = maps.read_text().splitlines()
    except OSError:
        return ()
    paths = (line.split(maxsplit=5)[-1] for line in lines if "/" in line)
    named = (path for path in paths if any(name in Path(path).name.lower() for name in _NAMES))
    return tuple(dict.fromkeys(path for path in named if ".so" in path))
