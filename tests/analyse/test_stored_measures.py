"""A file keeps the measures of its statistics: those are the ones of a pass over its rows, to the last digit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.builders import Span, make_trace
from tests.support.paths import ROOT
from tests.support.synthetic_capture import make_capture
from warplens.analyse import stored_measures
from warplens.analyse.stored_measures import Measures
from warplens.decode import decode
from warplens.decode.trace_loader import load
from warplens.trace.columns import ParquetColumns
from warplens.trace.model import Trace

GOLDEN = sorted((ROOT / "tests" / "golden" / "captures").glob("*.wlcap"))


def from_rows(path: Path) -> str:
    trace = load(path)
    trace.kept_measures = b""
    return json.dumps(trace.stats().to_json())


def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse to read rows from here on."""

    def refused(*_: object) -> None:
        raise AssertionError("rows were read")

    monkeypatch.setattr(ParquetColumns, "_table", refused)


@pytest.mark.parametrize("capture", GOLDEN, ids=lambda path: path.stem)
def test_statistics_of_a_file_are_those_of_its_rows_to_the_last_digit(capture: Path, tmp_path: Path) -> None:
    file = load(capture).save(tmp_path / "t.warplens")
    assert load(file).kept_measures
    assert json.dumps(load(file).stats().to_json()) == from_rows(file) == json.dumps(load(capture).stats().to_json())


_visits = st.lists(
    st.tuples(
        st.sampled_from(["load", "dot", "line\nbreak", "é"]), st.integers(0, 99), st.integers(0, 1 << 40), st.booleans()
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.tuples(st.integers(0, 2), st.integers(0, 3)), _visits, min_size=1, max_size=6))
def test_statistics_of_any_spans_are_kept_exactly(
    tmp_path: Path, tracks: dict[tuple[int, int], list[tuple[str, int, int, bool]]]
) -> None:
    spans = []
    for (launch, warp), visits in tracks.items():
        end, inner = 0, []
        for region, gap, duration, is_open in visits:
            inner.append(Span(region, end + gap, duration, warp=warp, launch=launch, open=is_open))
            end += gap + duration
        spans += [Span("outer", 0, end + 1, warp=warp, launch=launch), *inner]
    file = make_trace(spans).save(tmp_path / "t.warplens", force=True)
    assert load(file).kept_measures
    assert json.dumps(load(file).stats().to_json()) == from_rows(file)


def test_statistics_without_a_selection_read_no_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = decode(make_capture(1000, blocks=4)).save(tmp_path / "t.warplens")
    trace = load(file)
    unread(monkeypatch)
    assert len(trace.stats()) > 1
    with pytest.raises(AssertionError, match="rows were read"):
        load(file).stats(by="sm")


def test_a_selection_is_measured_anew(tmp_path: Path) -> None:
    trace = load(decode(make_capture(1000, blocks=4)).save(tmp_path / "t.warplens"))
    part = trace.select(block=[0])
    assert part.kept_measures == b""
    assert sum(row.count for row in part.stats()) < sum(row.count for row in trace.stats())


def test_another_version_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = decode(make_capture(1000, blocks=4)).save(tmp_path / "t.warplens")
    monkeypatch.setattr(stored_measures, "VERSION", stored_measures.VERSION + 1)
    trace = load(file)
    assert Measures.from_bytes(trace.kept_measures, len(trace), [""]) is None
    assert json.dumps(trace.stats().to_json()) == from_rows(file)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.pop("rows"),
        lambda d: d.update(rows=1),
        lambda d: d.update(labels=["", "a", "b"]),
        lambda d: d.update(regions=[1]),
        lambda d: d.update(measures={"99": {}}),
        lambda d: d.update(measures=[]),
        lambda d: next(iter(d["measures"].values())).update(mean="3"),
        lambda d: next(iter(d["measures"].values())).update(count=True),
        lambda d: d.update(unended={"-1": 1}),
        lambda d: d.update(values=[{}]),
    ],
)
def test_a_document_that_does_not_fit_is_ignored(change: object) -> None:
    trace = decode(make_capture(1000, blocks=4))
    document = json.loads(_measures(trace))
    change(document)  # type: ignore[operator]
    assert Measures.from_bytes(json.dumps(document).encode(), len(trace), [""]) is None


def _measures(trace: Trace) -> bytes:
    from warplens.analyse.statistics import measures_to_keep

    return measures_to_keep(trace)


def test_a_file_that_another_program_rewrote_is_refused_or_read(tmp_path: Path) -> None:
    """Its checksums do not match any more, so that what it keeps is not used either."""
    file = decode(make_capture(1000, blocks=4)).save(tmp_path / "t.warplens")
    table = pq.read_table(file)
    metadata = {key: value for key, value in table.schema.metadata.items() if key != b"warplens.checksums"}
    pq.write_table(table.slice(0, 500).replace_schema_metadata(metadata), tmp_path / "less.warplens")
    less = load(tmp_path / "less.warplens")
    assert less.kept_measures == b""


def test_shares_follow_the_document_of_the_trace(tmp_path: Path) -> None:
    trace = load(decode(make_capture(1000, blocks=4)).save(tmp_path / "t.warplens"))
    share = trace.stats().rows[0].share
    trace.meta = replace(
        trace.meta, launches=[replace(one, busy_cycles=one.busy_cycles * 2) for one in trace.meta.launches]
    )
    assert trace.stats().rows[0].share == pytest.approx(share / 2)
