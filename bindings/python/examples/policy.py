# SPDX-License-Identifier: Apache-2.0
"""A cache policy in ten lines, against its twin in C: keeps the keys that differ most from the others."""

import numpy as np

import libantigravity as ag


class KeyDiff(ag.Policy):
    importance = "keys"
    prefill_block = 128

    def from_keys(self, layer):
        keys = layer.keys / np.linalg.norm(layer.keys, axis=-1, keepdims=True)
        mean = keys.mean(axis=1, keepdims=True)
        return -(keys * mean).sum(-1) / np.linalg.norm(mean, axis=-1)


model = ag.Model()
text = "The secret of Mia's red box is 512 green. " + "The fox ran over the hill. " * 60
slots = []
for policy in (KeyDiff(), "keydiff"):
    session = model.session(kv_policy=policy, kv_budget=128)
    session.prefill(text)
    slots.append([session.positions(layer) for layer in range(model.info.n_layers)])
print("slots are equal:", slots[0] == slots[1])
print("the first layer retains", slots[0][0][:12])
