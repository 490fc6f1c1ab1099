# SPDX-License-Identifier: Apache-2.0
"""Models of the tests: the bundled demo, and tiny models with recorded outputs."""

import os
import pathlib

import pytest

import libantigravity as ag

ROOT = pathlib.Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests/data/golden"
# Models with weights: the build makes those that weights.json describes.
GOLDEN_MODELS = pathlib.Path(os.environ.get("AG_GOLDEN_MODELS", ROOT / "build/release/golden-models"))
DEMO = ROOT / "models/demo"

CHATML = """{%- for m in messages -%}
<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}"""


@pytest.fixture(scope="session")
def model():
    return ag.Model(DEMO)


@pytest.fixture(scope="session")
def chat_model():
    return ag.Model(DEMO, chat_template=CHATML)


@pytest.fixture(scope="session")
def tiny():
    """Three layers with two KV heads each. Floats, whose rounding does not depend on the rows of a pass."""
    return ag.Model(GOLDEN_MODELS / "gqa-llama3rope-sharded", weights="f32")


def ids_of(n, n_vocab=300):
    """Return n fixed token ids."""
    return [3 + (i * 7 + i * i % 61) % (n_vocab - 10) for i in range(n)]
