"""The command line in-process: outputs, exit codes and what it says when one mistypes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import warplens as wl
from tests.support.builders import Span, make_trace
from tests.support.synthetic_capture import make_capture
from warplens.commands import doctor, main
from warplens.decode import decode
from warplens.frontends.registry import FRONT_ENDS
from warplens.record.capture import write_capture

Output = pytest.CaptureFixture[str]
EXPORTED = str(Path(__file__).parents[1] / "golden" / "torch" / "layer.torch.json.gz")


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_capture(make_capture(800, blocks=8), tmp_path_factory.mktemp("cli") / "c.wlcap"))


def test_stats_prints_every_region(capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", capture]) == 0
    out = capsys.readouterr().out
    for word in ("outer", "load", "mma", "inner", "p95", "share"):
        assert word in out


def test_a_region_without_a_closed_span_has_no_durations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "open.warplens"
    make_trace([Span("done", 0, 10), Span("stuck", 10, 5, open=True)]).save(path)
    assert main(["stats", str(path)]) == 0
    (row,) = (line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("stuck"))
    assert row == ["stuck", "0", "0.0", "%", "0.0", "%", *["-"] * 8, "0", "ns", "1"]


@pytest.mark.parametrize("by", ["region", "kernel", "sm", "warp", "block"])
def test_stats_json_is_one_document_equal_to_the_library(
    capture: str, by: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stats", capture, "--by", by, "--json"]) == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert captured.err == ""
    want = json.loads(json.dumps(wl.load(capture).stats(by=by).to_json()))
    assert {name: document[name] for name in want} == want
    assert document["losses"]["records_lost"] == 0


def test_stats_sorts_and_filters(capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", capture, "--sort", "min", "--region", "load", "--region", "mma", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {row["region"] for row in rows} == {"load", "mma"}
    assert rows[0]["min"] >= rows[1]["min"]


def test_groups_are_in_the_order_of_their_numbers() -> None:
    rows = decode(make_capture(1600, blocks=12)).stats(by="block").rows
    assert list(dict.fromkeys(row.group for row in rows)) == [str(block) for block in range(12)]


def test_info_says_what_is_there_and_how_far_to_trust_it(capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", capture]) == 0
    out = capsys.readouterr().out
    for word in ("synthetic", "132 SMs", "MHz", "no records were lost", "8×1×1"):
        assert word in out
    assert main(["info", capture, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["meta"]["clock"]["anchors"] == 64
    assert document["regions"] == ["outer", "load", "mma", "inner"]


@pytest.mark.parametrize("count", [1, 3, 40])
def test_info_shows_how_long_each_buffer_took_to_copy_out(
    count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = make_capture(400, blocks=2)
    times = [1000.0 * (10 + i) for i in range(count)]
    launches = [replace(made.launches[0], cost={"finalize_ns": time}) for time in reversed(times)]
    path = str(decode(replace(made, launches=launches)).save(tmp_path / "t.warplens"))
    assert main(["info", path]) == 0
    out = capsys.readouterr().out
    (header,) = [line for line in out.splitlines() if line.startswith("kernel ")]
    assert "copy-out" in header, "one column of the table, also in 80 characters"
    end = header.index("copy-out") + len("copy-out")
    rows = [line[:end].rsplit("  ", 1)[1] for line in out.splitlines() if line.startswith(launches[0].kernel + " ")]
    assert rows == [f"{time / 1000:.1f} µs" for time in reversed(times)][:12]
    (summary,) = [line for line in out.splitlines() if line.startswith("copy-out ")]
    if count == 1:
        assert summary.endswith(" 10.0 µs")
    else:
        middle = 10 + (count - 1) / 2
        assert f"10.0 µs min, {middle:.1f} µs median, {9 + count:.1f} µs max" in summary
    assert main(["info", path, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["meta"]["launches"]
    assert [one["cost"]["finalize_ns"] for one in found] == times[::-1]


def test_info_json_of_several_things_is_one_document(capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--torch", EXPORTED, "--json"]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert main(["info", capture, "--torch", EXPORTED, "--json"]) == 0
    both = json.loads(capsys.readouterr().out)
    assert both["file"] == capture
    assert both["torch"] == alone
    assert main(["info", "--include-dir", "--json"]) == 0
    assert (Path(json.loads(capsys.readouterr().out)["include_dir"]) / "warplens.cuh").is_file()


def test_losses_are_shown_with_their_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = make_capture(800, blocks=8)
    raw = made.launches[0].raw.copy()
    header = raw.reshape(made.launches[0].tracks, -1)[:, 16:20].view("<u4")
    header += 500
    path = write_capture(replace(made, launches=[replace(made.launches[0], raw=raw)]), tmp_path / "c.wlcap")
    assert main(["stats", str(path)]) == 0
    out = capsys.readouterr().out
    assert "16,000 of" in out
    assert f"records_per_warp={made.launches[0].capacity + 500} or more" in out


def test_losses_beside_one_kernel_are_said_to_be_of_the_whole_trace(tmp_path: Path, capsys: Output) -> None:
    """A trace counts losses over all kernels."""
    made = make_capture(800, blocks=8)
    (one,) = made.launches
    full = one.raw.copy()
    full.reshape(one.tracks, -1)[:, 16:20].view("<u4")[:] += 500
    both = [replace(one, kernel="clean"), replace(one, kernel="cut", raw=full)]
    whole = "of the whole trace, not only of clean:"
    for suffix in (".wlcap", ".warplens"):
        path = tmp_path / f"c{suffix}"
        capture = replace(made, launches=both)
        _ = write_capture(capture, path) if suffix == ".wlcap" else decode(capture).save(path)
        assert main(["stats", str(path), "--kernel", "clean"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert "16,000 of" in lines[lines.index(whole) + 1]
        for words in ([], ["--kernel", "clean", "--kernel", "cut"]):
            assert main(["stats", str(path), *words]) == 0
            assert "of the whole trace" not in capsys.readouterr().out
    path = write_capture(made, tmp_path / "clean.wlcap")
    assert main(["stats", str(path), "--kernel", one.kernel]) == 0
    assert "of the whole trace" not in capsys.readouterr().out


def test_include_dir_holds_the_header(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--include-dir"]) == 0
    assert (Path(capsys.readouterr().out.strip()) / "warplens.cuh").is_file()


@pytest.mark.parametrize("suffix", [".pftrace", ".json", ".json.gz", ".hatchet", ".csv", ".parquet"])
def test_export_writes_every_format_and_never_over_a_file(
    capture: str, suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / f"out{suffix}"
    assert main(["export", capture, "-o", str(target)]) == 0
    written = target.read_bytes()
    assert written
    assert main(["export", capture, str(target)]) == 1
    assert "already exists; pass --force" in capsys.readouterr().err
    assert main(["export", capture, str(target), "--force", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["spans"] == len(wl.load(capture))
    assert document["bytes"] == len(written)


def test_doctor_reports_and_succeeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    assert "warplens works here" in capsys.readouterr().out
    assert main(["doctor", "--json"]) == 0
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert checks["numpy"]["state"] == "ok"
    assert checks["gpu"]["purpose"]
    assert {"triton", "torch", "cupy", "numba-cuda", "nvidia-cutlass-dsl", "ncu", "nsys"} <= set(checks)
    assert {one.package for one in FRONT_ENDS} <= set(checks)


def test_doctor_says_that_kernels_for_amd_are_only_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("triton.backends.amd.compiler", reason="this Triton has no back end for AMD's GPUs")
    assert main(["doctor", "--json"]) == 0
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    told = checks["triton (AMD)"]
    assert told["state"] == "ok"
    assert told["woven"] == "compiled only: it has not run on hardware, and launches are not recorded"


@pytest.mark.parametrize(
    ("package", "version", "broken", "woven", "remedy"),
    [
        ("triton", "3.6.0", "", "yes", ""),
        ("triton", "3.5.1", "", "no: it is older than 3.6", "pip install -U 'triton>=3.6'"),
        ("jax", "0.10.2", "", "yes", ""),
        ("jax", "0.10.2", "ptxas", "no: ptxas was not found", "install the CUDA toolkit"),
        ("warp-lang", "1.19.0", "hooks", "no: no C compiler found", "install gcc or clang"),
        ("helion", "", "", "", "pip install helion"),
    ],
)
def test_doctor_says_whether_each_front_end_can_be_woven(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    package: str, version: str, broken: str, woven: str, remedy: str,
) -> None:  # fmt: skip
    real = doctor.installed_version
    monkeypatch.setattr(doctor, "installed_version", lambda name: version if name == package else real(name))
    monkeypatch.setattr(doctor, "known_tool", lambda name: None if name == broken else f"/usr/bin/{name}")
    monkeypatch.setattr(doctor, "load_hooks", lambda: (None, "no C compiler found" if broken == "hooks" else None))
    assert main(["doctor", "--json"]) == 0
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    found = checks[package]
    assert (found["woven"], found["remedy"]) == (woven, remedy)
    assert found["state"] == ("ok" if woven == "yes" else "missing")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["sats"], 2, "did you mean 'stats'"),
        (["stats"], 2, "missing argument"),
        (["stats", "{c}", "--bye", "x"], 2, "no such option"),
        (["stats", "{c}", "--by", "wrap"], 2, "did you mean 'warp'"),
        (["stats", "{c}", "--sort", "p9"], 2, "did you mean"),
        (["stats", "{c}", "--region", "lod"], 2, "did you mean 'load'"),
        (["stats", "nothing.warplens"], 1, "nothing.warplens: file: does not exist"),
        (["stats", "{c}p"], 1, "does not exist; check the path (did you mean '{c}'?)"),
        (["stats", "{empty}"], 1, "is empty (0 bytes); copy it again or profile again"),
        (["stats", "{c}", "--tree", "--depth", "some"], 2, "'some' is not a whole number"),
        (["info", "{py}"], 1, "is not a trace"),
        (["info", "{torch}"], 1, "name the .warplens file that it was exported from"),
        (["info"], 2, "give a trace"),
        (["export", "{c}"], 2, "no output file; give one"),
        (["export", "{c}", "-o", "x.pftrac"], 2, "did you mean '.pftrace'"),
        (["export", "{c}", "-o", "no/such/folder/x.json"], 1, "does not exist; create it first"),
        (["export", "{c}", "a.json", "-o", "b.json"], 2, "two output files, a.json and b.json"),
        (["stats", "{c}", "--depth", "1"], 2, "need --tree"),
        (["stats", "{c}", "--tree", "--threshold", "101"], 2, "101 is not between 0 and 100"),
        (["stats", "{c}", "--waits", "load"], 2, "needs --findings"),
        (["bench", "--compare", "a.json"], 2, "requires 2 arguments; see warplens --help"),
        (["diff", "{c}", "{c}", "--confidence", "100"], 2, "100 is not more than 0 and less than 100"),
        (["diagnose", "{c}", "--roof", "fp17"], 2, "did you mean 'fp16'"),
        (["diagnose", "{c}", "-o", "folder"], 2, "need a benchmark"),
        (["diagnose", "b.py", "--roof", "fp16"], 2, "its cases declare their work and type"),
    ],
)
def test_mistakes_get_one_clear_line(
    capture: str, arguments: list[str], code: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "t.warplens"
    empty.touch()
    words = {"c": capture, "py": __file__, "torch": EXPORTED, "empty": empty}
    assert main([argument.format(**words) for argument in arguments]) == code
    captured = capsys.readouterr()
    assert message.format(**words) in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_python_m_warplens_passes_the_exit_code_through() -> None:
    done = subprocess.run([sys.executable, "-m", "warplens", "stats", "nothing"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1


def test_a_pipe_that_is_closed_early_is_no_failure(capture: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "warplens", "stats", capture], stdout=closed, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr) == (0, "")


def test_no_color_is_obeyed(capture: str) -> None:
    environment = os.environ | {"NO_COLOR": "1", "FORCE_COLOR": ""}
    done = subprocess.run([sys.executable, "-m", "warplens", "stats", capture], capture_output=True, env=environment)
    assert b"\x1b[" not in done.stdout


def test_names_are_text_not_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = make_capture(800, blocks=8)
    launch = replace(made.launches[0], kernel="k[red]x[/]", regions={1: "[bold]a", 2: "b[/]", 3: "c", 4: "d"})
    path = decode(replace(made, launches=[launch])).save(tmp_path / "t.warplens")
    assert main(["stats", str(path)]) == 0
    assert main(["info", str(path)]) == 0
    out = capsys.readouterr().out
    assert "[bold]a" in out
    assert "k[red]x[/]" in out


def test_the_demo_runs_says_where_and_leaves_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "demo"
    assert main(["demo", "-o", str(folder)]) == 0
    out = capsys.readouterr().out
    assert out.startswith(("no GPU here: running woven PTX in the interpreter", "running woven PTX on the GPU"))
    for word in ("tiles", "load", "multiply", "no records were lost", "next", "warplens findings"):
        assert word in out
    assert sorted(path.name for path in folder.iterdir()) == ["demo.html", "demo.pftrace", "demo.warplens", "matmul.cu"]
    assert "for (int k = 0; k &lt; n; k += TILE)" in (folder / "demo.html").read_text()
    trace = wl.load(folder / "demo.warplens")
    assert trace.meta.losses.clean
    assert trace.stats()["multiply"].count == trace.stats()["load"].count
    assert trace.meta.locations["load"] == "matmul.cu:15"
    assert main(["demo", "-o", str(folder)]) == 1
    assert "already exists" in capsys.readouterr().err
    assert main(["demo", "-o", str(folder), "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["spans"] == len(trace)


def test_a_report_of_a_device_that_is_not_listed_takes_another_roof(
    capture: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work = ["report", capture, "--flops", "1e9", "--bytes", "1MiB", "-o", str(tmp_path / "r.html"), "--force"]
    assert main(work) == 2
    options = set(re.findall(r"--[a-z]+", capsys.readouterr().err))
    assert options == {"--device", "--ceilings"}
    measured = tmp_path / "roof.json"
    measured.write_text('{"device": "this one", "measured": {"bandwidth": 1000, "fp16": 100}}')
    for option, value, name in (("--device", "H100", b"H100 SXM5"), ("--ceilings", str(measured), b"this one")):
        assert main([*work, option, value]) == 0
        assert name in (tmp_path / "r.html").read_bytes()


def test_shared_memory_may_be_given_in_kib(capsys: pytest.CaptureFixture[str]) -> None:
    answers = []
    for shared in ("36864", "36KiB", "36*1024"):
        assert main(["occupancy", "--threads", "128", "--shared", shared]) == 0
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1] == answers[2]
    assert main(["occupancy", "--threads", "128", "--shared", "some"]) == 2
    assert "--shared 'some': expected a number" in capsys.readouterr().err
