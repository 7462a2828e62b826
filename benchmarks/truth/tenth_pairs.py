"""A tenth table of pairs, written without a look at the findings; not recorded yet.

The comments say what their author expects of the repair, as a share of the broken version's time, and why.
"""

from __future__ import annotations

from benchmarks.truth.pair import Pair
from benchmarks.truth.pairs import CUDA, TRITON

TENTH = (
    # 60%: neighbouring rows are 128 bytes apart, so each load takes 32 lines; the memory is the limit then.
    Pair("padded_spmv", CUDA, "uncoalesced loads", ("row",), "store the entries column by column",
         "tenth_cases.padded_spmv", "padded_spmv"),
    # 55%: lanes read 16 bytes each, 64 bytes apart: four of a quarter warp on the same banks. With spare words, each
    # lane of a warp has a bank, and the memory is the limit.
    Pair("polyphase", CUDA, "bank conflicts", ("filter",), "leave out a word after every 16",
         "tenth_cases.polyphase", "polyphase"),
    # 60%: the warp with the long reads has six times the mean's work; dealt out, the schedulers' slots are the limit.
    Pair("read_sketches", CUDA, "imbalance between warps", ("reads", "sketch"), "take the longest read that is left",
         "tenth_cases.read_sketches", "read_sketches"),
    # 80%: 16 strips of 33 steps, one strip after the other; each is two steps behind the one before then.
    Pair("sw_strips", CUDA, "serialised section", ("above",), "tell the next strip after each 32 columns",
         "tenth_cases.sw_strips", "sw_strips",
         remains=("serialised section", "too little in flight")),  # a cell waits for the one before
    # 85%: 32 searches of ten loads each, one after the other, for a tile of 8 KB; or side by side.
    Pair("packed_tokens", CUDA, "producer too slow", ("gather", "tokens"), "look up a token with each lane",
         "tenth_cases.packed_tokens", "packed_tokens", remains=("producer too slow", "too little in flight")),
    # 40%: eight warps wait for the one with the most neighbours; the barriers also keep loads from overlapping.
    Pair("shared_neighbours", CUDA, "unneeded barrier", ("stage", "intersect"),
         "wait for the warp instead of the block", "tenth_cases.shared_neighbours", "shared_neighbours",
         remains=("too little in flight",)),
    # 50%: 80 values of a path in 40 registers. Of 256 bytes per thread in local memory, 1,536 threads have 390 KB, so
    # most of what each step stores and loads goes to the L2 cache.
    Pair("path_baskets", CUDA, "register spills", ("draw", "step"), "ask for two blocks per SM instead of six",
         "tenth_cases.path_baskets", "path_baskets"),
    # 65%: 8 KB in flight on an SM, and two loads that depend on each other for each; 32 KB then.
    Pair("page_scores", TRITON, "too little in flight", ("pages",), "take four pages at a time",
         "tenth_cases.page_scores", "page_scores", remains=("too little in flight",)),
    # 80%: 32 of 132 SMs have work, with one program each; with 512 programs, the memory is the limit.
    Pair("vertical_blur", TRITON, "too few blocks", (), "split the strips into sixteen parts",
         "tenth_cases.vertical_blur", "vertical_blur", records=1024),
    # 40%: 144 programs on 132 SMs with room for one each, so two rounds where 1.1 would do.
    Pair("vol_paths", TRITON, "tail of the last wave", (), "a tile per program instead of eight",
         "tenth_cases.vol_paths", "vol_paths"),
    # 60%: the first programs have three times the mean's entries, and go on long after the others.
    Pair("row_ranges", TRITON, "imbalance between blocks", (), "bounds for equal numbers of entries",
         "tenth_cases.row_ranges", "row_ranges",
         remains=("too little in flight",)),  # a row's length, places and values are loaded one after the other
    # 85%: 2.6 million additions to 64 counters in two lines of memory, or 33,000.
    Pair("trimer_counts", TRITON, "atomics contention", ("count",), "count within the program first",
         "tenth_cases.trimer_counts", "trimer_counts"),
    # Sixteen additions and multiplications for each sample that a thread reads, in eight chains.
    Pair("tone_bins", CUDA, "compute bound", ("tones",), "", "tenth_cases.tone_bins", "tone_bins"),
    # 201 MB are moved once, 16 bytes per lane.
    Pair("yuv_planes", TRITON, "memory bound", ("rgb", "yuv"), "", "tenth_cases.yuv_planes", "yuv_planes"),
)  # fmt: skip
