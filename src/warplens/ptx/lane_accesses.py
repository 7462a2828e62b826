"""How many sectors or banks the lanes of a warp touch with one access to memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from warplens.ptx.lane_values import LANES, Lanes, LaneValues
from warplens.ptx.syntax import SCALAR_BYTES
from warplens.ptx.tree import Instruction

SECTOR, BANKS, WORD = 32, 32, 4
_FAR = 1 << 20
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
    pattern: bytes = b""
    """Equal for accesses whose lanes are the same distances apart."""
    step: int = 0
    """Bytes from one lane to the next within a row, the median."""

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
    at = address.lanes - int(address.lanes.min())
    if space == "shared":
        # Rows that are a run-time amount apart may or may not share a bank.
        return LaneAccess(space, is_load, width, ways=0 if address.rows.any() else _ways(at, width))
    steps = np.abs(np.diff(at))[np.diff(address.rows) == 0]
    pattern = at.tobytes() + address.rows.tobytes() + bytes([min(width, 255)])
    step = int(np.median(steps)) if len(steps) else _FAR
    return LaneAccess(space, is_load, width, _waste(at, address.rows, width), pattern=pattern, step=step)


def _width(instruction: Instruction) -> int:
    sizes = [SCALAR_BYTES[name] for name in instruction.modifiers if name in SCALAR_BYTES]
    vector = next((int(name[1:]) for name in instruction.modifiers if name in ("v2", "v4", "v8")), 1)
    return (sizes[-1] if sizes else WORD) * vector


def _waste(at: Lanes, rows: Lanes, width: int) -> float:
    every = at[:, None] + np.arange(width)[None, :]
    row = np.broadcast_to(rows[:, None], every.shape)
    touched = {(one, byte) for one, byte in zip(row.flat, (every // SECTOR).flat, strict=True)}
    used = {(one, byte) for one, byte in zip(row.flat, every.flat, strict=True)}
    # All lanes at one address need one sector anyway.
    return len(touched) * SECTOR / len(used) if len(used) > width else 1.0


def _ways(at: Lanes, width: int) -> int:
    """A wide access is made in parts, of as many lanes as have 32 words together."""
    part = max(LANES * WORD // max(width, WORD), 1)
    most = 1
    for first in range(0, LANES, part):
        words = np.unique((at[first : first + part, None] + np.arange(0, max(width, WORD), WORD)[None, :]) // WORD)
        most = max(most, int(np.bincount(words % BANKS).max()))
    return most
