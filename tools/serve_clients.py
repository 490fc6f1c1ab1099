#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run a script of calls with each of nine Python packages against `antigravity serve`.

    tools/serve_clients.py build/release/bin/antigravity MODEL [--client NAME]... [--environment FOLDER]

openai, anthropic, ollama, langchain-openai, litellm, llm, langchain-ollama, instructor and pydantic-ai are installed with pip
into FOLDER, once (lm_eval is a suite of serve_suites.py). The server asks for a key.
A call counts if it returns what the package's types promise and the assertion behind it holds; the first that fails ends
its script. Exit status: 0 if all made their calls, 1 if not, 77 if the packages cannot be had."""
import argparse
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile

import serve_suites
import serve_tool_clients

PACKAGES = [
    "openai", "anthropic", "ollama", "langchain-openai", "litellm", "mcp",  # litellm asks for mcp where there are tools
    "llm", "langchain-ollama", "instructor", "pydantic-ai-slim[openai]",
]
KEY = "sk-clients"
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
QUESTIONS = ["Say hello.", "What is the capital of France?", "Name a colour.", "Count from 1 to 3.", "What is 2 + 2?"]
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["n"], "additionalProperties": False}


class Script:
    """Counts calls: each is made within `with script.call(NAME):`."""

    def __init__(self):
        self.n = 0
        self.name = None

    def call(self, name):
        self.name = name
        return self

    def __enter__(self):
        self.n += 1

    def __exit__(self, kind, error, _):
        if error is not None:
            print(f"call {self.n} ({self.name}): {kind.__name__}: {str(error)[:500]}")
        return False


def expect_error(kind, function, status):
    try:
        function()
    except kind as error:
        found = getattr(error, "status_code", None)
        assert found == status, f"{found} in place of {status}: {error}"
        return
    raise AssertionError(f"no error, but {status} was due")


# ---- openai ----


def openai_script(script, url, model):
    import openai

    client = openai.OpenAI(base_url=url + "/v1", api_key=KEY, max_retries=0)
    chat = client.chat.completions.create
    for question in QUESTIONS:
        with script.call("chat"):
            answer = chat(model=model, messages=[{"role": "user", "content": question}], max_tokens=16)
            assert answer.choices[0].message.content and answer.usage.completion_tokens <= 16
    for question in QUESTIONS:
        with script.call("chat stream"):
            chunks = list(
                chat(model=model, messages=[{"role": "user", "content": question}], max_completion_tokens=16, stream=True,
                     stream_options={"include_usage": True})
            )
            assert chunks[-1].usage.total_tokens and any(c.choices and c.choices[0].finish_reason for c in chunks)
    turns = [{"role": "system", "content": "Be brief."}]
    cached = []
    for question in QUESTIONS:
        with script.call("a conversation"):
            turns.append({"role": "user", "content": question})
            answer = chat(model=model, messages=turns, max_tokens=12, temperature=0)
            turns.append({"role": "assistant", "content": answer.choices[0].message.content})
            cached.append(answer.usage.prompt_tokens_details.cached_tokens)
    assert all(n > 0 for n in cached[1:]), f"turns did not find what came before: {cached}"
    # An answer to a prompt in the cache may differ from one to a prompt that is read, by rounding.
    story = {"model": model, "messages": [{"role": "user", "content": "Tell a story."}], "max_tokens": 12, "seed": 7}
    with script.call("seed"):
        first = chat(**story, extra_body={"cache_prompt": False}).choices[0].message.content
    with script.call("the same seed"):
        assert chat(**story, extra_body={"cache_prompt": False}).choices[0].message.content == first
    with script.call("n"):
        assert len(chat(model=model, messages=[{"role": "user", "content": "A word?"}], n=3, max_tokens=4).choices) == 3
    with script.call("logprobs"):
        answer = chat(model=model, messages=[{"role": "user", "content": "A word?"}], logprobs=True, top_logprobs=3, max_tokens=4)
        assert all(len(t.top_logprobs) == 3 and t.logprob <= 0 for t in answer.choices[0].logprobs.content)
    with script.call("stop"):
        answer = chat(model=model, messages=[{"role": "user", "content": "Count: 1 2 3 4 5"}], stop=[" "], max_tokens=16)
        assert " " not in answer.choices[0].message.content
    openai_tools(script, chat, model)
    with script.call("no model"):
        expect_error(openai.NotFoundError, lambda: chat(model="nobody", messages=[{"role": "user", "content": "x"}]), 404)
    with script.call("another key"):
        other = openai.OpenAI(base_url=url + "/v1", api_key="wrong", max_retries=0)
        expect_error(openai.AuthenticationError, lambda: other.models.list(), 401)
    with script.call("models"):
        assert model in [m.id for m in client.models.list().data]
    with script.call("a model"):
        assert client.models.retrieve(model).id == model
    for encoding in ("float", "base64"):
        with script.call("embeddings"):
            answer = client.embeddings.create(model=model, input=["a", "b"], encoding_format=encoding)
            assert len(answer.data) == 2
    with script.call("completions"):
        assert client.completions.create(model=model, prompt="Once upon a time", max_tokens=8).choices[0].text
    with script.call("completions stream"):
        assert list(client.completions.create(model=model, prompt="Once upon a time", max_tokens=8, stream=True))
    openai_responses(script, openai, client, model)


def openai_tools(script, chat, model):
    tool = {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city", "parameters": WEATHER}}
    with script.call("a call that is required"):
        answer = chat(model=model, messages=[{"role": "user", "content": "Weather in Rome?"}], tools=[tool], tool_choice="required", max_tokens=200, temperature=0)
        called = answer.choices[0].message.tool_calls[0]
        assert called.function.name == "get_weather" and "city" in json.loads(called.function.arguments)
    with script.call("its result"):
        turns = [{"role": "user", "content": "Weather in Rome?"}, answer.choices[0].message.model_dump(exclude_none=True)]
        turns.append({"role": "tool", "tool_call_id": called.id, "content": "sunny"})
        assert chat(model=model, messages=turns, tools=[tool], max_tokens=16).choices
    with script.call("a call in a stream"):
        chunks = list(chat(model=model, messages=turns[:1], tools=[tool], tool_choice="required", max_tokens=200, temperature=0, parallel_tool_calls=False, stream=True))
        pieces = [c.choices[0].delta.tool_calls[0] for c in chunks if c.choices and c.choices[0].delta.tool_calls]
        assert pieces[0].id and json.loads("".join(p.function.arguments or "" for p in pieces))
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}
    with script.call("a schema"):
        answer = chat(model=model, messages=[{"role": "user", "content": "A number?"}], response_format=form, max_tokens=64)
        assert isinstance(json.loads(answer.choices[0].message.content)["n"], int)


def openai_responses(script, openai, client, model):
    create = client.responses.create
    tool = {"type": "function", "name": "get_weather", "description": "Weather of a city", "parameters": WEATHER, "strict": True}
    for question in QUESTIONS[:4]:
        with script.call("response"):
            assert create(model=model, input=question, max_output_tokens=16).output_text
    with script.call("response stream"):
        events = list(create(model=model, input="Say hello.", instructions="Be brief.", max_output_tokens=16, stream=True))
        numbers = [e.sequence_number for e in events]
        assert numbers == sorted(set(numbers)) and events[-1].type in ("response.completed", "response.incomplete")
    with script.call("response with a call"):
        answer = create(model=model, input="Weather in Rome?", tools=[tool], tool_choice="required", max_output_tokens=200, temperature=0)
        called = next(item for item in answer.output if item.type == "function_call")
        assert "city" in json.loads(called.arguments)
    with script.call("response to its result"):
        items = [{"role": "user", "content": "Weather in Rome?"}, called.model_dump(exclude_none=True)]
        items.append({"type": "function_call_output", "call_id": called.call_id, "output": "sunny"})
        assert create(model=model, input=items, tools=[tool], max_output_tokens=16).output_text is not None
    with script.call("previous_response_id"):
        expect_error(openai.BadRequestError, lambda: create(model=model, input="x", previous_response_id="resp_1"), 400)


# ---- anthropic ----


def anthropic_script(script, url, model):
    import anthropic

    client = anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0)
    bearer = anthropic.Anthropic(base_url=url, auth_token=KEY, api_key=None, max_retries=0)
    tool = {"name": "get_weather", "description": "Weather of a city", "input_schema": WEATHER}
    create = client.messages.create
    for question in QUESTIONS:
        with script.call("message"):
            answer = create(model=model, max_tokens=16, messages=[{"role": "user", "content": question}])
            assert answer.content[0].type == "text" and answer.usage.output_tokens <= 16
    for question in QUESTIONS:
        with script.call("stream"):
            with client.messages.stream(model=model, max_tokens=16, messages=[{"role": "user", "content": question}]) as stream:
                text = "".join(stream.text_stream)
                final = stream.get_final_message()
            assert text == final.content[0].text and final.stop_reason in ("end_turn", "max_tokens")
    for question in QUESTIONS:
        with script.call("raw events"):
            types = [e.type for e in create(model=model, max_tokens=8, stream=True, messages=[{"role": "user", "content": question}])]
            assert types[0] == "message_start" and types[-2:] == ["message_delta", "message_stop"]
    turns, cached = [], []
    for question in QUESTIONS:
        with script.call("a conversation"):
            turns.append({"role": "user", "content": [{"type": "text", "text": question}]})
            system = [{"type": "text", "text": f"x-anthropic-billing-header: cch={len(turns)};"}, {"type": "text", "text": "Be brief."}]
            answer = create(model=model, max_tokens=12, system=system, messages=turns, extra_body={"temperature": 0})
            turns.append({"role": "assistant", "content": answer.content})
            cached.append(answer.usage.cache_read_input_tokens)
    assert all(n > 0 for n in cached[1:]), f"turns did not find what came before: {cached}"
    for question in QUESTIONS:
        with script.call("count_tokens"):
            count = client.messages.count_tokens(model=model, messages=[{"role": "user", "content": question}]).input_tokens
            assert count > 3
    with script.call("count_tokens with tools and system"):
        more = client.messages.count_tokens(model=model, system="Be brief.", tools=[tool], messages=[{"role": "user", "content": question}])
        assert more.input_tokens > count
    with script.call("stop_sequences"):
        answer = create(model=model, max_tokens=16, stop_sequences=[" "], messages=[{"role": "user", "content": "Count: 1 2 3 4 5"}])
        assert answer.stop_reason in ("stop_sequence", "end_turn") and " " not in answer.content[0].text
    with script.call("a call that is required"):
        ask = [{"role": "user", "content": "Weather in Rome?"}]
        answer = create(model=model, max_tokens=200, tools=[tool], tool_choice={"type": "any", "disable_parallel_tool_use": True}, messages=ask, extra_body={"temperature": 0})
        called = next(b for b in answer.content if b.type == "tool_use")
        assert answer.stop_reason == "tool_use" and "city" in called.input
    with script.call("its result"):
        result = {"type": "tool_result", "tool_use_id": called.id, "content": [{"type": "text", "text": "sunny"}]}
        turns = ask + [{"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}]
        assert create(model=model, max_tokens=16, tools=[tool], messages=turns).content
    with script.call("a failed result"):
        turns[-1]["content"][0]["is_error"] = True
        assert create(model=model, max_tokens=16, tools=[tool], messages=turns).content
    with script.call("a named call in a stream"):
        choice = {"type": "tool", "name": "get_weather"}
        with client.messages.stream(model=model, max_tokens=200, tools=[tool], tool_choice=choice, messages=ask) as stream:
            final = stream.get_final_message()
        assert "city" in next(b for b in final.content if b.type == "tool_use").input
    with script.call("an answer that is begun"):
        begun = ask + [{"role": "assistant", "content": "The weather in Rome"}]
        assert create(model=model, max_tokens=8, messages=begun).content
    with script.call("thinking"):
        thinking = {"type": "enabled", "budget_tokens": 1024}
        assert create(model=model, max_tokens=16, thinking=thinking, messages=ask).content
    with script.call("a schema"):
        config = {"format": {"type": "json_schema", "schema": SCHEMA}}
        answer = create(model=model, max_tokens=64, messages=ask, extra_body={"output_config": config})
        assert isinstance(json.loads(answer.content[0].text)["n"], int)
    with script.call("a system prompt"):
        assert create(model=model, max_tokens=4, system="Be brief.", messages=ask).content
    with script.call("a bearer's key"):
        assert bearer.messages.create(model=model, max_tokens=4, messages=ask).content
    with script.call("another key"):
        other = anthropic.Anthropic(base_url=url, api_key="wrong", max_retries=0)
        expect_error(anthropic.AuthenticationError, lambda: other.messages.create(model=model, max_tokens=4, messages=ask), 401)
    with script.call("no model"):
        expect_error(anthropic.NotFoundError, lambda: create(model="nobody", max_tokens=4, messages=ask), 404)
    with script.call("no messages"):
        expect_error(anthropic.BadRequestError, lambda: create(model=model, max_tokens=4, messages=[]), 400)
    with script.call("an image"):
        source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
        image = [{"role": "user", "content": [{"type": "image", "source": source}]}]
        expect_error(anthropic.BadRequestError, lambda: create(model=model, max_tokens=4, messages=image), 400)


# ---- ollama ----


def ollama_script(script, url, model):
    import ollama

    client = ollama.Client(host=url, headers={"Authorization": "Bearer " + KEY})
    brief = {"num_predict": 12}
    for question in QUESTIONS:
        with script.call("chat"):
            answer = client.chat(model=model, messages=[{"role": "user", "content": question}], options=brief)
            assert answer.message.content and answer.done and answer.eval_count <= 12
    for question in QUESTIONS:
        with script.call("chat stream"):
            parts = list(client.chat(model=model, messages=[{"role": "user", "content": question}], options=brief, stream=True))
            assert parts[-1].done and not parts[0].done and parts[-1].prompt_eval_count > 0
    for question in QUESTIONS:
        with script.call("generate"):
            assert client.generate(model=model, prompt=question, options=brief).response
    for question in QUESTIONS:
        with script.call("generate stream"):
            assert list(client.generate(model=model, prompt=question, system="Be brief.", options=brief, stream=True))[-1].done
    with script.call("raw"):
        assert client.generate(model=model, prompt="Once upon a time", raw=True, options=brief).response
    with script.call("json"):
        answer = client.chat(model=model, messages=[{"role": "user", "content": "A number?"}], format=SCHEMA, options={"num_predict": 64})
        assert isinstance(json.loads(answer.message.content)["n"], int)
    with script.call("a seed"):
        seeded = {"seed": 7, "num_predict": 12, "temperature": 0.8, "top_k": 40, "top_p": 0.9, "repeat_penalty": 1.1, "num_ctx": 4096}
        client.generate(model=model, prompt="Tell a story.", options=seeded)  # the next ones find the prompt in the cache
        first = client.generate(model=model, prompt="Tell a story.", options=seeded).response
    with script.call("the same seed"):
        assert client.generate(model=model, prompt="Tell a story.", options=seeded).response == first
    with script.call("stop"):
        assert " " not in client.generate(model=model, prompt="Count: 1 2 3", options={"stop": [" "], "num_predict": 12}).response
    tool = {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city", "parameters": WEATHER}}
    with script.call("tools"):
        answer = client.chat(model=model, messages=[{"role": "user", "content": "Weather in Rome?"}], tools=[tool], options={"num_predict": 64})
        assert answer.done
    with script.call("a result"):
        turns = [{"role": "user", "content": "Weather in Rome?"}, {"role": "tool", "tool_name": "get_weather", "content": "sunny"}]
        turns.insert(1, {"role": "assistant", "tool_calls": [{"function": {"name": "get_weather", "arguments": {"city": "Rome"}}}]})
        assert client.chat(model=model, messages=turns, tools=[tool], options=brief).done
    with script.call("think"):
        assert client.chat(model=model, messages=[{"role": "user", "content": "Hello"}], think=False, options=brief).message.content
    with script.call("list"):
        assert model + ":latest" in [m.model for m in client.list().models]
    with script.call("ps"):
        assert client.ps().models
    with script.call("show"):
        assert client.show(model).modelinfo["general.architecture"] == "llama"
    with script.call("show with a tag"):
        assert "completion" in client.show(model + ":latest").capabilities
    with script.call("embed"):
        assert len(client.embed(model=model, input="a").embeddings) == 1
    with script.call("embed several"):
        assert len(client.embed(model=model, input=["a", "b"]).embeddings) == 2
    with script.call("embed in a few dimensions"):
        assert len(client.embed(model=model, input="a", dimensions=16).embeddings[0]) == 16
    with script.call("embeddings"):
        assert len(client.embeddings(model=model, prompt="a").embedding) > 16
    for name, change in (("pull", client.pull), ("delete", client.delete)):
        with script.call(name):
            expect_error(ollama.ResponseError, lambda: change(model), 403)
    with script.call("no model"):
        expect_error(ollama.ResponseError, lambda: client.generate(model="nobody", prompt="x"), 404)
    with script.call("an image"):
        image = [{"role": "user", "content": "x", "images": ["iVBORw0KGgo="]}]
        expect_error(ollama.ResponseError, lambda: client.chat(model=model, messages=image), 400)


# ---- langchain-openai ----


def langchain_script(script, url, model):
    import openai
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
    from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings

    common = {"base_url": url + "/v1", "api_key": KEY, "model": model, "max_retries": 0}
    chat = ChatOpenAI(max_tokens=16, **common)
    responses = ChatOpenAI(max_tokens=16, use_responses_api=True, **common)
    for question in QUESTIONS:
        with script.call("invoke"):
            answer = chat.invoke(question)
            assert answer.content and answer.usage_metadata["output_tokens"] <= 16
    for question in QUESTIONS:
        with script.call("stream"):
            assert "".join(c.content for c in chat.stream(question))
    for question in QUESTIONS:
        with script.call("responses"):
            assert responses.invoke(question).content
    for question in QUESTIONS[:4]:
        with script.call("responses stream"):
            assert list(responses.stream(question))
    turns = [SystemMessage("Be brief.")]
    for question in QUESTIONS:
        with script.call("a conversation"):
            turns.append(HumanMessage(question))
            turns.append(chat.invoke(turns))
            assert isinstance(turns[-1], AIMessage)
    with script.call("batch"):
        assert len(chat.batch(QUESTIONS[:2])) == 2
    tool = {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city", "parameters": WEATHER}}
    caller = ChatOpenAI(max_tokens=200, **{**common, "temperature": 0}).bind_tools([tool], tool_choice="any")
    with script.call("a call that is required"):
        answer = caller.invoke("Weather in Rome?")
        assert answer.tool_calls[0]["name"] == "get_weather"
    with script.call("its result"):
        turns = [HumanMessage("Weather in Rome?"), answer, ToolMessage("sunny", tool_call_id=answer.tool_calls[0]["id"])]
        assert chat.bind_tools([tool]).invoke(turns) is not None
    with script.call("a named call"):
        named = ChatOpenAI(max_tokens=200, **{**common, "temperature": 0}).bind_tools([tool], tool_choice="get_weather")
        assert named.invoke("Weather in Rome?").tool_calls
    structured = {"title": "number", "description": "a number", **SCHEMA}
    for method in ("json_schema", "function_calling"):
        with script.call("structured output by " + method):
            assert isinstance(ChatOpenAI(max_tokens=100, **common).with_structured_output(structured, method=method).invoke("A number?")["n"], int)
    with script.call("stop"):
        assert " " not in chat.invoke("Count: 1 2 3", stop=[" "]).content
    with script.call("logprobs"):
        assert ChatOpenAI(max_tokens=4, logprobs=True, top_logprobs=2, **common).invoke("A word?").response_metadata["logprobs"]["content"]
    with script.call("a seed"):
        seeded = ChatOpenAI(max_tokens=12, seed=7, extra_body={"cache_prompt": False}, **common)
        first = seeded.invoke("Tell a story.").content
    with script.call("the same seed"):
        assert seeded.invoke("Tell a story.").content == first
    with script.call("completions"):
        assert OpenAI(max_tokens=8, **common).invoke("Once upon a time")
    embeddings = OpenAIEmbeddings(check_embedding_ctx_length=False, **common)
    with script.call("embeddings"):
        assert len(embeddings.embed_documents(["a", "b"])) == 2
    with script.call("an embedding"):
        assert len(embeddings.embed_query("a")) > 16
    with script.call("no model"):
        expect_error(openai.NotFoundError, lambda: ChatOpenAI(**{**common, "model": "nobody"}).invoke("x"), 404)
    with script.call("parts of text"):
        assert chat.invoke([HumanMessage([{"type": "text", "text": "Hello"}, {"type": "text", "text": "there"}])]).content
    with script.call("an image"):
        image = [HumanMessage([{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}])]
        expect_error(openai.BadRequestError, lambda: chat.invoke(image), 400)


# ---- litellm ----


def litellm_script(script, url, model):
    import litellm

    litellm.suppress_debug_info = True
    routes = [
        {"model": "openai/" + model, "api_base": url + "/v1", "api_key": KEY},
        {"model": "anthropic/" + model, "api_base": url, "api_key": KEY},
        {"model": "ollama_chat/" + model, "api_base": url, "api_key": KEY},
    ]
    for route in routes:
        for question in QUESTIONS:
            with script.call("completion by " + route["model"]):
                answer = litellm.completion(messages=[{"role": "user", "content": question}], max_tokens=16, num_retries=0, **route)
                assert answer.choices[0].message.content and answer.usage.total_tokens
        for question in QUESTIONS[:3]:
            with script.call("stream by " + route["model"]):
                chunks = list(litellm.completion(messages=[{"role": "user", "content": question}], max_tokens=16, stream=True, **route))
                assert "".join(c.choices[0].delta.content or "" for c in chunks)
        with script.call("a conversation by " + route["model"]):
            turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
            assert litellm.completion(messages=turns + [{"role": "user", "content": "And?"}], max_tokens=12, **route).choices
        with script.call("no model by " + route["model"]):
            gone = {**route, "model": route["model"].split("/")[0] + "/nobody"}
            expect_error(Exception, lambda: litellm.completion(messages=[{"role": "user", "content": "x"}], max_tokens=4, **gone), 404)
    tool = {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city", "parameters": WEATHER}}
    for route in routes[:2]:
        with script.call("a call by " + route["model"]):
            ask = [{"role": "user", "content": "Weather in Rome?"}]
            answer = litellm.completion(messages=ask, tools=[tool], tool_choice="required", max_tokens=200, temperature=0, **route)
            assert answer.choices[0].message.tool_calls[0].function.name == "get_weather"
    with script.call("embedding"):
        assert len(litellm.embedding(input=["a", "b"], encoding_format="float", **routes[0]).data) == 2
    with script.call("responses"):
        assert litellm.responses(input="Say hello.", max_output_tokens=16, **routes[0]).output
    with script.call("responses stream"):
        assert list(litellm.responses(input="Say hello.", max_output_tokens=16, stream=True, **routes[0]))
    with script.call("text completion"):
        route = {**routes[0], "model": "text-completion-openai/" + model}
        assert litellm.text_completion(prompt="Once upon a time", max_tokens=8, **route).choices
    with script.call("a schema"):
        form = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}
        answer = litellm.completion(messages=[{"role": "user", "content": "A number?"}], response_format=form, max_tokens=64, **routes[0])
        assert isinstance(json.loads(answer.choices[0].message.content)["n"], int)
    for question in QUESTIONS[:3]:
        with script.call("stop"):
            answer = litellm.completion(messages=[{"role": "user", "content": question}], stop=[" "], max_tokens=12, **routes[0])
            assert " " not in (answer.choices[0].message.content or "")


# Name: script, its number of calls.
SCRIPTS = {
    "openai": (openai_script, 40),
    "anthropic": (anthropic_script, 40),
    "ollama": (ollama_script, 40),
    "langchain-openai": (langchain_script, 40),
    "litellm": (litellm_script, 40),
    **{name: (functools.partial(script, key=KEY), n) for name, (script, n) in serve_tool_clients.SCRIPTS.items()},
}


def run_client(name, url, model):
    script = Script()
    run, n = SCRIPTS[name]
    run(script, url, model)
    if script.n != n:
        sys.exit(f"the script of {name} has {script.n} calls, not {n}")


def run_clients(args, python):
    failed = []
    with tempfile.TemporaryDirectory() as place:
        keys = os.path.join(place, "keys")
        with open(keys, "w", encoding="utf-8") as f:
            f.write(KEY + "\n")
        os.chmod(keys, 0o600)
        model = os.path.join(place, "local-model" + os.path.splitext(args.model)[1])
        os.symlink(os.path.abspath(args.model), model)
        with serve_suites.Server(args.program, model, ["--api-key-file", keys, *args.option], args.log) as server:
            for name in args.client or SCRIPTS:
                command = [python, os.path.abspath(__file__), "--url", server.url, "--client", name, args.program, "local-model"]
                env = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}  # nothing is fetched
                done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=env)
                print(f"{name}: " + (f"{SCRIPTS[name][1]} calls" if done.returncode == 0 else "FAILED"), flush=True)
                if done.returncode:
                    lines = done.stdout.strip().split("\n")
                    print("\n".join([line for line in lines if line.startswith("call ")] + lines[-6:]))
                    failed.append(name)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the program antigravity")
    parser.add_argument("model", help="an instruction model, such as SmolLM2-135M-Instruct")
    parser.add_argument("--client", action="append", choices=SCRIPTS, help="only this one (any number)")
    parser.add_argument("--environment", default=os.path.join(tempfile.gettempdir(), "antigravity-serve-clients"))
    parser.add_argument("--option", action="append", default=[], help="of the server, besides (any number)")
    parser.add_argument("--log", default="serve_clients.log", help="what the server prints")
    parser.add_argument("--url", help=argparse.SUPPRESS)  # this is the process that makes the calls
    args = parser.parse_args()
    if args.url:
        run_client(args.client[0], args.url, args.model)
        return
    if not shutil.which(args.program):
        sys.exit(f"there is no program {args.program}")
    os.makedirs(args.environment, exist_ok=True)
    try:
        python = serve_suites.make_environment(os.path.join(args.environment, "python"), PACKAGES)
    except serve_suites.Unavailable as reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    sys.exit(1 if run_clients(args, python) else 0)


if __name__ == "__main__":
    main()
