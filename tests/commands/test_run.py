"""`warplens run` as a process: the program behaves as under Python, and its trace is there however it ended."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import warplens as wl
from tests.support.run_program import environment, interpreted, program, python, run
from warplens.commands import main
from warplens.commands.shared.run_report import describe, document
from warplens.launch.collected_run import UnmarkedKernel
from warplens.profiling.profile import Profile
from warplens.runner.program import Outcome, TargetProgram

MARKED = """
import triton, triton.language as tl
import warplens.triton as wlt

@triton.jit
def counted(N: tl.constexpr):
    with wlt.region("outer"):
        for i in range(N):
            with wlt.region("inner"):
                x = tl.arange(0, 8) * i
    tl.max(x, axis=0)

counted[(2,)](3)
"""
PLAIN = """
import sys
import numpy as np
import triton, triton.language as tl
from tests.support.fake_device import gpu

@triton.jit
def add(x, y, out, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + offs)
    b = tl.load(y + offs)
    tl.store(out + offs, a + b)

x, y, out = (gpu.tensor(np.arange(256, dtype=np.float32)) for _ in range(3))
for _ in range(3):
    add[(2,)](x, y, out, BLOCK=128)
assert (out.numpy() == 2 * np.arange(256)).all()
print("woven" if "warplens" in gpu.fired[-1].ptx else "plain")
"""


SELF = """
import sys
print(__name__, __file__, getattr(__spec__, "name", None), __package__, type(__loader__).__name__, sorted(globals()))
print(sys.argv, sys.path[0], sys.modules["__main__"].__dict__ is globals(), len(sys.stdin.read()))
print("é", file=sys.stderr)
if sys.argv[1:] == ["fail"]:
    def inner():
        raise KeyError("x")
    inner()
