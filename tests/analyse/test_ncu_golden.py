"""Pages that Nsight Compute wrote of a real kernel (`warplens run --ncu` on an H200), read back."""

from __future__ import annotations

from pathlib import Path

import pytest

from warplens.runner.nsight_compute import ncu_command, read_ncu

PAGES = Path(__file__).parent.parent / "golden" / "ncu"


def test_the_raw_page_holds_everything_that_is_asked_of_it() -> None:
    (kernel,) = read_ncu(PAGES / "attention_raw.csv")
    assert (kernel.kernel, kernel.launches, kernel.bound, kernel.limiter) == (
        "causal_attention",
        1,
        "latency",
        "registers",
    )
    assert (kernel.duration_ns, kernel.dram_bytes) == (11616, 811776)
    assert kernel.theoretical == 0.125
    assert kernel.achieved == pytest.approx(0.0623565, abs=1e-6)
    assert next(iter(kernel.stalls)) == "wait"
    # 0.339972 of the page's 1.785018 cycles per instruction in which a warp was stalled.
    assert kernel.stalls["barrier"] == pytest.approx(0.339972 / 1.785018, abs=1e-5)
    assert sum(kernel.stalls.values()) == pytest.approx(1)


def test_the_details_page_agrees_to_the_digits_it_shows() -> None:
    (raw,), (details,) = read_ncu(PAGES / "attention_raw.csv"), read_ncu(PAGES / "attention_details.csv")
    for name in ("compute", "memory", "dram", "achieved", "theoretical"):
        assert getattr(details, name) == pytest.approx(getattr(raw, name), abs=5.1e-5), name
    assert details.duration_ns == pytest.approx(raw.duration_ns, abs=5.1)
    assert (details.limiter, details.bound) == (raw.limiter, raw.bound)


def test_the_kernels_and_launches_asked_for_are_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ncu").write_text("#!/bin/sh\n")
    (tmp_path / "ncu").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    words = ncu_command(["python", "t.py"], "t.ncu-rep", kernels="attn.*", launches=3)
    assert words[words.index("--kernel-name") + 1] == "regex:attn.*"
    assert words[words.index("--launch-count") + 1] == "3"
    assert words[-2:] == ["python", "t.py"]
    assert "--launch-count" not in ncu_command(["t.py"], "t.ncu-rep")
