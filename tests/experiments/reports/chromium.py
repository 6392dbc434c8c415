"""Chromium without a window, driven through a pipe by the DevTools protocol; needs nothing but the program.

with Chromium(profile) as browser:
    browser.open(path, width=1200)
    title = browser.value("document.title")
"""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import select
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

PROGRAM = shutil.which("chromium")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run", "--disable-dev-shm-usage", "--remote-debugging-pipe"),
)

SILENCE_S = 60
"""Seconds without any message after which a test fails instead of waiting for ever."""


class Chromium:
    """A browser with one page.

    Attributes:
      problems: what the pages have written as errors or warnings, and their uncaught exceptions.
      requests: the addresses that the pages have asked for, beside data and blobs inside them.
    """

    def __init__(self, profile: Path) -> None:
        """Starts the browser with a fresh profile in a folder."""
        assert PROGRAM is not None, "Chromium is missing. On Debian: apt install chromium"
        self.problems: list[str] = []
        self.requests: list[str] = []
        self._numbers = itertools.count(1)
        self._session = ""
        self._loaded: set[str] = set()
        self._unread = b""
        (read_there, self._write), (self._read, write_there) = _high_pipe(), _high_pipe()
        arguments = [PROGRAM, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        actions = [(os.POSIX_SPAWN_DUP2, read_there, 3), (os.POSIX_SPAWN_DUP2, write_there, 4)]
        actions += [(os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]  # type: ignore[list-item]
        self._process = os.posix_spawn(PROGRAM, arguments, os.environ, file_actions=actions, setpgroup=0)
        os.close(read_there)
        os.close(write_there)

    def __enter__(self) -> Chromium:
        target = next(each for each in self.call("Target.getTargets")["targetInfos"] if each["type"] == "page")
        options = {"targetId": target["targetId"], "flatten": True}
        self._session = self.call("Target.attachToTarget", options)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", {"enabled": True})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.killpg(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self._read)
        os.close(self._write)

    def call(self, method: str, parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Calls a method of the protocol and returns its result."""
        number = self._send(method, parameters or {})
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def _send(self, method: str, parameters: Mapping[str, Any]) -> int:
        """Sends a call and returns its number."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": dict(parameters)}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        return number

    def open(self, path: Path, *, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Opens a file from the disk and waits until it is loaded and its charts are drawn."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", {"features": [scheme]})
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", size)
        loader = self.call("Page.navigate", {"url": path.absolute().as_uri()})["loaderId"]
        while loader not in self._loaded:
            self._receive()
        self.wait_for("[...document.querySelectorAll('[data-chart]')].every(each => each.querySelector('svg'))")

    def value(self, expression: str) -> Any:
        """Returns the value of a JavaScript expression; a promise is awaited."""
        options = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        answer = self.call("Runtime.evaluate", options)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Waits until a JavaScript expression holds; a test that waits for long fails."""
        turns = "new Promise(done => setTimeout(() => requestAnimationFrame(done), 50))"
        assert any(self.value(condition) or self.value(turns) for _ in range(400)), f"never true: {condition}"

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Writes what is in sight, or the whole page, as a PNG."""
        options = {"captureBeyondViewport": whole}
        if whole:
            content = self.call("Page.getLayoutMetrics")["cssContentSize"]
            options["clip"] = {"x": 0, "y": 0, "width": content["width"], "height": content["height"], "scale": 1}
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", options)["data"]))

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            assert select.select([self._read], [], [], SILENCE_S)[0], f"the browser said nothing for {SILENCE_S} s"
            part = os.read(self._read, 1 << 20)
            assert part, "the browser has ended"
            self._unread += part
        text, _, self._unread = self._unread.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, event: str, facts: Mapping[str, Any]) -> None:
        if event == "Page.lifecycleEvent" and facts["name"] == "load":
            self._loaded.add(facts["loaderId"])
        elif event == "Page.javascriptDialogOpening":  # which would stop the page
            self.problems.append(f"a dialog: {facts['message']}")
            self._send("Page.handleJavaScriptDialog", {"accept": True})
        elif event == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(facts["exceptionDetails"]))
        elif event == "Runtime.consoleAPICalled" and facts["type"] in ("error", "warning", "assert"):
            self.problems.append(json.dumps(facts["args"]))
        elif event == "Log.entryAdded" and facts["entry"]["level"] in ("error", "warning"):
            self.problems.append(json.dumps(facts["entry"]))
        elif event == "Network.requestWillBeSent" and not facts["request"]["url"].startswith(("data:", "blob:")):
            self.requests.append(facts["request"]["url"])


def _high_pipe() -> tuple[int, int]:
    """Returns the ends of a pipe, with numbers that are not those which Chromium expects."""
    ends = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return high[0], high[1]
