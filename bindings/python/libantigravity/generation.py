# SPDX-License-Identifier: Apache-2.0
"""Generation: an iterator over the text that a session generates."""

from __future__ import annotations

import codecs
import queue
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from . import stats
from ._engine import Handle
from ._native import call, ffi, ids_array, lib

if TYPE_CHECKING:
    from .session import Session

Prepare = Callable[[Any], Sequence[int]]  # gets the ag_session


class Request:
    """What to generate: the prompt, where to stop, and objects of the library that must stay alive."""

    def __init__(
        self,
        session: Session,
        prompt: Prepare,
        sampler: Any,
        *,
        max_tokens: int = 128,
        stop: Sequence[str] = (),
        ignore_eos: bool = False,
        keep_special: bool = False,
        keep_alive: Sequence[Any] = (),
    ) -> None:
        self.session = session
        self.prompt = prompt  # runs on the engine's thread before the generation
        self.sampler = sampler
        self.max_tokens = max_tokens
        self.stop = [ffi.new("char[]", text.encode()) for text in stop]
        self.ignore_eos = ignore_eos
        self.keep_special = keep_special
        self.keep_alive = keep_alive


def _generate(request: Request, handle: Handle, out: queue.SimpleQueue[Any], ids: list[int]) -> stats.GenerationStats:
    """Run a generation on the engine's thread."""
    session = request.session
    result = ffi.new("ag_generate_stats *")
    params = ffi.new("ag_generate_params *")
    params[0] = lib.ag_generate_defaults()

    @ffi.callback("bool(void *, int32_t, const char *, size_t)", error=False)
    def on_token(_user: Any, token: int, text: Any, n: int) -> bool:
        if token >= 0:
            ids.append(token)
        out.put(bytes(ffi.buffer(text, n)) if n else b"")
        return True

    stops = ffi.new("char *[]", request.stop)
    params.max_tokens = request.max_tokens
    params.ignore_eos = request.ignore_eos
    params.stop, params.n_stop = ffi.cast("const char *const *", stops), len(request.stop)
    params.sampler, params.tokenizer = request.sampler, session._model._tokenizer
    params.keep_special = request.keep_special
    params.on_token = on_token

    prompt = list(request.prompt(handle.pointer))
    array = ids_array(prompt)
    session._consume(
        handle,
        lambda s: call(lib.ag_session_generate, s, array, len(prompt), params, result),
        lambda: prompt + ids,
    )
    session._unfed = result.last_id if result.last_id >= 0 else None
    return stats.generation_stats(result)


class Generation(Iterator[str]):
    """Pieces of a generated text, in order. Each piece consists of complete characters.

    The work begins at once on the engine's thread. Closing the iterator, or dropping it, stops it
    within one layer; an interrupt while waiting does too. Complete tokens stay in the session.
    """

    def __init__(self, request: Request, finished: Callable[[], None] | None = None) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._ids: list[int] = []
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        out, ids, handle = self._queue, self._ids, request.session._open()
        self._engine = request.session._engine
        self._job = self._engine.submit(
            lambda: _generate(request, handle, out, ids), (handle,), lambda result: result.finish == "cancelled"
        )

        def end() -> None:
            out.put(None)
            if finished:
                finished()

        self._job.when_finished(end)
        self._ended = False

    def __next__(self) -> str:
        while not self._ended:
            self._check_wait()
            try:
                piece = self._queue.get()
            except BaseException:
                self.close()
                raise
            if piece is None:
                self._ended = True
                self._job.result()
                break
            text = self._decoder.decode(piece)
            if text:
                return text
        raise StopIteration

    def _check_wait(self) -> None:
        """Raise an error if this thread of this process would wait permanently."""
        if not self._job.finished:
            self._engine.check()

    def text(self) -> str:
        """Return the remaining text."""
        return "".join(self)

    @property
    def ids(self) -> list[int]:
        """Chosen tokens so far, without a final EOS."""
        return list(self._ids)

    @property
    def stats(self) -> stats.GenerationStats:
        """Statistics. Waits for the end of the generation."""
        self._check_wait()
        return self._job.wait()

    def cancel(self) -> None:
        """Stop the work within one layer, without waiting for its end."""
        self._job.cancel()

    def close(self) -> None:
        """Stop the work and wait until it has ended."""
        self._check_wait()
        self._job.cancel()
        self._job.wait_until_finished()
        self._ended = True

    def __enter__(self) -> Generation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        job = getattr(self, "_job", None)
        if job is not None:
            job.cancel()
