"""Of the ranks of a job, one says what all would."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from warplens.profiling.job_voice import JobVoice

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs abstract sockets")


def test_the_first_rank_says_it(tmp_path: Path) -> None:
    first, second, other_job = JobVoice(tmp_path / "run"), JobVoice(tmp_path / "run"), JobVoice(tmp_path / "other")
    try:
        assert first.is_first("kernel: runs unmarked")
        assert not second.is_first("kernel: runs unmarked")
        assert second.is_first("kernel: another note")
        assert other_job.is_first("kernel: runs unmarked")
        assert first.is_first("kernel: runs unmarked"), "it is still the one that says it"
        first.close()
        assert second.is_first("kernel: runs unmarked")
    finally:
        for voice in (first, second, other_job):
            voice.close()


def test_a_name_is_not_kept_open_by_other_programs(tmp_path: Path) -> None:
    voice = JobVoice(tmp_path)
    try:
        assert voice.is_first("text")
        (holder,) = voice._held.values()
        assert not os.get_inheritable(holder.fileno())
    finally:
        voice.close()
