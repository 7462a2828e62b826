"""Serves the live views of a running program on 127.0.0.1, to whoever knows the token in its address."""

from __future__ import annotations

import secrets
import threading
from http import HTTPStatus
from typing import Protocol
from urllib.parse import parse_qs, urlsplit

from warplens.threads import BackgroundThread
from warplens.view.live_page import LiveDocuments, page
from warplens.view.live_state import LiveState
from warplens.view.serve import LoopbackHandler, QuietHttpServer

LONGEST_WAIT_S = 1.0
"""How long a request waits for a newer state."""
GRACE_S = 0.8
"""How long pages may take to hear that the program has ended."""
MOST_COLUMNS = 1000


class StateSource(Protocol):
    """Where states come from. `wait` returns the first one after a number, or the latest after some seconds."""

    def wait(self, after: int, seconds: float) -> LiveState: ...


class LiveServer:
    """From `start` to `stop`; the kernel chooses the port."""

    def __init__(self, source: StateSource, program: str) -> None:
        self.token = secrets.token_urlsafe(18)
        self._http = QuietHttpServer(("127.0.0.1", 0), _LiveHandler)
        self._http.origin_port = self.port
        self._http.live = _Shown(source, program, self.token)  # type: ignore[attr-defined]
        self._thread = BackgroundThread(self._http.serve_forever, "warplens-live-server", kwargs={"poll_interval": 0.1})

    @property
    def port(self) -> int:
        return int(self._http.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{self.token}/"

    def start(self) -> None:
        # The first document needs modules that take a second to load.
        BackgroundThread(LiveDocuments().of, "warplens-live-document", args=(LiveState(),)).start()
        self._thread.start()

    def stop(self) -> None:
        """End the server; requests that are waiting get their answer first."""
        self._http.shutdown()
        self._thread.join()
        self._http.end_requests(GRACE_S)
        self._http.server_close()


class _Shown:
    """What the handlers of one server share. Pages that ask for the same state get the same bytes."""

    def __init__(self, source: StateSource, program: str, token: str) -> None:
        self.source, self.program, self.token = source, program, token
        self._documents = LiveDocuments()
        self._lock = threading.Lock()
        self._made: dict[int, tuple[LiveState, bytes]] = {}
        """By columns, the newest document."""

    def document(self, after: int, columns: int) -> bytes:
        state = self.source.wait(after, LONGEST_WAIT_S)
        with self._lock:
            known = self._made.get(columns)
            if known is None or known[0] is not state:
                if len(self._made) > 4:
                    self._made.clear()
                known = self._made[columns] = state, self._documents.of(state, columns=columns)
        # The bytes are the same for all who ask, and their age is not.
        return b'{"age_s":%.3f,' % state.age_s + known[1][1:]


class _LiveHandler(LoopbackHandler):
    """`/TOKEN/` is the page, `/TOKEN/state?after=N` the first state after the N-th."""

    def do_GET(self) -> None:
        shown: _Shown = self.server.live  # type: ignore[attr-defined]
        parts = urlsplit(self.path)
        token, _, name = parts.path.lstrip("/").partition("/")
        known = secrets.compare_digest(token.encode("utf-8", "replace"), shown.token.encode())
        if not self.is_local() or not known:
            return self.send_error(HTTPStatus.FORBIDDEN)
        if name == "":
            return self._send(page(shown.program).encode(), "text/html; charset=utf-8")
        if name == "state":
            asked = parse_qs(parts.query)
            after, columns = (_number(asked.get(key, [""])[0]) for key in ("after", "columns"))
            return self._send(shown.document(after, min(columns, MOST_COLUMNS)), "application/json")
        return self.send_error(HTTPStatus.NOT_FOUND)

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


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 10 else 0
