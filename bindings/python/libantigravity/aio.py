# SPDX-License-Identifier: Apache-2.0
"""asyncio forms: the calls of a Model that compute, as coroutines and asynchronous iterators.

    model = aio.AsyncModel(ag.Model())
    async for piece in model.generate("Once upon a time"):
        print(piece, end="")

Cancelling a task cancels its work.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from . import chat as _chat
from .generation import Generation
from .model import Model
from .session import Session, StepItem, StepResult

if TYPE_CHECKING:
    from ._arrays import Floats
    from .session import Scores

T = TypeVar("T")


async def _in_thread(function: Callable[[], T], cancel: Callable[[], Any]) -> T:
    """Run a call that waits for the engine on a thread. Cancelling the task calls `cancel`."""
    try:
        return await asyncio.to_thread(function)
    except asyncio.CancelledError:
        cancel()
        raise


async def _iterate(pieces: Iterator[T], close: Callable[[], Any]) -> AsyncIterator[T]:
    """Yield the items of an iterator that waits for the engine."""
    end = object()
    try:
        while (item := await asyncio.to_thread(next, pieces, end)) is not end:
            yield item  # type: ignore[misc]
    finally:
        close()


class AsyncSession:
    """A Session whose calls are coroutines."""

    def __init__(self, session: Session) -> None:
        self.session = session

    async def _run(self, function: Callable[[], T]) -> T:
        return await _in_thread(function, self.session.cancel)

    async def prefill(self, tokens: str | Sequence[int]) -> Floats:
        return await self._run(lambda: self.session.prefill(tokens))

    async def decode(self, token: int) -> Floats:
        return await self._run(lambda: self.session.decode(token))

    async def score(self, tokens: str | Sequence[int]) -> Scores:
        return await self._run(lambda: self.session.score(tokens))

    def generate(self, prompt: str | Sequence[int] = (), **options: Any) -> AsyncIterator[str]:
        generation = self.session.generate(prompt, **options)
        return _iterate(generation, generation.cancel)


class AsyncModel:
    """A Model whose calls are coroutines."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def session(self, **options: Any) -> AsyncSession:
        return AsyncSession(self.model.session(**options))

    def generate(self, prompt: str | Sequence[int], **options: Any) -> AsyncIterator[str]:
        """Yield the pieces of a generated text: see Model.generate."""
        generation: Generation = self.model.generate(prompt, **options)
        return _iterate(generation, generation.cancel)

    async def chat(self, messages: Sequence[_chat.Message], **options: Any) -> _chat.Completion:
        """Return the answer to a conversation: see Model.chat."""
        answer = self.model._answer(messages, **options)
        return await _in_thread(answer.completion, answer.cancel)

    def chat_stream(self, messages: Sequence[_chat.Message], **options: Any) -> AsyncIterator[Mapping[str, Any]]:
        """Yield the chunks of an answer."""
        answer = self.model._answer(messages, **options)
        return _iterate(answer.chunks(), answer.cancel)

    async def embed(self, texts: str | Sequence[str]) -> Floats:
        return await asyncio.to_thread(self.model.embed, texts)

    async def step(self, items: Sequence[StepItem | tuple[Any, ...]]) -> list[StepResult]:
        return await asyncio.to_thread(self.model.step, items)
