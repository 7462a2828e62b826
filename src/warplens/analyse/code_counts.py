"""What the code of a region is made of, as the weaver counted it in the PTX and recorded it with the launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from warplens.record.capture import CODE
from warplens.trace.model import Trace
from warplens.trace.schema import LaunchInfo

_MEMORY_SHARE = 0.1
_BESIDE_A_BARRIER, _BESIDE_A_POLL = 4, 40
"""Instructions that a region which only waits may have for each wait."""
_FEW_ACCESSES = 1.25
"""Accesses that it may have for each barrier but one."""
LANES = 32
SCHEDULERS = 4
"""Of an SM."""
LEAST_CYCLES, MOST_CYCLES = 4, 10
"""What an instruction of a warp takes at least if the next one needs its result, and at most if nothing holds it up."""
_SECTOR, _WORD = 32, 4
_BY = "moved_by_"


@dataclass(frozen=True)
class CodeCounts:
    """What one instance of a region runs in each of its warps, on the longest path through its code. Loops of known
    length count as often as they run; others count once.

    `load_waste` is the bytes of the sectors that the worst load touches over the bytes that its lanes use: 1 where
    neighbours access neighbours. `ways` is how many lanes of the worst access share a bank of shared memory. Both are 0
    where nothing is known. `conflicts` adds up the lanes that have to wait for others of their access. `scattered`
    counts accesses whose addresses depend on loaded values. `matrix_flops` are operations of matrix products per
    warp, as if all operands had 16 bits. `local` are accesses to local memory, where a thread keeps arrays that are
    indexed by variables. `polls` are loops that read a flag or try a lock until they may go on, `waits` are
    waits for an mbarrier or for asynchronous copies. Of `barriers`, at the needed ones warps surely exchange data, at
    the unneeded ones surely not, and of the unknown ones the code does not say it; `looped_barriers` are those in a
    loop of unknown length. Older recordings have none of these. `repeats` says that some bytes are moved in a loop of
    unknown length, `loops` that any access, barrier or atomic is in one, `unbounded` that any instruction is. Of such
    loops, `uneven_warps` and `uneven_blocks` say that one may run longer in some warps of a block, or in some blocks;
    without `lengths_known` nothing is said of it.

    `moved_bytes` are the bytes that a warp asks global memory for or stores, each byte once, and `wasted_bytes` those
    that the sectors of its accesses have beside them. `block_bytes` are those that some threads of the block move for
    all of it, as with a bulk copy that one thread starts. `moved_by` says of bytes that several blocks read alike on
    which axes of the block's index they depend. `gathered_bytes` are read at addresses that were loaded, and may be
    anywhere, also in a cache. `unknown_bytes` counts copies of unknown size. `fetch_bytes` are those that a warp has in
    flight if it starts all loads that do not need each other's results, whole sectors; `load_levels` is how many loads
    need the result of the one before.
    """

    instructions: float = 0
    loads: float = 0
    stores: float = 0
    load_bytes: float = 0
    load_waste: float = 0
    store_waste: float = 0
    scattered: float = 0
    shared: float = 0
    ways: float = 0
    conflicts: float = 0
    copies: float = 0
    atomics: float = 0
    shared_atomics: float = 0
    barriers: float = 0
    needed_barriers: float = 0
    unneeded_barriers: float = 0
    unknown_barriers: float = 0
    looped_barriers: float = 0
    matrix: float = 0
    matrix_flops: float = 0
    local: float = 0
    polls: float = 0
    waits: float = 0
    moved_bytes: float = 0
    repeats: float = 0
    loops: float = 0
    unbounded: float = 0
    lengths_known: float = 0
    uneven_warps: float = 0
    uneven_blocks: float = 0
    wasted_bytes: float = 0
    block_bytes: float = 0
    gathered_bytes: float = 0
    unknown_bytes: float = 0
    fetch_bytes: float = 0
    load_levels: float = 1
    moved_by: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, counts: Mapping[str, float], row: int = 0) -> CodeCounts:
        """The counts of a launch whose blocks have rows of so many threads."""
        mine = f"@{row}"
        own = {name: one for name, one in counts.items() if "@" not in name}
        own |= {name.removesuffix(mine): one for name, one in counts.items() if name.endswith(mine)}
        shared = {name.removeprefix(_BY): one for name, one in own.items() if name.startswith(_BY)}
        return cls(**{name: own[name] for name in cls.__dataclass_fields__ if name in own}, moved_by=shared)

    @property
    def differs_by_warp(self) -> bool:
        """Whether an instance may do more in some warps of a block than in others."""
        return bool((self.loops or self.unbounded) and (self.uneven_warps or not self.lengths_known))

    @property
    def differs_by_block(self) -> bool:
        """Whether an instance may do more in some blocks than in others."""
        unknown = (self.loops or self.unbounded) and (self.uneven_blocks or not self.lengths_known)
        return bool(unknown or self.differs_by_warp)

    @property
    def mean_ways(self) -> float:
        """How many times as long as without conflicts its accesses to shared memory take, all together."""
        if not self.conflicts or not self.shared:
            return max(self.ways, 1.0)
        return 1 + self.conflicts / self.shared

    @property
    def only_waits(self) -> bool:
        """Whether it does little but wait: at a barrier of the block, for an mbarrier, a flag or a lock."""
        stops = self.barriers + self.polls + self.waits
        moved = self.copies + self.matrix + (0 if self.polls else self.loads + self.atomics)
        if self.polls + self.waits:
            return not (moved + self.stores) and self.instructions <= _BESIDE_A_POLL * stops
        # What comes before or after a barrier is the work that it orders, but for a few accesses of some threads.
        few = self.stores + self.shared + self.shared_atomics <= _FEW_ACCESSES * (stops - 1)
        return stops > 0 and not moved and few and self.instructions <= _BESIDE_A_BARRIER * (stops + 1)

    @property
    def waits_for_memory(self) -> bool:
        """Whether part of its time may be the latency of global memory."""
        return bool(self.loads or self.copies or self.atomics or self.waits)

    @property
    def only_computes(self) -> bool:
        """Whether its instructions take about as long as they do elsewhere: it accesses nothing outside the SM, waits
        for no other warp or atomic, uses no matrix units, and has no loop of unknown length."""
        held = (
            self.loads
            + self.copies
            + self.atomics
            + self.shared_atomics
            + self.waits
            + self.polls
            + self.barriers
            + self.local
        )
        return not (held or self.matrix or self.loops or self.unbounded)

    @property
    def moves_memory(self) -> bool:
        """Whether much of it loads or stores, and nothing multiplies matrices. A copy to shared memory moves a tile,
        however many instructions work out its addresses: code that starts one and works on no data moves memory."""
        moved = self.loads + self.stores + self.copies + self.atomics
        copies = self.copies and not (self.shared or self.stores or self.shared_atomics)
        return not self.matrix and bool(copies or moved >= _MEMORY_SHARE * max(self.instructions, 1))

    @property
    def fetched_bytes(self) -> float:
        """Bytes that a warp has in flight if it issues all loads of the region before it uses the first: whole sectors
        where lanes are apart."""
        if self.fetch_bytes:
            return self.fetch_bytes
        return LANES * (self.load_bytes * max(self.load_waste, 1.0) + (_SECTOR - _WORD) * self.scattered)


def code_of(launches: list[LaunchInfo]) -> dict[str, CodeCounts]:
    """The code of the regions of one kernel variant; `""` stands for what is outside all regions."""
    info = next((info for info in launches if CODE in info.extra), None)
    return {} if info is None else {name: CodeCounts.of(one, info.block[0]) for name, one in info.extra[CODE].items()}


def merged_code(trace: Trace) -> dict[str, CodeCounts]:
    """The code of the regions of all kernels; of regions that share a name, the first one's."""
    out: dict[str, CodeCounts] = {}
    for info in trace.meta.launches:
        for region, counts in info.extra.get(CODE, {}).items():
            if region not in out:
                out[region] = CodeCounts.of(counts, info.block[0])
    return out
