"""Marks in TTGIR by hand: write each kernel's TTGIR to a file, and compile from a file that a user put marks into."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warplens.auto.ttgir.mark_emitter import VALUES, mark_op
from warplens.errors import UsageError, WarplensError, did_you_mean

SUFFIX = ".ttgir"
_HEADER = """\
// kernel: {name}
// hash: {digest}
// Put warplens.begin "name", warplens.end "name", warplens.instant "name" or warplens.value "name" %x : i32 on lines of
// their own between operations (proton.record start "name" and proton.record end "name" do the same), then compile this
// file with wl.profile(override=FOLDER) or: warplens run --override FOLDER
"""
_LINE = re.compile(
    r"\s*(?P<verb>proton\.record|warplens\.\w*)\b\s*(?P<way>\w+)?\s*(?:\"(?P<name>(?:[^\"\\]|\\.)+)\")?"
    r"\s*(?:(?P<value>%[\w$.#-]+)\s*:\s*(?P<type>\w+))?\s*(?:\{.*\})?\s*(?:loc\(.*\))?\s*(?://.*)?$"
)
_VERBS = {"warplens.begin": "B", "warplens.end": "E", "warplens.instant": "I", "warplens.value": "V"}
_WAYS = {"start": "B", "end": "E"}


def digest_of(text: str) -> str:
    """Hash a kernel's code without its line numbers."""
    code = re.sub(r'^#loc.*$|^//.*$| loc\("[^"]*"\(#loc\d*\)\)| loc\([^\n]*\)$', "", text, flags=re.MULTILINE)
    return hashlib.sha256("\n".join(line for line in code.split("\n") if line.strip()).encode()).hexdigest()


def dump(folder: str, name: str, text: str) -> Path:
    """Write a kernel's TTGIR; a file that exists is not overwritten."""
    digest = digest_of(text)
    plain = re.sub(r"[^\w.-]", "_", name)[:120]
    path = Path(folder) / f"{plain}-{digest[:12]}{SUFFIX}"
    if not path.exists():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_HEADER.format(name=name, digest=digest) + text)
        except OSError as error:
            raise WarplensError(f"dump_ir={folder!r}: {path} cannot be written ({error.strerror})") from None
    return path


@dataclass(frozen=True)
class Override:
    """What a folder holds for one kernel: the text to compile instead, or why it is not used."""

    path: Path | None = None
    text: str = ""
    refused: str = ""


def find(folder: str, name: str, text: str) -> Override:
    """Find the file that was dumped from exactly this kernel."""
    digest, others = digest_of(text), []
    for path in sorted(Path(folder).glob(f"*{SUFFIX}")):
        written = path.read_text()
        header = dict(re.findall(r"^// (kernel|hash): (.+)$", written, re.MULTILINE))
        if header.get("kernel") == name:
            if header.get("hash") == digest:
                return Override(path, marks(path, written))
            others.append(path.name)
    if not others:
        return Override()
    return Override(
        refused=f"{', '.join(others)} in {folder} was dumped from a different version of this kernel (its source, "
        "constants, options or Triton changed), so it is not used; dump it again with dump_ir= (--dump-ir)"
    )


def marks(path: Path, text: str) -> str:
    """Turn the mark lines of a file into operations, line for line."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if line.lstrip().startswith(("proton.", "warplens.")):
            near = next((m[1] for m in (re.search(r" loc\((.*)\)$", later) for later in lines[number + 1 :]) if m), "")
            lines[number] = _mark(f"{path}:{number + 1}", line, f"%warplens_hand_{number + 1}", near)
    return "\n".join(lines)


def _mark(where: str, line: str, name: str, location: str) -> str:
    found = _LINE.match(line)
    verb, way = (found["verb"], found["way"] or "") if found else (line.split()[0], "")
    if verb == "proton.record":
        letter = _WAYS.get(way)
        if letter is None:
            raise UsageError(f"{where}: proton.record {way!r}{did_you_mean(way, _WAYS)}: write start or end")
    elif verb in _VERBS and not way:
        letter = _VERBS[verb]
    else:
        raise UsageError(f"{where}: {line.strip()!r} is not a mark{did_you_mean(verb, _VERBS)}")
    if found is None or not found["name"]:
        raise UsageError(f'{where}: {line.strip()!r}: write the name in quotes, such as {verb} "load"')
    value, type = found["value"] or "", found["type"] or ""
    if (letter == "V") != bool(value) or (value and type not in VALUES):
        allowed = f'warplens.value "name" %x : TYPE with one of {", ".join(VALUES)}, and no value elsewhere'
        raise UsageError(f"{where}: {line.strip()!r}: allowed is {allowed}")
    return mark_op(name, letter, found["name"], location, value, type)


def parse_module(text: str, context: Any, path: str = "") -> Any:
    """Parse a module. `path` is the user's file, empty for text of our own: an error names its line."""
    from triton._C.libtriton import ir

    descriptor, temporary = tempfile.mkstemp(suffix=SUFFIX)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        with _captured_stderr() as said:
            try:
                module = ir.parse_mlir_module(temporary, context)
            except RuntimeError:
                raise WarplensError(_complaint(said(), temporary, path or "the marked TTGIR")) from None
        module.context = context
        return module
    finally:
        os.unlink(temporary)


def _complaint(said: str, temporary: str, path: str) -> str:
    error = re.search(re.escape(temporary) + r"[\":]*(\d+):(\d+)\)?: error: (.*)", said)
    if error is None:
        return f"{path}: Triton cannot parse this MLIR: {said.strip()[:300] or 'no further details'}"
    return f"{path}:{error[1]}:{error[2]}: {error[3]}"


@contextmanager
def _captured_stderr() -> Iterator[Any]:
    """Capture what MLIR writes directly to the process's stderr, so that our error can quote it."""
    with tempfile.TemporaryFile() as file:
        before = os.dup(2)
        os.dup2(file.fileno(), 2)

        def said() -> str:
            file.seek(0)
            return file.read().decode(errors="replace")

        try:
            yield said
        finally:
            os.dup2(before, 2)
            os.close(before)
