"""Many of Dask's own workers in one process, for machines with few cores: each has its own
connection, name, thread and resources, as one of a process of its own has.

    python experiments/farm/workers.py tcp://127.0.0.1:8786 FIRST COUNT
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack

from distributed import Worker


async def main(address: str, first: int, count: int) -> None:
    """Until the scheduler leaves."""
    async with AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(
                Worker(
                    address,
                    nthreads=1,
                    name=f"w{first + number}",
                    resources={"cpu": 1},
                    preload=["explorer.farm.worker"],
                    host="127.0.0.1",
                    dashboard=False,
                )
            )
            for number in range(count)
        ]
        await asyncio.gather(*(worker.finished() for worker in workers))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
