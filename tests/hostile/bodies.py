# SPDX-License-Identifier: Apache-2.0
"""Bodies of requests in each protocol: conversations, and those with long lists of each kind."""
import json

CHAT, RESPONSES, ANTHROPIC, OLLAMA, LLAMA, TEXT = "chat", "responses", "anthropic", "ollama", "llama", "text"
PROTOCOLS = (CHAT, RESPONSES, ANTHROPIC, OLLAMA, LLAMA)


class Conversation:
    """Neutral form of a request. Messages are dicts: role, content, and for tools `calls` and `call_id`."""

    def __init__(self, messages=(), tools=(), stop=(), schema=None, more=None):
        self.messages, self.tools, self.stop = list(messages), list(tools), list(stop)
        self.schema, self.more = schema, more or {}
        self.prompts, self.text_arguments = ["a"], False


def dumps(value):
    return json.dumps(value, separators=(",", ":")).encode()


def user(text="a"):
    return {"role": "user", "content": text}


def call(i, arguments="{}"):
    return {"id": "call_%d" % i, "name": "f", "arguments": arguments}


def result(i, text="x"):
    return {"role": "tool", "call_id": "call_%d" % i, "content": text}


# ---- protocols ----


def write(protocol, c, model, max_tokens=1):
    """Returns (path, body as an object)."""
    return WRITERS[protocol](c, model, max_tokens)


def openai_messages(c):
    out = []
    for m in c.messages:
        o = {"role": m["role"], "content": content(m.get("content"), "text")}
        if m.get("calls"):
            o["tool_calls"] = [
                {"id": k["id"], "type": "function", "function": {"name": k["name"], "arguments": k["arguments"]}}
                for k in m["calls"]
            ]
        if m["role"] == "tool":
            o["tool_call_id"] = m["call_id"]
        out.append(o)
    return out


def content(value, kind):
    """A list of texts becomes a list of content parts."""
    return [{"type": kind, "text": t} for t in value] if isinstance(value, list) else value


def openai_tools(c):
    return [{"type": "function", "function": {"name": n, "parameters": p}} for n, p in c.tools]


def write_chat(c, model, max_tokens):
    b = {"model": model, "messages": openai_messages(c), "max_tokens": max_tokens}
    if c.tools:
        b["tools"] = openai_tools(c)
    if c.stop:
        b["stop"] = c.stop
    if c.schema is not None:
        b["response_format"] = {"type": "json_schema", "json_schema": {"name": "s", "schema": c.schema}}
    b.update(c.more)
    return "/v1/chat/completions", b


def write_responses(c, model, max_tokens):
    items = []
    for m in c.messages:
        if m["role"] == "tool":
            output = content(m["content"], "input_text")
            items.append({"type": "function_call_output", "call_id": m["call_id"], "output": output})
            continue
        if m.get("content") is not None:
            kind = "output_text" if m["role"] == "assistant" else "input_text"
            items.append({"role": m["role"], "content": content(m["content"], kind)})
        for k in m.get("calls") or ():
            items.append({"type": "function_call", "call_id": k["id"], "name": k["name"], "arguments": k["arguments"]})
    b = {"model": model, "input": items, "max_output_tokens": max_tokens}
    if c.tools:
        b["tools"] = [{"type": "function", "name": n, "parameters": p} for n, p in c.tools]
    if c.stop:
        b["stop"] = c.stop
    if c.schema is not None:
        b["text"] = {"format": {"type": "json_schema", "name": "s", "schema": c.schema}}
    b.update(c.more)
    return "/v1/responses", b


def write_anthropic(c, model, max_tokens):
    """System messages come first as blocks of `system`, later ones as messages; results are blocks of a user message."""
    system, messages = [], []
    for m in c.messages:
        if m["role"] == "system" and not messages:
            system += [{"type": "text", "text": t} for t in texts(m["content"])]
            continue
        blocks = [{"type": "text", "text": t} for t in texts(m.get("content"))]
        if m["role"] == "tool":
            block = {"type": "tool_result", "tool_use_id": m["call_id"], "content": blocks}
            if messages and messages[-1]["role"] == "user" and isinstance(messages[-1]["content"], list):
                messages[-1]["content"].append(block)
                continue
            blocks = [block]
        for k in m.get("calls") or ():
            blocks.append({"type": "tool_use", "id": k["id"], "name": k["name"], "input": as_object(k["arguments"])})
        role = "user" if m["role"] == "tool" else m["role"]
        plain = isinstance(m.get("content"), str) and m["role"] != "tool" and not m.get("calls")
        messages.append({"role": role, "content": m["content"] if plain else blocks})
    b = {"model": model, "messages": messages or [user()], "max_tokens": max_tokens}
    if system:
        b["system"] = system
    if c.tools:
        b["tools"] = [{"name": n, "input_schema": p} for n, p in c.tools]
    if c.stop:
        b["stop_sequences"] = c.stop
    if c.schema is not None:
        b["output_config"] = {"format": {"type": "json_schema", "schema": c.schema}}
    b.update(c.more)
    return "/v1/messages", b


