"""Regions in the source of cuTile kernels: `with wlt.region("load"):` becomes a mark at both ends of its lines.

cuTile inlines the context manager, of which no code is left. But PTX has the lines of the code in its body, in
whichever function and file that is, and the source says which region they belong to.
"""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterator
from dataclasses import dataclass

from warplens.auto.ptx.ptx_marker import MARKED, mark_ptx
from warplens.auto.rules import Auto, LineRange
from warplens.ptx.tree import parse

_PACKAGE, _MODULE, _FUNCTION = "warplens", "cutile", "region"


@dataclass(frozen=True)
class _SourceRegion:
    """A `with` block: its lines, and the function that it is in. `lines` has no name where that is no string."""

    lines: LineRange
    function: str


@functools.lru_cache(maxsize=64)
def with_source_regions(text: str, kernel: str) -> tuple[str, tuple[str, ...]]:
    """PTX with the marks of the regions in its sources, and a remark for each region of `kernel` that has none."""
    regions = [one for file in parse(text).files.values() for one in _regions(file)]
    named = [one.lines for one in regions if one.lines.name]
    marked = mark_ptx(text, Auto(ranges=tuple(named)))
    found = {site.region for sites in marked.sites.values() for site in sites}
    remarks = [_remark(one.lines) for one in regions if one.function == kernel and one.lines.name not in found]
    return marked.text.removeprefix(MARKED), tuple(remarks)


def _remark(lines: LineRange) -> str:
    where = f"{lines.file}:{lines.first}-{lines.last}"
    if not lines.name:
        return f"the region of {where} is not recorded: its name must be written as a string"
    return f"the region {lines.name!r} ({where}) is not recorded: no code of the kernel is left of these lines"


def _regions(file: str) -> Iterator[_SourceRegion]:
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:  # not Python, or changed since it was compiled
        return
    spellings = set(_spellings(tree))
    for function in ast.walk(tree) if spellings else ():
        if not isinstance(function, ast.FunctionDef):
            continue
        for block in (node for node in _own_nodes(function) if isinstance(node, ast.With)):
            first, last = block.body[0].lineno, block.body[-1].end_lineno or block.body[-1].lineno
            for call in (item.context_expr for item in block.items):
                if isinstance(call, ast.Call) and ast.unparse(call.func) in spellings:
                    yield _SourceRegion(LineRange(_name(call), file, first, last), function.name)


def _spellings(tree: ast.AST) -> Iterator[str]:
    """How the file writes `warplens.cutile.region`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == f"{_PACKAGE}.{_MODULE}":
                    yield f"{alias.asname or alias.name}.{_FUNCTION}"
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (node.module, alias.name) == (_PACKAGE, _MODULE):
                    yield f"{alias.asname or alias.name}.{_FUNCTION}"
                elif (node.module, alias.name) == (f"{_PACKAGE}.{_MODULE}", _FUNCTION):
                    yield alias.asname or alias.name


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function without those of the functions inside it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef):
            yield node
            yield from _own_nodes(node)


def _name(call: ast.Call) -> str:
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    value = given[0].value if len(given) == 1 and isinstance(given[0], ast.Constant) else ""
    return value if isinstance(value, str) else ""
