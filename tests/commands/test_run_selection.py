"""Which launches and blocks `warplens run` records, and how it reports variants, samples and the slowdown."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import warplens as wl
from tests.support.run_program import interpreted, program, run
from tests.support.wave_capture import launch_of, waves
from warplens.analyse.profiling_cost import profiling_cost
from warplens.analyse.run_summary import summarise
from warplens.analyse.sample_share import sample_share
from warplens.analyse.slowdown import slowdown_of
from warplens.commands import main
from warplens.commands import run as run_command
from warplens.commands.shared.run_report import describe, document
from warplens.decode import decode
from warplens.errors import WarplensError
from warplens.launch.block_sampler import sample_launches
from warplens.launch.collected_run import CollectedRun
from warplens.options import COLD, Options
from warplens.profiling.job_ranks import JobRank
from warplens.record.capture import OVERHEAD_BUDGET, VARIANT, VARIANT_LAUNCHES, Capture, Device, Launch
from warplens.runner.program import Outcome, TargetProgram
from warplens.trace.model import Trace
from warplens.view.html import ReportOptions, report

STEPS = """
import numpy as np
import triton, triton.language as tl
import nvtx
import warplens as wl
from tests.support.fake_device import gpu

@triton.jit
def copy(x, out, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offs, tl.load(x + offs))

x, out = (gpu.tensor(np.arange(256, dtype=np.float32)) for _ in range(2))
for step in range(4):
    nvtx.push_range(f"step {step}")
    copy[(2,)](x, out, BLOCK=128)
    copy[(1,)](x, out, BLOCK=128)
    nvtx.pop_range()
    copy[(1,)](x, out, BLOCK=256)
    wl.step()
