"""What kind of work a SASS instruction does, from its opcode; and machine code by the sequence of its opcodes."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable

CLASSES = (
    "tensor", "fp64", "fp32", "fp16", "special", "integer", "convert", "copy",
    "load.global", "load.shared", "load.local", "load.constant", "load.generic", "load.tensor",
    "store.global", "store.shared", "store.local", "store.generic", "store.tensor",
    "atomic", "texture", "barrier", "shuffle", "branch", "move", "other",
)  # fmt: skip
"""Every class, in the order in which tables list them."""

_TABLE = {
    "tensor": "HMMA IMMA BMMA DMMA QMMA OMMA HGMMA IGMMA BGMMA QGMMA UTCHMMA UTCIMMA UTCQMMA UTCOMMA UTCMXQMMA",
    "fp64": "DADD DFMA DMUL DSETP DMNMX",
    "fp32": "FADD FADD2 FADD32I FCHK FFMA FFMA2 FFMA32I FMNMX FMNMX3 FMUL FMUL2 FMUL32I FSEL FSET FSETP FSWZADD",
    "fp16": "HADD2 HADD2_32I HFMA2 HFMA2_32I HMNMX2 HMUL2 HMUL2_32I HSET2 HSETP2 VHMNMX",
    "special": "MUFU",
    "integer": "BMSK BREV FLO IABS IADD IADD3 IADD32I IDP IDP4A IMAD IMNMX IMUL IMUL32I ISCADD ISCADD32I ISETP LEA LOP "
    "LOP3 LOP32I POPC SHF SHL SHR VABSDIFF VABSDIFF4 VIADD VIMNMX VIMNMX3 VIADDMNMX PLOP3 PSETP PRMT SEL SGXT P2R R2P "
    "P2UR UR2UP VIADD2 IADD64 IMAD64 ISETP64",
    "convert": "F2F F2I F2FP I2F I2I I2IP I2FP F2IP FRND",
    "copy": "LDGSTS BLKCP TMALDG TMASTG TMAREDG TMAPF TCCP BLKRED BLKPF",
    "load.global": "LDG LDGMC",
    "load.shared": "LDS LDSM",
    "load.local": "LDL",
    "load.constant": "LDC LDCU",
    "load.generic": "LD",
    "load.tensor": "LDTM LDT",
    "store.global": "STG",
    "store.shared": "STS STSM STAS",
    "store.local": "STL",
    "store.generic": "ST",
    "store.tensor": "STTM STT",
    "atomic": "ATOM ATOMG ATOMS RED REDG REDAS SUATOM SURED",
    "texture": "TEX TLD TLD4 TMML TXD TXQ SULD SUST",
    "barrier": "BAR DEPBAR LDGDEPBAR LDGSTS.ARVB ARRIVES SYNCS WARPSYNC MEMBAR FENCE ERRBAR CCTL CCTLL CCTLT NANOSLEEP "
    "WARPGROUP WARPGROUPSET CGABAR_ARV CGABAR_WAIT CGABAR_GET CGABAR_SET ACQBULK ACQSHMINIT TCBAR TMACCTL TMACMDFLUSH "
    "LDTMWAIT DEPBARWAIT ELECT SETMAXREG USETMAXREG ENDCOLLECTIVE CGAERRBAR PREEXIT",
    "shuffle": "SHFL VOTE VOTEU MATCH REDUX CREDUX",
    "branch": "BRA BRX BRXU JMP JMX JMXU CALL RET EXIT KILL BPT BREAK BSSY BSYNC BMOV WARPGROUPBAR YIELD RTT",
    "move": "MOV MOV32I S2R CS2R S2UR R2UR UR2R R2B B2R LEPC MOVM GETLMEMBASE SETLMEMBASE",
}
_CLASS_OF = {opcode: kind for kind, opcodes in _TABLE.items() for opcode in opcodes.split()}


@functools.cache
def class_of(opcode: str) -> str:
    """The class of a full opcode such as `IMAD.MOV.U32` or `ULOP3.LUT`."""
    base, _, modifiers = opcode.partition(".")
    if base in ("IMAD", "UIMAD") and modifiers.startswith("MOV"):
        return "move"
    if base == "ULDC":
        return "load.constant"
    if base == "CCTL" and ".PF" in opcode:
        return "copy"  # a prefetch
    for name in (base, base.removeprefix("U")):
        if name in _CLASS_OF:
            return _CLASS_OF[name]
    return "tensor" if base.endswith("MMA") else "other"


def opcode_fingerprint(texts: Iterable[str]) -> str:
    """A short hash of the sequence of opcodes, without modifiers, which listings of other versions spell differently,
    and without the padding behind the last exit."""
    opcodes = [opcode_of(text).partition(".")[0] for text in texts]
    while opcodes and opcodes[-1] in ("NOP", "BRA", ""):
        opcodes.pop()
    return hashlib.sha256(" ".join(opcodes).encode()).hexdigest()[:16] if opcodes else ""


def opcode_of(text: str) -> str:
    """The opcode of an instruction as listings print it, behind its predicate."""
    words = text.split()
    at = 1 if words and words[0].startswith("@") else 0
    return words[at].rstrip(";") if len(words) > at else ""
