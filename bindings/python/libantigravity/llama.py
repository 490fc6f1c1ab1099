# SPDX-License-Identifier: Apache-2.0
"""Llama: the interface of llama-cpp-python over `Model`.

Programs for llama-cpp-python replace `from llama_cpp import Llama` by
`from libantigravity.llama import Llama`. Arguments that this class does not have raise TypeError.
"""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from . import errors
from .chat_formats import template_of
from .generation import Generation, TokenReport
from .model import Model
from .params import SessionParams

# Types of ggml that a cache can have.
_CACHE_TYPES = {0: "f32", 1: "f16", 2: "q4_0", 8: "q8_0"}
_RANDOM_SEED = 0xFFFFFFFF


def _cache_type(value: int | str | None, name: str) -> str:
    if value is None:
        return "f16"
    if isinstance(value, str):
        return value
    if value not in _CACHE_TYPES:
        raise errors.InvalidError(f"{name} is {value}: a cache can have the types {_CACHE_TYPES}")
    return _CACHE_TYPES[value]


class Llama:
    """A model with llama-cpp-python's methods."""

    def __init__(
        self,
        model_path: str,
        *,
        n_ctx: int = 512,
        n_gpu_layers: int = 0,
        n_threads: int | None = None,
        n_batch: int = 512,
        seed: int = _RANDOM_SEED,
        chat_format: str | None = None,
        embedding: bool = False,
        logits_all: bool = False,
        type_k: int | str | None = None,
        type_v: int | str | None = None,
        verbose: bool = True,
        use_mmap: bool = True,
        use_mlock: bool = False,
        flash_attn: bool = False,
    ) -> None:
        """Load a model.

        n_ctx         tokens of the context; 0: the trained length
        n_gpu_layers  not 0: the OpenCL backend, which must exist
        n_batch       tokens of a prefill step
        chat_format   a name of chat_formats.TEMPLATES; None: the model's template

        embedding, logits_all, verbose, use_mmap, use_mlock and flash_attn have no effect: every model
        can embed, and attention is always computed without a matrix of scores.
        """
        params = SessionParams(
            max_seq_len=n_ctx or None,
            prefill_chunk=n_batch,
            k_type=_cache_type(type_k, "type_k"),
            v_type=_cache_type(type_v, "type_v"),
        )
        self.model_path = model_path
        self._model = Model(
            model_path,
            backend="opencl" if n_gpu_layers else "cpu",
            threads=n_threads or 0,
            session=params,
            chat_template=None if chat_format is None else template_of(chat_format),
        )
        self._n_ctx = n_ctx or self._model.info.max_positions
        self._model._session_params = dataclasses.replace(params, max_seq_len=self._n_ctx)
        self._seed = None if seed == _RANDOM_SEED else seed

    def _sampling(self, options: Mapping[str, Any], seed: int | None, repeat_penalty: float) -> dict[str, Any]:
        return {
            **options,
            "repetition_penalty": repeat_penalty,
            "seed": self._seed if seed is None else seed,
        }

    # ---- text ----

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> list[int]:
        return self._model.tokenize(text.decode(), bos=add_bos, special=special)

    def detokenize(self, tokens: Sequence[int], special: bool = False) -> bytes:
        return self._model.detokenize(tokens, special=special).encode()

    # ---- completions ----

    def create_completion(
        self,
        prompt: str | Sequence[int],
        max_tokens: int | None = 16,
        temperature: float = 0.8,
        top_p: float = 0.95,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        echo: bool = False,
        stop: str | Sequence[str] | None = (),
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        repeat_penalty: float = 1.0,
        top_k: int = 40,
        stream: bool = False,
        seed: int | None = None,
        logit_bias: Mapping[int, float] | None = None,
        logprobs: int | None = None,
    ) -> Any:
        """Complete a prompt: a text_completion, or an iterator of them with `stream`.

        max_tokens None or below 1 is no limit. logprobs: number of the most likely tokens that are
        reported for each token; those of the prompt are not, so it excludes echo.
        """
        if logprobs is False:
            logprobs = None
        if echo and logprobs is not None:
            raise errors.UnsupportedError("logprobs with echo: tokens of a prompt have no log-probabilities here")
        options = {
            "temperature": temperature,
            "top_p": top_p,
            "min_p": min_p,
            "typical_p": typical_p,
            "frequency_penalty": frequency_penalty,
            "presence_penalty": presence_penalty,
            "top_k": max(top_k, 0),
            "logit_bias": logit_bias,
        }
        ids = self._model._ids(prompt, bos=True)
        generation = self._model.generate(
            ids,
            max_tokens=max_tokens if max_tokens and max_tokens > 0 else -1,
            stop=stop or (),
            logprobs=logprobs,
            **self._sampling(options, seed, repeat_penalty),
        )
        needs_text = echo or logprobs is not None
        prefix = prompt if isinstance(prompt, str) else self._model.detokenize(ids) if needs_text else ""
        lists = _LogprobLists(self._model, generation, len(prefix))
        if not echo:
            prefix = ""
        head = {
            "id": f"cmpl-{uuid.uuid4()}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": self.model_path,
        }
        if stream:
            return _completion_chunks(head, generation, prefix, lists)
        text = prefix + generation.text()
        n_prompt, n = len(ids), generation.stats.n_generated
        usage = {"prompt_tokens": n_prompt, "completion_tokens": n, "total_tokens": n_prompt + n}
        return {**head, "choices": [_text_choice(text, generation.stats.finish_reason, lists.take())], "usage": usage}

    __call__ = create_completion

    def create_chat_completion(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        temperature: float = 0.2,
        top_p: float = 0.95,
        top_k: int = 40,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        stream: bool = False,
        stop: str | Sequence[str] | None = (),
        seed: int | None = None,
        response_format: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        repeat_penalty: float = 1.0,
        logit_bias: Mapping[int, float] | None = None,
        logprobs: bool | None = None,
        top_logprobs: int | None = None,
    ) -> Any:
        """Answer a conversation: a chat.completion, or an iterator of chunks with `stream`."""
        options = {
            "temperature": temperature,
            "top_p": top_p,
            "top_k": max(top_k, 0),
            "min_p": min_p,
            "typical_p": typical_p,
            "presence_penalty": presence_penalty,
            "frequency_penalty": frequency_penalty,
            "logit_bias": logit_bias,
        }
        return self._model.chat(  # type: ignore[call-overload,misc]
            messages,
            stream=stream,
            tools=tools,
            tool_choice=tool_choice or "auto",
            response_format=response_format,
            max_tokens=max_tokens if max_tokens and max_tokens > 0 else None,
            stop=stop,
            logprobs=bool(logprobs),
            top_logprobs=top_logprobs,
            **self._sampling(options, seed, repeat_penalty),
        )

    # ---- embeddings ----

    def embed(self, input: str | Sequence[str], normalize: bool = True) -> Any:
        """Return the embedding of a text as a list, or a list of them."""
        if not normalize:
            raise errors.UnsupportedError("normalize=False: embeddings have length 1")
        return self._model.embed(input).tolist()

    def create_embedding(self, input: str | Sequence[str], model: str | None = None) -> dict[str, Any]:
        """Return embeddings in OpenAI's shape."""
        texts = [input] if isinstance(input, str) else list(input)
        rows = self.embed(texts)
        data = [{"object": "embedding", "embedding": row, "index": i} for i, row in enumerate(rows)]
        n = sum(len(self._model.tokenize(text)) for text in texts)
        usage = {"prompt_tokens": n, "total_tokens": n}
        return {"object": "list", "data": data, "model": model or self.model_path, "usage": usage}

    # ---- properties ----

    def n_ctx(self) -> int:
        return self._n_ctx

    def n_vocab(self) -> int:
        return self._model.info.n_vocab

    def token_bos(self) -> int:
        return self._model.info.bos_id

    def token_eos(self) -> int:
        return self._model.info.eos_ids[0] if self._model.info.eos_ids else -1

    def reset(self) -> None:
        """Forget the tokens that the last call left in the cache."""
        self._model._free_sessions.clear()

    def close(self) -> None:
        self._model.close()


