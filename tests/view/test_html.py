"""The report as a file: what it holds, what it refuses, and that its policy covers the very scripts in it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.barrier_pipeline import run_pipeline
from tests.support.builders import Span, make_trace
from tests.support.paths import ROOT
from warplens.commands import main
from warplens.decode import decode
from warplens.decode.trace_loader import load
from warplens.errors import UsageError, WarplensError
from warplens.record.capture import Capture, Launch
from warplens.record.layout import Kind
from warplens.record.track_writer import TrackWriter
from warplens.trace.model import Trace, empty_table
from warplens.view import bundle
from warplens.view.html import ReportOptions, report
from warplens.view.notebook import trace_html
from warplens.view.payload import ColumnPacker, pack_spans
from warplens.view.sections import summary
from warplens.view.source_listing import listing

HOSTILE = "</script><img src=x onerror=alert(1)>"


def sample(region: str = "load") -> Trace:
    return make_trace(
        [Span("tile", 0, 100, warp=w) for w in range(3)] + [Span(region, 10, 20, warp=w) for w in range(3)]
    )


def unpack(packer: ColumnPacker, name: str) -> np.ndarray:
    """The inverse of ColumnPacker, written apart from it."""
    data = zlib.decompress(base64.b64decode(packer.text), -15)
    entry = packer.manifest[name]
    at, count = entry["at"], entry["count"]
    if entry["kind"] == "float":
        return np.frombuffer(data, "<f8", count, at)
    if entry["kind"] == "byte":
        return np.frombuffer(data, np.uint8, count, at)
    planes = np.frombuffer(data, np.uint8, count * entry["planes"], at).reshape(entry["planes"], count)
    coded = sum(planes[plane].astype(object) << (8 * plane) for plane in range(entry["planes"]))
    return np.array([(value >> 1) ^ -(value & 1) for value in coded], object)


def test_integers_of_any_size_and_sign_survive_packing() -> None:
    values = np.array([0, 1, -1, 255, -256, 2**31, -(2**40), 2**62, -(2**62)], np.int64)
    packer = ColumnPacker()
    packer.ints("odd", values[:3])
    packer.ints("wide", values)
    packer.floats("floats", np.array([np.nan, -0.0, 1e308]))
    assert unpack(packer, "wide").tolist() == values.tolist()
    assert unpack(packer, "odd").tolist() == [0, 1, -1]
    assert unpack(packer, "floats").tobytes() == np.array([np.nan, -0.0, 1e308]).tobytes()


def test_nanoseconds_come_back_from_cycles_and_what_is_stored_beside_them() -> None:
    rng = np.random.default_rng(0)
    starts = np.cumsum(rng.integers(0, 5000, 300))
    spans = [
        Span("a", int(s), int(d), cycles=int(c))
        for s, d, c in zip(starts, rng.integers(0, 900, 300), rng.integers(0, 9000, 300), strict=True)
    ]
    trace = make_trace(spans)
    packer = ColumnPacker()
    pack_spans(trace, packer, np.arange(1))
    rate = float(unpack(packer, "track.rate")[0])
    ns, got = int(unpack(packer, "track.ns")[0]), []
    for step, drift in zip(unpack(packer, "cycle"), unpack(packer, "ns"), strict=True):
        ns += int(np.floor(step * rate + 0.5)) + drift
        got.append(ns)
    assert got == trace.numpy("start_ns").tolist()
    lasted = [
        int(np.floor(c * rate + 0.5)) + r for c, r in zip(unpack(packer, "cycles"), unpack(packer, "dur"), strict=True)
    ]
    assert lasted == trace.numpy("dur_ns").tolist()


def test_the_policy_names_exactly_the_inline_scripts_and_styles() -> None:
    text = report([sample()])
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text).group(1).replace("&#39;", "'")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    scripts = re.findall(r'<script(?: type="module")?>(.*?)</script>', text, re.DOTALL)
    styles = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert len(scripts) == 2
    for directive, parts in (("script-src", scripts), ("style-src", styles)):
        given = re.search(rf"{directive} ([^;]+);", policy).group(1).split()
        assert given == [f"'sha256-{base64.b64encode(hashlib.sha256(p.encode()).digest()).decode()}'" for p in parts]
    assert not re.search(r'<[^>]+\s(src|href)="(?!#)', text), "nothing is loaded"
    assert not re.search(r"<[^>!]+\sstyle=", text.split("<body>")[1].split("<script")[0]), (
        "the policy forbids style attributes"
    )


def test_names_never_become_markup() -> None:
    trace = make_trace([Span(HOSTILE, 0, 10, kernel=HOSTILE), Span(HOSTILE + "2", 20, 10, kernel=HOSTILE)])
    text = report([trace, trace], ReportOptions(labels=[HOSTILE, HOSTILE]))
    assert "<img" not in text
    document = re.search(r'<script type="application/json" id="report">(.*?)</script>', text, re.DOTALL).group(1)
    assert [region["name"] for region in json.loads(document)["regions"]] == [HOSTILE, HOSTILE + "2"]


def test_a_heading_says_that_it_leaves_kernels_out_and_that_their_grids_differ() -> None:
    trace = make_trace([Span("a", 10**6 * n, 9, launch=n, kernel=f"k{n}") for n in range(4)])
    launches = tuple(replace(info, grid=(1 + info.launch, 1, 1)) for info in trace.meta.launches)
    trace.meta = replace(trace.meta, launches=launches)
    (kernels,) = (fact for fact in summary(trace) if fact.name == "4 kernels")
    assert kernels.text == "k0, k1, k2, …"
    assert kernels.more == "several grids or blocks; 4 launches"
    assert "k0, k1, k2, …" in trace_html(trace)
    assert "k0, k1, k2, …" in re.search(r"<title>(.*?)</title>", report([trace]))[1]


@pytest.mark.parametrize(
    "trace",
    [
        Trace(empty_table()),
        make_trace([Span("i", 5, kind="instant"), Span("v", 7, kind="value", value=3.5)]),
        make_trace([Span("zero", 5, 0)]),
        make_trace([Span("open", 0, 100, open=True)]),
        make_trace([Span("a", 0, 100, depth=0), Span("b", 50, 100, depth=1), Span("c", 60, 10, depth=1)]),
        make_trace([Span(f"region {i}", i * 10, 9, warp=i % 4) for i in range(300)]),
        make_trace([Span("a", 10**6 * n, 9, launch=n, rank=r, kernel=f"k{n}") for n in range(3) for r in range(2)]),
        make_trace([Span("long", 0, 5 * 10**12, cycles=9 * 10**12)]),
    ],
    ids=["empty", "no spans", "zero length", "open", "asynchronous", "many regions", "ranks and launches", "hours"],
)
def test_unusual_traces_make_a_report(trace: Trace) -> None:
    text = report([trace])
    assert text.count("<section") >= 4
    assert len(report([trace, sample()])) > len(text) / 2


def test_a_region_that_never_ends_makes_a_report_however_often_it_begins() -> None:
    begins = (1 << 15) + 5
    writer = TrackWriter(begins)
    writer.start(0, 0)
    for number in range(begins):
        writer.record(Kind.BEGIN, 1, number + 1)
    writer.exit(begins + 1, begins + 1)
    launch = Launch("k", (1, 1, 1), (32, 1, 1), {1: "loop"}, begins, writer.to_bytes())
    assert "<section" in report([decode(Capture([launch]))])


def test_large_traces_are_thinned_by_whole_blocks_and_the_page_says_so() -> None:
    trace = make_trace([Span("a", 10 * i, 9, block=b, sm=b % 10) for b in range(40) for i in range(25)])
    text = report([trace], ReportOptions(limit=300))
    document = json.loads(re.search(r'id="report">(.*?)</script>', text, re.DOTALL).group(1))
    info = document["traces"][0]
    assert (info["spans"], info["shown"]) == (1000, 250)
    assert "10 of 40 blocks" in info["sampling"]
    assert ">1,000</td>" in text, "statistics still cover everything"


def test_source_is_read_only_from_given_folders_and_only_source(tmp_path: Path) -> None:
    from warplens.analyse.line_times import line_times

    inside = tmp_path / "project"
    inside.mkdir()
    (inside / "gemm.py").write_text("".join(f"line {i} <b>\n" for i in range(1, 40)))
    (tmp_path / "secret.py").write_text("password\n" * 9)
    (inside / ".env").write_text("password\n" * 9)
    trace = make_trace([Span(name, 10 * i, 9) for i, name in enumerate(("a", "b", "c", "d"))])
    places = {"a": "gemm.py:20", "b": "../secret.py:3", "c": f"{tmp_path}/secret.py:2:7", "d": ".env:1"}
    trace = Trace(trace.spans, trace.meta.__class__(**{**vars(trace.meta), "locations": places}))
    files = {file.name: file for file in listing(line_times(trace), [inside])}
    assert [line.number for line in files["gemm.py"].lines] == list(range(16, 25))
    assert [line.number for line in files["gemm.py"].lines if line.timed] == [20]
    assert all(not files[name].found for name in files if name != "gemm.py")
    text = report([trace], ReportOptions(sources=[inside]))
    assert "line 20 &lt;b&gt;" in text
    assert "password" not in text


def test_modules_are_joined_in_the_order_of_their_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: set[str] = set()
    for entry in ("main.js", "live.js", "job.js"):
        joined = bundle.script(entry)
        order = re.findall(r"^// ---- (\S+)$", joined, re.MULTILINE)
        used.update(order)
        for name in order:
            for needed in re.findall(r'from "\./([\w.]+)"', bundle.read(name)):
                assert order.index(needed) < order.index(name)
        assert not re.search(r"^(import|export)\b", joined, re.MULTILINE)
        assert "</script" not in joined
    assert sorted(used) == sorted(path.name for path in bundle.ASSETS.glob("*.js")), "every module is used"
    monkeypatch.setattr(bundle, "ASSETS", tmp_path)
    (tmp_path / "x.js").write_text('import { a } from "./y.js";\n')
    (tmp_path / "y.js").write_text('import { b } from "./x.js";\n')
    with pytest.raises(WarplensError, match=r"x\.js: circular import"):
        bundle.script("x.js")


def test_the_command_writes_beside_the_trace_and_refuses_nonsense(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = str(sample().save(tmp_path / "t.warplens"))
    other = str(sample("store").save(tmp_path / "u.warplens"))
    assert main(["report", saved]) == 0
    assert "<!doctype html>" in (tmp_path / "t.html").read_text()
    assert main(["report", saved]) == 1
    assert "--force" in capsys.readouterr().err
    assert main(["report", saved, other, "-o", str(tmp_path / "two.html"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["spans"] == [6, 6]
    assert ">GONE<" in (tmp_path / "two.html").read_text()
    assert main(["report", saved, "-o", str(tmp_path / "t.pdf")]) == 2
    assert main(["report", saved, "--source", str(tmp_path / "nowhere"), "--force"]) == 2
    assert main(["report"]) == 2
    assert main(["export", saved, str(tmp_path / "e.html")]) == 0
    with pytest.raises(UsageError, match="3 were given"):
        report([sample()] * 3)


def test_the_payload_carries_who_released_whom() -> None:
    trace = run_pipeline(blocks=1, tiles=6, work=50).trace
    packer = ColumnPacker()
    pack_spans(trace, packer, np.arange(len(trace.regions)))
    known = [edge for edge in trace.edges.to_pylist() if edge["arrival_record"] >= 0]
    wait = np.cumsum(unpack(packer, "edge.wait"))
    assert wait.tolist() == [edge["wait"] for edge in known]
    assert (wait + unpack(packer, "edge.arrival")).tolist() == [edge["arrival_record"] for edge in known]
    assert unpack(packer, "edge.waited").tolist() == [int(edge["waited_ns"] > 0) for edge in known]
    records = np.flatnonzero(trace.numpy("released_by") != -1)
    assert np.cumsum(unpack(packer, "barrier_rows")).tolist() == records.tolist()


def test_shares_in_a_comparison_are_not_called_those_of_both_traces_together() -> None:
    one, two = (make_trace([Span("load", 0, dur)]) for dur in (100, 900))
    assert "closed spans; shares of 100 ns of warp time" in report([one])
    assert "closed spans; shares of each trace&#39;s warp time" in report([one, two])


def test_a_comparison_that_is_unsure_says_what_to_do() -> None:
    truth = ROOT / "tests" / "golden" / "truth"
    page = report([load(truth / f"one_stage.{name}.warplens") for name in ("broken", "repaired")])
    assert "UNSURE" in page
    assert "record more launches of both" in page
    assert "host wait" in page
    assert "copy-out" in page
    assert "finalize" not in page.partition("<script")[0]
