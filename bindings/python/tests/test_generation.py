# SPDX-License-Identifier: Apache-2.0
"""Generations: iterators, stops, formats, statistics."""

import json
import re

import numpy as np
import pytest
from conftest import ids_of

import libantigravity as ag
from libantigravity.generation import _Scorer


def test_pieces_join_to_the_text(model):
    pieces = list(model.generate("Once upon a time", max_tokens=40, seed=3))
    generation = model.generate("Once upon a time", max_tokens=40, seed=3)
    assert len(pieces) > 10
    assert generation.text() == "".join(pieces)
    stats = generation.stats
    assert stats.n_generated == len(generation.ids) <= 40
    assert stats.finish_reason in ("stop", "length")
    assert model.detokenize(generation.ids) == "".join(pieces)


def test_prompt_that_continues_the_last_one_reuses_it(model):
    text = "Once upon a time there was a little girl who lived in a small house. " * 6
    first = model.generate(text, max_tokens=1)
    first.text()
    longer = model.generate(text + " She had a dog.", max_tokens=1)
    longer.text()
    assert longer.stats.n_prompt < 10 < first.stats.n_prompt


def test_equal_calls_give_equal_texts(model):
    texts = {model.generate("The old king had three sons", max_tokens=60, seed=7).text() for _ in range(3)}
    assert len(texts) == 1


def test_embedding_a_text_does_not_change_generations(model):
    text = "Once upon a time there was a little girl who lived in a small house. " * 6
    options = {"max_tokens": 1, "temperature": 0}
    model.generate("The old king", **options).text()
    first = model.generate(text, **options)
    want = first.text()
    model.generate("The fox", **options).text()
    model.embed(text + " She had a dog.")
    again = model.generate(text, **options)
    assert again.text() == want
    assert again.stats.n_prompt == first.stats.n_prompt


def endless(model):
    """Return a generation that ends only if it is stopped."""
    session = model.session(kv_policy="streaming", kv_budget=256)
    return session.generate("Once upon a time", max_tokens=-1, ignore_eos=True, seed=1)


def test_closing_stops_the_work(model):
    generation = endless(model)
    next(generation)
    generation.close()
    assert generation.stats.finish == "cancelled"
    assert list(generation) == []
    # The cancellation does not reach the next call.
    assert model.generate("The fox", max_tokens=3, temperature=0).text()


def test_dropping_an_iterator_stops_the_work(model):
    for _piece in endless(model):
        break
    assert model.generate("The fox", max_tokens=1, temperature=0).text()


def test_stop_texts(model):
    text = model.generate("Once upon a time", max_tokens=60, seed=3, stop=[".", "!"]).text()
    assert "." not in text and "!" not in text


def test_session_generate_continues_its_text(model):
    session = model.session()
    greedy = {"temperature": 0, "repetition_penalty": 1, "ignore_eos": True}
    first = session.generate("Once upon a time", max_tokens=10, **greedy).text()
    second = session.generate(max_tokens=10, **greedy).text()
    whole = model.session().generate("Once upon a time", max_tokens=20, **greedy).text()
    assert first + second == whole
    assert session.position == len(session.tokens)


