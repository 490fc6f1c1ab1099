# SPDX-License-Identifier: Apache-2.0
"""Tells a story and continues a chat."""

import libantigravity as ag

model = ag.Model()
for piece in model.generate("Once upon a time", max_tokens=60, seed=1):
    print(piece, end="", flush=True)
print()

session = model.session()
logits = session.prefill("The old king had three")
token = int(logits.argmax())
print(repr(model.detokenize([token])), session.position)
