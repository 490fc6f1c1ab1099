# SPDX-License-Identifier: Apache-2.0
"""Bodies of a given size, generated from a random seed: the forms that row 2 of the table names, and mutations of valid
requests of all protocols."""
import sys

from bodies import LLAMA, LONG_LISTS, OLLAMA, PROTOCOLS, TEXT, Conversation, call, dumps, result, tools, user, write

sys.setrecursionlimit(20000)  # Of nested lists.


def repeat(size, item):
    """A list of item(i), as many as take `size` bytes of JSON."""
    return [item(i) for i in range(max(1, size // (len(dumps(item(0))) + 1)))]


def tiny_messages(size, rng):
    text = rng.choice(["", "a", "\n"])
    roles = rng.choice([("user",), ("user", "assistant"), ("system", "user"), ("assistant", "user")])
    return Conversation(repeat(size, lambda i: {"role": roles[i % len(roles)], "content": text}))


def empty_objects(size, rng):
    return Conversation([user()], more={empty_place(rng): repeat(size, lambda i: {})})


def empty_lists(size, rng):
    return Conversation([user()], more={empty_place(rng): repeat(size, lambda i: [])})


def empty_place(rng):
    return rng.choice(["messages", "metadata", "documents", "tools", "ignored", "input", "stop"])


def with_arguments(arguments, rng):
    c = Conversation([user(), {"role": "assistant", "content": None, "calls": [call(0, arguments)]}, result(0)])
    c.tools = [("f", {"type": "object", "properties": {"a": {}}})]
    c.text_arguments = rng.random() < 0.5
    return c


def arguments_list(size, rng):
    item = rng.choice(["0", "[]", "{}", '""', "1e1", "null", "-1"])
    return with_arguments('{"a":[' + ",".join([item] * (size // (len(dumps(item)) - 1))) + "]}", rng)


def arguments_nested(size, rng):
    depth = rng.choice([100, 1000, 2000])
    one = "[" * depth + "]" * depth
    return with_arguments('{"a":[' + ",".join([one] * max(1, size // (len(one) + 1))) + "]}", rng)


def arguments_escapes(size, rng):
    escape = rng.choice(["\\u0000", "\\n", "\\ud83d\\ude00", "\\u00e9", "\\\\"])
    return with_arguments('{"a":"' + escape * max(1, size // (len(dumps(escape)) - 2)) + '"}', rng)


def content_parts(size, rng):
    text = rng.choice(["", "a", "\u00e9"])
    return Conversation([user([text] * max(1, size // (len(dumps({"type": "text", "text": text})) + 1)))])


def tools_of_many_properties(size, rng):
    n_properties = 5000
    value = rng.choice([{}, {"type": "string"}, {"enum": ["a"]}, {"type": "array", "items": {}}])
    one = {"type": "object", "properties": {"p%d" % i: value for i in range(n_properties)}}
    if rng.random() < 0.5:
        one["required"] = list(one["properties"])
    n = max(1, size // len(dumps(one)))
    more = {"tool_choice": "required"} if rng.random() < 0.5 else {}
    return Conversation([user()], tools=[("f%d" % i, one) for i in range(n)], more=more)


def schema_enums(size, rng):
    n_values = 50000
    width = max(1, size // n_values - 3)
    values = ["%0*x" % (width, i) for i in range(min(n_values, size // 8))]
    shape = rng.randrange(3)
    if shape == 0:
        return Conversation([user()], schema={"enum": values})
    if shape == 1:
        return Conversation([user()], schema={"type": "object", "properties": {"a": {"enum": values}}, "required": ["a"]})
    return Conversation([user()], schema={"anyOf": [{"const": v} for v in values[: len(values) // 2]]})


def many_prompts(size, rng):
    n = 2048
    text = rng.choice(["a ", "\u00e9", "w1 "]) * max(1, size // n // 4)
    c = Conversation([user(text) for _ in range(n)])
    c.prompts = [text] * n
    return c


def logit_bias(size, rng):
    shape = rng.randrange(3)
    if shape == 0:
        bias = {str(i % 100000): -1 for i in range(size // 11)}
    elif shape == 1:
        bias = repeat(size, lambda i: [i % 4000, -1])
    else:
        bias = repeat(size, lambda i: ["a%d" % i, False])
    return Conversation([user()], more={"logit_bias": bias})


FORMS = {
    f.__name__: f
    for f in (
        tiny_messages, empty_objects, empty_lists, arguments_list, arguments_nested, arguments_escapes, content_parts,
        tools_of_many_properties, schema_enums, many_prompts, logit_bias,
    )
}  # fmt: skip


TEXT_FORMS = ("empty_objects", "empty_lists", "schema_enums", "many_prompts", "logit_bias")


def protocols_of(form):
    """All protocols; /v1/completions has no messages and no tools."""
    return PROTOCOLS + (TEXT,) if form in TEXT_FORMS else PROTOCOLS


def form_body(name, protocol, size, rng, model):
    """(path, bytes) of the form: at most `size` bytes, and close to it where the form has no fixed size."""
    wanted, best = size, None
    for _ in range(8):
        c = FORMS[name](int(wanted), rng)
        path, body = form_request(name, c, protocol, model)
        data = dumps(body)
        if len(data) <= size and (not best or len(data) > len(best[1])):
            best = (path, data)
            if len(data) > 0.9 * size:
                break
        wanted = min(wanted * size / len(data) * 0.97, 40 * size)
    return best or (path, data[:size])


def form_request(name, c, protocol, model):
    if name == "many_prompts" and protocol == OLLAMA:
        return "/api/embed", {"model": model, "input": c.prompts}
    if name == "many_prompts" and protocol == TEXT:
        return "/v1/completions", {"model": model, "prompt": c.prompts, "max_tokens": 1}
    if protocol == LLAMA and name in ("many_prompts", "logit_bias"):
        return "/completion", dict(c.more, prompt=c.prompts, n_predict=1)
    return write(protocol, c, model)


# ---- mutations ----

STRANGE = [
    None, True, 0, -1, 1e308, 2**63, -(2**63), 10**400, "", "a", "\u0000", "\ud800", "\U0001f600", "e\u0301" * 50, [], {},
    [[]], {"": {}}, "{" * 50, "<|im_end|>", "</tool_call>", "{%", "\\u0000", " ", "\r\n",
]  # fmt: skip


def tree(rng, size, depth=0):
    """A random JSON value of about `size` bytes."""
    if size < 8 or depth > 60:
        return rng.choice(STRANGE)
    kind = rng.random()
    if kind < 0.3:
        return (rng.choice(["a", "\u00e9", "\u0000", '"', "\\", "\U0001f600"]) * size)[:size]
    width = rng.choice([1, 2, 8, 64, size // 8])
    share = size // max(1, width)
    if share < 16:
        leaf = rng.choice(STRANGE)
        values = [leaf] * width
    else:
        values = [tree(rng, share, depth + 1) for _ in range(min(width, 64))]
    if kind < 0.65:
        return values
    return {"k%d" % i: v for i, v in enumerate(values)}


def mutate(value, rng, size):
    """Changes one random place of a JSON value: another type, another size, repeated, wrapped or removed."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = rng.choice(list(value))
        out = dict(value)
        if rng.random() < 0.1:
            del out[key]
        else:
            out[key] = mutate(value[key], rng, size)
        return out
    if isinstance(value, list) and value and rng.random() < 0.8:
        i = rng.randrange(len(value))
        if rng.random() < 0.3:
            n = min(size // (len(dumps(value[i])) + 1), 200000)
            return value[:i] + [value[i]] * n + value[i:]
        return value[:i] + [mutate(value[i], rng, size)] + value[i + 1 :]
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(STRANGE)
    if kind < 0.7:
        return tree(rng, size)
    if kind < 0.85 and isinstance(value, str):
        return (value or "a") * max(1, size // (len(value) + 1))
    for _ in range(rng.choice([1, 50, 1000])):
        value = [value]
    return value


def random_conversation(rng):
    n = rng.choice([1, 3, 20])
    form = rng.choice(list(LONG_LISTS.values()))
    c = form(n)
    if rng.random() < 0.3:
        c.tools = tools(rng.choice([1, 3])).tools
    if rng.random() < 0.2:
        c.schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    if rng.random() < 0.3:
        name = rng.choice(["n", "seed", "logprobs", "stop", "chat_template_kwargs", "tool_choice", "stream"])
        c.more = {name: rng.choice(STRANGE)}
    return c


def random_body(rng, size, model, protocols=PROTOCOLS + (TEXT,)):
    """(path, bytes) of a mutated request, at most `size` bytes; a few are not JSON at all."""
    path, body = write(rng.choice(protocols), random_conversation(rng), model)
    for _ in range(rng.choice([1, 1, 2, 4])):
        body = mutate(body, rng, int(size * rng.choice([0.001, 0.1, 0.9])))
    try:
        data = dumps(body)
    except RecursionError:
        data = b"[" * 100000
    if rng.random() < 0.1 and data:
        i = rng.randrange(len(data))
        data = data[:i] + bytes([rng.randrange(256)]) + data[i + rng.randrange(2) :]
    return path, data[:size]
