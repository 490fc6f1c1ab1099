# SPDX-License-Identifier: Apache-2.0
"""Chats in the shapes of OpenAI's interface: messages in, completions or chunks out."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import constraints, errors
from ._native import IdBuffer, TextBuffer, call, create, ffi, lib
from .generation import Generation, TokenReport

if TYPE_CHECKING:
    from .model import Model

Message = Mapping[str, Any]
Tool = Mapping[str, Any]
Completion = dict[str, Any]
Chunk = dict[str, Any]


class Conversation:
    """A rendered conversation: prompt ids, a constraint of the answer, and the answer's parser."""

    def __init__(
        self,
        model: Model,
        messages: Sequence[Message],
        tools: Sequence[Tool] | None,
        tool_choice: str | Mapping[str, Any] | None,
        response_format: constraints.Format | None,
        variables: Mapping[str, Any] | None,
    ) -> None:
        chat_format = model._chat_format()
        self._chat = ffi.gc(create(lib.ag_chat_create, "ag_chat", chat_format), lib.ag_chat_destroy)
        self._format = chat_format
        self._call_json(lib.ag_chat_set_messages, list(messages))
        if tools:
            self._call_json(lib.ag_chat_set_tools, list(tools))
        for name, value in (variables or {}).items():
            text = json.dumps(value).encode()
            call(lib.ag_chat_set_variable, self._chat, name.encode(), text, len(text))
        required = _required_tool(tool_choice, tools)
        ids, flags = IdBuffer(), lib.AG_CHAT_NO_CALLS if tool_choice == "none" else 0
        call(lib.ag_chat_render, self._chat, flags, ids.pointer, ffi.NULL)
        self.constraint: Any = None
        if required is not None:
            self.constraint = self._require_call(model, required, ids)
        elif response_format and response_format.get("type") != "text":
            self.constraint = constraints.from_format(model._vocabulary(), response_format, self._chat)
        elif tools and tool_choice != "none":
            self.constraint = self._constrain_calls(model)
        self.ids = ids.list()
        self._parser = ffi.gc(
            create(lib.ag_chat_parser_create, "ag_chat_parser", self._chat),
            lib.ag_chat_parser_destroy,
        )

    def _call_json(self, function: Any, value: Any) -> None:
        text = json.dumps(value).encode()
        call(function, self._chat, text, len(text))

    def _require_call(self, model: Model, name: str, ids: IdBuffer) -> Any:
        grammar = TextBuffer()
        wanted = name.encode() if name else ffi.NULL
        call(lib.ag_chat_require_call, self._chat, wanted, 0, ids.pointer, grammar.pointer)
        return model._vocabulary().constraint(lib.AG_CONSTRAINT_GRAMMAR, str(grammar))

    def _constrain_calls(self, model: Model) -> Any:
        vocabulary = model._vocabulary()
        limits = constraints.make_params(lib.AG_CONSTRAINT_GRAMMAR)
        flags = lib.AG_CHAT_SEVERAL_CALLS
        constraint = create(
            lib.ag_chat_constrain_calls,
            "ag_constraint",
            self._chat,
            vocabulary.pointer,
            limits,
            flags,
        )
        return None if constraint == ffi.NULL else vocabulary.own(constraint)

    def stops(self) -> list[str]:
        """Return the texts that end an answer. A constraint determines the end itself."""
        if self.constraint is not None:
            return []
        n = ffi.new("size_t *")
        texts = lib.ag_chat_format_stops(self._format, n)
        return [ffi.string(texts[i]).decode() for i in range(n[0])]

    def push(self, text: str) -> list[dict[str, Any]]:
        """Parse more text of the answer. Return its deltas."""
        encoded = text.encode()
        call(lib.ag_chat_parser_push, self._parser, encoded, len(encoded))
        return self._deltas()

    def finish(self) -> list[dict[str, Any]]:
        """End the answer. Return its last deltas."""
        call(lib.ag_chat_parser_finish, self._parser)
        return self._deltas()

    def _deltas(self) -> list[dict[str, Any]]:
        delta, out = ffi.new("ag_chat_delta *"), []
        while lib.ag_chat_parser_next(self._parser, delta):
            out.append(_delta_of(delta))
        return out

    def message(self) -> dict[str, Any]:
        """Return the answer as a message."""
        text = TextBuffer()
        call(lib.ag_chat_parser_message, self._parser, text.pointer)
        message: dict[str, Any] = json.loads(text.bytes())
        message.setdefault("content", None)
        return message

    @property
    def n_calls(self) -> int:
        return int(lib.ag_chat_parser_n_calls(self._parser))


