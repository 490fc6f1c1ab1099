# SPDX-License-Identifier: Apache-2.0
"""Cache policies in NumPy: the slots of their twins in C, and their errors."""

import gc

import numpy as np
import pytest
from conftest import ids_of

import libantigravity as ag

OPTIONS = {"kv_budget": 64, "recent": 8, "slack": 8, "max_seq_len": 256, "prefill_chunk": 48}


class KeyDiff(ag.Policy):
    importance = "keys"

    def from_keys(self, layer):
        keys = layer.keys / np.linalg.norm(layer.keys, axis=-1, keepdims=True)
        mean = keys.mean(axis=1, keepdims=True)
        return -(keys * mean).sum(-1) / np.linalg.norm(mean, axis=-1)


class KeyDiffByHead(ag.Policy):
    """The same for heads of any length."""

    importance = "keys"

    def from_keys(self, layer):
        return [self.score(head.keys) for head in layer]

    def score(self, keys):
        keys = keys / np.linalg.norm(keys, axis=-1, keepdims=True)
        mean = keys.mean(axis=0)
        return -(keys @ mean) / np.linalg.norm(mean)


class Newest(ag.Policy):
    """The twin of "streaming"."""

    def select(self, layer):
        slots = []
        for head in layer:
            mask = np.arange(head.n_slots) < head.n_protected
            mask[head.n_slots - (head.n_keep - head.n_protected) :] = True
            slots.append(mask)
        return slots


class Tova(ag.Policy):
    importance = "newest"
    whole_prefill = True

    def select(self, layer):
        return [head.best(head.importance) for head in layer]


class KeyDiffSelect(KeyDiffByHead):
    """Scores and selects."""

    def select(self, layer):
        return [head.best(head.importance) for head in layer]


def feed(session, n_prompt=150, n_decoded=40):
    session.prefill(ids_of(n_prompt))
    for token in ids_of(n_decoded):
        session.decode(token)
    return session


def slots_of(model, session):
    return [session.positions(layer, h) for layer in range(3) for h in range(2)]


@pytest.mark.parametrize(
    ("policy", "twin", "options"),
    [
        (KeyDiff(), "keydiff", {}),
        (KeyDiffByHead(), "keydiff", {}),
        (KeyDiffByHead(), "keydiff", {"head_budget": "adaptive"}),
        (KeyDiffSelect(), "keydiff", {}),
        (KeyDiffSelect(), "keydiff", {"head_budget": "adaptive"}),
        (Newest(), "streaming", {}),
        (Tova(), "tova", {}),
    ],
    ids=lambda p: type(p).__name__ if isinstance(p, ag.Policy) else str(p),
)
def test_slots_equal_those_of_the_twin_in_c(tiny, policy, twin, options):
    if twin == "tova":
        options = {**options, "prefill": "bounded"}
    if twin == "keydiff":  # its prefill_block
        policy.prefill_block = 128
    a = feed(tiny.session(kv_policy=policy, **OPTIONS, **options))
    b = feed(tiny.session(kv_policy=twin, **OPTIONS, **options))
    assert a.evictions.n_evictions == b.evictions.n_evictions > 3
    assert slots_of(tiny, a) == slots_of(tiny, b)
    np.testing.assert_array_equal(a.logits, b.logits)


def test_policy_gets_what_it_requests(tiny):
    seen = []

    class Look(ag.Policy):
        importance = "chunk"
        with_values = True

        def from_keys(self, layer):
            assert layer.is_rectangular and len(layer) == 2
            assert layer.keys.shape == layer.values.shape == (2, layer.heads[0].n_slots, 64)
            for i, head in enumerate(layer):
                assert np.array_equal(head.keys, layer.keys[i])
                assert np.array_equal(head.values, layer.values[i])
                assert (np.diff(head.positions.astype(int)) > 0).all()
                assert head.sums.shape == (head.n_slots,) and head.n_protected == 4
            assert 0 < layer.removed < 1
            seen.append(layer.index)
            return [head.positions for head in layer]

    feed(tiny.session(kv_policy=Look(), **OPTIONS))
    assert set(seen) == {0, 1, 2}


def make_failing(error):
    class Failing(KeyDiffByHead):
        armed = False

        def from_keys(self, layer):
            if self.armed and layer.index == 1:
                raise error
            return super().from_keys(layer)

    return Failing()


