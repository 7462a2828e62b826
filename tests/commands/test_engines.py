"""`--engine`: the same answers from partial results, and one clear error where Spark cannot run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.support.messy_ranks import write_messy
from warplens.commands import info, main
from warplens.commands.shared import dataset_options

Output = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_messy(tmp_path_factory.mktemp("job") / "run.warplens"))


def test_the_table_and_the_document_of_the_local_engine(job: str, capsys: Output) -> None:
    assert main(["stats", job, "--engine", "local", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert main(["stats", job, "--json"]) == 0
    exact = json.loads(capsys.readouterr().out)
    assert found.keys() == exact.keys()
    assert (found["quantile_error"], exact["quantile_error"]) == (1 / 128, 0)
    counts = [[(row["variant"], row["region"], row["count"]) for row in one["rows"]] for one in (found, exact)]
    assert sorted(counts[0]) == sorted(counts[1])
    assert main(["stats", job, "--engine", "local", "--kernel", "gemm", "--sort", "p95"]) == 0
    shown = capsys.readouterr().out
    assert "percentiles are within 0.8 % of the exact ones" in shown.splitlines()[0]
    assert "loss" in shown
    assert "attention" not in shown


def test_a_large_folder_is_answered_in_bounded_memory_unasked(
    job: str, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset_options, "WHOLE_ROWS", 100)
    assert main(["stats", job, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["quantile_error"] == 1 / 128
    assert main(["stats", job, "--tree"]) == 0
    shown = capsys.readouterr()
    assert "percentiles are within" not in shown.out
    assert "6,480 spans, which take about 0 GB of memory; --ranks sample:8 reads fewer" in shown.err


def test_a_large_folder_is_described_without_its_rows(
    job: str, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["info", job, "--json"]) == 0
    exact = json.loads(capsys.readouterr().out)
    monkeypatch.setattr(dataset_options, "WHOLE_ROWS", 100)
    monkeypatch.setattr(info, "read_trace", None)
    assert main(["info", job, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == exact


def test_diffs_and_findings_of_the_local_engine(job: str, tmp_path: Path, capsys: Output) -> None:
    slower = str(write_messy(tmp_path / "slower.warplens", slower=1.5))
    arguments = ["diff", job, slower, "--engine", "local", "--fail-on", "load.mean:+5%"]
    assert main(arguments) == 3
    shown = capsys.readouterr().out
    assert "percentiles are within 0.8 %" in shown
    assert "FAIL load.mean:+5%" in shown
    assert main(["findings", job, "--engine", "local", "--json", "--kernel", "gemm"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {one["kernel"] for part in ("findings", "undecided", "refuted") for one in document[part]} == {"gemm"}
    assert main(["findings", job, "--engine", "local"]) == 0
    assert capsys.readouterr().out.startswith("judged rank by rank")
    assert main(["findings", job, "--engine", "local", "--json", "--budget", "2000"]) == 2


@pytest.mark.parametrize("engine", [[], ["--engine", "local"]])
def test_some_ranks(job: str, engine: list[str], capsys: Output) -> None:
    for ranks, expected in (("1-2", {"1", "2"}), ("sample:2", {"0", "1"})):
        assert main(["stats", job, "--by", "rank", "--json", "--ranks", ranks, *engine]) == 0
        assert {row["group"] for row in json.loads(capsys.readouterr().out)["rows"]} == expected
    assert main(["stats", job, "--ranks", "7", *engine]) == 2
    assert "has none of them; it has 0-2" in capsys.readouterr().err


def test_every_view_takes_some_ranks(job: str, tmp_path: Path, capsys: Output) -> None:
    assert main(["export", job, str(tmp_path / "one.csv"), "--ranks", "2", "--json"]) == 0
    rows = [line.split(",")[0].strip('"') for line in (tmp_path / "one.csv").read_text().splitlines()]
    assert set(rows) == {"rank", "2"}
    assert main(["report", job, "-o", str(tmp_path / "one.html"), "--ranks", "2"]) == 0
    assert main(["view", job, "--terminal", "--ranks", "2"]) == 0
    assert main(["findings", job, "--ranks", "2", "--json"]) == 0


def test_duckdb_names_the_local_engine_and_says_so(job: str, capsys: Output) -> None:
    assert main(["stats", job, "--engine", "duckdb"]) == 0
    assert "this is --engine local" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--engine", "sprak"], 2, "did you mean 'spark'"),
        (["--engine", "local:4"], 2, "unknown engine"),
        (["--engine", "local", "--tree"], 2, "leave out --tree"),
        (["--engine", "local", "--by", "rnk"], 2, "did you mean 'rank'"),
        (["--engine", "local", "--region", "laod"], 2, "no region named 'laod'"),
    ],
)
def test_bad_requests_say_what_is_wrong(job: str, arguments: list[str], code: int, words: str, capsys: Output) -> None:
    assert main(["stats", job, *arguments]) == code
    assert words in capsys.readouterr().err


def test_a_folder_that_is_not_there(tmp_path: Path, capsys: Output) -> None:
    assert main(["stats", str(tmp_path / "nowhere"), "--engine", "local"]) == 1
    assert "does not exist" in capsys.readouterr().err


def test_without_pyspark_one_line_says_how_to_get_it(job: str, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    assert main(["stats", job, "--engine", "spark"]) == 1
    error = capsys.readouterr().err.strip()
    assert error.endswith("pyspark is not installed; pip install 'warplens[spark]'")
    assert len(error.splitlines()) == 1


def test_without_java_one_line_says_how_to_get_it(job: str, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    class SparkSession:
        @staticmethod
        def getActiveSession() -> None:
            """No session runs."""

    monkeypatch.setitem(sys.modules, "pyspark", type(sys)("pyspark"))
    fake = type(sys)("pyspark.sql")
    fake.SparkSession = SparkSession  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyspark.sql", fake)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert main(["stats", job, "--engine", "spark:local[2]"]) == 1
    error = capsys.readouterr().err.strip()
    assert "apt-get install default-jre-headless" in error
    assert len(error.splitlines()) == 1
