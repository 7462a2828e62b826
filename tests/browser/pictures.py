"""Pictures of the report for the documentation: python -m tests.browser.pictures docs/images [TRACE]"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.support.chromium import Chromium, Page, find_chromium
from warplens.decode.trace_loader import load
from warplens.view.html import ReportOptions, save


def main(folder: Path, trace_path: str | None) -> None:
    executable = find_chromium()
    if executable is None:
        sys.exit("no chromium found: apt-get install chromium")
    if trace_path is None:
        from tests.support.gemm_scene import gemm

        trace, label = gemm(), "made-up.warplens"
    else:
        trace, label = load(trace_path), Path(trace_path).name
    with tempfile.TemporaryDirectory() as scratch, Chromium(executable) as browser:
        report = save([trace], Path(scratch) / "report.html", ReportOptions(labels=[label]))
        page = browser.open(report.as_uri(), width=1360, height=860)
        page.wait_for("document.documentElement && document.documentElement.dataset.ready")
        settle(page)
        page.screenshot(folder / "report-summary.png")
        at(page, "timeline")
        page.screenshot(folder / "report-timeline.png")
        page.run("document.getElementById('theme').click()")
        page.run("warplens.timelines[0].zoom(1 / 3, warplens.timelines[0].begin)")
        first = "warplens.timelines[0].layout.rows.filter((row) => row.node.kind === 'warp')[1].tracks[0]"
        page.run(f"warplens.panels[0].choose(warplens.timelines[0].trace.tracks.first[{first}] + 4)")
        settle(page)
        page.screenshot(folder / "report-dark.png")
        page.run("document.getElementById('theme').click()")
        at(page, "statistics")
        page.screenshot(folder / "report-statistics.png")
        at(page, "heat")
        page.screenshot(folder / "report-heat.png")
        if page.errors:
            sys.exit(f"the page complained: {page.errors}")
    for picture in sorted(folder.glob("report-*.png")):
        print(f"{picture} {picture.stat().st_size:,} bytes")


def at(page: Page, section: str) -> None:
    page.run(f"document.getElementById('{section}').scrollIntoView({{behavior: 'instant'}})")
    settle(page)


def settle(page: Page) -> None:
    time.sleep(0.5)
    page.frame()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
