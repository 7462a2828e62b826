"""Save and load results: one versioned JSON document, checked field by field when loaded."""

from __future__ import annotations

import json
import math
import os
import types
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from warplens.analyse.per_kernel import plain
from warplens.analyse.roofline import Ceilings
from warplens.bench.results import STATUSES, ResultRow, Results, Sweep
from warplens.errors import CaptureError, check_name
from warplens.files import atomic_write

SCHEMA = "warplens-bench"
VERSION = 1
SUFFIXES = (".json", ".csv", ".md")
_REMEDY = "create results with `warplens bench FILE.py -o results.json`"

T = TypeVar("T")


def document(results: Results) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "complete": results.complete,
        "machine": _simple(results.machine),
        "roofs": {name: asdict(roof) for name, roof in results.roofs.items()},
        "sweeps": [_simple(asdict(sweep)) for sweep in results.sweeps],
        "rows": [_simple(asdict(row)) for row in results.rows],
    }


def save(results: Results, path: str | os.PathLike[str], *, force: bool = False) -> Path:
    """Write `.json`, `.csv` or `.md`."""
    target = Path(path)
    suffix = target.suffix.lower()
    check_name(f"{target}: the file name must end in {', '.join(SUFFIXES)}", suffix, SUFFIXES)
    if suffix == ".json":
        text = json.dumps(document(results), indent=1, allow_nan=False) + "\n"
    else:
        text = results.to_csv() if suffix == ".csv" else results.to_markdown()
    with atomic_write(target, force=force) as out:
        out.write(text.encode())
    return target


def load_results(path: str | os.PathLike[str]) -> Results:
    """Load results from JSON; an error names the field that is not valid."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=_refuse)
    except OSError as error:
        raise CaptureError(path, "file", error.strerror or str(error), _REMEDY) from None
    except ValueError:
        raise CaptureError(path, "file", "not JSON", _REMEDY) from None
    return read(found, str(path))


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


def read(found: Any, path: str = "results") -> Results:
    """Convert a JSON document to results."""
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise CaptureError(path, "schema", f"not a file of benchmark results (expected {SCHEMA!r})", _REMEDY)
    version = found.get("version")
    if version != VERSION:
        remedy = f"this warplens reads version {VERSION}; run the benchmark again, or use the warplens that wrote it"
        raise CaptureError(path, "version", f"is {version!r}", remedy)
    roofs = _part(found, "roofs", dict, path)
    results = Results(
        sweeps=tuple(
            _made(Sweep, one, f"sweeps[{at}]", path) for at, one in enumerate(_part(found, "sweeps", list, path))
        ),
        rows=tuple(
            _made(ResultRow, one, f"rows[{at}]", path) for at, one in enumerate(_part(found, "rows", list, path))
        ),
        machine=_part(found, "machine", dict, path),
        roofs={name: _made(Ceilings, one, f"roofs.{name}", path) for name, one in roofs.items()},
        complete=_part(found, "complete", bool, path),
    )
    names = [sweep.name for sweep in results.sweeps]
    for at, row in enumerate(results.rows):
        if row.benchmark not in names:
            raise CaptureError(path, f"rows[{at}].benchmark", f"{row.benchmark!r} is not among the sweeps", _REMEDY)
        if row.status not in STATUSES:
            raise CaptureError(
                path, f"rows[{at}].status", f"{row.status!r} is not one of {', '.join(STATUSES)}", _REMEDY
            )
    return results


def _part(found: Mapping[str, Any], name: str, kind: type[T], path: str) -> T:
    value = found.get(name)
    if not isinstance(value, kind):
        raise CaptureError(path, name, f"expected {kind.__name__}, found {type(value).__name__}", _REMEDY)
    return value


def _made(kind: type[T], found: Any, where: str, path: str) -> T:
    """Create a dataclass from its fields; ignore fields that a newer warplens added."""
    if not isinstance(found, dict):
        raise CaptureError(path, where, f"expected an object, found {type(found).__name__}", _REMEDY)
    hints = get_type_hints(kind)
    values = {}
    for one in fields(kind):  # type: ignore[arg-type]
        if one.name in found:
            values[one.name] = _value(found[one.name], hints[one.name], f"{where}.{one.name}", path)
        elif one.default is MISSING and one.default_factory is MISSING:
            raise CaptureError(path, f"{where}.{one.name}", "is missing", _REMEDY)
    return kind(**values)


def _value(value: Any, hint: Any, where: str, path: str) -> Any:
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return _frozen(value)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in inner:
            return None
        return _value(value, next(one for one in inner if one is not type(None)), where, path)
    if origin is tuple:
        if not isinstance(value, list) or (inner[-1] is not ... and len(value) != len(inner)):
            raise CaptureError(path, where, f"expected a list, found {value!r:.40}", _REMEDY)
        return tuple(_value(one, inner[0], f"{where}[{at}]", path) for at, one in enumerate(value))
    wanted: Any = dict if origin is not None else (int, float) if hint is float else hint
    if not isinstance(value, wanted) or (isinstance(value, bool) and hint in (int, float)):
        name = "object" if origin is not None else hint.__name__
        raise CaptureError(path, where, f"expected {name}, found {value!r:.40}", _REMEDY)
    if origin is not None:
        return {name: _frozen(one) for name, one in value.items()}
    return float(value) if hint is float else value


def _frozen(value: Any) -> Any:
    """Convert lists back to tuples, because parameter values are used as dictionary keys."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _simple(value: Any) -> Any:
    """Convert to JSON values; other values, such as torch.float16, become text."""
    if isinstance(value, Mapping):
        return {str(key): _simple(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_simple(inner) for inner in value]
    value = plain(value)
    is_json = (
        value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value))
    )
    return value if is_json else str(value)