sys.exit({"3": 3, "text": "the end", "none": None}.get(sys.argv[-1], 0))
"""


@pytest.mark.parametrize("last", ["0", "3", "text", "none", "fail"])
def test_the_program_sees_and_says_what_it_does_under_python(last: str, tmp_path: Path) -> None:
    program(tmp_path, SELF)
    words = ["prog.py", last] if last == "fail" else ["prog.py", "--auto", "-o", "x", last]
    plain, under = python(tmp_path, *words), run(tmp_path, *words, WARPLENS="0")
    note = "profiling is off (WARPLENS=0): running the program without it\n"
    assert (under.returncode, under.stdout) == (plain.returncode, plain.stdout)
    assert under.stderr == note + plain.stderr


def test_a_module_a_folder_and_a_syntax_error_run_as_under_python(tmp_path: Path) -> None:
    package = tmp_path / "pkg"
    package.mkdir()
    program(package, "")
    (package / "__init__.py").write_text("")
    program(package, SELF, "__main__.py")
    program(package, "from . import prog\n" + SELF, "sub.py")
    program(tmp_path, "x = (\n", "broken.py")
    for words in (["-m", "pkg", "3"], ["-m", "pkg.sub", "-m", "x"], ["pkg", "3"], ["broken.py"], ["-m", "pkg.none"]):
        plain, under = python(tmp_path, *words), run(tmp_path, *words, WARPLENS="0")
        assert (under.returncode, under.stdout) == (plain.returncode, plain.stdout), words
        assert under.stderr.partition("\n")[2] == plain.stderr, words


def test_a_run_writes_the_trace_and_says_what_to_do_next(tmp_path: Path) -> None:
    program(tmp_path, MARKED + "print('done')")
    done = interpreted(tmp_path, "prog.py")
    assert (done.returncode, done.stdout) == (0, "done\n")
    for word in ("counted", "inner", "prog.warplens", "findings prog.warplens", "report prog.warplens"):
        assert word in done.stderr
    trace = wl.load(tmp_path / "prog.warplens")
    assert sorted(trace.regions) == ["inner", "outer"]
    again = interpreted(tmp_path, "prog.py")
    assert (again.returncode, again.stdout) == (1, "")
    assert "prog.warplens: already exists; pass --force" in again.stderr
    command = next(line for line in done.stderr.splitlines() if " findings " in line).split()
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "times are those of the CPU" in " ".join(said.split())


def test_all_says_how_much_of_each_warps_life_is_explained_and_what_was_left_out(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    program(tmp_path, PLAIN)
    done = run(tmp_path, "--auto", "all", "--json", "prog.py")
    (kernel,) = json.loads(done.stdout)["kernels"]
    assert 0.9 <= kernel["covered_least"] <= kernel["covered_median"] <= 1
    (info, *_) = wl.load(tmp_path / "prog.warplens").meta.launches
    assert info.covered["least"] >= kernel["covered_least"], "the trace holds it, launch by launch"
    few = run(tmp_path, "--auto", "all", "--most-marks", "1", "--force", "prog.py")
    assert "covered" in few.stderr
    assert "least covered warp" in few.stderr
    said = next(line for line in few.stderr.splitlines() if "is outside all regions" in line)
    assert "places could be marked, 1 may be: left out" in said


@pytest.mark.parametrize(
    ("tail", "code", "said"),
    [("1 // 0", 1, "ZeroDivisionError"), ("raise SystemExit('the end')", 1, "the end"), ("sys.exit(3)", 3, "")],
)
def test_however_the_program_ends_its_trace_is_written(tail: str, code: int, said: str, tmp_path: Path) -> None:
    program(tmp_path, "import sys\n" + MARKED + tail)
    done = interpreted(tmp_path, "-o", "t.warplens", "prog.py")
    assert done.returncode == code
    assert said in done.stderr
    assert "runner" not in done.stderr
    assert len(wl.load(tmp_path / "t.warplens")) == 8


def test_a_program_that_fails_before_its_first_kernel_gets_no_advice_on_marks(tmp_path: Path) -> None:
    program(tmp_path, "import no_such_module")
    done = run(tmp_path, "prog.py")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-2:] == [
        "ModuleNotFoundError: No module named 'no_such_module'",
        "warplens: nothing was recorded: ModuleNotFoundError ended the program before its first kernel",
    ]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_program_and_keeps_the_trace(number: int, code: int, tmp_path: Path) -> None:
    program(tmp_path, MARKED + "import time\nprint('ready', flush=True)\ntime.sleep(600)\n")
    words = [sys.executable, "-m", "warplens", "run", "prog.py"]
    env = environment(tmp_path, TRITON_INTERPRET="1")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}

    def heed() -> None:
        """Jobs that a shell starts in the background ignore SIGINT, and so do their children."""
        signal.signal(number, signal.SIG_DFL)

    with subprocess.Popen(words, cwd=tmp_path, env=env, text=True, preexec_fn=heed, **pipes) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            child.send_signal(number)
            _, err = child.communicate(timeout=300)  # half of what the program would sleep
        finally:
            child.kill()
    assert child.returncode == code
    assert ("KeyboardInterrupt" in err) == (number == signal.SIGINT)
    assert "the trace contains what ran until then" in err
    assert len(wl.load(tmp_path / "prog.warplens")) == 8


def test_threads_are_waited_for_and_forked_children_leave_no_second_trace(tmp_path: Path) -> None:
    tail = """
import os, sys, threading, time
if os.fork() == 0:
    sys.exit(7)
