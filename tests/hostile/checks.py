# SPDX-License-Identifier: Apache-2.0
"""What a row measures, and the limits it is held to."""
import random
import threading
import time

from server import Server

MAX_ERRORS = 4  # That a row prints.
SANITIZER_FACTOR = 4  # Times by which a sanitized build may exceed a row's seconds.


class Measure:
    """The worst value of one measured quantity."""

    def __init__(self, allowed, unit):
        self.allowed, self.unit = allowed, unit
        self.worst, self.where, self.count = None, "", 0

    def failed(self):
        return self.worst is not None and self.worst > self.allowed

    def text(self, name):
        where = " (%s)" % self.where if self.where and self.failed() else ""
        return "%s %s, allowed %s%s" % (name, with_unit(self.worst, self.unit), with_unit(self.allowed, self.unit), where)


def with_unit(value, unit):
    if unit == "MiB":
        return "%.1f MiB" % (value / 1048576)
    return "%.2f %s" % (value, unit) if unit else "%g" % value


class Row:
    """One row against one build: its options, its random numbers and what it has found."""

    def __init__(self, number, build, program, sanitized, options):
        self.number, self.build, self.program, self.sanitized = number, build, program, sanitized
        self.options, self.seconds = options, options.seconds
        self.model, self.logs, self.shared = options.model, options.logs, options.shared
        self.random = random.Random("%s %s %s" % (options.seed, number, build))
        self.factor = SANITIZER_FACTOR if sanitized else 1
        self.measures, self.errors, self.notes = {}, [], []
        self.n_requests = 0
        self.lock = threading.Lock()
        self.servers = []
        self.end = time.monotonic() + self.seconds

    # ---- time ----

    def begin(self):
        self.end = time.monotonic() + self.seconds

    def has_time(self):
        return time.monotonic() < self.end

    def left(self):
        return max(0.0, self.end - time.monotonic())

    # ---- results ----

    def measure(self, name, value, allowed, unit="", where=""):
        """Records a value that must be at most `allowed`; returns whether it is."""
        with self.lock:
            m = self.measures.setdefault(name, Measure(allowed, unit))
            m.count += 1
            if m.worst is None or value - allowed > m.worst - m.allowed:
                m.worst, m.allowed, m.where = value, allowed, where
        return value <= allowed

    def wait(self, name, seconds, allowed, where=""):
        """Records a wait. A sanitized build may take SANITIZER_FACTOR times as long."""
        return self.measure(name, seconds, allowed * self.factor, "s", where)

    def error(self, text):
        with self.lock:
            if text not in self.errors:
                self.errors.append(text)

    def note(self, text):
        with self.lock:
            if text not in self.notes:
                self.notes.append(text)

    def counted(self, n=1):
        with self.lock:
            self.n_requests += n

    # ---- servers ----

    def start(self, *options, **more):
        more.setdefault("logs", self.logs)
        model = more.pop("model", self.model)
        server = Server(self.program, model, options, **more)
        self.servers.append(server)
        return server

    def check_alive(self, server, where=""):
        """Records a dead server, a sanitizer report or a health request without a reply."""
        finding = server.finding()
        if finding:
            self.error("sanitizer report in %s: %s" % (server.log, finding))
            return False
        if not server.is_alive():
            self.error("the server ended with status %s: %s [%s]" % (server.process.returncode, where, server.log))
            return False
        if server.get("/health", 10 * self.factor).status != 200 and server.is_alive():
            self.error("GET /health has no reply within %d s: %s" % (10 * self.factor, where))
            return False
        return True

    def stop(self, server, allowed_s=30, where="at the end"):
        """Ends a server by SIGTERM and records what its end shows."""
        was_alive = server.is_alive()
        status, seconds = server.stop()
        finding = server.finding()
        if finding:
            self.error("sanitizer report in %s: %s" % (server.log, finding))
        elif was_alive and status != 0:
            self.error("exit status %s after SIGTERM, %.1f s: %s [%s]" % (status, seconds, where, server.log))
        self.wait("time to end after SIGTERM", seconds, allowed_s, where)

    def close(self):
        for server in self.servers:
            server.kill()

    def failed(self):
        return bool(self.errors) or any(m.failed() for m in self.measures.values())

    def text(self):
        """The row's line: failed measures and errors first."""
        failed = self.errors[:MAX_ERRORS]
        if len(self.errors) > MAX_ERRORS:
            failed.append("%d more errors" % (len(self.errors) - MAX_ERRORS))
        failed += [m.text(n) for n, m in self.measures.items() if m.failed()]
        passed = [m.text(n) for n, m in self.measures.items() if not m.failed()]
        words = "FAILED" if self.failed() else "passed"
        parts = ["%d requests" % self.n_requests] + failed + passed + self.notes
        return "row %-2s %-7s %s: %s" % (self.number, self.build, words, "; ".join(parts).replace("\n", " "))
