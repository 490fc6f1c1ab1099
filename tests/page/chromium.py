# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, driven by the DevTools protocol over a pair of pipes."""
import base64
import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
import time

PATIENCE = 120  # seconds: machines under test are busy


def find():
    for name in ("chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name)
        if path:
            return path
    return None


class Chromium:
    def __init__(self, path):
        self.profile = tempfile.mkdtemp(prefix="antigravity-page-")
        to_read, self.write_fd = os.pipe()
        self.read_fd, to_write = os.pipe()
        # The browser reads commands from descriptor 3 and writes to 4: moved out of each other's way first.
        to_read, to_write = (self._high(to_read), self._high(to_write))

        def place():
            os.dup2(to_read, 3)
            os.dup2(to_write, 4)

        self.process = subprocess.Popen(
            [path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
             "--remote-debugging-pipe", f"--user-data-dir={self.profile}", "about:blank"],
            preexec_fn=place, pass_fds=(3, 4),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.answers, self.listeners, self.last = {}, [], 0
        self.arrived = threading.Condition()
        self.events = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    @staticmethod
    def _high(fd):
        import fcntl
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20)
        os.close(fd)
        return high

    def _read(self):
        pending = b""
        while True:
            piece = os.read(self.read_fd, 1 << 16)
            if not piece:
                return
            *whole, pending = (pending + piece).split(b"\0")
            for text in whole:
                message = json.loads(text)
                if "id" in message:
                    with self.arrived:
                        self.answers[message["id"]] = message
                        self.arrived.notify_all()
                    continue
                for listener in list(self.listeners):
                    listener(message)

    def post(self, method, params=None, session=None):
        """Sends a command without waiting for its answer, so listeners may use it."""
        with self.arrived:
            self.last += 1
            number = self.last
            message = {"id": number, "method": method, "params": params or {}}
            if session:
                message["sessionId"] = session
            os.write(self.write_fd, json.dumps(message).encode() + b"\0")
        return number

    def call(self, method, params=None, session=None):
        number = self.post(method, params, session)
        end = time.monotonic() + PATIENCE
        with self.arrived:
            while number not in self.answers:
                if not self.arrived.wait(end - time.monotonic()) and time.monotonic() > end:
                    raise TimeoutError(f"no answer to {method}")
            answer = self.answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def close(self):
        try:
            self.post("Browser.close")
            self.process.wait(20)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)


class Tab:
    """One page; records what it fetched and what its policy refused."""

    WATCH = """
        window.violations = [];
        document.addEventListener('securitypolicyviolation', (e) => violations.push(e.violatedDirective + ' ' + e.blockedURI));
    """

    def __init__(self, browser, beside=None):
        """With what another tab keeps, or as if by a new browser."""
        self.browser = browser
        self.context = beside.context if beside else browser.call("Target.createBrowserContext")["browserContextId"]
        target = browser.call("Target.createTarget", {"url": "about:blank", "browserContextId": self.context})["targetId"]
        self.session = browser.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        self.urls, self.errors, self.rewrite = [], [], None
        browser.listeners.append(self._hear)
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Page.addScriptToEvaluateOnNewDocument", {"source": self.WATCH})

    def _hear(self, message):
        if message.get("sessionId") != self.session:
            return
        method, params = message["method"], message["params"]
        if method == "Network.requestWillBeSent":
            self.urls.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Page.javascriptDialogOpening":
            self.browser.post("Page.handleJavaScriptDialog", {"accept": True}, self.session)
        elif method == "Fetch.requestPaused":
            self._continue(params)

    def _continue(self, params):
        change = {"requestId": params["requestId"]}
        body = params["request"].get("postData")
        if self.rewrite and body:
            change["postData"] = base64.b64encode(json.dumps(self.rewrite(json.loads(body))).encode()).decode()
        self.browser.post("Fetch.continueRequest", change, self.session)

    def call(self, method, params=None):
        return self.browser.call(method, params, self.session)

    def change_requests(self, rewrite):
        """What the page asks of the model becomes rewrite(body); None: stays as it is."""
        self.rewrite = rewrite
        self.call("Fetch.enable" if rewrite else "Fetch.disable",
                  {"patterns": [{"urlPattern": "*/v1/chat/completions"}]} if rewrite else None)

    def go(self, url):
        self.call("Page.navigate", {"url": url})
        self.until("document.readyState === 'complete'")

    def eval(self, expression):
        result = self.call("Runtime.evaluate", {"expression": expression, "returnByValue": True, "awaitPromise": True})
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def until(self, expression, patience=PATIENCE):
        """What the expression gives once it is true."""
        end = time.monotonic() + patience
        while True:
            value = self.eval(expression)
            if value:
                return value
            if time.monotonic() > end:
                raise AssertionError(f"never came true: {expression}")
            time.sleep(0.03)

    def click(self, selector):
        box = self.eval(f"""(() => {{
            const e = document.querySelector({json.dumps(selector)});
            if (!e) return null;
            e.scrollIntoView({{block: 'center'}});
            const b = e.getBoundingClientRect();
            return [b.left + b.width / 2, b.top + b.height / 2, b.width];
        }})()""")
        assert box and box[2] > 0, f"{selector} cannot be seen"
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", {"type": kind, "x": box[0], "y": box[1], "button": "left", "clickCount": 1})

    def type(self, text):
        self.call("Input.insertText", {"text": text})

    def key(self, key, code, **more):
        for kind in ("keyDown", "keyUp"):
            event = {"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, **more}
            if kind == "keyDown" and key == "Enter":
                event["text"] = "\r"
            self.call("Input.dispatchKeyEvent", event)

    def size(self, width, height, mobile=False):
        self.call("Emulation.setDeviceMetricsOverride",
                  {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile})

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", {"format": "png"})["data"]
        with open(path, "wb") as f:
            f.write(base64.b64decode(data))
