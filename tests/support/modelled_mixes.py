"""Modelled kernels as authors write them: close to a limit, with two causes, with blocks that leave early, with queues
in shared memory, with data that a cache has, and with reductions by blocks."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.support.modelled_gpu import Alone, Barrier, Device, Modelled, Move, Program, Shared, Work, run_model
from tests.support.modelled_kernels import Planted, loading

NAMES = (("load", "work"), ("get", "use"), ("rows", "math"), ("a", "b"))


def shared_atomics(rng: random.Random, device: Device) -> Planted:
    """Counters of a block in shared memory: all lanes of a warp at one of them, or each at its own."""
    names, rounds, each = rng.choice(NAMES), rng.randint(12, 24), 8
    ways, slots = rng.choice([24, 32]), rng.choice([2, 4])

    def made(cycles: float) -> Modelled:
        def program(block: int, warp: int) -> Program:
            for _ in range(rounds):
                yield names[0], Move(each * 128)
                for _ in range(each):
                    yield names[1], Work(5)
                    yield names[1], Shared(cycles)

        code = {names[0]: loading(each, 4), names[1]: {"instructions": 6.0 * each, "shared_atomics": each}}
        return Modelled(program, 2 * slots * device.sms, 8, slots, code)

    return Planted("atomics contention", made(ways), made(2), remains=("too little in flight",))


def near_the_memory_roof(rng: random.Random, device: Device) -> Planted:
    """70 to 100 % of what the memory can move: twice the loads in flight show what is left."""
    names, slots, loads = rng.choice(NAMES), rng.choice([2, 4]), rng.choice([2, 4])
    work, rounds = rng.randint(40, 150), 4 * rng.randint(2, 4)

    def made(more: int) -> Modelled:
        def program(block: int, warp: int) -> Program:
            for _ in range(rounds // more):
                yield names[0], Move(more * loads * 512)
                yield names[1], Work(more * work)

        code = {names[0]: loading(more * loads, 16), names[1]: {"instructions": float(more * work)}}
        return Modelled(program, 4 * slots * device.sms, 8, slots, code)

    return Planted("too little in flight", made(1), made(2), remains=("too little in flight",))


def busy_schedulers(rng: random.Random, device: Device) -> Planted:
    """Schedulers that issue most of the time, with a few barriers at which data passes."""
    names, rounds, work = rng.choice(NAMES), rng.randint(6, 12), rng.randint(600, 1500)

    def program(block: int, warp: int) -> Program:
        for _ in range(rounds):
            yield names[0], Move(512)
            yield names[1], Work(work)
            yield names[1], Shared(8)
            yield "sync", Barrier()

    code = {
        names[0]: loading(1, 16),
        names[1]: {"instructions": float(work), "shared": 4, "ways": 1},
        "sync": {"instructions": 1.0, "barriers": 1, "needed_barriers": 1},
    }
    return Planted("", Modelled(program, 6 * device.sms, 8, 4, code))


def two_causes(rng: random.Random, device: Device) -> Planted:
    """Lanes that are apart, and conflicts: the larger of the two comes first."""
    names, rounds, slots = rng.choice(NAMES), rng.randint(4, 8), rng.choice([2, 4])
    waste, ways, loads, accesses = 8.0, rng.choice([8, 32]), rng.choice([2, 4]), rng.choice([8, 64])

    def made(waste: float, ways: int) -> Modelled:
        def program(block: int, warp: int) -> Program:
            for _ in range(rounds):
                yield names[0], Move(loads * 128 * waste)
                yield names[1], Work(3 * accesses)
                yield names[1], Shared(accesses * ways)

        conflicts = {"conflicts": accesses * (ways - 1)} if ways > 1 else {}
        counts = {"instructions": 3.0 * accesses, "shared": accesses, "ways": ways, **conflicts}
        return Modelled(
            program, 4 * slots * device.sms, 8, slots, {names[0]: loading(loads, 4, waste), names[1]: counts}
        )

    both = made(waste, ways)
    joined, padded = made(1.0, ways), made(waste, 1)
    first, second = (run_model(one, device).took for one in (joined, padded))
    if first < 0.9 * second:
        return Planted("uncoalesced access", both, joined, remains=("bank conflicts",))
    if second < 0.9 * first:
        return Planted("bank conflicts", both, padded, remains=("uncoalesced access",))
    return Planted("uncoalesced access", both, joined, also=("bank conflicts",), remains=("bank conflicts",))


def early_blocks(rng: random.Random, device: Device) -> Planted:
    """Two of three blocks find nothing to do, spread over the grid."""
    names, rounds, work = rng.choice(NAMES), rng.randint(1, 2), rng.randint(200, 400)
    busy = {block for block in range(90 * device.sms) if rng.random() < 0.33}

    def program(block: int, warp: int) -> Program:
        yield "check", Move(32)
        for _ in range(rounds if block in busy else 0):
            yield names[0], Move(2048)
            yield names[1], Work(work)

    code = {
        "check": {**loading(1, 4), "instructions": 6.0},
        names[0]: loading(4, 16),
        names[1]: {"instructions": float(work)},
    }
    return Planted("", Modelled(program, 90 * device.sms, 4, 4, code))


def data_in_a_cache(rng: random.Random, device: Device) -> Planted:
    """Twice as much as the memory could move comes from a cache, whose throughput is the limit."""
    names, slots, rounds = rng.choice(NAMES), rng.choice([2, 4]), rng.randint(4, 8)
    loads = rng.choice([4, 8])

    def program(block: int, warp: int) -> Program:
        for _ in range(rounds):
            yield names[0], Move(loads * 512 / 2)
            yield names[1], Work(40)

    return Planted("", Modelled(program, 4 * slots * device.sms, 8, slots,
                                {names[0]: loading(loads, 16), names[1]: {"instructions": 40.0}}))  # fmt: skip


def gathered_rows(rng: random.Random, device: Device) -> Planted:
    """Rows at addresses that were loaded, whole sectors each: the memory is busy with them."""
    names, slots, rounds = rng.choice(NAMES), rng.choice([2, 4]), rng.randint(4, 8)
    loads = rng.choice([8, 16])

    def program(block: int, warp: int) -> Program:
        for _ in range(rounds):
            yield names[0], Move(128)
            yield names[0], Move(loads * 512)
            yield names[1], Work(60)

    moved = 512.0 * loads
    counts = {**loading(loads, 16), "load_waste": 0, "scattered": loads, "gathered_bytes": moved, "load_levels": 2}
    counts["moved_bytes"] = moved + 128
    return Planted("", Modelled(program, 4 * slots * device.sms, 8, slots,
                                {names[0]: counts, names[1]: {"instructions": 60.0}}))  # fmt: skip


def block_reductions(rng: random.Random, device: Device) -> Planted:
    """Each block sums its rows: loads, shuffles, one value per warp in shared memory, in one region without parts."""
    slots, rounds = rng.choice([4, 8]), rng.randint(4, 8)
    loads = rng.choice([4, 8])

    def program(block: int, warp: int) -> Program:
        for _ in range(rounds):
            yield "row", Move(loads * 512)
            yield "row", Work(50)
            yield "row", Shared(1)
            yield "row", Barrier()
            yield "row", Work(20)
            yield "row", Barrier()
            yield "", Work(4)

    code = {"row": {**loading(loads, 16), "instructions": 90.0, "shared": 9, "ways": 1, "barriers": 2,
                    "needed_barriers": 2}}  # fmt: skip
    return Planted("", Modelled(program, 4 * slots * device.sms, 8, slots, code))


def short_turns(rng: random.Random, device: Device) -> Planted:
    """Blocks that stay, and take tiles from a counter: the turn is short beside the tile."""
    names, rounds, work = rng.choice(NAMES), rng.randint(8, 16), rng.randint(1500, 3000)

    def program(block: int, warp: int) -> Program:
        for _ in range(rounds):
            if not warp:
                yield "take", Alone(2, "take")
            yield "sync", Barrier()
            yield names[0], Move(1024)
            yield names[1], Work(work)
            yield "sync", Barrier()

    code = {
        "take": {"instructions": 6.0, "atomics": 1},
        "sync": {"instructions": 1.0, "barriers": 1, "needed_barriers": 1},
        names[0]: loading(2, 16),
        names[1]: {"instructions": float(work)},
    }
    return Planted("", Modelled(program, 2 * device.sms, 8, 2, code))


MIXED_FAMILIES: dict[str, Callable[[random.Random, Device], Planted]] = {
    "shared_atomics": shared_atomics,
    "near_the_memory_roof": near_the_memory_roof,
    "busy_schedulers": busy_schedulers,
    "two_causes": two_causes,
    "early_blocks": early_blocks,
    "data_in_a_cache": data_in_a_cache,
    "gathered_rows": gathered_rows,
    "block_reductions": block_reductions,
    "short_turns": short_turns,
}
