"""Ask the servers of running programs on this machine, past any proxy that the environment names."""

from __future__ import annotations

import asyncio
import urllib.request
from urllib.parse import urlsplit

_TIMEOUT_S = 10.0
_LARGEST = 64 << 20
_LARGEST_SMALL = 1 << 20


def fetch_loopback(url: str) -> bytes:
    """What a server of this machine answers."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(url, timeout=_TIMEOUT_S) as answer:
        return bytes(answer.read(_LARGEST))


async def ask_loopback(url: str) -> bytes:
    """The same for a small answer and a client that asks many; raises ValueError at any answer but 200."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection("127.0.0.1", parts.port)
    try:
        writer.write(f"GET {parts.path} HTTP/1.0\r\nHost: {parts.netloc}\r\n\r\n".encode())
        answer = bytearray()
        while piece := await reader.read(1 << 16):
            answer += piece
            if len(answer) > _LARGEST_SMALL:
                raise ValueError(f"{url} answers too much")
    finally:
        writer.close()
    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    if head.split(b" ", 2)[1:2] != [b"200"]:
        raise ValueError(f"{url} answers {head[:40]!r}")
    return body
