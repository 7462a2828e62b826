"""Captures with damaged buffers, headers and JSON documents whose checksums are right all the same."""

from __future__ import annotations

import json
import random
import struct
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import warplens as wl
from tests.fuzz.harness import damage, odd_document, run_cases
from tests.support.paths import GOLDEN
from tests.support.synthetic_capture import make_capture
from warplens.record.capture import MAGIC, write_capture

_FIXED = struct.Struct("<8s4I")
_ALIGN = 64


def run(cases: int, seed: int) -> None:
    """Damage real captures, decode what can be read, and compute statistics of it."""
    run_cases(_case, cases, seed)


def _case(draw: random.Random, folder: Path) -> None:
    path = folder / "c.wlcap"
    whole = draw.choice(_files(folder))
    how = draw.randrange(8)
    if how == 0:
        path.write_bytes(damage(whole, draw))  # checksums find it
    else:
        _, version, length, _, _ = _FIXED.unpack(whole[: _FIXED.size])
        document: Any = json.loads(whole[_FIXED.size : _FIXED.size + length])
        body = whole[-(-(_FIXED.size + length) // _ALIGN) * _ALIGN :]
        if how < 6:
            body = _damaged_body(body, draw)
        if how >= 5:
            document = odd_document(document, draw)
        _write(path, version, document, body, draw)
    trace = wl.load(path)
    trace.stats()
    wl.load(trace.save(folder / "c.warplens")).stats()
    read = wl.load(folder / "c.warplens").spans
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


def _write(path: Path, version: int, document: Any, body: bytes, draw: random.Random) -> None:
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
def _files(folder: Path) -> list[bytes]:
    small = sorted(GOLDEN.rglob("*.wlcap"), key=lambda file: file.stat().st_size)[:8]
    made = write_capture(make_capture(100, blocks=2, warps=2, sms=2), folder / "made.wlcap")
    return [file.read_bytes() for file in (*small, made)]
