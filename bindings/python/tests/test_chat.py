# SPDX-License-Identifier: Apache-2.0
"""Chats in OpenAI's shapes. The template is ChatML: the demo model is no chat model."""

import json

import pytest
from conftest import ROOT

import libantigravity as ag
from libantigravity._native import ffi, lib
from libantigravity.chat import Conversation

MESSAGES = [{"role": "user", "content": "Who are you?"}]
CHANNELS = ROOT / "tests/data/chat/channels.jinja"
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Tells the weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"enum": ["Oslo", "Rome"]}},
                "required": ["city"],
            },
        },
    }
]
TOOL_TEMPLATE = """{%- if tools %}<|im_start|>system
# Tools
<tools>{% for t in tools %}{{ t | tojson }}
{% endfor %}</tools>
Call as <tool_call>{"name": ..., "arguments": ...}</tool_call><|im_end|>
{% endif -%}
{%- for m in messages -%}
<|im_start|>{{ m.role }}
{{ m.content or "" }}
{%- for c in m.tool_calls or [] %}
<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif -%}"""


def test_completion_has_openais_shape(chat_model):
    answer = chat_model.chat(MESSAGES, max_tokens=12, seed=1)
    assert answer["object"] == "chat.completion" and answer["model"] == "demo"
    choice = answer["choices"][0]
    assert choice["message"]["role"] == "assistant"
    assert isinstance(choice["message"]["content"], str)
    assert choice["finish_reason"] in ("stop", "length")
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert 0 < usage["completion_tokens"] <= 12


def test_chunks_join_to_the_completion(chat_model):
    want = chat_model.chat(MESSAGES, max_tokens=20, seed=5)["choices"][0]["message"]["content"]
    chunks = list(chat_model.chat(MESSAGES, max_tokens=20, seed=5, stream=True))
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant"}
    assert {c["object"] for c in chunks} == {"chat.completion.chunk"}
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == want
    assert chunks[-1]["choices"][0]["finish_reason"] in ("stop", "length")
    assert all(c["choices"][0]["finish_reason"] is None for c in chunks[:-1])


def test_logprobs_have_openais_shape(chat_model):
    options = {"max_tokens": 12, "seed": 5, "logprobs": True, "top_logprobs": 2}
    choice = chat_model.chat(MESSAGES, **options)["choices"][0]
    content = choice["logprobs"]["content"]
    assert "".join(entry["token"] for entry in content).strip() == choice["message"]["content"].strip()
    for entry in content:
        assert bytes(entry["bytes"]).decode() == entry["token"] and entry["logprob"] <= 0
        assert len(entry["top_logprobs"]) == 2 and entry["top_logprobs"][0]["logprob"] >= entry["logprob"]
    chunks = [c["choices"][0] for c in chat_model.chat(MESSAGES, stream=True, **options)]
    assert [e for c in chunks if c["logprobs"] for e in c["logprobs"]["content"]] == content
    assert sum(c["logprobs"] is not None for c in chunks) > 3
    assert chat_model.chat(MESSAGES, max_tokens=1)["choices"][0]["logprobs"] is None
    with pytest.raises(ag.InvalidError, match="needs logprobs"):
        chat_model.chat(MESSAGES, top_logprobs=2)


def test_tokens_of_logprobs_join_to_the_text(chat_model):
    form = {"type": "regex", "regex": "(é|€|日){4}"}
    options = {"max_tokens": 40, "seed": 5, "logprobs": True, "response_format": form}
    choice = chat_model.chat(MESSAGES, **options)["choices"][0]
    text = choice["message"]["content"]
    assert len(text) == 4 and "\ufffd" not in text
    tokens = [entry["token"] for entry in choice["logprobs"]["content"]]
    assert len(tokens) > 4, "no character has several tokens"
    assert "".join(tokens) == text


def test_format_of_a_model_with_channels_leaves_reasoning_free():
    model = ag.Model(chat_template=CHANNELS.read_text())
    form = {"type": "json_schema", "json_schema": {"schema": {"enum": ["Oslo"]}}}
    thought = "<|channel|>analysis<|message|>Where?<|end|><|start|>assistant"
    final = "<|channel|>final<|message|>"
    for text, allowed in (
        (final + '"Oslo"', True),
        (thought + final + '"Oslo"', True),
        (final + '"Rome"', False),
        (thought + '"Oslo"', False),
        ('"Oslo"', False),
    ):
        constraint = Conversation(model, MESSAGES, None, None, form, None).constraint
        error = ffi.new("ag_error *")
        ids = model.tokenize(text, bos=False)
        accepted = all(lib.ag_constraint_accept(constraint, i, error) == 0 for i in ids)
        assert (accepted and lib.ag_constraint_may_end(constraint)) == allowed, text
    content = model.chat(MESSAGES, response_format=form, max_tokens=60)["choices"][0]["message"]["content"]
    assert '"Oslo"'.startswith(content or "")


def test_closing_a_stream_stops_the_work(chat_model):
    stream = chat_model.chat(MESSAGES, stream=True, seed=2)
    next(stream)
    stream.close()
    assert chat_model.chat(MESSAGES, max_tokens=1)["usage"]["completion_tokens"] <= 1


def test_json_schema(chat_model):
    schema = {
        "type": "object",
        "properties": {"team_name": {"enum": ["Dodgers", "Rays"]}},
        "required": ["team_name"],
    }
    for form in (
        {"type": "json_schema", "json_schema": {"name": "team", "schema": schema}},
        {"type": "json_object", "schema": schema},
    ):
        answer = chat_model.chat(MESSAGES, response_format=form, temperature=0.7)
        content = json.loads(answer["choices"][0]["message"]["content"])
        assert content["team_name"] in ("Dodgers", "Rays")


def test_required_tool_is_called():
    model = ag.Model(chat_template=TOOL_TEMPLATE)
    choice = {"type": "function", "function": {"name": "weather"}}
    answer = model.chat(MESSAGES, tools=TOOLS, tool_choice=choice)["choices"][0]
    assert answer["finish_reason"] == "tool_calls"
    call = answer["message"]["tool_calls"][0]["function"]
    assert call["name"] == "weather"
    assert json.loads(call["arguments"])["city"] in ("Oslo", "Rome")
    chunks = model.chat(MESSAGES, tools=TOOLS, tool_choice="required", stream=True)
    deltas = [d for c in chunks for d in c["choices"][0]["delta"].get("tool_calls", [])]
    assert deltas[0]["function"]["name"] == "weather"
    arguments = "".join(d["function"]["arguments"] for d in deltas)
    assert json.loads(arguments)["city"] in ("Oslo", "Rome")
    with pytest.raises(ag.InvalidError, match="tool_choice"):
        model.chat(MESSAGES, tool_choice="required")


def test_errors(model, chat_model):
    with pytest.raises(ag.NotFoundError, match="template"):
        model.chat(MESSAGES)
    with pytest.raises(ag.Error, match="role"):
        chat_model.chat([{"content": "x"}])
