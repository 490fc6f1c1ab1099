#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two replicas of `antigravity serve` behind a router: how much of a conversation's beginning is not read again.

    tools/serve_replicas.py build/release/bin/antigravity models/demo [--router nginx|ray] [--turns 10] [--conversations 15]

nginx is set up by examples/nginx.conf, whose ports are replaced; ray by examples/ray_serve.py, which wants the package
ray[serve]. Conversations take turns. Of each turn but the first, what its prompt has in common with the one before and its
answer is counted, and how much of it `usage` says was cached. Then the same again with another session in each request, for
comparison. Exit status: 1 if less than 95 % was cached, if one replica had nothing to do, or if the comparison does as well;
77 if the router is not here."""
import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter

import serve_suites

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
N_REPLICAS = 2
WORDS = "the old king had three sons and a little house by the river where a fox told them stories of the sea".split()


class Absent(Exception):
    """The router is not installed."""


# ---- routers: each gives a URL, the fields by which it knows sessions, and how to count the requests of each replica ----


def wait_for(url):
    for _ in range(600):
        try:
            with urllib.request.urlopen(url + "/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    raise SystemExit(f"{url} does not answer")


def n_requests(url):
    """How many requests to the model the replica behind the URL has had."""
    with urllib.request.urlopen(url + "/metrics", timeout=60) as reply:
        return int(re.search(r"^antigravity_requests_total (\d+)", reply.read().decode(), re.MULTILINE)[1])


NGINX_MAIN = """{user}
daemon off;
pid nginx.pid;
error_log stderr;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    include antigravity.conf;
}}
"""


def set_up_nginx(folder, port, servers):
    """examples/nginx.conf with these ports, and around it what an ordinary user needs."""
    with open(os.path.join(ROOT, "examples", "nginx.conf"), encoding="utf-8") as f:
        text = f.read()
    changes = [("listen 8080;", f"listen 127.0.0.1:{port};")]
    changes += [(f"127.0.0.1:{8081 + i} ", f"127.0.0.1:{s.port} ") for i, s in enumerate(servers)]
    for old, new in changes:
        if text.count(old) != 1:
            raise SystemExit(f"examples/nginx.conf: '{old}' does not stand there once")
        text = text.replace(old, new)
    with open(os.path.join(folder, "antigravity.conf"), "w", encoding="utf-8") as f:
        f.write(text)
    with open(os.path.join(folder, "nginx.conf"), "w", encoding="utf-8") as f:
        f.write(NGINX_MAIN.format(user="user root;" if os.geteuid() == 0 else ""))


@contextlib.contextmanager
def nginx(options, folder):
    program = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if not program:
        raise Absent("there is no nginx (Debian: nginx-light)")
    with contextlib.ExitStack() as stack:
        log = os.path.join(folder, "replicas.log")
        started = [serve_suites.Server(options.program, options.model, ["-q"], log) for _ in range(N_REPLICAS)]
        servers = [stack.enter_context(s) for s in started]
        port = serve_suites.free_port()
        set_up_nginx(folder, port, servers)
        command = [program, "-p", folder, "-c", os.path.join(folder, "nginx.conf"), "-e", "stderr"]
        process = subprocess.Popen(command)
        try:
            wait_for(f"http://127.0.0.1:{port}")
            fields = ["X-Session-Id", "X-Claude-Code-Session-Id", "Session-Id", "Authorization"]
            yield f"http://127.0.0.1:{port}", fields, lambda _: [n_requests(s.url) for s in servers]
        finally:
            process.terminate()
            process.wait(60)


@contextlib.contextmanager
def ray(options, _):
    try:
        import ray as engine
        from ray import serve
    except ImportError:
        raise Absent("there is no ray (PyPI: ray[serve])") from None
    examples = os.path.join(ROOT, "examples")
    sys.path.insert(0, examples)
    import ray_serve

    port = serve_suites.free_port()
    engine.init(num_cpus=N_REPLICAS + 1, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False,
                runtime_env={"env_vars": {"PYTHONPATH": examples}})
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        arguments = f"-q -m {os.path.abspath(options.model)}"
        serve.run(ray_serve.build({"program": os.path.abspath(options.program), "arguments": arguments, "replicas": N_REPLICAS}))
        wait_for(f"http://127.0.0.1:{port}")
        fields = ["prompt_cache_key", "X-Session-Id", "X-Claude-Code-Session-Id", "Authorization"]
        yield f"http://127.0.0.1:{port}", fields, lambda talks: list(Counter(b for t in talks for b in t.served_by).values())
    finally:
        serve.shutdown()
        engine.shutdown()


# ---- conversations ----


class Conversation:
    def __init__(self, name, field):
        self.name, self.field = name, field
        self.messages = []
        self.before = 0  # tokens of the last prompt and its answer
        self.served_by = []  # the replicas, where the router tells

    def ask(self, url, turn, session):
        """One turn; how many of its tokens were there before, and how many of these were cached."""
        words = " ".join(WORDS[(turn * 5 + i + len(self.name)) % len(WORDS)] for i in range(8))
        self.messages.append({"role": "user", "content": f"{self.name} {turn}: {words}"})
        body = {"model": "demo", "messages": self.messages, "max_tokens": 12, "ignore_eos": True}
        headers = {"Content-Type": "application/json"}
        if self.field == "prompt_cache_key":
            body[self.field] = session
        elif self.field == "Authorization":
            headers[self.field] = "Bearer " + session
        else:
            headers[self.field] = session
        request = urllib.request.Request(url + "/chat/completions", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=600) as reply:
            answer = json.load(reply)
            self.served_by.append(reply.headers.get("x-served-by"))
        self.messages.append(answer["choices"][0]["message"])
        usage = answer["usage"]
        known, self.before = self.before, usage["prompt_tokens"] + usage["completion_tokens"]
        return known, min(known, usage["prompt_tokens_details"]["cached_tokens"])


def play(url, fields, options, label, n, scattered):
    talks = [Conversation(f"{label}{i}", fields[i % len(fields)]) for i in range(n)]
    known = cached = 0
    for turn in range(options.turns):
        for talk in talks:
            there, kept = talk.ask(url, turn, f"{talk.name}-{turn}" if scattered else talk.name)
            known += there
            cached += kept
    print(f"{label:10} {len(talks)} conversations of {options.turns} turns: {known} tokens that were there before, "
          f"{cached} of them cached ({100 * cached / known:.1f} %)")
    return cached / known, talks


def streams(url):
    """Whether a streamed answer comes to its end."""
    body = {"messages": [{"role": "user", "content": "Once"}], "max_tokens": 5, "stream": True}
    request = urllib.request.Request(url + "/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as reply:
        is_stream = reply.headers["Content-Type"].startswith("text/event-stream")
        return is_stream and reply.read().endswith(b"data: [DONE]\n\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("program")
    p.add_argument("model")
    p.add_argument("--router", choices=["nginx", "ray"], default="nginx")
    p.add_argument("--turns", type=int, default=10)
    p.add_argument("--conversations", type=int, default=15)
    options = p.parse_args()
    router = {"nginx": nginx, "ray": ray}[options.router]
    try:
        with tempfile.TemporaryDirectory(prefix="antigravity-") as folder, router(options, folder) as (url, fields, count):
            if not streams(url):
                raise SystemExit("a stream did not come through")
            share, talks = play(url, fields, options, "routed", options.conversations, False)
            counts = count(talks)
            print("requests of each replica:", *counts)
            scattered, _ = play(url, fields, options, "scattered", len(fields), True)
    except Absent as absent:
        print(f"skipped: {absent}")
        return 77
    all_worked = len(counts) == N_REPLICAS and min(counts) > 0
    return 0 if share >= 0.95 > scattered and all_worked else 1


if __name__ == "__main__":
    sys.exit(main())
