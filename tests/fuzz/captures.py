"""Captures with damaged buffers, headers and JSON documents whose checksums are right all the same."""

from __future__ import annotations

import json
import random
import re
import struct
import tempfile
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import warplens as wl
from tests.fuzz.harness import damage, odd_document
from tests.fuzz.small_captures import small_captures
from warplens.errors import WarplensError
from warplens.record.capture import MAGIC, write_capture

_FIXED = struct.Struct("<8s4I")
_ALIGN = 64


def case(draw: random.Random, folder: Path) -> None:
    """Damage real captures, decode what can be read, and compute statistics of it."""
    path = folder / "c.wlcap"
    whole, version, text, body = draw.choice(_files())
    how = draw.randrange(8)
    if how == 0:
        path.write_bytes(damage(whole, draw))  # checksums find it
    else:
        document: Any = json.loads(text)
        if how < 6:
            body = _damaged_body(body, draw)
        if how >= 5:
            document = odd_document(document, draw)
        _write(path, version, document, body)
    _use(wl.load(path), folder)


def _use(trace: wl.Trace, folder: Path) -> None:
    """What was decoded is sound: no use of it is refused."""
    try:
        trace.stats()
        again = wl.load(trace.save(folder / "c.warplens", force=True))
        again.stats()
        read = again.spans
    except WarplensError as error:
        kind = re.sub(r"\d+", "N", str(error).rpartition("/")[2])
        raise RuntimeError(f"a decoded capture cannot be used: {kind}") from error
    # The values may be NaN, which equals nothing.
    assert read.drop_columns(["value"]).equals(trace.spans.drop_columns(["value"])), "it reads back as something else"


def _damaged_body(body: bytes, draw: random.Random) -> bytes:
    """The same number of bytes: words and bits changed, most often in a track's header."""
    made = bytearray(body)
    for _ in range(draw.randint(1, 8)):
        if len(made) < 16:
            break
        at = draw.randrange(len(made) - 8)
        if draw.random() < 0.5:
            at = at // 8 * 8
        flipped = bytes([made[at] ^ 1 << draw.randrange(8)]) + made[at + 1 : at + 8]
        made[at : at + 8] = draw.choice((draw.randbytes(8), b"\xff" * 8, b"\0" * 8, flipped))
    return bytes(made)


def _write(path: Path, version: int, document: Any, body: bytes) -> None:
    try:
        for entry in document["launches"]:
            raw = body[entry["offset"] : entry["offset"] + entry["size"]]
            entry["crc32"] = zlib.crc32(raw)
    except (KeyError, TypeError):
        pass  # the document itself is odd
    text = json.dumps(document).encode()
    head = _FIXED.pack(MAGIC, version, len(text), zlib.crc32(text), 0)
    gap = -(-(_FIXED.size + len(text)) // _ALIGN) * _ALIGN - _FIXED.size - len(text)
    path.write_bytes(head + text + b"\0" * gap + body)


@cache
def _files() -> list[tuple[bytes, int, str, bytes]]:
    """Of each small capture: all bytes, its version, its JSON document and its buffers."""
    made = []
    with tempfile.TemporaryDirectory() as folder:
        for capture in small_captures():
            whole = write_capture(capture, Path(folder) / "c.wlcap").read_bytes()
            _, version, length, _, _ = _FIXED.unpack(whole[: _FIXED.size])
            text = whole[_FIXED.size : _FIXED.size + length].decode()
            made.append((whole, version, text, whole[-(-(_FIXED.size + length) // _ALIGN) * _ALIGN :]))
    return made
