"""An eighth table of pairs, written after the findings learned which barriers are needed; not recorded yet."""

from __future__ import annotations

from benchmarks.truth.pair import Pair
from benchmarks.truth.pairs import CUDA, TRITON

EIGHTH = (
    Pair("long_dots", CUDA, "uncoalesced loads", ("dots",), "store the matrix column by column",
         "eighth_cases.long_dots", "long_dots"),
    Pair("flip_tiles", CUDA, "bank conflicts", ("columns",), "add a word to each row",
         "eighth_cases.flip_tiles", "flip_tiles"),
    Pair("rotate_lanes", CUDA, "unneeded barrier", ("step",), "wait for the warp instead of the block",
         "eighth_cases.rotate_lanes", "rotate_lanes"),
    Pair("word_lengths", CUDA, "imbalance between warps", ("scan", "all"), "sort the texts by length",
         "eighth_cases.word_lengths", "word_lengths", remains=("imbalance between blocks", "too little in flight")),
    Pair("rising_work", CUDA, "imbalance between blocks", ("rounds",), "start the long blocks first",
         "eighth_cases.rising_work", "rising_work"),
    Pair("hot_counters", CUDA, "atomics contention", ("add",), "count in registers first",
         "eighth_cases.hot_counters", "hot_counters", remains=("too little in flight",)),
    Pair("single_steps", CUDA, "too little in flight", ("sum up",), "sixteen loads at a time",
         "eighth_cases.single_steps", "single_steps", remains=("too little in flight",)),
    Pair("narrow_grid", TRITON, "too few blocks", (), "a program per 16 rows",
         "eighth_cases.narrow_grid", "narrow_grid"),
)  # fmt: skip
