"""Two more tables of pairs, with other kernels for the same causes: the findings were not developed on them."""

from __future__ import annotations

from benchmarks.truth.pair import Pair
from benchmarks.truth.pairs import CUDA, TRITON

SECOND = (
    Pair("interleaved_channels", TRITON, "uncoalesced loads", ("load", "store"), "store the channels one by one",
         "second_cases.channel_scale", "channel_scale"),
    Pair("pitch_of_32", CUDA, "bank conflicts", ("combine",), "add a column to the table", "second_cases.row_dot",
         "row_dot"),
    Pair("third_of_the_sms", CUDA, "too few blocks", (), "give each block fewer rows", "second_cases.smooth_rows",
         "smooth_rows"),
    Pair("sorted_jobs", CUDA, "imbalance between blocks", (), "let blocks take the next job when they are done",
         "second_cases.job_list", "job_list"),
    Pair("hand_copy", CUDA, "producer too slow", ("wait full", "fill"), "use one bulk copy per tile",
         "second_cases.staged_sums", "staged_sums"),
    Pair("add_every_tile", TRITON, "atomics contention", ("add", "load"), "add to the result once per program",
         "second_cases.column_sums", "column_sums"),
    Pair("large_tile", TRITON, "register spills", ("dot", "load", "store"), "use a quarter of the tile",
         "second_cases.large_tile", "matmul",
         remains=("too little in flight",)),  # it has two stages
)  # fmt: skip

THIRD = (
    Pair("turn_sheet", CUDA, "uncoalesced loads", ("part 1", "part 2"), "turn each square in shared memory",
         "third_cases.turn_sheet", "turn_sheet"),
    Pair("mix_sheet", CUDA, "bank conflicts", ("turn",), "add a column to the square", "third_cases.mix_sheet",
         "mix_sheet"),
    Pair("add_fields", CUDA, "uncoalesced loads", ("A",), "store the records field by field",
         "third_cases.add_fields", "add_fields"),
    Pair("heavy_units", CUDA, "tail of the last wave", (), "quarter the work of a block", "third_cases.heavy_units",
         "heavy_units"),
    Pair("finish_rows", CUDA, "imbalance between warps", ("second", "third"), "let every warp finish its own part",
         "third_cases.finish_rows", "finish_rows", remains=("too little in flight",)),  # a load per round
    Pair("chained_sums", CUDA, "serialised section", ("A", "B"), "wait for the predecessor after the work",
         "third_cases.chained_sums", "chained_sums", remains=("serialised section",)),
    Pair("thread_tables", CUDA, "register spills", ("step",), "index the table by constants",
         "third_cases.thread_tables", "thread_tables"),
    Pair("one_sum", CUDA, "atomics contention", ("put", "get"), "add once per block", "third_cases.one_sum",
         "one_sum"),
    Pair("warp_chains", CUDA, "unneeded barrier", ("sync",), "wait for the warp instead of the block",
         "third_cases.warp_chains", "warp_chains"),
    Pair("random_walk", CUDA, "low occupancy", ("hop on",), "reserve no shared memory", "third_cases.random_walk",
         "random_walk", remains=("too little in flight",)),
    Pair("strided_rows", TRITON, "uncoalesced loads", ("take", "keep"), "store the matrix by rows",
         "third_cases.strided_rows", "strided_rows"),
    Pair("powers", CUDA, "compute bound", ("step",), "", "third_cases.powers", "powers"),
    Pair("wide_copy", CUDA, "memory bound", ("X", "Y"), "", "third_cases.wide_copy", "wide_copy"),
    Pair("full_matmul", TRITON, "compute bound", ("dot",), "", "second_cases.full_matmul", "matmul"),
    Pair("norm_rows", TRITON, "memory bound", ("one", "three"), "", "third_cases.norm_rows", "norm_rows"),
)  # fmt: skip
