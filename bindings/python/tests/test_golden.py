# SPDX-License-Identifier: Apache-2.0
"""Results equal the recorded ones of Hugging Face transformers."""

import json

import numpy as np
import pytest
from conftest import DEMO, GOLDEN, GOLDEN_MODELS

import libantigravity as ag

NAMES = [*sorted(p.name for p in (GOLDEN / "models").iterdir()), "demo"]
TOLERANCE = 2e-4
SAFE_MARGIN = 2e-3


def records_of(name):
    records = json.loads((GOLDEN / f"{name}.json").read_text())
    return records if isinstance(records, list) else [records]


@pytest.mark.parametrize("name", NAMES)
def test_scores_and_greedy_tokens_equal_the_record(name):
    path = DEMO if name == "demo" else GOLDEN_MODELS / name
    model = ag.Model(path, weights="f32")
    for record in records_of(name):
        with model.session(max_seq_len=512, k_type="f32", v_type="f32") as session:
            ids = record["ids"]
            scores = session.score(ids)
            assert np.isnan(scores.logprobs[0])
            np.testing.assert_allclose(-scores.logprobs[1:], record["nll"], atol=TOLERANCE)
            best = np.argsort(-session.logits)[:10]
            assert set(best[:3]) <= set(record["last_top_ids"])
            last = session.logits[record["last_top_ids"]]
            np.testing.assert_allclose(last, record["last_top_logits"], atol=TOLERANCE)
            for token, margin in zip(record["greedy"], record["greedy_margin"], strict=True):
                if margin > SAFE_MARGIN:
                    assert int(session.logits.argmax()) == token
                session.decode(token)


def test_rows_of_a_step_equal_the_record():
    name = "mha-tied-f32"
    model = ag.Model(GOLDEN_MODELS / name, weights="f32")
    record = records_of(name)[0]
    session = model.session(k_type="f32", v_type="f32")
    result = model.step([ag.StepItem(session, record["ids"], logits="all", hidden=True)])[0]
    assert result.logits.shape == (len(record["ids"]), model.info.n_vocab)
    assert result.hidden.shape == (len(record["ids"]), model.info.hidden_size)
    for position, row in record["logits_rows"].items():
        np.testing.assert_allclose(result.logits[int(position)], row, atol=TOLERANCE)


def test_greedy_text_of_the_demo_equals_the_record():
    model = ag.Model(DEMO, weights="f32", session=ag.SessionParams(k_type="f32", v_type="f32"))
    for record in records_of("demo"):
        n = next(
            (i for i, m in enumerate(record["greedy_margin"]) if m < SAFE_MARGIN),
            len(record["greedy"]),
        )
        generation = model.generate(
            record["prompt"], max_tokens=n, temperature=0, repetition_penalty=1, ignore_eos=True
        )
        generation.text()
        assert generation.ids == record["greedy"][:n]
