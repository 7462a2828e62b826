"""What the code of a region is made of, as the weaver counted it in the PTX and recorded it with the launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from warplens.record.capture import CODE
from warplens.trace.model import Trace
from warplens.trace.schema import LaunchInfo

_MEMORY_SHARE = 0.1
_BESIDE_A_BARRIER, _BESIDE_A_POLL = 4, 40
"""Instructions that a region which only waits may have for each wait."""
LANES = 32
_SECTOR, _WORD = 32, 4


@dataclass(frozen=True)
class CodeCounts:
    """Instructions of one region, each counted once however often it runs.

    `load_waste` is the bytes of the sectors that the worst load touches over the bytes that its lanes use: 1 where
    neighbours access neighbours. `ways` is how many lanes of the worst access share a bank of shared memory. Both are 0
    where nothing is known. `conflicts` adds up the lanes that have to wait for others of their access. `scattered`
    counts accesses whose addresses depend on loaded values. `matrix_flops` are operations of matrix products per
    warp, as if all operands had 16 bits. `local` are accesses to local memory, where a thread keeps arrays that are
    indexed by variables. `polls` are loops that read a flag or try a lock until they may go on, `waits` are
    waits for an mbarrier or for asynchronous copies. `moved_bytes` are the bytes that a warp loads, stores and copies
    to or from global memory in one instance; `repeats` says that some of them are in a loop inside the region, `loops`
    that any access, barrier or atomic is.
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
    matrix: float = 0
    matrix_flops: float = 0
    local: float = 0
    polls: float = 0
    waits: float = 0
    moved_bytes: float = 0
    repeats: float = 0
    loops: float = 0

    @classmethod
    def of(cls, counts: Mapping[str, float]) -> CodeCounts:
        return cls(**{name: counts[name] for name in cls.__dataclass_fields__ if name in counts})

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
        moved = self.stores + self.copies + self.matrix + (0 if self.polls else self.loads + self.atomics)
        most = _BESIDE_A_POLL if self.polls + self.waits else _BESIDE_A_BARRIER
        return stops > 0 and not moved and self.instructions <= most * stops

    @property
    def waits_for_memory(self) -> bool:
        """Whether part of its time may be the latency of global memory."""
        return bool(self.loads or self.copies or self.atomics or self.waits)

    @property
    def moves_memory(self) -> bool:
        """Whether much of it loads or stores, and nothing multiplies matrices."""
        moved = self.loads + self.stores + self.copies + self.atomics
        return not self.matrix and moved >= _MEMORY_SHARE * max(self.instructions, 1)

    @property
    def fetched_bytes(self) -> float:
        """Bytes that a warp has in flight if it issues all loads of the region before it uses the first: whole sectors
        where lanes are apart."""
        return LANES * (self.load_bytes * max(self.load_waste, 1.0) + (_SECTOR - _WORD) * self.scattered)


def code_of(launches: list[LaunchInfo]) -> dict[str, CodeCounts]:
    """The code of the regions of one kernel variant; `""` stands for what is outside all regions."""
    counts: Mapping[str, Mapping[str, float]] = next((info.extra[CODE] for info in launches if CODE in info.extra), {})
    return {region: CodeCounts.of(one) for region, one in counts.items()}


def merged_code(trace: Trace) -> dict[str, CodeCounts]:
    """The code of the regions of all kernels; of regions that share a name, the first one's."""
    out: dict[str, CodeCounts] = {}
    for info in trace.meta.launches:
        for region, counts in info.extra.get(CODE, {}).items():
            if region not in out:
                out[region] = CodeCounts.of(counts)
    return out
