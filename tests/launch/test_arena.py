"""The arena against a driver whose side stream runs when the test says so."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from warplens.errors import WarplensError
from warplens.launch import arena as arena_file
from warplens.launch.arena import Arena, Range


class LateDriver:
    """Memory as a dictionary of dirty bytes; what goes to a stream happens when `run` is called, or somebody waits."""

    def __init__(self, total: int = 1 << 40) -> None:
        self.left, self.dirty, self.allocated = total, set[int](), dict[int, int]()
        self.queue: list[Callable[[], None]] = []
        self.done: dict[int, bool] = {}
        self.held: list[tuple[int, int]] = []
        self._addresses, self._events = itertools.count(1 << 20, 1 << 20), itertools.count(1)

    def run(self, count: int | None = None) -> None:
        for _ in range(len(self.queue) if count is None else min(count, len(self.queue))):
            self.queue.pop(0)()

    def allocate(self, size: int) -> int:
        if size > self.left:
            raise WarplensError("cuMemAlloc failed: out of memory (CUDA error 2)")
        self.left -= size
        address = next(self._addresses)
        self.allocated[address] = size
        self.dirty.update(range(address, address + size))
        return address

    def free(self, address: int) -> None:
        self.left += self.allocated.pop(address)

    def clear(self, address: int, size: int, stream: int) -> None:
        self.queue.append(lambda: self.dirty.difference_update(range(address, address + size)))

    def clear_rows(self, address: int, pitch: int, width: int, rows: int, stream: int) -> None:
        for row in range(rows):
            self.clear(address + row * pitch, width, stream)

    def new_event(self) -> int:
        return next(self._events)

    def mark(self, event: int, stream: int) -> None:
        self.done[event] = False
        self.queue.append(lambda: self.done.__setitem__(event, True))

    def reached(self, event: int) -> bool:
        return self.done[event]

    def wait(self, event: int) -> None:
        while not self.done[event]:
            self.run(1)

    def hold(self, stream: int, event: int) -> None:
        self.held.append((stream, event))
        self.wait(event)

    def destroy_event(self, event: int) -> None:
        del self.done[event]


STEPS = st.lists(
    st.tuples(st.sampled_from(["take", "take", "give", "run"]), st.integers(1, 12), st.integers(0, 30)), max_size=40
)


@given(STEPS)
def test_ranges_are_clean_apart_and_within_the_budget(steps: list) -> None:
    before = arena_file.SLAB_BYTES
    try:
        lib = LateDriver()
        arena_file.SLAB_BYTES = 1024
        arena = Arena(lib, stream=9, budget=4096)  # type: ignore[arg-type]
        lent: list[Range] = []
        for what, number, which in steps:
            if what == "take":
                found = arena.take(number * 64, 64, stream=1)
                if found is None:
                    assert sum(one.size for one in lent) + number * 64 > 4096 - 1024 or lent
                    continue
                mine = range(found.address, found.address + found.size)
                assert found.address % 64 == 0
                assert lib.dirty.isdisjoint(mine), "handed out zeroed"
                assert all(one.address + one.size <= mine.start or mine.stop <= one.address for one in lent)
                lib.dirty.update(mine)
                lent.append(found)
            elif what == "give" and lent:
                one = lent.pop(which % len(lent))
                arena.give(one, pitch=64, width=64)
            else:
                lib.run(number)
            assert arena.held <= 4096
        for one in lent:
            arena.give(one, pitch=64, width=64)
        lib.run()
        assert arena.take(1024, 64, stream=1) is not None, "all of it is there again"
        arena.release()
        assert (lib.allocated, lib.done) == ({}, {})
    finally:
        arena_file.SLAB_BYTES = before


def test_the_steady_state_asks_the_driver_for_nothing_but_an_event(monkeypatch: Any) -> None:
    monkeypatch.setattr(arena_file, "SLAB_BYTES", 1024)
    lib = LateDriver()
    arena = Arena(lib, stream=9, budget=4096)  # type: ignore[arg-type]
    first = arena.take(256, 64, stream=1)
    assert first is not None
    assert lib.held == [(1, 1)], "the slab's zeroing is not over, so the launch's stream waits for it, not the host"
    arena.give(first, 64, 64)
    lib.run()
    allocations, held = dict(lib.allocated), list(lib.held)
    for _ in range(100):
        taken = arena.take(256, 64, stream=1)
        assert taken is not None
        arena.give(taken, 64, 64)
        lib.run()
    assert (lib.allocated, lib.held) == (allocations, held)
    assert len(lib.done) <= 2, "events are used again"


def test_a_full_device_and_a_spent_budget_are_no_errors() -> None:
    lib = LateDriver(total=100)
    assert Arena(lib, stream=9, budget=1 << 30).take(256, 64, 1) is None  # type: ignore[arg-type]
    assert Arena(LateDriver(), stream=9, budget=100).take(256, 64, 1) is None  # type: ignore[arg-type]


def test_ranges_of_two_slabs_are_never_neighbours(monkeypatch: Any) -> None:
    """Neighbours are copied together, and a driver cannot copy from two slabs at once that it put side by side."""
    monkeypatch.setattr(arena_file, "SLAB_BYTES", 1 << 12)
    driver = LateDriver()
    ends = [1 << 20]

    def side_by_side(size: int) -> int:
        ends.append(ends[-1] + size)
        return ends[-2]

    monkeypatch.setattr(driver, "allocate", side_by_side)
    arena = Arena(driver, 7, 1 << 20)
    taken = [arena.take(1 << 11, 1 << 9, 1) for _ in range(6)]
    assert len(ends) > 3
    found = [one for one in taken if one is not None]
    assert len(found) == 6
    inside = [one for one in found if one.address + one.size in ends]
    assert not inside, "a copy could go on into the next slab"
