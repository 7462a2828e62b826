"""How lanes, warps and blocks run together: divergence, barriers, memory faults, and the clock."""

from __future__ import annotations

import numpy as np
import pytest

from warplens import simulate
from warplens.errors import UsageError
from warplens.ptx.tree import PtxError

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
START = """
  .reg .pred %p<8>; .reg .b32 %r<32>; .reg .b64 %rd<16>; .reg .f32 %f<8>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x;
  mad.lo.s32 %r3, %r1, %r2, %r0;
  mad.wide.u32 %rd2, %r3, 4, %rd1;
"""


def launch(
    body: str,
    grid: int | tuple[int, ...] = 1,
    block: int | tuple[int, ...] = 32,
    out: np.ndarray | None = None,
    module: str = "",
    **options: object,
) -> np.ndarray:
    """Run `body` with %rd1 = out, %r0 = tid, %r1 = ctaid, %r3 = the thread's number, %rd2 = its word of out."""
    count = int(np.prod(grid)) * int(np.prod(block))
    data = np.zeros(count, np.uint32) if out is None else out
    memory = simulate.GlobalMemory(1 << 20)
    address = memory.alloc(data)
    text = HEAD + module + ".visible .entry k(.param .u64 out)\n{" + START + body + "\n}\n"
    simulate.run(text, "k", grid, block, [address], memory=memory, **options)  # type: ignore[arg-type]
    return memory.read(address, data.dtype, data.size)


# -- divergence


def test_shuffle_waits_for_lanes_whose_way_is_longer() -> None:
    # The exit is laid out before the loop, so lanes that leave it early reach the shuffle first.
    got = launch("""
      mov.u32 %r4, 0; bra LOOP;
    DONE:
      shfl.sync.idx.b32 %r5, %r4, 31, 31, -1;
      st.global.u32 [%rd2], %r5; ret;
    LOOP:
      add.u32 %r4, %r4, 1;
      setp.ge.u32 %p1, %r4, %r0; @%p1 bra DONE;
      bra LOOP;""")
    assert got.tolist() == [31] * 32


def test_nested_branches_and_early_returns() -> None:
    got = launch("""
      setp.gt.u32 %p1, %r0, 29; @%p1 ret;
      and.b32 %r4, %r0, 1; setp.eq.u32 %p2, %r4, 0; mov.u32 %r6, 100;
      @!%p2 bra ODD;
      and.b32 %r5, %r0, 2; setp.eq.u32 %p3, %r5, 0;
      @%p3 bra EVEN; add.u32 %r6, %r6, 10; bra EVEN;
    ODD: add.u32 %r6, %r6, 1;
    EVEN: activemask.b32 %r7; popc.b32 %r7, %r7; mad.lo.u32 %r6, %r7, 1000, %r6;
      st.global.u32 [%rd2], %r6; exit;""")
    expected = [30000 + (101 if i & 1 else 110 if i & 2 else 100) for i in range(30)] + [0, 0]
    assert got.tolist() == expected


def test_indexed_branch_takes_each_lane_to_its_target() -> None:
    got = launch("""
      and.b32 %r4, %r0, 3;
    ts: .branchtargets A, B, C, A;
      brx.idx %r4, ts;
    A: mov.u32 %r5, 1; bra END;
    B: mov.u32 %r5, 2; bra END;
    C: mov.u32 %r5, 3;
    END: st.global.u32 [%rd2], %r5; ret;""")
    assert got.tolist() == [1, 2, 3, 1] * 8


def test_lanes_of_one_warp_can_pass_a_lock_on() -> None:
    module = ".global .u32 lock; .global .u32 count;\n"
    got = launch(
        """
    AGAIN: atom.global.cas.b32 %r4, [lock], 0, 1; setp.ne.u32 %p1, %r4, 0; @%p1 bra AGAIN;
      ld.global.u32 %r5, [count]; add.u32 %r6, %r5, 1; st.global.u32 [count], %r6;
      membar.gl; atom.global.exch.b32 %r7, [lock], 0;
      st.global.u32 [%rd2], %r5; ret;""",
        block=64,
        module=module,
    )
    assert sorted(got.tolist()) == list(range(64))


