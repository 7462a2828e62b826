"""mode="aggregate": warps keep statistics of their regions, which are those of the records that they would leave."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.aggregated_kernel import VARIED, aggregates, same, varied
from tests.support.golden_ptx import assemble
from tests.support.looped_ptx import HEAD, KERNEL
from tests.support.marked_ptx import GOLDEN, source
from tests.support.nested_ptx import NESTED
from tests.support.simulated_trace import count_only_work, traced
from warplens import simulate
from warplens.auto.ptx import mark_ptx
from warplens.auto.rules import Auto
from warplens.decode import decode
from warplens.ptx.syntax import PtxError
from warplens.ptx.tree import parse
from warplens.record.aggregate_rows import BUCKETS, bucket_of, bucket_starts
from warplens.record.capture import AUTOMATIC, Capture
from warplens.simulate import GlobalMemory
from warplens.trace.model import Trace
from warplens.weave.calls import with_parameter
from warplens.weave.weaver import weave
from warplens.weave.weaving import LaunchBuffer, Selection, SymbolBuffer, Weaving

AGGREGATE = Weaving(mode="aggregate")


@pytest.mark.parametrize("clock", ["32", "64"])
@pytest.mark.parametrize(
    "select", [Selection(), Selection(warps=(1,)), Selection(blocks=(1, 9, 2)), Selection("block")]
)
def test_statistics_are_those_of_the_records(monkeypatch: pytest.MonkeyPatch, clock: str, select: Selection) -> None:
    count_only_work(monkeypatch)
    text = KERNEL.replace("$done:\n\t// @warplens E all", "$done:")
    text = re.sub(r"// @warplens [AVZ].*\n", "\n", text)
    text = text.replace("\tst.global.u32 [%rd3], %r8;", "\t// @warplens E all\n\tst.global.u32 [%rd3], %r8;")

    def run(mode: str) -> Trace:
        memory = GlobalMemory(64 << 20)
        out = memory.alloc(4 * 384)
        how = Weaving(mode=mode, clock=clock, select=select)
        return traced(text, "work", (6, 1, 1), (64, 1, 1), [out, 9, 0], how, memory)[0]

    same(run("trace"), run("aggregate"))


def test_regions_inside_themselves_overlapping_ones_and_instants_are_kept_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count_only_work(monkeypatch)

    def run(mode: str) -> Trace:
        memory = GlobalMemory(64 << 20)
        out = memory.alloc(4)
        return traced(NESTED, "nested", (2, 1, 1), (64, 1, 1), [out, 7], Weaving(mode=mode), memory)[0]

    records, kept = run("trace"), run("aggregate")
    found = aggregates(kept)
    assert {key[2] for key in found} == {("a",), ("a", "a"), ("a", "a", "b"), ("a", "a", "b", "a"), ("short",)}
    same(records, kept)
    ticks = [row for row in kept.spans.to_pylist() if row["kind"] == "instant"]
    assert [row["count"] for row in ticks] == [7] * 4
    assert found[0, 0, ("short",)]["count"] == 2
    assert found[0, 0, ("short",)]["dur_cycles"] == 0


def test_the_code_between_regions_is_the_rest_of_a_warps_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a sum that is exact: the spans between regions of the same kernel in mode="trace" have the same."""
    count_only_work(monkeypatch)
    text = re.sub(r"\t// @warplens (?:[AVZ].*|[BE] all.*)\n", "\n", KERNEL)

    def run(mode: str) -> Trace:
        memory = GlobalMemory(64 << 20)
        out = memory.alloc(4 * 384)
        how = Weaving(mode=mode, between=True)
        return traced(text, "work", (6, 1, 1), (64, 1, 1), [out, 9, 0], how, memory)[0]

    records, kept = run("trace"), run("aggregate")
    expected: dict[Any, int] = defaultdict(int)
    for row in records.spans.to_pylist():
        if row["region"].startswith("work"):
            expected[row["block"], row["warp"]] += row["dur_cycles"]
    found = {key[:2]: row for key, row in aggregates(kept).items() if key[2] == ("work",)}
    assert sum(expected.values()) > 0
    assert {key: row["dur_cycles"] for key, row in found.items()} == dict(expected)
    assert {(row["count"], row["min_cycles"] == row["max_cycles"]) for row in found.values()} == {(1, True)}
    # Nothing of a warp's life is left over.
    outermost = [row for row in kept.spans.to_pylist() if row["parent"] < 0]
    assert sum(row["dur_cycles"] for row in outermost) == sum(one.busy_cycles for one in kept.meta.launches)


def test_regions_that_overlap_or_stay_open_leave_the_code_between_them_unknown() -> None:
    assert weave(NESTED, how=Weaving(mode="aggregate", between=True)).aggregates["nested"].work == 0
    closed = weave(LIFE, how=Weaving(mode="aggregate", between=True))
    assert closed.regions[closed.aggregates["k"].work] == "work"
    named = weave(LIFE.replace(" all", " work"), how=Weaving(mode="aggregate", between=True))
    assert named.regions[named.aggregates["k"].work] == "work between regions"
    still = weave(LIFE.replace("\t// @warplens E all\n", ""), how=Weaving(mode="aggregate", between=True))
    assert still.aggregates["k"].work == 0


