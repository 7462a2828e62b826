"""A headless Chromium driven through its DevTools protocol: just what the tests of the report need."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

from websocket import WebSocket, create_connection

from tests.support.browser import Browser, BrowserPage

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
    "--remote-debugging-port=0",
    "--remote-allow-origins=*",
)


def find_chromium() -> str | None:
    """The browser to drive: $CHROMIUM, or the first on PATH."""
    return os.environ.get("CHROMIUM") or next((found for name in _NAMES if (found := shutil.which(name))), None)


class Chromium(Browser):
    """One browser; `open` gives a page in it."""

    def __init__(self, executable: str) -> None:
        super().__init__("chromium")
        self._process = subprocess.Popen(
            [executable, *_FLAGS, f"--user-data-dir={self._folder.name}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._port = self._once_told(self._told_port)

    def _told_port(self) -> int | None:
        told = Path(self._folder.name) / "DevToolsActivePort"
        return int(lines[0]) if told.exists() and (lines := told.read_text().splitlines()) else None

    def open(self, url: str = "about:blank", *, width: int = 1500, height: int = 950, scale: float = 1) -> Page:
        request = urllib.request.Request(f"http://127.0.0.1:{self._port}/json/new?about:blank", method="PUT")
        with urllib.request.urlopen(request) as answer:
            target = json.load(answer)
        page = Page(create_connection(target["webSocketDebuggerUrl"], timeout=120))
        page.send("Page.enable")
        page.send("Runtime.enable")
        page.send("Log.enable")
        page.send("Network.enable")
        page.resize(width, height, scale)
        page.go(url)
        return page


class Page(BrowserPage):
    """One tab. `errors` collects uncaught exceptions, console errors and the browser's own complaints."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.errors: list[str] = []
        self.requests: list[str] = []

    def send(self, method: str, **parameters: Any) -> Any:
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self._note(message)

    def forget_errors(self) -> None:
        """Leave out the errors so far, which a test has caused on purpose."""
        self.errors.clear()

    def _note(self, message: dict[str, Any]) -> None:
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.errors.append(str(details.get("exception", {}).get("description") or details.get("text")))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(arg.get("value", arg.get("description"))) for arg in parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.errors.append(parameters["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])

    def go(self, url: str) -> None:
        self.send("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression (awaited when it is a promise)."""
        answer = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise AssertionError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    def busy_seconds(self) -> float:
        """What the page's main thread has computed so far; unlike the time between frames, the same under any load."""
        self.send("Performance.enable")
        metrics = self.send("Performance.getMetrics")["metrics"]
        return float(next(metric["value"] for metric in metrics if metric["name"] == "ThreadTime"))

    def resize(self, width: int, height: int, scale: float = 1) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def hover(self, x: float, y: float) -> None:
        self.mouse("mouseMoved", x, y)
        self.frame()

    def click(self, x: float, y: float, count: int = 1) -> None:
        self.mouse("mouseMoved", x, y)
        for at in range(1, count + 1):
            self.mouse("mousePressed", x, y, button="left", clickCount=at)
            self.mouse("mouseReleased", x, y, button="left", clickCount=at)
        self.frame()

    def drag(self, x0: float, y0: float, x1: float, y1: float, modifiers: int = 0) -> None:
        self.mouse("mouseMoved", x0, y0, modifiers=modifiers)
        self.mouse("mousePressed", x0, y0, button="left", clickCount=1, modifiers=modifiers)
        for step in range(1, 9):
            x, y = x0 + (x1 - x0) * step / 8, y0 + (y1 - y0) * step / 8
            self.mouse("mouseMoved", x, y, button="left", buttons=1, modifiers=modifiers)
        self.mouse("mouseReleased", x1, y1, button="left", clickCount=1, modifiers=modifiers)
        self.frame()

    def wheel(self, x: float, y: float, dy: float, modifiers: int = 0) -> None:
        self.mouse("mouseWheel", x, y, deltaX=0, deltaY=dy, modifiers=modifiers)
        self.frame()

    def key(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.frame()

    def touch(self, kind: str, points: list[tuple[float, float]]) -> None:
        touched = [{"x": x, "y": y, "id": at} for at, (x, y) in enumerate(points)]
        self.send("Input.dispatchTouchEvent", type=kind, touchPoints=touched)

    def screenshot(self, path: Path, *, whole: bool = False) -> Path:
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))
        return path

    def close(self) -> None:
        self._socket.close()
