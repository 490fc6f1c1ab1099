#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Play a coding agent to `antigravity serve` and count the tokens that each of its turns reads.

    tools/serve_agent.py build/release/bin/antigravity MODEL [--system-tokens 20000] [--turns 10] [--most N]
                         [--protocol openai|anthropic] [--reasoning kept|dropped] [--restart TURN] [--chat-template FILE]

The transcript: a system prompt whose first block has a line that is another one in every request, tools, and turns that
end with a call, its result, and an answer in words. Each request carries the whole conversation, as such agents send it. Of
each the table has the tokens of the prompt, those of them that are new (behind the prompt before and what was generated),
those that were read, and how many more that is. --restart ends the server before that turn and starts it again on the same
--prefix-dir. Exit status: 1 if a request but the first reads more than --most tokens that are not new."""
import argparse
import json
import os
import random
import sys
import tempfile
import urllib.error
import urllib.request

import serve_suites

WORDS = "the build fails when a file is read twice because its buffer was freed before the last line had been parsed".split()
FILES = ["src/reader.c", "src/buffer.c", "tests/test_reader.c", "docs/format.md"]
COMMANDS = ["make test", "git diff --stat", "ctest -R reader --output-on-failure"]


def one_of(name, values):
    return {"type": "object", "properties": {name: {"type": "string", "enum": values}}, "required": [name], "additionalProperties": False}


TOOLS = {
    "read_file": ("Read a file of the project.", one_of("path", FILES)),
    "list_folder": ("List what a folder holds.", one_of("path", ["src", "tests", "docs"])),
    "run": ("Run a command in the project and give what it prints.", one_of("command", COMMANDS)),
}


def prose(n_words, seed):
    draw = random.Random(seed)
    return " ".join(draw.choice(WORDS) for _ in range(n_words))


class Openai:
    """The conversation as a client of /v1/chat/completions keeps it."""

    def __init__(self, options):
        self.options = options
        self.messages = []

    def say(self, text):
        self.messages.append({"role": "user", "content": text})

    def give_result(self, calls, text):
        self.messages += [{"role": "tool", "tool_call_id": c, "content": text} for c in calls]

    def request(self, system, nonce, call):
        body = {"messages": [{"role": "system", "content": nonce + "\n" + system}, *self.messages]}
        body["tools"] = [{"type": "function", "function": {"name": n, "description": d, "parameters": p}} for n, (d, p) in TOOLS.items()]
        body.update({"tool_choice": "required" if call else "auto", "parallel_tool_calls": False})
        return "/v1/chat/completions", body

    def hear(self, reply):
        message = reply["choices"][0]["message"]
        if self.options.reasoning == "dropped":
            message.pop("reasoning_content", None)
        self.messages.append(message)
        usage = reply["usage"]
        calls = [c["id"] for c in message.get("tool_calls") or []]
        return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"], usage["completion_tokens"], calls


class Anthropic:
    """The same as a client of /v1/messages does."""

    def __init__(self, options):
        self.options = options
        self.messages = []

    def say(self, text):
        self.messages.append({"role": "user", "content": [{"type": "text", "text": text}]})

    def give_result(self, calls, text):
        self.messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": c, "content": text} for c in calls]})

    def request(self, system, nonce, call):
        body = {"system": [{"type": "text", "text": nonce}, {"type": "text", "text": system}], "messages": self.messages}
        body["tools"] = [{"name": n, "description": d, "input_schema": p} for n, (d, p) in TOOLS.items()]
        body["tool_choice"] = {"type": "any" if call else "auto", "disable_parallel_tool_use": True}
        return "/v1/messages", body

    def hear(self, reply):
        content = [c for c in reply["content"] if c["type"] != "thinking" or self.options.reasoning == "kept"]
        self.messages.append({"role": "assistant", "content": content})
        usage = reply["usage"]
        cached = usage["cache_read_input_tokens"]
        return usage["input_tokens"] + cached, cached, usage["output_tokens"], [c["id"] for c in content if c["type"] == "tool_use"]


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=3600) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{url}: {error.code}: {error.read().decode()[:500]}") from None


class Agent:
    def __init__(self, options):
        self.options = options
        self.talk = {"openai": Openai, "anthropic": Anthropic}[options.protocol](options)
        self.system = prose(options.system_tokens, "system")
        self.n_requests = self.end = self.worst = 0

    def ask(self, server, call):
        """One request; the ids of the calls that its answer makes."""
        nonce = f"x-anthropic-billing-header: cc_version=2.1; cch={self.n_requests:05x};"
        path, body = self.talk.request(self.system, nonce, call)
        body.update({"model": server.model, "temperature": self.options.temperature, "seed": self.n_requests,
                     "max_tokens": 160 if call else self.options.answer_tokens})
        n_prompt, n_cached, n_generated, calls = self.talk.hear(post(server.url + path, body))
        n_new, n_read = n_prompt - self.end, n_prompt - n_cached
        print(f"{self.n_requests:8}{n_prompt:9}{n_new:8}{n_read:8}{n_read - n_new:8}", flush=True)
        if self.n_requests:
            self.worst = max(self.worst, n_read - n_new)
        self.n_requests += 1
        self.end = n_prompt + n_generated
        return calls

    def turn(self, server, number):
        self.talk.say(f"Turn {number}: " + prose(8, number))
        calls = self.ask(server, True)
        self.talk.give_result(calls, prose(self.options.result_tokens, f"result {number}"))
        self.ask(server, False)


def play(options, folder):
    prefix = os.path.join(folder, "prefix")
    arguments = ["--prefix-dir", prefix, "--ctx-size", str(options.context), "--alias", "agent", *options.option]
    if options.chat_template:
        arguments += ["--chat-template", options.chat_template]
    agent = Agent(options)
    print(f"{'request':>8}{'prompt':>9}{'new':>8}{'read':>8}{'more':>8}")
    number = 0
    while number < options.turns:
        end = options.restart if number < options.restart < options.turns else options.turns
        with serve_suites.Server(options.program, options.model, arguments, os.path.join(folder, "log")) as server:
            server.model = "agent"
            for number in range(number, end):
                agent.turn(server, number)
            number = end
    print(f"at most {agent.worst} tokens more than the new ones were read")
    return agent.worst


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--protocol", choices=["openai", "anthropic"], default="openai")
    parser.add_argument("--system-tokens", type=int, default=20000, help="about, in words")
    parser.add_argument("--answer-tokens", type=int, default=48)
    parser.add_argument("--result-tokens", type=int, default=400)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--context", type=int, default=32768)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--reasoning", choices=["kept", "dropped"], default="kept")
    parser.add_argument("--restart", type=int, default=0, metavar="TURN")
    parser.add_argument("--chat-template")
    parser.add_argument("--most", type=int, default=4)
    parser.add_argument("--option", action="append", default=[], help="one more argument of the server")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        worst = play(options, folder)
    return 1 if worst > options.most else 0


if __name__ == "__main__":
    sys.exit(main())
