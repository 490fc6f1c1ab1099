# SPDX-License-Identifier: Apache-2.0
"""Row 1: requests that take long to prepare keep no worker from other clients, nor after their own client has left, nor
when the server ends."""
import os
import threading
import time

import bodies
from server import post_bytes

SMALL_DELAY_S = 0.3  # That four heavy clients may add to a small request.
FREE_S = 0.5  # From a client's end to a free worker.
PROCESSOR_S = 2.5  # Of one request: --prepare-limit, and what reading and ending it takes.
RESULTS_S = 1.5  # 60,000 results, the whole request.
TIMEOUT_S = 0.5  # Of a request that has its own, and the allowed delay of its reply.
GRACE_S, END_S = 1, 1.0
TIMEOUT = 30
N_HEAVY = 4
CONTROLS = 4  # Replies of the control server that a delay is compared with.
TEMPLATES = os.path.join(os.path.dirname(__file__), "..", "data", "chat")


def small_requests(name):
    return [
        ("/v1/completions", {"model": name, "prompt": "a", "max_tokens": 1}),
        ("/v1/chat/completions", {"model": name, "messages": [{"role": "user", "content": "a"}], "max_tokens": 1}),
        ("/v1/messages", {"model": name, "messages": [{"role": "user", "content": "a"}], "max_tokens": 1}),
        ("/tokenize", {"content": "a"}),
    ]


