"""transformer_nuggets' profiler on warplens: its example, its buffer, its functions, and its limitation gone."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

# The DSL reads the architecture that this sets when it is imported.
from tests.support.cute_gpu import Gpu, compile_cute, install

# isort: split
from cutlass import Float32, Int32, Int64, cute
from cutlass.base_dsl.jit_executor import JitExecutor
from cutlass.cute.runtime import make_fake_compact_tensor
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.nuggets_kernels import KERNELS, SCOPES, timed
from warplens import simulate
from warplens.compat import nuggets
from warplens.errors import UsageError, WarplensError
from warplens.ptx import tree

TAGS = nuggets.TagTable(["a", "b", "c"])
EVENTS = 256


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    return install(monkeypatch)


def run(gpu: Gpu, kernel: Any, events: int = EVENTS, said: int | None = None) -> tuple[Any, Any]:
    """A kernel's output and its profile buffer after 2 blocks of 96 threads."""

    @cute.jit
    def launch(out: cute.Tensor, prof: cute.Tensor, max_events: Int32):
        kernel(out, prof, max_events).launch(grid=(2, 1, 1), block=(96, 1, 1))

    words = 1 + 4 * events
    out, prof = (make_fake_compact_tensor(dtype, (n,)) for dtype, n in ((Float32, 192), (Int64, words)))
    module = tree.parse(compile_cute(launch, out, prof, Int32(events)).__ptx__)
    at, buffer = gpu.array(np.arange(192, dtype=np.float32)), gpu.array(np.zeros(words + 8, np.int64))
    (entry,) = module.entries
    simulate.run(module, entry.name, 2, 96, [at, buffer, events if said is None else said], memory=gpu.space)
    everything = gpu.read(buffer, np.int64, words + 8)
    assert not everything[words:].any(), "written past the end of the buffer"
    return gpu.read(at, np.float32, 192), everything[:words]


@pytest.mark.parametrize("name", sorted(SCOPES))
def test_variables_cross_a_region_as_they_cross_any_block(gpu: Gpu, name: str) -> None:
    kernel, expected, counts = SCOPES[name]
    out, buffer = run(gpu, kernel)
    np.testing.assert_array_equal(out, expected(np.arange(192, dtype=np.float32)))
    events, overflow = nuggets.decode_events(buffer, TAGS)
    assert not overflow
    assert Counter(event.tag_name for event in events) == counts
    assert {event.tid for event in events} == {0, 1}
    assert all(event.dur_ns >= 0 and event.start_ns > 0 for event in events)


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_each_function_records_from_the_threads_it_names(gpu: Gpu, name: str) -> None:
    kernel, tids = KERNELS[name]
    _, buffer = run(gpu, kernel)
    events, _ = nuggets.decode_events(buffer, TAGS)
    assert Counter(event.tid for event in events) == Counter(tids)
    assert {event.tag_name for event in events} == {"b"}


def test_the_global_timer_counts_the_nanoseconds_that_a_region_around_it_takes(gpu: Gpu) -> None:
    out, buffer = run(gpu, timed)
    events, _ = nuggets.decode_events(buffer, TAGS)
    assert {event.tid for event in events} == {0, 1}
    for event in events:
        read = out[96 * event.tid]
        # Either may fall short of the other by a step of the timer, which is 32 ns.
        assert 0 < read <= event.dur_ns + 32
        assert event.dur_ns < 2 * read + 128


@pytest.mark.parametrize("said", [None, 10**6])
def test_what_does_not_fit_is_counted_and_written_nowhere(gpu: Gpu, said: int | None) -> None:
    kernel, tids = KERNELS["profile"]
    _, buffer = run(gpu, kernel, events=7, said=said)
    events, overflow = nuggets.decode_events(buffer, TAGS)
    assert (len(events), overflow, int(buffer[0])) == (7, True, len(tids))


