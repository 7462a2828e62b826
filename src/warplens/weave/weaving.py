"""The options of `weave`, and the track sizes that host and device compute alike."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Collection
from dataclasses import dataclass, field

from warplens.errors import UsageError
from warplens.record.layout import HEADER_BYTES, MAX_SLOTS, MAX_WARPS, SLOT_BYTES

GRANULARITY = {"warp": 1, "warpgroup": 4, "block": MAX_WARPS}
POLICIES = ("auto", "now", "late", "end", "defer", "spread")
MODES = ("trace", "aggregate")
SUMS = ("auto", "end", "both")
SHIFT_MASK = 63
"""The low bits of the buffer pointer that carry log2(stride): a track's alignment keeps them free."""
MIN_SHIFT, MAX_SHIFT = 9, 28
MAX_LISTED = 64
"""The maximum number of individually listed blocks; each costs a comparison in every block's prologue."""


@dataclass(frozen=True)
class ParamBuffer:
    """The buffer pointer is a kernel parameter; a negative index counts from the last one.

    With `indirect`, the parameter is the address of 8 bytes of device memory that hold the buffer pointer. The host can
    change those before each replay of a CUDA graph, whose parameters are fixed. 0 there records nothing.
    """

    index: int = -1
    indirect: bool = False


@dataclass(frozen=True)
class SymbolBuffer:
    """The buffer pointer is a variable of the module, which the host sets before a launch.

    The kernel's parameters stay as they are, so whoever launches it need not know. With the space `global`, a copy
    inside a CUDA graph can set the pointer too.
    """

    name: str = "warplens_buffer"
    space: str = "const"

    @property
    def declaration(self) -> str:
        """The variable, as the module declares it."""
        return f".visible .{self.space} .align 8 .b64 {self.name};"


@dataclass(frozen=True)
class LaunchBuffer:
    """The buffer is the argument of the kernel's wl::Kernel, laid out as in record/launch_buffer.py.

    Region ids are those of warplens.cuh. See stores/launch_tracks.py.
    """


AnyBuffer = ParamBuffer | SymbolBuffer | LaunchBuffer


