"""Constants that a region needs, built before its begin mark.

An fma with two immediates needs one of them in a register. ptxas builds it in front of the first such fma of a basic
block, and a clock read keeps it from moving further up: after a begin mark that is inside the region. Which pipe
builds it ptxas decides by counting the kernel's instructions, so the same region reads 5, 7 or 11 cycles too long.
Here the weaver builds it, in front of the clock read, from a zero that changes with the loop so that it stays there:
built once for all turns, the first fma would follow the clock read at once, and by the stall counts 64 would read 254.
"""

from __future__ import annotations

import re

from warplens.ptx.tree import Instruction
from warplens.weave.mark_sites import MarkBlock
from warplens.weave.track_ptx import ZERO

MAX_CONSTANTS = 4
"""Constants that one block may hold in registers of their own."""
_F32 = re.compile(r"0[fF]([0-9A-Fa-f]{8})")


def build_constants(block: MarkBlock, register: str, changing: str) -> tuple[list[str], list[str]]:
    """Rewrite the block's fmas; the text that builds their constants and the registers it names. `changing` is a
    register that each turn of the loop changes."""
    names: dict[str, str] = {}
    for instruction in block.inside if block.in_loop else []:
        bits = _constant(instruction)
        if bits is None or (bits not in names and len(names) == MAX_CONSTANTS):
            continue
        name = names.setdefault(bits, f"{register}_{len(names)}")
        head, arguments = instruction.raw.split(None, 1)
        instruction.raw = f"{head} " + re.sub(rf"0[fF]{bits}", name, arguments, count=1, flags=re.IGNORECASE)
    return [f"\tmad.lo.u32 {name}, {ZERO}, {changing}, 0x{bits};" for bits, name in names.items()], list(names.values())


def _constant(instruction: Instruction) -> str | None:
    """The bits of the immediate that an fma multiplies by when it also adds one."""
    if instruction.opcode != "fma" or instruction.modifiers[-1:] != ("f32",) or instruction.predicate:
        return None
    operands = instruction.operands
    factor, addend = _F32.fullmatch(operands[2]), _F32.fullmatch(operands[3])
    return factor[1].lower() if factor and addend else None
