"""Proton's intra-kernel tutorial with only its imports changed, without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

triton = pytest.importorskip("triton", reason="triton is not installed")

import triton.language as tl  # noqa: E402

import warplens.compat.proton as proton  # noqa: E402
import warplens.compat.proton.language as pl  # noqa: E402
from tests.support import fake_torch  # noqa: E402
from tests.support.builders import Span, make_trace  # noqa: E402
from tests.support.fake_gpu import FakeGpu, fake_gpu  # noqa: E402
from tests.support.proton_kernel import SCOPES, add_kernel  # noqa: E402
from warplens.compat.proton.launch_log import LaunchLog  # noqa: E402
from warplens.compat.proton.mode import parse as parse_mode  # noqa: E402
from warplens.compat.proton.outputs import write  # noqa: E402
from warplens.compat.proton.sessions import InstrumentationSession, Segment  # noqa: E402
from warplens.errors import UsageError, WarplensError  # noqa: E402
from warplens.profiling.profile import Profile  # noqa: E402
from warplens.trace.schema import LaunchInfo, Meta  # noqa: E402


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeGpu]:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    with fake_gpu(monkeypatch) as fake:
        try:
            yield fake
        finally:
            for session in list(proton.sessions.sessions):
                proton.sessions.remove(session)
        add_kernel.device_caches.clear()


def run(gpu: FakeGpu, blocks: int = 2) -> None:
    x, y = (gpu.tensor(np.random.default_rng(seed).random(blocks * 256, np.float32)) for seed in (1, 2))
    output = gpu.tensor(np.zeros(blocks * 256, np.float32))
    add_kernel[(blocks,)](x, y, output, blocks * 256, BLOCK_SIZE=256, num_warps=4)
    np.testing.assert_array_equal(output.numpy(), x.numpy() + y.numpy())


def spans(trace: Any) -> set[tuple[int, int, str]]:
    return {(row["block"], row["warp"], row["region"]) for row in trace.spans.to_pylist()}


def test_a_trace_is_written_for_chrome(gpu: FakeGpu, tmp_path: Path) -> None:
    mode = proton.mode.Default(optimizations="clock32,time_shift")
    proton.start("vector-add", backend="instrumentation", data="trace", mode=mode)
    run(gpu)
    proton.finalize()
    events = json.loads((tmp_path / "vector-add.chrome_trace").read_text())["traceEvents"]
    assert sorted(event["name"] for event in events) == sorted(SCOPES * 8)
    assert {event["ph"] for event in events} == {"X"}
    assert {event["cat"] for event in events} == {"add_kernel"}
    first = events[0]
    assert first["pid"].startswith("add_kernel Core")
    assert first["pid"].endswith("CTA0")
    assert first["tid"] == "warp 0 (line 0)"
    assert first["args"]["call_stack"] == ["ROOT", "add_kernel"]
    assert first["args"]["Finalization Time (ns)"] > 0
    assert "@woven" in gpu.fired[-1].ptx
    run(gpu)
    assert "@woven" not in gpu.fired[-1].ptx, "after finalize scopes cost nothing"


def test_a_tree_is_written_that_proton_viewer_opens(gpu: FakeGpu, tmp_path: Path) -> None:
    proton.start("tree", backend="instrumentation")
    run(gpu)
    trace = proton.finalize()
    database = json.loads((tmp_path / "tree.hatchet").read_text())
    kernel = database[0]["children"][0]
    assert kernel["frame"]["name"] == "add_kernel"
    outer = kernel["children"][0]
    assert [child["frame"]["name"] for child in outer["children"][0]["children"]] == ["load_x", "load_y"]
    pytest.importorskip("hatchet", reason="llnl-hatchet, which proton-viewer reads with, is not installed")
    from triton.profiler import viewer

    tree, metrics = viewer.parse(["normalized_cycles"], str(tmp_path / "tree.hatchet"))
    frame = tree.dataframe
    shown = dict(zip(frame["name"], frame["normalized_cycles (inc)"], strict=True))
    rows = trace.spans.to_pylist()
    mean = np.mean([row["dur_cycles"] for row in rows if row["region"] == "load_and_add"])
    assert shown["load_and_add"] == pytest.approx(mean)
    assert metrics


@pytest.mark.parametrize(
    ("mode", "warps"),
    [
        ("default:sampling_strategy=selective:sampling_options=0,2", {0, 2}),
        (proton.mode.Default(sampling_strategy="selective", sampling_options="1, 3"), {1, 3}),
        ("default:granularity=cta", {0}),
        ("default:granularity=warp_group:optimizations=clock32,sched_stores,sched_barriers", {0}),
        (None, {0, 1, 2, 3}),
        ("default:sampling_options=0,2", {0, 1, 2, 3}),
    ],
)
def test_modes_choose_what_is_recorded(gpu: FakeGpu, mode: Any, warps: set[int]) -> None:
    proton.start("chosen", backend="instrumentation", data="trace", mode=mode)
    run(gpu)
    assert {warp for _, warp, _ in spans(proton.finalize())} == warps


def test_a_buffer_size_keeps_the_latest_records_of_each_warp(gpu: FakeGpu) -> None:
    proton.start("small", backend="instrumentation", mode="default:buffer_type=global:buffer_size=1024")
    run(gpu)
    trace = proton.finalize()
    assert trace is not None
    assert {name for _, _, name in spans(trace)} == set(SCOPES), "32 slots a warp hold all eight records"
    assert trace.meta.launches[0].extra["capacity"] == 32


@pytest.mark.parametrize("kind", ["shared", "shared_mem"])
def test_a_buffer_in_shared_memory_holds_the_bytes_it_was_given(gpu: FakeGpu, kind: str) -> None:
    mode = proton.mode.Default(buffer_type=kind, buffer_size=1024, optimizations="clock32,sched_stores")
    proton.start("shared", backend="instrumentation", data="trace", mode=mode)
    run(gpu)
    trace = proton.finalize()
    assert trace is not None
    assert {name for _, _, name in spans(trace)} == set(SCOPES)
    launch = trace.meta.launches[0]
    assert launch.extra["shared_bytes"] == 1024
    assert launch.extra["capacity"] == 32
    assert "st.shared" in gpu.fired[-1].ptx


def test_modes_become_options_of_a_profile() -> None:
    parse = proton.mode.parse
    assert parse(None).options() == {"granularity": "warp"}, "global memory, nothing is lost"
    assert parse("default:buffer_type=shared").options() == {"granularity": "warp", "buffer": "shared", "full": "ring"}
    spilling = parse("default:buffer_type=shared:buffer_strategy=flush:buffer_size=4096").options()
    assert spilling == {"granularity": "warp", "buffer": "shared", "bytes_per_block": 4096}
    mode = proton.mode.Default(
        sampling_strategy="selective", sampling_options="3,1", optimizations="clock32,time_shift"
    )
    assert parse(str(mode)) == mode


def test_scopes_in_gluon_kernels_are_marks_too(gpu: FakeGpu) -> None:
    from triton.experimental import gluon
    from triton.experimental.gluon import language as gl

    @gluon.jit
    def doubled(x, LAYOUT: gl.constexpr):
        with pl.scope("load"):
            offsets = gl.arange(0, 128, LAYOUT)
            values = gl.load(x + offsets)
        pl.enter_scope("store")
        gl.store(x + offsets, values * 2)
        pl.exit_scope("store")

    x = gpu.tensor(np.arange(128, dtype=np.float32))
    proton.start("gluon", backend="instrumentation")
    doubled[(1,)](x, gl.BlockedLayout([1], [32], [4], [0]), num_warps=4)
    assert {name for _, _, name in spans(proton.finalize())} == {"load", "store"}
    np.testing.assert_array_equal(x.numpy(), np.arange(128) * 2)


def test_the_interpreter_records_scopes_as_well(tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import sys, triton, triton.language as tl
        import warplens.compat.proton as proton, warplens.compat.proton.language as pl

        @triton.jit
        def kernel(N: tl.constexpr):
            with pl.scope("outer"):
                for i in range(N):
                    pl.enter_scope("inner")
                    tl.arange(0, 8) + i
                    pl.exit_scope("inner")

        proton.start(sys.argv[1], backend="instrumentation", data="trace")
        kernel[(2,)](3)
        assert len(proton.finalize()) == 2 * 4
        """
    )
    script = tmp_path / "interpreted.py"
    script.write_text(program)
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, str(script), str(tmp_path / "cpu")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "cpu.chrome_trace").exists()


