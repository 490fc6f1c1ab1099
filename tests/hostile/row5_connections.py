# SPDX-License-Identifier: Apache-2.0
"""Row 5: slow bodies end, idle connections make room, and one address has a quarter of the places."""
import os
import select
import socket
import subprocess
import sys
import threading
import time

import bodies
from server import Server, post_bytes

READ_TIMEOUT_S = 2
RATE = 16384  # Bytes a second that a body must have.
LATE_S = 2.0  # Beyond a body's time: the event loop's clock and a loaded machine.
PLACES = 64
NEW_CLIENT_S = 1.0
IDLE_TIMEOUT_S = 600  # So that no connection of the test ends by it.


def body_time(n):
    return READ_TIMEOUT_S + n / RATE


class Trickle:
    """A client that sends its body byte by byte. An announced length, or chunks."""

    def __init__(self, server, rng):
        self.announced = rng.choice([2, 100, 4000, 20000, 60000])
        self.chunked = rng.random() < 0.4
        self.pause = rng.choice([0.2, 0.5, 1.0])
        self.socket = server.connect()
        length = "Transfer-Encoding: chunked" if self.chunked else "Content-Length: %d" % self.announced
        self.socket.sendall(("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n" % length).encode())
        self.began, self.next, self.sent, self.ended = time.monotonic(), 0.0, 0, None
        self.limit = body_time(0 if self.chunked else self.announced)

    def step(self, now):
        """Sends the next byte if it is time; notices that the server has answered or closed."""
        if select.select([self.socket], [], [], 0)[0]:
            self.ended = now
            return
        if now < self.next or (not self.chunked and self.sent >= self.announced - 1):
            return
        self.next = now + self.pause
        try:
            self.socket.sendall(b"1\r\n \r\n" if self.chunked else b" ")
            self.sent += 1
        except OSError:
            self.ended = now

    def what(self):
        return "%s, a byte each %g s" % ("chunked" if self.chunked else "%d bytes announced" % self.announced, self.pause)


def trickle(row):
    """Slow bodies are given up when their time is over; a client that sends fast enough is not."""
    server = row.start("--read-timeout", READ_TIMEOUT_S, "--idle-timeout", IDLE_TIMEOUT_S)
    clients = [Trickle(server, row.random) for _ in range(40)]
    row.counted(len(clients))
    end = time.monotonic() + max(c.limit for c in clients) + LATE_S * row.factor + 1
    while time.monotonic() < end and any(c.ended is None for c in clients):
        for c in clients:
            if c.ended is None:
                c.step(time.monotonic())
        time.sleep(0.02)
    for c in clients:
        seconds = (c.ended or time.monotonic() + 999) - c.began
        row.wait("slow body beyond its time", seconds - c.limit, LATE_S, c.what())
        c.socket.close()
    honest(row, server)
    row.check_alive(server, "after slow bodies")
    row.stop(server)


