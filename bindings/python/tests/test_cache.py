# SPDX-License-Identifier: Apache-2.0
"""The managed cache: compression, spilling, pressure, listeners."""

import pytest
from conftest import ids_of

import libantigravity as ag

EVICTING = {"kv_policy": "keydiff", "kv_budget": 64, "recent": 8, "slack": 8}


def test_compression_retains_a_share_and_the_text_continues(model):
    session = model.session(max_seq_len=1024)
    greedy = {"temperature": 0, "repetition_penalty": 1, "ignore_eos": True}
    session.generate("The secret of Mia's red box is 512 green. " * 8, max_tokens=5, **greedy).text()
    before, position, unfed = session.kv_bytes, session.position, session._unfed
    calls = []
    stats = session.compress(0.5, replay=0.5, progress=lambda done, total: calls.append((done, total)))
    heads = model.info.n_layers * model.info.n_kv_heads
    assert stats.n_heads == heads and stats.n_before == heads * position
    assert stats.n_kept == pytest.approx(0.5 * stats.n_before, rel=0.02)
    assert (
        sum(
            len(session.positions(layer, head))
            for layer in range(model.info.n_layers)
            for head in range(model.info.n_kv_heads)
        )
        == stats.n_kept
    )
    assert calls and 0 < calls[-1][0] <= calls[-1][1] and stats.n_replayed > 0
    assert session.position == position and session.kv_bytes <= before
    assert session._unfed == unfed >= 0
    assert session.generate(max_tokens=3, **greedy).stats.n_generated == 3
    assert session.position == position + 3


def test_errors_of_a_compression(model):
    session = model.session()
    session.prefill("The old king had three sons. " * 8)
    n = len(session.positions(0))

    def fail(done, total):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        session.compress(0.5, progress=fail)
    with pytest.raises(ag.InvalidError, match="keep"):
        session.compress()
    with pytest.raises(TypeError, match="unknown option 'chunks'; did you mean 'chunk'"):
        session.compress(0.5, chunks=2)
    with pytest.raises(TypeError, match=r"keep_ratio is 'a' \(str\): it must be a number"):
        session.compress("a")
    assert len(session.positions(0)) == n


def test_measured_heads_share_the_budget(model):
    text = "The secret of Mia's red box is 512 green. " * 30
    session = model.session(max_seq_len=2048)
    session.prefill(text)
    shares = session.head_maxima(replay=0.3)
    heads = model.info.n_layers * model.info.n_kv_heads
    assert shares.shape == (heads,) and 0 <= shares.min() < shares.max() <= 1
    other = model.session(kv_policy="keydiff", kv_budget=128, head_budget="shares", head_shares=shares)
    other.prefill(text)
    assert len({len(other.positions(0, head)) for head in range(model.info.n_kv_heads)}) > 1
    with pytest.raises(ag.InvalidError, match="head_shares"):
        model.session(kv_policy="keydiff", head_budget="shares", head_shares=shares[:-1])


def test_evicted_slots_are_spilled(tiny, tmp_path):
    session = tiny.session(spill=ag.Spill(str(tmp_path / "file")), **EVICTING)
    assert session.spilled == ag.SpillStats(0, 0, 0, 0, 0, "")
    session.prefill(ids_of(300))
    spilled = session.spilled
    assert spilled.n_spilled > 0 and spilled.file_bytes > 0 and not spilled.n_failed
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
    session.close()
    lost = tiny.session(spill=ag.Spill(tmp_path / "absent" / "file"), **EVICTING)
    lost.prefill(ids_of(300))
    assert lost.spilled.n_failed > 0 and "absent" in lost.spilled.trouble


def test_evictions_are_reported(tiny):
    seen = []
    session = tiny.session(on_eviction=seen.append, **EVICTING)
    session.prefill(ids_of(200))
    first = list(seen)
    session.decode(5)
    assert len(seen) == session.evictions.n_evictions > 0
    assert {e.reason for e in seen} == {"budget"} and {e.policy for e in seen} == {"keydiff"}
    assert all(e.n_before > e.n_kept >= 64 for e in seen)
    assert session.kv_budget == 64 and session.last_evictions.n_evictions == len(seen) - len(first)

    def fail(eviction):
        raise RuntimeError("enough")

    session = tiny.session(on_eviction=fail, **EVICTING)
    with pytest.raises(ag.PolicyError, match="on_eviction: RuntimeError: enough"):
        session.prefill(ids_of(200))


