"""The folder of a job: each rank takes its part once, and a new run starts anew."""

from __future__ import annotations

from pathlib import Path

from warplens.trace.io import rank_part
from warplens.trace.rank_folder import claim_rank, ranks_in, remove_ranks


def test_a_rank_is_taken_once(tmp_path: Path) -> None:
    folder = tmp_path / "run.warplens"
    assert ranks_in(folder) == []
    claim = claim_rank(folder, 3)
    assert claim is not None
    assert claim_rank(folder, 3) is None, "it runs"
    claim.unlink()
    rank_part(folder, 3).write_bytes(b"PAR1")
    assert claim_rank(folder, 3) is None, "it has ended"
    assert claim_rank(folder, 3, force=True) is not None
    assert claim_rank(folder, 0) is not None
    assert ranks_in(folder) == [0, 3]


def test_parts_of_a_run_before_are_removed_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "run.warplens"
    for rank in (0, 1):
        claim_rank(folder, rank)
        rank_part(folder, rank).write_bytes(b"PAR1")
    (folder / "rank=0" / ".part-0.parquet.abcd1234.part").write_bytes(b"of a killed rank")
    (folder / "rank=1" / "notes.txt").write_text("mine")
    remove_ranks(folder)
    assert [path.name for path in folder.rglob("*")] == ["rank=1", "notes.txt"]
    (folder / "rank=1" / "notes.txt").unlink()
    remove_ranks(folder)
    assert not folder.exists()
    remove_ranks(folder)
