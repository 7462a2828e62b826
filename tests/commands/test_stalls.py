"""The stalls of regions on the command line: run, stats, info, findings, report and doctor."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.ncu_pages import sass_page
from tests.support.run_program import program, run
from tests.support.sass_kernels import UNROLLED, code_of, needs_tools
from tests.support.verified_trace import traced, verified
from warplens.commands import doctor, main
from warplens.driver import libcupti
from warplens.sass.disassembly import disassemble
from warplens.sass.pc_samples import PcSampling, SampledCode

TITLE = "k: pc sampling, the marked kernel, by address"


@pytest.fixture
def trace(tmp_path: Path) -> str:
    """`load` waits for memory in 9 of 10 samples."""
    code = code_of(UNROLLED)
    counts = {start: {"long_scoreboard": 90, "wait": 10} for start, _ in verified(code)["load"].ranges[:1]}
    made = traced(code, (("load", 0, 90_000), ("math", 90_000, 10_000)))
    sampled = PcSampling((SampledCode.of("k", code.digest, counts, 200),), taken=300, dropped=60, period=8192)
    made.meta = replace(made.meta, pc_samples=sampled.to_json())
    return str(made.save(tmp_path / "t.warplens"))


@needs_tools
def test_stats_show_them(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", trace, "--stalls"]) == 0
    shown = capsys.readouterr().out
    assert TITLE in shown
    assert "long_scoreboard 90.0 %, wait 10.0 %" in shown
    assert "the GPU dropped 20.0 % of the samples" in shown
    assert "executed" not in shown
    assert main(["stats", trace, "--stalls", "--json"]) == 0
    (load, _) = json.loads(capsys.readouterr().out)["counters"]["regions"]
    assert (load["source"], load["samples"], load["share"]) == ("pc sampling", 100, 0.5)
    assert load["stall_shares"] == {"long_scoreboard": 0.9, "wait": 0.1}


@needs_tools
def test_samples_and_a_report_of_ncu_are_shown_side_by_side(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.csv"
    page.write_text(sass_page(disassemble(code_of(UNROLLED).cubin or b"")["k"], lambda one: {"wait": 1, "executed": 1}))
    assert main(["stats", trace, "--stalls", "--ncu", str(page), "--json"]) == 0
    regions = json.loads(capsys.readouterr().out)["counters"]["regions"]
    assert [(one["source"], one["region"]) for one in regions] == [
        (source, region) for source in ("pc sampling", "Nsight Compute") for region in ("load", "math")
    ]
    assert main(["stats", trace, "--ncu", str(page), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["counters"]["regions"]) == 2


@needs_tools
def test_stats_of_a_trace_without_samples_say_how_to_get_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = traced(code_of(UNROLLED)).save(tmp_path / "plain.warplens")
    assert main(["stats", str(path), "--stalls"]) == 2
    assert "has no samples; record it with `warplens run --stalls`" in capsys.readouterr().err
    assert main(["info", str(path), "--json"]) == 0
    assert "counters" not in json.loads(capsys.readouterr().out)


@needs_tools
def test_info_describes_them(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", trace]) == 0
    shown = capsys.readouterr().out
    assert "200 samples of recorded kernels, one per SM every 8,192 cycles" in shown
    assert TITLE in shown
    assert main(["info", trace, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["counters"]["regions"][0]["source"] == "pc sampling"
    assert document["meta"]["pc_samples"] == {
        "taken": 300, "dropped": 60, "other": 0, "overflows": 0, "period": 8192, "problems": [],
    }  # fmt: skip


@needs_tools
def test_findings_and_the_report_show_them(trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["findings", trace, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    about = [one for one in [*found["findings"], *found["undecided"]] if one["region"] == "load"]
    assert about
    assert all(one["evidence"]["stalled_by"] == "long_scoreboard" for one in about)
    assert main(["report", trace, "-o", str(tmp_path / "t.html")]) == 0
    page = (tmp_path / "t.html").read_text()
    assert 'id="stalls"' in page
    assert "pc sampling, the marked kernel, by address" in page
    assert "long_scoreboard 90.0 %" in page


PROGRAM = """
import numpy as np
import pytest
import triton, triton.language as tl
import warplens.triton as wlt
from tests.support.fake_device import gpu
from tests.support.fake_cupti import use_fake_cupti

use_fake_cupti(pytest.MonkeyPatch(), failing={"Enable": 35})

@triton.jit
def add(x, out, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    with wlt.region("load"):
        a = tl.load(x + offs)
    tl.store(out + offs, a + 1)

x, out = (gpu.tensor(np.arange(256, dtype=np.float32)) for _ in range(2))
add[(2,)](x, out, BLOCK=128)
assert (out.numpy() == np.arange(256) + 1).all()
"""


def test_run_samples_and_goes_on_where_that_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    done = run(tmp_path, "--stalls", "--json", str(program(tmp_path, PROGRAM)))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["spans"] > 0
    refused = "not sampled: cuptiPCSamplingEnable failed: CUPTI_ERROR_35 (CUPTI error 35); "
    assert any(line.startswith(refused) for line in document["counters"]["notes"])
    assert done.stderr.count("warplens: stalls: ") == 1


def test_doctor_says_which_libcupti_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def check() -> dict[str, str]:
        assert main(["doctor", "--json"]) == 0
        checks = json.loads(capsys.readouterr().out)["checks"]
        return next(one for one in checks if one["name"] == "libcupti")

    monkeypatch.setattr(doctor, "find_cupti", lambda: None)
    assert (check()["state"], check()["remedy"]) == ("missing", "pip install nvidia-cuda-cupti")
    (tmp_path / "libcupti.so").write_bytes(b"no library")
    monkeypatch.setattr(doctor, "find_cupti", lambda: str(tmp_path / "libcupti.so"))
    assert "cannot be used" in check()["found"]
    path = libcupti.find_cupti()
    if path is not None:
        monkeypatch.setattr(doctor, "find_cupti", lambda: path)
        assert check()["found"].startswith(f"{path} (API ")
