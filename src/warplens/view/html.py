"""The HTML report: one self-contained file that loads nothing and treats names as data."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from warplens.analyse.analysis import Answers
from warplens.analyse.histogram import histograms
from warplens.analyse.lifetimes import Lifetimes
from warplens.analyse.line_times import line_times
from warplens.analyse.region_counters import AttributedPages
from warplens.analyse.region_purity import cautions
from warplens.analyse.roles import warp_roles
from warplens.analyse.roofline import Roofline
from warplens.analyse.sampled_stalls import sampled_stalls
from warplens.analyse.statistics import Statistics
from warplens.analyse.timeline import ThinnedTrace, thinned
from warplens.errors import UsageError
from warplens.files import atomic_write, check_writable
from warplens.trace.model import Trace
from warplens.trace.schema import LaunchInfo
from warplens.version import __version__
from warplens.view import bundle, heat_maps, sections
from warplens.view.comparison import comparison
from warplens.view.finding_cards import FindingCards
from warplens.view.palette import colours, union
from warplens.view.payload import ColumnPacker, pack_spans, region_entry
from warplens.view.region_facts import region_facts
from warplens.view.roofline_chart import roofs
from warplens.view.source_listing import listing
from warplens.view.stall_chart import stall_bars
from warplens.wording import duration, first_of, integer, percent

LIMIT = 2_000_000
"""The default limit of spans in a report's timeline; statistics and heat maps always cover all spans."""


@dataclass(frozen=True)
class ReportOptions:
    """Options of a report. `limit` 0 keeps every span. `sources` are the folders to read source files from. `roofs` has
    one kernel per trace under its roofline, where FLOPs or bytes are known. `made` is the date to show. With
    `merge_variants`, all variants of a kernel share one row per region."""

    limit: int = LIMIT
    roofs: Sequence[Roofline] = ()
    sources: Sequence[Path] = ()
    labels: Sequence[str] = ()
    made: str = ""
    merge_variants: bool = False
    counters: Sequence[AttributedPages] = ()
    """Per trace: Nsight Compute's samples and counters of each region, besides samples that the trace carries."""


@dataclass
class _Part:
    """One trace of a report, and its payload."""

    trace: Trace
    shown: ThinnedTrace
    letter: str
    label: str
    stats: Statistics
    """One row per region."""
    table: Statistics
    """The statistics as the report shows them: kernels with several variants have rows for each."""
    packer: ColumnPacker = field(default_factory=ColumnPacker)


@dataclass(frozen=True)
class ReportPage:
    """A rendered report: its HTML, and the local files that it holds lines of."""

    text: str
    embedded: list[str]


def report(traces: Sequence[Trace], options: ReportOptions | None = None) -> str:
    """Render the report of one trace, or of two side by side, as HTML."""
    return render(traces, options).text


