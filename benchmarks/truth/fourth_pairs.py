"""A fourth table of pairs, written as authors write kernels, with names that say nothing about the cause."""

from __future__ import annotations

from benchmarks.truth.pair import Pair
from benchmarks.truth.pairs import CUDA, GLUON, TRITON

FOURTH = (
    Pair("image_histogram", CUDA, "atomics contention", ("tally", "fetch"), "count in the block's shared memory first",
         "fourth_cases.image_histogram", "image_histogram",
         remains=("atomics contention",)),  # a dark image counts in few places of shared memory too
    Pair("gemm_nt", CUDA, "bank conflicts", ("math",), "add a column to the tiles", "fourth_cases.gemm_nt", "gemm_nt"),
    Pair("ragged_softmax", CUDA, "imbalance between warps", ("part_a", "part_b", "part_c"), "sort the rows by length",
         "fourth_cases.ragged_softmax", "ragged_softmax"),
    Pair("row_energy", CUDA, "too little in flight", ("step 1",), "wait for the oldest copy only",
         "fourth_cases.row_energy", "row_energy"),
    Pair("tile_ring", CUDA, "too little in flight", ("acquire", "receive"), "use four stages instead of one",
         "fourth_cases.tile_ring", "tile_ring",
         remains=("too little in flight",)),  # 16 KB on an SM move 2.9 of 4.8 TB/s
    Pair("to_channels_last", CUDA, "uncoalesced loads", ("fetch", "emit"), "turn each square in shared memory",
         "fourth_cases.to_channels_last", "to_channels_last"),
    Pair("warp_sort", CUDA, "unneeded barrier", ("order",), "wait for the warp instead of the block",
         "fourth_cases.warp_sort", "warp_sort"),
    Pair("rms_rows", CUDA, "launch ramp", (), "one launch instead of 24", "fourth_cases.rms_rows", "rms_rows",
         launches=3),
    Pair("best_candidate", CUDA, "serialised section", ("merge",), "one atomic maximum instead of a lock",
         "fourth_cases.best_candidate", "best_candidate", remains=("atomics contention",)),
    Pair("running_totals", CUDA, "serialised section", ("step 2",), "look back over what other blocks have found",
         "fourth_cases.running_totals", "running_totals", remains=("serialised section",)),
    Pair("layer_norm", TRITON, "too little in flight", ("reduce", "apply"), "let the loads run ahead",
         "fourth_cases.layer_norm", "layer_norm"),
    Pair("expert_sums", TRITON, "imbalance between blocks", (), "split the rows into parts of 64",
         "fourth_cases.expert_sums", "expert_sums"),
    Pair("decode_scores", TRITON, "too few blocks", (), "split each sequence into sixteen parts",
         "fourth_cases.decode_scores", "decode_scores"),
    Pair("mixed_norm", TRITON, "register spills", ("in", "norm", "out"), "do not limit the registers",
         "fourth_cases.mixed_norm", "mixed_norm"),
    Pair("linear", TRITON, "tail of the last wave", (), "halve the tiles", "fourth_cases.linear", "linear",
         remains=("tail of the last wave",)),  # two SMs have three tiles where the others have two
    Pair("paged_sums", GLUON, "producer too slow", ("data", "page"), "list the pages in a table",
         "fourth_cases.paged_sums", "paged_sums",
         remains=("producer too slow", "too little in flight")),  # four pages of 2 KB in flight move 1.6 of 4.8 TB/s
    Pair("smooth_sums", GLUON, "consumer too slow", ("slot", "math"), "use sixteen consumer warps",
         "fourth_cases.smooth_sums", "smooth_sums", remains=("consumer too slow",)),
    Pair("attraction", CUDA, "compute bound", ("math",), "", "fourth_cases.attraction", "attraction"),
    Pair("gather_rows", TRITON, "memory bound", ("b", "c"), "", "fourth_cases.gather_rows", "gather_rows"),
)  # fmt: skip
