"""What a launch of which only some blocks were recorded knows of the others."""

from __future__ import annotations

import math

from warplens.errors import CaptureError
from warplens.record.block_lives import BlockLives, unpack_lives
from warplens.record.capture import BLOCK_LIVES, SAMPLED
from warplens.trace.schema import LaunchInfo


def known_lives(info: LaunchInfo, known: int) -> BlockLives:
    """The lifetimes of all blocks of a sampled launch."""
    try:
        lives = unpack_lives(str(info.extra[BLOCK_LIVES]), known)
        if known and lives.number[-1] >= math.prod(info.grid):
            raise ValueError(f"holds block {lives.number[-1]} of a grid of {info.grid}")
        return lives
    except ValueError as error:
        raise CaptureError(f"launch {info.launch} of {info.kernel}", BLOCK_LIVES, str(error), "record again") from None


def known_blocks(info: LaunchInfo | None, recorded: int) -> int:
    """Blocks of a launch whose lifetimes are known. A sample that was cut further is a selection of its own."""
    share = info.extra.get(SAMPLED) if info else None
    if info is None or share is None or BLOCK_LIVES not in info.extra or share.get("with_records") != recorded:
        return recorded
    return int(share["known"])


def known_sms(info: LaunchInfo | None) -> int:
    """SMs that ran blocks of a sampled launch; 0 for other launches, whose rows tell."""
    return int(info.extra.get(SAMPLED, {}).get("sms", 0)) if info else 0
