"""How many sectors or banks the lanes of a warp touch with one access to memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from warplens.ptx.lane_values import LANES, Lanes, LaneValues
from warplens.ptx.syntax import SCALAR_BYTES
from warplens.ptx.tree import Instruction

SECTOR, BANKS, WORD = 32, 32, 4
_ACCESSES = frozenset({"ld", "st", "ldu"})
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

    @property
    def scattered(self) -> bool:
        return not self.waste and not self.ways


def lane_access(instruction: Instruction, values: LaneValues) -> LaneAccess | None:
    """The access of a plain load or store; None for other instructions."""
    space = next((name for name in instruction.modifiers if name.partition("::")[0] in _SPACES), "")
    if instruction.opcode not in _ACCESSES or not space:
        return None
    space = space.partition("::")[0]
    is_load = instruction.opcode != "st"
    width = _width(instruction)
    operands = instruction.operands
    if not operands:
        return None
    address = values.address(operands[-1] if is_load else operands[0])
    if address.lanes is None:
        return LaneAccess(space, is_load, width)
    if space == "shared":
        # Rows that are a run-time amount apart may or may not share a bank.
        at = address.lanes - int(address.lanes.min())
        return LaneAccess(space, is_load, width, ways=0 if address.rows.any() else _ways(at, width))
    lanes = tuple(zip(address.rows.tolist(), address.lanes.tolist(), strict=True))
    return LaneAccess(space, is_load, width, waste([(lanes, width)]), lanes=lanes)


def _width(instruction: Instruction) -> int:
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
    apart = [one for one in accesses if len(set(one.lanes)) > 1]
    for one in apart:
        row, first = one.lanes[0]
        shape = tuple((other - row, at - first) for other, at in one.lanes), one.width
        alike.setdefault(shape if _step(one) <= SECTOR else id(one), []).append(one)
    return max(
        (waste([(one.lanes, one.width) for one in some]) for some in alike.values()), default=1.0 if accesses else 0.0
    )


def _step(access: LaneAccess) -> float:
    """Bytes from one lane to the next within a row, the median."""
    pairs = zip(access.lanes, access.lanes[1:], strict=False)
    return float(np.median([abs(b - a) for (row, a), (other, b) in pairs if row == other] or [SECTOR + 1]))


def _ways(at: Lanes, width: int) -> int:
    """A wide access is made in parts, of as many lanes as have 32 words together."""
    part = max(LANES * WORD // max(width, WORD), 1)
    most = 1
    for first in range(0, LANES, part):
        words = np.unique((at[first : first + part, None] + np.arange(0, max(width, WORD), WORD)[None, :]) // WORD)
        most = max(most, int(np.bincount(words % BANKS).max()))
    return most
