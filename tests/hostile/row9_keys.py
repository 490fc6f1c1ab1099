# SPDX-License-Identifier: Apache-2.0
"""Row 9: one key takes at most half of the queue's places, and of the rows of a step while others wait."""
import os
import threading
import time

import bodies

KEYS = ("a" * 32, "b" * 32)
MAX_WAITING, MAX_RUNNING = 16, 8
N_FLOOD, N_OTHER = 48, 6  # Clients of each key; the other key's fit into its half of the queue.
MIN_SHARE = 0.35  # Of the answered tokens: a half, less what the last answers of a window distort.
TIMEOUT = 60


class Key:
    """The clients of one key: each repeats a request without a pause."""

    def __init__(self, row, server, key, n, long):
        self.row, self.server = row, server
        self.header = (("Authorization", "Bearer " + key),)
        self.n_tokens, self.statuses, self.seconds = 0, {}, []
        self.stop, self.lock, self.long = threading.Event(), threading.Lock(), long
        self.threads = [threading.Thread(target=self.repeat, args=(i,), daemon=True) for i in range(n)]

    def repeat(self, i):
        k = 0
        while not self.stop.is_set():
            k += 1
            text = "%d %d " % (i, k) + "word " * (300 if self.long else 20)
            body = {"model": self.server.name, "prompt": text, "max_tokens": 24, "ignore_eos": True, "cache_prompt": False}
            reply = self.server.post("/v1/completions", bodies.dumps(body), TIMEOUT, self.header)
            self.row.counted()
            with self.lock:
                self.statuses[reply.status] = self.statuses.get(reply.status, 0) + 1
                if reply.status == 200 and not self.stop.is_set():
                    self.n_tokens += 24
                    self.seconds.append(reply.seconds)
            if reply.status != 200:
                time.sleep(0.01)

    def start(self):
        for t in self.threads:
            t.start()

    def end(self):
        self.stop.set()
        for t in self.threads:
            t.join(TIMEOUT)


def window(keys, seconds):
    for k in keys:
        k.start()
    time.sleep(seconds)
    for k in keys:
        k.end()


def run(row):
    path = os.path.join(row.logs, "keys-%s" % row.build)
    with open(path, "w") as f:
        f.write("\n".join(KEYS) + "\n")
    options = ("--api-key-file", path, "--max-waiting", MAX_WAITING, "--max-running", MAX_RUNNING)
    server = row.start(*options)
    first = True
    while row.has_time() or first:
        first = False
        seconds, long = max(2.0, min(20.0, row.seconds / 3)), row.random.random() < 0.5
        what = "long prompts" if long else "short prompts"
        flood, other = Key(row, server, KEYS[0], N_FLOOD, long), Key(row, server, KEYS[1], N_OTHER, long)
        window([flood, other], seconds)
        row.measure("requests of the other key with 429", other.statuses.get(429, 0), 0, "", what)
        if set(other.statuses) - {200, 429}:
            row.error("statuses of the other key: %s" % other.statuses)
        total = flood.n_tokens + other.n_tokens
        if total:
            row.measure("share of the flooding key", flood.n_tokens / total, 1 - MIN_SHARE, "", what)
        if not row.check_alive(server, what):
            return
    row.stop(server)