def test_response_formats(model):
    schema = {
        "type": "object",
        "properties": {"name": {"enum": ["fox", "owl"]}, "n": {"type": "boolean"}},
        "required": ["name", "n"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    value = json.loads(model.generate("The", response_format=form, seed=1).text())
    assert value["name"] in ("fox", "owl") and isinstance(value["n"], bool)
    form = {"type": "regex", "regex": "[0-9]{3}"}
    assert len(model.generate("The", response_format=form).text()) == 3
    form = {"type": "choices", "choices": ["yes", "no"]}
    assert model.generate("The", response_format=form).text() in ("yes", "no")
    form = {"type": "grammar", "grammar": 'root ::= "a" "b"'}
    assert model.generate("The", response_format=form).text() == "ab"
    with pytest.raises(ag.InvalidError, match="does not exist"):
        model.generate("The", response_format={"type": "xml"})
    with pytest.raises(ag.FormatError):
        model.generate("The", response_format={"type": "regex", "regex": "("})


def test_drafts_do_not_change_the_text(model):
    options = {"max_tokens": 120, "temperature": 0, "repetition_penalty": 1, "ignore_eos": True}
    texts, drafted = set(), []
    for speculate in ("off", "always"):
        generation = model.generate("Once upon a time", speculate=speculate, **options)
        texts.add(generation.text())
        drafted.append(generation.stats.n_drafted)
    assert len(texts) == 1 and drafted[0] == 0 < drafted[1]
    with pytest.raises(ag.InvalidError, match="speculate is 'no'"):
        model.generate("The fox", speculate="no")


def test_logprobs_equal_those_of_a_score(tiny):
    prompt = ids_of(20)
    options = {"k_type": "f32", "v_type": "f32"}
    session = tiny.session(**options)
    generation = session.generate(prompt, max_tokens=12, logprobs=4, seed=3, ignore_eos=True)
    generation.text()
    assert [entry.token for entry in generation.logprobs] == generation.ids
    scores = tiny.session(**options).score(prompt + generation.ids)
    got = [entry.logprob for entry in generation.logprobs]
    np.testing.assert_allclose(got, scores.logprobs[len(prompt) :], atol=1e-4)
    for entry, is_greedy in zip(generation.logprobs, scores.is_greedy[len(prompt) :], strict=True):
        assert len(entry.top) == 4
        assert [p for _, p in entry.top] == sorted((p for _, p in entry.top), reverse=True)
        assert (entry.top[0] == (entry.token, entry.logprob)) == bool(is_greedy)
    assert tiny.session().generate(prompt, max_tokens=1).logprobs == []
    with pytest.raises(ag.InvalidError, match="logprobs is 21"):
        tiny.generate(prompt, logprobs=21)
    off = tiny.generate(prompt, max_tokens=1, logprobs=False)
    off.text()
    assert not off.has_logprobs and off.logprobs == []


def test_wrong_arguments_leave_the_session_of_the_last_call(tiny):
    tiny.generate(ids_of(20), max_tokens=1).text()
    (session,) = tiny._free_sessions
    for wrong in ({"logprobs": 21}, {"speculate": "no"}, {"stop": [5]}):
        with pytest.raises(ag.InvalidError):
            tiny.generate(ids_of(20), **wrong)
        assert tiny._free_sessions == [session]


@pytest.mark.parametrize("method", ["read", "choose"])
def test_exceptions_of_callbacks_are_raised(tiny, monkeypatch, method):
    def fail(*_):
        raise ZeroDivisionError(method)

    monkeypatch.setattr(_Scorer, method, fail)
    session = tiny.session()
    generation = session.generate(ids_of(20), max_tokens=4, logprobs=1)
    with pytest.raises(ZeroDivisionError, match=method):
        generation.text()
    monkeypatch.undo()
    assert session.generate(max_tokens=2, ignore_eos=True).stats.n_generated == 2


def test_errors_are_raised_while_iterating(model):
    generation = model.generate([999999], max_tokens=1)
    with pytest.raises(ag.InvalidError, match="999999"):
        generation.text()
    with pytest.raises(ag.InvalidError, match="top_p"):
        model.generate("The", top_p=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": "a"}, "temperature is 'a' (str): it must be a number"),
        ({"top_k": 2.5}, "top_k is 2.5 (float): it must be an integer"),
        ({"seed": "a"}, "seed is 'a' (str): it must be an integer"),
        ({"max_tokens": "a"}, "max_tokens is 'a' (str): it must be an integer"),
        ({"ignore_eos": "a"}, "ignore_eos is 'a' (str): it must be True or False"),
        ({"logprobs": "a"}, "logprobs is 'a' (str): it must be an integer"),
        ({"speculate": 5}, "speculate is 5 (int): it must be a text"),
        ({"logit_bias": {"a": 1}}, "logit_bias must map token ids to numbers: "),
        ({"temprature": 1}, "unknown option 'temprature'; did you mean 'temperature'?"),
        ({"max_token": 1}, "unknown option 'max_token'; did you mean 'max_tokens'?"),
        ({"zzz": 1}, "unknown option 'zzz'; options are frequency_penalty, ignore_eos, "),
    ],
)
def test_wrong_options_are_named(model, options, message):
    for generate in (model.generate, model.session().generate):
        with pytest.raises(TypeError, match=f"^{re.escape(message)}"):
            generate("The", **options)


def test_numbers_out_of_range_are_named(model):
    with pytest.raises(ag.InvalidError, match="top_k is -1: out of range: "):
        model.generate("The", top_k=-1)
