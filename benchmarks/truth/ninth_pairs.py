"""A ninth table of pairs, written without a look at how findings are made; not recorded yet.

The comments say what their author expects of the repair, as a share of the broken version's time, and why.
"""

from __future__ import annotations

from benchmarks.truth.pair import Pair
from benchmarks.truth.pairs import CUDA, TRITON

NINTH = (
    # 90%: each access of a warp takes 32 sectors, one by one, although the block's other warps use them too.
    Pair("sobel_edges", CUDA, "uncoalesced loads", ("pixels", "edge"), "let neighbouring threads take columns",
         "ninth_cases.sobel_edges", "sobel_edges"),
    # 85%: all rows of a matrix begin in the same bank; two thirds of the lanes take part on average.
    Pair("small_factors", CUDA, "bank conflicts", ("eliminate",), "add a word to each row",
         "ninth_cases.small_factors", "small_factors",
         remains=("too little in flight",)),  # a step waits for the one before
    # 80%: an SM has 1 KB in flight, because a ray stops where no light is left; 8 KB then.
    Pair("march_rays", CUDA, "too little in flight", ("sample", "blend"), "read eight voxels ahead",
         "ninth_cases.march_rays", "march_rays", remains=("too little in flight",), records=2048),
    # 44%: 144 blocks on 132 SMs with room for one each: 16 units one after the other on 12 SMs, or 9.
    Pair("cross_sections", CUDA, "tail of the last wave", (), "as many blocks as SMs",
         "ninth_cases.cross_sections", "cross_sections",
         remains=("bank conflicts",)),  # random places of the table
    # 60%: one of eight warps has half of the pixels.
    Pair("star_fluxes", CUDA, "imbalance between warps", ("aperture", "gather"), "give each warp every eighth star",
         "ninth_cases.star_fluxes", "star_fluxes", remains=("too little in flight",)),
    # 65%: a warp waits for a vector's words, then unpacks 64 values per lane; to add 16 takes a fifth of that.
    Pair("pool_packed", CUDA, "producer too slow", ("wait for vector", "unpack"), "let four warps unpack in turn",
         "ninth_cases.pool_packed", "pool_packed", remains=("producer too slow", "too little in flight")),
    # 70%: 64 pixels per thread, and 32 registers; what an SM's threads keep in local memory does not fit in its L1.
    Pair("restore_blocks", CUDA, "register spills", ("cosines", "back"), "ask for four blocks per SM instead of 16",
         "ninth_cases.restore_blocks", "restore_blocks"),
    # 70%: in most steps one of eight warps inserts 10 to 30 points, each one in an eighth of the steps.
    Pair("nearest_points", CUDA, "unneeded barrier", ("sync",), "wait for the warp instead of the block",
         "ninth_cases.nearest_points", "nearest_points", records=2048),
    # 85%: 32 of 132 SMs have work, and four warps each.
    Pair("lora_shrink", TRITON, "too few blocks", (), "split the depth into sixteen parts",
         "ninth_cases.lora_shrink", "lora_shrink"),
    # 65%: the first eighth of the programs has the flame, 16 times the steps of the others.
    Pair("flame_cells", TRITON, "imbalance between blocks", (), "deal the tiles to the programs in turn",
         "ninth_cases.flame_cells", "flame_cells"),
    # 90%: 132 turns of about three microseconds after 20 microseconds of work.
    Pair("gram_matrix", TRITON, "serialised section", ("lock", "update"), "add atomically instead of under a lock",
         "ninth_cases.gram_matrix", "gram_matrix", remains=("atomics contention",)),
    # 65%: 59,000 rows are added to the same 512 bytes; one for each program then.
    Pair("embedding_gradient", TRITON, "atomics contention", ("scatter",), "sum a program's padding before adding it",
         "ninth_cases.embedding_gradient", "embedding_gradient", remains=("atomics contention",)),
    # 85%: 32 launches of two to three microseconds, of which a tenth is work.
    Pair("resize_images", TRITON, "launch ramp", (), "one launch instead of 32", "ninth_cases.resize_images",
         "resize_images", launches=3),
    # 50 to 60 products per number and round, with all warps that fit.
    Pair("mersenne_powers", CUDA, "compute bound", ("power",), "", "ninth_cases.mersenne_powers", "mersenne_powers"),
    # 201 MB are moved once, 16 bytes per lane.
    Pair("swiglu", TRITON, "memory bound", ("load", "store"), "", "ninth_cases.swiglu", "swiglu"),
)  # fmt: skip