def median(values):
    return sorted(values)[len(values) // 2]


class Attack:
    """A server with what its replies take while nothing else runs, and another one that no client attacks: what its
    replies take at the same time is the machine's own delay."""

    def __init__(self, row, template):
        options = ["--grace", GRACE_S] + (["--chat-template", template] if template else [])
        self.row, self.server, self.control = row, row.start(*options), row.start()
        self.control_s = []
        self.template = os.path.basename(template) if template else "no template"
        self.small = [(p, bodies.dumps(b)) for p, b in small_requests(self.server.name)]
        middle = {"model": self.server.name, "prompt": "a", "max_tokens": 1, "ignored": "x" * 80000}
        self.middle = ("/v1/completions", bodies.dumps(middle))
        self.idle = {r: median([self.server.post(*r).seconds for _ in range(7)]) for r in self.small + [self.middle]}

    def heavy(self):
        """(what, path, bytes) of a random long list in a random protocol."""
        rng = self.row.random
        name, protocol = rng.choice(list(bodies.LONG_LISTS)), rng.choice(bodies.PROTOCOLS)
        n = rng.choice([15000, 30000, 30000, 60000])
        path, body = bodies.write(protocol, bodies.LONG_LISTS[name](n), self.server.name)
        return "%d %s, %s, %s" % (n, name, protocol, self.template), path, bodies.dumps(body)

    def heavy_requests(self):
        """Requests of one kind: a kind that is slow is seen by all of its clients being so."""
        return [self.heavy()] * N_HEAVY if self.row.random.random() < 0.7 else [self.heavy() for _ in range(N_HEAVY)]

    def machine_s(self, request):
        """The longest of the last replies of the control server."""
        self.control_s = [self.control.post(request[0], request[1], TIMEOUT).seconds] + self.control_s[:CONTROLS]
        return max(self.control_s)

    def delay(self, request, what, name, allowed):
        before = self.machine_s(request)
        reply = self.server.post(request[0], request[1], TIMEOUT)
        usual = max(self.idle[request], before, self.machine_s(request))
        self.row.counted()
        if reply.status not in (200, 400):
            self.row.error("%s: status %d for %s beside %s: %s" % (name, reply.status, request[0], what, reply.message()))
        self.row.wait(name, reply.seconds - usual, allowed, what)

    def stay(self, seconds):
        """Heavy clients that wait for their replies, again and again."""
        requests, stop = self.heavy_requests(), threading.Event()

        def repeat(path, data):
            while not stop.is_set():
                self.server.post(path, data, TIMEOUT)
                self.row.counted()

        threads = [threading.Thread(target=repeat, args=r[1:], daemon=True) for r in requests]
        for t in threads:
            t.start()
        time.sleep(0.2)
        end, i = time.monotonic() + seconds, 0
        what = "; ".join(sorted({r[0] for r in requests}))
        while time.monotonic() < end:
            self.delay(self.small[i % len(self.small)], what, "delay of a small request", SMALL_DELAY_S)
            i += 1
            time.sleep(0.02)
        stop.set()
        for t in threads:
            t.join(TIMEOUT)

    def leave(self):
        """Heavy clients that close their connections, then a request that needs their worker."""
        requests, sockets = self.heavy_requests(), []
        for what, path, data in requests:
            try:
                s = self.server.connect(TIMEOUT)
                sockets.append(s)
                s.sendall(post_bytes(path, data))
            except OSError:
                pass
        time.sleep(self.row.random.choice([0.05, 0.2, 0.6]))
        for s in sockets:
            s.close()
        self.row.counted(len(sockets))
        what = "; ".join(sorted({r[0] for r in requests}))
        self.delay(self.middle, what, "delay after heavy clients left", FREE_S)

    def alone(self):
        """One heavy request without others: its processor time."""
        what, path, data = self.heavy()
        before = self.server.processor_s()
        reply = self.server.post(path, data, TIMEOUT)
        self.row.counted()
        self.row.wait("processor time of a request", self.server.processor_s() - before, PROCESSOR_S, what)
        if reply.status not in (200, 400, 413, 503, 504):
            self.row.error("status %d of %s: %s" % (reply.status, what, reply.message()))

    def results(self):
        """What the table names: 60,000 results."""
        path, body = bodies.write(bodies.CHAT, bodies.results(60000), self.server.name)
        before = self.server.processor_s()
        reply = self.server.post(path, body, TIMEOUT)
        self.row.counted()
        where = "%s: %d %s" % (self.template, reply.status, reply.message()[:80])
        if not self.row.sanitized:
            self.row.wait("60,000 results, processor time", self.server.processor_s() - before, RESULTS_S, where)
        if reply.status == 0:
            self.row.error("no reply to 60,000 results, %s" % self.template)

    def timeout(self):
        """A request whose own time is shorter than its preparation."""
        rng = self.row.random
        n, name = rng.choice([15000, 30000]), rng.choice(list(bodies.LONG_LISTS))
        path, body = bodies.write(bodies.CHAT, bodies.LONG_LISTS[name](n), self.server.name)
        body["timeout"] = TIMEOUT_S
        usual = self.machine_s(self.small[0])
        reply = self.server.post(path, body, TIMEOUT)
        usual = max(usual, self.machine_s(self.small[0]))
        self.row.counted()
        self.row.wait("reply to a request with timeout 0.5 s", reply.seconds - usual, TIMEOUT_S + FREE_S, "%d %s" % (n, name))

    def end(self):
        """SIGTERM while workers are busy."""
        requests = self.heavy_requests()
        for _, path, data in requests:
            threading.Thread(target=self.server.post, args=(path, data, TIMEOUT), daemon=True).start()
        time.sleep(0.3)
        self.control.kill()
        self.row.stop(self.server, GRACE_S + END_S, "beside " + requests[0][0])


def run(row):
    templates = [None] + sorted(os.path.join(TEMPLATES, f) for f in os.listdir(TEMPLATES) if f.endswith(".jinja"))
    row.random.shuffle(templates)
    i = 0
    while row.has_time() or i == 0:
        attack = Attack(row, templates[i % len(templates)])
        i += 1
        steps = [attack.results, attack.alone, attack.leave, attack.timeout, lambda: attack.stay(min(5, row.left() + 1))]
        row.random.shuffle(steps)
        for step in steps * 2:
            if not row.check_alive(attack.server, "row 1, " + attack.template) or not row.has_time():
                break
            step()
        attack.end()