def test_blocks_can_wait_for_each_other() -> None:
    got = launch(
        """
      setp.ne.u32 %p1, %r0, 0; @%p1 bra MEET;
      atom.global.add.u32 %r4, [arrived], 1;
    SPIN: ld.volatile.global.u32 %r5, [arrived]; nanosleep.u32 100; setp.lt.u32 %p2, %r5, 6; @%p2 bra SPIN;
    MEET: bar.sync 0; ld.global.u32 %r6, [arrived]; st.global.u32 [%rd2], %r6; ret;""",
        grid=6,
        block=64,
        module=".global .u32 arrived;\n",
    )
    assert set(got.tolist()) == {6}


def test_a_kernel_that_never_ends_is_stopped() -> None:
    with pytest.raises(PtxError, match="did not finish within 5000 instructions"):
        launch("LOOP: bra LOOP;", max_steps=5000)


# -- barriers


def test_barrier_orders_shared_memory_between_warps() -> None:
    got = launch(
        """
      .shared .align 4 .b8 tile[512];
      mov.u32 %r4, tile; mad.lo.u32 %r5, %r0, 4, %r4;
      mul.lo.u32 %r6, %r3, 7; st.shared.u32 [%r5], %r6;
      bar.sync 0;
      sub.u32 %r7, 127, %r0; mad.lo.u32 %r8, %r7, 4, %r4; ld.shared.u32 %r9, [%r8];
      st.global.u32 [%rd2], %r9; ret;""",
        grid=5,
        block=128,
    )
    expected = (np.arange(640).reshape(5, 128)[:, ::-1] * 7).reshape(-1)
    np.testing.assert_array_equal(got, expected)


def test_divergent_warps_and_exited_threads_still_meet() -> None:
    got = launch(
        """
      .shared .u32 total;
      setp.ge.u32 %p1, %r0, 80; @%p1 exit;
      shr.u32 %r4, %r0, 5; setp.eq.u32 %p2, %r4, 1; @%p2 bra B;
      red.shared.add.u32 [total], 1; barrier.sync 0; bra END;
    B: red.shared.add.u32 [total], 10; bar.sync 0;
    END: ld.shared.u32 %r5, [total]; st.global.u32 [%rd2], %r5; ret;""",
        block=96,
    )
    assert got.tolist() == [48 + 320] * 80 + [0] * 16


def test_named_barrier_with_arrive_releases_only_its_consumers() -> None:
    got = launch(
        """
      .shared .u32 box;
      shr.u32 %r4, %r0, 5; setp.ne.u32 %p1, %r4, 0; @%p1 bra CONSUMER;
      setp.eq.u32 %p2, %r0, 0; @%p2 st.shared.u32 [box], 41;
      bar.arrive 3, 96; st.global.u32 [%rd2], 7; ret;
    CONSUMER: bar.sync 3, 96; ld.shared.u32 %r5, [box]; st.global.u32 [%rd2], %r5; ret;""",
        block=96,
    )
    assert got.tolist() == [7] * 32 + [41] * 64


def test_barrier_reduction() -> None:
    got = launch(
        """
      setp.lt.u32 %p1, %r0, 70;
      bar.red.popc.u32 %r4, 0, %p1; bar.red.and.pred %p2, 1, %p1; bar.red.or.pred %p3, 2, %p1;
      selp.u32 %r5, 1000, 0, %p2; selp.u32 %r6, 2000, 0, %p3;
      add.u32 %r4, %r4, %r5; add.u32 %r4, %r4, %r6; st.global.u32 [%rd2], %r4; ret;""",
        grid=2,
        block=128,
    )
    assert set(got.tolist()) == {2070}


def test_deadlock_says_who_waits_where() -> None:
    with pytest.raises(PtxError, match=r"deadlock: 32 threads wait at barrier 2, the first is block 0, thread 32"):
        launch("setp.lt.u32 %p1, %r0, 32; @%p1 ret; bar.sync 2, 64; ret;", block=64)


def test_lanes_that_wait_for_each_other_at_different_places_are_a_deadlock() -> None:
    code = """setp.lt.u32 %p1, %r0, 16; @%p1 bra $low; shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1; ret;
    $low: shfl.sync.bfly.b32 %r1, %r0, 2, 31, -1; ret;"""
    with pytest.raises(PtxError, match="deadlock: 32 threads wait for others of their warp, the first is block 0, th"):
        launch(code, block=32)


