"""A second table of pairs, with other kernels for the same causes: the findings were not developed on them."""

from __future__ import annotations

from benchmarks.truth.pair import Pair
from benchmarks.truth.pairs import CUDA, TRITON

SECOND = (
    Pair("interleaved_channels", TRITON, "uncoalesced loads", ("load", "store"), "store the channels one by one",
         "second_cases.channel_scale", "channel_scale"),
    Pair("pitch_of_40", CUDA, "bank conflicts", ("combine",), "add a column to the table", "second_cases.row_dot",
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
         "second_cases.large_tile", "matmul"),
    Pair("ragged_matmul", TRITON, "tail of the last wave", (), "use half of the tile", "second_cases.ragged_matmul",
         "matmul"),
    Pair("good_matmul", TRITON, "compute bound", ("dot",), "", "second_cases.good_matmul", "matmul"),
)  # fmt: skip
