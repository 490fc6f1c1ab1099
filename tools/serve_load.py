#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Many clients at once against `antigravity serve`, and beside llama.cpp's server.

    tools/serve_load.py load    PROGRAM MODEL [--clients N] [--seconds S]
    tools/serve_load.py memory  PROGRAM MODEL [MODEL]... --memory SIZE [--clients N] [--seconds S] [--cgroup [DIR]]
    tools/serve_load.py delay   PROGRAM MODEL [--clients N] [--prompt TOKENS]
    tools/serve_load.py capacity PROGRAM MODEL --memory SIZE [--long-words N]
    tools/serve_load.py connections PROGRAM MODEL [--connections N]
    tools/serve_load.py tools   PROGRAM MODEL [--tools N]
    tools/serve_load.py compare PROGRAM MODEL.gguf [--peer LLAMA_SERVER] [--counts 1,8,32]

load: each client asks for streamed answers, one after the other, until the time is over; some prompts are short, some
of some thousand tokens, some continue a conversation. Every eighth answer is asked for again by a single client
afterwards and must be the same text. Told are tokens per second, the time to the first token, the gaps between tokens, and
tokens of the least and of the most served client.

memory: clients with long prompts, each time to another of the models, which are loaded and dropped, while conversations
fill --prefix-memory and a directory. Every 20 ms /proc tells what the process occupies (RssAnon + RssShmem + VmSwap), which
must never be above SIZE; with --cgroup the process runs in a control group of SIZE + max(10 %, 64 MiB).

delay: what a long prompt does to those whose answers are on their way: their gaps before it comes and while it is read, beside
the time that one pass over --step-rows tokens takes.

capacity: conversations of one length, more than SIZE has room for; how many are held then, beside what docs/guide/size-a-server.md foretells
from the first of them.

connections: that many connections which say nothing, from several addresses of this machine, and an answer beside them. Needs
a limit of open files above their number.

tools: the time to the first token of a chat with N tools, whose calls obey their schemas, relative to the same prompt as a
completion without a constraint: first with new tools, then with tools that the prefix cache has. At most 1.3 times.

compare: the same requests against both servers, in turns.