def test_exceptions_of_evictions_after_a_step_are_raised(tiny, tmp_path):
    """A failed eviction is pending: a fork or a save performs it, and reports it."""

    class Failing(ag.Policy):
        importance = "none"
        fails = True

        def select(self, layer):
            if self.fails:
                raise RuntimeError("not now")
            return [list(range(h.n_keep - h.n_recent)) + list(range(h.n_slots - h.n_recent, h.n_slots)) for h in layer]

    def listen(eviction):
        raise RuntimeError("heard")

    for act in (lambda s: s.fork(), lambda s: s.save(tmp_path / "saved")):
        policy = Failing()
        options = {**EVICTING, "kv_policy": policy, "protected_prefix": 0}
        session = tiny.session(on_eviction=listen, **options)
        with pytest.raises(ag.PolicyError, match="not now"):
            session.prefill(ids_of(100))
        policy.fails = False
        with pytest.raises(ag.PolicyError, match="on_eviction: RuntimeError: heard"):
            act(session)
        act(session)


def test_generation_continues_after_an_exception_of_a_listener(tiny):
    def listen(eviction):
        raise RuntimeError("heard")

    session = tiny.session(on_eviction=listen, **EVICTING)
    generation = session.generate(ids_of(60), max_tokens=40, ignore_eos=True, temperature=0)
    with pytest.raises(ag.PolicyError, match="heard"):
        generation.text()
    assert session._unfed == generation.ids[-1]
    assert session.tokens == [*ids_of(60), *generation.ids[:-1]]


def test_memory_pressure_evicts(tiny):
    seen = []
    watch = ag.MemoryWatch(threshold_bytes=1, target_ratio=0.5)
    session = tiny.session(memory=watch, on_eviction=seen.append)
    session.prefill(ids_of(200))
    assert session.memory_pressure == "normal" and not seen
    session.hint_memory("critical")
    for token in ids_of(40):
        session.decode(token)
    assert session.memory_pressure == "critical"
    assert seen[0].reason == "memory pressure" and seen[0].pressure == "critical"
    assert seen[0].n_kept < seen[0].n_before
    with pytest.raises(ag.InvalidError, match="level is 'high'"):
        session.hint_memory("high")


def test_protected_prefix_and_budgets(tiny):
    session = tiny.session(protected_prefix=20, **EVICTING)
    assert session.protected == 20
    session.protect(6)
    assert session.protected == 6
    with pytest.raises(ag.InvalidError):
        session.protect(7)
    ratio = tiny.session(kv_policy="keydiff", kv_budget_ratio=0.25, max_seq_len=400)
    assert ratio.kv_budget == 100
    size = tiny.session(kv_policy="keydiff", kv_budget_bytes=ratio.kv_bytes + (1 << 20), max_seq_len=1 << 14)
    assert 0 < size.kv_budget < 1 << 14


def test_rotated_keys_read_back_as_they_were(tiny):
    import numpy as np

    rows = []
    for rotation in ("off", "on"):
        session = tiny.session(k_rotation=rotation, k_type="q8_0")
        session.prefill(ids_of(20))
        rows.append(session.kv(0)[0])
    assert not np.array_equal(*rows)
    np.testing.assert_allclose(*rows, atol=0.1)
    with pytest.raises(ag.InvalidError, match="k_rotation"):
        tiny.session(k_rotation="half")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kv_budgt": 64}, "unknown option 'kv_budgt'; did you mean 'kv_budget'"),
        ({"kv_budget": 1.5}, "kv_budget is 1.5 .float.: it must be an integer"),
        ({"spill": "/tmp"}, "spill is '/tmp' .str.: it must be a Spill"),
        ({"memory": ag.MemoryWatch}, "memory is the class MemoryWatch: it must be an instance"),
        ({"memory": ag.MemoryWatch(target_ratio="a")}, "memory.target_ratio is 'a' .str.: it must be a number"),
        ({"head_shares": ["a"]}, "head_shares must be a sequence of numbers"),
    ],
)
def test_wrong_parameters_of_a_session_are_named(model, options, message):
    with pytest.raises(TypeError, match=message):
        model.session(**{"kv_policy": "keydiff", **options})
    with pytest.raises(TypeError, match=message):
        model.session().fork(**{"kv_policy": "keydiff", **options})