def test_marks_cannot_be_disabled_per_language() -> None:
    with pytest.raises(UsageError, match="cannot be disabled per language"):
        pl.disable_semantic("triton")


def tree_of(path: Path) -> dict[str, Any]:
    def names(node: Any) -> dict[str, Any]:
        return {child["frame"]["name"]: names(child) for child in node["children"]}

    return names(json.loads(path.read_text())[0])


def test_scopes_of_the_program_are_above_its_kernels(gpu: FakeGpu, tmp_path: Path) -> None:
    @proton.scope("step")
    def step() -> None:
        with proton.scope("layer", {"flops": 3.0}):
            run(gpu)

    proton.start("scoped", backend="instrumentation")
    step()
    run(gpu)
    proton.finalize()
    tree = tree_of(tmp_path / "scoped.hatchet")
    assert set(tree) == {"step", "add_kernel"}
    assert tree["step"]["layer"]["add_kernel"] == tree["add_kernel"] != {}
    proton.start("scoped", backend="instrumentation", data="trace")
    proton.enter_scope("outer")
    run(gpu)
    proton.exit_scope("outer")
    proton.finalize()
    events = json.loads((tmp_path / "scoped.chrome_trace").read_text())["traceEvents"]
    assert {tuple(event["args"]["call_stack"]) for event in events} == {("ROOT", "outer", "add_kernel")}
    proton.enter_scope("a")
    with pytest.raises(ValueError, match="mismatch"):
        proton.exit_scope("b")
    proton.exit_scope("a")


