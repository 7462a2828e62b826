"""A headless Firefox driven through WebDriver BiDi, which it speaks over a websocket; pages as in chromium.py."""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from websocket import WebSocket, create_connection

from tests.support.browser import Browser, BrowserPage

_NAMES = ("firefox-esr", "firefox")
_READY = re.compile(r"WebDriver BiDi listening on (ws://\S+)")
_PREFERENCES = {
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "toolkit.telemetry.reportingpolicy.firstRun": False,
    "app.update.enabled": False,
    "browser.startup.homepage_override.mstone": "ignore",
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "ui.prefersReducedMotion": 1,
}
_KEYS = {
    "Enter": "\ue007",
    "Escape": "\ue00c",
    "ArrowLeft": "\ue012",
    "ArrowUp": "\ue013",
    "ArrowRight": "\ue014",
    "ArrowDown": "\ue015",
}
_MODIFIERS = {1: "\ue00a", 2: "\ue009", 4: "\ue03d", 8: "\ue008"}
"""Bits as in the DevTools protocol: Alt, Ctrl, Meta, Shift."""


def find_firefox() -> str | None:
    """The browser to drive: $FIREFOX, or the first on PATH."""
    return os.environ.get("FIREFOX") or next((found for name in _NAMES if (found := shutil.which(name))), None)


class Firefox(Browser):
    """One browser; `open` gives a page in it."""

    def __init__(self, executable: str) -> None:
        super().__init__("firefox")
        profile = Path(self._folder.name)
        lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in _PREFERENCES.items()]
        (profile / "user.js").write_text("\n".join(lines))
        self._log = profile / "browser.log"
        with self._log.open("wb") as out:
            self._process = subprocess.Popen(
                [executable, "--headless", "--no-remote", "--profile", str(profile), "--remote-debugging-port", "0"],
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, "MOZ_HEADLESS_WIDTH": "1600", "MOZ_HEADLESS_HEIGHT": "1200", "HOME": str(profile)},
            )
        self._wire = Wire(
            create_connection(f"{self._once_told(self._told_address)}/session", timeout=120, suppress_origin=True)
        )
        self._wire.send("session.new", capabilities={})
        self._wire.send("session.subscribe", events=["log.entryAdded", "network.beforeRequestSent"])

    def _told_address(self) -> str | None:
        found = _READY.search(self._log.read_text(errors="replace"))
        return found and found[1]

    def open(self, url: str = "about:blank", *, width: int = 1500, height: int = 950, scale: float = 1) -> FirefoxPage:
        context = self._wire.send("browsingContext.create", type="tab")["context"]
        page = FirefoxPage(self._wire, context)
        page.resize(width, height, scale)
        page.go(url)
        return page


class Wire:
    """The connection: commands, their answers, and the events of every page in between."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.events: list[dict[str, Any]] = []

    def send(self, method: str, **parameters: Any) -> Any:
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") == number:
                if message["type"] == "error":
                    raise RuntimeError(f"{method}: {message['error']}: {message['message']}")
                return message["result"]
            if message.get("type") == "event":
                self.events.append(message)


class FirefoxPage(BrowserPage):
    """One tab, with the methods of `chromium.Page` that tests for both browsers use."""

    def __init__(self, wire: Wire, context: str) -> None:
        self._wire = wire
        self._context = context
        self._forgotten = 0

    def send(self, method: str, **parameters: Any) -> Any:
        return self._wire.send(method, context=self._context, **parameters)

    @property
    def errors(self) -> list[str]:
        """Uncaught exceptions and what the console says as an error or warning."""
        mine = [
            event["params"]
            for event in self._wire.events
            if event["method"] == "log.entryAdded" and event["params"]["source"].get("context") == self._context
        ]
        return [str(entry["text"]) for entry in mine if entry["level"] in ("error", "warn")][self._forgotten :]

    def forget_errors(self) -> None:
        """Leave out the errors so far, which a test has caused on purpose; Firefox reports them with a delay."""
        deadline = time.monotonic() + 5
        while not self.errors and time.monotonic() < deadline:
            time.sleep(0.05)
            self.frame()
        self._forgotten += len(self.errors)

    @property
    def requests(self) -> list[str]:
        mine = [
            event["params"]
            for event in self._wire.events
            if event["method"] == "network.beforeRequestSent" and event["params"]["context"] == self._context
        ]
        return [entry["request"]["url"] for entry in mine]

    def go(self, url: str) -> None:
        self.send("browsingContext.navigate", url=url, wait="complete")

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression (awaited when it is a promise); JSON carries it."""
        wrapped = f"Promise.resolve({script}).then((value) => JSON.stringify(value))"
        answer = self._wire.send(
            "script.evaluate", expression=wrapped, target={"context": self._context}, awaitPromise=True
        )
        if answer["type"] == "exception":
            raise AssertionError(answer["exceptionDetails"]["text"])
        text = answer["result"].get("value")
        return None if text is None else json.loads(text)

    def resize(self, width: int, height: int, scale: float = 1) -> None:
        size = {"width": width, "height": height}
        self.send("browsingContext.setViewport", viewport=size, devicePixelRatio=scale)

    def _pointer(self, *steps: dict[str, Any], modifiers: int = 0) -> None:
        held = [key for bit, key in _MODIFIERS.items() if modifiers & bit]
        for key in held:
            self._keys({"type": "keyDown", "value": key})
        source = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": list(steps)}
        self.send("input.performActions", actions=[source])
        for key in reversed(held):
            self._keys({"type": "keyUp", "value": key})
        self.frame()

    def _keys(self, *steps: dict[str, Any]) -> None:
        self.send("input.performActions", actions=[{"type": "key", "id": "keyboard", "actions": list(steps)}])

    def hover(self, x: float, y: float) -> None:
        self._pointer(_move(x, y))

    def click(self, x: float, y: float, count: int = 1) -> None:
        press = [{"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
        self._pointer(_move(x, y), *press * count)

    def drag(self, x0: float, y0: float, x1: float, y1: float, modifiers: int = 0) -> None:
        moves = [_move(x0 + (x1 - x0) * step / 8, y0 + (y1 - y0) * step / 8) for step in range(1, 9)]
        down, up = {"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}
        self._pointer(_move(x0, y0), down, *moves, up, modifiers=modifiers)

    def key(self, key: str) -> None:
        value = _KEYS.get(key, key)
        self._keys({"type": "keyDown", "value": value}, {"type": "keyUp", "value": value})
        self.frame()

    def screenshot(self, path: Path) -> Path:
        path.write_bytes(base64.b64decode(self.send("browsingContext.captureScreenshot")["data"]))
        return path

    def close(self) -> None:
        self.send("browsingContext.close")


def _move(x: float, y: float) -> dict[str, Any]:
    return {"type": "pointerMove", "x": round(x), "y": round(y)}