LIFE = HEAD + (
    ".visible .entry k(.param .u64 scratch)\n{\n\t.reg .b32 %r<9>;\n\txor.b32 %r1, %r2, 1;\n\t// @warplens B all\n"
    "\txor.b32 %r1, %r2, 1;\n\t// @warplens E all\n\tret;\n}\n"
)


DIVERGED = (
    HEAD
    + """
.visible .entry k(.param .u64 out, .param .u64 scratch)
{
	.reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .pred %p<4>;
	ld.param.u64 %rd1, [out];
	mov.u32 %r1, %tid.x;
	mov.u32 %r2, 0;
$loop:
	// @warplens B step
	xor.b32 %r3, %r3, %r2;
	// @warplens E step
	setp.lt.u32 %p1, %r1, 9;
	@!%p1 bra $rest;
	// @warplens B some
	xor.b32 %r3, %r3, %r1;
	// @warplens E some
	bra.uni $met;
$rest:
	// @warplens B others
	xor.b32 %r3, %r3, 5;
	// @warplens E others
$met:
	add.u32 %r2, %r2, 1;
	setp.lt.u32 %p2, %r2, 3;
	@%p2 bra $loop;
	mad.wide.u32 %rd2, %r1, 4, %rd1;
	st.global.u32 [%rd2], %r3;
	ret;
}
"""
)


