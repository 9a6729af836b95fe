"""Rows of features on disk, for more of them than fit in memory: matrices in files, and the pages
in which XGBoost takes them from there.

Knows neither groups nor models.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from xgboost import DMatrix

PAGE_BYTES = 32 << 20  # of features that are in memory at a time
Matrix = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class OnDisk:
    """A matrix in a file, which is read whenever it is asked for a part, and then let go."""

    path: Path
    shape: tuple[int, int]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Matrix:
        return np.asarray(self.__array__()[key])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Matrix:
        found: Matrix = np.load(self.path, allow_pickle=False)
        return found if dtype is None else found.astype(dtype)

    @property
    def nbytes(self) -> int:
        return self.shape[0] * self.shape[1] * np.dtype(np.float32).itemsize


@dataclass(slots=True)
class Shelf:
    """A folder that takes matrices, and has room for the pages that training makes of them."""

    folder: Path
    count: int = 0

    def put(self, matrix: Matrix) -> OnDisk:
        """Write a matrix to a file of its own; raises OSError where there is no room."""
        path = self.folder / f"{self.count}.npy"
        self.count += 1
        np.save(path, np.ascontiguousarray(matrix, dtype=np.float32), allow_pickle=False)
        return OnDisk(path, (matrix.shape[0], matrix.shape[1]))

    def pages(self) -> str:
        """A prefix of the names of files for one training's pages."""
        self.count += 1
        return str(self.folder / f"pages{self.count}")


@dataclass(frozen=True)
class Blocks:
    """Matrices on a shelf that are one matrix, their rows one below the other, as far as `kept`."""

    parts: Sequence[OnDisk]
    shelf: Shelf
    kept: NDArray[np.bool_] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        rows = sum(map(len, self.parts)) if self.kept is None else int(self.kept.sum())
        return rows, self.parts[0].shape[1]

    def only(self, kept: NDArray[np.bool_]) -> Blocks:
        """The rows of which `kept` says so; of all of them once."""
        return Blocks(self.parts, self.shelf, kept)

    def batches(self, most: int | None = None) -> Iterator[Matrix]:
        """The rows in order, in arrays of at most so many bytes, one at a time in memory."""
        most = most or PAGE_BYTES
        rows = max(1, most // (4 * self.parts[0].shape[1]))
        waiting: list[Matrix] = []
        start = 0
        for part in self.parts:
            end = start + len(part)
            found = part[:] if self.kept is None else part[self.kept[start:end]]
            start = end
            waiting.append(found)
            while sum(map(len, waiting)) >= rows:
                whole = np.concatenate(waiting)
                yield whole[:rows]
                waiting = [whole[rows:].copy()]
        if sum(map(len, waiting)):
            yield np.concatenate(waiting)


def paged(
    blocks: Blocks, labels: NDArray[Any], weights: NDArray[Any], bins: int, threads: int
) -> DMatrix:
    """The rows as XGBoost keeps them: binned, in pages on the shelf that it reads by turns.

    Versions before 3.0 keep the bins in memory, a byte for each number.
    """
    import xgboost

    class Pages(xgboost.DataIter):
        """Hands out one batch after the other, with its labels."""

        def __init__(self) -> None:
            self._batches = blocks.batches()
            self._at = 0
            super().__init__(cache_prefix=blocks.shelf.pages())

        def next(self, input_data: Any) -> bool:
            batch = next(self._batches, None)
            if batch is None:
                return False
            end = self._at + len(batch)
            input_data(data=batch, label=labels[self._at : end], weight=weights[self._at : end])
            self._at = end
            return True

        def reset(self) -> None:
            self._batches, self._at = blocks.batches(), 0

    kind = getattr(xgboost, "ExtMemQuantileDMatrix", xgboost.QuantileDMatrix)
    found: DMatrix = kind(Pages(), max_bin=bins, nthread=threads)
    return found
