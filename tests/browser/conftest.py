"""One browser for all tests of the report; without one they are skipped, and say what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.support.chromium import Chromium, Page


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    pytest.importorskip("websocket", reason="websocket-client is not installed (pip install websocket-client)")
    from tests.support.chromium import Chromium, find_chromium

    executable = find_chromium()
    if executable is None:
        pytest.skip("no chromium found (apt-get install chromium, or set CHROMIUM to the browser)")
    with Chromium(executable) as browser:
        yield browser


@pytest.fixture
def show(chromium: Chromium, tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """Write a report of traces and open it from disk; at the end nothing may have complained or been fetched."""
    from warplens.view.html import ReportOptions, save

    pages: list[tuple[Page, str]] = []

    def open_report(
        *traces: Any,
        width: int = 1500,
        height: int = 950,
        options: ReportOptions | None = None,
        address: str = "",
        scroll: bool = True,
    ) -> Page:
        path = save(traces, tmp_path / f"report{len(pages)}.html", options)
        page = chromium.open(path.as_uri() + address, width=width, height=height)
        pages.append((page, path.as_uri()))
        page.wait_for("document.documentElement && document.documentElement.dataset.ready === 'true'")
        if scroll:
            page.run("document.getElementById('timeline').scrollIntoView({behavior: 'instant'})")
        page.frame()
        return page

    yield open_report
    for page, url in pages:
        page.frame()
        assert page.errors == []
        assert page.requests == [url]
        page.close()