# -- memory


def test_out_of_bounds_names_the_instruction_and_the_thread() -> None:
    with pytest.raises(PtxError) as caught:
        launch("add.u64 %rd3, %rd2, 4;\n st.global.u32 [%rd3], %r0; ret;", grid=2, block=64)
    message = str(caught.value)
    assert "st.global.u32 [%rd3], %r0;" in message
    assert "block 1, thread 63" in message
    assert "512 bytes into an allocation of 512 bytes" in message
    assert caught.value.line == 12
    assert caught.value.function == "k"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("add.u64 %rd3, %rd2, 2; ld.global.u32 %r4, [%rd3]; ret;", "not aligned to 4 bytes"),
        ("ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd2]; ret;", "not aligned to 16 bytes"),
        (".shared .u32 x; ld.shared.u32 %r4, [x+4]; ret;", "outside the 4 bytes of shared memory"),
        (".local .b32 x[2]; mov.u64 %rd3, x; ld.local.u32 %r4, [%rd3+8]; ret;", "outside the 8 bytes of local memory"),
        ("ld.global.u32 %r4, [%rd1+-4]; ret;", "outside memory"),
        ("mov.u64 %rd3, 0; st.u32 [%rd3], %r0; ret;", "below every allocation"),
        ("trap;", "trap reached by block 0, thread 0"),
    ],
)
def test_faults(body: str, problem: str) -> None:
    with pytest.raises(PtxError, match=problem):
        launch(body)


def test_generic_addresses_reach_all_three_spaces_in_one_warp() -> None:
    got = launch("""
      .shared .align 4 .b8 s[128]; .local .align 4 .b8 l[8];
      mov.u64 %rd3, s; cvta.shared.u64 %rd3, %rd3; mad.wide.u32 %rd3, %r0, 4, %rd3;
      mov.u64 %rd4, l; cvta.local.u64 %rd4, %rd4; add.u64 %rd4, %rd4, 4;
      rem.u32 %r4, %r0, 3; setp.eq.u32 %p1, %r4, 0; setp.eq.u32 %p2, %r4, 1;
      selp.b64 %rd5, %rd3, %rd4, %p1; selp.b64 %rd5, %rd2, %rd5, %p2;
      add.u32 %r5, %r0, 500; st.u32 [%rd5], %r5; ld.u32 %r6, [%rd5];
      isspacep.shared %p3, %rd5; selp.u32 %r7, 1000, 0, %p3;
      add.u32 %r6, %r6, %r7; st.global.u32 [%rd2], %r6; ret;""")
    assert got.tolist() == [500 + i + (1000 if i % 3 == 0 else 0) for i in range(32)]


def test_vectors_narrow_types_and_cache_modifiers() -> None:
    got = launch(
        """
      mad.wide.u32 %rd3, %r0, 16, %rd1;
      ld.global.nc.L1::no_allocate.v4.u32 {%r4, %r5, %r6, %r7}, [%rd3];
      st.global.cs.v2.u32 [%rd3], {%r5, %r4};
      st.global.wt.u8 [%rd3+8], %r6; ld.global.s8 %r8, [%rd3+11]; st.global.u16 [%rd3+12], %r8; ret;""",
        out=np.arange(128, dtype=np.uint32) * 0x07654321,
    ).reshape(32, 4)
    before = (np.arange(128, dtype=np.uint32) * np.uint32(0x07654321)).reshape(32, 4)
    np.testing.assert_array_equal(got[:, :2], before[:, 1::-1])
    np.testing.assert_array_equal(got[:, 2], before[:, 2])
    signed = (before[:, 2].view(np.int32) >> 24).astype(np.uint32) & 0xFFFF
    np.testing.assert_array_equal(got[:, 3], (before[:, 3] & 0xFFFF0000) | signed)


