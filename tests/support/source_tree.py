"""The modules of the package as text, for tests about its structure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from tests.support.paths import ROOT

PACKAGE = ROOT / "src" / "warplens"
_NAMED = re.compile(r"(warplens(?:\.\w+)+)(?::\w+)?")
"""A module in a registry, such as "warplens.export.chrome:write"."""


@cache
def modules() -> dict[str, str]:
    """The source of every module of the package, by its dotted name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ("warplens", *path.relative_to(PACKAGE).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text()
    return found


def room_of(module: str) -> str:
    """The folder or top-level module of a module: `record` for `warplens.record.layout`."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


@cache
def imports(source: str, known: frozenset[str], *, types: bool = True) -> frozenset[str]:
    """The modules out of `known` that a source imports, inside functions and by name in a registry too.

    With `types=False`, without those that only type checkers import.
    """
    return frozenset(_imports(source, known, types))


def _imports(source: str, known: frozenset[str], types: bool) -> Iterator[str]:
    for node in _nodes(ast.parse(source), types):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                yield from (name for name in [inner if inner in known else module] if name in known)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            named = _NAMED.fullmatch(node.value)
            yield from (name for name in [named[1] if named else ""] if name in known)


def _nodes(node: ast.AST, types: bool) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if types or not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from _nodes(child, types)
