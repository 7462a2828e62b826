"""The targets of a function's jumps, and its implicit return.

A label is local to the braces around it: compilers repeat inline asm, and with it the names of its labels.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Iterator, MutableMapping

from warplens.ptx.tree import Comment, Directive, Function, Instruction, Label, Node, Scope

JUMPS = frozenset({"bra", "brx"})
TERMINATORS = frozenset({*JUMPS, "ret", "exit", "trap"})
"""What ends a basic block."""
_LISTS = ("branchtargets", "callprototype")
_NAME = re.compile(r"[\w$]+")
Labels = MutableMapping[str, Label]
"""The labels that code can name, by name."""


def jump_targets(function: Function) -> dict[int, list[Label]]:
    """The possible targets of each jump, keyed by the `id` of the jump node."""
    found: dict[int, list[Label]] = {}
    tables = table_labels(function.body or [])
    for jump, scope in _jumps(function.body or [], {}):
        labels = [scope[word] for word in _NAME.findall(jump.arguments) if word in scope]
        if tables:
            named = [word for label in labels for word in tables.get(id(label), [label.name])]
            labels = [scope[word] for word in named if word in scope]
        found[id(jump)] = labels
    return found


def table_labels(body: list[Node]) -> dict[int, list[str]]:
    """Labels that name a table (`.branchtargets`) or a prototype rather than a place in the code.

    Keyed by the `id` of the label node; the value is the list of names in the table.
    """
    found: dict[int, list[str]] = {}
    label: Label | None = None
    for node in body:
        if isinstance(node, Instruction):
            label = None
        elif isinstance(node, Label):
            label = node
        elif not isinstance(node, Comment):
            if isinstance(node, Scope):
                found |= table_labels(node.body)
            elif label is not None and isinstance(node, Directive) and node.name in _LISTS:
                found[id(label)] = _NAME.findall(node.arguments)
            label = None
    return found


def end_with_return(function: Function) -> None:
    """Append the `ret` that PTX allows to be omitted at the end, because exits are found by their instructions."""
    if function.body is None:
        return
    behind: set[int] = set()
    """Labels behind the last instruction."""
    last: Instruction | None = None
    for node in _backwards(function.body):
        if isinstance(node, Instruction):
            last = node
            break
        if isinstance(node, Label):
            behind.add(id(node))
    if last is None or last.predicate or last.opcode not in TERMINATORS or (behind and _is_target(function, behind)):
        function.body.append(Instruction("\n\t", "ret;", 0, opcode="ret"))


def _is_target(function: Function, labels: set[int]) -> bool:
    """Whether something jumps to one of `labels`, given by their `id`."""
    return any(id(label) in labels for targets in jump_targets(function).values() for label in targets)


def _backwards(body: list[Node]) -> Iterator[Node]:
    for node in reversed(body):
        if isinstance(node, Scope):
            yield from _backwards(node.body)
        else:
            yield node


def _jumps(body: list[Node], outer: Labels) -> Iterator[tuple[Instruction, Labels]]:
    own = {node.name: node for node in body if isinstance(node, Label)}
    scope = outer if not own else ChainMap(own, outer) if outer else own
    for node in body:
        if isinstance(node, Instruction):
            if node.opcode in JUMPS:
                yield node, scope
        elif isinstance(node, Scope):
            yield from _jumps(node.body, scope)
