"""The class of an instruction, the name of its region, and its weight when work is attributed to source lines."""

from __future__ import annotations

import functools

_NOT_GLOBAL = frozenset({"shared", "shared::cta", "shared::cluster", "param", "param::entry", "local", "const"})
_FLOATS = frozenset({"f16", "f16x2", "bf16", "bf16x2", "f32", "f32x2", "f64", "tf32"})
_FREE = frozenset({"mov", "cvta", "ret", "exit", "bra", "nop"})
_SPECIAL_FUNCTIONS = frozenset({"div", "rem", "sqrt", "rsqrt", "rcp", "ex2", "lg2", "sin", "cos", "tanh"})
HEAVY = 4
"""The weight of an operation that is a source line's purpose; address arithmetic weighs 1, a copy 0."""

Kind = tuple[str, str]
"""A class of `rules.CLASSES`, and the prefix of its regions' names."""


@functools.lru_cache(maxsize=4096)  # a module has many instructions, and few different ones
def class_of(opcode: str, modifiers: tuple[str, ...]) -> tuple[Kind | None, int]:
    """The class and name prefix of an instruction, or None if it belongs to no class; and its weight."""
    kind = _kind(opcode, modifiers)
    return kind, _weight(opcode, modifiers, kind)


def _kind(opcode: str, modifiers: tuple[str, ...]) -> Kind | None:
    is_global = not _NOT_GLOBAL.intersection(modifiers)
    if opcode in ("ld", "ldu", "tex", "tld4", "suld"):
        return ("loads", "load") if is_global else None
    if opcode in ("st", "sust"):
        return ("stores", "store") if is_global else None
    if opcode in ("atom", "red"):
        return ("stores", "atomic") if is_global and "async" not in modifiers else None
    if opcode == "multimem":
        return ("loads", "load") if "ld_reduce" in modifiers else ("stores", "store")
    if opcode == "cp":
        waits = any(word.startswith("wait_") for word in modifiers)
        return ("waits", "wait") if waits else ("copies", "copy issue")
    if opcode == "mbarrier":
        return ("waits", "wait") if {"try_wait", "test_wait"}.intersection(modifiers) else None
    return _of_matrix(opcode, modifiers) or _of_warps(opcode, modifiers)


def _of_matrix(opcode: str, modifiers: tuple[str, ...]) -> Kind | None:
    if opcode == "mma" or (opcode == "wmma" and modifiers[:1] == ("mma",)):
        return "mma", "mma"
    if opcode == "wmma" and "global" in modifiers:
        return ("loads", "load") if modifiers[:1] == ("load",) else ("stores", "store")
    if opcode == "wgmma":
        return ("waits", "wait") if modifiers[:1] == ("wait_group",) else ("mma", "mma issue")
    if opcode == "tcgen05":
        if modifiers[:1] == ("wait",):
            return "waits", "wait"
        if modifiers[:1] == ("cp",):
            return "copies", "copy issue"
        return ("mma", "mma issue") if modifiers[:1] in (("mma",), ("commit",)) else None
    return None


def _of_warps(opcode: str, modifiers: tuple[str, ...]) -> Kind | None:
    if opcode in ("shfl", "redux", "vote", "match"):
        return "reduce", "reduce"
    if opcode in ("bar", "barrier") and "warp" not in modifiers:
        return "barriers", "barrier"
    if opcode == "griddepcontrol" and modifiers[:1] == ("wait",):
        return "waits", "wait"
    return None


def _weight(opcode: str, modifiers: tuple[str, ...], kind: Kind | None) -> int:
    if opcode in _FREE or (opcode == "ld" and {"param", "param::entry"}.intersection(modifiers)):
        return 0
    memory = opcode in ("ld", "st", "ldmatrix", "stmatrix", "membar", "fence", "call")
    if memory or opcode in _SPECIAL_FUNCTIONS or kind is not None:
        return HEAVY
    floats = bool(_FLOATS.intersection(modifiers)) and opcode not in ("cvt", "setp", "selp")
    return HEAVY if floats else 1
