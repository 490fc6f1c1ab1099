# SPDX-License-Identifier: Apache-2.0
"""The plugin of llm and the model of lm-evaluation-harness, where these packages are installed."""

import os
from types import SimpleNamespace

import pytest
from conftest import DEMO

import libantigravity as ag
from libantigravity import store


def test_models_of_the_store(tmp_path, monkeypatch):
    for name in ("Fox-1B", "fox-7b.gguf", "owl.part", ".used"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("ANTIGRAVITY_MODELS", str(tmp_path))
    assert [store.name_of(path) for path in store.models()] == ["Fox-1B", "fox-7b"]
    assert store.find_model("fox-1b") == str(tmp_path / "Fox-1B")
    assert store.find_model("fox-7b") == str(tmp_path / "fox-7b.gguf")
    with pytest.raises(ag.InvalidError, match="ambiguous: Fox-1B, fox-7b"):
        store.find_model("fox")
    with pytest.raises(ag.NotFoundError, match="no model of that name"):
        store.find_model("owl")
    assert store.find_model(str(tmp_path / "Fox-1B")) == str(tmp_path / "Fox-1B")
    for path in ("a/b", "./owl"):
        with pytest.raises(ag.NotFoundError, match=f"^model '{path}': no such file or directory; give .* or a name"):
            store.find_model(path)
    assert os.path.isdir(store.find_model(None))
    (tmp_path / "Demolition-7B").mkdir()
    for name in (None, "demo"):
        assert store.find_model(name) == store.demo_directory()


def test_llm_plugin(monkeypatch, tmp_path):
    llm = pytest.importorskip("llm")
    from libantigravity import llm_plugin

    monkeypatch.setenv("ANTIGRAVITY_MODELS", str(tmp_path))
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
    models = []
    llm_plugin.register_models(models.append)
    assert [m.model_id for m in models] == ["antigravity/demo"]
    prompt = models[0].prompt("Once upon a time", max_tokens=12, seed=1)
    assert isinstance(prompt, llm.Response)
    assert prompt.text() == ag.Model(DEMO).generate("Once upon a time", max_tokens=12, seed=1).text()


def test_lm_eval_model(model):
    pytest.importorskip("lm_eval")
    from libantigravity.lm_eval_model import AntigravityLM

    lm = AntigravityLM(path=str(DEMO), weights="f32", kv_policy="test_policy:KeyDiff", kv_budget=256)
    requests = [SimpleNamespace(args=("Once upon a", " time")), SimpleNamespace(args=("Once upon a", " fox"))]
    (time, is_greedy), (fox, fox_is_greedy) = lm.loglikelihood(requests)
    assert fox < time < 0 and is_greedy and not fox_is_greedy
    rolling = lm.loglikelihood_rolling([SimpleNamespace(args=("Once upon a time",))])[0]
    ids = model.tokenize("Once upon a time")
    want = ag.Model(DEMO, weights="f32").session().score(ids).logprobs[1:].sum()
    assert rolling == pytest.approx(want, abs=1e-2)
    options = {"until": ["."], "max_gen_toks": 30}
    text = lm.generate_until([SimpleNamespace(args=("Once upon a time", options))])[0]
    assert text and "." not in text
