"""profile(): the block's end makes the trace, whatever the block did."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import warplens as wl
from warplens.errors import UsageError
from warplens.options import Options
from warplens.record.capture import Launch
from warplens.record.layout import Kind
from warplens.record.track_writer import TrackWriter
from warplens.session import active


class Ran:
    """A launch that has run; collecting it may fail."""

    def __init__(self, records: int = 2, capacity: int = 8, fails: str = "") -> None:
        self._records, self._capacity, self._fails = records, capacity, fails

    def collect(self) -> Launch:
        if self._fails:
            raise wl.WarplensError(self._fails)
        writer = TrackWriter(self._capacity)
        writer.start(0, 0)
        for i in range(self._records):
            writer.record(Kind.END if i % 2 else Kind.BEGIN, 1, 10 * (i + 1))
        writer.exit(1000, 1000)
        return Launch("gemm", (1, 1, 1), (32, 1, 1), {1: "load"}, self._capacity, writer.to_bytes())


def test_the_block_makes_a_trace_and_a_file(tmp_path: Path) -> None:
    with wl.profile(tmp_path / "t.warplens", rank=2) as prof:
        prof.add(Ran())
        prof.add(Ran())
        with pytest.raises(wl.WarplensError, match="not there yet"):
            _ = prof.trace
    assert len(prof.trace) == 2
    loaded = wl.load(tmp_path / "t.warplens")
    assert loaded.spans.equals(prof.trace.spans)
    assert set(loaded.spans["rank"].to_pylist()) == {2}
    assert loaded.spans["launch"].to_pylist() == [0, 1]


def test_a_failing_block_still_leaves_its_trace(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), wl.profile(tmp_path / "t.warplens") as prof:
        prof.add(Ran())
        _ = 1 // 0
    assert len(wl.load(tmp_path / "t.warplens")) == 1
    assert active() is None


def test_a_relative_path_is_fixed_when_the_profile_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "t.warplens").write_text("mine")
    monkeypatch.chdir(tmp_path)
    with wl.profile("t.warplens") as prof:
        prof.add(Ran())
        os.chdir("elsewhere")
    assert len(wl.load(tmp_path / "t.warplens")) == 1
    assert (tmp_path / "elsewhere" / "t.warplens").read_text() == "mine"


def test_a_save_that_fails_names_the_file_and_keeps_the_blocks_own_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "gone" / "t.warplens"
    path.parent.mkdir()
    with pytest.raises(wl.WarplensError, match=r"gone.*t.warplens"), wl.profile(path) as prof:
        prof.add(Ran())
        path.parent.rmdir()
    path.parent.mkdir()
    with pytest.raises(ZeroDivisionError), wl.profile(path) as prof:
        prof.add(Ran())
        path.parent.rmdir()
        _ = 1 // 0
    assert "t.warplens" in capsys.readouterr().err
    assert len(prof.trace) == 1


def test_the_blocks_own_error_wins_over_an_empty_profile(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), wl.profile():
        _ = 1 // 0
    assert "no kernel was profiled" in capsys.readouterr().err


def test_one_launch_that_cannot_be_collected_does_not_lose_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    with wl.profile() as prof:
        prof.add(Ran(fails="the device was lost"))
        prof.add(Ran())
    assert len(prof.trace) == 1
    assert "the device was lost" in capsys.readouterr().err


def test_silence_is_an_error() -> None:
    with pytest.raises(wl.WarplensError, match="the device was lost"), wl.profile() as prof:
        prof.add(Ran(fails="the device was lost"))
    with pytest.raises(wl.WarplensError, match="no kernel was profiled"), wl.profile():
        pass
    with pytest.raises(wl.WarplensError, match="gemm ran but recorded nothing"), wl.profile() as prof:
        prof.add(Ran(records=0))
    with pytest.raises(wl.WarplensError, match="2 records were written but none was kept"), wl.profile() as prof:
        prof.add(Ran(capacity=0))


def test_decorator_profiles_each_call() -> None:
    prof = wl.profile()

    @prof
    def work(x: int) -> int:
        running = active()
        assert running is not None
        running.add(Ran())
        return x + 1

    assert [work(1), work(2)] == [2, 3]
    assert len(prof.trace) == 1
    with pytest.raises(wl.WarplensError, match="with brackets"):
        wl.profile(work)  # type: ignore[arg-type]


def record_one() -> None:
    running = active()
    assert running is not None
    running.add(Ran())


def test_a_decorated_coroutine_or_generator_is_profiled_to_its_end() -> None:
    """Calling one runs nothing of it: the profile must last as long as its body."""
    prof = wl.profile()

    @prof
    async def waits() -> str:
        await asyncio.sleep(0)
        record_one()
        return "done"

    @prof
    def counts() -> Iterator[int]:
        record_one()
        got = yield 1
        assert got == "more"
        yield 2

    @prof
    async def streams() -> AsyncIterator[int]:
        for number in range(3):
            await asyncio.sleep(0)
            record_one()
            yield number

    async def read() -> list[int]:
        return [number async for number in streams()]

    assert asyncio.run(waits()) == "done"
    assert len(prof.trace) == 1
    generator = counts()
    assert [next(generator), generator.send("more"), *generator] == [1, 2]
    assert len(prof.trace) == 1
    assert asyncio.run(read()) == [0, 1, 2]
    assert len(prof.trace) == 3
    assert active() is None


def test_profiles_do_not_nest() -> None:
    with wl.profile(launches=1) as prof:
        prof.add(Ran())
        assert prof.wants("gemm")
        for again in (wl.profile(), prof):
            with pytest.raises(wl.WarplensError, match="already running"), again:
                pass
        assert active() is prof
        assert not prof.wants("gemm"), "what was refused has not touched the one that runs"
        assert prof.seen == {"gemm": 2}, "every launch counts once, recorded or not"
    assert len(prof.trace) == 1


def test_what_an_interrupt_left_behind_is_not_in_the_next_profile() -> None:
    class Interrupted(Ran):
        def collect(self) -> Launch:
            raise KeyboardInterrupt

    prof = wl.profile()
    with pytest.raises(KeyboardInterrupt), prof:
        prof.add(Ran())
        prof.add(Interrupted())
        first = prof.buffers
    assert active() is None
    with prof:
        assert prof.buffers is not first
        prof.add(Ran())
    assert len(prof.trace) == 1


def test_a_rank_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "first")
    with pytest.raises(UsageError, match="RANK='first'"):
        wl.profile()
    assert wl.profile(rank=3).rank == 3


def test_a_rank_beyond_its_column_is_refused_before_the_kernels_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for given in ("99999999999", "-1", "²"):
        monkeypatch.setenv("RANK", given)
        with pytest.raises(UsageError, match=f"RANK='{given}' is not a number in 0"):
            wl.profile()
    with pytest.raises(UsageError, match="rank=2147483648 is not a number"):
        wl.profile(rank=1 << 31)
    monkeypatch.setenv("RANK", "40000")
    assert wl.profile().rank == 40_000


def test_the_environment_switches_everything_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WARPLENS", "0")
    with wl.profile(tmp_path / "t.warplens") as prof:
        assert active() is None
    assert len(prof.trace) == 0
    assert len(prof.trace.stats()) == 0
    assert not (tmp_path / "t.warplens").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ful": "ring"}, "did you mean 'full'"),
        ({"full": "round"}, "allowed are 'stop' and 'ring'"),
        ({"records_per_warp": -1}, "must be within"),
        ({"every": 0}, "at least 1"),
        ({"kernels": "["}, "not a regular expression"),
        ({"warps": []}, "name at least one"),
        ({"blocks": 0}, r"blocks=0: name at least one"),
        ({"records_per_warp": "many"}, r"records_per_warp='many': expected a whole number"),
        ({"launches": "all"}, r"launches='all': expected a whole number; None records all"),
        ({"warps": 3}, r"warps=3: expected numbers, such as \[0, 4\] or range\(4\)"),
        ({"warps": "0"}, "expected numbers"),
        ({"blocks": "8"}, "expected a count, a slice or numbers"),
        ({"least_occupancy": "all"}, "expected a share within 0..1"),
        ({"auto": 7}, "auto=7: expected True, or classes of operations"),
        ({"regions": "softmax=attn.py:1-9"}, "expected lines by name"),
        ({"kernels": ["a", "b"]}, "expected a regular expression"),
    ],
)
def test_wrong_options_are_refused_at_once(options: dict, message: str) -> None:
    with pytest.raises(wl.WarplensError, match=message):
        wl.profile(**options)


def test_a_folder_that_does_not_exist_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(wl.WarplensError, match="does not exist; create it first"):
        wl.profile(tmp_path / "no" / "t.warplens")


def test_a_front_end_refuses_what_it_does_not_know_and_says_which() -> None:
    options = wl.profile(clock="64", buffer="shared").options
    with pytest.raises(UsageError, match="clock='64' is not there for CUDA kernels"):
        options.refuse("CUDA kernels", "clock", "buffer")
    options.refuse("CUDA kernels", "full")
    with pytest.raises(UsageError, match="exclude each other"):
        wl.profile(records_per_warp=4, bytes_per_block=64)
    with pytest.raises(UsageError, match="bytes_per_block=4"):
        wl.profile(bytes_per_block=4)


def test_losses_are_said_with_the_size_that_keeps_them(capsys: pytest.CaptureFixture[str]) -> None:
    with wl.profile() as prof:
        prof.add(Ran(records=4))
        prof.add(Ran(records=20))
    assert "12 of 24 records were lost, their tracks were full; records_per_warp=20 keeps" in capsys.readouterr().err
    with wl.profile() as prof:
        prof.add(Ran(records=20, capacity=20))
    assert capsys.readouterr().err == ""


def test_a_paused_profile_leaves_launches_to_others() -> None:
    profile = wl.profile()
    with profile:
        profile.add(Ran())
        profile.pause()
        assert active() is None
        with wl.profile() as other:
            other.add(Ran())
        profile.resume()
        assert active() is profile
        profile.add(Ran())
        profile.pause()
    assert len(profile.trace.meta.launches) == 2
    assert active() is None


def test_a_profile_that_gives_way_goes_on_when_the_inner_one_ends() -> None:
    outer = wl.profile(whole_program=True)
    with outer:
        outer.add(Ran())
        with pytest.raises(ZeroDivisionError), wl.profile() as inner:
            assert active() is inner
            inner.add(Ran())
            _ = 1 // 0
        assert active() is outer
        outer.add(Ran())
    assert (len(outer.trace.meta.launches), len(inner.trace.meta.launches)) == (2, 1)
    assert active() is None


def test_what_is_said_of_a_kernel_is_said_once_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with wl.profile(tmp_path / "t.warplens") as prof:
        prof.add(Ran())
        for _ in range(2):
            prof.note("gemm", "runs unmarked: it would spill")
    assert capsys.readouterr().err == "warplens: gemm: runs unmarked: it would spill\n"
    assert list(wl.load(tmp_path / "t.warplens").meta.notes["gemm"]) == ["runs unmarked: it would spill"]


def test_a_profile_that_is_entered_again_counts_from_the_start() -> None:
    prof = wl.profile(launches=1, auto="loads")
    for _ in range(2):
        with prof:
            assert [prof.wants("gemm"), prof.wants("gemm")] == [True, False]
            prof.pause()
            prof.resume()
            assert not prof.wants("gemm"), "a pause is no new start"
            prof.add(Ran())
        assert prof.seen == {"gemm": 3}


def test_launches_of_several_threads_are_counted_one_by_one() -> None:
    prof = wl.profile(launches=5)

    class SlowOptions:
        """Lets other threads run between a look at the quota and what follows from it."""

        def __init__(self, options: Options) -> None:
            self._options = options

        def __getattr__(self, name: str) -> object:
            time.sleep(1e-4)
            return getattr(self._options, name)

    prof.variants.options = SlowOptions(prof.options)  # type: ignore[assignment]

    def launch() -> int:
        return sum(prof.wants("gemm") for _ in range(30))

    with ThreadPoolExecutor(4) as pool:
        wanted = [pool.submit(launch) for _ in range(4)]
    assert sum(job.result() for job in wanted) == 5


def test_a_forked_child_leaves_the_trace_to_its_parent(tmp_path: Path) -> None:
    path = tmp_path / "t.warplens"
    with wl.profile(path) as prof:
        prof.add(Ran())
        child = os.fork()
        if not child:
            try:
                prof.__exit__(SystemExit, SystemExit(), None)
            finally:
                os._exit(path.exists())
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(wl.load(path)) == 1


def test_names_that_steer_a_terminal_are_shown_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    with wl.profile() as prof:
        prof.add(Ran())
        prof.note("k\x1b]52;c;aGk=\x07", "runs unmarked: \u202eit")
    said = capsys.readouterr().err
    assert "\x1b" not in said
    assert "\u202e" not in said
    assert "runs unmarked" in said