Needs Linux and nothing but Python. Exit status: 0 if all held, 1 if not."""
import argparse
import asyncio
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from long_runs import Group

WORDS = ("time river stone light small house old friend garden winter music paper morning forest little window "
         "summer bridge silver letter ocean story candle mountain rabbit basket yellow music silent market").split()


def text_of(seed, n_words):
    """Words that no other seed begins with."""
    rng = random.Random(str(seed))
    return " ".join(rng.choice(WORDS) for _ in range(n_words))


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


def milliseconds(values):
    return " / ".join(f"{1000 * percentile(values, share):.1f}" for share in (0.50, 0.95, 0.99))


# ---- servers ----


class Server:
    """A server process that answers on a port of this machine."""

    def __init__(self, command, port, group=None):
        self.port = port
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        preexec_fn=(lambda: group.write("cgroup.procs", os.getpid())) if group else None)
        for _ in range(600):
            try:
                if self.get("/health"):
                    return
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.1)
        raise SystemExit(f"serve_load.py: {command[0]} does not answer")

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as reply:
            return reply.read().decode()

    def metric(self, name):
        for line in self.get("/metrics").splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
        return None

    def stop(self):
        self.process.terminate()
        return self.process.wait(60)


def start_ours(args, extra=(), group=None):
    command = [args.program, "serve", "--port", str(args.port), "-q", "-c", str(args.context), *args.ours, *extra, *args.model]
    return Server(command, args.port, group)


def start_peer(args, n_clients):
    args.peer_port += 1  # it cannot listen again soon on one that has just been closed
    return Server([args.peer, "--port", str(args.peer_port), "-m", args.model[-1], "-np", str(n_clients), "-t", str(os.cpu_count()),
                   "-c", str(args.peer_context * n_clients)], args.peer_port)


# ---- a request ----


class Answer:
    """What one request got: its text, the time of each piece, and the server's own counts."""

    def __init__(self):
        self.text, self.times, self.status, self.error = "", [], 0, ""
        self.prompt_tokens = self.cached = self.tokens = 0
        self.finish = None

    def take(self, line):
        event = json.loads(line)
        if "error" in event:
            self.error = str(event["error"])
            return
        for choice in event["choices"]:
            piece = choice.get("text") or ""
            if piece:
                self.times.append(time.monotonic())
                self.text += piece
            self.finish = choice.get("finish_reason") or self.finish
        if event.get("usage"):
            self.prompt_tokens = event["usage"]["prompt_tokens"]
            self.tokens = event["usage"]["completion_tokens"]
            self.cached = (event["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0)


async def ask(port, body):
    """Streams one completion. Connections are not kept: a server sees them come and go."""
    answer = Answer()
    answer.start = time.monotonic()
    data = json.dumps({**body, "stream": True, "stream_options": {"include_usage": True}}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n"
                 b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (port, len(data)) + data)
    await writer.drain()
    try:
        answer.status = int((await reader.readline()).split()[1])
        while (await reader.readline()).strip():
            pass
        if answer.status != 200:
            answer.error = (await reader.read()).decode(errors="replace")[:300]
            return answer
        while line := await reader.readline():
            if line.startswith(b"data: {"):
                answer.take(line[6:])
        if answer.finish is None and not answer.error:
            answer.error = "the stream ended without a reason"
    except (IndexError, ValueError, OSError) as error:
        answer.error = repr(error)
    finally:
        writer.close()
    return answer


# ---- load ----


def request_of(client, i, args, earlier):
    """The i-th request of a client: short, long, or the conversation so far and some words."""
    kind = i % 4
    seed = f"{args.seed} {client} {i}"
    marker = f"marker-{args.seed}-{client}-{i}"
    if kind == 3 and earlier:
        prompt = earlier[0] + earlier[1] + " " + text_of(seed, 12)
    else:
        prompt = f"{marker} " + text_of(seed, args.long_words if kind == 1 else 30 + 7 * (client % 5))
    sampled = {"temperature": 0.8, "seed": client * 1000 + i} if kind == 2 else {"temperature": 0}
    return {"model": args.names[(client + i) % len(args.names)], "prompt": prompt, "max_tokens": args.answer, "ignore_eos": True,
            **sampled}


async def run_clients(port, args, seconds, make=request_of):
    """All clients until the time is over; what each asked and got."""
    until = time.monotonic() + seconds

    async def one(client):
        done, earlier, i = [], None, 0
        while time.monotonic() < until:
            body = make(client, i, args, earlier)
            answer = await ask(port, body)
            done.append((body, answer))
            earlier = (body["prompt"], answer.text) if len(body["prompt"]) < 4000 else None
            i += 1
            if answer.error:
                await asyncio.sleep(0.2)
        return done

    start = time.monotonic()
    out = await asyncio.gather(*(one(client) for client in range(args.clients)))
    return out, time.monotonic() - start


def figures(runs, elapsed, until=None):
    answers = [a for run in runs for _, a in run if not a.error]
    return {"answers": len(answers),
            "tokens/s": sum(a.tokens for a in answers) / elapsed,
            "first": [a.times[0] - a.start for a in answers if a.times],
            "gaps": [b - c for a in answers for c, b in zip(a.times, a.times[1:])]}


def shares(runs):
    """Tokens, prompts' and answers', of the least and of the most served client."""
    sums = [sum(a.tokens + a.prompt_tokens - a.cached for _, a in run) for run in runs]
    return min(sums), max(sums)


def report(name, f):
    print(f"{name}: {f['answers']} answers, {f['tokens/s']:.1f} tokens/s; ms at 50/95/99 %: first token {milliseconds(f['first'])}, "
          f"gaps {milliseconds(f['gaps'])}")


def foreign_markers(runs):
    """Answers that hold a marker which is not in their own prompt."""
    found = 0
    for run in runs:
        for body, answer in run:
            for word in answer.text.split():
                if word.startswith("marker-") and word.count("-") == 3 and word not in body["prompt"]:
                    found += 1
    return found


def same_alone(port, runs, every):
    """Asks again, one at a time; returns how many were asked and those whose text differs."""
    asked = [(body, answer) for run in runs for body, answer in run if not answer.error][::every]
    differ = []
    for body, answer in asked:
        again = asyncio.run(ask(port, body))
        if again.text != answer.text:
            differ.append((body, answer, again))
    return len(asked), differ


def errors_of(runs):
    return [a.error or f"status {a.status}" for run in runs for _, a in run if a.error]


def load(args):
    server = start_ours(args, ["--max-running", str(args.clients), "--prefix-memory", args.prefix_memory])
    try:
        runs, elapsed = asyncio.run(run_clients(server.port, args, args.seconds))
        report(f"{args.clients} clients, {elapsed:.0f} s", figures(runs, elapsed))
        errors = errors_of(runs)
        least, most = shares(runs)
        print(f"errors {len(errors)}{': ' + errors[0] if errors else ''}; tokens of the least and the most served client {least} : {most} "
              f"= 1 : {most / max(least, 1):.2f}; foreign markers {foreign_markers(runs)}")
        n, differ = same_alone(server.port, runs, args.every)
        print(f"asked again alone: {n}, {len(differ)} differ")
        for body, answer, again in differ[:3]:
            print(json.dumps({**body, "prompt": body["prompt"][:40] + " ... " + body["prompt"][-40:]}))
            for a in (answer, again):
                print(f"  {a.prompt_tokens} tokens, {a.cached} cached: {json.dumps(a.text)}")
    finally:
        server.stop()
    return bool(errors or differ or foreign_markers(runs))


# ---- a long prompt beside answers ----


async def watch_delay(port, args):
    """Gaps of answers before, and while, a long prompt is read; and how long that took."""
    def body(seed, n_words, n_tokens):
        return {"model": args.names[0], "prompt": text_of(f"{args.seed} {seed}", n_words), "max_tokens": n_tokens, "temperature": 0,
                "ignore_eos": True}
    once = await ask(port, body("warm", 30, 2))
    words_a_token = 30 / once.prompt_tokens
    streams = [asyncio.create_task(ask(port, body(i, 20, args.answer))) for i in range(args.clients)]
    await asyncio.sleep(args.seconds)
    begin = time.monotonic()
    long = await ask(port, body("long", int(args.prompt * words_a_token), 1))
    end = long.times[0] if long.times else time.monotonic()
    answers = await asyncio.gather(*streams)
    before, during = [], []
    for a in answers:
        for one, next_one in zip(a.times, a.times[1:]):
            if next_one < begin:
                before.append(next_one - one)
            elif one < end:
                during.append(next_one - one)
    return long, end - begin, before[len(answers):], during, errors_of([[(None, a) for a in [*answers, long]]])


def delay(args):
    server = start_ours(args, ["--step-rows", str(args.step_rows), "--prefix-memory", "0"])
    try:
        alone, seconds, _, _, _ = asyncio.run(watch_delay(server.port, argparse.Namespace(**{**vars(args), "clients": 0, "seconds": 0})))
        step = seconds / -(-alone.prompt_tokens // args.step_rows)
        print(f"{alone.prompt_tokens} tokens alone in {seconds:.2f} s: a pass of {args.step_rows} takes {1000 * step:.1f} ms")
        args.seed += 1
        long, seconds, before, during, errors = asyncio.run(watch_delay(server.port, args))
        print(f"{args.clients} answers: gaps {milliseconds(before)} ms at 50/95/99 %, longest {1000 * max(before, default=0):.1f}; while {long.prompt_tokens} "
              f"tokens are read in {seconds:.2f} s: {milliseconds(during)}, longest {1000 * max(during, default=0):.1f}")
        for error in errors[:3]:
            print(error)
    finally:
        server.stop()
    return bool(errors)


# ---- capacity ----

BLOCK = 128  # tokens of a cache


def set_aside(limit):
    """As docs/guide/size-a-server.md has it."""
    return limit // 8 + min(limit // 256, 8 << 20) + max(limit // 64, 2 << 20) + (2 << 20)


def whole_blocks(n_tokens):
    return -(-n_tokens // BLOCK) * BLOCK


def capacity(args):
    limit = size_of(args.memory)
    server = start_ours(args, ["--memory", args.memory])
    try:
        def ask_one(i):
            return asyncio.run(ask(server.port, {**plain_request(1, i, args, None), "model": args.names[0]}))
        first = ask_one(0)
        n_tokens = first.prompt_tokens + first.tokens
        used, parked = (server.metric("antigravity_" + name) for name in ("memory_used_bytes", "parked_bytes"))
        a_token = parked / whole_blocks(n_tokens - 1)
        request = a_token * (whole_blocks(n_tokens) + BLOCK) + (128 << 10)
        foretold = int((limit - set_aside(limit) - (used - parked) - request) / parked) + 1
        held, errors = 0, []
        for i in range(1, 2 * foretold + 4):
            answer = ask_one(i)
            errors += [answer.error] if answer.error else []
            held = max(held, int(server.metric("antigravity_sessions_parked")))
        mib = 1 << 20
        print(f"limit {limit / mib:.0f} MiB, occupied without conversations {(used - parked) / mib:.1f}, conversations of {n_tokens} tokens {parked / mib:.2f} each: "
              f"foretold {foretold}, held {held}; highest {server.metric('antigravity_memory_peak_bytes') / mib:.1f} MiB, errors {len(errors)}")
        return bool(errors) or abs(held - foretold) > max(2, foretold * 15 // 100)
    finally:
        server.stop()


# ---- connections ----


def connections(args):
    """Most are opened and say nothing; some say half a request."""
    server = start_ours(args, ["--max-connections", str(args.connections + 64), "--idle-timeout", "600", "--read-timeout", "600"])
    opened = []
    try:
        base = occupied(server.process.pid)
        for i in range(args.connections):
            s = socket.socket()
            s.bind((f"127.0.0.{1 + i % 8}", 0))
            s.connect(("127.0.0.1", server.port))
            if i % 2:
                s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0")
            opened.append(s)
        answer = asyncio.run(ask(server.port, plain_request(1, 1, args, None) | {"model": args.names[0]}))
        there = server.metric("antigravity_http_connections")
        full = occupied(server.process.pid)
        for s in opened:
            s.close()
        time.sleep(1)
        left = server.metric("antigravity_http_connections")
        print(f"{there:.0f} connections, {(full - base) / max(there, 1):.0f} bytes each; an answer beside them of {answer.tokens} tokens{answer.error}; "
              f"afterwards {left:.0f}")
        return there < args.connections or bool(answer.error) or left > 8
    finally:
        server.stop()


# ---- tools ----


def tool(i, project):
    text = {"type": "string", "description": "File to use."}
    properties = {
        "path": text,
        "count": {"type": "integer"},
        "mode": {"type": "string", "enum": ["read", "write", "append"]},
        "tags": {"type": "array", "items": {"type": "string"}},
    }
    parameters = {"type": "object", "properties": properties, "required": ["path", "mode"]}
    return {"type": "function", "function": {"name": f"tool_{i}", "description": f"Does task {i} of the project {project}.", "parameters": parameters}}


def post(port, path, body):
    """Returns the reply and its time in seconds. Connections are not kept."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
    start = time.monotonic()
    with urllib.request.urlopen(request, timeout=600) as reply:
        return json.load(reply), time.monotonic() - start


def first_token(port, how, chat):
    """Seconds until the first token. how: None for no constraint, or a tool_choice."""
    if how:
        return post(port, "/v1/chat/completions", {**chat, "tool_choice": how, "max_tokens": 1, "temperature": 0})[1]
    prompt = post(port, "/apply-template", chat)[0]["prompt"]
    return post(port, "/completion", {"prompt": prompt, "n_predict": 1, "temperature": 0})[1]


def time_alternatives(args, alternatives, name, rounds):
    """Returns the times of each alternative. They take turns. New tools differ in each request, and so does the first message."""
    times = {how: [] for how in alternatives}
    for i in range(rounds):
        for how in alternatives:
            nonce = f"Session {i} {how}." if name == "new" else "Session 0 None."
            messages = [{"role": "system", "content": nonce}, {"role": "user", "content": text_of((name, i, how), 12)}]
            chat = {"model": args.names[-1], "messages": messages, "tools": [tool(k, nonce) for k in range(args.tools)]}
            times[how].append(first_token(args.port, how, chat))
    return times


def tools(args):
    alternatives, ok = (None, "auto", "required"), True
    server = start_ours(args)
    try:
        for name, rounds in (("new", args.rounds), ("cached", 4 * args.rounds)):
            times = time_alternatives(args, alternatives, name, rounds)
            plain = percentile(times[None], 0.5)
            for how in alternatives[1:]:
                seconds = percentile(times[how], 0.5)
                ok = ok and seconds <= 1.3 * plain
                print(f"{args.tools} tools, {name}, tool_choice {how}: first token {1000 * seconds:.0f} ms, "
                      f"without constraint {1000 * plain:.0f} ms: {seconds / plain:.2f} times", flush=True)
    finally:
        server.stop()
    return 0 if ok else 1


# ---- memory ----


def occupied(pid):
    """Anonymous and shared memory, and what is swapped out; None once the process has gone."""
    n = 0
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as f:
            for line in f:
                if line.startswith(("RssAnon:", "RssShmem:", "VmSwap:")):
                    n += int(line.split()[1]) * 1024
    except OSError:
        return None
    return n


class Watch(threading.Thread):
    """Looks every 20 ms at what a process occupies."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.peak, self.n, self.over = pid, 0, 0, threading.Event()
        self.start()

    def run(self):
        while not self.over.is_set():
            now = occupied(self.pid)
            if now is None:
                return
            self.n += 1
            self.peak = max(self.peak, now)
            self.over.wait(0.02)


def size_of(text):
    units = {"K": 10, "M": 20, "G": 30}
    return int(float(text[:-1]) * (1 << units[text[-1]])) if text[-1] in units else int(text)


def long_request(client, i, args, earlier):
    body = request_of(client, i, args, earlier)
    if i % 4 != 3:
        body["prompt"] = f"{args.seed} {client} {i} " + text_of((client, i), args.long_words // (1 + i % 3))
    body["model"] = args.names[(i + client // 8) % len(args.names)]
    return body


def memory(args):
    limit = size_of(args.memory)
    group = None
    if args.cgroup is not None:
        group = Group(args.cgroup)
        group.limit(limit + max(limit // 10, 64 << 20))
    directory = tempfile.mkdtemp(prefix="antigravity-load-")
    os.chmod(directory, 0o700)
    failed = True
    server = None
    try:
        server = start_ours(args, ["--memory", args.memory, "--prefix-dir", directory], group)
        base = occupied(server.process.pid)
        watch = Watch(server.process.pid)
        runs, elapsed = asyncio.run(run_clients(server.port, args, args.seconds, long_request))
        report(f"{args.clients} clients, {elapsed:.0f} s", figures(runs, elapsed))
        reasons = {}
        for reason in errors_of(runs):
            reasons[reason] = reasons.get(reason, 0) + 1
        for reason, n in sorted(reasons.items(), key=lambda kv: -kv[1])[:8]:
            print(f"  {n} times: {reason[:200]}")
        names = ("memory_peak_bytes", "memory_used_bytes", "models_loaded", "sessions_parked", "requests_refused_total")
        told = {name: server.metric("antigravity_" + name) for name in names}
        died = server.process.poll()
        watch.over.set()
        mib = 1 << 20
        print(f"limit {limit / mib:.0f} MiB, highest of {watch.n} looks {watch.peak / mib:.1f}, by the server itself {told['memory_peak_bytes'] / mib:.1f}; "
              f"at first {base / mib:.1f}; loaded {told['models_loaded']:.0f}, parked {told['sessions_parked']:.0f}, refused {told['requests_refused_total']:.0f}")
        status = server.stop()
        failed = died is not None or status != 0 or watch.peak > limit or told["memory_peak_bytes"] > limit
        if failed:
            print(f"failed: died {died}, status {status}")
    finally:
        if server:
            server.process.kill()
            server.process.wait()
        shutil.rmtree(directory)
        if group:
            group.remove()
    return failed


# ---- beside llama.cpp ----


def plain_request(client, i, args, earlier):
    """New words each time, and no conversation: both servers read all of it."""
    return {"model": "any", "prompt": text_of(f"{args.seed} {client} {i} {args.round}", args.long_words), "max_tokens": args.answer,
            "temperature": 0, "ignore_eos": True}


async def second_turns(port, args, n):
    """First tokens of turns that only add some words to what was just answered."""
    times = []
    for i in range(n):
        body = plain_request(90, i, args, None)
        body["prompt"] = text_of(f"turns {args.round} {i}", 4 * args.long_words)
        first = await ask(port, body)
        body["prompt"] += first.text + " " + text_of(i, 12)
        second = await ask(port, body)
        if first.error or second.error:
            raise SystemExit(f"serve_load.py: {first.error or second.error}")
        times.append(second.times[0] - second.start)
    return times


def compare(args):
    counts = [int(n) for n in args.counts.split(",")]
    for n in counts:
        args.clients = n
        sums = {}
        for args.round in range(args.rounds):
            for name, start in (("antigravity", lambda: start_ours(args, ["--max-running", str(n), "--any-model"])),
                                ("llama.cpp", lambda: start_peer(args, n))):
                server = start()
                try:
                    args.warm = asyncio.run(ask(server.port, plain_request(99, 99, args, None)))
                    runs, elapsed = asyncio.run(run_clients(server.port, args, args.seconds, plain_request))
                    if errors_of(runs):
                        print(f"{name}: {len(errors_of(runs))} errors: {errors_of(runs)[0]}")
                    f = figures(runs, elapsed)
                    f["second"] = asyncio.run(second_turns(server.port, args, 3)) if n == 1 else []
                    old = sums.setdefault(name, {"answers": 0, "tokens/s": [], "first": [], "gaps": [], "second": []})
                    old["answers"] += f["answers"]
                    old["tokens/s"].append(f["tokens/s"])
                    for key in ("first", "gaps", "second"):
                        old[key] += f[key]
                finally:
                    server.stop()
        for name, f in sums.items():
            f["tokens/s"] = percentile(f["tokens/s"], 0.5)
            report(f"{n} clients, {name}", f)
            if f["second"]:
                print(f"  second turn, first token: {1000 * percentile(f['second'], 0.5):.1f} ms")
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["load", "memory", "delay", "capacity", "connections", "tools", "compare"])
    parser.add_argument("program")
    parser.add_argument("model", nargs="+")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--context", type=int, default=2048, help="tokens that each cache may hold")
    parser.add_argument("--long-words", type=int, default=400, help="words of a long prompt")
    parser.add_argument("--answer", type=int, default=32, help="tokens of an answer")
    parser.add_argument("--every", type=int, default=8, help="one of so many answers is asked for again")
    parser.add_argument("--prompt", type=int, default=4096, help="tokens of the prompt that delays others")
    parser.add_argument("--step-rows", type=int, default=512)
    parser.add_argument("--connections", type=int, default=10000)
    parser.add_argument("--tools", type=int, default=128)
    parser.add_argument("--prefix-memory", default="256M")
    parser.add_argument("--memory")
    parser.add_argument("--cgroup", nargs="?", const="", metavar="DIR")
    parser.add_argument("--peer", default="llama-server")
    parser.add_argument("--peer-context", type=int, default=4096)
    parser.add_argument("--counts", default="1,8,32")
    parser.add_argument("--rounds", type=int, default=3)
    parser.set_defaults(round=0, peer_port=18200)
    parser.add_argument("--ours", action="append", default=[], help="a further option of antigravity serve")
    parser.add_argument("--port", type=int, default=18099)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.what in ("memory", "capacity") and not args.memory:
        parser.error(f"{args.what} needs --memory")
    args.names = [os.path.basename(m.rstrip("/")).removesuffix(".gguf") for m in args.model]
    args.model = [word for m in args.model for word in ("-m", m)]
    return {"load": load, "memory": memory, "delay": delay, "capacity": capacity, "connections": connections,
            "tools": tools, "compare": compare}[args.what](args)


if __name__ == "__main__":
    sys.exit(main())
