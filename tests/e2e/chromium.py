# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, asked over its debugging pipe (https://chromedevtools.github.io/devtools-protocol/)."""

import base64
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

DEADLINE_S = 60


def program():
    """Chromium's, as deploy/setup.sh --test has unpacked it, or of this machine; None: there is none."""
    command = shutil.which("chromium-headless-shell")
    # The command is a script, which looks for it in /usr alone.
    beside = pathlib.Path(command).parents[1] / "lib" / "chromium" / "chromium-headless-shell" if command else None
    return str(beside) if beside and beside.exists() else None


def environment():
    """With the libraries that were unpacked beside it."""
    libraries = pathlib.Path(program()).parents[1] / f"{os.uname().machine}-linux-gnu"
    return {**os.environ, "LD_LIBRARY_PATH": f"{libraries}:{libraries}/pulseaudio"}


class Browser:
    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="ddprun-chromium-", ignore_cleanup_errors=True)
        read, self.to = os.pipe()
        self.back, write = os.pipe()
        words = [program(), "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"]
        words.append(f"--user-data-dir={self.folder.name}")

        def take_places():
            os.dup2(read, 3)
            os.dup2(write, 4)

        self.process = subprocess.Popen(words, preexec_fn=take_places, pass_fds=(3, 4), stderr=subprocess.DEVNULL, env=environment())
        os.close(read)
        os.close(write)
        self.rest = b""
        self.number = 0
        self.logged = []  # texts of the console and of uncaught errors
        self.asked = []  # addresses
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *why):
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if method.split(".")[0] != "Target":
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                self.rest += os.read(self.back, 1 << 16)
            one, _, self.rest = self.rest.partition(b"\0")
            answer = json.loads(one)
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]
            self.hear(answer)

    def hear(self, event):
        given = event.get("params", {})
        if event["method"] == "Runtime.exceptionThrown":
            self.logged.append(json.dumps(given["exceptionDetails"]))
        elif event["method"] == "Log.entryAdded":
            self.logged.append(given["entry"]["text"])
        elif event["method"] == "Network.requestWillBeSent":
            self.asked.append(given["request"]["url"])

    def open(self, url, width=1280, height=1000, dark=False, phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url=url)

    def value(self, script):
        """Of a JavaScript expression."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait_for(self, script):
        """Until it is true: of a page that is not loaded yet it is not."""
        deadline = time.monotonic() + DEADLINE_S
        loaded = "document.readyState === 'complete' && typeof draw === 'function'"
        while not (found := self.value(loaded) and self.value(script)):
            assert time.monotonic() < deadline, f"{script} did not become true; the page says: {self.value('document.body.innerText')}"
            time.sleep(0.05)
        return found

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key)

    def picture(self, path):
        pathlib.Path(path).write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))
