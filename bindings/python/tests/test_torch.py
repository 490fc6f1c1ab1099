# SPDX-License-Identifier: Apache-2.0
"""Arrays become tensors without a copy. Skipped where torch is not installed."""

import numpy as np
import pytest
from conftest import ids_of

import libantigravity as ag

torch = pytest.importorskip("torch")


def is_same_memory(tensor, array):
    return tensor.data_ptr() == array.ctypes.data


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_results_become_tensors_without_a_copy(tiny):
    session = tiny.session(k_type="f32", v_type="f32")
    logits = session.prefill(ids_of(12))
    tensor = torch.from_numpy(logits)
    assert is_same_memory(tensor, logits) and tensor.dtype == torch.float32
    session.decode(5)
    np.testing.assert_array_equal(tensor.numpy(), session.logits)  # it follows the session
    for array in session.kv(layer=1, head=1):
        assert is_same_memory(torch.from_numpy(array), array)
    result = tiny.step([ag.StepItem(session, ids_of(3), logits="all", hidden=True)])[0]
    for array in (result.logits, result.hidden):
        assert is_same_memory(torch.from_numpy(array), array)


def test_policy_in_torch_retains_the_slots_of_its_twin(tiny):
    class KeyDiff(ag.Policy):
        importance = "keys"
        prefill_block = 128

        def from_keys(self, layer):
            keys = torch.nn.functional.normalize(torch.from_numpy(layer.keys), dim=-1)
            return -torch.nn.functional.cosine_similarity(keys, keys.mean(1, keepdim=True), dim=-1).numpy()

    slots = []
    for policy in (KeyDiff(), "keydiff"):
        session = tiny.session(kv_policy=policy, kv_budget=64, recent=8)
        session.prefill(ids_of(300))
        slots.append([session.positions(layer, head) for layer in range(3) for head in range(2)])
    assert slots[0] == slots[1]
