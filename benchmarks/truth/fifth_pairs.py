"""A fifth table of pairs, written after the findings were changed for what they missed on the fourth."""

from __future__ import annotations

from benchmarks.truth.pair import Pair
from benchmarks.truth.pairs import CUDA, GLUON, TRITON

FIFTH = (
    Pair("thread_rows", CUDA, "uncoalesced loads", ("part_a", "part_b"), "a warp per row instead of a thread",
         "fifth_cases.thread_rows", "thread_rows"),
    Pair("tree_sums", CUDA, "unneeded barrier", ("combine",), "shuffles instead of barriers",
         "fifth_cases.tree_sums", "tree_sums"),
    Pair("fold_pairs", CUDA, "bank conflicts", ("fold",), "fold halves instead of neighbours",
         "fifth_cases.fold_pairs", "fold_pairs", remains=("unneeded barrier",)),
    Pair("degree_sums", CUDA, "imbalance between warps", ("visit", "meet"), "sort the vertices by degree",
         "fifth_cases.degree_sums", "degree_sums", remains=("imbalance between blocks",)),
    Pair("slab_sums", CUDA, "tail of the last wave", (), "deal the units to as many blocks as SMs",
         "fifth_cases.slab_sums", "slab_sums"),
    Pair("shared_list", CUDA, "serialised section", ("append",), "a counter instead of a lock",
         "fifth_cases.shared_list", "shared_list"),
    Pair("narrow_copies", CUDA, "producer too slow", ("data", "copy in"), "copy 16 bytes per lane instead of 4",
         "fifth_cases.narrow_copies", "narrow_copies", remains=("producer too slow", "too little in flight")),
    Pair("rms_norm", TRITON, "too little in flight", ("one", "three"), "let the loads run ahead",
         "fifth_cases.rms_norm", "rms_norm"),
    Pair("cube_sums", GLUON, "consumer too slow", ("slot", "cube"), "products instead of logarithms",
         "fifth_cases.cube_sums", "cube_sums", remains=("consumer too slow",)),
    Pair("hash_words", CUDA, "compute bound", ("mix",), "", "fifth_cases.hash_words", "hash_words"),
    Pair("add_scaled", CUDA, "memory bound", ("all",), "", "fifth_cases.add_scaled", "add_scaled"),
)  # fmt: skip
