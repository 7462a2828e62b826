"""Number the lines of a PTX text by `.loc`, for compilers that keep no table of PTX lines, such as the driver's linker.

The numbers are those of the original text. `.loc` adds no instruction; that the machine code stays the same is tested.
"""

from __future__ import annotations

from warplens.ptx.syntax import INTERMEDIATE_SOURCES
from warplens.ptx.tree import Directive, Function, Instruction, Node, PtxModule, Raw, Scope, parse

FILE = "warplens.ptx"
"""The file that the line table names."""
_NUMBER = 1


def numbered_ptx(text: str) -> str:
    """The text with a `.loc` before each instruction and without its own `.loc` and `.file`."""
    module = parse(text.partition("\0")[0])
    numbered = PtxModule(module.version, module.target, module.address_size, [], module.tail)
    for item in module.items:
        if isinstance(item, Directive) and (item.name == "file" or item.raw.startswith(INTERMEDIATE_SOURCES)):
            continue  # the latter names files by their numbers
        if isinstance(item, Function) and item.body is not None:
            item.body = _numbered(item.body)
        numbered.items.append(item)
    return f'{numbered.text().rstrip()}\n.file {_NUMBER} "{FILE}"\n'


def _numbered(body: list[Node]) -> list[Node]:
    made: list[Node] = []
    for node in body:
        if isinstance(node, Directive) and node.name in ("loc", "loc_intermediate"):
            continue
        if isinstance(node, Scope):
            node.body = _numbered(node.body)
        elif isinstance(node, Instruction):
            made.append(Raw.of(f"\t.loc {_NUMBER} {node.line} 1"))
            node.lead = "\n\t"
        made.append(node)
    return made