def test_only_a_mark_that_all_lanes_pass_brings_them_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warp barrier where only some lanes come would stop the warp for ever."""
    count_only_work(monkeypatch)

    def run(mode: str) -> Trace:
        memory = GlobalMemory(64 << 20)
        how = Weaving(mode=mode, aligned=True)
        return traced(DIVERGED, "k", (1, 1, 1), (64, 1, 1), [memory.alloc(256)], how, memory)[0]

    text = weave(DIVERGED, how=Weaving(mode="aggregate", aligned=True)).text
    assert "bar.warp.sync" in text
    for name in ("some", "others"):
        assert "bar.warp.sync" not in text.partition(f"// @warplens B {name}\n")[2].partition(f"E {name}")[0]
    same(run("trace"), run("aggregate"))


def test_a_kernel_with_nothing_but_anchors_has_no_rows() -> None:
    text = re.sub(r"// @warplens [^\n]*", "", LIFE).replace("\tret;", "\t// @warplens T\n\tret;")
    kept, _ = traced(text, "k", (2, 1, 1), (64, 1, 1), [], AGGREGATE)
    assert [row["region"] for row in kept.spans.to_pylist()] == ["(warp)"] * 4


def test_a_warp_that_executes_no_region_of_automatic_marks_has_its_life() -> None:
    text = LIFE.replace(
        "\txor", "\t.reg .pred %p;\n\tmov.u32 %r3, %ctaid.x; setp.eq.u32 %p, %r3, 1; @%p ret;\n\txor", 1
    )
    _, launch = traced(text, "k", (3, 1, 1), (32, 1, 1), [], AGGREGATE)
    kept = decode(Capture([replace(launch, extra={**launch.extra, AUTOMATIC: True})]))
    told = [(row["block"], row["region"], row["count"]) for row in kept.spans.to_pylist()]
    assert told == [(0, "all", 1), (1, "(warp)", 1), (2, "all", 1)]


@pytest.mark.parametrize("space", ["const", "global"])
def test_the_buffers_variable_is_in_the_space_that_it_is_read_from(space: str) -> None:
    text = weave(LIFE, buffer=SymbolBuffer(space=space), how=AGGREGATE).text
    assert f".visible .{space} .align 8 .b64 warplens_buffer;" in text
    assert f"ld.{space}.b64 %wl_b, [warplens_buffer];" in text


def test_paths_that_open_different_regions_cannot_be_followed() -> None:
    text = NESTED.replace("\t// @warplens E a\n$skip:", "$skip:")
    with pytest.raises(PtxError, match=r"depends on the path that leads to it.*mode='trace'"):
        weave(text, how=AGGREGATE)


def test_marks_in_called_functions_and_in_launch_buffers_cannot_be_followed() -> None:
    called = HEAD + (
        ".func f()\n{\n\t// @warplens B a\n\tmembar.cta;\n\t// @warplens E a\n\tret;\n}\n"
        ".visible .entry k(.param .u64 scratch)\n{\n\tcall f;\n\tret;\n}\n"
    )
    with pytest.raises(PtxError, match="not inlined"):
        weave(called, how=AGGREGATE)
    with pytest.raises(PtxError, match="needs a buffer of woven tracks"):
        weave(NESTED, how=AGGREGATE, buffer=LaunchBuffer())


def test_the_memory_of_a_warp_does_not_grow_with_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    count_only_work(monkeypatch)
    sizes = set()
    for steps in (1, 300):
        memory = GlobalMemory(64 << 20)
        out = memory.alloc(4)
        trace, launch = traced(NESTED, "nested", (1, 1, 1), (64, 1, 1), [out, steps], AGGREGATE, memory)
        sizes.add(launch.stride)
        assert aggregates(trace)[0, 0, ("a", "a")]["count"] == steps
    assert len(sizes) == 1
    text = weave(NESTED, how=AGGREGATE).text
    assert "atom." not in text
    assert "red." not in text


def test_nothing_is_kept_without_a_buffer() -> None:
    memory = GlobalMemory(64 << 20)
    out = memory.alloc(4)
    simulate.run(weave(NESTED, how=AGGREGATE).text, "nested", (2, 1, 1), (64, 1, 1), [out, 7, 0], memory=memory)
    assert memory.read(out, np.int32, 1)[0]


def test_buckets_hold_a_quarter_of_a_power_of_two() -> None:
    starts = bucket_starts()
    durations = np.unique(np.concatenate([np.arange(2000), 2 ** np.arange(32), 2 ** np.arange(1, 33) - 1]))
    found = bucket_of(durations)
    assert (starts[found[1:]] <= durations[1:]).all()
    assert (durations[1:] < starts[found[1:] + 1]).all()
    assert found[0] == 0
    assert bucket_of([2**32, 2**50]).tolist() == [BUCKETS - 1] * 2


def marked(name: str, symbol: str, *, parameter: bool) -> str:
    """A real kernel with automatic marks; `parameter` adds one for the buffer."""
    module = parse(source(name))
    function = next(one for one in module.entries if one.name == symbol)
    if parameter:
        function.header = with_parameter(function, f".param .u64 {symbol}_wl_buffer")
    return mark_ptx(module.text(), Auto.of(True, None, 256), lambda one: one == symbol).text


@pytest.mark.parametrize("name", ["nvcc_kernels_lineinfo", "nvcc12_kernels", "nvrtc13_kernels", "triton_softmax"])
def test_real_kernels_have_the_statistics_of_their_records(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    count_only_work(monkeypatch)
    rows, columns, triton = 6, 784, name.startswith("triton")
    text = marked(name, "softmax", parameter=not triton)
    x = np.random.default_rng(1).standard_normal((rows, columns)).astype(np.float32)
    results, traces = [], []
    for mode in ("trace", "aggregate"):
        memory = GlobalMemory()
        given, out = memory.alloc(x), memory.alloc(x.nbytes)
        args, threads = ([out, given, columns, 0], 128) if triton else ([given, out, columns], 256)
        how = Weaving(mode=mode)
        traces.append(traced(text, "softmax", (rows, 1, 1), (threads, 1, 1), args, how, memory, shared=64 * triton)[0])
        results.append(memory.read(out, np.float32, x.size))
    np.testing.assert_array_equal(*results)
    assert len(traces[0])
    same(*traces)


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.ptx")), ids=lambda path: path.stem)
def test_real_kernels_assemble(path: Path, tmp_path: Path) -> None:
    text = mark_ptx(source(path), Auto.of(True, None, 256)).text
    woven = weave(text, how=AGGREGATE, buffer=SymbolBuffer())
    assert woven.aggregates
    assemble(woven.text, path.stem, tmp_path)


@pytest.mark.parametrize(("steps", "last"), [(40, 99), (1, 99), (1, 0), (40, 17), (0, 99)])
def test_executions_that_wait_for_the_next_begin_are_all_there(
    monkeypatch: pytest.MonkeyPatch, steps: int, last: int
) -> None:
    """Durations of many buckets, a region that is open at the exit, one that ran once, and one that never did."""
    text = VARIED.replace("LANES", "")
    same(*(varied(monkeypatch, mode, text, steps, last) for mode in ("trace", "aggregate")))


@pytest.mark.parametrize("threads", [1, 40, 64])
def test_warps_with_inactive_lanes_lose_nothing(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    text = VARIED.replace("LANES", "setp.ge.u32 %p1, %r3, 64; @%p1 bra $end;")
    same(*(varied(monkeypatch, mode, text, 9, 99, threads) for mode in ("trace", "aggregate")))


def test_a_loop_of_converged_warps_accesses_no_memory() -> None:
    text = weave(VARIED.replace("LANES", ""), how=Weaving(mode="aggregate", aligned=True)).text
    loop = text[text.index("$outer:") : text.index("$done:")]
    entered, _, left = loop.partition("@!%p2 bra $wl_stay")
    for code in (entered, left.partition("ret;")[2]):
        assert "%clock" in code
        assert "global" not in code


def test_a_loop_decides_on_its_end_before_its_last_mark() -> None:
    """A condition behind the mark is ready too late to be hidden."""
    text = weave(VARIED.replace("LANES", ""), how=Weaving(mode="aggregate", aligned=True)).text
    loop = text[text.index("$end:") : text.index("$done:")]
    assert loop.index("setp.lt.u32 %p2, %r2, %r1;") < loop.rindex("%clock") < loop.index("@%p2 bra $outer;")