def test_exception_is_the_error_of_the_call(tiny):
    policy = make_failing(ZeroDivisionError("of mine"))
    session = tiny.session(kv_policy=policy, **OPTIONS)
    twin = tiny.session(kv_policy=KeyDiffByHead(), **OPTIONS)
    for s in (session, twin):
        s.prefill(ids_of(60))
    policy.armed = True
    with pytest.raises(ag.PolicyError, match="Failing: ZeroDivisionError: of mine") as caught:
        for token in ids_of(30):
            session.decode(token)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    position = session.position
    assert len(session.tokens) == position
    with pytest.raises(ag.PolicyError):  # the eviction is pending, and nothing is consumed
        session.decode(5)
    assert session.position == position
    policy.armed = False
    rest = ids_of(40)[position - 60 :]
    for token in rest:
        session.decode(token)
    for token in ids_of(40):
        twin.decode(token)
    assert slots_of(tiny, session) == slots_of(tiny, twin)


def fail_steps(tiny, session):
    """Run steps until the policy fails in one, and the step that runs its pending eviction."""
    errors = []
    for token in ids_of(30):
        try:
            tiny.step([(session, [token], "none")])
        except ag.PolicyError as e:
            errors.append(e)
            if len(errors) == 2:
                return errors
    raise AssertionError("the policy did not fail twice")


def test_exception_is_the_error_of_the_step(tiny):
    policy = make_failing(ZeroDivisionError("of mine"))
    session, other = (tiny.session(kv_policy=policy, **OPTIONS) for _ in range(2))
    session.prefill(ids_of(60))
    policy.armed = True
    errors = fail_steps(tiny, session)
    assert all(isinstance(e.__cause__, ZeroDivisionError) for e in errors)
    assert session.position == len(session.tokens)
    tiny.step([(other, [5, 6], "none")])  # another session of the policy
    assert other.position == 2


def test_exceptions_stay_with_their_model(tiny):
    policy = make_failing(ZeroDivisionError("of mine"))
    failing = tiny.session(kv_policy=policy, **OPTIONS)
    other = ag.Model(tiny.path, weights="f32").session(kv_policy=policy, **OPTIONS)
    positions = []

    def fail(lease):
        raise ZeroDivisionError("of mine")

    def fail_and_use_the_other(_pointer):
        failing._built.borrowed[0].run(fail, ag._native.ffi.new("ag_error *"))
        other.decode(5)  # on its own engine's thread, while this call is running
        positions.append(other.position)

    with pytest.raises(ag.PolicyError, match="of mine"):
        failing._run(fail_and_use_the_other)
    assert positions == [1]


@pytest.mark.parametrize(
    ("slots", "message"),
    [
        (lambda h: np.arange(h.n_keep - 1), "retains"),
        (lambda h: np.arange(h.n_keep), "newest 8"),
        (lambda h: np.arange(h.n_keep)[::-1], "ascend"),
        (lambda h: np.arange(h.n_slots - h.n_keep, h.n_slots), "first 4"),
        (lambda h: np.ones(3, bool), "mask"),
        (lambda h: np.linspace(0.5, h.n_slots - 0.5, h.n_keep), "float64 for head 0: slots are integers"),
    ],
)
def test_wrong_slots_are_rejected(tiny, slots, message):
    class Wrong(ag.Policy):
        def select(self, layer):
            return [slots(head) for head in layer]

    with pytest.raises(ag.PolicyError, match=message):
        feed(tiny.session(kv_policy=Wrong(), **OPTIONS))


def test_changed_attributes_hold_for_later_sessions(tiny):
    class Values(KeyDiffByHead):
        def from_keys(self, layer):
            return [self.score(head.values if self.with_values else head.keys) for head in layer]

    policy = Values()
    session = feed(tiny.session(kv_policy=policy, **OPTIONS))
    policy.with_values = True
    feed(tiny.session(kv_policy=policy, **OPTIONS))
    policy.importance = "nonsense"
    with pytest.raises(ag.InvalidError, match="nonsense"):
        tiny.session(kv_policy=policy)
    del policy.importance, policy.with_values
    session.decode(5)


def test_long_message_of_a_policy_ends_with_a_character(tiny):
    table = tiny.session(kv_policy=KeyDiff(), **OPTIONS)._built.borrowed[0]
    for text in ("ä" * 400, "a" + "ä" * 400):

        def fail(lease, text=text):
            raise ValueError(text)

        error = ag._native.ffi.new("ag_error *")
        table.run(fail, error)
        message = ag._native.ffi.string(error.msg).decode()
        assert message.endswith("ä") and len(message.encode()) in (486, 487)


class Unprintable(Exception):
    def __str__(self):
        raise ValueError("no text")


