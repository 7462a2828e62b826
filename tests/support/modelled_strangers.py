"""Families of kernels as people write them who tune for no profiler: work in the producer, spins, small last steps."""

from __future__ import annotations

import random

from tests.support.modelled_gpu import Alone, Barrier, Device, Get, Modelled, Move, Program, Put, Shared, Work
from tests.support.modelled_kernels import Planted, loading

FREE = {"instructions": 1, "barriers": 1, "unneeded_barriers": 1}


def working_producer(rng: random.Random, device: Device) -> Planted:
    """One warp loads packed values and unpacks them into a ring, three others add them up; or a share of the work."""
    unpack, add, count = rng.randint(800, 1600), rng.randint(60, 150), rng.randint(24, 40)
    names = rng.choice([("wait for slot", "unpack", "wait for row", "add"), ("room", "b", "await row", "d")])
    room, make, ready, use = names

    def made(unpack: float) -> Modelled:
        def program(block: int, warp: int) -> Program:
            for _ in range(count):
                if warp == 3:
                    for _ in range(3):
                        yield room, Get("free")
                    yield make, Move(512)
                    yield make, Work(unpack, 2)
                    for _ in range(3):
                        yield make, Put("full")
                else:
                    yield ready, Get("full")
                    yield use, Shared(8)
                    yield use, Work(add, 2)
                    yield use, Put("free")

        wait = {"instructions": 8, "waits": 1}
        code = {
            **{room: wait, ready: wait, use: {"instructions": add, "shared": 8, "ways": 1}},
            make: {**loading(4, 4), "instructions": unpack, "shared": 32, "ways": 1},
        }
        return Modelled(program, device.sms, 4, 1, code, stages=12)

    return Planted("slow producer", made(unpack), made(unpack / 4), remains=("slow producer", "too little in flight"))


def free_barrier_in_uneven_steps(rng: random.Random, device: Device) -> Planted:
    """Each warp has a list of its own, and inserts much in some steps; the block waits after each step, or does not."""
    warps, steps, seed = rng.choice([4, 8]), rng.randint(30, 60), rng.random()
    names = rng.choice([("insert", "sync"), ("probe", "meet")])

    def made(waits: bool) -> Modelled:
        def program(block: int, warp: int) -> Program:
            own = random.Random(f"{seed} {block} {warp}")
            for _ in range(steps):
                yield names[0], Shared(2)
                yield names[0], Work(own.choice([20, 20, 20, 20, 20, 400]), 1)
                if waits:
                    yield names[1], Barrier()

        counts = {"instructions": 36, "shared": 5, "ways": 1, "loops": 1, "unbounded": 1}
        return Modelled(program, device.sms, warps, 1, {names[0]: counts, names[1]: FREE})

    return Planted("unneeded barrier", made(True), made(False), remains=("warp imbalance", "block imbalance"))


def store_after_the_loop(rng: random.Random, device: Device) -> Planted:
    """A load at a time whose data is used in the next region, then one result: the store takes no time."""
    rounds = 8 * rng.randint(6, 10)

    def made(ahead: int) -> Modelled:
        def program(block: int, warp: int) -> Program:
            for _ in range(rounds // ahead):
                yield "sample", Move(32 * ahead, waits=False)
                yield "blend", Move(0)
                yield "blend", Work(7 * ahead, 1)
            yield "pixel", Move(128, waits=False)

        code = {
            "sample": {"instructions": ahead, "loads": ahead, "load_bytes": ahead, "load_waste": 1}
            | {"moved_bytes": 32 * ahead, "fetch_bytes": 32 * ahead},
            "blend": {"instructions": 7 * ahead},
            "pixel": {"instructions": 4, "stores": 1, "store_waste": 1, "moved_bytes": 128},
        }
        return Modelled(program, 4 * device.sms, 8, 4, code)

    return Planted("too little in flight", made(1), made(8), remains=("too little in flight",))


def last_step_under_a_lock(rng: random.Random, device: Device) -> Planted:
    """Each block adds its sum to a result under a lock, after work of its own; or atomically."""
    work, held = rng.randint(2_000, 6_000), rng.randint(800, 2_000)

    def made(locked: bool) -> Modelled:
        def program(block: int, warp: int) -> Program:
            yield "multiply", Move(2_048)
            yield "multiply", Work(work)
            yield ("update", Alone(held, "enter")) if locked else ("update", Work(40))

        code = {
            "multiply": loading(4, 16, instructions=float(work)),
            "enter": {"instructions": 20, "atomics": 1, "polls": 1, "barriers": 2},
            "update": {"instructions": 40, "atomics": 1},
        }
        return Modelled(program, device.sms, 1, 1, code)

    remains = ("launch ramp", "low occupancy", "too little in flight")
    return Planted("serialised section", made(True), made(False), remains=remains)


STRANGERS = {
    one.__name__: one
    for one in (working_producer, free_barrier_in_uneven_steps, store_after_the_loop, last_step_under_a_lock)
}