def write_ollama(c, model, max_tokens):
    messages = []
    for m in c.messages:
        o = {"role": m["role"], "content": "".join(texts(m.get("content")))}
        if m.get("calls"):
            o["tool_calls"] = [
                {"function": {"name": k["name"], "arguments": arguments_of(c, k)}} for k in m["calls"]
            ]
        if m["role"] == "tool":
            o["tool_name"] = "f"
        messages.append(o)
    b = {"model": model, "messages": messages, "stream": False, "options": {"num_predict": max_tokens}}
    if c.tools:
        b["tools"] = openai_tools(c)
    if c.stop:
        b["options"]["stop"] = c.stop
    if c.schema is not None:
        b["format"] = c.schema
    b.update(c.more)
    return "/api/chat", b


def write_llama(c, model, max_tokens):
    """Messages go to /apply-template; what has none of them to /completion."""
    if not c.messages:
        b = {"prompt": "a", "n_predict": max_tokens}
        if c.schema is not None:
            b["json_schema"] = c.schema
        b["stop"] = c.stop
        b.update(c.more)
        return "/completion", b
    b = write_chat(c, model, max_tokens)[1]
    del b["model"]
    return "/apply-template", b


def write_text(c, model, max_tokens):
    b = {"model": model, "prompt": "a", "max_tokens": max_tokens, "stop": c.stop}
    if c.schema is not None:
        b["json_schema"] = c.schema
    b.update(c.more)
    return "/v1/completions", b


WRITERS = {
    CHAT: write_chat,
    RESPONSES: write_responses,
    ANTHROPIC: write_anthropic,
    OLLAMA: write_ollama,
    LLAMA: write_llama,
    TEXT: write_text,
}


def texts(value):
    return [] if value is None else value if isinstance(value, list) else [value]


def arguments_of(c, k):
    return k["arguments"] if c.text_arguments else as_object(k["arguments"])


def as_object(arguments):
    """Arguments as the protocols want them that have no text for them. What is no object is wrapped."""
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return {"text": arguments}
    return value if isinstance(value, dict) else {"value": value}


# ---- many items: what takes time ----


def results(n):
    return Conversation([user()] + [result(i) for i in range(n)])


def calls(n):
    return Conversation([user(), {"role": "assistant", "content": None, "calls": [call(i) for i in range(n)]}])


def calls_and_results(n):
    c = calls(n // 2)
    c.messages += [result(i) for i in range(n // 2)]
    return c


def calls_and_results_backwards(n):
    c = calls(n // 2)
    c.messages += [result(i) for i in reversed(range(n // 2))]
    return c


def results_of_one_id(n):
    c = Conversation([user(), {"role": "assistant", "content": None, "calls": [call(0)]}])
    c.messages += [result(0) for _ in range(n)]
    return c


def system_first(n):
    return Conversation([{"role": "system", "content": "s"} for _ in range(n)] + [user()])


def system_middle(n):
    return Conversation([user()] + [{"role": "system", "content": "s"} for _ in range(n)] + [user()])


def system_between(n):
    return Conversation([{"role": ("user", "system")[i % 2], "content": "s"} for i in range(n)] + [user()])


def developer_first(n):
    return Conversation([{"role": "developer", "content": "s"} for _ in range(n)] + [user()])


def turns(n):
    return Conversation([{"role": ("user", "assistant")[i % 2], "content": "a"} for i in range(n)] + [user()])


def users(n):
    return Conversation([user() for _ in range(n)])


def assistants(n):
    return Conversation([user()] + [{"role": "assistant", "content": "a"} for _ in range(n)])


def parts(n):
    return Conversation([user(["a"] * n)])


def tools(n):
    return Conversation([user()], tools=[("f%d" % i, {"type": "object", "properties": {}}) for i in range(n)])


def stops(n):
    return Conversation([user()], stop=["s%d" % i for i in range(n)])


def properties(n):
    return Conversation([user()], schema={"type": "object", "properties": {"p%d" % i: {} for i in range(n)}})


def enum(n):
    return Conversation([user()], schema={"enum": ["e%d" % i for i in range(n)]})


LONG_LISTS = {
    f.__name__: f
    for f in (
        results, calls, calls_and_results, calls_and_results_backwards, results_of_one_id, system_first, system_middle,
        system_between, developer_first, turns, users, assistants, parts, tools, stops, properties, enum,
    )
}  # fmt: skip