@pytest.mark.parametrize(
    ("name", "start", "final"),
    [
        ("add.u32", 5, 5 + 96 * 95 // 2), ("min.s32", 50, 0), ("max.u32", 3, 95), ("and.b32", 0xFF, 0),
        ("or.b32", 0, 127),        ("xor.b32", 1, 1), ("inc.u32", 0, None), ("exch.b32", 9, 95),
    ],
)  # fmt: skip
def test_contended_atomics_return_a_serial_history(name: str, start: int, final: int | None) -> None:
    body = f"""
      ld.global.u32 %r5, [cell]; bar.sync 0;
      atom.global.{name} %r4, [cell], %r0; st.global.u32 [%rd2], %r4; bar.sync 0;
      setp.ne.u32 %p1, %r0, 0; @%p1 ret; ld.global.u32 %r6, [cell]; st.global.u32 [%rd1], %r6; ret;"""
    got = launch(body, block=96, module=f".global .u32 cell = {start};\n")
    if final is not None:
        assert got[0] == final
    value = start
    functions = {
        "add": lambda v, i: v + i, "min": min, "max": max, "and": lambda v, i: v & i, "or": lambda v, i: v | i,
        "xor": lambda v, i: v ^ i, "inc": lambda v, i: 0 if v >= i else v + 1, "exch": lambda v, i: i,
    }  # fmt: skip
    for i in range(96):
        if i:
            assert got[i] == value
        value = functions[name.partition(".")[0]](value, i)


def test_three_dimensional_indices() -> None:
    body = """
      mov.u32 %r4, %tid.y; mov.u32 %r5, %tid.z; mov.u32 %r6, %ctaid.y; mov.u32 %r7, %ctaid.z;
      mov.u32 %r8, %nctaid.x; mov.u32 %r9, %nctaid.y; mov.u32 %r10, %ntid.y;
      mad.lo.u32 %r11, %r7, %r9, %r6; mad.lo.u32 %r11, %r11, %r8, %r1;
      mad.lo.u32 %r12, %r5, %r10, %r4; mad.lo.u32 %r12, %r12, %r2, %r0;
      mad.lo.u32 %r13, %r11, 30, %r12; mad.wide.u32 %rd3, %r13, 4, %rd1; atom.global.add.u32 %r14, [%rd3], %r13; ret;"""
    got = launch(body, grid=(3, 2, 4), block=(5, 3, 2))
    np.testing.assert_array_equal(got, np.arange(24 * 30))


# -- clock


CLOCKS = """
  mov.u32 %r4, %clock; mov.u64 %rd5, %clock64; mov.u64 %rd6, %globaltimer;
  mov.u32 %r5, 0;
LOOP: add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 20000; @%p1 bra LOOP;
  mov.u64 %rd7, %clock64; mov.u64 %rd8, %globaltimer; mov.u32 %r6, %smid;
  and.b32 %r7, %r0, 31; setp.ne.u32 %p2, %r7, 0; @%p2 ret;
  shr.u32 %r8, %r3, 5; mad.wide.u32 %rd3, %r8, 48, %rd1;
  cvt.u64.u32 %rd9, %r4; cvt.u64.u32 %rd10, %r6;
  st.global.cs.v2.u64 [%rd3], {%rd9, %rd5}; st.global.v2.u64 [%rd3+16], {%rd6, %rd7};
  st.global.v2.u64 [%rd3+32], {%rd8, %rd10}; ret;"""


def test_clocks_are_per_sm_and_globaltimer_is_shared() -> None:
    clock = simulate.CycleClock(sms=4, blocks_per_sm=1, mhz=1500.0)
    rows = launch(CLOCKS, grid=4, block=64, out=np.zeros(8 * 6, np.uint64), clock=clock).reshape(8, 6)
    low, start, start_ns, end, end_ns, sm = (rows[:, i].astype(np.int64) for i in range(6))
    assert sm.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    np.testing.assert_array_equal((start - low) % 2**32 < 64, True)
    assert np.ptp(start[::2]) > 100_000, "SM clocks must not be aligned"
    assert np.ptp(start_ns) < 1000
    assert not (start_ns % 32).any()
    assert not (end_ns % 32).any()
    cycles = end - start
    assert (cycles > 20_000 * 3).all()
    np.testing.assert_allclose((end_ns - start_ns), cycles / 1.5, atol=64)


def test_the_clock_goes_on_between_launches_and_may_change_speed() -> None:
    first = simulate.CycleClock(sms=4, blocks_per_sm=1, mhz=1500.0)
    later = simulate.CycleClock(
        sms=4, blocks_per_sm=1, mhz=1500.0, start_ns=first.start_ns + 1_000_000, changes=((60_000, 500.0),)
    )
    one, two = (
        launch(CLOCKS, grid=4, block=64, out=np.zeros(48, np.uint64), clock=clock).reshape(8, 6).astype(np.int64)
        for clock in (first, later)
    )
    assert (two[:, 1] - one[:, 1]).tolist() == [1_500_000] * 8
    cycles, nanoseconds = two[0, 3] - two[0, 1], two[0, 4] - two[0, 2]
    np.testing.assert_allclose(nanoseconds, 60_000 / 1.5 + (cycles - 60_000) / 0.5, atol=200)


def test_a_stall_shows_where_the_value_is_used() -> None:
    body = """
      mov.u32 %r4, %clock; ld.global.u32 %r5, [%rd2]; mov.u32 %r6, %clock; add.u32 %r5, %r5, 1; mov.u32 %r7, %clock;
      sub.u32 %r8, %r6, %r4; sub.u32 %r9, %r7, %r6; shl.b32 %r9, %r9, 16; or.b32 %r8, %r8, %r9;
      st.global.u32 [%rd2], %r8; ret;"""
    got = launch(body, grid=8, block=64)
    issue, stall = got & 0xFFFF, got >> 16
    assert issue.max() < 20
    assert stall.min() > 180
    assert len(set(stall.tolist())) > 4, "latency must vary between warps"
    assert (stall.reshape(-1, 32) == stall.reshape(-1, 32)[:, :1]).all()


def test_warps_leave_a_barrier_together() -> None:
    body = """
      setp.ge.u32 %p1, %r0, 32; @%p1 bra MEET; mov.u32 %r5, 0;
    LOOP: add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 50; @%p2 bra LOOP;
    MEET: bar.sync 0; mov.u32 %r4, %clock; st.global.u32 [%rd2], %r4; ret;"""
    got = launch(body, block=128)
    assert len(set(got.tolist())) == 1


# -- requests that make no sense


def test_wrong_launches_say_what_is_allowed() -> None:
    text = HEAD + ".visible .entry first(.param .u64 out, .param .b8 x[4]) { ret; }\n"
    memory = simulate.GlobalMemory(1 << 12)
    with pytest.raises(UsageError, match="no entry 'firs'.*did you mean 'first'"):
        simulate.run(text, "firs", 1, 1, [0, b"1234"], memory=memory)
    with pytest.raises(UsageError, match=r"takes 2 arguments .*got 1"):
        simulate.run(text, "first", 1, 1, [0], memory=memory)
    with pytest.raises(UsageError, match="takes 4 bytes, got 3"):
        simulate.run(text, "first", 1, 1, [0, b"123"], memory=memory)
    with pytest.raises(UsageError, match="limit of 1024"):
        simulate.run(text, "first", 1, (64, 32), [0, b"1234"], memory=memory)
    with pytest.raises(UsageError, match="no variable 'buffer'"):
        simulate.run(text, "first", 1, 1, [0, b"1234"], memory=memory, symbols={"buffer": 1})
    with pytest.raises(UsageError, match="sms=0"):
        simulate.CycleClock(sms=0)


def test_symbols_are_set_before_the_launch_and_readable_after() -> None:
    text = (
        HEAD
        + """.visible .global .align 8 .u64 buffer; .visible .global .f32 scale = 0f40000000;
    .visible .entry k() { .reg .b64 %a; .reg .f32 %f; ld.global.u64 %a, [buffer]; ld.global.f32 %f, [scale];
      st.global.f32 [%a], %f; st.global.u64 [buffer], 5; ret; }"""
    )
    memory = simulate.GlobalMemory(1 << 12)
    target = memory.alloc(4)
    program = simulate.LoadedModule(text, memory)
    memory.write(program.symbols["buffer"], np.uint64(target))
    program.run("k", 1, 32, [])
    assert memory.read(target, np.float32, 1)[0] == 2.0
    assert memory.read(program.symbols["buffer"], np.uint64, 1)[0] == 5
