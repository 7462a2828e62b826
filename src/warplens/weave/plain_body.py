"""A plain copy of a kernel's code next to the woven one, for blocks that do not record.

A clock read orders the instructions around it even in blocks that record nothing. So a kernel that records only some of
its blocks branches once, in its prologue: the selected blocks run the woven code, the others a copy without marks.
"""

from __future__ import annotations

from dataclasses import replace

from warplens.ptx.labels import jump_targets
from warplens.ptx.tree import Comment, Declaration, Directive, Function, Label, Node, PtxModule, Raw, Scope
from warplens.weave.block_index import linear_index, selected_index
from warplens.weave.function_weaver import is_code
from warplens.weave.mark_comments import is_mark
from warplens.weave.weaving import Selection, Weaving

_DEBUG_LABELS = ("$L__func_begin", "$L__func_end", "$L__tmp")
"""Labels that the debug sections name. They stay with the woven code; the copy needs those that it jumps to."""

_MEMORY = frozenset({"shared", "local", "global", "const"})
"""Spaces of variables that both copies share."""


class PlainCopies:
    """The kernels of a module before it is woven; `plain` is the module before automatic marks changed it."""

    def __init__(self, module: PtxModule, how: Weaving, plain: PtxModule | None) -> None:
        self._select, self._entries = how.select, dict[str, Function]()
        if how.plain_copy and _selects_blocks(how.select):
            source = plain or module.copy()
            text = module.text()
            if all(one.text().strip() in text for one in source.declarations):  # both copies share their memory
                self._entries = {one.name: one for one in source.entries}

    def add(self, function: Function) -> None:
        """Let the blocks that do not record run a plain copy of a woven kernel, if there is one."""
        if function.is_entry and function.name in self._entries:
            assert function.body is not None
            source = self._entries[function.name]
            targets = {id(label) for labels in jump_targets(source).values() for label in labels}
            plain = Scope("\n", "{", 0, _copy_of(source.body or [], targets), "\n}")
            # The plain copy comes first: most blocks run it, and a jump costs them time.
            label = f"$wl_record_{function.name}"
            # A mark stays next to the clock read that it stands for, where the verification looks for it.
            at = next(number for number, node in enumerate(function.body) if is_code(node) or is_mark(node))
            lines = [node for node in function.body[:at] if isinstance(node, Directive) and node.name == "loc"]
            # The woven code would otherwise start in the last line of the plain copy.
            again = [replace(line) for line in lines[-1:]]
            function.body[at:at] = [Raw.of(_dispatch(label, self._select)), plain, Raw.of(f"{label}:"), *again]


def _copy_of(nodes: list[Node], targets: set[int]) -> list[Node]:
    """The nodes of a plain copy: without marks, debug labels and memory, which both copies share. `targets` are the
    labels that the code jumps to, by `id`."""
    found: list[Node] = []
    for node in nodes:
        if isinstance(node, Comment) or (isinstance(node, Declaration) and node.space in _MEMORY):
            continue
        if isinstance(node, Label) and node.name.startswith(_DEBUG_LABELS) and id(node) not in targets:
            continue
        if isinstance(node, Scope):
            node = replace(node, body=_copy_of(node.body, targets))
        elif not isinstance(node, Label):
            node = replace(node)
        found.append(node)
    return found


def _selects_blocks(select: Selection) -> bool:
    """Whether some blocks do not record."""
    return select.blocks is not None or select.listed is not None


def _dispatch(label: str, select: Selection) -> str:
    """PTX that sends the selected blocks to `label`."""
    lines = [
        ".reg .b32 %wl_d0, %wl_d1, %wl_d2; .reg .pred %wl_dp;",
        *linear_index(select, "%wl_d2", "%wl_d0", "%wl_d1"),
        "setp.eq.u32 %wl_dp, %wl_d2, %wl_d2;",
        *selected_index(select, "%wl_d0", "%wl_d2", "%wl_dp"),
    ]
    return "\n".join("\t" + line for line in [*lines, f"@%wl_dp bra.uni {label};"])
