"""The targets of a function's jumps, and its implicit return.

A label is local to the braces around it: compilers repeat inline asm, and with it the names of its labels.
"""

from __future__ import annotations

import itertools
import re
from collections import ChainMap
from collections.abc import Iterator

from warplens.ptx.tree import Comment, Directive, Function, Instruction, Label, Node, Scope

JUMPS = frozenset({"bra", "brx"})
_LISTS = ("branchtargets", "callprototype")
_NAME = re.compile(r"[\w$]+")


def jump_targets(function: Function) -> dict[int, list[Label]]:
    """The possible targets of each jump, keyed by the `id` of the jump node."""
    found: dict[int, list[Label]] = {}
    tables = table_labels(function.body or [])
    for jump, scope in _jumps(function.body or [], ChainMap()):
        labels = [scope[word] for word in _NAME.findall(jump.arguments) if word in scope]
        named = [word for label in labels for word in tables.get(id(label), [label.name])]
        found[id(jump)] = [scope[word] for word in named if word in scope]
    return found


def table_labels(body: list[Node]) -> dict[int, list[str]]:
    """Labels that name a table (`.branchtargets`) or a prototype rather than a place in the code.

    Keyed by the `id` of the label node; the value is the list of names in the table.
    """
    found: dict[int, list[str]] = {}
    meant = [node for node in body if not isinstance(node, Comment)]
    for node, following in itertools.zip_longest(meant, meant[1:]):
        if isinstance(node, Scope):
            found |= table_labels(node.body)
        elif isinstance(node, Label) and isinstance(following, Directive) and following.name in _LISTS:
            found[id(node)] = _NAME.findall(following.arguments)
    return found


def end_with_return(function: Function) -> None:
    """Append the `ret` that PTX allows to be omitted at the end, because exits are found by their instructions."""
    if function.body is None:
        return
    named = {id(label) for labels in jump_targets(function).values() for label in labels}
    meant = [node for node in function.walk() if isinstance(node, Instruction) or id(node) in named]
    last = meant[-1] if meant else None
    if not isinstance(last, Instruction) or last.predicate or last.opcode not in (*JUMPS, "ret", "exit", "trap"):
        function.body.append(Instruction("\n\t", "ret;", 0, opcode="ret"))


def _jumps(body: list[Node], outer: ChainMap[str, Label]) -> Iterator[tuple[Instruction, ChainMap[str, Label]]]:
    scope = outer.new_child({node.name: node for node in body if isinstance(node, Label)})
    for node in body:
        if isinstance(node, Scope):
            yield from _jumps(node.body, scope)
        elif isinstance(node, Instruction) and node.opcode in JUMPS:
            yield node, scope
