"""Bundle the report's script and style: modules in the order of their imports, otherwise unchanged."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from warplens.errors import WarplensError

ASSETS = Path(__file__).parent / "assets"
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./(?P<module>[\w.]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(async )?(function|class|const|let)\b)", re.MULTILINE)


@cache
def script(entry: str = "main.js") -> str:
    """Join all modules that `entry` needs into one; imports and exports are removed, since they share one scope."""
    order: list[str] = []
    _visit(entry, order, ())
    return "\n".join(f"// ---- {name}\n{_EXPORT.sub('', _IMPORT.sub('', read(name)))}" for name in order)


def _visit(name: str, order: list[str], above: tuple[str, ...]) -> None:
    if name in above:
        raise WarplensError(f"assets/{name}: circular import via {' -> '.join(above)}")
    for match in _IMPORT.finditer(read(name)):
        if match["module"] not in order:
            _visit(match["module"], order, (*above, name))
    order.append(name)


@cache
def read(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def templates() -> Environment:
    """The pages' templates: names are data, and a missing one is an error."""
    folder = Path(__file__).parent / "templates"
    return Environment(loader=FileSystemLoader(folder), autoescape=True, undefined=StrictUndefined)


def content_security_policy(scripts: list[str], styles: list[str], *, connect: str = "'none'") -> str:
    """A policy that allows only the scripts and styles in the file, and no network access but to `connect`."""
    allowed = " ".join(map(_hash, scripts)), " ".join(map(_hash, styles))
    return (
        f"default-src 'none'; script-src {allowed[0]}; style-src {allowed[1]}; img-src data:; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
