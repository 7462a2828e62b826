"""What PTX instructions do with barriers: which barrier, which phase, and whether they wait."""

from __future__ import annotations

import re
from dataclasses import dataclass

from warplens.ptx.tree import Instruction

_ADDRESS = re.compile(r"\[\s*([%\w$.]+)\s*(?:\+\s*(-?\d+))?\s*\]")
_BYTES = "mbarrier::complete_tx::bytes"
_OPCODES = frozenset({"mbarrier", "cp", "st", "red", "tcgen05", "bar", "barrier"})
CLUSTER_SPACE, CTA_SPACES = "shared::cluster", ("shared", "shared::cta")


@dataclass(frozen=True)
class BarrierUse:
    """One instruction's use of a barrier.

    `does` is arrive, copy, wait, wait_state, sync, named_arrive, cluster_arrive, cluster_wait, remote_arrive or
    multicast. `address` is a register or symbol with `offset`, or the number of a named barrier; `generic` says that it
    is a generic address. `parity`, `threads` and `mask` are operands, empty if absent; `done` is the predicate that a
    test of the barrier sets.
    """

    does: str
    address: str
    offset: int = 0
    generic: bool = False
    parity: str = ""
    threads: str = ""
    mask: str = ""
    done: str = ""


def barrier_use(instruction: Instruction) -> BarrierUse | None:
    """What an instruction does with a barrier; None if nothing, or nothing that can be told from its text."""
    opcode, modifiers = instruction.opcode, instruction.modifiers
    if opcode not in _OPCODES:
        return None
    operands = list(instruction.operands)
    if opcode == "mbarrier":
        return _of_mbarrier(modifiers, operands)
    if opcode in ("cp", "st", "red") and _BYTES in modifiers:
        return _of_copy(opcode, modifiers, operands)
    if opcode == "cp" and modifiers[:3] == ("async", "mbarrier", "arrive"):
        return _at("copy", _bracketed(operands)[:1], modifiers)
    if opcode == "tcgen05" and modifiers[:1] == ("commit",):
        return _at("copy", _bracketed(operands)[:1], (*modifiers, "shared"))
    if opcode in ("bar", "barrier") and "warp" not in modifiers:
        return _of_named(modifiers, operands)
    return None


def _of_mbarrier(modifiers: tuple[str, ...], operands: list[str]) -> BarrierUse | None:
    what = modifiers[0] if modifiers else ""
    if what in ("try_wait", "test_wait") and len(operands) > 2:
        does = "wait" if "parity" in modifiers else "wait_state"
        parity = operands[2] if does == "wait" else ""
        return _at(does, operands[1:2], modifiers, parity=parity, done=operands[0])
    if what in ("arrive", "arrive_drop"):
        remote = CLUSTER_SPACE in modifiers
        does = "copy" if "expect_tx" in modifiers and not remote else "remote_arrive" if remote else "arrive"
        return _at(does, _bracketed(operands)[:1], modifiers)
    if what in ("expect_tx", "complete_tx") and CLUSTER_SPACE not in modifiers:
        return _at("copy", _bracketed(operands)[:1], modifiers)
    return None


def _of_copy(opcode: str, modifiers: tuple[str, ...], operands: list[str]) -> BarrierUse | None:
    """A bulk copy or an asynchronous store: the barrier is the last address."""
    addresses = _bracketed(operands)
    if opcode != "cp":
        return _at("remote_arrive", addresses[-1:], (*modifiers, CLUSTER_SPACE))
    if "multicast::cluster" not in modifiers:
        return _at("copy", addresses[-1:], (*modifiers, "shared"))
    behind = operands[operands.index(addresses[-1]) + 1 :]
    masks = [operand for operand in behind if not operand.startswith("{")]
    return _at("multicast", addresses[-1:], (*modifiers, "shared"), mask=masks[0] if masks else "")


def _of_named(modifiers: tuple[str, ...], operands: list[str]) -> BarrierUse | None:
    if "cluster" in modifiers:
        if "arrive" in modifiers:
            return BarrierUse("cluster_arrive", "")
        return BarrierUse("cluster_wait", "") if "wait" in modifiers else None
    if "red" in modifiers:  # its first operand is the result
        operands = operands[1:-1]
    if not operands:
        return None
    does = "named_arrive" if "arrive" in modifiers else "sync"
    return BarrierUse(does, operands[0], threads=operands[1] if len(operands) > 1 else "")


def _at(does: str, address: list[str], modifiers: tuple[str, ...], **operands: str) -> BarrierUse | None:
    found = _ADDRESS.fullmatch(address[0].strip()) if address else None
    if found is None:
        return None
    known_space = CLUSTER_SPACE in modifiers or any(space in modifiers for space in CTA_SPACES)
    return BarrierUse(does, found[1], int(found[2] or 0), generic=not known_space, **operands)


def _bracketed(operands: list[str]) -> list[str]:
    return [operand for operand in operands if operand.startswith("[")]
