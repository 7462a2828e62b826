"""`warplens verify`, and what info, stats and report show of a verification."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

import warplens as wl
from tests.support.ncu_pages import sass_page
from tests.support.paths import ROOT
from tests.support.sass_kernels import HOISTED, UNROLLED, code_of, needs_tools
from tests.support.verified_trace import traced
from tests.support.wave_capture import launch_of, waves
from warplens.commands import main
from warplens.decode import decode
from warplens.record.capture import Capture
from warplens.sass.disassembly import disassemble
from warplens.sass.machine_code import MachineCode

FLAG = "its only global load is before its begin"


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "hoisted.warplens"
    traced(code_of(HOISTED), extra={"registers": 40, "registers_plain": 32, "spills": 0}).save(path)
    return str(path)


@needs_tools
def test_a_trace_is_shown_with_its_regions_flags_and_costs(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", trace]) == 0
    shown = capsys.readouterr().out
    assert FLAG in shown
    assert "40 (32 plain)" in shown
    assert "LDG" not in shown
    assert main(["verify", trace, "--moved"]) == 0
    assert "load moved out, before: 0x" in capsys.readouterr().out


@needs_tools
def test_json_has_everything(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", trace, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (kernel,) = document["kernels"]
    load, math = kernel["regions"]
    assert (load["region"], load["purity"], load["flag"]) == ("load", 0.0, FLAG)
    assert math["counts"] == {"fp32": 1, "integer": 2}
    assert document["costs"][0]["own"] == kernel["own"] > 0
    assert document["violations"] == []


@needs_tools
def test_a_limit_on_purity_gives_exit_code_3(trace: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["verify", trace, "--least-purity", "0.5"]) == 3
    assert f"FAIL k: load: {FLAG}" in capsys.readouterr().err
    assert main(["verify", trace, "--least-purity", "0.5", "--json"]) == 3
    assert len(json.loads(capsys.readouterr().out)["violations"]) == 2
    missing = tmp_path / "missing.warplens"
    traced(MachineCode("k", missing="its code is gone")).save(missing)
    assert main(["verify", str(missing), "--least-purity", "0"]) == 3
    assert "not verified: its code is gone" in capsys.readouterr().err


@needs_tools
def test_a_cubin_is_verified_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cubin = tmp_path / "k.cubin"
    numbered = HOISTED.replace("load\n", "#7\n").replace("math\n", "#8\n")
    cubin.write_bytes(code_of(numbered).cubin or b"")
    assert main(["verify", str(cubin)]) == 1
    assert "has no kernel with marks that can be read" in capsys.readouterr().err
    cubin.write_bytes(b"\x7fELF" + b"\0" * 100)
    assert main(["verify", str(cubin)]) == 1
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


@needs_tools
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["{trace}", "--kernel", "other"], 2, "has no such kernel"),
        (["{trace}", "more"], 2, "only a script takes arguments"),
        (["{trace}", "--auto"], 2, "--auto goes with a script"),
        (["nothing.py"], 2, "there is no such script"),
        (["nothing.warplens"], 1, "nothing.warplens"),
        (["{trace}", "--binary", "/bin/sh"], 1, "holds no machine code of a GPU"),
        (["{trace}", "--least-purity", "2"], 2, "least-purity"),
        (["{plain}"], 1, "has no verification"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], code: int, said: str, trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = tmp_path / "plain.warplens"
    made = traced(code_of(HOISTED))
    made.meta = wl.load(trace).meta.__class__()
    made.save(plain)
    assert main(["verify", *(one.format(trace=trace, plain=plain) for one in arguments)]) == code
    error = capsys.readouterr().err.strip()
    assert said in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize("clock", ["cpu", "simulated"])
def test_a_trace_that_no_gpu_made_has_no_machine_code(
    clock: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "host.warplens")
    decode(Capture([replace(launch_of(waves(4, sms=2, lasts=1000), warps=1), clock=clock)])).save(path)
    assert main(["verify", path]) == 1
    assert "did not run on a GPU" in capsys.readouterr().err


@needs_tools
def test_info_stats_and_report_carry_the_purity(trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", trace]) == 0
    assert f"load: {FLAG}" in capsys.readouterr().out
    assert main(["info", trace, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {one["region"]: one["purity"] for one in document["purity"]}["load"] == 0.0
    assert document["costs"][0]["registers_plain"] == 32
    assert main(["stats", trace]) == 0
    assert f"load did not time what it marks: {FLAG}" in capsys.readouterr().out
    assert main(["stats", trace, "--json"]) == 0
    rows = {row["region"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert (rows["load"]["purity"], rows["load"]["moved_out"]) == (0.0, FLAG)
    page = tmp_path / "r.html"
    assert main(["report", trace, "-o", str(page)]) == 0
    text = page.read_text()
    assert f"did not time what it marks: {FLAG}" in text
    assert '"caution":"`load` did not time what it marks' in text


@needs_tools
def test_a_source_page_of_ncu_is_shown_by_region(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = code_of(UNROLLED)
    trace, page = str(tmp_path / "t.warplens"), tmp_path / "source.csv"
    traced(code).save(trace)
    page.write_text(sass_page(disassemble(code.cubin or b"")["k"], lambda one: {"executed": 4, "long_sb": 3}))
    assert main(["info", trace, "--ncu", str(page)]) == 0
    shown = capsys.readouterr().out
    assert "the marked kernel, by address" in shown
    assert "long_scoreboard 100.0 %" in shown
    assert main(["info", trace, "--ncu", str(page), "--json"]) == 0
    regions = json.loads(capsys.readouterr().out)["counters"]["regions"]
    assert {one["region"] for one in regions} == {"load", "math"}
    assert main(["stats", trace, "--ncu", str(page), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counters"]["regions"] == regions
    assert main(["info", "--ncu", str(page)]) == 2
    assert "name the trace too" in capsys.readouterr().err
    report = tmp_path / "r.html"
    assert main(["report", trace, "--ncu", str(page), "-o", str(report)]) == 0
    assert "Stalls by region" in report.read_text()
    assert "long_scoreboard 100.0 %" in report.read_text()
    other = tmp_path / "other.warplens"
    traced(code_of(HOISTED)).save(other)
    assert main(["info", str(other), "--ncu", str(page)]) == 0
    assert "other machine code than the trace" in capsys.readouterr().out


PROGRAM = """
import sys
from tests.support import stepped_kernel
from tests.support.fake_device import gpu
import warplens as wl

print("the program's own output")
if "own" in sys.argv:
    with wl.profile():
        stepped_kernel.run(gpu)
else:
    stepped_kernel.run(gpu)
"""


@needs_tools
@pytest.mark.parametrize("arguments", [(), ("own",)])
def test_a_script_is_run_and_what_it_ran_is_verified(arguments: tuple[str, ...], tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(PROGRAM))
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "TRITON_CACHE_DIR": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "warplens", "verify", "--json", str(script), *arguments],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (kernel,) = json.loads(done.stdout)["kernels"]
    assert kernel["kernel"] == "stepped"
    assert kernel["source"] == "the machine code that ran"
    regions = {one["region"]: one for one in kernel["regions"]}
    assert regions["load"]["counts"] == {"load.global": 1}
    assert regions["scale it"]["flag"] == "no instruction of the kernel is between its marks"
    assert "the program's own output" in done.stderr
