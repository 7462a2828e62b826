"""Names stand alone: no module name and no class name stands for two different things."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping

from tests.support.source_tree import modules

_VERB = "commands/ has one module per verb; a verb is called as what it shows"
_PUBLIC = "the module that users import, and the room of the front end behind it"
_PARALLEL = "the same part of parallel front ends"
MODULES = {
    "bench": _VERB,
    "diagnose": _VERB,
    "diff": _VERB,
    "export": _VERB,
    "findings": _VERB,
    "nvcc": _VERB,
    "occupancy": _VERB,
    "roofline": _VERB,
    "view": _VERB,
    "triton": _PUBLIC,
    "cuda": _PUBLIC,
    "cute": _PUBLIC,
    "tilelang": _PUBLIC,
    "cutile": _PUBLIC,
    "frontend": "what a profile starts: for Triton, and for every library whose launches are intercepted",
    "launch_hook": _PARALLEL,
    "marks": _PARALLEL,
    "requirement": _PARALLEL,
    "registry": "the one list of front ends, and the one list of analyses",
    "language": "compat/ keeps the module names of the systems that it stands in for",
    "ptx": "PTX as data, and the rules that place marks in PTX",
    "session": "the class Session in the room of its name",
}
CLASSES = {
    "region": "the public context manager of both front ends with hand marks",
    "wait": "the public context manager of both front ends for barriers",
}


def repeated_modules(sources: Mapping[str, str]) -> dict[str, list[str]]:
    found = defaultdict(list)
    for module in sources:
        found[module.rpartition(".")[2]].append(module)
    return _repeated(found)


def repeated_classes(sources: Mapping[str, str]) -> dict[str, list[str]]:
    found = defaultdict(list)
    for module, source in sources.items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(module)
    return _repeated(found)


def _repeated(found: Mapping[str, list[str]]) -> dict[str, list[str]]:
    return {name: places for name, places in found.items() if len(places) > 1}


def test_no_module_name_stands_twice() -> None:
    found = repeated_modules(modules())
    assert {name: places for name, places in found.items() if name not in MODULES} == {}
    assert set(MODULES) - set(found) == set(), "these exceptions are not needed any more"


def test_no_class_name_stands_twice() -> None:
    found = repeated_classes(modules())
    assert {name: places for name, places in found.items() if name not in CLASSES} == {}
    assert set(CLASSES) - set(found) == set(), "these exceptions are not needed any more"


def test_repeated_names_are_found() -> None:
    sources = {
        "warplens.a.block": "class Block: ...",
        "warplens.b.block": "def f():\n    class Block: ...",
        "warplens.c": "",
    }
    assert repeated_modules(sources) == {"block": ["warplens.a.block", "warplens.b.block"]}
    assert repeated_classes(sources) == {"Block": ["warplens.a.block", "warplens.b.block"]}
