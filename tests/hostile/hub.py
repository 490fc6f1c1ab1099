# SPDX-License-Identifier: Apache-2.0
"""A hub on loopback that a case tells how to misbehave, and `antigravity pull` against it."""
import gzip
import http.server
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time

from server import server_environment

GGUF = b"GGUF" + b"\x03\0\0\0" + b"\0" * 4000
ENDLESS_S = 20


class Hub:
    """`listing` is the reply to the API (an object, or bytes); `send(handler)` answers requests for files."""

    def __init__(self, listing, send):
        hub = self
        self.listing, self.send, self.hits, self.stopped = listing, send, 0, False

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *arguments):
                pass

            def do_GET(self):
                try:
                    if "/api/models/" in self.path:
                        data = hub.listing if isinstance(hub.listing, bytes) else json.dumps(hub.listing).encode()
                        head(self, len(data))
                        self.wfile.write(data)
                    else:
                        hub.hits += 1
                        hub.send(self)
                except OSError:
                    self.close_connection = True

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = "http://127.0.0.1:%d" % self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def close(self):
        self.stopped = True
        self.server.shutdown()
        self.server.server_close()


class Pull:
    """What a run of pull left: exit status (None: stopped after `limit` seconds), seconds, text, files of the store."""

    def __init__(self, row, hub, options, limit, source="o/r"):
        self.store = tempfile.mkdtemp(prefix="store-", dir=row.logs)
        environment = server_environment({"HF_ENDPOINT": hub.url, "ANTIGRAVITY_MODELS": self.store, "HF_TOKEN": "secret"})
        for name in ("http_proxy", "https_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
            environment.pop(name, None)
        command = [row.program, "pull", source, "--retry-delay", "0.01"] + [str(o) for o in options]
        start = time.monotonic()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
        try:
            text, self.status = process.communicate(timeout=limit)[0], process.returncode
        except subprocess.TimeoutExpired:
            process.kill()
            text, self.status = process.communicate()[0], None
        self.seconds, self.text = time.monotonic() - start, text.decode(errors="replace")
        self.bytes = text
        self.files = sorted(os.path.join(d, f)[len(self.store) + 1 :] for d, _, files in os.walk(self.store) for f in files)
        self.size = sum(os.path.getsize(os.path.join(self.store, f)) for f in self.files)

    def models(self):
        return [f for f in self.files if ".part" not in f and not f.startswith(".")]

    def remove(self):
        shutil.rmtree(self.store, ignore_errors=True)


# ---- replies to requests for files ----


def head(h, length=None, status=200, **more):
    h.send_response(status)
    for name, value in more.items():
        h.send_header(name.replace("_", "-"), value)
    if length is not None:
        h.send_header("Content-Length", str(length))
    else:
        h.close_connection = True
    h.end_headers()


def offset_of(h):
    text = h.headers.get("Range", "")
    return int(text[6:].split("-")[0]) if text.startswith("bytes=") else 0


def whole(data):
    def send(h):
        head(h, len(data))
        h.wfile.write(data)

    return send


def first_bytes(n, total):
    """Sends n bytes of `total`, from the start whatever was asked for, and closes."""

    def send(h):
        head(h, total)
        h.wfile.write((GGUF + b"\0" * n)[:n])
        h.close_connection = True

    return send


def again_and_again(n, total):
    """Honours ranges, but each new piece begins n bytes before the last one ended: no progress in sum."""

    def send(h):
        at = offset_of(h)
        if at and at >= n:
            head(h, total)
            h.wfile.write(GGUF[: n // 2])
        else:
            part = {"Content_Range": "bytes %d-%d/%d" % (at, total - 1, total)} if at else {}
            head(h, total - at, 206 if at else 200, **part)
            h.wfile.write((GGUF + b"\0" * total)[at : at + n])
        h.close_connection = True

    return send


def trickle(hub_of, total, rate):
    def send(h):
        head(h, total)
        h.wfile.write(GGUF[:4])
        while not hub_of().stopped:
            h.wfile.write(b"\0")
            h.wfile.flush()
            time.sleep(1 / rate)

    return send


def without_length(data):
    """Ends by closing the connection: a broken one looks the same."""

    def send(h):
        head(h)
        h.wfile.write(data)

    return send


def endless(hub_of):
    def send(h):
        head(h)
        h.wfile.write(GGUF)
        end = time.monotonic() + ENDLESS_S
        while time.monotonic() < end and not hub_of().stopped:
            h.wfile.write(b"\0" * 65536)
            time.sleep(0.005)

    return send


def compressed(data):
    """Honours Accept-Encoding, as hubs do for small files of text."""

    def send(h):
        if "gzip" in h.headers.get("Accept-Encoding", ""):
            data_z = gzip.compress(data)
            head(h, len(data_z), Content_Encoding="gzip")
            h.wfile.write(data_z)
        else:
            head(h, len(data))
            h.wfile.write(data)

    return send


def redirect(to):
    def send(h):
        head(h, 0, 302, Location=to)

    return send


def many_headers(h):
    h.send_response(200)
    for i in range(3000):
        h.send_header("X-%d" % i, "y" * 1000)
    h.close_connection = True
    h.end_headers()