def test_the_seeds_own_example_runs(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tests.support import nuggets_seed

    words = 1 + 4 * EVENTS
    buffer = gpu.array(np.zeros(words, np.int64))
    tensor = SimpleNamespace(cpu=lambda: SimpleNamespace(numpy=lambda: gpu.read(buffer, np.int64, words)))
    torch = ModuleType("torch")
    torch.int64, torch.cuda = np.int64, SimpleNamespace(synchronize=lambda: None)  # type: ignore[attr-defined]
    torch.zeros = lambda size, dtype, device: tensor  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    output = np.zeros(512, np.float32)
    real, zeros = nuggets_seed.from_dlpack, np.zeros(words, np.int64)
    # The DSL traces with arrays of the same shape on the host; the interpreter then runs on its own memory.
    monkeypatch.setattr(nuggets_seed, "from_dlpack", lambda t: real(output if t is output else zeros))
    fakes = [make_fake_compact_tensor(Float32, (512,)), make_fake_compact_tensor(Int64, (words,))]
    module = tree.parse(compile_cute(nuggets_seed.MyProfiledKernel().__call__, *fakes, Int32(EVENTS)).__ptx__)
    (entry,) = module.entries
    arguments = [gpu.array(output), buffer, EVENTS]

    def launch(self: Any, exe_args: Any) -> None:
        simulate.run(module, entry.name, 4, 128, arguments, memory=gpu.space)

    monkeypatch.setattr(JitExecutor, "run_compiled_program", launch)
    monkeypatch.setattr("cutlass.base_dsl.jit_executor.JitCompiledFunction.run_compiled_program", launch)
    events = nuggets_seed.main(torch, output, tmp_path / "trace.json")
    assert Counter((event.tag_name, event.tid) for event in events) == {
        **{("outer", block): 1 for block in range(4)},
        **{("inner", block): 4 for block in range(4)},
    }
    rows = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    slices = [row for row in rows if row["ph"] == "X"]
    assert len(slices) == 20
    assert min(row["ts"] for row in slices) == 0
    assert {row["args"]["start_ns"] for row in slices} == {event.start_ns for event in events}


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """As much of torch as a session asks for; `words` is the buffer, `waited` what was waited for."""
    made = SimpleNamespace(words=np.zeros(0, np.int64), waited=[])

    def zeros(size: int, dtype: Any, device: str) -> Any:
        made.words = np.zeros(size, dtype)
        return SimpleNamespace(cpu=lambda: SimpleNamespace(numpy=lambda: made.words))

    torch = ModuleType("torch")
    torch.int64, torch.zeros = np.int64, zeros  # type: ignore[attr-defined]
    torch.cuda = SimpleNamespace(synchronize=lambda: made.waited.append("device"))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    return made


def test_a_session_waits_decodes_tells_of_losses_and_writes_the_trace(
    memory: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.json"
    with nuggets.profile_session(2, ["a", "b"], trace_path=path, pid=3) as (prof, tags):
        assert (prof.max_events, tags.id("b"), len(memory.words)) == (2, 1, 9)
        memory.words[:] = [3, 1000, 50, 1, 7, 1010, 20, 0, 7]
        assert not memory.waited
        assert not path.exists()
    assert memory.waited == ["device"]
    assert "1 events were lost; use max_events=3 to keep all of them" in capsys.readouterr().err
    rows = [row for row in json.loads(path.read_text())["traceEvents"] if row["ph"] == "X"]
    assert [(row["name"], row["pid"], row["tid"]) for row in rows] == [("b", 3, 7), ("a", 3, 7)]


def test_a_session_that_fails_writes_nothing_and_hides_no_error(memory: SimpleNamespace, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), nuggets.profile_session(2, ["a"], trace_path=tmp_path / "t.json"):
        1 / 0  # noqa: B018
    assert not list(tmp_path.iterdir())


def test_a_buffer_written_elsewhere_decodes() -> None:
    words = [3, 1000, 50, 1, 7, 1010, 20, 0, 7, 2000, 5, 9, 8]
    events, overflow = nuggets.decode_events(np.array(words), TAGS, tid_base=100)
    assert [(e.start_ns, e.dur_ns, e.tag_id, e.tag_name, e.tid) for e in events] == [
        (1000, 50, 1, "b", 107), (1010, 20, 0, "a", 107), (2000, 5, 9, "unknown_9", 108),
    ]  # fmt: skip
    assert not overflow
    assert nuggets.decode_events(np.array([4, *words[1:]]), TAGS)[1]


@given(
    st.lists(
        st.tuples(st.integers(1, 40), st.integers(0, 30), st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=30
    ),
    st.sampled_from([10, 10**9]),
)
@example([(1, 2, 0, 0), (1, 4, 0, 0), (2, 2, 0, 0), (3, 3, 0, 0), (4, 3, 0, 0)], 10)
def test_events_keep_their_times_as_a_trace(rows: list[tuple[int, int, int, int]], ns: int) -> None:
    events = [nuggets.Event(10**9 + ns * start, ns * dur, tag, TAGS.name(tag), tid) for start, dur, tag, tid in rows]
    trace = nuggets.to_trace(events)
    tids = sorted({event.tid for event in events})
    expected = Counter((tids.index(event.tid), event.tag_name, event.start_ns, event.dur_ns) for event in events)
    seen = Counter(
        (row["block"], row["region"], row["start_cycle"], row["dur_cycles"]) for row in trace.spans.to_pylist()
    )
    assert seen == expected
    assert trace.meta.losses.orphan_ends == trace.meta.losses.open_spans == 0


def test_an_event_that_ended_before_it_began_takes_no_time() -> None:
    events = [nuggets.Event(1000, -50, 0, "a", 0), nuggets.Event(2000, 20, 1, "b", 0)]
    trace = nuggets.to_trace(events)
    assert trace.spans.column("dur_cycles").to_pylist() == [0, 20]


def test_events_go_to_every_format(tmp_path: Path) -> None:
    events = [nuggets.Event(1000, 50, 0, "a", 3), nuggets.Event(1010, 20, 1, "b", 3)]
    rows = json.loads(nuggets.events_to_perfetto(events, tmp_path / "t.json", pid=2, tid_prefix=100).read_text())
    slices = [
        (row["name"], row["pid"], row["tid"], row["ts"], row["dur"]) for row in rows["traceEvents"] if row["ph"] == "X"
    ]
    assert slices == [("a", 2, 103, 0.0, 0.05), ("b", 2, 103, 0.01, 0.02)]
    assert nuggets.events_to_perfetto(events, tmp_path / "t.pftrace").stat().st_size > 0


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: nuggets.decode_events(np.zeros(5, np.float32), TAGS), "float32 of shape"),
        (lambda: nuggets.decode_events(np.array([-1, 0, 0, 0, 0]), TAGS), "invalid event count, -1"),
        (lambda: nuggets.allocate_profile_buffer(0), "max_events=0"),
        (lambda: nuggets.TagTable(["x", "x"]), "names must be unique"),
        (lambda: TAGS.id("aa"), "unknown tag 'aa'"),
        (lambda: nuggets.to_trace([]), "no events; no kernel wrote"),
    ],
)
def test_bad_input_gets_one_clear_error(act: Any, message: str) -> None:
    with pytest.raises(WarplensError, match=message):
        act()


def test_a_buffer_of_another_type_is_refused_while_the_kernel_is_traced() -> None:
    kernel, _ = KERNELS["profile"]

    @cute.jit
    def launch(out: cute.Tensor, prof: cute.Tensor):
        kernel(out, prof, Int32(3)).launch(grid=(1, 1, 1), block=(32, 1, 1))

    tensors = [make_fake_compact_tensor(Float32, (64,)) for _ in range(2)]
    with pytest.raises(UsageError, match="profile buffer is a tensor of Float32; pass the int64 tensor"):
        cute.compile(launch, *tensors)