@pytest.mark.parametrize("raised, text", [(ValueError("\udcff"), "ValueError: ?"), (Unprintable(), "Unprintable")])
def test_message_of_any_exception_is_stored(tiny, raised, text):
    table = tiny.session(kv_policy=KeyDiff(), **OPTIONS)._built.borrowed[0]

    def fail(lease):
        raise raised

    error = ag._native.ffi.new("ag_error *")
    assert table.run(fail, error) != 0
    assert ag._native.ffi.string(error.msg).decode().endswith(text)


def test_wrong_importance_is_rejected(tiny):
    class Wrong(ag.Policy):
        importance = "keys"

        def from_keys(self, layer):
            return np.zeros((2, 3))

    with pytest.raises(ag.PolicyError, match=r"\[3\] for head 0"):
        feed(tiny.session(kv_policy=Wrong(), **OPTIONS))


def test_views_die_when_the_call_returns(tiny):
    kept = []

    class KeepsLayer(KeyDiffByHead):
        def from_keys(self, layer):
            kept.append(layer)
            return super().from_keys(layer)

    feed(tiny.session(kv_policy=KeepsLayer(), **OPTIONS))
    with pytest.raises(ag.PolicyError, match="keep a copy"):
        _ = kept[0].heads[0].keys

    class KeepsArray(KeyDiffByHead):
        def from_keys(self, layer):
            kept.append(layer.heads[0].keys[3])
            return super().from_keys(layer)

    with pytest.raises(ag.PolicyError, match="keep a copy"):
        feed(tiny.session(kv_policy=KeepsArray(), **OPTIONS))
    kept.clear()


def test_incomplete_policies_are_rejected(tiny):
    class Nothing(ag.Policy):
        pass

    class NoKeys(ag.Policy):
        importance = "keys"

    for policy, message in ((Nothing(), "method select"), (NoKeys(), "method from_keys")):
        with pytest.raises(ag.InvalidError, match=message):
            tiny.session(kv_policy=policy)
    with pytest.raises(ag.InvalidError, match="must be one of none, sliding"):
        tiny.session(kv_policy="nonsense")


def test_policy_of_a_fork_and_after_the_session(tiny):
    session = tiny.session(kv_policy=KeyDiff(), **OPTIONS)
    session.prefill(ids_of(100))
    fork = session.fork()
    session.close()
    del session
    gc.collect()
    for token in ids_of(30):
        fork.decode(token)
    assert fork.evictions.n_evictions > 0


def test_policy_does_not_slow_generation_down_by_its_calls(tiny):
    """One call for each layer of an eviction."""
    calls = []

    class Counting(KeyDiff):
        def from_keys(self, layer):
            calls.append(layer.index)
            return super().from_keys(layer)

    session = feed(tiny.session(kv_policy=Counting(), **OPTIONS))
    assert len(calls) == 3 * session.evictions.n_evictions


def test_scores_must_be_numbers(tiny):
    class NotANumber(KeyDiff):
        def from_keys(self, layer):
            scores = super().from_keys(layer)
            scores[1, 5] = np.nan
            return scores

    with pytest.raises(ag.PolicyError, match="from_keys: the score of slot 5 of head 1 is NaN"):
        feed(tiny.session(kv_policy=NotANumber(), **OPTIONS))

    class Selects(ag.Policy):
        def select(self, layer):
            return [head.best(np.full(head.n_slots, np.nan)) for head in layer]

    with pytest.raises(ag.PolicyError, match="best: the score of slot .* is NaN"):
        feed(tiny.session(kv_policy=Selects(), **OPTIONS))


def test_views_cannot_be_written(tiny):
    class Writes(KeyDiff):
        def from_keys(self, layer):
            layer.keys[:] = 0
            return super().from_keys(layer)

    with pytest.raises(ag.PolicyError, match="read-only"):
        feed(tiny.session(kv_policy=Writes(), **OPTIONS))


def test_a_budget_needs_a_policy(tiny):
    with pytest.raises(ag.InvalidError, match="kv_budget needs a kv_policy"):
        tiny.session(kv_budget=64)


def test_what_is_no_policy_is_named(model):
    with pytest.raises(TypeError, match=r"kv_policy is the class KeyDiff: .* an instance: kv_policy=KeyDiff\(\)$"):
        model.session(kv_policy=KeyDiff)
    with pytest.raises(TypeError, match=r"kv_policy is 5 \(int\): it must be a name or a Policy$"):
        model.session(kv_policy=5)
