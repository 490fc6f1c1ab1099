# SPDX-License-Identifier: Apache-2.0
"""The examples of llama-cpp-python's README, with another import and path."""

import inspect
import json
import shutil

import pytest
from conftest import DEMO, GOLDEN_MODELS, ids_of

import libantigravity as ag
import libantigravity.llama as llama_cpp
from libantigravity.llama import Llama

PATH = str(DEMO)


def test_text_completion():
    llm = Llama(model_path=PATH, n_ctx=2048)
    output = llm(
        "Q: Name the planets in the solar system? A: ",
        max_tokens=32,
        stop=["Q:", "\n"],
        echo=True,
    )
    assert output["object"] == "text_completion" and output["model"] == PATH
    assert output["id"].startswith("cmpl-")
    choice = output["choices"][0]
    assert choice["text"].startswith("Q: Name the planets in the solar system? A: ")
    assert choice["finish_reason"] in ("stop", "length") and choice["logprobs"] is None
    usage = output["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert 0 < usage["completion_tokens"] <= 32


def test_streamed_completion_equals_the_whole():
    llm = Llama(model_path=PATH, seed=1337)
    want = llm("Once upon a time", max_tokens=20)["choices"][0]["text"]
    chunks = list(llm.create_completion("Once upon a time", max_tokens=20, stream=True))
    assert "".join(c["choices"][0]["text"] for c in chunks) == want
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"


def test_logprobs():
    llm = Llama(model_path=str(DEMO), verbose=False)
    options = {"max_tokens": 8, "temperature": 0, "logprobs": 3}
    choice = llm("Once upon a time", **options)["choices"][0]
    lists = choice["logprobs"]
    assert "".join(lists["tokens"]) == choice["text"]
    assert len(lists["tokens"]) == len(lists["token_logprobs"]) == len(lists["top_logprobs"]) == 8
    assert lists["text_offset"][0] == len("Once upon a time")
    assert lists["text_offset"][2] - lists["text_offset"][1] == len(lists["tokens"][1])
    assert all(len(top) == 3 for top in lists["top_logprobs"])
    chunks = [c["choices"][0]["logprobs"] for c in llm("Once upon a time", stream=True, **options)]
    assert [p for c in chunks if c for p in c["token_logprobs"]] == lists["token_logprobs"]
    with pytest.raises(ag.UnsupportedError, match="echo"):
        llm("Once upon a time", echo=True, **options)


def test_ids_need_no_tokenizer():
    llm = Llama(str(GOLDEN_MODELS / "gqa-llama3rope-sharded"), n_ctx=64)
    answer = llm(ids_of(20), max_tokens=3, logprobs=False)
    assert answer["usage"]["prompt_tokens"] == 20 and answer["choices"][0]["logprobs"] is None
    for needs_text in ({"echo": True}, {"logprobs": 1}):
        with pytest.raises(ag.NotFoundError, match="no tokenizer"):
            llm(ids_of(20), **needs_text)


def test_chat_completion():
    llm = Llama(model_path=PATH, chat_format="llama-2")
    answer = llm.create_chat_completion(
        messages=[
            {"role": "system", "content": "You are an assistant who perfectly describes images."},
            {"role": "user", "content": "Describe this image in detail please."},
        ],
        max_tokens=20,
    )
    assert isinstance(answer["choices"][0]["message"]["content"], str)


WHO_WON = [
    {"role": "system", "content": "You are a helpful assistant that outputs in JSON."},
    {"role": "user", "content": "Who won the world series in 2020"},
]


def test_json_mode():
    llm = Llama(model_path=PATH, chat_format="chatml")
    answer = llm.create_chat_completion(
        messages=WHO_WON,
        response_format={"type": "json_object"},
        temperature=0.7,
        max_tokens=60,
    )
    choice = answer["choices"][0]
    assert choice["message"]["content"].lstrip().startswith("{")
    if choice["finish_reason"] == "stop":
        assert isinstance(json.loads(choice["message"]["content"]), dict)


def test_json_schema_mode():
    llm = Llama(model_path=PATH, chat_format="chatml")
    answer = llm.create_chat_completion(
        messages=WHO_WON,
        response_format={
            "type": "json_object",
            "schema": {
                "type": "object",
                "properties": {"team_name": {"type": "string", "maxLength": 30}},
                "required": ["team_name"],
            },
        },
        temperature=0.7,
    )
    assert set(json.loads(answer["choices"][0]["message"]["content"])) == {"team_name"}


def test_function_calling():
    llm = Llama(model_path=PATH, chat_format="chatml-function-calling", n_ctx=2048)
    answer = llm.create_chat_completion(
        messages=[
            {"role": "system", "content": "The assistant calls functions with appropriate input when necessary"},
            {"role": "user", "content": "Extract Jason is 25 years old"},
        ],
        tools=[
            {
                "type": "function",
                "function": {
                    "name": "UserDetail",
                    "parameters": {
                        "type": "object",
                        "title": "UserDetail",
                        "properties": {
                            "name": {"title": "Name", "type": "string", "maxLength": 20},
                            "age": {"title": "Age", "type": "integer", "minimum": 0, "maximum": 150},
                        },
                        "required": ["name", "age"],
                    },
                },
            }
        ],
        tool_choice={"type": "function", "function": {"name": "UserDetail"}},
    )
    call = answer["choices"][0]["message"]["tool_calls"][0]["function"]
    assert call["name"] == "UserDetail"
    assert set(json.loads(call["arguments"])) == {"name", "age"}


def test_embeddings():
    llm = llama_cpp.Llama(model_path=PATH, embedding=True)
    one = llm.create_embedding("Hello, world!")
    assert len(one["data"]) == 1
    two = llm.create_embedding(["Hello, world!", "Goodbye, world!"])
    assert [d["index"] for d in two["data"]] == [0, 1]
    assert len(two["data"][0]["embedding"]) == 256
    assert two["data"][0]["embedding"] == pytest.approx(one["data"][0]["embedding"], abs=1e-5)
    assert llm.embed("Hello, world!") == pytest.approx(one["data"][0]["embedding"], abs=1e-5)


def test_context_window_and_tokens():
    llm = Llama(model_path=PATH, n_ctx=1024)
    assert llm.n_ctx() == 1024
    tokens = llm.tokenize(b"Once upon a time")
    assert tokens[0] == llm.token_bos()
    assert llm.detokenize(tokens) == b"Once upon a time"
    assert llm.n_vocab() == 4096
    llm.reset()
    with pytest.raises(ag.LimitError, match="1024"):
        llm(list(range(5, 1100)), max_tokens=1)


def test_context_of_0_is_the_trained_length(tmp_path):
    path = tmp_path / "longer"
    shutil.copytree(DEMO, path)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 4096}))
    llm = Llama(str(path), n_ctx=0)
    assert llm.n_ctx() == 4096
    with pytest.raises(ag.LimitError, match="4096"):
        llm([5] * 4097, max_tokens=1)


def test_arguments():
    for name in ("model_path", "n_ctx", "n_gpu_layers", "n_threads", "n_batch", "seed", "chat_format"):
        assert name in inspect.signature(Llama.__init__).parameters
    with pytest.raises(TypeError, match="lora_path"):
        Llama(model_path=PATH, lora_path="x")
    with pytest.raises(ag.InvalidError, match="chat_format is 'vicuna'"):
        Llama(model_path=PATH, chat_format="vicuna")
    with pytest.raises(ag.InvalidError, match="type_k is 30"):
        Llama(model_path=PATH, type_k=30)
    Llama(model_path=PATH, type_k=8, type_v=8, use_mmap=False, use_mlock=True, flash_attn=True, verbose=False)
