"""A plain copy of a kernel's code beside the woven one, for blocks that do not record.

A clock read orders the instructions around it even in blocks that record nothing. So a kernel that records only some of
its blocks branches once, in its prologue: the selected blocks run the woven code, the others a copy without marks.
"""

from __future__ import annotations

from dataclasses import replace

from warplens.ptx.tree import Comment, Declaration, Function, Label, Node, Raw, Scope
from warplens.weave.weaving import Selection

_DEBUG_LABELS = ("$L__func_begin", "$L__func_end", "$L__tmp")
"""Labels that the debug sections name; they stay with the woven code."""

_MEMORY = frozenset({"shared", "local", "global", "const"})
"""Spaces of variables that both copies share."""


def copy_of(nodes: list[Node]) -> list[Node]:
    """The nodes of a plain copy: without marks, debug labels and memory, which both copies share."""
    found: list[Node] = []
    for node in nodes:
        if isinstance(node, Comment) or (isinstance(node, Declaration) and node.space in _MEMORY):
            continue
        if isinstance(node, Label) and node.name.startswith(_DEBUG_LABELS):
            continue
        if isinstance(node, Scope):
            node = replace(node, body=copy_of(node.body))
        elif not isinstance(node, Label):
            node = replace(node)
        found.append(node)
    return found


def selects_blocks(select: Selection) -> bool:
    """Whether some blocks do not record."""
    return select.blocks is not None or select.listed is not None


def append_plain_body(function: Function, plain: list[Node]) -> None:
    """Append the plain copy behind the label to which the dispatch branches."""
    assert function.body is not None
    function.body.append(Raw.of(f"{label_of(function)}:"))
    function.body.append(Scope("\n", "{", 0, plain, "\n}"))


def dispatch(function: Function, select: Selection) -> str:
    """PTX that sends the blocks which are not selected to the plain copy."""
    lines = [
        ".reg .b32 %wl_d0, %wl_d1, %wl_d2; .reg .pred %wl_dp, %wl_dq;",
        "mov.u32 %wl_d0, %ctaid.z; mov.u32 %wl_d1, %nctaid.y; mov.u32 %wl_d2, %ctaid.y;",
        "mad.lo.u32 %wl_d2, %wl_d0, %wl_d1, %wl_d2; mov.u32 %wl_d0, %nctaid.x; mov.u32 %wl_d1, %ctaid.x;",
        "mad.lo.u32 %wl_d2, %wl_d2, %wl_d0, %wl_d1;",
    ]
    if select.listed is not None:
        lines.append("setp.ne.u32 %wl_dp, %wl_d2, %wl_d2;")
        lines += [f"setp.eq.or.u32 %wl_dp, %wl_d2, {block}, %wl_dp;" for block in select.listed]
    else:
        assert select.blocks is not None
        start, stop, step = select.blocks
        lines += [
            f"setp.ge.u32 %wl_dp, %wl_d2, {start}; setp.lt.and.u32 %wl_dp, %wl_d2, {stop}, %wl_dp;",
            f"sub.u32 %wl_d2, %wl_d2, {start}; rem.u32 %wl_d2, %wl_d2, {step};",
            "setp.eq.and.u32 %wl_dp, %wl_d2, 0, %wl_dp;",
        ]
    return "\n".join("\t" + line for line in [*lines, f"@!%wl_dp bra.uni {label_of(function)};"])


def label_of(function: Function) -> str:
    return f"$wl_plain_{function.name}"
