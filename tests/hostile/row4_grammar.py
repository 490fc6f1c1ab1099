# SPDX-License-Identifier: Apache-2.0
"""Row 4: two requests of 64 answers with ambiguous grammars stretch another client's largest gap between tokens to at
most twice the gap beside two such requests without a constraint."""
import socket
import threading
import time

import bodies
from server import post_bytes

ALLOWED_RATIO = 2.0
N_ANSWERS, N_ATTACKERS = 64, 2
TIMEOUT = 120
MIN_ROUNDS = 3


def ambiguous_grammar(rng):
    """Rules whose alternatives overlap, so that each text has many parses."""
    chars = rng.choice(["[a-z ]", "[a-zA-Z .,]", "[^<>]", "."])
    kind = rng.randrange(5)
    if kind == 0:
        return "root ::= s+\ns ::= %s+ | %s+ s | %s* %s*" % ((chars,) * 4)
    if kind == 1:
        return "root ::= s s s s\ns ::= s2 | s2 s\ns2 ::= %s | %s %s | %s*" % ((chars,) * 4)
    if kind == 2:
        n = rng.choice([3, 6, 12])
        rules = ["root ::= " + " | ".join("r%d root" % i for i in range(n)) + " | r0"]
        return "\n".join(rules + ["r%d ::= %s+ r%d?" % (i, chars, (i + 1) % n) for i in range(n)])
    if kind == 3:
        return "root ::= " + " ".join(["(%s* | %s+ %s*)" % ((chars,) * 3)] * rng.choice([5, 20]))
    return "root ::= a*\na ::= (%s b?)+ | b\nb ::= (%s a?)* | %s" % ((chars,) * 3)


def constraint(rng):
    kind = rng.random()
    if kind < 0.7:
        return {"grammar": ambiguous_grammar(rng)}
    if kind < 0.85:
        return {"regex": rng.choice(["((a|b|[a-z ])*[a-z ]){%d}", "([a-z ]*[a-z ]*){%d}.*"]) % rng.choice([5, 20, 60])}
    item = {"anyOf": [{"type": "string", "pattern": "^[a-z ]*%s" % ("[a-z ]*" * i)} for i in range(1, 9)]}
    return {"json_schema": {"type": "array", "items": item, "minItems": 20}}


class Attackers:
    """Two clients that repeat a request of 64 answers until end() closes their connections."""

    def __init__(self, row, server, extra):
        self.row, self.server, self.stop = row, server, threading.Event()
        body = {"model": server.name, "prompt": "a", "max_tokens": 400, "n": N_ANSWERS, "ignore_eos": True}
        body.update(extra)
        self.data = post_bytes("/v1/completions", bodies.dumps(body))
        self.statuses = set()
        self.threads = [threading.Thread(target=self.repeat, daemon=True) for _ in range(N_ATTACKERS)]
        for t in self.threads:
            t.start()

    def repeat(self):
        while not self.stop.is_set():
            data = b""
            try:
                with self.server.connect() as s:
                    s.sendall(self.data)
                    s.settimeout(0.1)
                    data = self.read(s)
            except OSError:
                pass
            self.row.counted()
            if data:
                self.statuses.add(int(data[9:12] or 0))
            self.stop.wait(0.02)

    def read(self, s):
        data = b""
        while not self.stop.is_set():
            try:
                piece = s.recv(1 << 20)
            except socket.timeout:
                continue
            if not piece:
                break
            data = data or piece
        return data

    def end(self):
        self.stop.set()
        for t in self.threads:
            t.join(TIMEOUT)


class Stream:
    """The other client: one answer, token by token."""

    def __init__(self, row, server):
        body = {"model": server.name, "prompt": "b", "max_tokens": 1900, "stream": True, "ignore_eos": True}
        self.socket = server.connect(TIMEOUT)
        self.socket.sendall(post_bytes("/v1/completions", bodies.dumps(body)))
        self.socket.settimeout(TIMEOUT)
        self.last = None
        self.read()
        row.counted()

    def read(self):
        """Waits for the next event; returns the time since the one before, None at the end."""
        while True:
            piece = self.socket.recv(65536)
            if not piece:
                self.socket.close()
                return None
            if b"data:" in piece:
                now = time.monotonic()
                gap, self.last = now - (self.last or now), now
                return gap


def gap_beside(row, server, extra, seconds):
    """The longest time between two events of a stream that lasts at least `seconds` beside the attackers."""
    stream = Stream(row, server)
    attackers = Attackers(row, server, extra)
    try:
        end, largest = time.monotonic() + seconds, 0.0
        while time.monotonic() < end:
            gap = stream.read()
            if gap is None:
                stream = Stream(row, server)
                continue
            largest = max(largest, gap)
        stream.socket.close()
    finally:
        attackers.end()
    return largest, attackers.statuses


def run(row):
    server = row.start("--max-running", 2 * N_ANSWERS + 16)
    window = max(0.7, min(5.0, row.seconds / (4 * MIN_ROUNDS)))
    rounds = 0
    while row.has_time() or rounds < MIN_ROUNDS:
        extra = constraint(row.random)
        # By turns, and the better of two: other programs on the machine lengthen some gaps.
        pairs = [(gap_beside(row, server, {}, window), gap_beside(row, server, extra, window)) for _ in range(2)]
        plain = max(p[0][0] for p in pairs)
        constrained = min(p[1][0] for p in pairs)
        name, text = next(iter(extra.items()))
        where = "%.3f s beside %s %r, %.3f s beside none" % (constrained, name, str(text)[:90], plain)
        allowed = ALLOWED_RATIO * (2 if row.sanitized else 1)
        row.measure("largest gap of tokens, as a ratio", constrained / plain, allowed, "", where)
        statuses = set().union(*[p[1][1] for p in pairs])
        if statuses - {200, 400, 429, 503}:
            row.error("status %s of a constrained request: %s" % (sorted(statuses), where))
        rounds += 1
        if not row.check_alive(server, where):
            return
    row.note("%d constraints" % rounds)
    row.stop(server)