def honest(row, server):
    """A body sent at twice the required rate is answered."""
    body = bodies.dumps({"model": server.name, "prompt": "a", "max_tokens": 1, "ignored": "x" * (3 * RATE)})
    data = post_bytes("/v1/completions", body)
    with server.connect(30) as s:
        for i in range(0, len(data), RATE // 4):
            s.sendall(data[i : i + RATE // 4])
            time.sleep(0.125)
        status = s.recv(4096)[9:12]
    row.counted()
    if status != b"200":
        row.error("a body at 32 KiB/s has status %r" % status)


def occupy(server, rng, i):
    """A connection without a complete request."""
    s = server.connect()
    kind = rng.randrange(4) if i else 0
    if kind == 1:
        s.sendall(b"GET /health HTTP/1.1\r\nHost: local")
    elif kind == 2:
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 30000\r\n\r\n{")
    elif kind == 3:
        s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return s


def crowd(row):
    """All places are taken by connections without a request; new clients are answered, and a stream goes on."""
    server = row.start("--max-connections", PLACES, "--read-timeout", 60, "--idle-timeout", IDLE_TIMEOUT_S)
    body = {"model": server.name, "prompt": "a", "max_tokens": 1500, "stream": True, "ignore_eos": True}
    stream = server.connect(30)
    stream.sendall(post_bytes("/v1/completions", bodies.dumps(body)))
    stream.recv(100)
    sockets = []
    for i in range(row.random.choice([PLACES, 2 * PLACES, 5 * PLACES])):
        try:
            sockets.append(occupy(server, row.random, i))
        except OSError:
            pass
    row.counted(len(sockets))
    what = "beside %d connections, %d places" % (len(sockets), PLACES)
    for _ in range(10):
        reply = server.get("/health", 10)
        row.counted()
        row.wait("reply to a new client", reply.seconds if reply.status == 200 else 999, NEW_CLIENT_S, what)
    check_stream(row, stream, what)
    for s in sockets + [stream]:
        s.close()
    row.check_alive(server, what)
    row.stop(server)


def check_stream(row, stream, what):
    stream.settimeout(60)
    data = b""
    try:
        while True:
            piece = stream.recv(65536)
            if not piece:
                break
            data = (data + piece)[-100:]
    except OSError:
        pass
    if b"[DONE]" not in data:
        row.error("a running stream was closed: %s" % what)


# ---- addresses ----


def addresses(row):
    """Clients of several addresses, in a network of their own: only its loopback device exists."""
    command = [sys.executable, os.path.abspath(__file__), row.program, row.model, row.logs]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    lines = done.stdout.decode().split("\n")
    row.counted(2 * PLACES)
    if lines[0].startswith("skipped"):
        row.note(lines[0])
    elif done.returncode or not lines[0].startswith("measured"):
        row.error("addresses: %s" % (done.stdout + done.stderr).decode()[-200:])
    else:
        n_open, n_other, is_served = [int(w) for w in lines[0].split()[1:]]
        row.measure("connections of one address of %d places" % PLACES, n_open, PLACES // 4)
        row.measure("loopback's connections that were closed", n_other, 0)
        if not is_served:
            row.error("a client of another address has no reply while one address fills the places")


def private_network():
    """Moves this process to a network of its own, whose loopback device has two addresses more. False: not possible."""
    import ctypes
    import fcntl
    import struct

    new_user, new_network = 0x10000000, 0x40000000
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(new_network) != 0 and libc.unshare(new_user | new_network) != 0:
        return False
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def request(code, name, data):
        fcntl.ioctl(s, code, struct.pack("16s", name) + data.ljust(24, b"\0"))

    try:
        request(0x8914, b"lo", struct.pack("h", 0x1 | 0x40))  # SIOCSIFFLAGS: up, running
        for name, address in ((b"lo:1", "192.0.2.1"), (b"lo:2", "192.0.2.2"), (b"lo:3", "192.0.2.3")):
            request(0x8916, name, struct.pack("HH4s", socket.AF_INET, 0, socket.inet_aton(address)))  # SIOCSIFADDR
            request(0x8914, name, struct.pack("h", 0x1 | 0x40))
    except OSError:
        return False
    return True


def is_open(s):
    if not select.select([s], [], [], 0)[0]:
        return True
    try:
        return bool(s.recv(100, socket.MSG_PEEK))
    except OSError:
        return False


def fill(server, source, n):
    sockets = []
    for _ in range(n):
        try:
            sockets.append(server.connect(5, (source, 0)))
        except OSError:
            pass
    return sockets


def measure_addresses(program, model, logs):
    if not private_network():
        print("skipped: no network of our own for addresses")
        return 0
    keys = os.path.join(logs, "address-keys")
    with open(keys, "w") as f:
        f.write("0123456789abcdef0123456789abcdef\n")
    options = ["--host", "0.0.0.0", "--allowed-host", "192.0.2.1", "--api-key-file", keys, "--max-connections", PLACES]
    server = Server(program, model, options + ["--idle-timeout", IDLE_TIMEOUT_S], logs)
    port = server.address[1]
    server.address = ("127.0.0.1", port)
    local = fill(server, "127.0.0.1", PLACES // 2)
    server.address = ("192.0.2.1", port)
    crowd_of_one = fill(server, "192.0.2.2", PLACES)
    time.sleep(1)
    other = server.get("/health", 10, ("192.0.2.3", 0))
    n_open = sum(is_open(s) for s in crowd_of_one)
    n_closed = sum(not is_open(s) for s in local)
    server.kill()
    print("measured %d %d %d" % (n_open, n_closed, other.status == 200))
    return 0


def run(row):
    first = True
    while row.has_time() or first:
        steps = (trickle, crowd, addresses) if first else (trickle, crowd)
        threads = [threading.Thread(target=guarded, args=(row, f)) for f in steps]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        first = False


def guarded(row, function):
    try:
        function(row)
    except Exception as e:
        row.error("%s: %s: %s" % (function.__name__, type(e).__name__, e))


if __name__ == "__main__":
    sys.exit(measure_addresses(*sys.argv[1:4]))
