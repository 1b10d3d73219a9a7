"""A Chromium that obeys: DevTools commands over two pipes, with Python's standard library alone."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


def found():
    """The path of the browser, or None."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for path in map(shutil.which, names) if path), None)


class Chromium:
    def __init__(self):
        self.profile = tempfile.mkdtemp()
        commands, self.commands = os.pipe()
        self.answers, answers = os.pipe()
        # Chromium reads commands from descriptor 3 and writes answers to 4.
        script = f'exec "$@" 3<&{commands} 4>&{answers}'
        flags = [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--no-first-run", "--hide-scrollbars", "--remote-debugging-pipe",
            f"--user-data-dir={self.profile}", "about:blank",
        ]
        self.process = subprocess.Popen(
            ["bash", "-c", script, "bash", found(), *flags],
            pass_fds=(commands, answers), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        self.rest, self.number = b"", 0
        # What the pages have said on their consoles, and what the browser refused them.
        self.told = []

    def close(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)

    def send(self, method, session=None, **params):
        """The result of a command."""
        self.number += 1
        command = {"id": self.number, "method": method, "params": params}
        if session:
            command["sessionId"] = session
        os.write(self.commands, json.dumps(command).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _read(self, patience=30):
        end = time.monotonic() + patience
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.answers], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise TimeoutError("the browser does not answer")
            self.rest += os.read(self.answers, 1 << 20)
        one, self.rest = self.rest.split(b"\0", 1)
        answer = json.loads(one)
        self._note(answer)
        return answer

    def _note(self, event):
        params = event.get("params", {})
        if event.get("method") == "Runtime.consoleAPICalled":
            words = [str(it.get("value", it.get("description"))) for it in params["args"]]
            self.told.append(f"{params['type']}: {' '.join(words)}")
        elif event.get("method") == "Runtime.exceptionThrown":
            self.told.append(f"exception: {params['exceptionDetails']}")
        elif event.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.told.append(f"error: {params['entry']['text']} {params['entry'].get('url', '')}")

    def tab(self, url, width=1280, height=900, dark=False, scale=1):
        return Tab(self, url, width, height, dark, scale)


class Tab:
    def __init__(self, browser, url, width, height, dark, scale):
        self.browser = browser
        target = browser.send("Target.createTarget", url="about:blank")["targetId"]
        attached = browser.send("Target.attachToTarget", targetId=target, flatten=True)
        self.target, self.session = target, attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=scale, mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.go(url)

    def send(self, method, **params):
        return self.browser.send(method, self.session, **params)

    def go(self, url):
        self.send("Page.navigate", url=url)
        self.until("document.readyState === 'complete'", 20)

    def close(self):
        self.browser.send("Target.closeTarget", targetId=self.target)

    def run(self, script):
        """The value of a JavaScript expression; promises are awaited."""
        result = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def until(self, script, seconds=5):
        """Waits until the expression is true, and returns how long it took."""
        begin = time.monotonic()
        while True:
            try:
                if self.run(script):
                    return time.monotonic() - begin
            except RuntimeError as error:
                # The page is just being replaced.
                if "context" not in str(error):
                    raise
            if time.monotonic() - begin > seconds:
                raise AssertionError(f"not within {seconds} s: {script}")
            time.sleep(0.05)

    def press(self, key, code=None, text=None):
        for kind in ("keyDown", "keyUp"):
            params = {"type": kind, "key": key, "code": code or key}
            virtual = {"Tab": 9, "Enter": 13, " ": 32}.get(key)
            if virtual:
                params["windowsVirtualKeyCode"] = virtual
            if kind == "keyDown" and text:
                params["text"] = text
            self.send("Input.dispatchKeyEvent", **params)

    def type(self, text):
        self.send("Input.insertText", text=text)

    def picture(self, path, whole=False):
        image = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        with open(path, "wb") as file:
            file.write(base64.b64decode(image["data"]))
