"""A headless Chromium that tests drive as a person would: by WebDriver over HTTP, and by DevTools
for what WebDriver has no word for.
"""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ports import free_port

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
DRIVER = shutil.which("chromedriver")
MISSING = "" if CHROMIUM and DRIVER else "needs chromium and chromium-driver (Debian's packages)"
ENTER, SHIFT, ESCAPE, TAB, SPACE = "\ue007", "\ue008", "\ue00c", "\ue004", " "
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class BrowserError(Exception):
    """The browser refused a command."""


class Browser:
    """One window. Selectors are CSS; scripts are bodies of functions."""

    def __init__(self, url: str) -> None:
        self._url = url

    def go(self, url: str) -> None:
        self._post("/url", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        """What the script returns; a promise is awaited."""
        return self._post("/execute/sync", {"script": script, "args": arguments})

    def text(self, selector: str) -> str:
        return str(self.run("return document.querySelector(arguments[0]).textContent", selector))

    def shown(self, selector: str) -> bool:
        script = "const e = document.querySelector(arguments[0]); return !!e && e.checkVisibility()"
        return bool(self.run(script, selector))

    def focused(self) -> str:
        """The id of what has the focus; "": it has none."""
        return str(self.run("return document.activeElement.id"))

    def click(self, selector: str) -> None:
        self._post(f"/element/{self._find(selector)}/click", {})

    def write(self, selector: str, text: str) -> None:
        self._post(f"/element/{self._find(selector)}/value", {"text": text})

    def press(self, *keys: str, hold: str = "") -> None:
        """Keys one after the other, wherever the focus is; with `hold` held down all the while."""
        pressed = [{"type": kind, "value": k} for k in keys for kind in ("keyDown", "keyUp")]
        if hold:
            down, up = {"type": "keyDown", "value": hold}, {"type": "keyUp", "value": hold}
            pressed = [down, *pressed, up]
        self._post("/actions", {"actions": [{"type": "key", "id": "keys", "actions": pressed}]})

    def until(self, fact: Callable[[], Any], timeout_s: float = 20.0) -> Any:
        deadline = time.monotonic() + timeout_s
        while not (found := fact()):
            assert time.monotonic() < deadline, self.text("body")
            time.sleep(0.02)
        return found

    def devtools(self, command: str, **parameters: Any) -> Any:
        return self._post("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def look(self, scheme: str, *, width: int = 1280) -> None:
        """The reader's preference for light or dark, and a window of this width in CSS pixels."""
        preferred = [{"name": "prefers-color-scheme", "value": scheme}]
        self.devtools("Emulation.setEmulatedMedia", features=preferred)
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        self.devtools("Emulation.setDeviceMetricsOverride", **size)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._get("/screenshot")))

    def errors(self) -> list[str]:
        """What the console has shown since the last call, from warnings on."""
        entries = self._post("/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] in ("WARNING", "SEVERE")]

    def quit(self) -> None:
        _call("DELETE", self._url)

    def _find(self, selector: str) -> str:
        found = self._post("/element", {"using": "css selector", "value": selector})
        return str(found[_ELEMENT])

    def _get(self, path: str) -> Any:
        return _call("GET", self._url + path)

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        return _call("POST", self._url + path, body)


@contextlib.contextmanager
def browsing(folder: Path) -> Iterator[Browser]:
    """A browser with a profile of its own; it ends with the test."""
    port = free_port()
    log = folder / "chromedriver.log"
    driver = subprocess.Popen(
        [str(DRIVER), f"--port={port}", f"--log-path={log}"],
        stdout=subprocess.DEVNULL,
        env=os.environ | {"HOME": str(folder)},
    )
    try:
        browser = _open(f"http://127.0.0.1:{port}", folder)
        try:
            yield browser
        finally:
            browser.quit()
    finally:
        driver.terminate()
        driver.wait(10)


def _open(driver: str, folder: Path) -> Browser:
    flags = ["--headless=new", f"--user-data-dir={folder / 'profile'}", "--window-size=1280,860"]
    flags += ["--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    if os.geteuid() == 0:
        flags.append("--no-sandbox")  # Chromium's sandbox does not start for root
    wanted = {
        "goog:chromeOptions": {"binary": CHROMIUM, "args": flags},
        "goog:loggingPrefs": {"browser": "ALL"},
    }
    deadline = time.monotonic() + 20
    while True:
        try:
            made = _call("POST", f"{driver}/session", {"capabilities": {"alwaysMatch": wanted}})
            return Browser(f"{driver}/session/{made['sessionId']}")
        except urllib.error.URLError:  # it does not listen yet
            assert time.monotonic() < deadline
            time.sleep(0.05)


def _call(method: str, url: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)["value"]
    except urllib.error.HTTPError as error:
        with error:
            raise BrowserError(json.load(error)["value"]["message"]) from None
