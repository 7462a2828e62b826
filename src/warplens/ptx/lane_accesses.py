"""How many sectors or banks the lanes of a warp touch with one access to memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from warplens.ptx.lane_values import LANES, LaneValues
from warplens.ptx.syntax import SCALAR_BYTES
from warplens.ptx.tree import Instruction

SECTOR, BANKS, WORD = 32, 32, 4
ACCESSES = frozenset({"ld", "st", "ldu"})
_SPACES = frozenset({"global", "shared", "local"})


@dataclass(frozen=True)
class LaneAccess:
    """One load or store. `waste` is the bytes of the sectors that it touches over the bytes that lanes use: 1 where
    neighbours access neighbours. `ways` is how many lanes of it share a bank of shared memory. Both are 0 where lanes
    are `scattered` by values that are known only at run time."""

    space: str
    is_load: bool
    width: int
    waste: float = 0.0
    ways: int = 0
    lanes: tuple[tuple[int, int], ...] = ()
    """Of each lane, its row and its first byte, up to an offset that accesses to the same array share."""

    @cached_property
    def step(self) -> float:
        """Bytes from one lane to the next within a row, the median."""
        pairs = zip(self.lanes, self.lanes[1:], strict=False)
        return float(np.median([abs(b - a) for (row, a), (other, b) in pairs if row == other] or [SECTOR + 1]))

    @cached_property
    def differs(self) -> bool:
        """Whether lanes access different addresses."""
        return len(set(self.lanes)) > 1

    @cached_property
    def shape(self) -> tuple[tuple[tuple[int, int], ...], int]:
        """How its lanes lie to the first one, and its width."""
        row, first = self.lanes[0]
        return tuple((other - row, at - first) for other, at in self.lanes), self.width

    @property
    def scattered(self) -> bool:
        return not self.waste and not self.ways


def accessed_address(instruction: Instruction) -> str:
    """The address operand of a plain load or store; empty for other instructions."""
    if instruction.opcode not in ACCESSES or not _space(instruction) or not (operands := instruction.operands):
        return ""
    return operands[0] if instruction.opcode == "st" else operands[-1]


def _space(instruction: Instruction) -> str:
    spaces = (name.partition("::")[0] for name in instruction.modifiers)
    return next((space for space in spaces if space in _SPACES), "")


def lane_access(
    instruction: Instruction, values: LaneValues, active: Sequence[int] = range(LANES)
) -> LaneAccess | None:
    """The access of a plain load or store by the lanes that are `active`; None for other instructions."""
    operand = accessed_address(instruction)
    if not operand:
        return None
    space, is_load, width = _space(instruction), instruction.opcode != "st", access_width(instruction)
    address = values.address(operand)
    if address.lanes is None:
        return LaneAccess(space, is_load, width)
    chosen = list(active)
    lanes, rows = (
        (address.lanes, address.rows) if len(chosen) == LANES else (address.lanes[chosen], address.rows[chosen])
    )
    if space == "shared":
        # Rows that are a run-time amount apart may or may not share a bank.
        at = lanes - int(lanes.min())
        return LaneAccess(space, is_load, width, ways=0 if rows.any() else _ways(at.tobytes(), width))
    return _global(space, is_load, width, rows.tobytes(), lanes.tobytes())


@lru_cache(4096)
def _global(space: str, is_load: bool, width: int, rows: bytes, lanes: bytes) -> LaneAccess:
    at = np.frombuffer(lanes, np.int64)
    found = tuple(zip(np.frombuffer(rows, np.int64).tolist(), at.tolist(), strict=True))
    return LaneAccess(space, is_load, width, _waste_of_one(width, rows, (at - at.min()).tobytes()), lanes=found)


@lru_cache(4096)
def _waste_of_one(width: int, rows: bytes, lanes: bytes) -> float:
    """The waste of one access; it does not depend on where the first lane is, so many accesses share it."""
    pairs = zip(np.frombuffer(rows, np.int64).tolist(), np.frombuffer(lanes, np.int64).tolist(), strict=True)
    return waste([(tuple(pairs), width)])


def access_width(instruction: Instruction) -> int:
    sizes = [SCALAR_BYTES[name] for name in instruction.modifiers if name in SCALAR_BYTES]
    vector = next((int(name[1:]) for name in instruction.modifiers if name in ("v2", "v4", "v8")), 1)
    return (sizes[-1] if sizes else WORD) * vector


def waste(accesses: Sequence[tuple[Sequence[tuple[int, int]], int]]) -> float:
    """The bytes of the sectors that accesses touch together over the bytes that they use. Each access is the rows and
    first bytes of its lanes, and its width."""
    first = min(at for lanes, _ in accesses for _, at in lanes)
    used = {(row, at - first + byte) for lanes, width in accesses for row, at in lanes for byte in range(width)}
    if len(used) <= accesses[0][1]:
        return 1.0  # all lanes at one address need one sector anyway
    return len({(row, at // SECTOR) for row, at in used}) * SECTOR / len(used)


def largest_waste(accesses: Sequence[LaneAccess]) -> float:
    """The largest waste of accesses. Those whose lanes are less than a sector apart may fill one another's gaps, as the
    words of a vector that is loaded word by word do; lanes that are further apart have sectors of their own."""
    alike: dict[object, list[LaneAccess]] = {}
    largest = 0.0
    for one in accesses:
        if one.differs and one.step <= SECTOR:
            alike.setdefault(one.shape, []).append(one)
        elif one.differs:
            largest = max(largest, one.waste)
    together = (
        waste([(one.lanes, one.width) for one in some]) if len(some) > 1 else some[0].waste for some in alike.values()
    )
    return max(largest, *together, 0.0) or (1.0 if accesses else 0.0)


@lru_cache(4096)
def _ways(lanes: bytes, width: int) -> int:
    """A wide access is made in parts, of as many lanes as have 32 words together."""
    at = np.frombuffer(lanes, np.int64)
    part = max(LANES * WORD // max(width, WORD), 1)
    most = 1
    for first in range(0, len(at), part):
        words = np.unique((at[first : first + part, None] + np.arange(0, max(width, WORD), WORD)[None, :]) // WORD)
        most = max(most, int(np.bincount(words % BANKS).max()))
    return most
