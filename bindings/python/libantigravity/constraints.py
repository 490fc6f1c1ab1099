# SPDX-License-Identifier: Apache-2.0
"""Constraints: restrict a generation to texts that match a schema, a grammar, ..."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from . import errors
from ._native import call, create, ffi, lib

Format = Mapping[str, Any]


def make_params(kind: int) -> Any:
    """Return ag_constraint_params. Objects have only the properties that their schema names, as in the program."""
    params = ffi.new("ag_constraint_params *")
    params[0] = lib.ag_constraint_defaults(kind)
    params.closed_objects = True
    return params


class Vocabulary:
    """An ag_constraint_vocab: a tokenizer prepared for constraints."""

    def __init__(self, tokenizer: Any, n_vocab: int, eos_ids: tuple[int, ...]) -> None:
        self._tokenizer = tokenizer
        self.pointer = ffi.gc(
            create(
                lib.ag_constraint_vocab_create,
                "ag_constraint_vocab",
                tokenizer,
                n_vocab,
                list(eos_ids),
                len(eos_ids),
            ),
            lib.ag_constraint_vocab_destroy,
        )

    def constraint(self, kind: int, text: str = "", choices: list[str] | None = None, chat: Any = None) -> Any:
        """Return an ag_constraint, which is destroyed with the returned object.

        chat: an ag_chat, whose answer may have other parts, such as reasoning, that stay free.
        """
        params = make_params(kind)
        encoded = ffi.from_buffer("char[]", text.encode())
        params.text, params.len = encoded, len(text.encode())
        texts = [ffi.new("char[]", c.encode()) for c in choices or []]
        array = ffi.new("char *[]", texts)
        params.choices, params.n_choices = ffi.cast("const char *const *", array), len(texts)
        made = ffi.NULL
        if chat is not None:
            made = create(lib.ag_chat_constrain_content, "ag_constraint", chat, self.pointer, params)
        if made == ffi.NULL:
            made = create(lib.ag_constraint_create, "ag_constraint", self.pointer, params)
        return self.own(made)

    def own(self, constraint: Any) -> Any:
        """Return the constraint, destroyed before this vocabulary is."""
        return ffi.gc(constraint, lambda c, _=self.pointer: lib.ag_constraint_destroy(c))


def from_format(vocabulary: Vocabulary, response_format: Format | None, chat: Any = None) -> Any:
    """Return the constraint of a response format; None: the text is free. chat: as for Vocabulary.constraint().

    The formats are OpenAI's {"type": "text"}, {"type": "json_object"} (also with a "schema") and
    {"type": "json_schema", "json_schema": {"schema": ...}}, and {"type": "regex", "regex": ...},
    {"type": "grammar", "grammar": ...} (GBNF) and {"type": "choices", "choices": [...]}.
    """
    kind = response_format.get("type", "text") if response_format else "text"
    if response_format is None or kind == "text":
        return None
    try:
        schema = response_format["json_schema"]["schema"] if kind == "json_schema" else None
        if kind == "json_object":
            schema = response_format.get("schema")
        if schema is not None:
            return vocabulary.constraint(lib.AG_CONSTRAINT_JSON_SCHEMA, json.dumps(schema), chat=chat)
        if kind == "json_object":
            return vocabulary.constraint(lib.AG_CONSTRAINT_JSON_OBJECT, chat=chat)
        if kind == "regex":
            return vocabulary.constraint(lib.AG_CONSTRAINT_REGEX, response_format["regex"], chat=chat)
        if kind == "grammar":
            return vocabulary.constraint(lib.AG_CONSTRAINT_GRAMMAR, response_format["grammar"], chat=chat)
        if kind == "choices":
            return vocabulary.constraint(lib.AG_CONSTRAINT_CHOICES, choices=list(response_format["choices"]), chat=chat)
    except KeyError as e:
        raise errors.InvalidError(f"response_format of type '{kind}': {e} is missing") from None
    raise errors.InvalidError(f"response_format has the type '{kind}', which does not exist")


def attach(sampler: Any, constraint: Any) -> None:
    if constraint is not None:
        call(lib.ag_sampler_constrain, sampler, constraint)
