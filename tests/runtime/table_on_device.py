"""A script, run by a test where there is a GPU: calls the exported table of additions in the folder
that it is given, on arrays of several lengths, in graphs and from threads.
"""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from typing import Any

COUNTS = (8, 1000, 1024)


def check(sums: Any, cupy: Any, torch: Any) -> None:
    inputs = {
        count: (torch.rand(count, device="cuda").bfloat16(), torch.rand(count, device="cuda"))
        for count in COUNTS
    }
    wanted = {count: a.float() + b for count, (a, b) in inputs.items()}
    for _ in range(3):
        for count in COUNTS:
            assert torch.equal(sums.run(*inputs[count]), wanted[count])
    try:
        sums.run(inputs[8][0][:5], inputs[8][1][:5])
    except ValueError as error:
        print(error)
    else:
        raise AssertionError("a shape without a kernel was accepted")
    pairs = [tuple(map(cupy.from_dlpack, (a.view(torch.int16), b))) for a, b in inputs.values()]
    for (a, b), want in zip(pairs, wanted.values(), strict=True):
        out = sums.run(a.view(cupy.uint16), b)
        assert cupy.array_equal(out, cupy.from_dlpack(want))
    _check_graph(sums, torch, inputs, wanted)
    _check_threads(sums, torch, inputs, wanted)


def _check_graph(sums: Any, torch: Any, inputs: Any, wanted: Any) -> None:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outs = {count: sums.run(*inputs[count]) for count in COUNTS}
    for _ in range(2):
        for out in outs.values():
            out.zero_()
        graph.replay()
        assert all(torch.equal(outs[count], wanted[count]) for count in COUNTS)


def _check_threads(sums: Any, torch: Any, inputs: Any, wanted: Any) -> None:
    wrong = []

    def call(count: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(100):
                if not torch.equal(sums.run(*inputs[count]), wanted[count]):
                    wrong.append(count)

    torch.cuda.synchronize()
    threads = [threading.Thread(target=call, args=(count,)) for count in (*COUNTS, *COUNTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong


def main(folder: str) -> None:
    sys.path.insert(0, folder)
    check(import_module("sums"), import_module("cupy"), import_module("torch"))
    assert not {"ir", "explorer"} & set(sys.modules)
    print("good")


if __name__ == "__main__":
    main(sys.argv[1])
