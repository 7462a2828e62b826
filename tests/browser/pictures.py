"""Pictures of the report for the documentation: python -m tests.browser.pictures docs/images [TRACE]"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.support.chromium import Chromium, Page, find_chromium
from tests.support.hanging_kernel import HangingDriver
from tests.support.live_ranks import LiveRank, collective, kernel
from tests.support.persistent_kernel import PersistentKernel
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
        page = browser.open(report.as_uri(), width=1400, height=900)
        page.wait_for("document.documentElement && document.documentElement.dataset.ready")
        settle(page)
        page.screenshot(folder / "report-timeline.png")
        page.run("[...document.querySelectorAll('.finding-list > .findings a.show')].at(-1).click()")
        settle(page)
        page.run("document.querySelector('li.chosen').scrollIntoView({block: 'nearest'})")
        settle(page)
        page.screenshot(folder / "report-finding.png")
        page.run("warplens.panels[0].clear()")
        settle(page)
        page.run("document.getElementById('theme').click()")
        select = """(({timelines: [timeline], panels: [panel]}) => {
          const length = timeline.end - timeline.begin;
          timeline.pick(timeline.layout.rows[0].node, false, true);
          panel.selectTime(timeline.begin + length * 0.3, timeline.begin + length * 0.6);
        })(warplens)"""
        page.run(select)
        settle(page)
        page.screenshot(folder / "report-dark.png")
        page.run("(document.getElementById('theme').click(), warplens.panels[0].clear())")
        at(page, "flame")
        page.screenshot(folder / "report-statistics.png")
        at(page, "heat")
        page.screenshot(folder / "report-heat.png")
        if page.errors:
            sys.exit(f"the page complained: {page.errors}")
        live_picture(folder, browser)
        job_picture(folder, browser)
    for picture in sorted([*folder.glob("report-*.png"), *folder.glob("live*.png")]):
        print(f"{picture} {picture.stat().st_size:,} bytes")


def live_picture(folder: Path, browser: Chromium) -> None:
    """The live page of a made-up kernel that has run for twelve seconds, and of which one block is stuck."""
    from warplens.driver import libcuda
    from warplens.profiling.live_feed import LiveFeed
    from warplens.profiling.profile import Profile
    from warplens.view.live_page import ProgramSite
    from warplens.view.live_server import LiveServer

    driver = HangingDriver()
    libcuda.driver = lambda: driver  # type: ignore[assignment]
    with Profile(watch=600, full="ring", records_per_warp=2048) as profile:
        begin, feed = time.time_ns(), LiveFeed(profile, "serve.py")
        shape = {"blocks": 12, "warps": 4, "full": "ring", "item_ns": 40_000_000, "stuck": 7, "uneven": 0.03}
        kernel = PersistentKernel(driver, **shape).start(begin)
        for now in range(begin, begin + 12 * 10**9, 4 * 10**8):
            time.sleep(max(now - time.time_ns(), 0) / 1e9)
            kernel.advance(now)
            feed.look(lambda now=now: now)
        server = LiveServer(ProgramSite(feed, "serve.py"))
        server.start()
        page = browser.open(server.url, width=1400, height=1100)
        page.wait_for("window.warplensLive && warplensLive.updates > 0")
        choose = "[...document.querySelectorAll('select')].find((each) => each.ariaLabel === 'Window')"
        page.run(f"({choose}.value = '1000000000', {choose}.dispatchEvent(new Event('change')))")
        feed.look(lambda: begin + 116 * 10**8)
        page.wait_for("warplensLive.updates > 1")
        settle(page)
        page.screenshot(folder / "live.png")
        driver.released.set()
        server.stop()
        if page.errors:
            sys.exit(f"the live page complained: {page.errors}")


def job_picture(folder: Path, browser: Chromium) -> None:
    """The live page of a made-up job of eight ranks, which wait for one that is stuck."""
    from warplens.view.live_job_feed import JobFeed
    from warplens.view.live_job_page import JobSite
    from warplens.view.live_server import LiveServer

    with tempfile.TemporaryDirectory() as name:
        job = Path(name) / "train.warplens"
        for rank in range(8):
            late = rank == 3
            runs = kernel("_attn_fwd", 12.4 if late else None, 1234)
            entered = collective(811, 14.1, inside=False) if late else collective(812, 11.6 + rank / 100)
            last = "_attn_fwd", 12.4 if late else 11.8
            LiveRank(job, rank, 8, kernels=[runs], last_launch=last, collectives=[entered])
        feed = JobFeed(job)
        feed.start()
        feed.wait(0)
        server = LiveServer(JobSite(feed))
        server.start()
        page = browser.open(server.url, width=1400, height=480)
        page.wait_for("window.warplensJob && warplensJob.updates > 1")
        settle(page)
        page.screenshot(folder / "live-job.png")
        server.stop()
        feed.stop()
        if page.errors:
            sys.exit(f"the page of the job complained: {page.errors}")


def at(page: Page, section: str) -> None:
    page.run(f"document.getElementById('{section}').scrollIntoView({{behavior: 'instant'}})")
    settle(page)


def settle(page: Page) -> None:
    time.sleep(0.5)
    page.frame()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
