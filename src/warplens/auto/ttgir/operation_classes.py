"""The class of each TTGIR operation, and the word that names its region."""

from __future__ import annotations

from warplens.auto.ttgir.operation_tree import Op
from warplens.weave.mark_comments import PREFIX

_CLASSES: dict[str, dict[str, tuple[str, ...]]] = {
    "loads": {
        "load": ("tt.load", "tt.descriptor_load", "tt.descriptor_gather", "tt.atomic_load"),
    },
    "stores": {
        "store": ("tt.store", "tt.descriptor_store", "tt.descriptor_scatter", "tt.atomic_store"),
        "atomic": ("tt.atomic_rmw", "tt.atomic_cas", "tt.descriptor_reduce"),
    },
    "copies": {
        "copy issue": (
            "ttg.async_copy_global_to_local", "ttng.async_tma_copy_global_to_local", "ttng.async_tma_gather",
            "ttng.async_tma_copy_local_to_global", "ttng.async_tma_scatter", "ttng.async_tma_reduce",
            "ttng.async_shared_store", "ttng.tmem_copy",
        ),
    },
    "waits": {
        "copy wait": ("ttg.async_wait",),
        "store wait": ("ttng.async_tma_store_wait",),
        "mma wait": ("ttng.warp_group_dot_wait",),
        "mbarrier wait": ("ttng.wait_barrier",),
        "tensor memory wait": ("ttng.tmem_wait",),
        "atomic wait": ("tt.atomic_poll",),
        "grid wait": ("tt.grid_dependency_wait",),
    },
    "mma": {
        "mma": ("tt.dot", "tt.dot_scaled", "ttng.warp_group_dot"),
        "mma issue": ("ttng.tc_gen5_mma", "ttng.tc_gen5_mma_scaled"),
    },
    "reduce": {
        "reduce": ("tt.reduce",),
        "scan": ("tt.scan",),
        "histogram": ("tt.histogram",),
    },
    "barriers": {
        "barrier": ("gpu.barrier", "ttg.barrier", "ttg.local_barrier"),
        "cluster barrier": ("ttng.cluster_barrier", "ttng.cluster_arrive", "ttng.cluster_wait"),
        "mbarrier arrive": ("ttng.arrive_barrier", "ttng.async_copy_mbarrier_arrive"),
    },
}  # fmt: skip
_KNOWN = {op: (kind, what) for kind, words in _CLASSES.items() for what, ops in words.items() for op in ops}

LOOPS = ("scf.for", "scf.while")
_OPEN = frozenset({"builtin.module", "module", "tt.func", *LOOPS, "scf.if", "scf.index_switch", "scf.execute_region",
                   "ttg.warp_specialize", "ttg.warp_specialize.partitions"})  # fmt: skip
"""Operations whose bodies execute in place, so that marks may be inserted; not the body of a reduction, for example."""
_FREE = frozenset({
    "arith.constant", "ub.poison", "tt.make_range", "tt.splat", "tt.unsplat", "tt.expand_dims", "tt.broadcast",
    "tt.get_program_id", "tt.get_num_programs", "tt.bitcast", "arith.bitcast", "tt.trans", "tt.int_to_ptr",
    "tt.ptr_to_int",
    "ttg.local_dealloc", "ttg.async_commit_group", "ttg.warp_id",
})  # fmt: skip
"""Operations that compile to almost no instructions."""


def classify(op: Op) -> tuple[str, str] | None:
    """The class of an operation and its word; None if it belongs to no class."""
    found = _KNOWN.get(op.name)
    if op.name == "ttng.warp_group_dot" and "isAsync = true" in op.header:
        return "mma", "mma issue"
    return found


def is_open(op: Op) -> bool:
    """Whether marks may be inserted inside the operation."""
    return op.name in _OPEN


def is_mark(op: Op) -> bool:
    """Whether the operation is a mark already."""
    return op.name == "tt.elementwise_inline_asm" and PREFIX in op.header


def is_constant(op: Op) -> bool:
    return op.name in ("arith.constant", "ub.poison")


def is_free(op: Op) -> bool:
    """Whether the operation compiles to almost no instructions."""
    return op.name in _FREE or op.name.startswith("ttg.memdesc_")


def does_work(op: Op) -> bool:
    """Whether the operation costs more than one or two scalar instructions."""
    if is_free(op):
        return False
    if op.name == "ttg.local_alloc":
        return not op.header.partition("ttg.local_alloc")[2].startswith(" : ()")
    if op.name.startswith(("arith.", "math.", "tt.addptr")):
        return "tensor<" in op.header
    return True