def test_the_hook_names_launches_as_their_metadata_does(gpu: FakeGpu, tmp_path: Path) -> None:
    @triton.jit(launch_metadata=lambda grid, metadata, args: {"name": f"add_{args['BLOCK']}", "flops32": 7})
    def named(x, BLOCK: tl.constexpr):
        with pl.scope("all"):
            offsets = tl.arange(0, BLOCK)
            tl.store(x + offsets, tl.load(x + offsets) + 1)

    for hook, name in (("triton", "add_128"), (None, "named")):
        proton.start("hooked", backend="instrumentation", hook=hook)
        named[(1,)](gpu.tensor(np.zeros(128, np.float32)), BLOCK=128, num_warps=4)
        proton.finalize()
        assert tree_of(tmp_path / "hooked.hatchet") == {name: {"all": {}}}
        node = json.loads((tmp_path / "hooked.hatchet").read_text())[0]["children"][0]
        assert node["metrics"].get("flops32") == (7 if hook else None)


def test_sessions_run_side_by_side(gpu: FakeGpu, tmp_path: Path) -> None:
    first = proton.start("first", backend="instrumentation", data="trace")
    run(gpu)
    second = proton.start("second", backend="instrumentation", data="trace")
    run(gpu)
    proton.deactivate(first)
    run(gpu)
    proton.finalize(second)
    proton.activate(first)
    run(gpu, blocks=1)
    proton.finalize()
    assert not proton.sessions.sessions

    def blocks(name: str) -> int:
        events = json.loads((tmp_path / f"{name}.chrome_trace").read_text())["traceEvents"]
        assert all(event["ts"] >= 0 for event in events)
        return len(events) // (len(SCOPES) * 4)

    assert (blocks("first"), blocks("second")) == (2 + 2 + 1, 2 + 2)


@pytest.mark.parametrize("mode", ["default", "mma", proton.mode.MMA(), proton.mode.Default(buffer_size=4096)])
def test_a_session_without_a_launch_writes_an_empty_file(gpu: FakeGpu, tmp_path: Path, mode: Any) -> None:
    proton.start("empty", backend="instrumentation", mode=mode)
    proton.finalize()
    assert tree_of(tmp_path / "empty.hatchet") == {}
    proton.start("empty", backend="instrumentation", data="trace", mode=mode)
    proton.finalize()
    assert json.loads((tmp_path / "empty.chrome_trace").read_text())["traceEvents"] == []