def _required_tool(tool_choice: str | Mapping[str, Any] | None, tools: Any) -> str | None:
    """Return the name of the tool that must be called, "" for any, None if none must be."""
    if tool_choice in (None, "auto", "none"):
        return None
    if not tools:
        raise errors.InvalidError("tool_choice needs tools")
    if tool_choice == "required":
        return ""
    try:
        return str(tool_choice["function"]["name"])  # type: ignore[index]
    except (KeyError, TypeError):
        raise errors.InvalidError(
            f"tool_choice is {tool_choice!r}: it must be 'auto', 'none', 'required' or "
            "{'type': 'function', 'function': {'name': ...}}"
        ) from None


def _delta_of(c: Any) -> dict[str, Any]:
    text = bytes(ffi.buffer(c.text, c.len)).decode("utf-8", "replace") if c.len else ""
    if c.kind == lib.AG_CHAT_DELTA_CONTENT:
        return {"content": text}
    if c.kind == lib.AG_CHAT_DELTA_REASONING:
        return {"reasoning_content": text}
    tool_call: dict[str, Any] = {"index": c.call, "function": {"arguments": text}}
    if c.kind == lib.AG_CHAT_DELTA_CALL:
        tool_call["id"] = ffi.string(c.id).decode()
        tool_call["type"] = "function"
        tool_call["function"] = {"name": ffi.string(c.name).decode(), "arguments": ""}
    return {"tool_calls": [tool_call]}


def _token_object(text: str, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}


class Answer:
    """The answer to a conversation."""

    def __init__(self, model: Model, conversation: Conversation, generation: Generation) -> None:
        self._conversation = conversation
        self._generation = generation
        self._report = TokenReport(model, generation)
        self._head = {
            "id": f"chatcmpl-{uuid.uuid4()}",
            "created": int(time.time()),
            "model": model.name,
        }

    def cancel(self) -> None:
        """Stop the work."""
        self._generation.cancel()

    def _logprobs(self) -> dict[str, Any] | None:
        """Return those of the tokens since the last call; None if the call did not request any."""
        if not self._generation.has_logprobs:
            return None
        content = [
            {**_token_object(text, logprob), "top_logprobs": [_token_object(*pair) for pair in top]}
            for text, logprob, top in self._report.take()
        ]
        return {"content": content, "refusal": None}

    def _finish_reason(self) -> str:
        if self._conversation.n_calls:
            return "tool_calls"
        return self._generation.stats.finish_reason

    def completion(self) -> Completion:
        """Wait for the answer and return it as a chat.completion."""
        for piece in self._generation:
            self._conversation.push(piece)
        self._conversation.finish()
        n_prompt, n = len(self._conversation.ids), self._generation.stats.n_generated
        choice = {
            "index": 0,
            "message": self._conversation.message(),
            "logprobs": self._logprobs(),
            "finish_reason": self._finish_reason(),
        }
        usage = {"prompt_tokens": n_prompt, "completion_tokens": n, "total_tokens": n_prompt + n}
        return {**self._head, "object": "chat.completion", "choices": [choice], "usage": usage}

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> Chunk:
        logprobs = self._logprobs() if "role" not in delta else None
        if logprobs and not logprobs["content"]:
            logprobs = None  # of a later part of the same piece
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice]}

    def chunks(self) -> Iterator[Chunk]:
        """Yield the answer as chat.completion.chunk objects. Closing the iterator stops the work."""
        with self._generation as pieces:
            yield self._chunk({"role": "assistant"})
            for piece in pieces:
                for delta in self._conversation.push(piece):
                    yield self._chunk(delta)
            for delta in self._conversation.finish():
                yield self._chunk(delta)
            yield self._chunk({}, self._finish_reason())