"""
NVTX = "def push_range(message=None, color=None): pass\ndef pop_range(): pass\n"


@pytest.fixture
def stepped(tmp_path: Path) -> Path:
    program(tmp_path, NVTX, "nvtx.py")
    program(tmp_path, STEPS)
    return tmp_path


def kernels(folder: Path, *words: str) -> tuple[dict[str, tuple[int, int]], dict[str, Any]]:
    """The recorded and the made launches of each variant, and the whole document."""
    done = run(folder, "--auto", "loads", "--json", "--force", *words, "prog.py")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    return {one["variant"] or one["kernel"]: (one["recorded"], one["ran"]) for one in made["kernels"]}, made


def test_variants_have_their_own_quota_and_their_cold_launch_is_left_out(stepped: Path) -> None:
    found, made = kernels(stepped, "--launches", "2")
    names = ["copy[grid 2 BLOCK=128]", "copy[grid 1 BLOCK=128]", "copy[grid 1 BLOCK=256]"]
    assert found == dict.fromkeys(names, (2, 4))
    assert {one["kernel"] for one in made["kernels"]} == {"copy"}
    assert made["cold_launches_left_out"] == 3
    merged, _ = kernels(stepped, "--launches", "2", "--merge-variants")
    assert merged == {"copy": (6, 12)}


def test_steps_ranges_and_skips_choose_launches(stepped: Path) -> None:
    every_step = kernels(stepped, "--from-step", "1", "--to-step", "2", "--skip", "0")[0]
    assert set(every_step.values()) == {(2, 4)}
    inside, _ = kernels(stepped, "--within", "step [23]", "--skip", "0")
    assert inside == {"copy[grid 2]": (2, 4), "copy[grid 1]": (2, 4)}
    odd, made = kernels(stepped, "--skip", "1", "--every", "2", "--launches", "all")
    assert set(odd.values()) == {(2, 4)}
    assert made["cold_launches_left_out"] == 0


def test_the_summary_names_variants_and_says_what_was_left_out(stepped: Path) -> None:
    done = run(stepped, "--auto", "loads", "--launches", "1", "prog.py")
    assert "copy[grid 2 BLOCK=128]" in done.stderr
    assert "the cold first launch of each variant was left out (3 launches); use --skip 0 to keep it" in done.stderr


def test_a_trace_larger_than_its_size_is_a_sample(tmp_path: Path) -> None:
    program(
        tmp_path,
        """
        import triton, triton.language as tl
        import warplens.triton as wlt

        @triton.jit
        def counted():
            for i in range(16):
                with wlt.region("inner"):
                    x = tl.arange(0, 8) * i
        counted[(400,)]()
        """,
    )
    done = interpreted(tmp_path, "--trace-size", "70KB", "prog.py")
    assert done.returncode == 0, done.stderr
    share = sample_share(wl.load(tmp_path / "prog.warplens").meta.launches)
    assert share is not None
    assert 2 <= share["blocks"] < 300
    said = f"sample: {share['blocks']:,} of 400 blocks recorded ("
    assert said in done.stderr
    assert "--blocks all records all" in done.stderr
    whole = interpreted(tmp_path, "--force", "prog.py")
    assert "blocks recorded" not in whole.stderr
    assert len(set(wl.load(tmp_path / "prog.warplens").numpy("block").tolist())) == 400


class _Stop(WarplensError):
    pass


def options_of(monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str) -> Options:
    """The options of the profile that a command line asks for."""
    asked: list[dict[str, Any]] = []

    def stop(path: Path, whole_program: bool, **options: Any) -> None:
        asked.append(options)
        raise _Stop("stop")

    monkeypatch.setattr(run_command, "Profile", stop)
    program(folder, "pass")
    monkeypatch.chdir(folder)
    assert main(["run", *words, "prog.py"]) == 1
    return Options.of(asked[0])


def test_a_run_is_small_and_warm_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def asked(*words: str) -> Options:
        return options_of(monkeypatch, tmp_path, *words)

    plain = asked()
    assert (plain.skip, plain.trace_bytes, plain.memory, plain.blocks) == (COLD, 64_000_000, None, None)
    assert (asked("--skip", "3").skip, asked("--skip", "0").skip) == (3, 0)
    assert asked("--blocks", "all").trace_bytes is None
    assert asked("--blocks", "all").blocks is None
    assert (asked("--blocks", "8").blocks, asked("--blocks", "8").trace_bytes) == (8, None)
    assert asked("--blocks", "1-3,9").blocks == [1, 2, 3, 9]
    assert asked("--blocks", "8", "--trace-size", "2MB").trace_bytes == 2_000_000
    for text, size in (("512MB", 512_000_000), ("2GiB", 2 << 30), ("1.5mb", 1_500_000), ("4194304", 4 << 20)):
        assert asked("--memory", text).memory == size
    assert plain.overhead is None, "hand-written marks are all recorded"
    assert asked("--auto", "all").overhead == asked("--region", "x=a.py:1-2").overhead == 0.05
    assert asked("--auto", "all", "--overhead", "any").overhead is None
    assert asked("--overhead", "2.5%").overhead == asked("--overhead", "0.025").overhead == 0.025
    assert (plain.mode, asked("--mode", "aggregate").mode) == ("trace", "aggregate")
    window = asked("--within", "fwd.*", "--from-step", "2", "--to-step", "5", "--every", "3")
    assert (window.within, window.from_step, window.to_step, window.every) == ("fwd.*", 2, 5, 3)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--skip", "-1"], "--skip -1: expected a number of launches, 0 or more"),
        (["--skip", "some"], "--skip some: expected a number of launches, 0 or more"),
        (["--memory", "lots"], "--memory lots: expected a size, such as 512MB, 2GiB or a number of bytes"),
        (["--memory", "12parsecs"], "expected a size"),
        (["--memory", "1KB"], "memory=1000: must be at least"),
        (["--trace-size", "1KB"], "--trace-size 1KB: must be at least 65,536 bytes"),
        (["--blocks", "all", "--trace-size", "1GB"], "--blocks all and --trace-size exclude each other"),
        (["--blocks", "some"], "--blocks some: expected `all`, a number, or numbers and ranges"),
        (["--blocks", "0"], "blocks="),
        (["--within", "["], "within='[' is not a regular expression"),
        (["--from-step", "3", "--to-step", "2"], "to_step=2 comes before from_step=3"),
        (["--from-step", "-1"], "from_step=-1: must not be negative"),
        (["--from-step", "x"], "'x' is not a valid integer"),
        (["--overhead", "little"], "--overhead little: expected a share such as 5% or 0.05, or `any`"),
        (["--overhead", "0%"], "overhead=0.0: must be above 0"),
        (["--mode", "sum"], "mode='sum': allowed are 'trace' and 'aggregate'"),
        (["--mode", "aggregate", "--full", "ring", "--clock", "64"], "full='ring' records 32-bit clocks"),
    ],
)
def test_wrong_selections_are_refused_before_anything_runs(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    program(tmp_path, "raise AssertionError('ran')")
    assert main(["run", *words, "prog.py"]) == 2
    assert message in capsys.readouterr().err


def test_the_help_says_what_each_choice_does_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "the cold first one, if more follow" in text
    assert "[default: 64MB; no limit with --blocks]" in text
    assert "Record every N-th launch of each variant." in text


def variant_launch(grid: int, ran: int, **cost: float) -> Launch:
    made = launch_of(waves(grid), extra={VARIANT: {"grid": [grid, 1, 1], "num_warps": 2}, VARIANT_LAUNCHES: ran})
    return Launch(**{**vars(made), "cost": cost})


MEASURED = {
    "slowdown_measured": 1.0712,
    "slowdown_plain_launches": 10.0,
    "slowdown_recorded_launches": 9.0,
    "slowdown": 1.9,
}
TEXT = "1.07 (measured, 10 plain and 9 recorded launches)"


@pytest.fixture
def varied() -> Trace:
    """Two variants: one whose slowdown was measured, and one with an estimate alone."""
    launches = [
        variant_launch(32, 40, **MEASURED),
        variant_launch(32, 40, **MEASURED),
        variant_launch(64, 7, slowdown=1.25),
    ]
    return decode(Capture(launches, device=Device("test", sm_count=16)))


def test_several_kernels_with_one_variant_each_show_their_regions() -> None:
    launches = [variant_launch(32, 1), Launch(**{**vars(variant_launch(64, 1)), "kernel": "copy"})]
    trace = decode(Capture(launches, device=Device("test", sm_count=16)))
    rows = summarise(trace, {})
    assert sorted(one.name for one in rows) == ["copy", "matmul"]
    assert all(one.regions and one.records_per_warp and one.top for one in rows)
    assert {one.name: one.regions for one in rows} == {
        one.name: one.regions for one in summarise(trace, {}, merge_variants=True)
    }


@pytest.mark.parametrize(("ratio", "ending"), [(1.05, "launches)"), (1.0512, "launches, above the 5.0 % allowed)")])
def test_a_slowdown_above_the_budget_is_shown_as_such(ratio: float, ending: str) -> None:
    launch = variant_launch(32, 1, **{**MEASURED, "slowdown_measured": ratio})
    launch = launch.noting(extra={OVERHEAD_BUDGET: {"allowed": 0.05}})
    (row,) = summarise(decode(Capture([launch], device=Device("test", sm_count=16))), {})
    assert str(row.slowdown).endswith(ending)


def test_the_slowdown_is_measured_per_variant_or_said_to_be_estimated(
    varied: Trace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = {one.name: one for one in summarise(varied, {"matmul": 47})}
    assert str(rows["matmul[grid 32]"].slowdown) == TEXT
    assert str(rows["matmul[grid 64]"].slowdown) == "1.25 (estimated)"
    assert rows["matmul[grid 32]"].to_json()["slowdown"] == {
        "ratio": 1.0712,
        "measured": True,
        "plain": 10,
        "recorded": 9,
        "allowed": None,
    }
    assert (rows["matmul[grid 32]"].estimated, rows["matmul[grid 64]"].measured) == (None, None)
    assert rows["matmul[grid 32]"].cost == pytest.approx(1 - 1 / 1.0712)
    assert profiling_cost(varied, "matmul") == pytest.approx(1 - 1 / 1.0712)
    assert slowdown_of([]) is None
    varied.save(tmp_path / "t.warplens")
    assert main(["info", str(tmp_path / "t.warplens")]) == 0
    shown = capsys.readouterr().out
    assert TEXT in shown
    assert "1.25 (estimated)" in shown
    assert "2 of 40" in shown
    assert main(["info", "--json", str(tmp_path / "t.warplens")]) == 0
    variants = json.loads(capsys.readouterr().out)["variants"]
    assert [(one["label"], one["kernel"], one["slowdown"]["measured"]) for one in variants] == [
        ("matmul[grid 32]", "matmul", True),
        ("matmul[grid 64]", "matmul", False),
    ]
    page = report([varied], ReportOptions())
    assert TEXT in page
    assert "1.25 (estimated)" in page


def test_the_run_report_shows_variants_and_the_measured_slowdown(
    varied: Trace, capsys: pytest.CaptureFixture[str]
) -> None:
    profile: Any = SimpleNamespace(
        trace=varied, options=Options(), seen={"matmul": 47}, notes={}, path=None, cold_launches=2, hang_watch=None,
        run=CollectedRun(), job=JobRank(),
    )  # fmt: skip
    describe(profile, Outcome())
    shown = capsys.readouterr().err
    assert TEXT in shown
    assert "matmul[grid 64]" in shown
    assert "left out (2 launches)" in shown
    describe(profile, Outcome(), merge_variants=True)
    assert "matmul[" not in capsys.readouterr().err
    made = document(TargetProgram("prog.py", ()), profile, Outcome(), None)
    assert sorted(one["variant"] for one in made["kernels"]) == ["matmul[grid 32]", "matmul[grid 64]"]


def test_statistics_have_rows_per_variant_unless_merged(
    varied: Trace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    varied.save(tmp_path / "t.warplens")
    file = str(tmp_path / "t.warplens")
    assert main(["stats", "--json", file]) == 0
    made = json.loads(capsys.readouterr().out)
    assert [(row["variant"], row["region"], row["count"]) for row in made["rows"]] == [
        ("matmul[grid 32]", "work", 2 * 32 * 2 * 8),
        ("matmul[grid 64]", "work", 64 * 2 * 8),
    ]
    assert made["variants"]["matmul[grid 64]"]["kernel"] == "matmul"
    assert main(["stats", "--json", "--by", "kernel", file]) == 0
    by_kernel = json.loads(capsys.readouterr().out)["rows"]
    assert {(row["group"], row["variant"]) for row in by_kernel} == {
        ("matmul", "matmul[grid 32]"),
        ("matmul", "matmul[grid 64]"),
    }
    assert main(["stats", "--json", "--merge-variants", file]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["variant"], row["count"]) == ("", 2 * 32 * 2 * 8 + 64 * 2 * 8)
    assert main(["stats", file]) == 0
    assert "matmul[grid 32]" in capsys.readouterr().out
    page, merged = (report([varied], ReportOptions(merge_variants=merge)) for merge in (False, True))
    assert page.count('<tr data-region="0">') == 2
    assert merged.count('<tr data-region="0">') == 1


def test_a_sample_is_named_at_the_top_of_every_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (sample,) = sample_launches([launch_of(waves(300, spans=40))], 1 << 17)
    trace = decode(Capture([sample], device=Device("test", sm_count=16)))
    share = sample_share(trace.meta.launches)
    assert share is not None
    said = f"{share['blocks']} of 300 blocks recorded ("
    trace.save(tmp_path / "t.warplens")
    file = str(tmp_path / "t.warplens")
    for words in (["info", file], ["stats", file], ["stats", "--findings", file], ["view", "--terminal", file]):
        assert main(words) == 0
        assert said in capsys.readouterr().out
    assert said in report([trace], ReportOptions())
    assert said in trace._repr_html_()
    assert main(["info", "--json", file]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["sample"]["blocks"] == share["blocks"]
    assert "block_lives" not in made["meta"]["launches"][0]["extra"]