def test_a_finalize_that_fails_ends_its_session(gpu: FakeGpu, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    proton.start("gone/x", backend="instrumentation")
    run(gpu)
    (tmp_path / "gone").rmdir()
    with pytest.raises(WarplensError, match="gone"):
        proton.finalize()
    proton.start("next", backend="instrumentation")
    run(gpu)
    assert proton.finalize() is not None


def test_tuned_launches_are_operations_of_the_tree(gpu: FakeGpu, tmp_path: Path) -> None:
    sizes = [triton.Config({"BLOCK": size}, num_warps=1) for size in (32, 64)]

    @triton.autotune(configs=sizes, key=[], do_bench=lambda run, quantiles: (run(), [1.0, 1.0, 1.0])[1])
    @triton.jit(launch_metadata=lambda grid, metadata, args: {"name": f"add_{args['BLOCK']}"})
    def tuned(x, BLOCK: tl.constexpr):
        with pl.scope("all"):
            offsets = tl.arange(0, BLOCK)
            tl.store(x + offsets, tl.load(x + offsets) + 1)

    proton.start("tuned", backend="instrumentation", hook="triton")
    tuned[(1,)](gpu.tensor(np.zeros(64, np.float32)))
    proton.finalize()
    assert set(tree_of(tmp_path / "tuned.hatchet")) == {"add_32", "add_64"}


def test_events_are_spans_that_end_elsewhere(gpu: FakeGpu) -> None:
    @triton.jit
    def kernel(x):
        event = pl.allocate_event("async")
        pl.start_event(event)
        value = tl.load(x) + 1
        pl.end_event(event)
        tl.store(x, value)

    proton.start("events", backend="instrumentation", data="trace")
    kernel[(1,)](gpu.tensor(np.zeros(1, np.float32)), num_warps=1)
    assert [name for _, _, name in spans(proton.finalize())] == ["async"]


def test_kernels_of_a_session_are_cached_apart(gpu: FakeGpu) -> None:
    @triton.jit
    def kernel(x):
        tl.store(x, tl.load(x) + 1)

    x = gpu.tensor(np.zeros(1, np.float32))
    proton.start("cached", backend="instrumentation")
    kernel[(1,)](x)
    (caches,) = kernel.device_caches.values()
    assert len(caches[0]) == 1
    proton.finalize()
    kernel[(1,)](x)
    assert len(caches[0]) == 2
    assert not getattr(triton.knobs.runtime, "add_stages_inspection_hook", None)


def test_an_event_that_ends_in_another_warp_is_an_arrow(tmp_path: Path) -> None:
    trace = make_trace(
        [
            ("kernel", 0, 100, 0, 0),
            ("event", 10, 20, 0, 0),
            Span("event", 30, kind="instant", warp=0),
            ("event", 40, 50, 0, 0),
            Span("event", 90, kind="instant", warp=4),
        ],
        meta=Meta(launches=(LaunchInfo(0, "kernel", begin_ns=5, end_ns=95),), origin_ns=1000),
    )
    session = InstrumentationSession("events", "trace", parse_mode(None), None, "shadow")
    session.segments.append(Segment(Profile(), frozenset(), trace=trace))
    write(session, LaunchLog(), tmp_path / "events.chrome_trace", "chrome_trace")
    events = json.loads((tmp_path / "events.chrome_trace").read_text())["traceEvents"]
    within, *ends = [event for event in events if event["name"] == "event"]
    assert (within["ph"], within["dur"], "bind_id" in within) == ("X", 0.02, False)
    start, end = ends
    assert (start["flow_out"], end["flow_in"], start["dur"], end["dur"]) == (True, True, 0, 0)
    assert start["bind_id"] == end["bind_id"]
    assert (start["tid"].split()[1], end["tid"].split()[1]) == ("0", "4")
    assert (start["ts"], end["ts"]) == (0.04, 0.09)
    assert (within["args"]["Init Time (ns)"], within["args"]["Post Final Time (ns)"]) == (1005, 1095)


def test_another_backend_is_protons_own(gpu: FakeGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = pytest.importorskip("triton.profiler", reason="this triton has no Proton")
    calls: list[Any] = []

    class Scope:
        def __init__(self, *given: Any) -> None:
            self.given = given

        def __enter__(self) -> None:
            calls.append(("enter", *self.given))

        def __exit__(self, *_: object) -> None:
            calls.append(("exit", self.given[0]))

    monkeypatch.setattr(theirs, "start", lambda name, **given: calls.append((name, given["backend"])) or 7)
    monkeypatch.setattr(theirs, "finalize", lambda number, form: calls.append(("finalize", number)))
    monkeypatch.setattr(theirs, "scope", Scope)
    with proton.scope("before"):
        pass
    proton.start("times")
    proton.start("inside", backend="instrumentation")
    with proton.scope("step"):
        run(gpu)
    proton.finalize()
    assert calls == [("times", None), ("enter", "step", None), ("exit", "step"), ("finalize", 7)]
    assert set(tree_of(tmp_path / "inside.hatchet")) == {"step"}


def test_the_hook_of_the_host_buffer_names_the_warps(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_torch.install(monkeypatch, gpu)
    mode = proton.mode.Default(sampling_strategy="selective", sampling_options="0,2", granularity="warp")
    proton.start("buffer", backend="instrumentation", mode=mode)
    hook = proton.hooks.InstrumentationHook
    monkeypatch.setattr(
        sys.modules["torch"], "frombuffer", lambda raw, dtype: np.frombuffer(raw, np.uint8), raising=False
    )
    monkeypatch.setattr(sys.modules["torch"], "uint8", None, raising=False)
    assert hook.host_buffer.view(np.uint32)[9] == 0, "no launch has been recorded yet"
    run(gpu)
    words = hook.host_buffer.view(np.uint32)
    assert words[9:12].tolist() == [2, 0, 2]
    assert words[int(words[3]) // 4] == 0xDEADBEEF
    proton.finalize()
    assert hook.host_buffer is None


def test_deactivated_launches_are_left_alone(gpu: FakeGpu) -> None:
    session = proton.start("switched", backend="instrumentation", data="trace")
    for switch in (proton.deactivate, proton.activate):
        run(gpu)
        switch(session)
    run(gpu, blocks=1)
    trace = proton.finalize(session)
    assert trace is not None
    assert [launch.grid[0] for launch in trace.meta.launches] == [2, 1]
    assert ["@woven" in fired.ptx for fired in gpu.fired] == [True, False, True]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"backend": "tracer"}, "'instrumentation', None, 'cupti'"),
        ({"backend": "instrumentation", "data": "table"}, "'trace', 'tree'"),
        ({"backend": "instrumentation", "hook": "tritn"}, "hook='tritn'"),
        ({"backend": "instrumentation", "mode": "mm"}, "'default', 'mma'"),
        ({"backend": "instrumentation", "mode": "default:buffer=1"}, "buffer=1"),
        ({"backend": "instrumentation", "mode": "default:optimizations=clock3"}, "did you mean 'clock32'"),
        ({"backend": "instrumentation", "mode": "default:granularity=warp_2"}, "'warp_group'"),
        ({"backend": "instrumentation", "mode": "default:sampling_strategy=selective:sampling_options=a"}, "0,1,2,3"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        proton.start("refused", **arguments)
    assert not proton.sessions.sessions
    with pytest.raises(UsageError, match="no session 5"):
        proton.finalize(5)


def test_protons_own_mode_objects_are_understood() -> None:
    theirs = pytest.importorskip("triton.profiler.mode", reason="this triton has no Proton")
    mode = theirs.Default(granularity="cta", buffer_type="global", optimizations="clock32,time_shift", buffer_size=64)
    assert proton.mode.parse(mode) == proton.mode.Default(
        granularity="cta", buffer_type="global", optimizations="clock32,time_shift", buffer_size=64
    )
