"""Spark answers as the local engine does, number for number. Needs pyspark and Java: `make test-engines`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import warplens as wl
from tests.support.late_job import late_job, late_verdicts, write_late_job
from tests.support.messy_ranks import assert_same_statistics, write_messy
from warplens.engines.local_engine import LocalEngine
from warplens.engines.queries import dataset_diff, dataset_findings, dataset_statistics
from warplens.engines.spark_engine import SparkEngine, spark_session
from warplens.errors import WarplensError
from warplens.trace.dataset import Dataset, RowSelection

pyspark = pytest.importorskip("pyspark", reason="pip install 'warplens[spark]'")
pytestmark = [
    pytest.mark.slow,  # a Spark session takes seconds to start
    pytest.mark.skipif(shutil.which("java") is None, reason="apt-get install default-jre-headless"),
]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_messy(tmp_path_factory.mktemp("job") / "run.warplens")


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    """Two workers in processes of their own."""
    made, is_ours = spark_session("local-cluster[2,1,1024]")
    assert is_ours
    yield made
    made.stop()


@pytest.mark.parametrize("by", ["region", "kernel", "rank"])
def test_statistics_are_those_of_the_local_engine_to_the_bit(session: Any, job: Path, by: str) -> None:
    assert session.sparkContext.master == "local-cluster[2,1,1024]"
    opened = Dataset.open(job)
    found, local = (dataset_statistics(opened, engine, by) for engine in (SparkEngine(), LocalEngine()))
    assert json.dumps(found.to_json()) == json.dumps(local.to_json())
    assert_same_statistics(found, wl.load(job).stats(by))


def test_a_selection(session: Any, job: Path) -> None:
    chosen = RowSelection.of(kernel=["gemm"], rank=[1])
    found = dataset_statistics(Dataset.open(job), SparkEngine(), selection=chosen)
    assert_same_statistics(found, wl.load(job).select(kernel="gemm", rank=1).stats())


def test_findings_and_diffs(session: Any, job: Path, tmp_path: Path) -> None:
    before, after = Dataset.open(job), Dataset.open(write_messy(tmp_path / "slower.warplens", slower=1.5))
    findings = [dataset_findings(before, engine).to_json() for engine in (SparkEngine(), LocalEngine())]
    assert findings[0] == findings[1]
    diffs = [dataset_diff(before, after, engine).to_json() for engine in (SparkEngine(), LocalEngine())]
    assert diffs[0] == diffs[1]
    assert diffs[0]["verdict"] == "SLOWER"


def test_late_ranks_are_those_of_the_whole_trace(session: Any, tmp_path: Path) -> None:
    folder = write_late_job(tmp_path / "run", late_job({2: {"softmax": 40_000}}))
    found = dataset_findings(Dataset.open(folder), SparkEngine())
    assert late_verdicts(found) == late_verdicts(wl.load(folder).findings())
    assert [one.region for one in found.problems if one.kind == "late rank"] == ["softmax"]


def test_a_damaged_part_is_one_clear_error(session: Any, job: Path, tmp_path: Path) -> None:
    part = shutil.copytree(job, tmp_path / "run") / "rank=1" / "part-0.parquet"
    content = bytearray(part.read_bytes())
    content[1000] ^= 0xFF
    part.write_bytes(bytes(content))
    opened = Dataset.open(tmp_path / "run")
    with pytest.raises(WarplensError, match=r"rank=1/part-0.parquet: column .* checksum does not match"):
        dataset_statistics(opened, SparkEngine())


def test_the_command_starts_a_session_of_its_own(job: Path) -> None:
    given = ["stats", str(job), "--json"]
    outputs = [
        subprocess.run(
            [sys.executable, "-m", "warplens", *given, "--engine", name], capture_output=True, text=True, check=True
        ).stdout
        for name in ("spark:local[2]", "local")
    ]
    assert outputs[0] == outputs[1]
    assert json.loads(outputs[0])["quantile_error"] == 1 / 128
