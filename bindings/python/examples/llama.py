# SPDX-License-Identifier: Apache-2.0
"""A program for llama-cpp-python, with another import."""

from libantigravity.llama import Llama
from libantigravity.store import demo_directory

llm = Llama(model_path=demo_directory(), n_ctx=2048, seed=1)
output = llm("Q: Name the planets in the solar system? A: ", max_tokens=32, stop=["Q:", "\n"], echo=True)
print(output["choices"][0]["text"], "(stop or length:", output["choices"][0]["finish_reason"] + ")")
