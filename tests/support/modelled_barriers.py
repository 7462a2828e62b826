"""More families of kernels for the modelled GPU: barriers that are needed or not, queues behind them, rings, waves."""

from __future__ import annotations

import random

from tests.support.modelled_gpu import Arrive, Barrier, Device, Modelled, Move, Program, Shared, Work
from tests.support.modelled_kernels import Planted, loading, ring

NEEDED = {"instructions": 1, "barriers": 1, "needed_barriers": 1}


def uneven_rounds(rng: random.Random, device: Device) -> Planted:
    """Tasks of very different length, dealt to the warps of a block, which exchange results after each round; or the
    same tasks in equal parts."""
    names = rng.choice([("visit", "meet"), ("a", "b"), ("rows", "sync")])
    warps, rounds, seed = rng.choice([4, 8]), rng.randint(8, 16), rng.random()
    shape = rng.uniform(0.8, 1.2)

    def made(even: bool) -> Modelled:
        def program(block: int, warp: int) -> Program:
            own = random.Random(f"{seed} {block}")
            tasks = [min(2 / (1 - own.random()) ** shape, 60) for _ in range(rounds * warps)]
            for turn in range(rounds):
                mine = tasks[turn * warps : (turn + 1) * warps]
                for _ in range(round(sum(mine) / warps if even else mine[warp])):
                    yield names[0], Move(512)
                    yield names[0], Work(20)
                yield names[1], Barrier()

        visit = loading(1, 16, loops=1, unbounded=1, repeats=1)
        return Modelled(program, 2 * device.sms, warps, 2, {names[0]: visit, names[1]: NEEDED})

    # A load at a time for each task, and blocks whose tasks are longer than those of others.
    remains = ("too little in flight", "low occupancy", "block imbalance")
    return Planted("warp imbalance", made(False), made(True), remains=remains)


def tree_in_a_region(rng: random.Random, device: Device) -> Planted:
    """Sums by a tree with a barrier per level, inside one region; most levels are one warp's own. Or by shuffles, with
    one barrier."""
    warps, rounds, name = rng.choice([8, 16]), rng.randint(40, 60), rng.choice(["combine", "fold", "tree"])
    levels, slots = 5 + warps.bit_length() - 1, rng.choice([1, 2])

    def made(barriers: int) -> Modelled:
        def program(block: int, warp: int) -> Program:
            for _ in range(rounds):
                yield "fetch", Move(128, waits=False)
                yield name, Arrive()
                for level in range(levels):
                    yield name, Work(8 if warp == 0 or level < 1 else 3, 1)
                    if level < barriers:
                        yield name, Shared(1)
                        yield name, Barrier()

        needed = min(barriers, levels - 5)
        code = {
            "fetch": loading(1, 4),
            name: {
                **{"instructions": 8.0 * levels, "shared": 1.5 * barriers, "ways": 1, "barriers": barriers},
                **{"needed_barriers": needed, "unneeded_barriers": barriers - needed},
            },
        }
        return Modelled(program, slots * device.sms, warps, slots, code)

    # With one barrier a round takes as long as its load, of which each warp has one.
    return Planted("unneeded barrier", made(levels), made(1), remains=("too little in flight",))


def conflicts_before_barriers(rng: random.Random, device: Device) -> Planted:
    """A tile is turned in shared memory, with a barrier before it is read and one after, each marked by itself."""
    ways, rounds, warps = rng.choice([8, 16, 32]), rng.randint(40, 60), 8
    slots = rng.choice([2, 4])

    def made(ways: int) -> Modelled:
        def program(block: int, warp: int) -> Program:
            for _ in range(rounds):
                for times in (4 * ways, 4):
                    yield "put" if times > 4 or ways == 1 else "take", Shared(times)
                    yield "take", Work(6)
                    yield "sync", Barrier()

        conflicts = {"conflicts": 4.0 * (ways - 1)} if ways > 1 else {}
        code = {
            "put": {"instructions": 8.0, "shared": 4, "ways": ways, **conflicts},
            "take": {"instructions": 10.0, "shared": 2, "ways": 1},
            "sync": NEEDED,
        }
        return Modelled(program, slots * device.sms, warps, slots, code)

    return Planted("bank conflicts", made(ways), made(1))


def wave_of_shared_sms(rng: random.Random, device: Device) -> Planted:
    """Blocks that keep the schedulers busy together: one more on a few SMs takes a part of the others' time."""
    slots, few, work = 4, rng.randint(2, device.sms // 4), rng.randint(3000, 5000)
    blocks = slots * device.sms + few

    def made(parts: int) -> Modelled:
        def program(block: int, warp: int) -> Program:
            for _ in range(8 // parts):
                yield "get", Move(512, waits=False)
                yield "filter", Work(work, 4)

        code = {"get": loading(1, 16), "filter": {"instructions": float(work)}}
        return Modelled(program, parts * blocks, 8, slots, code)

    return Planted("last wave", made(1), made(8), remains=("block turnover",))


def busy_ring(rng: random.Random, device: Device) -> Planted:
    """A ring with enough stages whose copies keep the memory busy: both sides wait, and more stages change nothing."""
    tile, count, stages = rng.choice([16_384, 32_768]), rng.randint(30, 50), rng.randint(3, 6)
    return Planted("", ring(device, stages, tile, 20, rng.randint(100, 300), count))


def equal_work_at_a_needed_barrier(rng: random.Random, device: Device) -> Planted:
    """Tiles that warps exchange in shared memory: they wait for one another's loads, and all have the same work."""
    rounds, warps, slots = rng.randint(6, 12), rng.choice([4, 8]), rng.choice([2, 4])
    work = rng.randint(300, 800)

    def program(block: int, warp: int) -> Program:
        for _ in range(rounds):
            yield "load", Move(4 * 512)
            yield "sync", Barrier()
            yield "use", Shared(16)
            yield "use", Work(work)
            yield "sync", Barrier()

    code = {"load": loading(4, 16), "sync": NEEDED, "use": {"instructions": float(work), "shared": 16, "ways": 1}}
    return Planted("", Modelled(program, 4 * slots * device.sms, warps, slots, code))


BARRIER_FAMILIES = {
    one.__name__: one
    for one in (
        uneven_rounds, tree_in_a_region, conflicts_before_barriers, wave_of_shared_sms, busy_ring,
        equal_work_at_a_needed_barrier,
    )
}  # fmt: skip
