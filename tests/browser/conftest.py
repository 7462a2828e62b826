"""One browser of each kind for all tests of the report; without one its tests are skipped, and say what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("chromium", "firefox")
DEVTOOLS = "devtools"
"""Marks tests that use what only Chromium's DevTools protocol has: touch, printing, processor time."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "browser" in metafunc.fixturenames:
        only = metafunc.definition.get_closest_marker(DEVTOOLS) is not None
        metafunc.parametrize("browser", BROWSERS[:1] if only else BROWSERS, indirect=True, scope="session")


@pytest.fixture(scope="session")
def browser(request: pytest.FixtureRequest) -> Iterator[Any]:
    pytest.importorskip("websocket", reason="websocket-client is not installed (pip install websocket-client)")
    from tests.support import chromium, firefox

    if request.param == "firefox":
        executable, kind = firefox.find_firefox(), firefox.Firefox
        if executable is None:
            pytest.skip("no firefox found (apt-get install firefox-esr, or set FIREFOX to the browser)")
    else:
        executable, kind = chromium.find_chromium(), chromium.Chromium
        if executable is None:
            pytest.skip("no chromium found (apt-get install chromium, or set CHROMIUM to the browser)")
    with kind(executable) as opened:
        yield opened


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Write a report of traces and open it from disk; at the end nothing may have complained or been fetched."""
    from warplens.view.html import ReportOptions, save

    pages: list[tuple[Any, str]] = []

    def open_report(
        *traces: Any,
        width: int = 1500,
        height: int = 950,
        options: ReportOptions | None = None,
        address: str = "",
        scroll: bool = True,
    ) -> Any:
        path = save(traces, tmp_path / f"report{len(pages)}.html", options)
        page = browser.open(path.as_uri() + address, width=width, height=height)
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
        # A browser may load its own icons from data addresses; files are no requests to Firefox.
        fetched = {address for address in page.requests if not address.startswith("data:")}
        assert fetched <= {url}
        page.close()
