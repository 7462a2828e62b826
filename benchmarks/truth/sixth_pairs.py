"""A sixth table of pairs, written after the counts of what regions execute were changed; not recorded yet."""

from __future__ import annotations

from benchmarks.truth.pair import Pair
from benchmarks.truth.pairs import CUDA, TRITON

SIXTH = (
    Pair("particle_energy", CUDA, "uncoalesced loads", ("pick", "put"), "an array per field instead of records",
         "sixth_cases.particle_energy", "particle_energy"),
    Pair("turn_tiles", CUDA, "bank conflicts", ("turn",), "add a column to the squares",
         "sixth_cases.turn_tiles", "turn_tiles", remains=("unneeded barrier",)),
    Pair("embedding_bag", CUDA, "too little in flight", ("rows", "add"), "load eight rows at a time",
         "sixth_cases.embedding_bag", "embedding_bag", remains=("too little in flight",)),
    Pair("bulk_sums", CUDA, "too little in flight", ("arrival",), "use four stages instead of one",
         "sixth_cases.bulk_sums", "bulk_sums", remains=("too little in flight",)),
    Pair("expert_counts", CUDA, "atomics contention", ("tally",), "count in the block's shared memory first",
         "sixth_cases.expert_counts", "expert_counts"),
    Pair("triangle_rows", CUDA, "imbalance between blocks", ("row",), "start the long rows first",
         "sixth_cases.triangle_rows", "triangle_rows"),
    Pair("newton_rows", CUDA, "unneeded barrier", ("meet",), "let each warp go on by itself",
         "sixth_cases.newton_rows", "newton_rows"),
    Pair("ordered_totals", CUDA, "serialised section", ("my turn", "sum"), "work before waiting for the turn",
         "sixth_cases.ordered_totals", "ordered_totals", remains=("serialised section",)),
    Pair("few_rows", CUDA, "too few blocks", (), "split each row into 32 parts",
         "sixth_cases.few_rows", "few_rows"),
    Pair("smooth_tiles", TRITON, "tail of the last wave", (), "give each program an eighth of the work",
         "sixth_cases.smooth_tiles", "smooth_tiles"),
    Pair("wide_softmax", TRITON, "register spills", ("a", "b", "c"), "use eight warps instead of one",
         "sixth_cases.wide_softmax", "wide_softmax"),
    Pair("scale_shift", TRITON, "memory bound", ("in", "out"), "", "sixth_cases.scale_shift", "scale_shift"),
    Pair("escape_times", CUDA, "compute bound", ("iterate",), "", "sixth_cases.escape_times", "escape_times"),
)  # fmt: skip
