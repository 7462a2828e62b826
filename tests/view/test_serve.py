"""The server for the Perfetto UI: one file, this machine only, one header, and it ends by itself."""

from __future__ import annotations

import http.client
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.support.builders import Span, make_trace
from warplens.commands import main
from warplens.errors import WarplensError
from warplens.view import serve
from warplens.view.serve import UI, PerfettoServer, tunnel_command


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a b.pftrace"
    path.write_bytes(bytes(range(256)) * 5000)
    return path


def ask(server: PerfettoServer, path: str, method: str = "GET", **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.putrequest(method, path, skip_host=True)
    for name, value in {"Host": f"127.0.0.1:{server.port}", **headers}.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    answer.body = answer.read()  # type: ignore[attr-defined]
    return answer


def path_of(server: PerfettoServer) -> str:
    return server.file_url.split(f":{server.port}")[1]


def other_address() -> str | None:
    """An address of this machine that is not loopback; a sandbox may have none, or not know its own name."""
    try:
        found = socket.gethostbyname(socket.gethostname())
    except OSError:
        return None
    return None if found.startswith("127.") else found


def test_it_hands_out_the_one_file_with_the_one_header(file: Path) -> None:
    with PerfettoServer(file, port=0) as server:
        answer = ask(server, path_of(server), Origin=UI)
        assert (answer.status, answer.body) == (200, file.read_bytes())
        cross = {name.lower() for name, _ in answer.getheaders() if name.lower().startswith("access-control")}
        assert cross == {"access-control-allow-origin"}
        assert answer.getheader("Access-Control-Allow-Origin") == UI
        assert server.wait(60)
        assert server.ui_url.startswith(f"{UI}/#!/?url=http://127.0.0.1:{server.port}/")
        assert "a%20b.pftrace" in server.file_url


@pytest.mark.parametrize("path", ["/", "/a%20b.pftrace", "/../../etc/passwd", "/favicon.ico", "//", "/%2e%2e/x"])
def test_nothing_else_is_there(file: Path, path: str) -> None:
    with PerfettoServer(file, port=0) as server:
        answer = ask(server, path)
        assert answer.status == 404
        assert answer.getheader("Access-Control-Allow-Origin") is None
        assert not server.done.is_set()


def test_other_methods_and_other_names_of_this_machine_are_refused(file: Path) -> None:
    with PerfettoServer(file, port=0) as server:
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            assert ask(server, path_of(server), method).status == 501
        assert ask(server, path_of(server), Host="evil.example:9001").status == 403
        head = ask(server, path_of(server), "HEAD")
        assert (head.status, head.body, head.getheader("Content-Length")) == (200, b"", str(file.stat().st_size))
        assert not server.done.is_set(), "a HEAD is not a fetch"


def test_only_loopback_is_listened_on(file: Path) -> None:
    with PerfettoServer(file, port=0) as server:
        assert server._http.server_address[0] == "127.0.0.1"
        outside = other_address()
        if outside is None:
            pytest.skip("this machine has no other address")
        with pytest.raises(OSError, match=".*"), socket.create_connection((outside, server.port), timeout=2):
            pass


def test_names_cannot_be_guessed_and_the_port_is_free_afterwards(file: Path) -> None:
    with PerfettoServer(file, port=0) as first:
        port = first.port
        name = path_of(first)
    with PerfettoServer(file, port=port) as second:
        assert path_of(second) != name
        assert len(path_of(second).split("/")[1]) >= 16


def test_a_busy_port_offers_the_page_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = make_trace([Span("a", 0, 10)]).save(tmp_path / "t.warplens")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(WarplensError, match="is in use"):
            PerfettoServer(tmp_path / "x", port=port)
        monkeypatch.setattr(serve.PerfettoServer.__init__, "__defaults__", (port,))
        assert main(["view", str(trace)]) == 1
    said = capsys.readouterr().err
    assert f"port {port}" in said
    assert f"warplens report {trace}" in said


def test_the_command_serves_a_real_trace_and_then_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = make_trace([Span("a", 0, 10), Span("b", 20, 5)]).save(tmp_path / "t.warplens")
    monkeypatch.setattr(serve.PerfettoServer.__init__, "__defaults__", (0,))
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    got: list[bytes] = []
    fetching: list[threading.Thread] = []

    def browser(url: str) -> None:
        address = url.split("?url=")[1]
        port = int(address.split(":")[2].split("/")[0])
        connection = http.client.HTTPConnection("127.0.0.1", port)

        def fetch() -> None:
            connection.request("GET", address.split(str(port))[1])
            got.append(connection.getresponse().read())

        fetching.append(threading.Thread(target=fetch))
        fetching[-1].start()

    monkeypatch.setattr("webbrowser.open", browser)
    assert main(["view", str(trace), "--timeout", "60"]) == 0
    fetching[0].join()
    assert len(got[0]) > 50
    assert "fetched" in capsys.readouterr().err
    merged = trace.with_suffix(".pftrace")
    assert main(["view", str(merged)]) == 1, "there is no such file"
    merged.write_bytes(b"as it is" * 10)
    assert main(["view", str(merged), "--timeout", "60"]) == 0
    fetching[1].join()
    assert got[1] == b"as it is" * 10
    capsys.readouterr()
    assert main(["view", str(trace), "--no-browser", "--timeout", "0.05"]) == 1
    assert "no browser fetched the trace" in capsys.readouterr().err


def test_a_remote_machine_prints_the_tunnel_and_opens_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = make_trace([Span("a", 0, 10)]).save(tmp_path / "t.warplens")
    monkeypatch.setattr(serve.PerfettoServer.__init__, "__defaults__", (0,))
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.9 51000 10.0.0.5 2222")
    monkeypatch.setattr("webbrowser.open", lambda url: pytest.fail("opened a browser on a remote machine"))
    assert main(["view", str(trace), "--timeout", "0.05"]) == 1
    said = capsys.readouterr().err
    assert "ssh -N -L " in said
    assert "-p 2222 " in said
    assert "@10.0.0.5" in said
    assert "https://ui.perfetto.dev/#!/?url=http://127.0.0.1:" in said


def test_the_tunnel_line_is_exact() -> None:
    assert tunnel_command("10.0.0.9 51000 10.0.0.5 22", user="ann") == "ssh -N -L 9001:127.0.0.1:9001 ann@10.0.0.5"
    assert tunnel_command("garbage", 9001, "ann") == "ssh -N -L 9001:127.0.0.1:9001 ann@THIS-MACHINE"


@pytest.mark.parametrize("error", [KeyError("getpwuid(): uid not found: 4711"), OSError("No username set")])
def test_a_user_without_a_name_still_gets_the_tunnel_line(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise error

    monkeypatch.setattr(serve.getpass, "getuser", nameless)
    assert tunnel_command("10.0.0.9 51000 10.0.0.5 22").endswith(" YOUR-NAME@10.0.0.5")


def slow_clients(server: PerfettoServer) -> list[socket.socket]:
    """One that says nothing, one that stops in the middle of its request, one that never reads, one that keeps on."""
    request = f"GET {path_of(server)} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n".encode()
    clients = []
    for sent in (b"", request[:20], request + b"\r\n", request + b"Connection: keep-alive\r\n\r\n"):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", server.port))
        client.sendall(sent)
        clients.append(client)
    time.sleep(0.3)
    return clients


@pytest.mark.parametrize("fetched", [True, False])
def test_the_server_ends_within_a_second_whatever_its_clients_do(tmp_path: Path, fetched: bool) -> None:
    path = tmp_path / "big.pftrace"
    path.write_bytes(bytes(32 << 20))
    with PerfettoServer(path, port=0) as server:
        clients = slow_clients(server)
        if fetched:
            assert len(ask(server, path_of(server)).body) == 32 << 20  # type: ignore[attr-defined]
            assert server.wait(60)
        started = time.monotonic()
    assert time.monotonic() - started < 5, "within a second on a machine that is not busy"
    for client in clients:
        client.close()


def test_ctrl_c_ends_the_command_within_a_second(tmp_path: Path) -> None:
    path = tmp_path / "big.pftrace"
    path.write_bytes(bytes(32 << 20))
    program = (
        "import sys; from warplens.view import serve; serve.PerfettoServer.__init__.__defaults__ = (0,)\n"
        "from warplens.commands import main\n"
        f"sys.exit(main(['view', {str(path)!r}, '--no-browser']))"
    )
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        address = ""
        while "url=" not in address:
            address = running.stderr.readline()
        running.stderr.readline()
        port = int(address.split("127.0.0.1:")[1].split("/")[0])
        with socket.create_connection(("127.0.0.1", port)) as silent:
            silent.send(b"GET")
            time.sleep(0.3)
            running.send_signal(signal.SIGINT)
            started = time.monotonic()
            assert running.wait(10) == 130
            assert time.monotonic() - started < 5, "a second, and Python's own exit, on a machine that is not busy"


def test_clients_that_say_nothing_take_no_threads_and_keep_nobody_out(file: Path) -> None:
    before = threading.active_count()
    with PerfettoServer(file, port=0) as server:
        idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(150)]
        assert ask(server, path_of(server)).body == file.read_bytes()  # type: ignore[attr-defined]
        assert threading.active_count() - before < 80
        began = time.monotonic()
    assert time.monotonic() - began < 5, "within a second on a machine that is not busy"
    for one in idle:
        one.close()