print("child", os.waitstatus_to_exitcode(os.wait()[1]))
threading.Thread(target=lambda: (time.sleep(0.3), counted[(1,)](1), print("late"))).start()
"""
    program(tmp_path, MARKED + tail)
    done = interpreted(tmp_path, "prog.py")
    assert (done.returncode, done.stdout) == (0, "child 7\nlate\n")
    assert done.stderr.count("files") == 1
    assert len(wl.load(tmp_path / "prog.warplens").meta.launches) == 2


def test_a_rank_without_a_kernel_does_not_fail_its_job(tmp_path: Path) -> None:
    program(tmp_path, "print('done')")
    of_job = {"RANK": "1", "WORLD_SIZE": "2"}
    done = run(tmp_path, "-o", "job.warplens", "prog.py", **of_job)
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert "warplens: rank 1: no kernel was profiled" in done.stderr
    program(tmp_path, "raise SystemExit(7)")
    assert run(tmp_path, "-o", "job.warplens", "prog.py", **of_job).returncode == 7


def test_json_is_the_only_thing_on_stdout(tmp_path: Path) -> None:
    program(tmp_path, "import os\nos.system('echo from the shell')\n" + MARKED + "print('hello')\nraise SystemExit(5)")
    done = interpreted(tmp_path, "--json", "prog.py", "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["exit_code"]) == (5, 5)
    assert "hello" in done.stderr
    assert "from the shell" in done.stderr
    (kernel,) = document["kernels"]
    assert (kernel["kernel"], kernel["ran"], kernel["recorded"], kernel["regions"]) == ("counted", 1, 1, 2)
    assert document["program"] == ["prog.py", "--json"]
    listed = json.loads(interpreted(tmp_path, "--list-kernels", "--json", "prog.py").stdout)
    (row,) = listed["kernels"]
    assert (row["kernel"], row["launches"], row["markable"]) == ("counted", 1, False)
    assert "TRITON_INTERPRET=1: only marks in the source" in row["reason"]
    assert "next: add --auto" not in interpreted(tmp_path, "--list-kernels", "prog.py").stderr


def test_a_profile_of_the_programs_own_takes_its_block(tmp_path: Path) -> None:
    inner = "import warplens as wl\nwith wl.profile('inner.warplens'):\n    counted[(5,)](1)\ncounted[(1,)](2)\n"
    program(tmp_path, MARKED + inner)
    assert interpreted(tmp_path, "prog.py").returncode == 0
    grids = [
        [info.grid[0] for info in wl.load(tmp_path / f"{name}.warplens").meta.launches] for name in ("prog", "inner")
    ]
    assert grids == [[2, 1], [5]]
    program(tmp_path, "import warplens as wl\n@wl.profile()\ndef own():\n    raise SystemExit\nown()\n")
    assert "the program profiles its kernels itself" in interpreted(tmp_path, "--force", "prog.py").stderr


def test_what_ran_is_said_when_nothing_was_recorded(tmp_path: Path) -> None:
    program(tmp_path, MARKED)
    done = interpreted(tmp_path, "--kernels", "attn.*", "prog.py")
    assert done.returncode == 1
    assert "kernels='attn.*' matches none of those that ran: counted (1)" in done.stderr
    assert not (tmp_path / "prog.warplens").exists()
    program(tmp_path, "print('no kernel')")
    done = run(tmp_path, "--auto", "prog.py")
    assert (done.returncode, done.stdout) == (1, "no kernel\n")
    assert "no kernel was profiled" in done.stderr


def test_automatic_marks_need_nothing_of_the_program_and_stay_out_of_plain_runs(tmp_path: Path) -> None:
    path = program(tmp_path, PLAIN)
    first = path.read_text().splitlines().index("    a = tl.load(x + offs)") + 1
    plain = python(tmp_path, "prog.py")
    assert plain.stdout == "plain\n", plain.stderr
    for attempt in range(2):
        # The second run finds the first one's kernel in Triton's cache, from another process.
        done = run(tmp_path, "--auto", "loads,stores", "--launches", "2", "--force", "prog.py")
        assert (done.returncode, done.stdout) == (0, "woven\n"), (attempt, done.stderr)
        trace = wl.load(tmp_path / "prog.warplens")
        assert len(trace.meta.launches) == 2
        assert any(f"prog.py:{first}" in region for region in trace.regions), trace.regions
        assert any("store" in region for region in trace.regions)
        assert "2 of 3" in done.stderr
    assert python(tmp_path, "prog.py").stdout == "plain\n"
    done = run(tmp_path, "--region", f"sum=prog.py:{first}-{first + 1}", "-o", "r.warplens", "prog.py")
    assert (done.returncode, wl.load(tmp_path / "r.warplens").regions) == (0, ["sum"]), done.stderr
    done = run(tmp_path, "--region", "sum=prog.py:1-3", "-o", "s.warplens", "prog.py")
    assert done.returncode in (1, 2)
    assert "sum=prog.py:1-3" in done.stderr
    listed = run(tmp_path, "--list-kernels", "prog.py")
    assert (listed.returncode, listed.stdout.splitlines()[0]) == (0, "plain"), listed.stderr
    assert "add" in listed.stdout


def test_ir_by_hand_is_marked_and_what_is_wrong_with_it_is_one_line(tmp_path: Path) -> None:
    program(tmp_path, PLAIN)
    assert "next" in run(tmp_path, "--dump-ir", "ir", "prog.py").stderr
    (path,) = (tmp_path / "ir").iterdir()
    text = path.read_text()
    store = next(line for line in text.splitlines() if "tt.store" in line)
    for marks, code, said in (
        ('proton.record start "s"\n{}\nproton.record end "s"', 0, "add: s "),
        ('warplens.begn "s"\n{}', 2, "did you mean 'warplens.begin'"),
        ("{}x", 1, f"{path.name}:"),
    ):
        path.write_text(text.replace(store, marks.format(store)))
        done = run(tmp_path, "--override", "ir", "--force", "prog.py")
        assert (done.returncode, said in done.stderr) == (code, True), done.stderr
        assert "Traceback" not in done.stderr
        if code:
            assert done.stderr.startswith("warplens: ir/")
            assert done.stderr.count("warplens: ") == 1
    assert wl.load(tmp_path / "prog.warplens").regions == ["s"]
    program(tmp_path, PLAIN.replace("BLOCK=128", "BLOCK=64").replace("(2,)", "(4,)"))
    done = run(tmp_path, "--override", "ir", "--strict", "--force", "prog.py")
    assert done.returncode == 1
    assert "was dumped from a different version of this kernel" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 2, "no program to run"),
        (["--auto", "load", "{py}"], 2, "unknown class 'load' (did you mean 'loads'?)"),
        (["--auto", "foo,bar", "{py}"], 2, "unknown class 'foo' (known: all, barriers,"),
        (["--auto=mmma", "{py}"], 2, "did you mean 'mma'"),
        (["--auto", "loads,wait", "{py}"], 2, "did you mean 'waits'"),
        (["--auto", "prgo.py"], 2, "prgo.py: no such script (did you mean 'prog.py'?)"),
        (["python", "prog.py"], 2, "omit the interpreter"),
        (["-m", "nowhere.at_all"], 2, "no module 'nowhere'"),
        (["--overhead", "5", "{py}"], 2, "--overhead 5: is 500 %; write 5%"),
        (["--region", "softmax:1-2", "{py}"], 2, "write NAME=FILE:FIRST-LAST"),
        (["--kernels", "[", "{py}"], 2, "not a regular expression"),
        (["--launches", "0", "{py}"], 2, "must be at least 1"),
        (["--launches", "some", "{py}"], 2, "expected a number or `all`"),
        (["--warps", "0,x", "{py}"], 2, "expected numbers and ranges"),
        (["--fulll", "stop", "{py}"], 2, "no such option"),
        (["-o", "no/such/t.warplens", "{py}"], 1, "does not exist; create it first"),
        (["-o", "t.json.gz", "{py}"], 2, "a profile writes a trace"),
        (["-o", ".", "--force", "{py}"], 2, "is a folder; name the file to write"),
        (["old.warplens"], 2, "old.warplens: is a trace, not a program; show it with `warplens stats old.warplens`"),
        (["--override", "nowhere", "{py}"], 2, "override='nowhere': there is no such folder"),
        (["--dump-ir", "prog.py", "{py}"], 2, "dump_ir='prog.py': is a file; name the folder"),
        (["-o", "prog.py", "--every", "0", "{py}"], 2, "every=0"),
    ],
)
def test_mistakes_are_told_before_anything_runs(
    words: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    program(tmp_path, "raise AssertionError('ran')")
    (tmp_path / "old.warplens").write_bytes(b"PAR1 and more")
    assert main(["run", *(word.format(py="prog.py") for word in words)]) == code
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


def test_kernels_that_cannot_be_marked_are_shown_with_launches_times_and_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    profile = Profile(auto=True)
    reason = "there is only machine code"
    profile.run.unmarked = [
        UnmarkedKernel("flash_fwd", 40, reason, "flash_attn.so", [9_000.0, 2_000.0, 4_000.0]),
        UnmarkedKernel("jitted", 1, reason),
    ]
    profile.note("flash_attn.so", f"1 kernel (flash_fwd; 40 launches) unmarked: {reason}")
    describe(profile, Outcome())
    said = capsys.readouterr().err
    (row,) = (line.split("  ") for line in said.splitlines() if line.lstrip().startswith("flash_fwd"))
    assert [word.strip() for word in row if word.strip()] == [
        "flash_fwd", "40", "3.00 µs", "about 120 µs", "flash_attn.so"
    ], "the first launch loads code, and does not count"  # fmt: skip
    assert "code made at run time" in said
    assert reason in said
    found = document(TargetProgram("train.py"), profile, Outcome(), None)["unmarked_kernels"]
    assert [(one["kernel"], one["launches"], one["mean_ns"], one["reason"]) for one in found] == [
        ("flash_fwd", 40, 3000.0, reason), ("jitted", 1, None, reason)
    ]  # fmt: skip
