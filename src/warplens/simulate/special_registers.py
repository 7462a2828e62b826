"""The initial values of registers when a batch starts: constants, special registers, zeros."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from warplens.ptx.syntax import PtxError
from warplens.simulate.batch_state import WARP, State
from warplens.simulate.cycle_clock import CycleClock
from warplens.simulate.numeric import UNSIGNED, Array

if TYPE_CHECKING:
    from warplens.simulate.decode_site import Registers

Three = tuple[int, int, int]
_PER_AXIS = ("tid", "ctaid", "ntid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")
SPECIAL_REGISTERS = frozenset(
    {f"{name}.{letter}" for name in _PER_AXIS for letter in "xyz"}
    | {f"lanemask_{which}" for which in ("eq", "lt", "le", "gt", "ge")}
    | {"laneid", "warpid", "nwarpid", "smid", "nsmid", "gridid"}
    | {"dynamic_smem_size", "total_smem_size", "aggr_smem_size"}
    | {"is_explicit_cluster", "cluster_ctarank", "cluster_nctarank"}
)
"""The special registers that `mov` may read, besides the clocks."""


def fill_registers(
    state: State, registers: Registers, grid: Three, block: Three, dynamic: int, clock: CycleClock
) -> None:
    """Fill every slot of `state.R`; slots may share arrays, because no instruction changes an array in place."""
    zeros = {width: np.zeros(state.lanes, UNSIGNED[width] if width else bool) for width in (0, 1, 2, 4, 8)}
    wide = [slot for slot, width in enumerate(registers.widths) if width not in zeros]
    if wide:
        raise PtxError(0, ".b128", "the interpreter does not support 128-bit registers")
    state.R = [zeros[width] for width in registers.widths]
    for (bits, width), slot in registers.constants.items():
        state.R[slot] = np.full(state.lanes, bits, UNSIGNED[width] if width else bool)
    values = _specials(state, grid, block, dynamic, clock) if registers.specials else {}
    for name, slot in registers.specials.items():
        if registers.widths[slot] == 0:
            continue
        dtype = UNSIGNED[registers.widths[slot]]
        state.R[slot] = np.broadcast_to(values[name], state.lanes).astype(dtype)
    state.give_local(registers.local_bytes)
    state.ready = [np.zeros(state.warps, np.int64)] * registers.ready


def _specials(state: State, grid: Three, block: Three, dynamic: int, clock: CycleClock) -> dict[str, Array]:
    thread = state.lane % state.lanes_per_block
    index = np.repeat(state.blocks, state.lanes_per_block)
    lane = state.lane % WARP
    bit = np.uint64(1) << lane.astype(np.uint64)
    values: dict[str, object] = {
        "tid.x": thread % block[0],
        "tid.y": thread // block[0] % block[1],
        "tid.z": thread // (block[0] * block[1]),
        "ctaid.x": index % grid[0],
        "ctaid.y": index // grid[0] % grid[1],
        "ctaid.z": index // (grid[0] * grid[1]),
        "laneid": lane,
        "warpid": thread // WARP,
        "nwarpid": clock.blocks_per_sm * state.warps_per_block,
        "smid": np.repeat(state.sm, WARP),
        "nsmid": clock.sms,
        "gridid": 1,
        "lanemask_eq": bit,
        "lanemask_lt": bit - np.uint64(1),
        "lanemask_le": 2 * bit - np.uint64(1),
        "lanemask_gt": ~(2 * bit - np.uint64(1)) & np.uint64(0xFFFFFFFF),
        "lanemask_ge": ~(bit - np.uint64(1)) & np.uint64(0xFFFFFFFF),
        "dynamic_smem_size": dynamic,
        "total_smem_size": state.shared_size,
        "aggr_smem_size": state.shared_size,
        "is_explicit_cluster": 0,
        "cluster_ctarank": 0,
        "cluster_nctarank": 1,
    }
    for axis, letter in enumerate("xyz"):
        values[f"ntid.{letter}"] = block[axis]
        values[f"nctaid.{letter}"] = grid[axis]
        values[f"clusterid.{letter}"] = values[f"ctaid.{letter}"]
        values[f"nclusterid.{letter}"] = grid[axis]
        values[f"cluster_ctaid.{letter}"] = 0
        values[f"cluster_nctaid.{letter}"] = 1
    return {name: np.asarray(value) for name, value in values.items()}
