#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check the prompts of a harmony conversation of 12 turns with 20 calls through three protocols of `antigravity serve`.

    tests/cli/serve_harmony.py build/release/bin/antigravity models/demo TEMPLATE

The bundled model gets harmony's special tokens. A grammar forces each answer of /v1/chat/completions: reasoning, text before
calls, headers in the forms that models write, and compact or spaced arguments. Each prompt must be what the template writes
for the true history. /v1/responses and /v1/messages get the same history in their own form, and must find the entire prompt
in the prefix cache. Each request may read the new tokens and 300 more. Exit status: 1 if a check fails."""
import itertools
import json
import os
import shutil
import sys
import tempfile
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
import serve_suites  # noqa: E402

SPECIAL = ["<|end|>", "<|return|>", "<|start|>", "<|message|>", "<|call|>", "<|channel|>"]
FIRST_SPECIAL = 4090
CALLS = [2, 1, 3, 0, 2, 1, 4, 1, 0, 3, 2, 1]  # of each turn
MORE = 300  # tokens that a request may read besides the new ones
TOOLS = {name: {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]} for name in ("find", "get")}
HEADERS = [
    "<|channel|>commentary to=functions.{} <|constrain|>json",
    " to=functions.{}<|channel|>commentary json",
    "<|channel|>analysis to=functions.{}",
]


def make_model(source, folder):
    """Copies the model; its special tokens get the spellings of harmony."""
    os.mkdir(folder)
    for name in ("config.json", "model.safetensors"):
        shutil.copy(os.path.join(source, name), folder)
    with open(os.path.join(source, "tokenizer.json"), encoding="utf-8") as file:
        tokenizer = json.load(file)
    for token, spelling in zip(tokenizer["added_tokens"], SPECIAL):
        token["content"] = spelling
    tokenizer["post_processor"] = None
    ends = [FIRST_SPECIAL + SPECIAL.index(s) for s in ("<|return|>", "<|call|>")]
    for name, value in (("tokenizer.json", tokenizer), ("generation_config.json", {"eos_token_id": ends})):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(value, file)


def grammar_of(text):
    """Returns a grammar of this text alone, with special tokens by their ids."""
    parts, rest = [], text
    while rest:
        at = min((rest.find(s) for s in SPECIAL if s in rest), default=len(rest))
        if at:
            parts.append(json.dumps(rest[:at]))
            rest = rest[at:]
            continue
        i = next(i for i, s in enumerate(SPECIAL) if rest.startswith(s))
        parts.append(f"<[{FIRST_SPECIAL + i}]>")
        rest = rest[len(SPECIAL[i]):]
    return "root ::= " + " ".join(parts)


class History:
    """The messages of the conversation, and what the template must write for them."""

    def __init__(self, head, names_results):
        self.head = head
        self.names_results = names_results  # the gpt-oss template names a result's tool and quotes its text
        self.steps = []  # (kind, ...)

    def prompt(self):
        last_final = max((i for i, s in enumerate(self.steps) if s["role"] == "final"), default=-1)
        text = self.head
        for i, step in enumerate(self.steps):
            text += getattr(self, "write_" + step["role"])(step, i > last_final)
        return text + "<|start|>assistant"

    @staticmethod
    def write_user(step, _):
        return f"<|start|>user<|message|>{step['text']}<|end|>"

    @staticmethod
    def write_final(step, _):
        return f"<|start|>assistant<|channel|>final<|message|>{step['text']}<|end|>"

    @staticmethod
    def write_call(step, is_recent):
        text = ""
        if is_recent and step["reasoning"]:
            text += f"<|start|>assistant<|channel|>analysis<|message|>{step['reasoning']}<|end|>"
        if is_recent and step["text"]:
            text += f"<|start|>assistant<|channel|>commentary<|message|>{step['text']}<|end|>"
        return text + f"<|start|>assistant to=functions.{step['name']}<|channel|>commentary json<|message|>{json.dumps(step['arguments'])}<|call|>"

    def write_result(self, step, _):
        if self.names_results:
            return f"<|start|>functions.{step['name']} to=assistant<|channel|>commentary<|message|>{json.dumps(step['text'])}<|end|>"
        return f"<|start|>tool<|message|>{step['text']}<|end|>"

    # ---- as clients send it ----

    def chat(self):
        out = []
        for s in self.steps:
            if s["role"] in ("call", "final"):
                out.append(s["message"])
            elif s["role"] == "result":
                out.append({"role": "tool", "tool_call_id": s["id"], "content": s["text"]})
            else:
                out.append({"role": "user", "content": s["text"]})
        tools = [{"type": "function", "function": {"name": n, "description": "d", "parameters": p}} for n, p in TOOLS.items()]
        return {"messages": out, "tools": tools}

    def responses(self):
        out = []
        for s in self.steps:
            if s.get("reasoning"):
                out.append({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": s["reasoning"]}]})
            if s["role"] == "result":
                out.append({"type": "function_call_output", "call_id": s["id"], "output": s["text"]})
            elif s["text"]:
                role, kind = ("user", "input_text") if s["role"] == "user" else ("assistant", "output_text")
                out.append({"type": "message", "role": role, "content": [{"type": kind, "text": s["text"]}]})
            if s["role"] == "call":
                call = {"call_id": s["id"], "name": s["name"], "arguments": s["sent"]}
                out.append({"type": "function_call", **call})
        tools = [{"type": "function", "name": n, "description": "d", "parameters": p} for n, p in TOOLS.items()]
        return {"input": out, "tools": tools}

    def anthropic(self):
        out = []
        for s in self.steps:
            if s["role"] == "result":
                out.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": s["id"], "content": s["text"]}]})
                continue
            content = [{"type": "thinking", "thinking": s["reasoning"], "signature": ""}] if s.get("reasoning") else []
            if s["text"]:
                content.append({"type": "text", "text": s["text"]})
            if s["role"] == "call":
                content.append({"type": "tool_use", "id": s["id"], "name": s["name"], "input": s["arguments"]})
            out.append({"role": "user" if s["role"] == "user" else "assistant", "content": content})
        tools = [{"name": n, "description": "d", "input_schema": p} for n, p in TOOLS.items()]
        return {"messages": out, "tools": tools}


def script():
    """Yields the steps: users, calls with their results, and final answers."""
    number = itertools.count(1)
    for turn, n_calls in enumerate(CALLS):
        yield {"role": "user", "text": f"Question {turn}: where is the king?"}
        for i in range(n_calls):
            n = next(number)
            arguments = {"n": n}
            sent = json.dumps(arguments, separators=(",", ":")) if n % 4 == 0 else json.dumps(arguments)
            yield {"role": "call", "name": ("find", "get")[n % 2], "arguments": arguments, "sent": sent,
                   "reasoning": f"The king may be in room {n}." if n % 5 else "", "text": f"Looking at {n}." if n % 3 == 0 else "",
                   "header": HEADERS[n % len(HEADERS)], "result": f"Room {n} is \"empty\"."}
        yield {"role": "final", "text": f"He is in room {turn}.", "reasoning": "Now I know." if turn % 2 else ""}


def answer_of(step):
    """Returns the text that the model writes for a step."""
    messages = []
    if step["reasoning"]:
        messages.append("<|channel|>analysis<|message|>" + step["reasoning"])
    if step["role"] == "final":
        messages.append("<|channel|>final<|message|>" + step["text"])
    else:
        if step["text"]:
            messages.append("<|channel|>commentary<|message|>" + step["text"])
        messages.append(step["header"].format(step["name"]) + "<|message|>" + step["sent"])
    return "<|end|><|start|>assistant".join(messages)


class Session:
    def __init__(self, server):
        self.url = server.url
        self.n_before = 0  # tokens of the prompt before
        self.failures = []

    def post(self, path, body):
        body = {"model": "harmony", "temperature": 0, **body}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=600) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            raise SystemExit(f"{path}: {error.code}: {error.read().decode()[:500]}") from None

    def check(self, is_right, text):
        if not is_right:
            self.failures.append(text)
            print(text, flush=True)

    def check_answer(self, step, message):
        self.check((message.get("reasoning_content") or "") == step["reasoning"], f"reasoning {message} not of {step}")
        self.check((message["content"] or "") == step["text"], f"content {message} not of {step}")
        calls = message.get("tool_calls") or []
        self.check(len(calls) == (step["role"] == "call"), f"{len(calls)} calls for {step}")
        if calls:
            step["id"] = calls[0]["id"]
            function = calls[0]["function"]
            self.check(function == {"name": step["name"], "arguments": step["sent"]}, f"{function} for {step}")

    def answer(self, history, step, where):
        """Asks for the step's answer through all protocols."""
        shown = self.post("/apply-template", history.chat())
        self.check(shown["prompt"] == history.prompt(), f"{where}: prompt\n{shown['prompt']}\nnot\n{history.prompt()}")
        reply = self.post("/v1/chat/completions", {**history.chat(), "grammar": grammar_of(answer_of(step)), "max_tokens": 200})
        n_prompt, n_cached = reply["usage"]["prompt_tokens"], reply["usage"]["prompt_tokens_details"]["cached_tokens"]
        n_new = max(n_prompt - self.n_before, 0)
        self.check(n_prompt - n_cached <= n_new + MORE, f"{where}: {n_prompt - n_cached} tokens read, {n_new} are new")
        self.n_before = n_prompt
        self.check_answer(step, reply["choices"][0]["message"])
        step["message"] = reply["choices"][0]["message"]
        usage = self.post("/v1/responses", {**history.responses(), "max_output_tokens": 1, "store": False})["usage"]
        counts = [(usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"])]
        usage = self.post("/v1/messages", {**history.anthropic(), "max_tokens": 1})["usage"]
        counts.append((usage["input_tokens"] + usage["cache_read_input_tokens"], usage["cache_read_input_tokens"]))
        for name, (n, cached) in zip(("responses", "messages"), counts):
            self.check(n == n_prompt and cached >= n - 1, f"{where}, {name}: {cached} of {n} tokens cached; the prompt has {n_prompt}")
        return n_prompt - n_cached, n_new


    def check_effort(self):
        """The effort of both OpenAI protocols is in the template's prompt."""
        messages = [{"role": "user", "content": "How hard?"}]
        for effort in ("low", "high"):
            body = {"messages": messages, "reasoning_effort": effort}
            prompt = self.post("/apply-template", body)["prompt"]
            self.check(f"Reasoning: {effort}" in prompt, f"effort {effort} is missing: {prompt}")
            self.post("/v1/chat/completions", {**body, "max_tokens": 1})
            usage = self.post("/v1/responses", {"input": messages, "reasoning": {"effort": effort}, "max_output_tokens": 1})["usage"]
            n, cached = usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]
            self.check(cached >= n - 1, f"effort {effort}: the prompt of /v1/responses differs: {cached} of {n} tokens cached")

    def first_token(self, text):
        return self.post("/tokenize", {"content": text})["tokens"][0]

    def ask_formatted(self, body, word):
        """Asks with a response_format for an answer that begins with a message in this channel."""
        schema = {"type": "object", "properties": {"king": {"enum": ["Arthur"]}}, "required": ["king"]}
        form = {"type": "json_schema", "json_schema": {"name": "king", "schema": schema}}
        delimiters = [FIRST_SPECIAL + SPECIAL.index(s) for s in ("<|channel|>", "<|message|>")]
        bias = {str(token): 100 for token in (self.first_token(word), *delimiters)}
        body = {**body, "response_format": form, "logit_bias": bias, "max_tokens": 200}
        return self.post("/v1/chat/completions", body)["choices"][0]["message"]

    def check_format(self, history):
        """response_format constrains the final message alone; a call's arguments match its schema."""
        body = history.chat()
        message = self.ask_formatted(body, "final")
        self.check(json.loads(message["content"] or "null") == {"king": "Arthur"}, f"formatted: {message}")
        message = self.ask_formatted(body, "analysis")
        self.check(message.get("reasoning_content") and not message["content"], f"formatted, with reasoning: {message}")
        message = self.ask_formatted(body, "commentary")
        calls = message.get("tool_calls") or []
        self.check(len(calls) == 1 and not message["content"], f"formatted, with a call: {message}")
        for call in calls:
            arguments = json.loads(call["function"]["arguments"])
            self.check(call["function"]["name"] in TOOLS and isinstance(arguments.get("n"), int), f"call: {call}")


def play(server, names_results):
    session, history = Session(server), History("", names_results)
    session.check_effort()
    n_calls = n_read = n_prompts = 0
    for i, step in enumerate(script()):
        if step["role"] == "user":
            history.steps.append(step)
            if i == 0:
                prompt = session.post("/apply-template", history.chat())["prompt"]
                history.head = prompt[:prompt.index("<|start|>user")]
            continue
        read, _ = session.answer(history, step, f"step {i}")
        n_read += read
        n_prompts += session.n_before
        history.steps.append(step)
        if step["role"] == "call":
            n_calls += 1
            if n_calls == 1:
                session.check_format(history)
            history.steps.append({"role": "result", "id": step.get("id"), "name": step["name"], "text": step["result"]})
    session.check(n_calls == 20, f"{n_calls} calls")
    print(f"{len(CALLS)} turns, {n_calls} calls: {n_prompts} tokens of prompts, {n_read} read; {len(session.failures)} failures")
    return session.failures


def main():
    program, model, template = sys.argv[1:]
    with open(template, encoding="utf-8") as file:
        names_results = "last_tool_call" in file.read()
    with tempfile.TemporaryDirectory() as folder:
        harmony = os.path.join(folder, "harmony")
        make_model(model, harmony)
        log = os.path.join(folder, "log")
        with serve_suites.Server(program, harmony, ["--chat-template", template], log) as server:
            return 1 if play(server, names_results) else 0


if __name__ == "__main__":
    sys.exit(main())
