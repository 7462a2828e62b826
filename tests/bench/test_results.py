"""Results after the run: files that come back the same, refused ones that do not, verdicts, texts and plots."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warplens.analyse.roofline import Ceilings
from warplens.bench import load_results
from warplens.bench.compare import compare
from warplens.bench.result_files import document, read
from warplens.bench.result_plots import plots
from warplens.bench.result_tables import remarks
from warplens.bench.results import STATUSES, ResultRow, Results, Sweep, with_speedups
from warplens.bench.sample_statistics import deviation, summarise
from warplens.errors import CaptureError, UsageError, WarplensError

ROOF = Ceilings("H200 SXM", 4800.0, 989.4, "fp16", "a datasheet")
SWEEP = Sweep("attn", "seq_len", "impl", ("causal",), "sdpa", "attention", {"timer": "events", "cache": "flush"})


def row(x: int, line: str, series: Any, **more: Any) -> ResultRow:
    series = np.asarray(series, float)
    flops, moved = 4.0 * x * x * 64, 8.0 * x * 64
    params = {"seq_len": x, "impl": line, "causal": more.pop("causal", False)}
    made = ResultRow(
        "attn", params, x, line, samples=len(series), deviation=deviation(series), dtype="fp16", flops=flops
    )
    middle = float(np.median(series))
    made = replace(made, bytes=moved, tflops=flops / middle / 1000, gbps=moved / middle, peak_bytes=512 * x)
    return replace(made, **(summarise(series) | {"series_ns": tuple(series.tolist())} | more))  # type: ignore[arg-type]


def results(*rows: ResultRow, **more: Any) -> Results:
    machine = {"device": "NVIDIA H200", "driver": "580", "versions": {"torch": "2.11.0"}, "date": "2026-11-15T00:00:00"}
    return with_speedups(Results((SWEEP,), rows, machine | more, {"fp16": ROOF}))


def small() -> Results:
    rng = np.random.default_rng(3)
    made = [
        row(x, line, 1e3 * factor * x * rng.normal(1, 0.01, 40))
        for x in (128, 512, 2048)
        for line, factor in (("flash", 1.0), ("sdpa", 1.5))
    ]
    gone = ResultRow("attn", {"seq_len": 2048, "impl": "naive", "causal": False}, 2048, "naive", "oom", "out of memory")
    return results(*made, row(128, "naive", [9e5] * 40), gone)


# --- files


def test_a_saved_file_comes_back_the_same(tmp_path: Path) -> None:
    found = small()
    path = found.save(tmp_path / "r.json")
    assert load_results(path) == found
    with pytest.raises(WarplensError, match="already exists; pass --force"):
        found.save(path)
    found.save(path, force=True)
    with pytest.raises(UsageError, match=r"did you mean '\.json'"):
        found.save(tmp_path / "r.jso")


_NUMBER = st.none() | st.floats(0, 1e15)


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from(STATUSES), st.text(), _NUMBER, _NUMBER, st.none() | st.integers(0, 2**50),
    st.none() | st.tuples(st.floats(1, 1e4), st.floats(1, 1e4)), st.lists(st.floats(0, 1e12)).map(tuple),
    st.integers() | st.text() | st.booleans() | st.floats(-1e9, 1e9),
)  # fmt: skip
def test_any_row_survives_the_round_trip(
    status: str, note: str, time: Any, error: Any, peak: Any, clock: Any, series: Any, value: Any
) -> None:
    one = ResultRow(
        "attn", {"seq_len": value}, value, "a", status, note, median_ns=time, error=error, peak_bytes=peak,
        clock_mhz=clock, series_ns=series,
    )  # fmt: skip
    found = Results((SWEEP,), (one,), {"device": "x"})
    assert read(json.loads(json.dumps(document(found), allow_nan=False))) == found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda it: it.update(schema="other"), "schema: not a file of benchmark results"),
        (lambda it: it.update(version=99), "version: is 99; this warplens reads version 1"),
        (lambda it: it.pop("rows"), "rows: expected list, found NoneType"),
        (lambda it: it["rows"][2].pop("line"), r"rows\[2\]\.line: is missing"),
        (lambda it: it["rows"][0].update(median_ns="fast"), r"rows\[0\]\.median_ns: expected float, found 'fast'"),
        (lambda it: it["rows"][0].update(samples=True), r"rows\[0\]\.samples: expected int, found True"),
        (lambda it: it["rows"][0].update(status="okay"), r"rows\[0\]\.status: 'okay' is not one of"),
        (lambda it: it["rows"][0].update(series_ns=[1, "x"]), r"rows\[0\]\.series_ns\[1\]: expected float"),
        (lambda it: it["rows"][0].update(clock_mhz=[1.0]), r"rows\[0\]\.clock_mhz: expected a list"),
        (lambda it: it["rows"][0].update(benchmark="b"), r"rows\[0\]\.benchmark: 'b' is not among the sweeps"),
        (lambda it: it["rows"].append(3), r"rows\[8\]: expected an object, found int"),
        (lambda it: it["roofs"]["fp16"].pop("tflops"), r"roofs\.fp16\.tflops: is missing"),
    ],
)
def test_what_does_not_fit_the_schema_is_named(change: Any, message: str, tmp_path: Path) -> None:
    it = document(small())
    change(it)
    path = tmp_path / "r.json"
    path.write_text(json.dumps(it))
    with pytest.raises(CaptureError, match=message):
        load_results(path)


def test_parameters_of_any_kind_can_be_written(tmp_path: Path) -> None:
    params = {"seq_len": np.int64(4), "impl": "flash", "causal": complex(1, 2)}
    found = load_results(results(ResultRow("attn", params, np.int64(4), "flash")).save(tmp_path / "r.json"))
    assert found.rows[0].params == {"seq_len": 4, "impl": "flash", "causal": "(1+2j)"}
    assert found.rows[0].x == 4


def test_results_with_tuples_and_infinities_among_their_parameters_are_shown_again(tmp_path: Path) -> None:
    made = [row(x, "flash", [1000.0 + x] * 20, causal=(1, (x, 2)), error=None) for x in (1, 2)]
    odd = [replace(one, params={**one.params, "seq_len": (one.x, 4)}, x=(one.x, 4)) for one in made]
    found = load_results(results(*odd, scale=float("inf")).save(tmp_path / "r.json"))
    assert [one.x for one in found] == [(1, 4), (2, 4)]
    assert len(found.groups()) == 2
    assert sum("latency" in name for name in plots(found)) == 2
    assert found.machine["scale"] == "inf"
    assert compare(results(*odd), found).verdict == "same"


def test_numbers_that_json_does_not_have_are_refused(tmp_path: Path) -> None:
    path = small().save(tmp_path / "r.json")
    path.write_text(path.read_text().replace('"samples": 40', '"samples": NaN', 1))
    with pytest.raises(CaptureError, match="file: not JSON"):
        load_results(path)


def test_a_newer_field_is_ignored_and_other_files_are_refused(tmp_path: Path) -> None:
    it = document(small())
    it["rows"][0]["new_field"] = 1
    assert read(it) == small()
    (tmp_path / "x.json").write_text("not json")
    for name, message in (("x.json", "file: not JSON"), ("none.json", "file: No such file")):
        with pytest.raises(CaptureError, match=message):
            load_results(tmp_path / name)


# --- texts


def test_csv_and_markdown_hold_every_row() -> None:
    found = small()
    lines = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert [(one["seq_len"], one["impl"], one["status"]) for one in lines] == [
        (str(one.x), one.line, one.status) for one in found
    ]
    assert float(lines[0]["median_ns"]) == found.rows[0].median_ns
    assert lines[-1]["median_ns"] == ""
    text = str(found)
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 2 + len(found)
    assert all(line.count("|") == table[0].count("|") for line in table)
    for word in ("| out of memory |", "vs sdpa", "1.5", "NVIDIA H200, driver 580", "### attention (causal False)"):
        assert word in text


def test_remarks_say_what_one_must_know_of_a_number() -> None:
    plain = row(128, "flash", [1e4] * 40)
    assert remarks(plain) == ""
    doubtful = replace(plain, unmet="timeout after 1 s: drift", throttled="SM clock at 1,500 MHz (NVML)", of_roof=1.3)
    assert [part.split(":")[0] for part in remarks(doubtful).split("; ")] == [
        "not converged",
        "above the roof",
        "throttled",
    ]
    assert remarks(replace(plain, status="wrong", note="2 values are NaN")) == "wrong: 2 values are NaN"
    assert remarks(replace(plain, note="not checked: no reference")) == "not checked: no reference"


def test_a_parameter_named_like_a_field_keeps_its_own_column() -> None:
    one = ResultRow("attn", {"seq_len": 1, "dtype": "float16"}, 1, "", dtype="fp16")
    (line,) = csv.DictReader(io.StringIO(Results((SWEEP,), (one,), {}).to_csv()))
    assert (line["param_dtype"], line["dtype"]) == ("float16", "fp16")


def test_one_row_is_found_by_its_parameters() -> None:
    found = small()
    assert found.row(seq_len=512, impl="flash").speedup == pytest.approx(1.5, rel=0.02)
    with pytest.raises(UsageError, match="did you mean 'impl'"):
        found.row(imp="flash")
    with pytest.raises(UsageError, match="3 rows have"):
        found.row(impl="flash")


# --- comparison


def noisy(seed: int, scale: float = 1.0, noise: float = 0.02, count: int = 200, lines: int = 6) -> Results:
    """Runs as a GPU gives them: the noise of single calls, and a slow wander that neighbours share."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(lines):
        wander = np.repeat(rng.normal(0, noise / 4, -(-count // 10)), 10)[:count]
        series = 1e5 * np.exp(noise * rng.standard_normal(count) + wander)
        made.append(row(128 << number, "flash", series * (scale if number == 2 else 1.0)))
    return results(*made)


@pytest.mark.parametrize(("noise", "count"), [(0.01, 200), (0.05, 60), (0.3, 30), (0.3, 8)])
def test_the_same_distribution_raises_no_alarm(noise: float, count: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(60):
        seen.update(one.verdict for one in compare(noisy(seed, 1, noise, count), noisy(1000 + seed, 1, noise, count)))
    assert seen["worse"] + seen["better"] <= 1
    if noise <= 0.01:
        assert set(seen) == {"same"}


def wandering(seed: int, noise: float, alike: float, count: int, scale: float = 1.0) -> Results:
    """One case whose samples resemble their neighbours."""
    level, *steps = np.random.default_rng(seed).normal(size=count + 1)
    levels = [level := alike * level + math.sqrt(1 - alike**2) * step for step in steps]
    return results(row(1, "a", 1e4 * scale * np.exp(noise * np.array(levels))))


@pytest.mark.parametrize(("alike", "count"), [(0.8, 8), (0.9, 16), (0.95, 30), (0.8, 60), (0.95, 200)])
def test_noise_that_outlasts_many_samples_is_taken_for_no_change(alike: float, count: int) -> None:
    pairs = [(wandering(seed, 0.1, alike, count), wandering(seed + 1000, 0.1, alike, count)) for seed in range(200)]
    assert sum(compare(*pair).verdict in ("worse", "better") for pair in pairs) <= 6
    assert compare(wandering(1, 0.005, alike, count), wandering(2, 0.005, alike, count, 1.3)).verdict == "worse"
    drift = np.linspace(1e4, 1.002e4, count)
    assert compare(results(row(1, "a", drift)), results(row(1, "a", 1.3 * drift))).verdict == "worse"


@pytest.mark.parametrize(("scale", "verdict"), [(1.08, "worse"), (1.5, "worse"), (0.9, "better"), (1.02, "same")])
def test_a_known_change_gets_its_verdict_where_it_is(scale: float, verdict: str) -> None:
    for seed in range(10):
        found = compare(noisy(seed), noisy(500 + seed, scale))
        assert [one.verdict for one in found] == ["same", "same", verdict, "same", "same", "same"]
        interval = found.changes[2].interval
        assert interval is not None
        assert interval.low <= scale - 1 <= interval.high
        assert found.verdict == verdict


def test_the_threshold_decides_what_matters() -> None:
    before, after = noisy(1), noisy(2, 1.04)
    assert compare(before, after, threshold=0.02).changes[2].verdict == "worse"
    assert compare(before, after, threshold=0.10).changes[2].verdict == "same"
    with pytest.raises(UsageError, match="threshold=0"):
        compare(before, after, threshold=0)


def test_what_noise_hides_is_unsure_with_a_reason() -> None:
    found = compare(noisy(1, noise=0.4, count=12), noisy(2, 1.06, noise=0.4, count=12))
    assert found.changes[2].verdict == "unsure"
    assert "measure longer" in found.changes[2].note


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (row(1, "a", [5.0] * 40, median_ns=0.0), row(1, "a", [5.0] * 40), "unsure"),
        (row(1, "a", [5.0] * 39 + [0.0] * 40 + [5.0]), row(1, "a", [5.0, 0.0] * 20), "unsure"),
        (row(1, "a", [5.0] * 40, series_ns=()), row(1, "a", [9.0] * 40, series_ns=()), "unsure"),
        (row(1, "a", [5.0] * 40, clock_mhz=(0.0, 0.0)), row(1, "a", [5.0] * 40, clock_mhz=(9.0, 9.0)), "same"),
    ],
)
def test_times_and_clocks_of_0_and_no_series_decide_nothing(before: ResultRow, after: ResultRow, verdict: str) -> None:
    found = compare(results(before), results(after))
    assert found.verdict == verdict
    json.dumps(found.to_json(), allow_nan=False)


def test_a_result_that_broke_is_worse_and_one_that_was_mended_better() -> None:
    good = small()
    bad = replace(
        good,
        rows=tuple(
            replace(one, status="wrong", note="4 values are NaN") if (one.x, one.line) == (512, "flash") else one
            for one in good.rows
        ),
    )
    found = {one.name: (one.verdict, one.note) for one in compare(good, bad)}
    assert found["attn(seq_len=512, impl=flash, causal=False)"] == ("worse", "wrong now: 4 values are NaN")
    assert found["attn(seq_len=2048, impl=naive, causal=False)"] == ("same", "oom before and after")
    assert Counter(one.verdict for one in compare(good, bad)) == {"worse": 1, "same": 7}
    assert Counter(one.verdict for one in compare(bad, good)) == {"better": 1, "same": 7}


def test_cases_of_one_side_and_other_machines_are_told() -> None:
    old = small()
    new = replace(results(*old.rows[2:], row(4096, "flash", [1e6] * 40), device="NVIDIA H100"), complete=False)
    new = replace(new, sweeps=(replace(SWEEP, method={"timer": "graph", "cache": "flush"}),))
    found = compare(old, new)
    assert Counter(one.verdict for one in found) == {"same": 6, "gone": 2, "new": 1}
    assert set(found.warnings) == {
        "device changed from NVIDIA H200 to NVIDIA H100",
        "timer of attn changed from events to graph",
        "the run after was interrupted; some cases are missing",
    }
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["verdict"] == "same"
    with pytest.raises(WarplensError, match="no case in common"):
        compare(old, results(row(4096, "flash", [1e6] * 40)))


# --- plots


def test_plots_hold_the_numbers_of_the_rows() -> None:
    found = small()
    drawn = plots(found)
    assert list(drawn) == [f"attn-{kind}" for kind in ("latency", "throughput", "speedup", "memory", "roofline")]
    wanted = {
        "latency": lambda one: one.median_ns / 1000,
        "throughput": lambda one: one.tflops,
        "speedup": lambda one: one.speedup,
        "memory": lambda one: one.peak_bytes / 2**20,
    }
    for kind, value in wanted.items():
        (axis,) = drawn[f"attn-{kind}"].axes
        shown = {line.get_label().split(" (")[0]: line.get_xydata() for line in axis.lines}
        for name in ("flash", "sdpa"):
            mine = [one for one in found if one.line == name]
            assert np.allclose(shown[name], [(one.x, value(one)) for one in mine])
        assert axis.get_xscale() == "log"
    labels = [line.get_label() for line in drawn["attn-latency"].axes[0].lines]
    assert "naive (out of memory at 2048)" in labels


def test_the_roofline_has_one_point_per_case_below_its_roof() -> None:
    found = small()
    (axis,) = plots(found)["attn-roofline"].axes
    roof, *points = axis.lines
    assert roof.get_xydata()[1].tolist() == [ROOF.ridge, ROOF.tflops]
    shown = np.concatenate([line.get_xydata() for line in points])
    timed = [one for one in found if one.timed]
    assert len(shown) == len(timed) == 7
    for x, y in shown:
        assert y <= min(ROOF.tflops, ROOF.bandwidth * x / 1000)


@pytest.mark.parametrize(("form", "magic"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_plot_files_are_what_they_are_called(form: str, magic: bytes, tmp_path: Path) -> None:
    files = small().plot(tmp_path / "plots", format=form)
    assert len(files) == 5
    assert all(file.read_bytes().startswith(magic) for file in files)
    with pytest.raises(WarplensError, match="already exists"):
        small().plot(tmp_path / "plots", format=form)


def test_groups_get_their_own_plots_and_nothing_timed_is_an_error(tmp_path: Path) -> None:
    both = results(*(row(x, "flash", [1e4 * x] * 10, causal=causal) for causal in (False, True) for x in (1, 2)))
    assert [name for name in plots(both) if "latency" in name] == [
        "attn-latency-causal=False",
        "attn-latency-causal=True",
    ]
    with pytest.raises(WarplensError, match="nothing to plot"):
        results(small().rows[-1]).plot(tmp_path)
    with pytest.raises(UsageError, match="did you mean 'svg'"):
        small().plot(tmp_path, format="svgz")
    (tmp_path / "file").write_text("")
    with pytest.raises(WarplensError, match="is a file"):
        small().plot(tmp_path / "file")


def test_words_on_the_x_axis_are_kept_in_order() -> None:
    made = [replace(row(x, "flash", [1e4 * x] * 10), x=name) for x, name in ((3, "small"), (1, "large"))]
    (axis,) = plots(results(*made))["attn-latency"].axes
    assert [label.get_text() for label in axis.get_xticklabels()] == ["small", "large"]
    assert axis.lines[0].get_xydata().tolist() == [[0.0, 30.0], [1.0, 10.0]]
