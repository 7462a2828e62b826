"""Processor time that noting a collective adds to the thread that calls it. Needs torch (gloo); no GPU.

One rank alone, so that no call waits. Calls of the process group itself stand for those that C++ starts; they and those
of Python are made with and without notes in turn.

Run: PYTHONPATH=src python -m benchmarks.collective_cost
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable

from benchmarks.ranks import free_port

CALLS, ROUNDS = 500, 30


def main() -> None:
    import torch
    import torch.distributed as dist

    from warplens.frontends.torch_distributed import watch_collectives
    from warplens.options import Options
    from warplens.session import Session
    from warplens.session.collective_log import CollectiveLog

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{free_port()}", rank=0, world_size=1)
    group, tensor = dist.group.WORLD, torch.ones(8)
    session = Session(Options.of({}))
    session.collectives = CollectiveLog()

    def cost_us(call: Callable[[], object], calls: int = CALLS) -> float:
        began = time.thread_time()
        for _ in range(calls):
            call()
        return (time.thread_time() - began) / calls * 1e6

    found = {}
    kinds = {"started by C++": lambda: group.allreduce([tensor]).wait(), "Python": lambda: dist.all_reduce(tensor)}
    for name, call in kinds.items():
        plain, noted = [], []
        cost_us(call)
        for _ in range(ROUNDS):
            plain.append(cost_us(call))
            stop = watch_collectives(session)
            cost_us(call, 50)
            noted.append(cost_us(call))
            stop()
        added = [after - before for before, after in zip(plain, noted, strict=True)]
        medians = {"plain_us": plain, "noted_us": noted, "added_us": added}
        found[name] = {key: round(statistics.median(values), 1) for key, values in medians.items()}
    dist.destroy_process_group()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