@dataclass(frozen=True)
class Selection:
    """Which warps of which blocks record a track.

    `blocks` is (start, stop, step) over the linear block index, `listed` lists individual blocks; at most one of the
    two is given. With `flat`, the kernel is only launched with grids of one row, in which %ctaid.x is that index.
    """

    granularity: str = "warp"
    warps: tuple[int, ...] | None = None
    blocks: tuple[int, int, int] | None = None
    listed: tuple[int, ...] | None = None
    sms: tuple[int, ...] | None = None
    flat: bool = False

    def __post_init__(self) -> None:
        if self.granularity not in GRANULARITY:
            raise UsageError(f"granularity={self.granularity!r}: allowed are {', '.join(GRANULARITY)}")
        if self.warps is not None:
            object.__setattr__(self, "warps", tuple(sorted(set(self.warps))))
            if not self.warps or self.warps[0] < 0 or self.warps[-1] >= MAX_WARPS:
                raise UsageError(f"warps={list(self.warps)}: give at least one warp, each within 0..{MAX_WARPS - 1}")
            if self.granularity != "warp":
                raise UsageError("warps= and granularity= cannot be combined: give one of them")
        if self.blocks is not None:
            start, stop, step = self.blocks
            if start < 0 or stop <= start or step < 1:
                raise UsageError(f"blocks={self.blocks}: requires 0 <= start < stop and a step of at least 1")
        if self.listed is not None:
            object.__setattr__(self, "listed", tuple(sorted(set(self.listed))))
            if not 1 <= len(self.listed) <= MAX_LISTED or self.listed[0] < 0 or self.blocks is not None:
                raise UsageError(
                    f"blocks={list(self.listed)[:8]}: list 1 to {MAX_LISTED} blocks, or use a range, a slice or a count"
                )
        if self.sms is not None and not self.sms:
            raise UsageError("sms=[]: give at least one SM")

    def tracks_per_block(self, warps: int) -> int:
        if self.warps is not None:
            return len(self.warps)
        return -(-warps // min(GRANULARITY[self.granularity], MAX_WARPS))

    def blocks_of(self, blocks: int) -> int:
        """How many of the first `blocks` blocks record tracks."""
        if self.listed is not None:
            return bisect.bisect_left(self.listed, blocks)
        if self.blocks is None:
            return blocks
        start, stop, step = self.blocks
        return max(0, -(-(min(stop, blocks) - start) // step))


@dataclass(frozen=True)
class SharedBuffer:
    """Records are buffered in shared memory, `slots` of them per track (a power of two), at `symbol + offset`."""

    slots: int
    offset: int = 0
    symbol: str = "global_smem"


@dataclass(frozen=True)
class Weaving:
    """How to record.

    full:       what a full track keeps, the first records (`stop`) or the latest (`ring`)
    clock:      the bits of a record's clock
    store:      where a record's store is placed (see weaver.py)
    keep:       how many record words stay in registers instead of being rebuilt at each mark
    fuse:       let marks without an instruction between them share a clock read
    pair:       write two neighbouring records with one 16-byte store where their alignment is certain
    pin:        keep the pointer in fixed registers, which saves a copy per block and may cost a register
    constants:  build the constants of a region's fmas before the region begins (see early_constants.py)
    early:      compute addresses before the wait that precedes a mark (see early_addresses.py)
    aligned:    promise that the kernel is only launched with blocks whose x size is a multiple of 32
    join:       let chains of blocks share a spread store
    limit:      limit the registers of the woven kernel to a few more than the plain one has (see fit/register_limit.py)
    lean:       use as few registers as possible, at the cost of more instructions
    fixed:      give each mark its own slot and hold no register between marks (see fixed_slots.py); only for kernels
                without marks in loops, and regardless of `full`, since nothing can fill up
    plain_copy: let blocks that are not selected run a plain copy of the kernel's code (see plain_body.py)
    omit:       regions whose marks are left out
    lives:      leave out all automatic marks, so that only the lifetimes of the warps are recorded; a kernel keeps its
                own marks
    between:    find the code between regions, so that its time has a name (see code_between.py)
    mode:       keep every record (`trace`), or statistics per region (`aggregate`, see aggregate_weaver.py)
    sums:       where `aggregate` adds up executions next to asynchronous products: `end`, `both`, or `auto`, by the
                kernel (see sum_places.py)
    ring:       with `aggregate`, also keep this many latest records, rounded up to a power of two
    delay:      delay this region and record nothing (see delay.py); the buffer's parameter is the number of cycles
    """

    full: str = "stop"
    clock: str = "32"
    store: str = "auto"
    keep: int = 4
    fuse: bool = True
    pair: bool = True
    pin: bool = True
    constants: bool = True
    early: bool = True
    aligned: bool = False
    join: bool = True
    limit: bool = True
    lean: bool = False
    fixed: bool = False
    plain_copy: bool = False
    omit: tuple[str, ...] = ()
    lives: bool = False
    between: bool = False
    mode: str = "trace"
    sums: str = "auto"
    ring: int = 0
    select: Selection = field(default_factory=Selection)
    shared: SharedBuffer | None = None
    delay: str | None = None

    def __post_init__(self) -> None:
        if self.full not in ("stop", "ring"):
            raise UsageError(f"full={self.full!r}: allowed are 'stop' (keep the first) and 'ring' (keep the latest)")
        if self.clock not in ("32", "64"):
            raise UsageError(f"clock={self.clock!r}: allowed are '32' and '64'")
        if self.mode not in MODES:
            raise UsageError(f"mode={self.mode!r}: allowed are {', '.join(MODES)}")
        if self.sums not in SUMS:
            raise UsageError(f"sums={self.sums!r}: allowed are {', '.join(SUMS)}")
        if self.store not in POLICIES:
            raise UsageError(f"store={self.store!r}: allowed are {', '.join(POLICIES)}")


def shift_for(slots: int, full: str, slack: int) -> int:
    """log2 of the size in bytes of the smallest track that holds `slots` slots."""
    if not 0 <= slots <= MAX_SLOTS:
        raise UsageError(f"{slots} records per warp: the allowed range is 0..{MAX_SLOTS}")
    needed = 2 * SLOT_BYTES * slots if full == "ring" else HEADER_BYTES + SLOT_BYTES * (slots + slack)
    return max(MIN_SHIFT, (needed - 1).bit_length())


def capacity_of(shift: int, full: str, slack: int) -> int:
    """The number of slots in a track of 2**shift bytes."""
    if full == "ring":
        return (1 << shift) // (2 * SLOT_BYTES)
    return ((1 << shift) - HEADER_BYTES) // SLOT_BYTES - slack


def select_blocks(blocks: Collection[int] | int | slice | None) -> dict[str, tuple[int, ...]]:
    """Translate a user's `blocks=` (a count, a range, a slice or a list) into a field of `Selection`."""
    if blocks is None:
        return {}
    limit = (1 << 31) - 1
    if isinstance(blocks, int):
        return {"blocks": (0, blocks, 1)}
    if isinstance(blocks, slice):
        return {"blocks": (blocks.start or 0, limit if blocks.stop is None else blocks.stop, blocks.step or 1)}
    values = sorted(set(blocks))
    if not values:
        raise UsageError("blocks=[]: give at least one block")
    step = values[1] - values[0] if len(values) > 1 else 1
    if any(b - a != step for a, b in itertools.pairwise(values)):
        return {"listed": tuple(values)}
    return {"blocks": (values[0], values[-1] + 1, step)}
