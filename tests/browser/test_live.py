"""The live page in a real browser, against a capture that fills while it is looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.hanging_kernel import HangingDriver
from tests.support.persistent_kernel import running_kernel
from warplens.driver import libcuda
from warplens.profiling.profile import Profile

READY = "window.warplensLive && warplensLive.updates > 1 && warplensLive.timeline.trace.count > 20"
Program = Callable[..., tuple[Any, Profile]]


@pytest.fixture
def program(browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    """Starts a program whose kernel runs until the test ends, and opens its page; nothing may have complained then, or
    been fetched from anywhere else."""
    from warplens.calibrate import record_cost

    driver = HangingDriver()
    monkeypatch.setattr(libcuda, "driver", lambda: driver)
    monkeypatch.setattr(record_cost, "constants", dict)
    pages: list[tuple[Any, str]] = []
    with ExitStack() as stack:

        def start(**shape: Any) -> tuple[Any, Profile]:
            profile = stack.enter_context(
                Profile(tmp_path / "t.warplens", live=True, full="ring", records_per_warp=2048)
            )
            stack.enter_context(running_kernel(driver, full="ring", **shape))
            assert profile.live is not None
            page = browser.open(profile.live.url, width=1400, height=1100)
            pages.append((page, profile.live.url))
            page.wait_for(READY)
            return page, profile

        yield start
    for page, url in pages:
        assert page.errors == []
        assert all(address.startswith((url, "data:")) for address in page.requests)
        page.close()


def text(page: Any, selector: str) -> str:
    return str(page.run(f"document.querySelector('{selector}').textContent"))


def test_the_timeline_of_a_persistent_kernel_grows_while_it_runs(program: Program) -> None:
    page, profile = program(blocks=4, stuck=2)
    assert "megakernel" in text(page, "#kernels")
    assert text(page, ".kernel")
    before = page.run("[warplensLive.newest, warplensLive.timeline.trace.count, warplensLive.state.records]")
    page.wait_for(f"warplensLive.newest > {before[0]} + 1e9")
    after = page.run("[warplensLive.newest, warplensLive.timeline.trace.count, warplensLive.state.records]")
    assert after[1] > before[1]
    assert after[2] > before[2]
    page.wait_for("warplensLive.age < 1")
    page.wait_for("document.getElementById('state').dataset.state === 'live'")
    rows = page.run("[...document.querySelectorAll('#regions tr')].map((row) => row.cells[0].textContent)")
    assert {"loadmegakernel.py:31", "computemegakernel.py:40"} <= set(rows)
    groups = "[...document.querySelectorAll('#where ul li')].map((item) => item.textContent)"
    page.wait_for(f"{groups}.some((line) => line.includes('block 2: in compute'))")  # it stands out
    assert page.run("warplensLive.timeline.end >= warplensLive.newest"), "it follows the newest records"
    assert profile.live is not None


def test_looking_closer_ends_following_and_what_is_open_stays_open(program: Program) -> None:
    page, _ = program(blocks=8)
    page.run("warplensLive.timeline.tree.openAll(false)")
    page.run("warplensLive.timeline.toggle(warplensLive.timeline.tree.roots[3], true)")
    page.run("warplensLive.timeline.zoom(0.5)")
    window = page.run("[warplensLive.timeline.begin, warplensLive.timeline.end]")
    page.run("(warplensLive.seen = warplensLive.updates)")
    page.wait_for("warplensLive.updates > warplensLive.seen + 1")
    assert page.run("[warplensLive.timeline.begin, warplensLive.timeline.end]") == window
    assert page.run("warplensLive.followButton.getAttribute('aria-pressed')") == "false"
    assert page.run("warplensLive.timeline.tree.roots.map((sm) => sm.open)") == [at == 3 for at in range(8)]
    page.run("warplensLive.followButton.click()")
    assert page.run("warplensLive.timeline.end >= warplensLive.newest")
    page.run("document.getElementById('theme').click()")
    page.frame()
    assert page.run("document.documentElement.dataset.theme") == "dark"
    assert page.run("warplensLive.timeline.theme.plot") == "#101419"


def test_the_page_says_that_the_program_has_ended_and_names_are_only_text(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from warplens.calibrate import record_cost

    driver = HangingDriver()
    monkeypatch.setattr(libcuda, "driver", lambda: driver)
    monkeypatch.setattr(record_cost, "constants", dict)
    name = "<img src=x onerror=alert(1)>`x`"
    with Profile(tmp_path / "t.warplens", live=True, full="ring", records_per_warp=2048) as profile:
        with running_kernel(driver, full="ring", name=name):
            assert profile.live is not None
            page = browser.open(profile.live.url)
            page.wait_for(READY)
            assert name in text(page, "#kernels")
            assert page.run("document.images.length") == 0
    page.wait_for("document.getElementById('state').textContent.includes('has ended')", 5)
    assert page.run("document.getElementById('state').dataset.state") == "ended"
    page.close()
