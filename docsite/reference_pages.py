"""Write the reference pages from the docstrings and the command line: `python -m docsite.reference_pages`."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from docsite.docstring_markdown import markdown_of, table
from warplens.commands import _VERBS, cli

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"
_NOTE = "<!-- Made by `make reference` from the source; edits here are lost. -->"
_WIDTH = 100

_RESULTS = (
    "warplens.profiling.profile.Profile",
    "warplens.analyse.statistics.Statistics",
    "warplens.analyse.statistics.RegionStatistics",
    "warplens.analyse.finding.Finding",
    "warplens.analyse.diff.Difference",
    "warplens.analyse.diff.KernelChange",
    "warplens.analyse.diff.RegionChange",
    "warplens.analyse.roofline.Roofline",
    "warplens.analyse.region_sensitivity.Sensitivity",
    "warplens.analyse.region_sensitivity.RegionSensitivity",
    "warplens.bench.results.Results",
)
"""What the functions of `warplens` return."""


def pages() -> dict[str, str]:
    """The text of each page by its name."""
    return {
        "cli.md": _command_line(),
        "python.md": _package(),
        "triton.md": _module("warplens.triton", "Triton and Gluon marks"),
        "cuda.md": _module("warplens.cuda", "CUDA C++ from Python"),
        "cute.md": _module("warplens.cute", "CuTe DSL marks"),
    }


def _page(*parts: str) -> str:
    return "\n\n".join([_NOTE, *(part for part in parts if part)]) + "\n"


def _command_line() -> str:
    exits = (
        "Exit codes: 0 done, 1 failed with a one-line reason, 2 wrong usage, 3 a threshold was crossed. `run` passes\n"
        "the program's own code through. With `--json`, stdout has one JSON document; messages go to stderr."
    )
    return _page("# Command line", "`warplens VERB`, also `python -m warplens VERB`.", exits, *map(_verb, _VERBS))


def _verb(verb: str) -> str:
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None
    settings = {**cli.context_settings, **command.context_settings}
    ctx = click.Context(command, info_name=f"warplens {verb}", terminal_width=_WIDTH, **settings)
    usage = " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)])
    options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    records = [record for one in options if (record := one.get_help_record(ctx))]
    rows = [[f"`{names}`", _escaped(meaning)] for names, meaning in records]
    described = [_described(part) for part in re.split(r"\n\s*\n", inspect.cleandoc(command.help or ""))]
    return "\n\n".join([f"## {verb}", f"`{usage}`", *described, table(("option", "effect"), rows)])


def _described(part: str) -> str:
    """A paragraph of a help text; click shows a part that begins with a backspace line by line."""
    if not part.startswith("\b\n"):
        return _escaped(part)
    lines = part.splitlines()[1:]
    title = [f"{_escaped(lines.pop(0))}\n"] if not lines[0].startswith(" ") else []
    return "\n".join([*title, "```text", textwrap.dedent("\n".join(lines)), "```"])


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is, apart from its `code`."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([*_<\[])", r"\\\1", part) for part in parts)


def _package() -> str:
    import warplens

    names = [name for name in warplens.__all__ if not name.startswith("__")]
    functions = [name for name in names if not inspect.isclass(getattr(warplens, name))]
    classes = [name for name in names if name not in functions]
    results = [(path.rpartition(".")[2], _find(path)) for path in _RESULTS]
    return _page(
        "# Python",
        "`import warplens as wl`. Marks are in [warplens.triton](triton.md), [warplens.cuda](cuda.md) and "
        "[warplens.cute](cute.md).",
        "## Functions",
        *(_function(f"wl.{name}", getattr(warplens, name), "###") for name in functions),
        "## Classes",
        *(_class(f"wl.{name}", getattr(warplens, name), "###") for name in classes),
        "## What they return",
        *(_class(name, one, "###") for name, one in results),
    )


def _find(path: str) -> type:
    module, _, name = path.rpartition(".")
    found: type = getattr(import_module(module), name)
    return found


def _module(name: str, title: str) -> str:
    module = import_module(name)
    public = [(one, getattr(module, one)) for one in sorted(module.__all__)]
    parts = [_class(one, value) if inspect.isclass(value) else _function(one, value) for one, value in public]
    return _page(f"# {title}: `{name}`", markdown_of(_doc(module)), *parts)


def _doc(value: ModuleType | type | Callable[..., Any] | property) -> str:
    return inspect.cleandoc(value.__doc__ or "")


def _function(title: str, function: Callable[..., Any], level: str = "##") -> str:
    return "\n\n".join(
        [f"{level} {title}", _signature(title.rpartition(".")[2], function), markdown_of(_doc(function))]
    )


def _signature(name: str, function: Callable[..., Any]) -> str:
    signature = inspect.signature(function)
    shown = [one for one in signature.parameters.values() if one.name not in ("self", "unknown", "_semantic")]
    kept = signature.replace(parameters=shown)
    text = f"def {name}{_plain(str(kept))}: ..."
    if len(text) > _WIDTH:
        lines = [f"    {one}," for one in _pieces(kept)]
        returned = "" if kept.return_annotation is kept.empty else f" -> {kept.return_annotation}"
        text = _plain("\n".join([f"def {name}(", *lines, f"){returned}: ..."]))
    return f"<!-- fragment -->\n```python\n{text}\n```"


def _pieces(signature: inspect.Signature) -> Iterator[str]:
    """The parameters as they are written, with the stars and slashes between them."""
    inside = str(signature.replace(return_annotation=inspect.Signature.empty))[1:-1]
    arguments = ast.parse(f"def f({_plain(inside)}): ...").body[0]
    assert isinstance(arguments, ast.FunctionDef)
    every = arguments.args
    defaults = [None] * (len(every.posonlyargs + every.args) - len(every.defaults)) + list(every.defaults)
    for one, default in zip(every.posonlyargs + every.args, defaults, strict=True):
        yield _piece(one, default)
    if every.vararg or every.kwonlyargs:
        yield "*" + (_piece(every.vararg, None) if every.vararg else "")
    for one, default in zip(every.kwonlyargs, every.kw_defaults, strict=True):
        yield _piece(one, default)
    if every.kwarg:
        yield "**" + _piece(every.kwarg, None)


def _piece(argument: ast.arg, default: ast.expr | None) -> str:
    return ast.unparse(argument) + (f" = {ast.unparse(default)}" if default else "")


def _plain(text: str) -> str:
    """A signature whose annotations are names, not strings, and whose defaults are written as in the source."""
    bare = re.sub(r"(: |-> )(?:'([^']*)'|\"([^\"]*)\")", lambda found: found[1] + (found[2] or found[3]), text)
    return re.sub(r"<[^<>]*>", "...", bare)


def _class(title: str, cls: type, level: str = "##") -> str:
    own = {name: value for name, value in vars(cls).items() if not name.startswith("_")}
    fields = [[f"`{name}`", f"`{kind}`", meaning] for name, kind, meaning in _fields(cls)]
    properties = [
        [f"`{name}`", "`property`", " ".join(_doc(value).split())]
        for name, value in own.items()
        if isinstance(value, property) or type(value).__name__ == "cached_property"
    ]
    attributes = fields + properties
    if not any(meaning for *_, meaning in attributes):
        rows = table(("attribute", "type"), [row[:2] for row in attributes]) if attributes else ""
    else:
        rows = table(("attribute", "type", "meaning"), attributes)
    functions = [(name, inspect.unwrap(getattr(cls, name))) for name, value in own.items() if _is_method(value)]
    methods = [_function(f"{title}.{name}", value, f"{level}#") for name, value in functions if value.__doc__]
    return "\n\n".join(part for part in [f"{level} {title}", markdown_of(_doc(cls)), rows, *methods] if part)


def _is_method(value: object) -> bool:
    return inspect.isfunction(value) or isinstance(value, classmethod | staticmethod)


def _fields(cls: type) -> Iterator[tuple[str, str, str]]:
    """The fields of a dataclass with their types, and the sentence that follows each in the source."""
    if not hasattr(cls, "__dataclass_fields__"):
        return
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(tree, ast.ClassDef)
    for number, node in enumerate(tree.body):
        if isinstance(node, ast.AnnAssign) and not ast.unparse(node.target).startswith("_"):
            after = tree.body[number + 1] if number + 1 < len(tree.body) else None
            said = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            yield ast.unparse(node.target), ast.unparse(node.annotation), " ".join(str(said).split())


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
