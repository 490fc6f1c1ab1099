# SPDX-License-Identifier: Apache-2.0
"""Row 2: every byte that a request causes is counted, so the process stays within --memory. run() compares VmHWM with
the limit; run_in_group() lets a control group do so that is 10 % larger and has no swap."""
import os
import re
import socket
import threading
import time

import bodies
import forms
from control_group import ControlGroup
from server import post_bytes

LIMITS = (128 << 20, 200 << 20, 400 << 20)  # Of --memory; short runs have the first alone, whose cache is warm sooner.
SMALL_BODY = 1 << 20
CLIENTS = (3, 64)
TIMEOUT = 120
MIN_REQUESTS = 3 * 5  # Also if warming took the time: the worst forms.
CASES_OF_A_SERVER = 24
READ_S = 4  # Of slow readers.
ALLOWED = (200, 400, 404, 408, 413, 429, 503, 504)
TEMPLATES = os.path.join(os.path.dirname(__file__), "..", "data", "chat")

DOUBLING = """{%- set n = namespace(x='aaaaaaaa') -%}
{%- if messages | length > 2 -%}{%- for i in range(COUNT) -%}{%- set n.x = n.x ~ n.x -%}{%- endfor -%}{%- endif -%}
{%- for m in messages -%}{{ m.role }}: {{ m.content }}{%- if loop.last -%}{{ n.x }}{%- endif -%}{%- endfor -%}
"""


def templates(row):
    """None, a template that doubles, and one that shows calls."""
    path = os.path.join(row.logs, "doubling-%s.jinja" % row.build)
    with open(path, "w") as f:
        f.write(DOUBLING.replace("COUNT", str(row.random.choice([12, 18, 24, 30]))))
    return [None, path, os.path.join(TEMPLATES, "objects.jinja")]


# Those that took most in earlier runs, at sizes of which three are let in at a time: they come first.
WORST = [
    ("arguments_nested", bodies.CHAT, "half", 3),
    ("tools_of_many_properties", bodies.CHAT, "quarter", 3),
    ("schema_enums", bodies.CHAT, "half", 3),
    ("tiny_messages", bodies.CHAT, "half", 3),
    ("arguments_list", bodies.CHAT, "quarter", 3),
]


def cases(row):
    """The worst, the required ones in random order, then random ones without end."""
    yield from row.random.sample(WORST, len(WORST))
    sizes = [(s, n) for s in ("1 MB", "largest") for n in CLIENTS]
    required = [(f, p, s, n) for f in forms.FORMS for p in forms.protocols_of(f) for s, n in sizes]
    required += [("slow_readers", p, "", n) for p in readers("") for n in CLIENTS]
    row.random.shuffle(required)
    yield from required
    row.note("all %d required forms" % len(required))
    while True:
        yield "mutation", "", row.random.choice(("1 MB", "largest", "half", "quarter")), row.random.choice(CLIENTS)


# ---- slow readers ----


def readers(name):
    """Of each protocol a request whose reply is long: 16 answers with 20 log probabilities where there are such."""
    user = {"model": name, "messages": [{"role": "user", "content": "a"}]}
    more = {"include": ["message.output_text.logprobs"], "top_logprobs": 20}
    return {
        "chat": ("/v1/chat/completions", dict(user, logprobs=True, top_logprobs=20, n=16, max_tokens=400)),
        "text": ("/v1/completions", {"model": name, "prompt": "a", "logprobs": 20, "n": 16, "max_tokens": 400}),
        "llama": ("/completion", {"prompt": "a", "n_probs": 20, "n": 16, "n_predict": 400}),
        "responses": ("/v1/responses", dict(more, model=name, input="a", max_output_tokens=400)),
        "ollama": ("/api/chat", dict(user, logprobs=True, top_logprobs=20, options={"num_predict": 400})),
        "anthropic": ("/v1/messages", dict(user, max_tokens=400)),
    }


def read_slowly(row, server, protocol, n, seconds):
    """n clients that take a few bytes at a time of what they asked for, half of them as a stream, then leave."""
    sockets = []
    for i in range(n):
        path, body = readers(server.name)[protocol]
        body.update(stream=i % 2 == 0, ignore_eos=True)
        data = bodies.dumps(body)
        try:
            s = socket.socket()
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.settimeout(5)
            s.connect(server.address)
            s.sendall(post_bytes(path, data))
            s.settimeout(0.001)
            sockets.append(s)
        except OSError:
            pass
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for s in sockets:
            try:
                s.recv(64)
            except OSError:
                pass
        time.sleep(0.1)
    for s in sockets:
        s.close()


