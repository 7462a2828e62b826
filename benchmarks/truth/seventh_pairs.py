"""A seventh table of pairs, written without a look at the findings; not recorded yet.

The comments say what their author expects of the repair, as a share of the broken version's time, and why.
"""

from __future__ import annotations

from benchmarks.truth.pair import Pair
from benchmarks.truth.pairs import CUDA, GLUON, TRITON

SEVENTH = (
    # 50%: each store writes 4 bytes of 32 sectors; these are stores, which share a cause with loads.
    Pair("fill_uniform", CUDA, "uncoalesced loads", ("keep",), "let neighbours keep neighbouring numbers",
         "seventh_cases.fill_uniform", "fill_uniform"),
    # 50%: four lanes of a quarter warp on a bank when pass 1 takes 16 bytes per lane, two of a half warp in pass 2.
    Pair("hadamard", CUDA, "bank conflicts", ("pass 1", "pass 2"), "swizzle the places in shared memory",
         "seventh_cases.hadamard", "hadamard"),
    # 75%: 2 KB in flight on an SM, where 25 KB are needed; 16 KB then.
    Pair("moving_average", CUDA, "too little in flight", ("read", "blend"), "read eight time steps at a time",
         "seventh_cases.moving_average", "moving_average", remains=("too little in flight",)),
    # 60%: one of eight warps has 2,048 of 2,400 rounds; dealt evenly, the schedulers' slots are the limit.
    Pair("cell_pairs", CUDA, "imbalance between warps", ("pairs", "settle"), "deal pieces of cells to the warps",
         "seventh_cases.cell_pairs", "cell_pairs"),
    # 85%: 264 turns of more than a microsecond after 15 microseconds of work.
    Pair("bias_gradient", CUDA, "serialised section", ("ticket", "merge"), "add atomically instead of by tickets",
         "seventh_cases.bias_gradient", "bias_gradient", remains=("atomics contention",)),
    # 70%: a hyperbolic tangent of double precision takes four times as long.
    Pair("gelu_ring", CUDA, "consumer too slow", ("free", "gelu"), "single instead of double precision",
         "seventh_cases.gelu_ring", "gelu_ring", remains=("consumer too slow",)),
    # 65%: in two of three rounds, the warps wait for one with 64 events; each has 13 in the mean.
    Pair("photon_walk", CUDA, "unneeded barrier", ("share",), "wait for the warp instead of the block",
         "seventh_cases.photon_walk", "photon_walk"),
    # 80%: 40 launches of two microseconds, of which a fifth is work.
    Pair("adam_step", CUDA, "launch ramp", (), "one launch instead of 40", "seventh_cases.adam_step", "adam_step",
         launches=3),
    # 75%: a load or store of a warp takes 4 bytes of 32 sectors.
    Pair("causal_conv", TRITON, "uncoalesced loads", ("taps", "result"), "tiles of many channels instead of times",
         "seventh_cases.causal_conv", "causal_conv"),
    # 60%: 8 KB in flight on an SM; up to 32 KB then.
    Pair("int8_matvec", TRITON, "too little in flight", ("step",), "let the loads run ahead",
         "seventh_cases.int8_matvec", "int8_matvec", remains=("too little in flight",)),
    # 80%: 32 of 132 SMs have work; with 512 programs, the memory is the limit.
    Pair("norm_gradients", TRITON, "too few blocks", (), "split the rows into sixteen parts",
         "seventh_cases.norm_gradients", "norm_gradients"),
    # 40%: 144 programs on 132 SMs with room for one each, so two rounds where 1.1 would do.
    Pair("orbits", TRITON, "tail of the last wave", (), "a tile per program instead of eight",
         "seventh_cases.orbits", "orbits"),
    # 45%: the last program has twice the mean's tiles.
    Pair("causal_attention", TRITON, "imbalance between blocks", (), "give each program a block from each end",
         "seventh_cases.causal_attention", "causal_attention",
         remains=("too little in flight", "low occupancy")),  # four warps on an SM, whose products wait for each other
    # 90%: 512 sums per thread, of which the compiler keeps nearly all in local memory; 40% if it keeps half there.
    Pair("pairwise_l1", TRITON, "register spills", ("axis", "result"), "a quarter of the tile and twice the warps",
         "seventh_cases.pairwise_l1", "pairwise_l1"),
    # 90%: 2 million additions to eight addresses, or 8,192.
    Pair("key_sums", TRITON, "atomics contention", ("sum", "get"), "sum within the program first",
         "seventh_cases.key_sums", "key_sums"),
    # 75%: on average 64 loads, one after the other, for each tile of 8 KB.
    Pair("grouped_tiles", GLUON, "producer too slow", ("tile", "fetch"), "look on from the last tile's group",
         "seventh_cases.grouped_tiles", "grouped_tiles",
         remains=("producer too slow", "too little in flight")),  # 32 KB in flight, and two loads before each copy
    # 992 multiplications and additions per load of 4 bytes and tree, with many warps.
    Pair("binomial_prices", CUDA, "compute bound", ("tree",), "", "seventh_cases.binomial_prices", "binomial_prices"),
    # 134 MB are moved once, 16 bytes per lane.
    Pair("rotary", GLUON, "memory bound", ("get", "put"), "", "seventh_cases.rotary", "rotary"),
)  # fmt: skip