class _LogprobLists:
    """Log-probabilities of a completion's tokens in OpenAI's older shape, each token once."""

    def __init__(self, model: Model, generation: Generation, offset: int) -> None:
        self._report = TokenReport(model, generation)
        self._offset = offset  # characters before the next token

    def take(self) -> dict[str, Any] | None:
        """Return the tokens since the last call; None if there are none."""
        entries = self._report.take()
        if not entries:
            return None
        offsets = []
        for text, _, _ in entries:
            offsets.append(self._offset)
            self._offset += len(text)
        return {
            "tokens": [text for text, _, _ in entries],
            "text_offset": offsets,
            "token_logprobs": [logprob for _, logprob, _ in entries],
            "top_logprobs": [dict(top) for _, _, top in entries],
        }


def _text_choice(text: str, finish_reason: str | None, logprobs: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"text": text, "index": 0, "logprobs": logprobs, "finish_reason": finish_reason}


def _completion_chunks(
    head: dict[str, Any], generation: Generation, prefix: str, lists: _LogprobLists
) -> Iterator[dict[str, Any]]:
    with generation as pieces:
        if prefix:
            yield {**head, "choices": [_text_choice(prefix, None)]}
        for piece in pieces:
            yield {**head, "choices": [_text_choice(piece, None, lists.take())]}
        yield {**head, "choices": [_text_choice("", generation.stats.finish_reason, lists.take())]}


__all__ = ["Llama"]
