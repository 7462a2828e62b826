"""Check the operands of marks before they are woven: ptxas would name a line of the woven text instead of the mark."""

from __future__ import annotations

import re
from collections.abc import Iterable

from warplens.ptx.syntax import PtxError
from warplens.ptx.tree import Declaration, Function
from warplens.weave.mark_comments import Mark

_INTEGERS = frozenset({"b32", "u32", "s32", "b64", "u64", "s64"})
_LONG = frozenset({"b64", "u64", "s64", "f64"})
_TAG = "tag"
_REGISTER_TYPES = {
    "s32": _INTEGERS, "u32": _INTEGERS, "s64": _LONG, "u64": _LONG, "f64": _LONG,
    "f32": frozenset({"b32", "f32", "b64"}), _TAG: frozenset({"b32", "u32", "s32", "f32"}),
}  # fmt: skip
"""The types of registers that ptxas accepts where the weaver reads a value or an async tag."""
_INTEGER, _FLOAT = r"-?\d+|0[xX][0-9A-Fa-f]+", r"0[fF][0-9A-Fa-f]{8}|0[dD][0-9A-Fa-f]{16}|-?\d+\.\d*(?:[eE][-+]?\d+)?"
_LONG_FLOAT = _FLOAT.partition("|")[2]
_NUMBERS = {
    kind: re.compile(pattern)
    for pattern, kinds in (
        (_INTEGER, ("s32", "u32", _TAG)), (f"{_INTEGER}|{_LONG_FLOAT}", ("s64", "u64", "f64")), (_FLOAT, ("f32",))
    )
    for kind in kinds
}  # fmt: skip
_SPECIAL = re.compile(r"%(?:laneid|n?warpid|n?smid|lanemask_(?:eq|le|lt|ge|gt)|clock(?:_hi)?|globaltimer_(?:lo|hi))")
_LONG_SPECIAL = frozenset({"%clock64", "%globaltimer"})
_FAMILY = re.compile(r"(.*?)(\d+)")


def check_operands(function: Function, marks: Iterable[Mark]) -> None:
    """Raise a `PtxError` at the first mark whose operand ptxas would not accept."""
    all_marks = list(marks)
    given = [mark for mark in all_marks if mark.operand]
    types = _register_types(function) if any(mark.operands for mark in all_marks) else {}
    for mark in all_marks:
        for name in mark.barrier.registers if mark.barrier is not None else ():
            if not _types_of(name, types):
                raise _refused(function, mark, f"the function declares no register {name}")
    for mark in given:
        kind = mark.type or _TAG
        if not mark.operand.startswith("%"):
            if not _NUMBERS[kind].fullmatch(mark.operand):
                raise _refused(function, mark, f"{mark.operand} is not a number of type {kind}")
            continue
        declared = _types_of(mark.operand, types)
        if not declared:
            raise _refused(function, mark, f"the function declares no register {mark.operand}")
        if not declared & _REGISTER_TYPES[kind]:
            raise _refused(function, mark, f"{mark.operand} is declared as .{min(declared)}, which is no {kind}")


def _register_types(function: Function) -> dict[str, set[str]]:
    """The types with which each register is declared, families as `%r<`: scopes may repeat names."""
    found: dict[str, set[str]] = {}
    for node in function.walk():
        if isinstance(node, Declaration) and node.space == "reg":
            for variable in node.variables:
                name = variable.name + "<" if variable.count is not None else variable.name
                found.setdefault(name, set()).add(node.type)
    for param in (*function.params, *function.returns):
        if param.space == "reg":
            found.setdefault(param.name, set()).add(param.type)
    return found


def _types_of(register: str, types: dict[str, set[str]]) -> set[str]:
    if _SPECIAL.fullmatch(register):
        return {"u32"}
    if register in _LONG_SPECIAL:
        return {"u64"}
    family = _FAMILY.fullmatch(register)
    return types.get(register, set()) | (types.get(family[1] + "<", set()) if family else set())


def _refused(function: Function, mark: Mark, problem: str) -> PtxError:
    return PtxError(mark.line, mark.name, f"wrong operand of a mark: {problem}", "", function.name)
