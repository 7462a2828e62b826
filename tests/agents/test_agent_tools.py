"""What an agent is told: bounded, with units, and with errors that name the way out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders import Span, make_trace
from tests.support.paths import ROOT
from warplens.agents.agent_tools import Tools
from warplens.agents.bounded_answer import page, shortened, tidied
from warplens.agents.workspace import Workspace
from warplens.analyse.evidence_packet import tokens
from warplens.commands import main
from warplens.errors import UsageError, WarplensError
from warplens.trace.schema import LaunchInfo, Meta

GOLDEN = ROOT / "tests" / "golden" / "findings"


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    for name in ("serial", "balanced"):
        shutil.copy(GOLDEN / f"{name}.warplens", tmp_path / f"{name}.warplens")
    return Tools(Workspace(tmp_path, tmp_path))


def test_traces_and_kernels_are_listed(tools: Tools) -> None:
    listed = tools.list_traces()
    assert {one["trace"] for one in listed["traces"]} == {"serial.warplens", "balanced.warplens"}
    kernels = tools.list_kernels("serial.warplens")
    assert kernels["kernels"][0]["time_ns"]["median"] > 0
    assert "ns per launch" in kernels["units"]["time_ns"]
    assert kernels["kernels"][0]["regions"] == [
        row["region"] for row in tools.region_statistics("serial.warplens")["regions"]
    ]
    assert kernels["next"]


def test_findings_come_with_gain_evidence_and_the_next_step(tools: Tools) -> None:
    answer = tools.get_findings("serial.warplens")
    first = answer["findings"][0]
    assert 0 <= first["gain"]["low"] <= first["gain"]["high"] <= 1
    assert first["evidence"]
    assert f"read_source of region {first['region']}" in answer["next"]
    assert first["advice"][:100] in answer["next"]
    with pytest.raises(WarplensError, match="findings take at least 950 tokens"):
        tools.get_findings("serial.warplens", budget=300)
    assert answer["not_measured"]


def test_a_comparison_begins_with_the_verdict_and_has_both_means(tools: Tools) -> None:
    answer = tools.compare("serial.warplens", "serial.warplens")
    assert list(answer)[:2] == ["verdict", "kernels"]
    first = answer["regions"][0]
    assert first["mean_before"] == first["mean_after"] > 0
    assert "cycles" in answer["units"]["mean_before, mean_after"]


def test_a_faster_kernel_is_kept_though_one_of_its_regions_is_slower(tmp_path: Path) -> None:
    for name, load, work in (("before", 1000, 5000), ("after", 1500, 1000)):
        launches = [LaunchInfo(i, "kernel", begin_ns=10_000 * i, end_ns=10_000 * i + load + work) for i in range(8)]
        spans = [
            span
            for i in range(8)
            for span in (
                Span("load", 10_000 * i, load + i % 3, launch=i),
                Span("work", 10_000 * i + load + 3, work + i % 2, launch=i),
            )
        ]
        make_trace(spans, meta=Meta(launches=launches)).save(tmp_path / f"{name}.warplens")
    answer = Tools(Workspace(tmp_path)).compare("before.warplens", "after.warplens")
    assert {row["region"]: row["verdict"] for row in answer["regions"]} == {"load": "SLOWER", "work": "FASTER"}
    assert answer["verdict"] == "FASTER"
    assert answer["next"].startswith("keep the change")


def test_numbers_have_the_digits_that_matter() -> None:
    answer = {"gain": 0.11547258758146063, "ns": 15306.8, "one": 1.0, "count": 123456, "note": "", "cursor": ""}
    assert tidied([answer]) == [{"gain": 0.1155, "ns": 15310, "one": 1, "count": 123456, "cursor": ""}]


@pytest.mark.parametrize("budget", [1000, 2000, 4000])
def test_every_answer_stays_within_its_budget(tools: Tools, budget: int) -> None:
    assert tokens(tools.get_findings("serial.warplens", budget=budget)) <= budget
    assert tokens(tools.region_statistics("serial.warplens", budget=budget)) <= 1.3 * budget


def test_pages_follow_one_another(tmp_path: Path) -> None:
    spans = [Span(f"region {i}", 10 * i, 8) for i in range(300)]
    make_trace(spans).save(tmp_path / "many.warplens")
    tools = Tools(Workspace(tmp_path))
    seen: list[str] = []
    cursor = ""
    while True:
        answer = tools.region_statistics("many.warplens", cursor=cursor, budget=1000)
        seen += [row["region"] for row in answer["regions"]]
        cursor = answer["cursor"]
        if not cursor:
            break
    assert sorted(seen) == sorted(f"region {i}" for i in range(300))
    with pytest.raises(UsageError, match="cursor"):
        tools.region_statistics("many.warplens", cursor="999999")


def test_one_region_is_looked_up_by_name(tools: Tools) -> None:
    name = tools.region_statistics("serial.warplens")["regions"][0]["region"]
    only = tools.region_statistics("serial.warplens", region=name)
    assert {row["region"] for row in only["regions"]} == {name}
    with pytest.raises(WarplensError, match="did you mean"):
        tools.region_statistics("serial.warplens", region=name[:-1] + "x")


def test_two_traces_are_compared_with_intervals(tools: Tools) -> None:
    answer = tools.compare("serial.warplens", "serial.warplens")
    assert answer["verdict"] in ("SAME", "UNSURE")
    assert answer["kernels"][0]["before_ns"] > 0
    json.dumps(answer, allow_nan=False)
    assert answer["next"]


def test_names_outside_the_folder_are_refused(tools: Tools, tmp_path: Path) -> None:
    outside = tmp_path.parent / "outside.warplens"
    shutil.copy(GOLDEN / "tail.warplens", outside)
    (tmp_path / "link.warplens").symlink_to(outside)
    for name in ("../outside.warplens", str(outside), "link.warplens"):
        with pytest.raises(WarplensError, match="outside the folder"):
            tools.get_findings(name)
    assert "link.warplens" not in [one["trace"] for one in tools.list_traces()["traces"]]
    with pytest.raises(WarplensError, match="list_traces"):
        tools.get_findings("absent.warplens")


def test_programs_run_only_where_that_was_allowed(tools: Tools, tmp_path: Path) -> None:
    with pytest.raises(WarplensError, match="--run-in"):
        Tools(Workspace(tmp_path)).profile("x.py")
    for script in ("../x.py", "/bin/true", "absent.py"):
        with pytest.raises(WarplensError, match="not a file in the folder"):
            tools.profile(script)


def test_a_program_that_fails_or_hangs_is_an_answer(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text("import sys; print('half done'); sys.exit('no luck')")
    answer = tools.profile("fails.py", launches=0)
    assert (answer["exit_code"], answer["traces"]) == (1, [])
    assert "no luck" in answer["output_end"]
    (tmp_path / "hangs.py").write_text("import time; time.sleep(60)")
    with pytest.raises(WarplensError, match="did not end within 1 s"):
        tools.profile("hangs.py", launches=0, timeout_s=1)


def test_the_source_around_a_region_is_shown(tmp_path: Path) -> None:
    from dataclasses import replace

    (tmp_path / "k.py").write_text("\n".join(f"line {i}" for i in range(1, 50)))
    trace = make_trace([Span("load", 0, 10)])
    trace.meta = replace(trace.meta, locations={"load": "k.py:20"})
    trace.save(tmp_path / "t.warplens")
    answer = Tools(Workspace(tmp_path)).read_source("t.warplens", "load", lines=2)
    assert [line.split()[-1] for line in answer["source"]] == ["18", "19", "20", "21", "22"]
    # Triton's places have a column, and code between regions may have many lines.
    trace.meta = replace(trace.meta, locations={"load": "k.py:20:13", "work k.py:20-30": "k.py:20"})
    trace.save(tmp_path / "t.warplens", force=True)
    assert Tools(Workspace(tmp_path)).read_source("t.warplens", "load", lines=2)["source"] == answer["source"]
    whole = Tools(Workspace(tmp_path)).read_source("t.warplens", "work k.py:20-30", lines=2)
    assert [line.split()[-1] for line in (whole["source"][0], whole["source"][-1])] == ["18", "32"]
    with pytest.raises(WarplensError, match="did you mean 'load'"):
        Tools(Workspace(tmp_path)).read_source("t.warplens", "lod")


def test_long_names_are_cut() -> None:
    assert len(shortened("x" * 5000)) == 400
    assert page(["a" * 3000, "b"], "", 300) == (["a" * 3000], "1"), "an entry that is too long comes alone"


def test_a_packet_says_what_it_left_out(tmp_path: Path) -> None:
    from warplens.analyse.evidence_packet import evidence_packet
    from warplens.analyse.findings import findings
    from warplens.decode.trace_loader import load

    for path in sorted(GOLDEN.glob("*.warplens")):
        trace = load(path)
        found = findings(trace)
        whole = evidence_packet(trace, found)
        small = evidence_packet(trace, found, budget=900)
        assert whole["left_out"] == {}
        assert tokens(small) <= 900 or len(small["findings"]) == 1
        assert small["findings"][0]["kind"] == whole["findings"][0]["kind"]
        dropped: Any = small["left_out"]
        assert dropped or tokens(whole) <= 900
    with pytest.raises(UsageError, match="at least"):
        evidence_packet(trace, found, budget=10)


def test_the_command_line_prints_the_packet(capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(GOLDEN / "serial.warplens")
    assert main(["findings", trace, "--json", "--budget", "1500"]) == 0
    packet = json.loads(capsys.readouterr().out)
    assert packet["schema"] == 1
    assert tokens(packet) <= 1500
    assert set(packet) == {
        "schema", "file", "units", "environment", "kernels", "findings", "undecided", "not_measured", "left_out",
    }  # fmt: skip
    assert main(["findings", trace, "--budget", "1500"]) == 2
    assert main(["findings", trace, "--json", "--budget", "10"]) == 2


def test_links_to_nothing_are_not_listed(tmp_path: Path) -> None:
    make_trace([Span("a", 0, 10)]).save(tmp_path / "t.warplens")
    (tmp_path / "gone.warplens").symlink_to(tmp_path / "nothing.warplens")
    (tmp_path / "loop.warplens").symlink_to(tmp_path / "loop.warplens")
    found = Tools(Workspace(tmp_path)).list_traces()
    assert [one["trace"] for one in found["traces"]] == ["t.warplens"]


@pytest.mark.parametrize("name", ["x" * 6000, "gone/\0", "a\nb", "~"])
def test_names_that_no_file_can_have_are_refused(name: str, tmp_path: Path) -> None:
    tools = Tools(Workspace(tmp_path, tmp_path))
    for call in (tools.list_kernels, tools.get_findings, tools.profile, tools.sensitivity):
        with pytest.raises(WarplensError, match="there is no such trace|outside the folder|not a file in the folder"):
            call(name)


@pytest.mark.parametrize("cursor", ["9" * 5000, "-1", "x", "1e3", "99"])
def test_a_cursor_of_no_answer_is_refused(cursor: str) -> None:
    with pytest.raises(UsageError, match="pass the cursor of the last answer"):
        page([1, 2, 3], cursor, 200)
