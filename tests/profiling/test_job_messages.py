"""A message that several ranks of a job would print is printed by one of them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from warplens.profiling.job_messages import JobMessages

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs abstract sockets")


def test_the_first_rank_prints_it(tmp_path: Path) -> None:
    first, second, other_job = (
        JobMessages(tmp_path / "run"),
        JobMessages(tmp_path / "run"),
        JobMessages(tmp_path / "other"),
    )
    try:
        assert first.is_first("kernel: runs unmarked")
        assert not second.is_first("kernel: runs unmarked")
        assert second.is_first("kernel: another note")
        assert other_job.is_first("kernel: runs unmarked")
        assert first.is_first("kernel: runs unmarked"), "it is still the one that prints it"
        first.close()
        assert second.is_first("kernel: runs unmarked")
    finally:
        for messages in (first, second, other_job):
            messages.close()


def test_a_name_is_not_kept_open_by_other_programs(tmp_path: Path) -> None:
    messages = JobMessages(tmp_path)
    try:
        assert messages.is_first("text")
        (holder,) = messages._held.values()
        assert not os.get_inheritable(holder.fileno())
    finally:
        messages.close()
