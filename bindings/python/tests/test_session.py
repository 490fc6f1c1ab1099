# SPDX-License-Identifier: Apache-2.0
"""Sessions: tokens, views, copies, files, and steps of several sessions."""

import gc

import numpy as np
import pytest
from conftest import DEMO, ids_of

import libantigravity as ag


def test_logits_are_a_view_that_outlives_the_session(tiny):
    session = tiny.session()
    logits = session.prefill(ids_of(20))
    assert logits.shape == (tiny.info.n_vocab,) and logits.dtype == np.float32
    with pytest.raises(ValueError):
        logits[0] = 1
    before = logits.copy()
    session.decode(5)
    assert not np.array_equal(before, logits)  # the same memory
    assert np.array_equal(session.logits, logits)
    kept = logits.copy()
    session.close()
    del session
    gc.collect()
    tiny.session().prefill(ids_of(30))
    assert np.array_equal(kept, logits)


def test_prefill_in_pieces_equals_one_prefill(tiny):
    one, two = tiny.session(), tiny.session()
    ids = ids_of(40)
    want = one.prefill(ids).copy()
    two.prefill(ids[:17])
    np.testing.assert_allclose(two.prefill(ids[17:]), want, atol=1e-4)
    assert one.tokens == two.tokens == ids
    assert one.position == 40


def test_score_continues_from_the_context(tiny):
    ids = ids_of(30)
    all_at_once = tiny.session(k_type="f32", v_type="f32").score(ids)
    session = tiny.session(k_type="f32", v_type="f32")
    session.prefill(ids[:10])
    rest = session.score(ids[10:])
    np.testing.assert_allclose(rest.logprobs, all_at_once.logprobs[10:], atol=1e-4)
    assert rest.is_greedy.dtype == np.bool_


def test_fork_and_truncate(tiny):
    session = tiny.session()
    session.prefill(ids_of(25))
    fork = session.fork()
    assert fork.tokens == session.tokens
    a = fork.decode(7).copy()
    np.testing.assert_array_equal(session.decode(7), a)
    session.truncate(25)
    assert session.position == 25 and session.tokens == ids_of(25)
    np.testing.assert_array_equal(session.decode(7), a)
    evicting = session.fork(kv_policy="keydiff", kv_budget=16, recent=4, protected_prefix=0)
    evicting.prefill(ids_of(200))
    assert len(evicting.positions(0)) < 100 and evicting.evictions.n_evictions > 0


def test_save_and_restore(tiny, model, tmp_path):
    session = model.session()
    session.prefill("Once upon a time there was a fox.")
    want = session.logits.copy()
    session.save(tmp_path / "saved")
    other = model.session()
    other.restore(tmp_path / "saved")
    assert other.tokens == session.tokens
    np.testing.assert_array_equal(other.logits, want)
    with pytest.raises(ag.UnsupportedError, match="saved for layers 10"):
        tiny.session().restore(tmp_path / "saved")
    with pytest.raises((ag.IOFailedError, ag.NotFoundError), match="absent"):
        model.session().restore(tmp_path / "absent")


def test_step_of_several_sessions_equals_each_alone(tiny):
    sessions = [tiny.session() for _ in range(3)]
    prompts = [ids_of(n) for n in (5, 9, 20)]
    results = tiny.step(zip(sessions, prompts, strict=True))
    for session, prompt, result in zip(sessions, prompts, results, strict=True):
        want = tiny.session().prefill(prompt)
        np.testing.assert_allclose(result.logits, want, atol=1e-4)
        assert session.tokens == prompt
    with pytest.raises(ag.InvalidError, match="same session"):
        tiny.step([(sessions[0], [1]), (sessions[0], [2])])


def test_keys_and_values(tiny):
    session = tiny.session(k_type="f32", v_type="f32")
    session.prefill(ids_of(12))
    keys, values = session.kv(layer=1, head=1)
    assert keys.shape == values.shape == (12, tiny.info.head_dim)
    assert np.isfinite(keys).all() and not np.array_equal(keys, values)
    assert session.positions(1, 1) == list(range(12))
    with pytest.raises(ag.InvalidError, match="no such head"):
        session.kv(99)


def test_errors_have_the_messages_of_the_library(tiny, tmp_path):
    session = tiny.session(max_seq_len=16)
    with pytest.raises(ag.LimitError, match="17 tokens do not fit"):
        session.prefill(ids_of(17))
    with pytest.raises(ag.InvalidError, match="token id 99999"):
        session.prefill([99999])
    assert session.position == 0
    with pytest.raises(ag.InvalidError, match="no logits"):
        _ = session.logits
    with pytest.raises(ag.InvalidError, match="unknown type"):
        tiny.session(k_type="q3")
    with pytest.raises(TypeError, match="ids"):
        session.prefill(["a"])
    with pytest.raises(ag.NotFoundError):
        ag.Model(tmp_path / "absent")
    session.close()
    with pytest.raises(ag.InvalidError, match="closed"):
        session.prefill([1])


def test_progress_of_a_load_and_its_exceptions():
    calls = []
    ag.Model(DEMO, progress=lambda done, total: calls.append((done, total)))
    assert calls
    assert calls[-1][0] == calls[-1][1]

    def fail(done, total):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        ag.Model(DEMO, progress=fail)


def test_ids_may_be_an_array(tiny):
    session, other = tiny.session(), tiny.session()
    ids = ids_of(20)
    logits = session.prefill(np.array(ids)).copy()
    np.testing.assert_array_equal(other.prefill(ids), logits)
    session.decode(logits.argmax())
    assert session.tokens == [*ids, logits.argmax()]


def test_tokenizer_round_trip(model):
    ids = model.tokenize("Köln — naïve café ☕")
    assert model.detokenize(ids) == "Köln — naïve café ☕"
    assert len(model.tokenize("a", bos=False)) == 1


def test_embeddings_have_length_1_and_order_texts(model):
    rows = model.embed(["The fox ran home.", "A fox went home.", "1, 2, 3, 4"])
    assert rows.shape == (3, model.info.hidden_size)
    np.testing.assert_allclose((rows * rows).sum(1), 1, atol=1e-5)
    assert rows[0] @ rows[1] > rows[0] @ rows[2]
    np.testing.assert_allclose(model.embed("The fox ran home."), rows[0], atol=1e-5)


def test_progress_and_its_exceptions(model):
    calls = []
    session = model.session(prefill_chunk=16)
    session.prefill(ids_of(40), progress=lambda done, total: calls.append((done, total)))
    assert calls == [(16, 40), (32, 40), (40, 40)]

    def fail(done, total):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        session.prefill(ids_of(40), progress=fail)
    assert session.position == 56
    assert session.tokens == ids_of(40) + ids_of(40)[:16]
    session.decode(5)
