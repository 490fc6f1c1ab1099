# SPDX-License-Identifier: Apache-2.0
"""In-process model of lm-evaluation-harness, registered as "antigravity".

    python -m libantigravity.lm_eval_model --model antigravity --model_args path=demo,kv_policy=h2o,kv_budget=512 ...

The remaining options are those of lm_eval. kv_policy may also be module:Class, a Policy.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from lm_eval.api.model import LM
from lm_eval.api.registry import register_model

from .model import Model
from .params import SessionParams
from .policy import Policy
from .session import Session


def _policy_of(name: str | None) -> str | Policy | None:
    if name is None or ":" not in name:
        return name
    module, _, kind = name.partition(":")
    return getattr(importlib.import_module(module), kind)()


@register_model("antigravity")
class AntigravityLM(LM):
    """Scores and generates with a cache policy."""

    def __init__(
        self,
        path: str = "demo",
        kv_policy: str | None = None,
        kv_budget: int | str | None = None,
        max_seq_len: int | str | None = None,
        backend: str = "cpu",
        weights: str = "auto",
        max_gen_toks: int | str = 256,
        batch_size: int | str = 1,
        max_batch_size: int | str | None = None,
        device: str | None = None,
    ) -> None:
        del batch_size, max_batch_size, device  # lm_eval passes them; a call is one at a time
        super().__init__()
        self._model = Model(path, backend=backend, weights=weights)
        self._params = SessionParams(
            max_seq_len=int(max_seq_len or self._model.info.max_positions),
            kv_policy=_policy_of(kv_policy),
            kv_budget=int(kv_budget) if kv_budget else None,
        )
        self._max_gen_toks = int(max_gen_toks)

    def _session(self) -> Session:
        return self._model.session(self._params)

    def _score(self, context: list[int], continuation: list[int]) -> tuple[float, bool]:
        """Return the log-probability of a continuation, and whether greedy decoding gives it."""
        with self._session() as session:
            session.prefill(context)
            scores = session.score(continuation)
        return float(scores.logprobs.sum()), bool(scores.is_greedy.all())

    def _pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Return the ids of context and continuation. Spaces at the end belong to the continuation."""
        stripped = context.rstrip()
        continuation = context[len(stripped) :] + continuation
        ids = self._model.tokenize(stripped + continuation)
        n = len(self._model.tokenize(stripped)) if stripped else 1
        return ids[:n], ids[n:]

    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
        return [self._score(*self._pair(*request.args)) for request in requests]

    def loglikelihood_rolling(self, requests: Sequence[Any]) -> list[float]:
        """Return the log-probability of each text, in windows of the context's length."""
        results = []
        for request in requests:
            ids = self._model.tokenize(request.args[0])
            size, total = int(self._params.max_seq_len or 0), 0.0
            for begin in range(1, len(ids), size - 1):
                with self._session() as session:
                    session.prefill(ids[begin - 1 : begin])
                    total += float(session.score(ids[begin : begin + size - 1]).logprobs.sum())
            results.append(total)
        return results

    def generate_until(self, requests: Sequence[Any]) -> list[str]:
        results = []
        for request in requests:
            context, options = request.args
            until = options.get("until") or []
            temperature = options.get("temperature", 0) if options.get("do_sample") else 0
            with self._session() as session:
                generation = session.generate(
                    context,
                    stop=[until] if isinstance(until, str) else until,
                    max_tokens=int(options.get("max_gen_toks", self._max_gen_toks)),
                    temperature=temperature,
                    repetition_penalty=1,
                )
                results.append(generation.text())
        return results


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
