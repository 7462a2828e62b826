"""Check the JSON document of a trace against the types of `Meta`, so that nothing to the right has to."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from warplens.record.capture import CLOCKS, LARGEST_NUMBER, Device
from warplens.record.launch_extra import without_empty, wrong_extra
from warplens.record.layout import MAX_BLOCK
from warplens.record.rank_notes import RankNotes
from warplens.sass.pc_samples import PcSampling
from warplens.sass.verified_regions import KernelVerification
from warplens.text import encodable, one_line
from warplens.trace.rank_clocks import RankClocks
from warplens.trace.schema import SCHEMA_VERSION, LaunchInfo, Meta

_LARGEST = 1 << 62
"""Whole numbers beyond this would overflow when two of them are added."""
_FREE = ("verification", "sensitivity", "pc_samples", "rank_notes", "rank_clocks")
"""Parts of a document whose types are checked by what reads them."""


class WrongDocument(ValueError):
    """A document that is no trace's; the message names the key."""


class NewerSchema(Exception):
    """A document of a newer warplens; the first argument is its schema version."""


def parse_document(text: bytes) -> Meta:
    """The trace's metadata; raises `WrongDocument` at the first value of another type or out of its range."""
    try:
        document = json.loads(text)
    except RecursionError:
        raise WrongDocument("it is nested too deeply") from None
    except ValueError as error:
        raise WrongDocument(f"{type(error).__name__}: {error}") from None
    if not isinstance(document, dict):
        raise WrongDocument("it is no JSON object")
    if "schema" not in document:
        raise WrongDocument("KeyError: 'schema'")
    version = _checked(document["schema"], int, "schema")
    if version > SCHEMA_VERSION:
        raise NewerSchema(version)
    _check_fields(document, Meta, "")
    for name in _FREE:
        _check_numbers(document.get(name), name)
    meta = _without_empty(Meta.from_json(_texts(document)))
    for key, value in meta.verification.items():
        _parsed(f"verification[{key[:40]!r}]", KernelVerification.from_json, value)
    _parsed("pc_samples", PcSampling.from_json, meta.pc_samples)
    for name, notes in meta.rank_notes.items():
        if not name.isdecimal():
            raise WrongDocument(f"rank_notes[{name[:40]!r}]: no rank")
        _parsed(f"rank_notes[{name!r}]", RankNotes.from_json, notes)
    if meta.rank_clocks:
        _parsed("rank_clocks", RankClocks.from_json, meta.rank_clocks)
    _check_launches(meta)
    return meta


def _check_numbers(value: Any, where: str) -> None:
    """Refuse whole numbers of many digits, which overflow wherever they are used."""
    if isinstance(value, dict):
        for key, item in value.items():
            _check_numbers(item, f"{where}.{key[:40]}")
    elif isinstance(value, list):
        for at, item in enumerate(value):
            _check_numbers(item, f"{where}[{at}]")
    elif isinstance(value, int) and abs(value) > _LARGEST:
        raise WrongDocument(f"{where} is {_shown(value)}, expected a whole number below 2^62")


def _without_empty(meta: Meta) -> Meta:
    found = meta.launches
    if any(None in info.extra.values() for info in found):
        found = tuple(replace(info, extra=without_empty(info.extra)) for info in found)
    return replace(meta, launches=found)


_NAMES = ("kernel", "name", "region")


def _parsed(where: str, parse: Callable[[Any], object], document: Any) -> None:
    try:
        parse(document)
    except ValueError as error:
        raise WrongDocument(f"{where}: {error}") from None


