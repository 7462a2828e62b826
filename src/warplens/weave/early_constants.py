"""Build the constants of a region's fma instructions before its begin mark.

An fma with two immediates needs one of them in a register. ptxas materialises it before the first such fma of a basic
block, but a clock read stops it from moving further up, so after a begin mark it lands inside the region. Depending on
the pipe that ptxas chooses, the region then reads 5, 7 or 11 cycles too long. The weaver therefore builds the constant
itself, before the clock read. It is built from a zero that depends on a register the loop changes, so that ptxas cannot
hoist it out of the loop: otherwise the first fma would follow the clock read at once, and because of the stall counts
a region of 64 fmas would read 254 cycles instead of 256.
"""

from __future__ import annotations

import re

from warplens.ptx.tree import Instruction
from warplens.weave.mark_sites import MarkBlock
from warplens.weave.track_ptx import ZERO

MAX_CONSTANTS = 4
"""The maximum number of constants that one block keeps in registers."""
_F32 = re.compile(r"0[fF]([0-9A-Fa-f]{8})")


def build_constants(block: MarkBlock, register: str, changing: str) -> tuple[list[str], list[str]]:
    """Rewrite the block's fmas to read their constants from registers.

    Returns the PTX that builds the constants, and their registers. `changing` is a register that changes in every
    iteration of the loop.
    """
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
    """The bits of the immediate factor of an fma that also has an immediate addend, else None."""
    if instruction.opcode != "fma" or instruction.modifiers[-1:] != ("f32",) or instruction.predicate:
        return None
    operands = instruction.operands
    if len(operands) < 4:
        return None
    factor, addend = _F32.fullmatch(operands[2]), _F32.fullmatch(operands[3])
    return factor[1].lower() if factor and addend else None
