"""What the weaver counts in kernels of the truth set, against counts by hand from their sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cuda_compilers import needs_nvrtc
from warplens.analyse.code_counts import CodeCounts
from warplens.auto.ptx import mark_ptx
from warplens.auto.rules import Auto
from warplens.frontends.cuda import woven_build
from warplens.frontends.cuda.nvrtc import compile_ptx, cuda_includes
from warplens.weave.weaver import weave
from warplens.weave.weaving import SymbolBuffer

KERNELS = Path(__file__).parents[2] / "benchmarks" / "truth" / "kernels"


def counted(name: str, repaired: int, row: int = 0) -> dict[str, CodeCounts]:
    options = [f"-DREPAIRED={repaired}", *cuda_includes(), *woven_build.FLAGS]
    text = compile_ptx((KERNELS / f"{name}.cu").read_text(), f"{name}.cu", "sm_90a", options)
    named, woven = woven_build.names_in(text).regions, weave(text, buffer=SymbolBuffer())
    regions = {number: named.get(int(word[1:]), word) for number, word in woven.regions.items()}
    return {regions.get(int(at or 0), ""): CodeCounts.of(one, row) for at, one in woven.code[name].items()}


@needs_nvrtc
@pytest.mark.parametrize(
    ("name", "repaired", "region", "facts"),
    [
        # Four fields of 4 bytes in one sector of each lane's record; or four arrays.
        ("particle_energy", 0, "pick", {"loads": 4, "moved_bytes": 512, "wasted_bytes": 512, "fetch_bytes": 1024}),
        ("particle_energy", 1, "pick", {"loads": 4, "moved_bytes": 512, "wasted_bytes": 0, "load_waste": 1}),
        # A tile of 1,024 floats, which one thread of the block starts to copy.
        ("bulk_sums", 1, "next", {"copies": 1, "block_bytes": 4096, "moved_bytes": 0}),
        ("bulk_sums", 1, "", {"copies": 4, "block_bytes": 16384}),
        ("bulk_sums", 1, "add", {"shared": 4, "ways": 1}),
        # One lane of the producer's warp starts the copy of 512 floats; the region is that warp's own.
        ("tile_ring", 1, "fetch", {"copies": 1, "block_bytes": 0, "moved_bytes": 2048}),
        # An index that all lanes read, then a row of 128 floats at the address that it gives.
        ("embedding_bag", 0, "rows", {"loads": 2, "moved_bytes": 4 + 512, "load_levels": 2}),
        ("embedding_bag", 1, "rows", {"loads": 16, "moved_bytes": 8 * (4 + 512), "load_levels": 2}),
        # The row is the block's own, the vector is the same for all blocks; how long the row is, is not known.
        ("triangle_rows", 0, "row", {"moved_bytes": 256, "moved_by": {"": 128}, "repeats": 1}),
        # 1,024 floats by 32 copies of 4 bytes a lane, or by 8 of 16.
        ("narrow_copies", 0, "copy in", {"copies": 32, "moved_bytes": 4096, "repeats": 0}),
        ("narrow_copies", 1, "copy in", {"copies": 8, "moved_bytes": 4096, "repeats": 0}),
        # Nine steps with two loads and a store each; 2, 4, 8, 16, 16, 8, 4, 2 and 1 lanes on a bank.
        ("fold_pairs", 0, "fold", {"barriers": 9, "ways": 16}),
        ("fold_pairs", 1, "fold", {"barriers": 9, "ways": 1, "conflicts": 0}),
        # Levels of a tree: from 32 values on, only the first warp has work; the last barrier is before the next round.
        ("tree_sums", 0, "combine", {"barriers": 11, "unneeded_barriers": 5, "needed_barriers": 6}),
        ("tree_sums", 1, "combine", {"barriers": 1, "unneeded_barriers": 0, "needed_barriers": 1}),
        # Results of eight warps that all read, then write again; or nothing that any other warp reads.
        ("degree_sums", 0, "meet", {"barriers": 1, "unneeded_barriers": 0, "needed_barriers": 1}),
        ("newton_rows", 0, "meet", {"barriers": 1, "unneeded_barriers": 1, "needed_barriers": 0}),
        # Tiles of two matrices: one depends on the block's row, the other on its column.
        ("gemm_nt", 0, "fetch", {"loads": 16, "moved_bytes": 2048, "moved_by": {"x": 1024, "y": 1024}}),
        # A loop of 64 rounds in each of two regions.
        ("thread_rows", 0, "part_a", {"loads": 64, "moved_bytes": 8192, "repeats": 0, "load_waste": 8}),
        ("thread_rows", 0, "part_b", {"loads": 64, "stores": 64, "moved_bytes": 16384, "repeats": 0}),
    ],
)
def test_counts_are_those_of_the_source(name: str, repaired: int, region: str, facts: dict[str, float]) -> None:
    found = counted(name, repaired)[region]
    assert {fact: getattr(found, fact) for fact in facts} == facts


@needs_nvrtc
def test_rows_of_sixteen_threads_have_conflicts_of_their_own() -> None:
    """Column by column in a square of 16 by 16 words, two columns to a warp: every other row starts on bank 0."""
    assert counted("turn_tiles", 0, 16)["turn"].ways == 8
    assert counted("turn_tiles", 1, 16)["turn"].ways == 2, "the last word of the padded square wraps around"


@needs_nvrtc
def test_automatic_marks_count_the_same_bytes() -> None:
    """All loads of a kernel without marks of its own, wherever the rules put them."""
    for name, moved in (("few_rows", 512), ("particle_energy", 512)):
        options = ["-DREPAIRED=1", "-DWARPLENS=0", *cuda_includes()]
        text = compile_ptx((KERNELS / f"{name}.cu").read_text(), f"{name}.cu", "sm_90a", options)
        woven = weave(mark_ptx(text, Auto.of(True)).text, buffer=SymbolBuffer())
        loads = [one for one in map(CodeCounts.of, woven.code[name].values()) if one.loads]
        assert sum(one.moved_bytes for one in loads) == moved
