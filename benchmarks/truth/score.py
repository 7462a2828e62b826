"""Score the findings on recorded pairs: is the first one the cause, and does its interval hold the measured gain?"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import warplens as wl
from benchmarks.truth.accepted import ACCEPTED, HARMLESS, NO_PAIR, SMALL
from benchmarks.truth.pair import BROKEN, REPAIRED, Pair
from benchmarks.truth.sets import EVERY, SETS
from warplens.analyse.findings import findings
from warplens.trace.model import Trace

BARS = {"broken": 0.9, "repaired": 1.0, "gain": 0.8}


@dataclass(frozen=True)
class Row:
    """One trace: what the first finding says and whether it is right. `measured` is the gain of the repair."""

    pair: Pair
    version: str
    kind: str
    region: str
    what: str
    low: float
    high: float
    right: bool
    measured: float | None = None

    @property
    def broken(self) -> bool:
        """Whether there is something to repair: the repair gained something."""
        return self.version == BROKEN and (self.measured is None or self.measured >= NO_PAIR)

    @property
    def gain_inside(self) -> bool | None:
        """Whether the measured gain lies in the stated interval; None where there is none to compare."""
        if self.measured is None or not self.right or not self.broken:
            return None
        return self.low <= self.measured <= self.high


def interval(finding: Any) -> tuple[float, float]:
    """The least and the largest gain that a finding states."""
    low, high = (float(getattr(finding.gain, end, finding.gain)) for end in ("low", "high"))
    return low, high


def first_of(trace: Trace) -> Any:
    """The first finding that is not withheld, or None."""
    return next((one for one in findings(trace) if not one.withheld), None)


def row_of(pair: Pair, version: str, trace: Trace, measured: float | None) -> Row:
    first = first_of(trace)
    if first is None:
        return Row(pair, version, "", "", "no finding", 0.0, 0.0, version == REPAIRED, measured)
    low, high = interval(first)
    row = Row(pair, version, first.kind, first.region, first.what, low, high, False, measured)
    causes = {pair.cause} if version == BROKEN or not pair.change else set(pair.remains)
    named = first.kind in {kind for cause in causes for kind in ACCEPTED[cause]}
    if row.broken:
        right = named and (not pair.regions or not first.region or first.region in pair.regions)
    else:
        right = named or first.kind in HARMLESS or low <= SMALL
    return replace(row, right=right)


def score(folder: Path, suffix: str = "") -> tuple[list[Row], dict[str, Any]]:
    """Return a row for each trace of the folder, and the document of the run.

    `suffix` is ".auto" for the traces with automatic marks, whose regions have other names.
    """
    document = json.loads((folder / "truth.json").read_text())
    rows = []
    for pair in EVERY:
        found = document["pairs"].get(pair.name, {})
        for version in pair.versions:
            path = folder / f"{pair.name}.{version}{suffix}.warplens"
            if path.exists():
                gain = found.get("gain") if version == BROKEN else None
                known = replace(pair, regions=()) if suffix else pair
                rows.append(row_of(known, version, wl.load(path), gain))
    return rows, document


def shares(rows: list[Row]) -> dict[str, tuple[int, int]]:
    """How many are right, of how many, for each bar."""
    broken = [row for row in rows if row.broken]
    repaired = [row for row in rows if not row.broken]
    gains = [row.gain_inside for row in broken if row.gain_inside is not None]
    return {
        "broken": (sum(row.right for row in broken), len(broken)),
        "repaired": (sum(row.right for row in repaired), len(repaired)),
        "gain": (sum(gains), len(gains)),
    }


def table(rows: list[Row]) -> str:
    lines = [
        "| pair | language | version | cause | first finding | region | stated gain | measured gain | |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        stated = f"{row.low:.0%} to {row.high:.0%}" if row.kind else ""
        measured = f"{row.measured:.1%}" if row.measured is not None else ""
        outside = ", gain outside" if row.gain_inside is False else ""
        verdict = ("right" if row.right else "WRONG") + outside
        cells = (row.pair.name, row.pair.language, row.version, row.pair.cause if row.version == BROKEN else "",
                 row.kind or "none", row.region, stated, measured, verdict)  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


_SAID = {
    "broken": "first findings of broken kernels that name the cause",
    "repaired": "kernels with nothing (left) to repair without a false first finding",
    "gain": "measured gains inside the stated interval, where the cause is right",
}


def bars(rows: list[Row]) -> list[str]:
    """The rows of a table with each bar and how much of it is reached."""
    lines = ["| bar | reached | |", "|---|---|---|"]
    for name, (right, count) in shares(rows).items():
        reached = right / count if count else 0.0
        verdict = "met" if reached >= BARS[name] else "MISSED"
        lines.append(f"| {_SAID[name]}: at least {BARS[name]:.0%} | {right} of {count} ({reached:.0%}) | {verdict} |")
    lines.append(f"| width of the stated intervals, median | {width(rows):.0%} of the kernel's time | |")
    return lines


@dataclass(frozen=True)
class Scored:
    """What a folder holds; `automatic` are the rows with automatic marks."""

    rows: list[Row]
    automatic: list[Row]
    document: dict[str, Any]

    @property
    def title(self) -> str:
        name = next((name for name, pairs in SETS.items() if self.rows and self.rows[0].pair in pairs), "first")
        return f"The {name} set"


_PREFACE = Path(__file__).with_name("preface.md")
"""What the page says before its tables: what is blind, what was tuned, and what the recordings lack."""


def page(folders: list[Scored]) -> str:
    """The Markdown page of the results."""
    context = folders[0].document["context"]
    versions = ", ".join(f"{name} {version}" for name, version in context["versions"].items())
    lines = [
        "# Answers: the findings against kernels with known causes",
        "",
        "Each pair is one kernel, broken for one known reason and repaired; the sources are in `benchmarks/truth`.",
        "The gain is measured on the plain kernels (CUDA events, the versions in turn, median of 15 samples) and",
        "compared with what the first finding about the broken version states. A first finding about a version with",
        "nothing to repair is right if it names a cause that is left, states no gain, or an interval that begins",
        f"at {SMALL:.0%} or less. A repair that gains less than {NO_PAIR:.0%} was none, so that its broken version",
        "counts among those with nothing to repair. Misses are listed like the rest.",
        "",
        f"{context['device']}; Python {context['python']}, {versions}; recorded on {context['date']} with",
        "`python -m benchmarks.truth --set N --out FOLDER`, scored with `python -m benchmarks.truth --score FOLDER`.",
        "",
        *_PREFACE.read_text().splitlines(),
    ]
    for one in folders:
        lines += ["", f"## {one.title}", "", *bars(one.rows), "", table(one.rows)]
        if one.automatic:
            lines += ["", "The same kernels with automatic marks:", "", *bars(one.automatic), "", table(one.automatic)]
        lines += ["", "Times of the plain kernels:", "", times(one.document)]
    return "\n".join(lines) + "\n"


def width(rows: list[Row]) -> float:
    """The median width of the intervals that first findings about broken versions state."""
    widths = sorted(row.high - row.low for row in rows if row.broken and row.kind)
    return widths[len(widths) // 2] if widths else 0.0


def times(document: dict[str, Any]) -> str:
    lines = ["| pair | broken, µs (p10 to p90) | repaired, µs (p10 to p90) | gain | repair |", "|---|---|---|---|---|"]
    for name, found in document["pairs"].items():
        cells = []
        for version in (BROKEN, REPAIRED):
            one = found.get("times", {}).get(version)
            cells.append(f"{one['median_us']:.1f} ({one['p10_us']:.1f} to {one['p90_us']:.1f})" if one else "")
        gain = f"{found['gain']:.1%}" if "gain" in found else ""
        lines.append(f"| {name} | {cells[0]} | {cells[1]} | {gain} | {found.get('change', '')} |")
    return "\n".join(lines)


def main(folders: list[Path], target: Path | None) -> int:
    scored = [Scored(score(folder)[0], *score(folder, ".auto")) for folder in folders]
    for one in scored:
        for title, rows in (("hand-written marks", one.rows), ("automatic marks", one.automatic)):
            print(f"{one.title}, {title}", table(rows), *bars(rows), sep="\n")
    if target is not None:
        target.write_text(page(scored))
    return 0