def render(traces: Sequence[Trace], options: ReportOptions | None = None) -> ReportPage:
    """Render a report, and list what it embeds."""
    if not 1 <= len(traces) <= 2:
        raise UsageError(f"a report shows one trace or compares two; {len(traces)} were given")
    chosen = options or ReportOptions()
    counters = [_counters(trace, chosen, at) for at, trace in enumerate(traces)]
    names = union(*(trace.regions for trace in traces))
    places = {name: at for at, name in enumerate(names)}
    palette = colours(len(names))
    parts = [_part(trace, at, chosen) for at, trace in enumerate(traces)]
    spread = histograms(*traces)
    answers = [Answers(trace, folders=chosen.sources) for trace in traces]
    tables, outlines = sections.paths(answers, places, palette)
    cards = [
        FindingCards(part.letter, each, part.shown.trace, places) for part, each in zip(parts, answers, strict=True)
    ]
    groups = [each.group() for each in cards]
    infos = [
        _info(part, at, places, outlines[at])
        | {"findings": cards[at].places, "region_facts": region_facts(answers[at], places, counters[at].regions)}
        for at, part in enumerate(parts)
    ]
    locations = {name: text for trace in traces for name, text in trace.meta.locations.items()}
    told = {name: text for trace in traces for name, text in cautions(trace).items()}
    document = {
        "regions": [region_entry(at, name, locations, told) for at, name in enumerate(names)],
        "histograms": _histograms(spread, parts, places),
        "traces": infos,
        "counters": [one.to_json() for one in counters if one.regions or one.notes],
    }
    listed = listing(
        [line for part in parts for line in line_times(part.trace)],
        chosen.sources,
        {name: known for trace in traces for name, known in trace.meta.source_hashes.items()},
    )
    context = {
        "title": " and ".join(dict.fromkeys(first_of(trace.kernels) or "empty trace" for trace in traces)),
        "version": __version__,
        "made": chosen.made,
        "summaries": [
            {
                "letter": part.letter,
                "file": part.label,
                "facts": sections.summary(part.trace),
                "coverage": sections.coverage(part.trace, part.shown),
                "warnings": sections.warnings(part.trace),
            }
            for part in parts
        ],
        "comparison": comparison(traces, [part.stats for part in parts], places, palette) if len(parts) > 1 else None,
        "statistics": {
            "note": f"closed spans; shares of {_whose_time(parts)} warp time",
            "tables": [
                {
                    "letter": part.letter,
                    "verified": any(row.purity == row.purity for row in part.table),
                    "rows": sections.statistics_rows(
                        part.table,
                        places,
                        palette,
                        {name: made for name, each in spread.items() if (made := each[at]) is not None},
                        part.trace.meta,
                    ),
                }
                for at, part in enumerate(parts)
            ],
        },
        "heat_note": heat_maps.note(parts[0].trace),
        "overlaps": sections.overlaps(answers),
        "paths": tables,
        "stalls": stall_bars(counters, [part.letter for part in parts]),
        "roofs": roofs(chosen.roofs, [part.letter for part in parts]),
        "sources": listed,
        "traces": [
            {
                "letter": part.letter,
                "label": part.label,
                "shown": info["shown"],
                "payload": info["payload"],
                "text": part.packer.text,
                "findings": group,
                "matrix": sections.warp_matrix(heat_maps.focus(part.trace)[0], [row.region for row in part.stats]),
            }
            for part, info, group in zip(parts, infos, groups, strict=True)
        ],
        "document": _json(document),
    }
    return ReportPage(_render(context), [str(file.path) for file in listed if file.path is not None])


def write(
    trace: Trace, path: Path, *, force: bool = True, annotate: bool | None = None, sources: Sequence[Path] | None = None
) -> None:
    """Write a `.html`; by default, source files are read from the working directory only."""
    save([trace], path, ReportOptions(sources=[Path.cwd()] if sources is None else sources), force=force)


def write_report(
    trace: Trace,
    path: str | os.PathLike[str],
    *,
    force: bool = False,
    limit: int | None = None,
    sources: Sequence[str | os.PathLike[str]] = (),
    merge_variants: bool = False,
) -> Path:
    """Write the report of one trace for `Trace.report`; the suffix must be that of a page."""
    target = check_writable(path, force=force)
    if target.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{target}: a report must be an .html file; Trace.export writes other formats")
    folders = [*map(Path, sources), Path.cwd()]
    kept = LIMIT if limit is None else limit
    return save([trace], target, ReportOptions(limit=kept, sources=folders, merge_variants=merge_variants), force=force)


def save(
    traces: Sequence[Trace], path: str | os.PathLike[str], options: ReportOptions | None = None, *, force: bool = True
) -> Path:
    """Render a report and write it."""
    return store(render(traces, options), path, force=force)


def store(page: ReportPage, path: str | os.PathLike[str], *, force: bool = True) -> Path:
    """Write a rendered report atomically."""
    with atomic_write(path, force=force) as out:
        out.write(page.text.encode())
    return Path(path)


