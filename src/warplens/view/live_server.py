"""Serves a live view, of a program or of a job, on 127.0.0.1 to clients that know the token in its address."""

from __future__ import annotations

import secrets
from http import HTTPStatus
from typing import NamedTuple, Protocol
from urllib.parse import parse_qs, urlsplit

from warplens.errors import WarplensError
from warplens.threads import BackgroundThread
from warplens.view.serve import LoopbackHandler, QuietHttpServer

LONGEST_WAIT_S = 1.0
"""How long a request waits for a newer state."""
GRACE_S = 0.8
"""How long pages may take to hear that the program has ended."""
HTML, JSON = "text/html; charset=utf-8", "application/json"


class Answer(NamedTuple):
    """The body of an answer, and its content type."""

    body: bytes
    kind: str


def asked_number(query: str, name: str) -> int:
    """A number in a query; 0 where there is none."""
    text = parse_qs(query).get(name, [""])[0]
    return int(text) if text.isdecimal() and len(text) < 10 else 0


class LiveSite(Protocol):
    """What a server shows: `answer` gives the document of a name (none for the page) and a query, and None for a name
    that it does not know; `warm` loads what the first answer needs."""

    def answer(self, name: str, query: str) -> Answer | None: ...

    def warm(self) -> None: ...


class LiveServer:
    """From `start` to `stop`; the kernel chooses the port."""

    def __init__(self, site: LiveSite) -> None:
        self._site = site
        self.token = secrets.token_urlsafe(18)
        self._http = QuietHttpServer(("127.0.0.1", 0), _LiveHandler)
        self._http.origin_port = self.port
        self._http.live = site, self.token  # type: ignore[attr-defined]
        self._thread = BackgroundThread(self._http.serve_forever, "warplens-live-server", kwargs={"poll_interval": 0.1})

    @property
    def port(self) -> int:
        return int(self._http.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{self.token}/"

    def start(self) -> None:
        BackgroundThread(self._site.warm, "warplens-live-document").start()
        self._thread.start()

    def stop(self) -> None:
        """End the server; requests that are waiting get their answer first."""
        self._http.shutdown()
        self._thread.join()
        self._http.end_requests(GRACE_S)
        self._http.server_close()


class _LiveHandler(LoopbackHandler):
    """`/TOKEN/` is the page, and `/TOKEN/state?after=N` the first state after the N-th."""

    def do_GET(self) -> None:
        site, expected = self.server.live  # type: ignore[attr-defined]
        parts = urlsplit(self.path)
        token, _, name = parts.path.lstrip("/").partition("/")
        known = secrets.compare_digest(token.encode("utf-8", "replace"), expected.encode())
        if not self.is_local() or not known:
            return self.send_error(HTTPStatus.FORBIDDEN)
        try:
            found = site.answer(name, parts.query)
        except WarplensError as error:  # another program was asked, and failed
            return self.send_error(HTTPStatus.BAD_GATEWAY, explain=str(error))
        return self.send_error(HTTPStatus.NOT_FOUND) if found is None else self._send(*found)

    def _send(self, body: bytes, kind: str) -> None:
        self.send_response(HTTPStatus.OK)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        }
        for header, value in headers.items():
            self.send_header(header, value)
        self.end_headers()
        self.wfile.write(body)
