"""Families of kernels for the modelled GPU: each with one cause of lost time, or none, and its repair."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.support.modelled_gpu import (
    Alone,
    Arrive,
    Barrier,
    Device,
    Get,
    Modelled,
    Move,
    Program,
    Put,
    Queue,
    Shared,
    Work,
)


@dataclass(frozen=True)
class Planted:
    """A kernel with `cause`, and the repaired one; without a cause, there is nothing to repair."""

    cause: str
    broken: Modelled
    repaired: Modelled | None = None
    also: tuple[str, ...] = ()
    """Other names that are as right."""
    remains: tuple[str, ...] = ()
    """What the repaired kernel still has."""


def loading(loads: int, width: int, waste: float = 1.0, **more: float) -> dict[str, float]:
    """The counts of a region with so many independent loads of `width` bytes per lane."""
    moved = 32.0 * width * loads
    return {
        **{"instructions": 3 * loads + 4, "loads": loads, "load_bytes": width * loads, "load_waste": waste},
        **{"moved_bytes": moved, "wasted_bytes": moved * (waste - 1), "fetch_bytes": moved * waste},
        **more,
    }


def _rows(rng: random.Random, device: Device, loads: int, width: int, waste: float, work: float, warps: int, slots: int,
          names: tuple[str, str], apart: bool, blocks: int, rounds: int) -> Modelled:  # fmt: skip
    """Warps that load and use what they loaded, in rounds; `apart` ends the load before its data is there."""
    moved = 32 * width * loads * waste

    def program(block: int, warp: int) -> Program:
        for _ in range(rounds):
            yield names[0], Move(moved, waits=not apart)
            if apart:
                yield names[1], Arrive()
            yield names[1], Work(work)

    code = {names[0]: loading(loads, width, waste), names[1]: {"instructions": work}}
    return Modelled(program, blocks, warps, slots, code)


def _names(rng: random.Random) -> tuple[str, str]:
    return rng.choice([("load", "work"), ("step 1", "step 2"), ("get", "use"), ("rows", "math")])


def too_little_in_flight(rng: random.Random, device: Device) -> Planted:
    names, apart = _names(rng), rng.random() < 0.5
    warps, slots = rng.choice([(4, 1), (4, 2), (8, 1)])
    rounds, blocks = rng.randint(2, 5), device.sms * slots
    work, rest = rng.randint(10, 40), (warps, slots, names, apart, blocks)
    return Planted("too little in flight", _rows(rng, device, 1, 4, 1.0, work, *rest, 16 * rounds),
                   _rows(rng, device, 16, 4, 1.0, 16 * work, *rest, rounds))  # fmt: skip


def memory_bound(rng: random.Random, device: Device) -> Planted:
    slots = rng.choice([2, 4])
    args = (rng.choice([4, 8]), 16, 1.0, rng.randint(10, 60), 8, slots, _names(rng), rng.random() < 0.5)
    return Planted("", _rows(rng, device, *args, 2 * slots * device.sms, rng.randint(3, 6)))


def memory_bound_few_warps(rng: random.Random, device: Device) -> Planted:
    """Few warps that each have much in flight; shared memory lets no more of them on an SM, which nobody misses."""
    made = _rows(rng, device, 32, 16, 1.0, 20, 2, 2, _names(rng), rng.random() < 0.5, 4 * device.sms, rng.randint(6, 9))
    return Planted("", Modelled(made.program, made.blocks, 2, 2, made.code, extra={"shared_bytes": 24_000}))


def compute_bound(rng: random.Random, device: Device) -> Planted:
    made = _rows(rng, device, 2, 16, 1.0, rng.randint(3000, 5000), 8, 4, _names(rng), rng.random() < 0.5,
                 8 * device.sms, rng.randint(3, 6))  # fmt: skip
    return Planted("", made)


def uncoalesced(rng: random.Random, device: Device) -> Planted:
    args = (rng.randint(10, 40), 8, 4, _names(rng), rng.random() < 0.5, 8 * device.sms, rng.randint(3, 6))
    return Planted("uncoalesced access", _rows(rng, device, 4, 4, 8.0, *args), _rows(rng, device, 4, 4, 1.0, *args))


def bank_conflicts(rng: random.Random, device: Device) -> Planted:
    ways, accesses, rounds = rng.choice([8, 16, 32]), rng.choice([16, 32]), rng.randint(6, 12)
    names = rng.choice([("fill", "scan"), ("a", "b")])

    def made(ways: int) -> Modelled:
        def program(block: int, warp: int) -> Program:
            for _ in range(rounds):
                yield names[0], Work(30)
                for _ in range(4):
                    yield names[1], Shared(accesses / 4 * ways)
                    yield names[1], Work(accesses / 2)

        conflicts = {"conflicts": accesses * (ways - 1)} if ways > 1 else {}
        counts = {"instructions": 3 * accesses, "shared": accesses, "ways": ways, **conflicts}
        return Modelled(program, 2 * device.sms, 8, 2, {names[0]: {"instructions": 30}, names[1]: counts})

    return Planted("bank conflicts", made(ways), made(1))


def too_few_blocks(rng: random.Random, device: Device) -> Planted:
    names, blocks = _names(rng), rng.randint(device.sms // 8, device.sms // 2)
    rounds, parts = rng.randint(16, 32), 8
    args = (4, 16, 1.0, rng.randint(200, 500), 8)
    return Planted("too few blocks", _rows(rng, device, *args, 1, names, False, blocks, rounds),
                   _rows(rng, device, *args, 8, names, False, blocks * parts, rounds // parts),
                   remains=("last wave",))  # fmt: skip


def last_wave(rng: random.Random, device: Device) -> Planted:
    slots, whole = rng.choice([1, 2]), rng.choice([1, 2])
    blocks = device.sms * slots * whole + rng.randint(1, device.sms // 4)
    names, rounds = _names(rng), 16
    work = rng.randint(1500, 2500)

    def made(parts: int) -> Modelled:
        def program(block: int, warp: int) -> Program:
            for _ in range(rounds // parts):
                yield names[0], Move(512, waits=False)
                yield names[1], Work(work)

        code = {names[0]: loading(1, 16), names[1]: {"instructions": work}}
        return Modelled(program, parts * blocks, 8, slots, code)

    return Planted("last wave", made(1), made(8), remains=("block turnover",))


def block_imbalance(rng: random.Random, device: Device) -> Planted:
    blocks, names = 6 * device.sms, _names(rng)
    longest, few = rng.randint(8, 20), rng.randint(2, 6)
    late = {blocks - 1 - rng.randrange(device.sms) for _ in range(few)}
    work = rng.randint(800, 1600)

    def made(even: bool) -> Modelled:
        total = blocks + (longest * 4 - 4) * len(late) / 4

        def program(block: int, warp: int) -> Program:
            rounds = round(4 * total / blocks) if even else 4 * longest if block in late else 4
            for _ in range(rounds):
                yield names[0], Move(512, waits=False)
                yield names[1], Work(work)

        return Modelled(program, blocks, 4, 2, {names[0]: loading(1, 16), names[1]: {"instructions": work}})

    return Planted("block imbalance", made(False), made(True))


def warp_imbalance(rng: random.Random, device: Device) -> Planted:
    names, many = _names(rng), rng.randint(4, 8)
    work, rounds, busy = rng.randint(400, 900), rng.randint(4, 8), rng.randrange(4)

    def made(even: bool) -> Modelled:
        def program(block: int, warp: int) -> Program:
            for _ in range(rounds):
                yield names[0], Move(512, waits=False)
                share = (many + 3) / 4 if even else many if warp == busy else 1
                yield names[1], Work(work * share, 1)
                yield "sync", Barrier()

        code = {names[0]: loading(1, 16), names[1]: {"instructions": work}, "sync": {"instructions": 1, "barriers": 1}}
        return Modelled(program, 2 * device.sms, 4, 1, code)

    return Planted("warp imbalance", made(False), made(True))


def unneeded_barrier(rng: random.Random, device: Device) -> Planted:
    names, seed, rounds = _names(rng), rng.random(), rng.randint(4, 8)

    def made(barrier: bool) -> Modelled:
        def program(block: int, warp: int) -> Program:
            own = random.Random(f"{seed} {block} {warp}")
            for lasts in own.sample([200, 200, 200, 1400] * rounds, 4 * rounds):
                yield names[1], Work(lasts, 1)
                if barrier:
                    yield "sync", Barrier()

        code = {names[1]: {"instructions": 500}, "sync": {"instructions": 1, "barriers": 1}}
        return Modelled(program, device.sms, 4, 1, code)

    return Planted("unneeded barrier", made(True), made(False))


def lock(rng: random.Random, device: Device) -> Planted:
    names, held, rounds = _names(rng), rng.randint(300, 900), rng.randint(1, 3)

    def made(locked: bool) -> Modelled:
        def program(block: int, warp: int) -> Program:
            for _ in range(rounds):
                yield names[0], Move(512)
                yield names[1], Work(300)
                if warp == 0 and locked:
                    yield "merge", Alone(held, "enter")
                elif warp == 0:
                    yield "merge", Work(2 * held)
                yield "sync", Barrier()

        code = {
            **{names[0]: loading(1, 16), names[1]: {"instructions": 300}, "sync": {"instructions": 1, "barriers": 1}},
            **{"enter": {"instructions": 8, "polls": 1, "atomics": 1}, "merge": {"instructions": 60}},
        }
        return Modelled(program, 2 * device.sms, 4, 2, code)

    return Planted("serialised section", made(True), made(False))


def contended_atomics(rng: random.Random, device: Device) -> Planted:
    names, rounds = _names(rng), rng.randint(3, 6)

    def made(shared: bool) -> Modelled:
        def program(block: int, warp: int) -> Program:
            for turn in range(rounds):
                yield names[0], Move(2048)
                yield names[1], Work(60)
                if shared or (turn == rounds - 1 and warp == 0):
                    yield "add", Queue(20 if shared else 1)

        code = {names[0]: loading(4, 16), names[1]: {"instructions": 60}, "add": {"instructions": 5, "atomics": 1}}
        return Modelled(program, 4 * device.sms, 8, 4, code)

    return Planted("atomics contention", made(True), made(False))


def low_occupancy(rng: random.Random, device: Device) -> Planted:
    """Dependent loads of few warps, as shared memory lets one block of them on an SM."""
    names, rounds = _names(rng), rng.randint(6, 12)
    made = [_rows(rng, device, 1, 4, 1.0, 20, 4, slots, names, False, 8 * device.sms, rounds) for slots in (1, 8)]
    few, many = (
        Modelled(one.program, one.blocks, 4, one.slots, one.code, extra={"shared_bytes": shared})
        for one, shared in zip(made, (40_000, 0), strict=True)
    )
    return Planted("low occupancy", few, many, also=("too little in flight",))


def ring(
    device: Device,
    stages: int,
    tile: int,
    produce: float,
    consume: float,
    count: int,
    names: tuple[str, str, str, str] = ("wait empty", "copy", "wait full", "math"),
) -> Modelled:
    """One warp copies tiles into a ring of stages, and another one uses them."""
    room, copy, ready, use = names

    def program(block: int, warp: int) -> Program:
        for _ in range(count):
            if warp == 1:
                yield room, Get("free")
                yield copy, Work(produce, 1)
                yield copy, Put("full", tile)
            else:
                yield ready, Get("full")
                yield use, Work(consume, 1)
                yield use, Put("free")

    code = {
        **{room: {"instructions": 5, "waits": 1}, ready: {"instructions": 5, "waits": 1}},
        copy: {"instructions": produce, "copies": 1, "moved_bytes": tile},
        use: {"instructions": consume, "shared": 8, "ways": 1},
    }
    return Modelled(program, device.sms, 2, 1, code, stages=stages)


def slow_producer(rng: random.Random, device: Device) -> Planted:
    produce, count = rng.randint(1200, 2400), rng.randint(24, 40)
    consume = rng.randint(200, 500)
    broken, repaired = (ring(device, 4, 2048, each, consume, count) for each in (produce, produce / 8))
    return Planted("slow producer", broken, repaired, remains=("slow consumer", "too little in flight"))


def slow_consumer(rng: random.Random, device: Device) -> Planted:
    consume, count = rng.randint(1500, 3000), rng.randint(24, 40)
    return Planted("slow consumer", ring(device, 4, 2048, 40, consume, count),
                   ring(device, 4, 2048, 40, consume / 4, count), remains=("slow consumer",))  # fmt: skip


def shallow_ring(rng: random.Random, device: Device) -> Planted:
    consume, count = rng.randint(150, 500), rng.randint(24, 40)
    return Planted("too little in flight", ring(device, 1, 1024, 40, consume, count),
                   ring(device, 8, 1024, 40, consume, count), remains=("slow consumer",))  # fmt: skip


def launch_ramp(rng: random.Random, device: Device) -> Planted:
    made = _rows(rng, device, 2, 16, 1.0, 30, 4, 4, _names(rng), False, device.sms, rng.randint(1, 2))
    often = Modelled(made.program, made.blocks, 4, 4, made.code, extra={"variant_launches": rng.randint(20, 200)})
    return Planted("launch ramp", often)


def broadcast_weights(rng: random.Random, device: Device) -> Planted:
    """Memory bound in what blocks read alone; all of them also read the same weights, from a cache."""
    names = _names(rng)
    own, rounds, slots = 16 * 512, rng.randint(3, 5), rng.choice([2, 4])

    def program(block: int, warp: int) -> Program:
        for _ in range(rounds):
            yield names[0], Move(own)
            yield names[1], Work(40)

    counts = loading(32, 16)
    counts["moved_by_"] = counts["moved_bytes"] / 2
    return Planted(
        "", Modelled(program, 4 * slots * device.sms, 8, slots, {names[0]: counts, names[1]: {"instructions": 40}})
    )


def cached_latency(rng: random.Random, device: Device) -> Planted:
    """All blocks look up the same table, word by word: what is asked for is no traffic, and latency is the limit."""
    names, rounds, apart = _names(rng), rng.randint(2, 5), rng.random() < 0.5
    warps = rng.choice([2, 4])

    def made(loads: int) -> Modelled:
        def program(block: int, warp: int) -> Program:
            for _ in range(rounds * 16 // loads):
                yield names[0], Move(8 * loads, waits=not apart)
                if apart:
                    yield names[1], Arrive()
                yield names[1], Work(10 * loads)

        counts = loading(loads, 4)
        counts["moved_by_"] = counts["moved_bytes"]
        return Modelled(program, device.sms, warps, 1, {names[0]: counts, names[1]: {"instructions": 10 * loads}})

    return Planted("too little in flight", made(1), made(16))


def busy_with_free_places(rng: random.Random, device: Device) -> Planted:
    """Registers let one block of eight warps on an SM, whose instructions do not depend on one another: the schedulers
    are busy, and more warps would change nothing."""
    names, rounds = _names(rng), rng.randint(6, 10)
    work = rng.randint(2000, 4000)

    def program(block: int, warp: int) -> Program:
        for _ in range(rounds):
            yield names[0], Move(512, waits=False)
            yield names[1], Work(work, 4)

    code = {names[0]: loading(1, 16), names[1]: {"instructions": work}}
    return Planted("", Modelled(program, 4 * device.sms, 8, 1, code, extra={"registers": 230}))


def long_blocks_first(rng: random.Random, device: Device) -> Planted:
    """Uneven blocks in a good order: the SMs end together, with places free on them while the last blocks run."""
    names, blocks = _names(rng), 8 * device.sms
    seed = rng.random()

    def program(block: int, warp: int) -> Program:
        rounds = 1 + round(16 * (1 - block / blocks) ** 3 + random.Random(f"{seed} {block}").random())
        for _ in range(rounds):
            yield names[0], Move(512, waits=False)
            yield names[1], Work(600, 4)

    code = {names[0]: loading(1, 16), names[1]: {"instructions": 600.0}}
    return Planted("", Modelled(program, blocks, 8, 2, code))


def conflicts_that_do_not_matter(rng: random.Random, device: Device) -> Planted:
    """A memory bound kernel that turns what it loads in shared memory: a few conflicts, and all wait for the memory."""
    names, ways, rounds = _names(rng), rng.choice([4, 8]), rng.randint(2, 4)

    def program(block: int, warp: int) -> Program:
        for _ in range(rounds):
            yield names[0], Move(8 * 512, waits=False)
            yield names[1], Arrive()
            yield names[1], Shared(8 * ways)
            yield names[1], Work(40)

    turn = {"instructions": 40.0, "shared": 8, "ways": ways, "conflicts": 8 * (ways - 1)}
    return Planted("", Modelled(program, 8 * device.sms, 8, 4, {names[0]: loading(8, 16), names[1]: turn}))


def spread_atomics(rng: random.Random, device: Device) -> Planted:
    """Atomics on addresses of their own, each waited for, beside enough other warps."""
    names, rounds = _names(rng), rng.randint(2, 4)

    def program(block: int, warp: int) -> Program:
        for _ in range(rounds):
            yield names[0], Move(8 * 512)
            yield names[1], Work(40)
            yield "add", Move(32)

    code = {names[0]: loading(8, 16), names[1]: {"instructions": 40.0}, "add": {"instructions": 4.0, "atomics": 1}}
    return Planted("", Modelled(program, 8 * device.sms, 8, 4, code))


def tiles_with_barriers(rng: random.Random, device: Device) -> Planted:
    """Tiles that all warps of a block load, then use: two barriers a round, and enough blocks to fill the waits."""
    names, rounds = _names(rng), rng.randint(4, 8)
    work = rng.randint(1200, 2000)

    def program(block: int, warp: int) -> Program:
        for _ in range(rounds):
            yield names[0], Move(512)
            yield "sync", Barrier()
            yield names[1], Work(work)
            yield "sync", Barrier()

    code = {names[0]: loading(1, 16), names[1]: {"instructions": work}, "sync": {"instructions": 1.0, "barriers": 1}}
    return Planted("", Modelled(program, 8 * device.sms, 8, 4, code))


def copies_by_one_thread(rng: random.Random, device: Device) -> Planted:
    """One thread of each block starts a bulk copy, all warps wait for it; four stages keep the memory busy."""
    tile, rounds, stages = rng.choice([8192, 16384]), rng.randint(10, 16), 4

    def program(block: int, warp: int) -> Program:
        yield "fill", Move(stages * tile / 4, waits=False)
        for _ in range(rounds):
            yield "wait for tile", Arrive()
            yield "use", Work(60)
            yield "issue", Move(tile / 4, waits=False)

    code = {
        "fill": {"instructions": 20.0, "copies": stages, "block_bytes": stages * tile},
        "issue": {"instructions": 8.0, "copies": 1, "block_bytes": tile},
        "wait for tile": {"instructions": 4.0, "waits": 1},
        "use": {"instructions": 60.0, "shared": 8, "ways": 1},
    }
    return Planted("", Modelled(program, 4 * device.sms, 4, 2, code))


FAMILIES: dict[str, Callable[[random.Random, Device], Planted]] = {
    one.__name__: one
    for one in (
        too_little_in_flight, memory_bound, memory_bound_few_warps, compute_bound, uncoalesced, bank_conflicts,
        too_few_blocks, last_wave, block_imbalance, warp_imbalance, unneeded_barrier, lock, contended_atomics,
        low_occupancy, slow_producer, slow_consumer, shallow_ring, launch_ramp, broadcast_weights, cached_latency,
        busy_with_free_places, long_blocks_first, conflicts_that_do_not_matter, spread_atomics, tiles_with_barriers,
        copies_by_one_thread,
    )
}  # fmt: skip
