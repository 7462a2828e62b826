"""Serve one file on 127.0.0.1:9001 to the Perfetto UI, and to nothing else, until it has been fetched."""

from __future__ import annotations

import errno
import getpass
import os
import secrets
import socket
import threading
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

from warplens.errors import WarplensError

UI = "https://ui.perfetto.dev"
PORT = 9001
"""The only port that the Perfetto UI's content security policy lets it fetch from."""

_CHUNK = 1 << 20
_GRACE_S = 0.5
_MOST_CONNECTIONS = 64


class PerfettoServer:
    """Serves `path` under an unguessable name, so that other users of the machine cannot read it."""

    def __init__(self, path: Path, port: int = PORT) -> None:
        self.path = path
        self.done = threading.Event()
        self._name = f"/{secrets.token_urlsafe(12)}/{quote(path.name)}"
        handler = type("Handler", (_Handler,), {"file": path, "name": self._name, "done": self.done})
        try:
            self._http = QuietHttpServer(("127.0.0.1", port), handler)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise WarplensError(
                f"port {port} on 127.0.0.1 is in use, and the Perfetto UI fetches from no other; stop the program that "
                "uses it, or write a report, which needs no server: warplens report TRACE -o report.html"
            ) from None
        self._http.origin_port = self.port
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)

    @property
    def port(self) -> int:
        return int(self._http.server_address[1])

    @property
    def file_url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self._name}"

    @property
    def ui_url(self) -> str:
        return f"{UI}/#!/?url={quote(self.file_url, safe=':/')}"

    def __enter__(self) -> PerfettoServer:
        self._thread.start()
        return self

    def wait(self, timeout: float | None) -> bool:
        """Wait until the file was fetched completely; return False on a timeout."""
        return self.done.wait(timeout)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._http.shutdown()
        self._thread.join()
        # A client that fetched the file gets a moment to take the last bytes; no other client is waited for.
        self._http.end_requests(_GRACE_S if self.done.is_set() else 0)
        self._http.server_close()


class QuietHttpServer(ThreadingHTTPServer):
    """Serves this machine only, says nothing, and waits for no client when it ends."""

    daemon_threads = True
    block_on_close = False  # a client that never reads would keep the program alive
    allow_reuse_address = True
    request_queue_size = 128  # the fifth client at a time would have to try again after a second or more
    origin_port = PORT

    def __init__(self, *arguments: Any) -> None:
        self._open: dict[socket.socket, None] = {}
        """The connections, the oldest first."""
        self._changed = threading.Condition()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Each connection has a thread in the program that is profiled, so the oldest makes way if there are many."""
        with self._changed:
            oldest = list(self._open)[: len(self._open) + 1 - _MOST_CONNECTIONS]
            self._open[request] = None
        _close(oldest)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        with self._changed:
            self._open.pop(request, None)
            self._changed.notify_all()

    def end_requests(self, grace: float) -> None:
        """Wait at most `grace` seconds for running requests, then close their connections."""
        with self._changed:
            self._changed.wait_for(lambda: not self._open, grace)
            left = list(self._open)
        _close(left)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore connections that the browser closes early."""


def _close(connections: list[socket.socket]) -> None:
    for connection in connections:
        with suppress(OSError):  # the client may have gone already
            connection.shutdown(socket.SHUT_RDWR)


class LoopbackHandler(BaseHTTPRequestHandler):
    """Answers requests from this machine, under a loopback name."""

    server: QuietHttpServer
    server_version = "warplens"
    sys_version = ""
    timeout = 30

    def is_local(self) -> bool:
        # DNS rebinding: a page may point its own name at 127.0.0.1; its requests carry that name as Host.
        port = self.server.origin_port
        known = {f"127.0.0.1:{port}", f"localhost:{port}"}
        return self.client_address[0].startswith("127.") and self.headers.get("Host") in known

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log requests."""


class _Handler(LoopbackHandler):
    """Answers GET and HEAD requests for one path."""

    file: Path
    name: str
    done: threading.Event

    def do_GET(self) -> None:
        if not self.is_local():
            return self.send_error(HTTPStatus.FORBIDDEN)
        if self.path != self.name:
            return self.send_error(HTTPStatus.NOT_FOUND)
        with self.file.open("rb") as source:
            size = os.fstat(source.fileno()).st_size
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(size))
            self.send_header("Cache-Control", "no-store")
            self.send_header("Access-Control-Allow-Origin", UI)
            self.end_headers()
            if self.command == "HEAD":
                return None
            while chunk := source.read(_CHUNK):
                self.wfile.write(chunk)
        self.wfile.flush()
        self.done.set()
        return None

    do_HEAD = do_GET


def tunnel_command(connection: str, port: int = PORT, user: str | None = None) -> str:
    """The `ssh -L` command to run on the user's own machine, from the SSH_CONNECTION of this one."""
    fields = connection.split()
    host, ssh_port = (fields[2], fields[3]) if len(fields) == 4 else ("THIS-MACHINE", "22")
    other = f" -p {ssh_port}" if ssh_port != "22" else ""
    return f"ssh -N -L {port}:127.0.0.1:{port}{other} {user or _user()}@{host}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # in a container, the user may have no name
        return "YOUR-NAME"
