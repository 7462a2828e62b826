"""What can be asked of a trace in mode="aggregate", against the same launch in mode="trace"."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import warplens as wl
from tests.support.nested_ptx import NESTED
from tests.support.simulated_trace import count_only_work, traced
from warplens.analyse.executions import percentile
from warplens.analyse.findings import findings
from warplens.analyse.heatmap import by_block, by_region
from warplens.analyse.hypotheses import HYPOTHESES
from warplens.commands import main
from warplens.decode import decode
from warplens.errors import UsageError, WarplensError
from warplens.record.aggregate_rows import BUCKETS, bucket_of
from warplens.record.capture import AUTOMATIC, Capture
from warplens.simulate import GlobalMemory
from warplens.trace import document
from warplens.trace.merge import merge
from warplens.trace.model import Trace
from warplens.weave.weaving import Weaving

EXACT = ("count", "open", "total", "min", "max", "exclusive", "warp_spread", "sm_spread")


def made(mode: str, steps: int = 40, blocks: int = 6) -> Trace:
    memory = GlobalMemory(64 << 20)
    out = memory.alloc(4)
    return traced(NESTED, "nested", (blocks, 1, 1), (64, 1, 1), [out, steps], Weaving(mode=mode), memory)[0]


def test_the_table_says_what_is_derived_of_the_code_between_regions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    count_only_work(monkeypatch)
    text = NESTED.replace("\t// @warplens E nothing\n", "")
    straight = re.sub(r"// @warplens (?:[BE] (?:a|b)|I .*)\n", "\n", text)
    for name, source, said in (("one", straight, "one duration per warp"), ("two", text, "regions overlap")):
        how, memory = Weaving(mode="aggregate", between=True), GlobalMemory(64 << 20)
        launch = traced(source, "nested", (2, 1, 1), (64, 1, 1), [memory.alloc(4), 9], how, memory)[1]
        marked = replace(launch, extra={**launch.extra, AUTOMATIC: True})
        decode(Capture([marked])).save(tmp_path / f"{name}.warplens")
        assert main(["stats", str(tmp_path / f"{name}.warplens")]) == 0
        out = capsys.readouterr().out
        assert said in " ".join(out.split())
        rows = [row for row in wl.load(tmp_path / f"{name}.warplens").stats().rows if row.region == "work"]
        assert [row.count for row in rows] == ([4] if name == "one" else [])


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> Trace:
    count_only_work(monkeypatch)
    return made("trace")


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Trace:
    count_only_work(monkeypatch)
    return made("aggregate")


@pytest.mark.parametrize("by", ["region", "kernel", "sm", "warp", "block", "launch", "rank"])
def test_statistics_are_those_of_the_records(records: Trace, kept: Trace, by: str) -> None:
    expected, found = ({(row.group, row.region): row for row in one.stats(by)} for one in (records, kept))
    assert found.keys() == expected.keys()
    for key, row in found.items():
        true = expected[key]
        assert [row[name] for name in EXACT] == pytest.approx([true[name] for name in EXACT]), key
        assert row.mean == pytest.approx(true.mean)
        for name in ("p50", "p95", "p99"):
            assert row[name] == pytest.approx(true[name], rel=0.26, abs=1), (key, name)
            assert row.min <= row[name] <= row.max
    assert "mode='aggregate'" in repr(kept.stats(by))


@pytest.mark.parametrize("seed", range(5))
def test_percentiles_lie_in_the_bucket_of_the_true_ones(seed: int) -> None:
    durations = np.random.default_rng(seed).lognormal(6, 1.5, 5000).astype(np.int64)
    histogram = np.bincount(bucket_of(durations), minlength=BUCKETS)
    for share in (0, 0.05, 0.5, 0.95, 0.99, 1):
        found = percentile(histogram, share, int(durations.min()), int(durations.max()))
        assert found == pytest.approx(float(np.quantile(durations, share)), rel=0.2)


def test_heat_maps_show_means_of_executions(records: Trace, kept: Trace) -> None:
    for ask in (by_region, by_block):
        true, found = ask(records), ask(kept)
        order = [found.regions.index(name) for name in true.regions if name in found.regions]
        same = [true.regions.index(found.regions[at]) for at in order]
        np.testing.assert_allclose(found.mean[:, order], true.mean[:, same])


def test_two_of_them_are_compared(kept: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(one.verdict.value == "SAME" for one in wl.diff(kept, made("aggregate")))
    monkeypatch.setattr(
        "warplens.simulate.step_blocks.issue_cycles", lambda opcode, modifiers: 14 if opcode == "xor" else 0
    )
    slower = {one.region: one.verdict.value for one in wl.diff(kept, made("aggregate"))}
    assert slower["b"] == "SLOWER"


def test_findings_and_tables_that_need_a_timeline_are_not_made_up(kept: Trace, tmp_path: Path) -> None:
    found = findings(kept)
    judged = {one.kind for part in (found.supported, found.undecided, found.withheld, found.refuted) for one in part}
    assert judged == {cause for cause, one in HYPOTHESES.items() if not one.needs_timeline}
    assert "warp imbalance" in judged
    path = kept.save(tmp_path / "t.warplens")
    assert main(["stats", str(path), "--show", "imbalance"]) == 0
    assert main(["stats", str(path), "--show", "waves"]) == 2
    assert main(["view", str(path), "--terminal"]) == 2


def test_the_file_keeps_everything(kept: Trace, tmp_path: Path) -> None:
    loaded = wl.load(kept.save(tmp_path / "t.warplens"))
    assert loaded.aggregated
    assert loaded.spans.equals(kept.spans)
    assert repr(loaded.stats()) == repr(kept.stats())
    part = loaded.select(region="b")
    assert part.aggregated
    assert part.stats()["b"].count == kept.stats()["b"].count
    assert main(["info", str(tmp_path / "t.warplens")]) == 0
    assert main(["stats", str(tmp_path / "t.warplens"), "--json"]) == 0


def test_an_older_version_refuses_it_with_one_line(
    kept: Trace, records: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, old = kept.save(tmp_path / "new.warplens"), records.save(tmp_path / "old.warplens")
    monkeypatch.setattr(document, "SCHEMA_VERSION", 1)
    with pytest.raises(WarplensError, match="schema: 2 is newer"):
        wl.load(new)
    assert len(wl.load(old)) == len(records), "a trace of records is still written for older versions"


@pytest.mark.parametrize(
    ("column", "row", "value", "problem"),
    [
        ("count", 0, 0, "at least 1"),
        ("max_cycles", 1, 0, "do not add up to"),
        ("min_cycles", 1, 1 << 40, "do not add up to"),
        ("bucket_counts", 2, [1], "adds up to 1|another number of values"),
        ("buckets", 2, [500], "no ascending numbers|another number of values"),
    ],
)
def test_columns_that_contradict_each_other_are_refused(
    kept: Trace, tmp_path: Path, column: str, row: int, value: object, problem: str
) -> None:
    path = kept.save(tmp_path / "t.warplens")
    table = pq.read_table(path)
    values = table.column(column).to_pylist()
    values[row] = value
    at = table.schema.get_field_index(column)
    changed = table.set_column(at, column, pa.array(values, table.schema.field(column).type))
    key = {name: text for name, text in table.schema.metadata.items() if name == b"warplens"}
    pq.write_table(changed.replace_schema_metadata(key), path)
    with pytest.raises(WarplensError, match=problem):
        wl.load(path).spans  # noqa: B018


def test_a_file_without_its_columns_is_refused(kept: Trace, tmp_path: Path) -> None:
    path = kept.save(tmp_path / "t.warplens")
    table = pq.read_table(path)
    key = {name: text for name, text in table.schema.metadata.items() if name == b"warplens"}
    pq.write_table(table.drop_columns(["bucket_counts"]).replace_schema_metadata(key), path)
    with pytest.raises(WarplensError, match="bucket_counts missing"):
        wl.load(path)


def test_only_formats_without_a_timeline_take_it(kept: Trace, tmp_path: Path) -> None:
    for suffix in (".csv", ".parquet", ".hatchet", ".html"):
        assert kept.export(tmp_path / f"t{suffix}").stat().st_size
    for suffix in (".pftrace", ".json", ".json.gz"):
        with pytest.raises(UsageError, match="no timeline"):
            kept.export(tmp_path / f"t{suffix}")


def test_both_modes_cannot_be_merged(kept: Trace, records: Trace) -> None:
    with pytest.raises(WarplensError, match="cannot be merged"):
        merge([kept, records])
    assert merge([kept, kept]).aggregated
