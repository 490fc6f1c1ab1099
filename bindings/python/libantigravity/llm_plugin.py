# SPDX-License-Identifier: Apache-2.0
"""Plugin of the command `llm` (https://llm.datasette.io): `llm -m antigravity/demo "..."`.

The models are the bundled demo and those of the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import llm

from . import errors, store
from .model import Model

_loaded: dict[str, Model] = {}


def _model_of(name: str) -> Model:
    if name not in _loaded:
        _loaded[name] = Model(name)
    return _loaded[name]


@llm.hookimpl
def register_models(register: Any) -> None:
    for name in ["demo", *map(store.name_of, store.models())]:
        register(AntigravityModel(name))


class AntigravityModel(llm.Model):
    """A model of the store, loaded at its first prompt."""

    can_stream = True
    supports_schema = True

    class Options(llm.Options):
        temperature: float | None = None
        top_p: float | None = None
        top_k: int | None = None
        max_tokens: int | None = None
        seed: int | None = None

    def __init__(self, name: str) -> None:
        self.name = name
        self.model_id = f"antigravity/{name}"

    def _messages(self, prompt: Any, conversation: Any) -> list[dict[str, str]]:
        messages = [{"role": "system", "content": prompt.system}] if prompt.system else []
        for response in conversation.responses if conversation else []:
            messages.append({"role": "user", "content": response.prompt.prompt})
            messages.append({"role": "assistant", "content": response.text()})
        return [*messages, {"role": "user", "content": prompt.prompt}]

    def execute(self, prompt: Any, stream: bool, response: Any, conversation: Any = None) -> Iterator[str]:
        """Yield the pieces of the answer. Models without a chat template continue the prompt."""
        model = _model_of(self.name)
        options = {k: v for k, v in prompt.options.model_dump().items() if v is not None}
        if prompt.schema:
            schema = {"name": "schema", "schema": prompt.schema}
            options["response_format"] = {"type": "json_schema", "json_schema": schema}
        try:
            chunks = model.chat(self._messages(prompt, conversation), stream=True, **options)
        except errors.NotFoundError:
            yield from model.generate(prompt.prompt, **options)
            return
        for chunk in chunks:
            yield chunk["choices"][0]["delta"].get("content", "")

    def __str__(self) -> str:
        return f"Antigravity: {self.name}"