def _render(context: dict[str, Any]) -> str:
    style = bundle.read("vendor/uPlot.css") + bundle.read("report.css")
    charts, script = bundle.read("vendor/uPlot.js"), bundle.script()
    environment = bundle.templates()
    environment.filters |= {
        "duration": duration,
        "percent": percent,
        "quoted": sections.quoted,
        "cycles": lambda value: "" if value is None else integer(value),
    }
    policy = bundle.content_security_policy([charts, script], [style])
    return environment.get_template("report.html.j2").render(
        context | {"policy": policy, "style": style, "charts": charts, "script": script}
    )


def _part(trace: Trace, at: int, options: ReportOptions) -> _Part:
    shown = thinned(trace, options.limit)
    label = options.labels[at] if at < len(options.labels) else "AB"[at]
    merged = trace.stats(merge_variants=True)
    table = merged if options.merge_variants else trace.stats(corrected=True)
    return _Part(trace, shown, "AB"[at], label, merged, table)


def _whose_time(parts: Sequence[_Part]) -> str:
    if any(part.table.heading for part in parts):
        return "each kernel's"
    return f"{duration(parts[0].stats.busy_ns)} of" if len(parts) == 1 else "each trace's"


def _info(part: _Part, at: int, places: dict[str, int], outline: list[Any]) -> dict[str, Any]:
    """The data of one trace for the page's script; also fills the payload."""
    trace, packer = part.shown.trace, part.packer
    codes = np.array([places[name] for name in trace.regions], np.int64)
    pack_spans(trace, packer, codes)
    roles = warp_roles(Lifetimes.of(trace))[0]
    order = [row.region for row in part.stats]
    used = [places[name] for name in order]
    entered = np.unique(part.trace.codes("region")[0]).tolist()
    used += [place for code in entered if (place := places[part.trace.regions[code]]) not in used]
    clock = part.trace.meta.clock
    info: dict[str, Any] = {
        "label": part.label,
        "payload": f"payload-{at}",
        "spans": len(part.trace),
        "shown": len(trace),
        "sampling": f"{part.shown.kept:,} of {part.shown.blocks:,} blocks; --limit 0 keeps all",
        "kernels": trace.kernels,
        "launches": [_launch(launch) for launch in trace.meta.launches],
        "clock": {**asdict(clock), "error_p99_ns": clock.error_p99_ns},
        "roles": [
            f"{role.name}: {', '.join(role.regions[:5])}{', …' if len(role.regions) > 5 else ''}" for role in roles
        ],
        "regions": used,
        "critical": outline,
        **heat_maps.pack_maps(part.trace, packer, places, order),
    }
    return info | {"columns": packer.manifest}


def _counters(trace: Trace, options: ReportOptions, at: int) -> AttributedPages:
    """What was measured of the regions of a trace: the samples in it, and the counters that were given."""
    return AttributedPages.joined([sampled_stalls(trace), *options.counters[at : at + 1]])


def _launch(info: LaunchInfo) -> dict[str, Any]:
    names = ("launch", "rank", "device", "kernel", "grid", "block", "begin_ns", "end_ns")
    return {name: getattr(info, name) for name in names}


def _histograms(spread: dict[str, Any], parts: Sequence[_Part], places: dict[str, int]) -> dict[int, Any]:
    made = {}
    for name, each in spread.items():
        first = next(one for one in each if one is not None)
        row = next(part.stats[name] for part, one in zip(parts, each, strict=True) if one is not None)
        made[places[name]] = {
            "edges": first.edges,
            "scale": first.scale,
            "counts": [None if one is None else one.counts for one in each],
            "percentiles": [("p50", row.p50), ("p95", row.p95), ("p99", row.p99)],
        }
    return made


def _json(document: Any) -> str:
    """JSON that is safe inside a script element: `<` is escaped, so that no name can end the element."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
