# SPDX-License-Identifier: Apache-2.0
"""Starts `antigravity serve`, sends requests to it, reads its memory and stops it. Loopback only."""
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

START_S = 120  # For the first line "listening on", under sanitizers and on a loaded machine.
STOP_S = 60
FINDING = re.compile(r"(ERROR|WARNING): \w*Sanitizer|runtime error:|Assertion .* failed")


class Reply:
    """A reply: status 0 if the connection ended without one, `seconds` since the request began."""

    def __init__(self, status, body, seconds, head=b""):
        self.status, self.body, self.seconds, self.head = status, body, seconds, head

    def json(self):
        try:
            return json.loads(self.body)
        except ValueError:
            return {}

    def message(self):
        error = self.json()
        error = error.get("error", "") if isinstance(error, dict) else ""
        return str(error.get("message", error) if isinstance(error, dict) else error)


def encode(body):
    if isinstance(body, (bytes, bytearray)):
        return bytes(body)
    return json.dumps(body, separators=(",", ":")).encode()


def post_bytes(path, body, headers=()):
    """Returns a complete POST request; the server closes the connection after its reply."""
    head = "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n" % (path, len(body))
    return (head + "".join("%s: %s\r\n" % h for h in headers) + "\r\n").encode() + body


def read_reply(s, start, timeout):
    """Reads until the server closes. Its own end of the connection may be closed for sending already."""
    data, end = b"", start + timeout
    try:
        while time.monotonic() < end:
            s.settimeout(max(0.05, end - time.monotonic()))
            piece = s.recv(1 << 18)
            if not piece:
                break
            data += piece
    except OSError:
        pass
    head, _, body = data.partition(b"\r\n\r\n")
    found = re.match(rb"HTTP/1\.1 (\d+)", head)
    if found and re.search(rb"(?i)transfer-encoding: *chunked", head):
        body = join_chunks(body)
    return Reply(int(found.group(1)) if found else 0, body, time.monotonic() - start, head)


def join_chunks(body):
    out = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        try:
            n = int(size.split(b";")[0], 16)
        except ValueError:
            break
        if not n:
            break
        out, body = out + body[:n], body[n + 2 :]
    return out


class Server:
    """A server process with its standard error in a file of `logs`."""

    count = 0

    def __init__(self, program, model, options=(), logs=".", environment=None, group=None):
        Server.count += 1
        self.log = os.path.join(logs, "server-%d-%d.log" % (os.getpid(), Server.count))
        self.name = os.path.basename(model.rstrip("/"))
        self.name = self.name[:-5] if self.name.endswith(".gguf") else self.name
        command = [program, "serve", "--port", "0", "-m", model] + [str(o) for o in options]
        if group:
            command = group.command(command)
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=server_environment(environment)
            )
        self.began = time.monotonic()
        self.address = None
        self.start_s = None
        self.wait_for_start()

    def wait_for_start(self):
        while time.monotonic() - self.began < START_S:
            found = re.search(r"listening on http://\[?([0-9a-f.:]+?)\]?:(\d+)", self.text())
            if found:
                self.address = (found.group(1), int(found.group(2)))
                self.start_s = time.monotonic() - self.began
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.01)
        text = self.text()[-800:]
        self.kill()
        raise RuntimeError("the server did not start: %s" % text)

    def text(self):
        with open(self.log, errors="replace") as log:
            return log.read()

    def is_alive(self):
        return self.process.poll() is None

    def finding(self):
        """The first sanitizer report in the log, or None."""
        text = self.text()
        found = FINDING.search(text)
        return text[found.start() : found.start() + 300].replace("\n", " | ") if found else None

    # ---- requests ----

    def connect(self, timeout=10, source=None):
        s = socket.create_connection(self.address, timeout, source)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s

    def exchange(self, data, timeout=60, source=None):
        start = time.monotonic()
        try:
            with self.connect(timeout, source) as s:
                s.settimeout(timeout)
                try:
                    s.sendall(data)
                except OSError:
                    pass  # A request that is rejected by its head; the reply says so.
                return read_reply(s, start, timeout)
        except OSError:
            return Reply(0, b"", time.monotonic() - start)

    def get(self, path, timeout=10, source=None):
        return self.exchange(b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % path.encode(), timeout, source)

    def post(self, path, body, timeout=60, headers=()):
        return self.exchange(post_bytes(path, encode(body), headers), timeout)

    def post_all(self, requests, timeout):
        """Posts (path, bytes) pairs at the same time; returns their replies in order."""
        replies = [None] * len(requests)

        def post(i):
            replies[i] = self.post(requests[i][0], requests[i][1], timeout)

        threads = [threading.Thread(target=post, args=(i,), daemon=True) for i in range(len(requests))]
        for t in threads:
            t.start()
        for t in threads:
            t.join(timeout + 10)
        return replies

    def body_limit(self):
        """Finds the largest body that is let in, from replies to heads alone."""
        low, high = 1 << 12, 1 << 27
        while high - low > low // 64:
            n = (low + high) // 2
            head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % n
            with self.connect() as s:
                s.sendall(head)
                s.settimeout(0.25)
                try:
                    rejected = b" 413 " in s.recv(4096)[:16]
                except socket.timeout:
                    rejected = False
            low, high = (low, n) if rejected else (n, high)
        return low

    # ---- the process ----

    def memory(self, field="VmHWM"):
        """Bytes of a field of /proc/PID/status; 0 once the process has ended."""
        try:
            with open("/proc/%d/status" % self.process.pid) as status:
                for line in status:
                    if line.startswith(field + ":"):
                        return int(line.split()[1]) * 1024
        except OSError:
            pass
        return 0

    def processor_s(self):
        """Processor time of all threads so far."""
        try:
            with open("/proc/%d/stat" % self.process.pid) as stat:
                fields = stat.read().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        except OSError:
            return 0.0

    def stop(self):
        """Sends SIGTERM; returns the exit status and the seconds until the end, status None if it had to be killed."""
        start = time.monotonic()
        if self.is_alive():
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return None, time.monotonic() - start
        return self.process.returncode, time.monotonic() - start

    def kill(self):
        if self.is_alive():
            self.process.kill()
        self.process.wait()


def server_environment(more=None):
    e = dict(os.environ, ANTIGRAVITY_CACHE="", UBSAN_OPTIONS="print_stacktrace=1")
    e["ASAN_OPTIONS"] = "allocator_may_return_null=1"
    for name in ("LISTEN_PID", "LISTEN_FDS", "NOTIFY_SOCKET", "ANTIGRAVITY_API_KEY"):
        e.pop(name, None)
    e.update(more or {})
    return e
