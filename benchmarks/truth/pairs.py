"""The table of pairs: what is broken in each, where, and what repairs it."""

from __future__ import annotations

from benchmarks.truth.pair import Pair

CUDA, TRITON, GLUON = "CUDA", "Triton", "Gluon"

PAIRS = (
    Pair("uncoalesced_loads", CUDA, "uncoalesced loads", ("load", "multiply"), "store the matrix by columns",
         "cuda_cases.matvec", "matvec", ncu=True),
    Pair("uncoalesced_layout", GLUON, "uncoalesced loads", ("load", "add"), "spread the lanes along the rows",
         "gluon_cases.row_sums", "row_sums"),
    Pair("bank_conflicts", CUDA, "bank conflicts", ("scan",), "pad the tile's rows", "cuda_cases.row_scan", "row_scan",
         ncu=True),
    Pair("one_load_in_flight", CUDA, "too little in flight", ("load and add",),
         "load 16 values before adding the first", "cuda_cases.sum_squares", "sum_squares", ncu=True),
    Pair("one_stage", TRITON, "too little in flight", ("load", "dot"), "pipeline the loads (num_stages 1 to 4)",
         "triton_cases.matmul", "matmul"),
    Pair("few_blocks", TRITON, "too few blocks", (), "give each program 4 rows instead of 64",
         "triton_cases.softmax_rows", "softmax_rows"),
    Pair("last_wave", CUDA, "tail of the last wave", (), "split each block's work into four blocks",
         "cuda_cases.last_wave", "polynomial"),
    Pair("uneven_warps", CUDA, "imbalance between warps", ("row", "wait for rows"),
         "deal the rows to the warps in turn", "cuda_cases.sparse_rows", "sparse_rows"),
    Pair("uneven_blocks", TRITON, "imbalance between blocks", (), "deal the rows to the programs back and forth",
         "triton_cases.lower_triangle", "lower_triangle"),
    Pair("lock", CUDA, "serialised section", ("wait for lock", "add to totals"),
         "add atomically instead of under a lock", "cuda_cases.byte_counts", "byte_counts", launches=3),
    Pair("waiting_producer", GLUON, "producer too slow", ("wait for tile", "copy"), "do not wait for each copy",
         "gluon_cases.specialised_matmul", "specialised_matmul",
         remains=("too little in flight",)),  # each multiplication waits for the one before
    Pair("single_consumer", CUDA, "consumer too slow", ("wait for room", "evaluate"), "use four consumer warps",
         "cuda_cases.activation_sum", "activation_sum", remains=("consumer too slow",)),  # they still hardly wait
    Pair("spills", CUDA, "register spills", ("multiply",), "ask for two blocks per SM instead of four",
         "cuda_cases.register_tile", "register_tile",
         remains=("too little in flight", "bank conflicts")),  # its loads wait for each other, four lanes for a bank
    Pair("one_block_per_sm", CUDA, "low occupancy", ("hop",), "reserve 4 KB of shared memory instead of 160",
         "cuda_cases.walk_links", "walk_links"),
    Pair("shared_counters", CUDA, "atomics contention", ("count", "find bin"), "count in shared memory first",
         "cuda_cases.bin_counts", "bin_counts"),
    Pair("block_barrier", CUDA, "unneeded barrier", ("wait for part",), "wait for the warp instead of the block",
         "cuda_cases.probe_chains", "probe_chains", remains=("too little in flight",)),  # a chain loads one by one
    Pair("small_launches", TRITON, "launch ramp", (), "one launch instead of 32",
         "triton_cases.scale_add", "scale_add", launches=3),
    Pair("arithmetic", CUDA, "compute bound", ("evaluate",), "", "cuda_cases.full_waves", "polynomial"),
    Pair("copying", CUDA, "memory bound", ("load", "store"), "", "cuda_cases.copy_rows", "copy_rows"),
    Pair("streaming", TRITON, "memory bound", ("load", "store"), "", "triton_cases.large_scale_add", "scale_add"),
)  # fmt: skip
