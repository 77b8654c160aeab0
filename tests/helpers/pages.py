"""HTML pages in tests: their elements, and their rendering by a browser."""

import contextlib
import json
import os
import select
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

CHROMIUM = next(
    filter(None, map(shutil.which, ("/usr/bin/chromium", "chromium", "google-chrome"))), None
)
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--remote-debugging-pipe",
]


class Reader(HTMLParser):
    """Elements, attributes and text of a page, as parsed by a browser."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.text, self.scripts = [], [], [], []
        self._inside = None

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attributes]
        if tag in ("script", "style"):
            self._inside = tag
            if tag == "script":
                self.scripts.append("")

    def handle_endtag(self, tag):
        if tag == self._inside:
            self._inside = None

    def handle_data(self, data):
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside is None:
            self.text.append(data)


class Browser:
    """Chromium, driven through its debugging pipe: JSON messages that end in a zero byte."""

    def __init__(self, profile):
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        # The browser reads from descriptor 3 and writes to 4, which a shell can give it.
        shell = f'exec "$@" 3<&{to_read} 4>&{to_write}'
        rules = "--host-resolver-rules=MAP * ~NOTFOUND"
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "-", CHROMIUM, *FLAGS, rules, f"--user-data-dir={profile}"],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._buffer, self._number, self._session, self.events = b"", 0, None, []
        target = self("Target.createTarget", url="about:blank")["targetId"]
        session = self("Target.attachToTarget", targetId=target, flatten=True)
        self._session = session["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self(f"{domain}.enable")

    def __call__(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def _next(self):
        while b"\0" not in self._buffer:
            if not select.select([self._from], [], [], 60)[0]:
                raise TimeoutError("the browser does not answer")
            part = os.read(self._from, 1 << 20)
            if not part:
                raise EOFError("the browser ended")
            self._buffer += part
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def open(self, path, width=1280, theme="light"):
        self.events.clear()
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": theme}
        self("Emulation.setEmulatedMedia", features=[scheme])
        self("Page.navigate", url=path.resolve().as_uri())
        while "Page.loadEventFired" not in [event["method"] for event in self.events]:
            self.events.append(self._next())

    def run(self, script):
        answer = self("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            code = {"Enter": 13, "ArrowRight": 39, "ArrowLeft": 37, "Escape": 27}[key]
            self("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **text)

    def point(self, x, y):
        self("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector):
        x, y = self.run(
            f"(() => {{ const e = document.querySelector('{selector}');"
            "e.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const b = e.getBoundingClientRect();"
            "return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            where = {"x": x, "y": y, "button": "left", "clickCount": 1}
            self("Input.dispatchMouseEvent", type=kind, **where)

    def complaints(self):
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [event for event in self.events if event["method"] in kinds]

    def requests(self):
        sent = [e for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def close(self):
        self._session = None
        with contextlib.suppress(EOFError, OSError, TimeoutError):
            self("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._to)
        os.close(self._from)


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """A headless browser; skips the test if none is installed."""
    if CHROMIUM is None:
        pytest.skip("no chromium or google-chrome is installed")
    started = Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()
