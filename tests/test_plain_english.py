"""Sentences that a review rewrote in plain English do not come back."""

from __future__ import annotations

import subprocess

import pytest

from tests.support.paths import ROOT

REWRITTEN = {
    "Of the plots.": "Image format of the plots [default: png].",
    "Of the intervals.": "Confidence level of the intervals [default: 0.95].",
    "alone: so many": "Record this many launches of each kernel.",
    "At least so many calls": "Minimum number of calls.",
    "One track for each of these": "Record one track per warp, warp group or block.",
    "Regions that only wait, besides": "Additional regions to treat as waits.",
    "Which compute roof of a trace": "Compute peak to compare with [default: fp16].",
    "Of its blocks per SM, what": "Minimum fraction of blocks per SM that a marked kernel must keep.",
    "profiler beside:": "Also run PyTorch's profiler:",
    "Verdicts; exit 3": "Compare two result files; exit 3 on a regression.",
    "is not there for CUDA kernels": "is not supported for CUDA kernels",
    "common troubles": "common problems",
    "numerical trouble": "numerical problem",
    "for want of": "because there were too few",
    "for something that no mark shows": "all of it in code that is not marked",
    "(another warp in each block": "(a different warp in each block",
    "what profiling itself cost": "Profiling overhead was not measured; findings are not filtered for it.",
    "nothing was withheld": "findings are not filtered",
    "placed within {": "clock alignment error: 8 ns median (256 anchors, 16 SMs, 8 clock domains)",
    "crossed qk.p50": "FAIL qk.p50",
    '"without inner"': "exclusive",
    "how its durations are spread": "distribution",
    "the same to the bit": "results are bit-identical",
    "finalize {": "copy-out 4.04 ms",
    "1 launches": "1 launch",
    "[default: (2)": "[default: 2]",
    "is no news": "Ignore connections that the browser closes early.",
    "takes the wrapper away": "Return a function that removes the wrapper.",
    '"""More:': "a sentence",
    '"""Another:': "a sentence",
}
PLACES = ("src", "docs", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples", "benchmarks")
_KINDS = (".py", ".md", ".h", ".cuh", ".cu", ".c", ".js", ".html")


def pages() -> dict[str, str]:
    """What a person reads, in one line per file: a sentence may continue on the next line."""
    listed = subprocess.run(["git", "ls-files", *PLACES], cwd=ROOT, capture_output=True, text=True).stdout.split()
    if not listed:  # not a checkout
        listed = [str(p.relative_to(ROOT)) for place in PLACES for p in [ROOT / place, *(ROOT / place).rglob("*")]]
    files = [ROOT / name for name in listed if name.endswith(_KINDS) and "/vendor/" not in name]
    return {str(file.relative_to(ROOT)): " ".join(file.read_text().split()) for file in files if file.is_file()}


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return pages()


@pytest.mark.parametrize("sentence", REWRITTEN)
def test_sentence_stays_rewritten(texts: dict[str, str], sentence: str) -> None:
    assert len(texts) > 300
    found = [name for name, text in texts.items() if sentence in text]
    assert found == [], f"write instead: {REWRITTEN[sentence]}"