# ---- one server ----


class Target:
    def __init__(self, row, template, limit, group):
        options = ["--memory", "%dM" % (limit >> 20)] + (["--chat-template", template] if template else [])
        self.row, self.limit, self.group = row, limit, group
        self.server = row.start(*options, group=group)
        self.what = os.path.basename(template) if template else "no template"
        largest = self.server.body_limit()
        self.sizes = {"1 MB": min(SMALL_BODY, largest), "largest": largest, "half": largest // 2}
        self.sizes["quarter"] = largest // 4
        self.warm()

    def warm(self):
        """Fills what is kept of conversations: long prompts until the memory in use grows no more, or the time is over."""
        used, n, n_same, end = 0, 0, 0, time.monotonic() + max(6, self.row.seconds / 10)
        while time.monotonic() < end and n_same < 3:
            requests = []
            for _ in range(6):
                n += 1
                ids = [(n * 7919 + k * k) % 1000 for k in range(1800)]
                body = {"model": self.server.name, "prompt": ids, "max_tokens": 1, "kv_type": "f32"}
                requests.append(("/v1/completions", bodies.dumps(body)))
            self.server.post_all(requests, TIMEOUT)
            memory = self.server.get("/health").json().get("memory") or {}
            now = memory.get("used") or 0
            n_same = 0 if now > used else n_same + 1
            used = max(used, now)
        self.row.note("cache warmed to %d of %d MiB" % (used >> 20, self.limit >> 20))
        self.check("warm cache")

    def reset_peak(self):
        try:
            with open("/proc/%d/clear_refs" % self.server.process.pid, "w") as f:
                f.write("5")
        except OSError:
            pass  # Then a peak stays, and later cases show it, too.

    def check(self, what):
        if self.group:
            if not self.row.measure("kills in a control group", self.group.kills(), 0, "", what):
                return False
        elif not self.row.sanitized:  # Shadow memory and freed blocks that are kept are the sanitizer's.
            self.row.measure("VmHWM", self.server.memory(), self.limit, "MiB", what)
        return self.row.check_alive(self.server, what)

    def attack(self, case):
        form, protocol, size, n = case
        what = "%s, %s, %s, %d clients, %s" % (form, protocol, size, n, self.what)
        self.reset_peak()
        if form == "slow_readers":
            read_slowly(self.row, self.server, protocol, n, min(READ_S, self.row.left()))
        else:
            if form == "mutation":
                some = [forms.random_body(self.row.random, self.sizes[size], self.server.name) for _ in range(3)]
            else:
                some = [forms.form_body(form, protocol, self.sizes[size], self.row.random, self.server.name)]
            requests = [some[i % len(some)] for i in range(n)]
            for reply in self.server.post_all(requests, TIMEOUT):
                self.check_reply(reply, what)
        self.row.counted(n)
        return self.check(what)

    def check_reply(self, reply, what):
        if reply is None or reply.status == 0:
            return  # Closed while a body was sent: the check of the server follows.
        if reply.status not in ALLOWED:
            self.row.error("status %d for %s: %s" % (reply.status, what, reply.message()[:100]))
        elif reply.status == 503 and b"retry-after:" not in reply.head.lower():
            self.row.error("503 without Retry-After for %s: %s" % (what, reply.message()[:100]))
        elif reply.status == 413 and len(re.findall(r"\d+", reply.message())) < 2:
            self.row.error("413 names no two numbers: %s" % reply.message()[:100])


def limits(row):
    return LIMITS if row.seconds > 60 else LIMITS[:1]


def run(row):
    attack(row, None)


def run_in_group(row):
    if row.sanitized:
        row.note("skipped: a sanitizer's own memory exceeds the group")
        return
    group = ControlGroup.create(1 << 40)
    if not group:
        row.note("skipped: no control group")
        return
    row.note("control group of version %d" % group.version)
    try:
        attack(row, group)
    finally:
        row.close()
        group.remove()


def attack(row, group):
    kinds, remaining, i = templates(row), cases(row), row.random.randrange(3)
    while row.has_time():
        limit = row.random.choice(limits(row))
        if group:
            group.set_limit(limit + limit // 10)
        target = Target(row, kinds[i % len(kinds)], limit, group)
        i += 1
        for _ in range(CASES_OF_A_SERVER):
            if not (row.has_time() or row.n_requests < MIN_REQUESTS) or not target.attack(next(remaining)):
                break
        row.stop(target.server)
