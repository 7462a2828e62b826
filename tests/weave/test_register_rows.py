"""Rows in registers hold the count, sum, extremes and histogram of all durations that were added to them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.looped_ptx import HEAD
from warplens import simulate
from warplens.record.aggregate_rows import BUCKETS, AggregateLayout, AggregateRow, bucket_of, read_aggregates
from warplens.record.layout import HEADER_BYTES, SLOT_BYTES
from warplens.simulate import GlobalMemory
from warplens.weave.register_rows import LANE_BUCKETS, NEVER, RECORDS, RegisterRows, set_lane_buckets

LAYOUT = AggregateLayout((AggregateRow(1, -1),))
EDGES = sorted({max(0, (1 << bit) + more) for bit in range(32) for more in (-1, 0, 1, 1 << max(bit - 2, 0))})
"""Durations at the edges of the buckets."""


def kernel(*, late: bool, timed: bool, records: bool) -> str:
    """A warp that adds up `count` durations from memory."""
    declared: list[str] = []

    def new(size: str) -> str:
        declared.append(f".reg .{size} %wl_ag{len(declared)};")
        return f"%wl_ag{len(declared) - 1}"

    rows = RegisterRows(LAYOUT, [0], [0] if late else [], [0] if timed else [], new)
    opening = rows.opening()
    # A late row begins with an execution that never was.
    first = [f"mov.u32 %r2, {NEVER};", *rows.add(0, "%r2")] if late else []
    body = rows.add(0, "%r2")
    rows.late = frozenset()  # nothing waits at the end
    closing = rows.closing(lambda row: ("", ""), ())
    lines = [
        ".reg .b32 %r<9>, %wl_z, %wl_v; .reg .b64 %rd<9>, %wl_a; .reg .pred %p1, %wl_p, %wl_q;",
        f".reg .b32 {LANE_BUCKETS}; .reg .pred {RECORDS};",
        *declared,
        "ld.param.u64 %rd1, [given]; ld.param.u32 %r1, [count]; ld.param.u64 %wl_a, [rows];",
        f"mov.b32 %wl_z, 0; mov.u32 %r3, %tid.x; {'' if records else 'mov.b32 %r3, -1;'}",
        f"setp.eq.u32 %wl_p, %r3, 0; setp.ne.u32 {RECORDS}, %r3, -1;",
        set_lane_buckets("%r3"),
        *opening,
        *first,
        "$loop:",
        "ld.global.u32 %r2, [%rd1];",
        *body,
        "add.s64 %rd1, %rd1, 4; sub.u32 %r1, %r1, 1; setp.ne.u32 %p1, %r1, 0;",
        "@%p1 bra $loop;",
        *closing,
        "ret;",
    ]
    text = "\n".join("\t" + line.lstrip() if line != "$loop:" else line for line in lines)
    return f"{HEAD}\n.visible .entry k(.param .u64 given, .param .u32 count, .param .u64 rows)\n{{\n{text}\n}}\n"


def added(durations: list[int], *, late: bool = False, timed: bool = False, records: bool = True) -> bytes:
    memory = GlobalMemory(1 << 20)
    given_at = memory.alloc(np.asarray(durations, np.uint32))
    size = HEADER_BYTES + LAYOUT.slots * SLOT_BYTES
    at = memory.alloc(np.zeros(size, np.uint8), align=128)
    text = kernel(late=late, timed=timed, records=records)
    simulate.run(text, "k", (1, 1, 1), (32, 1, 1), [given_at, len(durations), at], memory=memory)
    return bytes(memory.read(at + HEADER_BYTES, np.uint8, size - HEADER_BYTES))


@settings(max_examples=20, deadline=None)
@given(durations=st.lists(st.integers(0, NEVER - 1), min_size=1, max_size=60), late=st.booleans())
@example(durations=EDGES, late=False)
@example(durations=EDGES, late=True)
@example(durations=[0, 0, 1], late=False)
def test_all_that_was_added_is_there(durations: list[int], late: bool) -> None:
    timed = min(durations) > 0
    found = read_aggregates(LAYOUT, np.frombuffer(added(durations, late=late, timed=timed), np.uint8)[None])
    assert found.count[0, 0] == len(durations)
    assert found.total[0, 0] == sum(durations)
    assert (found.least[0, 0], found.most[0, 0]) == (min(durations), max(durations))
    expected = Counter(bucket_of(durations).tolist())
    assert {bucket: int(found.histogram[0, 0, bucket]) for bucket in range(BUCKETS)} == {
        bucket: expected[bucket] for bucket in range(BUCKETS)
    }


@pytest.mark.parametrize("timed", [False, True])
def test_a_warp_that_does_not_record_stores_nothing(timed: bool) -> None:
    assert not any(added([1, 5, 1 << 31], timed=timed, records=False))


def test_an_execution_takes_no_predicate_and_no_jump() -> None:
    text = kernel(late=True, timed=True, records=True)
    loop = text[text.index("$loop:") : text.index("@%p1 bra")]
    assert "@" not in loop
    # cvt and add of the sum, add and max, min, cvt, mov, shr, add and shl, and for each of four counters shr and add.
    instructions = [line for line in loop.replace(";", "\n").splitlines() if line.strip() and "$" not in line]
    assert len(instructions) == 1 + 2 + 3 + 3 + 2 + 8 + 3
