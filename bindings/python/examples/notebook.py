# SPDX-License-Identifier: Apache-2.0
"""A notebook as a script: perplexity, a policy against its twin, keys and values as tensors."""

# %% Perplexity with all slots
import numpy as np

import libantigravity as ag

model = ag.Model()
text = model.generate("Once upon a time", max_tokens=600, seed=5, ignore_eos=True).text()


def perplexity(**options):
    logprobs = model.session(**options).score(text).logprobs[1:]
    return float(np.exp(-logprobs.mean()))


print(f"all slots: {perplexity():.3f}")


# %% The same with a quarter of the slots
class KeyDiff(ag.Policy):
    importance = "keys"
    prefill_block = 128

    def from_keys(self, layer):
        keys = layer.keys / np.linalg.norm(layer.keys, axis=-1, keepdims=True)
        mean = keys.mean(axis=1, keepdims=True)
        return -(keys * mean).sum(-1) / np.linalg.norm(mean, axis=-1)


for policy in (KeyDiff(), "keydiff", "streaming", "h2o"):
    name = policy if isinstance(policy, str) else "KeyDiff in NumPy"
    print(f"{name}: {perplexity(kv_policy=policy, kv_budget=128, prefill='bounded'):.3f}")

# %% Keys and values of one head
session = model.session()
session.prefill(text)
keys, values = session.kv(layer=3, head=1)
print("keys", keys.shape, "values", values.shape)
try:
    import torch

    print("largest cosine:", torch.nn.functional.normalize(torch.from_numpy(keys)).cov().max().item())
except ImportError:
    print("largest norm:", np.linalg.norm(keys, axis=1).max())