def document_of(meta: Meta) -> bytes:
    """The JSON document of a trace, without the numbers that are not finite: JSON has none, and readers refuse them."""
    document = meta.to_json()
    try:
        return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        return json.dumps(_finite(document), separators=(",", ":")).encode()


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items() if not isinstance(item, float) or math.isfinite(item)}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def _check_fields(document: Any, cls: type, where: str) -> None:
    if not isinstance(document, dict):
        raise WrongDocument(f"{where or 'it'} is {_shown(document)}, expected an object")
    hints = _hints(cls)
    for field in fields(cls):
        if field.name not in document:
            if field.default is MISSING and field.default_factory is MISSING:
                raise WrongDocument(f"{where}.{field.name} is missing")
        else:
            _checked(document[field.name], hints[field.name], f"{where}.{field.name}".lstrip("."))


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _checked(value: Any, kind: Any, where: str) -> Any:
    """Return `value` if it is of a type annotation of the schema's dataclasses; raise `WrongDocument` otherwise."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if is_dataclass(kind):
        _check_fields(value, kind, where)  # type: ignore[arg-type]
    elif kind is int:
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _LARGEST:
            raise WrongDocument(f"{where} is {_shown(value)}, expected a whole number below 2^62")
    elif kind is float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= LARGEST_NUMBER:
            raise WrongDocument(f"{where} is {_shown(value)}, expected a number of at most 1e100")
    elif kind is str:
        if not isinstance(value, str):
            raise WrongDocument(f"{where} is {_shown(value)}, expected a text")
    elif origin is tuple:
        if not isinstance(value, list) or len(value) != len(arguments):
            raise WrongDocument(f"{where} is {_shown(value)}, expected a list of {len(arguments)}")
        for at, (item, one) in enumerate(zip(value, arguments, strict=True)):
            _checked(item, one, f"{where}[{at}]")
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            raise WrongDocument(f"{where} is {_shown(value)}, expected an object")
        for key, item in value.items():
            _checked(item, arguments[1], f"{where}[{key[:40]!r}]")
    else:
        if not isinstance(value, list):
            raise WrongDocument(f"{where} is {_shown(value)}, expected a list")
        for at, item in enumerate(value):
            _checked(item, arguments[0], f"{where}[{at}]")
    return value


def _check_launches(meta: Meta) -> None:
    seen = set()
    for at, info in enumerate(meta.launches):
        where = f"launches[{at}]"
        if (info.rank, info.launch) in seen:
            raise WrongDocument(f"{where} repeats launch {info.launch} of rank {info.rank}")
        seen.add((info.rank, info.launch))
        _check_launch(info, where)
    for key, device in meta.devices.items():
        _check_fields(device, Device, f"devices[{key[:40]!r}]")
    negative = [name for name, count in vars(meta.losses).items() if name != "details" and count < 0]
    if negative:
        raise WrongDocument(f"losses.{negative[0]} is negative")


def _check_launch(info: LaunchInfo, where: str) -> None:
    for name in ("rank", "device", "launch", "tracks", "busy_cycles", "busy_ns"):
        if getattr(info, name) < 0:
            raise WrongDocument(f"{where}.{name} is negative")
    for name in ("grid", "block"):
        size = getattr(info, name)
        if min(size) < 1 or math.prod(size) > MAX_BLOCK:
            raise WrongDocument(f"{where}.{name} is {size}, expected three sizes of at least 1")
    if info.clock not in CLOCKS:
        raise WrongDocument(f"{where}.clock is {_shown(info.clock)}; known are {', '.join(CLOCKS)}")
    if info.end_ns < info.begin_ns:
        raise WrongDocument(f"{where} ends at {info.end_ns} ns, before its begin at {info.begin_ns} ns")
    if wrong := wrong_extra(info.extra):
        name, expected = wrong
        raise WrongDocument(f"{where}.extra.{name} is {_shown(info.extra[name])}, expected {expected}")


def _texts(value: Any, key: str = "") -> Any:
    """The same document with texts that every encoding of Unicode can write, and names of one line: JSON can hold lone
    surrogates. Keys are names, too."""
    if isinstance(value, str):
        return one_line(value) if key in _NAMES else encodable(value)
    if isinstance(value, dict):
        return {one_line(name): _texts(item, name) for name, item in value.items()}
    return [_texts(item) for item in value] if isinstance(value, list) else value


def _shown(value: Any) -> str:
    """A value in a message: short, whatever it is."""
    if isinstance(value, (dict, list)):
        return "a list" if isinstance(value, list) else "an object"
    if isinstance(value, int) and abs(value) > _LARGEST:
        return "a number of many digits"
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
