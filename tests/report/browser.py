"""Chromium without a window, driven through Debian's chromedriver by the WebDriver protocol: JSON over HTTP, so no package is needed."""

import base64
import json
import shutil
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

ATTEMPTS = 5  # to start the driver
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)


def missing() -> list[str]:
    return [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]


def _start_driver() -> tuple[subprocess.Popen[str], str] | None:
    """The process and its port; None where it ended at once, as it does now and then when another process takes the port that it drew."""
    process = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if "successfully on port" in line:
            return process, line.rsplit("port ", 1)[1].strip(". \n")
    process.wait()
    return None


class Browser:
    def __init__(self, profile: Path) -> None:
        self._process, port = next(started for _ in range(ATTEMPTS) if (started := _start_driver()) is not None)
        self._root = f"http://127.0.0.1:{port}/session"
        chrome = {"args": [*FLAGS, f"--user-data-dir={profile}", "--window-size=1200,900"], "binary": shutil.which("chromium")}
        wanted = {"browserName": "chrome", "goog:chromeOptions": chrome, "goog:loggingPrefs": {"browser": "ALL"}}
        answer = self._ask("POST", self._root, {"capabilities": {"alwaysMatch": wanted}})
        self._root += f"/{answer['sessionId']}"

    def open(self, page: Path, fragment: str = "") -> None:
        self._ask("POST", f"{self._root}/url", {"url": page.as_uri() + fragment})

    def script(self, code: str, *arguments: Any) -> Any:
        return self._ask("POST", f"{self._root}/execute/sync", {"script": code, "args": list(arguments)})

    def point_at(self, x: float, y: float) -> None:
        move = {"type": "pointerMove", "x": round(x), "y": round(y), "duration": 0}
        self._ask("POST", f"{self._root}/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": [move]}]})

    def press(self, key: str) -> None:
        """A key of the WebDriver table, such as \\ue014 for the right arrow."""
        steps = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self._ask("POST", f"{self._root}/actions", {"actions": [{"type": "key", "id": "keys", "actions": steps}]})

    def resize(self, width: int, height: int) -> None:
        """The size of the page itself: a window cannot be as narrow as a phone."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._ask("POST", f"{self._root}/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": metrics})

    def complaints(self) -> list[str]:
        """What the console holds since it was last asked."""
        return [entry["message"] for entry in self._ask("POST", f"{self._root}/se/log", {"type": "browser"})]

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._ask("GET", f"{self._root}/screenshot")))

    def close(self) -> None:
        self._ask("DELETE", self._root)
        self._process.terminate()
        self._process.wait(10)

    def _ask(self, method: str, url: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {url}: {error.read().decode()[:2000]}") from error
