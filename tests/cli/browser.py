"""A real browser without a window, spoken to through pipes: no port, no driver, no network.

Source: the Chrome DevTools protocol, https://chromedevtools.github.io/devtools-protocol/.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
DEADLINE_S = 60.0
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-extensions", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--hide-scrollbars", "--remote-debugging-pipe", "--mute-audio",
)  # fmt: skip


def found() -> str | None:
    """Return where a browser is; ``None`` where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page of a browser.

    Attributes:
        events: What the browser told without being asked, as ``(method, params)``.
    """

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = reading, writing
        self._buffer = b""
        self._number = 0
        self._session = ""
        self.events: list[tuple[str, Mapping[str, Any]]] = []

    def begin(self) -> None:
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility", "DOM"):
            self.ask(f"{domain}.enable")

    def open(self, page: Path | str, *, width: int = 1100, dark: bool = False) -> None:
        self.show(width=width, dark=dark)
        self.events.clear()
        self.ask("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        while not any(method == "Page.loadEventFired" for method, _ in self.events):
            self._heard()

    def show(self, *, width: int = 1100, dark: bool = False) -> None:
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])

    def evaluate(self, expression: str) -> Any:
        answer = self.ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str, *, code: int, text: str = "") -> None:
        common = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.ask("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **common)

    def wait(self, condition: str) -> None:
        """Wait until a condition holds on the page."""
        until = time.monotonic() + DEADLINE_S
        while not self.evaluate(f"Boolean({condition})"):
            assert time.monotonic() < until, (condition, self.evaluate("document.body.innerText"))
            time.sleep(0.05)

    def tab_to(self, text: str) -> None:
        """Press Tab until an element whose text or name begins so has the focus."""
        for _ in range(400):
            self.press("Tab", code=9)
            focused = "(document.activeElement?.textContent || document.activeElement?.name || '')"
            if str(self.evaluate(f"{focused}.trim()")).startswith(text):
                return
        raise AssertionError(f"no element {text!r} is reached by Tab")

    def enter(self) -> None:
        """Press Enter."""
        self.press("Enter", code=13, text="\r")

    def screenshot(self) -> bytes:
        answer = self.ask("Page.captureScreenshot", format="png")
        return base64.b64decode(answer["data"])

    def spoken(self) -> list[tuple[str, str]]:
        """Return what a screen reader is told: roles with their names."""
        nodes = self.ask("Accessibility.getFullAXTree")["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in nodes
            if not node.get("ignored")
        ]

    def complaints(self) -> list[Mapping[str, Any]]:
        """Return what went to the console, was thrown or was refused since the page was opened."""
        told = {"Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"}
        return [params for method, params in self.events if method in told]

    def fetched(self) -> list[str]:
        """Return what was asked of the network or the disk since the page was opened."""
        asked = "Network.requestWillBeSent"
        return [params["request"]["url"] for method, params in self.events if method == asked]

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        session = {"sessionId": self._session} if self._session else {}
        message = {"id": self._number, "method": method, "params": params, **session}
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        while True:
            heard = self._heard()
            if heard.get("id") == self._number:
                assert "error" not in heard, (method, heard["error"])
                answer: dict[str, Any] = heard["result"]
                return answer

    def _heard(self) -> dict[str, Any]:
        deadline = time.monotonic() + DEADLINE_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._reading], [], [], deadline - time.monotonic())
            assert ready, "the browser says nothing any more"
            more = os.read(self._reading, 1 << 20)
            assert more, "the browser has gone"
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\0")
        heard: dict[str, Any] = json.loads(line)
        if "method" in heard:
            self.events.append((heard["method"], heard["params"]))
        return heard


@contextmanager
def browsing(program: str, folder: Path) -> Iterator[Browser]:
    """Run a browser whose profile is in a folder, and end it."""
    to_read, written = os.pipe()
    reading, to_write = os.pipe()
    command = f'exec "$@" 3<&{to_read} 4>&{to_write}'
    process = subprocess.Popen(
        ["bash", "-c", command, "browser", program, *FLAGS, f"--user-data-dir={folder}"],
        pass_fds=(to_read, to_write),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder), "LANG": "C.UTF-8"},
    )
    os.close(to_read)
    os.close(to_write)
    browser = Browser(reading, written)
    try:
        browser.begin()
        yield browser
    finally:
        process.kill()
        process.wait()
        os.close(reading)
        os.close(written)
