"""`warplens diff` and the analyses of `warplens stats` from the command line."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from tests.support.noise import Kernel, run
from tests.support.paths import GOLDEN
from warplens.analyse.region_tree import RegionNode
from warplens.commands import main
from warplens.commands.shared.analysis_tables import tree_table

SMALL = Kernel(blocks=24, rounds=4, launches=6, clock_noise=0.002)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, str]:
    folder = tmp_path_factory.mktemp("traces")
    made = {"a": run(SMALL, 1), "b": run(SMALL, 2), "slow": run(SMALL, 3, slower={"load": 1.2})}
    for name, trace in made.items():
        trace.save(folder / f"{name}.warplens")
    return tuple(str(folder / f"{name}.warplens") for name in made)  # type: ignore[return-value]


def test_the_same_kernel_twice(traces: tuple[str, str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", traces[0], traces[1], "--fail-on", "load.p50:+5%"]) == 0
    out = capsys.readouterr().out
    assert "SAME" in out
    assert "SLOWER" not in out
    assert "pass load.p50:+5%" in out


def test_a_crossed_threshold_exits_with_three(traces: tuple[str, str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", traces[0], traces[2], "--fail-on", "load.p50:+5%", "--fail-on", "mma.p50:+5%", "--json"]) == 3
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert document["verdict"] == "SLOWER"
    assert document["crossed"] is True
    assert [one["crossed"] for one in document["thresholds"]] == [True, False]
    load = next(one for one in document["regions"] if one["region"] == "load")
    assert load["changes"]["p50"]["low"] < 0.2 < load["changes"]["p50"]["high"]
    assert load["explains"] == pytest.approx(1.0, abs=0.1)
    assert "load.p50:+5%" in captured.err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--fail-on", "load"], 2, "REGION.METRIC:LIMIT"),
        (["--fail-on", "laod.p50:+5%"], 2, "did you mean"),
        (["--margin", "-1"], 2, "margin"),
    ],
)
def test_bad_requests_say_what_is_wrong(
    traces: tuple[str, str, str], arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", traces[0], traces[1], *arguments]) == code
    assert words in capsys.readouterr().err


def test_a_missing_trace(traces: tuple[str, str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", traces[0], str(tmp_path / "none.warplens")]) == 1
    assert "does not exist" in capsys.readouterr().err


def test_stats_tree_and_findings(traces: tuple[str, str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", traces[0], "--tree", "--findings", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [root["name"] for root in document["tree"]] == ["kernel"]
    assert document["findings"]
    assert all({"what", "advice", "gain", "evidence", "withheld"} <= set(one) for one in document["findings"])
    assert main(["stats", traces[0], "--tree", "--include", "load", "--threshold", "1", "--depth", "2"]) == 0
    assert "mma" not in capsys.readouterr().out
    assert main(["stats", traces[0], "--findings"]) == 0
    assert "try:" in capsys.readouterr().out


def test_a_deep_tree_keeps_its_names_readable() -> None:
    node = RegionNode("level 300", 1, 10, 10, 10.0, 1.0)
    for level in range(299, -1, -1):
        node = RegionNode(f"level {level}", 1, 10, 0, 10.0, 1.0, (node,))
    out = io.StringIO()
    Console(width=80, file=out).print(tree_table([node]))
    lines = out.getvalue().splitlines()
    assert len(lines) == 302
    assert [lines[3].index("level 2"), lines[9].index("level 8")] == [4, 16]
    assert lines[-1].split()[:3] == ["300:", "level", "300"]


@pytest.mark.parametrize("name", ["imbalance", "waves", "overlap", "waits", "path", "ramp", "modes", "clock"])
def test_every_analysis_has_a_table_and_json(
    traces: tuple[str, str, str], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stats", traces[0], "--show", name]) == 0
    assert "kernel" in capsys.readouterr().out
    assert main(["stats", traces[0], "--show", name, "--json"]) == 0
    assert "kernel" in json.loads(capsys.readouterr().out)["analyses"][name]


def test_an_unknown_analysis_is_refused(traces: tuple[str, str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", traces[0], "--show", "overlaps"]) == 2
    assert "did you mean 'overlap'" in capsys.readouterr().err


def test_a_trace_does_not_differ_from_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """However few launches it has, and however noisy its regions are."""
    from warplens.record.capture import write_capture
    from warplens.samples import simulated

    path = str(write_capture(simulated(64).capture, tmp_path / "t.wlcap"))
    assert main(["diff", path, path, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "SAME"
    assert {one["verdict"] for one in document["regions"]} == {"SAME"}


def test_losses_of_either_trace_are_said_by_every_verb_that_judges(capsys: pytest.CaptureFixture[str]) -> None:
    lossy, whole = (str(GOLDEN / f"cuda_nested_{name}.wlcap") for name in ("ring_32", "stop_200"))
    lost = "8 of 264 records were overwritten by later ones (8 warps full)"
    main(["diff", lossy, whole])
    assert f"before: {lost}" in capsys.readouterr().out
    main(["diff", whole, lossy, "--json"])
    assert [one["records_lost"] for one in json.loads(capsys.readouterr().out)["losses"]] == [0, 8]
    main(["diagnose", lossy])
    assert capsys.readouterr().out.startswith(lost)
    main(["diagnose", lossy, "--json"])
    assert json.loads(capsys.readouterr().out)["diagnoses"]
