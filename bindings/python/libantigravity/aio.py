# SPDX-License-Identifier: Apache-2.0
"""asyncio forms: the calls of a Model that compute, as coroutines and asynchronous iterators.

    model = aio.AsyncModel(ag.Model())
    async for piece in model.generate("Once upon a time"):
        print(piece, end="")

The work of an iterator begins with its first item. Cancelling a task cancels its work.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from . import chat as _chat
from ._engine import Scope
from .model import Model
from .session import Session, StepItem, StepResult

if TYPE_CHECKING:
    from ._arrays import Floats
    from .session import Scores
    from .stats import CompressionStats

T = TypeVar("T")


async def _in_thread(function: Callable[[], T]) -> T:
    """Run a call that waits for the engine on a thread. Cancelling the task cancels it."""
    scope = Scope()
    try:
        return await asyncio.to_thread(scope.run, function)
    except asyncio.CancelledError:
        scope.cancel()
        raise


async def _iterate(begin: Callable[[], Iterator[T]]) -> AsyncIterator[T]:
    """Yield the items of an iterator that waits for the engine. `begin` makes it, on a thread."""
    end, scope = object(), Scope()
    try:
        pieces = await asyncio.to_thread(scope.run, begin)
        while (item := await asyncio.to_thread(next, pieces, end)) is not end:
            yield item  # type: ignore[misc]
    finally:
        scope.cancel()


class AsyncSession:
    """A Session whose calls are coroutines."""

    def __init__(self, session: Session) -> None:
        self.session = session

    async def prefill(self, tokens: str | Sequence[int]) -> Floats:
        return await _in_thread(lambda: self.session.prefill(tokens))

    async def decode(self, token: int) -> Floats:
        return await _in_thread(lambda: self.session.decode(token))

    async def score(self, tokens: str | Sequence[int]) -> Scores:
        return await _in_thread(lambda: self.session.score(tokens))

    async def compress(self, keep_ratio: float = 0.0, keep_tokens: int = 0, **options: Any) -> CompressionStats:
        return await _in_thread(lambda: self.session.compress(keep_ratio, keep_tokens, **options))

    def generate(self, prompt: str | Sequence[int] = (), **options: Any) -> AsyncIterator[str]:
        return _iterate(lambda: self.session.generate(prompt, **options))


class AsyncModel:
    """A Model whose calls are coroutines."""

    def __init__(self, model: Model) -> None:
        self.model = model

    async def session(self, **options: Any) -> AsyncSession:
        return AsyncSession(await _in_thread(lambda: self.model.session(**options)))

    def generate(self, prompt: str | Sequence[int], **options: Any) -> AsyncIterator[str]:
        """Yield the pieces of a generated text: see Model.generate."""
        return _iterate(lambda: self.model.generate(prompt, **options))

    async def chat(self, messages: Sequence[_chat.Message], **options: Any) -> _chat.Completion:
        """Return the answer to a conversation: see Model.chat."""
        return await _in_thread(lambda: self.model._answer(messages, **options).completion())

    def chat_stream(self, messages: Sequence[_chat.Message], **options: Any) -> AsyncIterator[Mapping[str, Any]]:
        """Yield the chunks of an answer."""
        return _iterate(lambda: self.model._answer(messages, **options).chunks())

    async def embed(self, texts: str | Sequence[str]) -> Floats:
        return await _in_thread(lambda: self.model.embed(texts))

    async def step(self, items: Sequence[StepItem | tuple[Any, ...]]) -> list[StepResult]:
        return await _in_thread(lambda: self.model.step(items))
