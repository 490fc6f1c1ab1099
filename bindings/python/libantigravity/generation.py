# SPDX-License-Identifier: Apache-2.0
"""Generation: an iterator over the text that a session generates."""

from __future__ import annotations

import codecs
import queue
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from . import errors, stats
from ._engine import Handle
from ._native import TextBuffer, assign, call, choice, create, ffi, ids_array, lib, type_error

if TYPE_CHECKING:
    from .model import Model
    from .session import Session

Prepare = Callable[[Any], Sequence[int]]  # gets the ag_session
MAX_LOGPROBS = 20
SPECULATE = {"auto": lib.AG_SPECULATE_AUTO, "off": lib.AG_SPECULATE_OFF, "always": lib.AG_SPECULATE_ALWAYS}


class TokenLogprob(NamedTuple):
    """A chosen token and its probability among all tokens, before sampling changes it."""

    token: int
    logprob: float  # natural logarithm
    top: tuple[tuple[int, float], ...]  # the most likely tokens and theirs, the likeliest first


class _Scorer:
    """Log-probabilities of the tokens of a generation. Used on the engine's thread."""

    def __init__(self, n_top: int, n_vocab: int) -> None:
        if not isinstance(n_top, int):
            raise type_error("logprobs", n_top, "an integer")
        if not 0 <= n_top <= MAX_LOGPROBS:
            raise errors.InvalidError(f"logprobs is {n_top}: it must be from 0 to {MAX_LOGPROBS}")
        self.n_top = n_top
        self.tokens: list[TokenLogprob] = []
        self._n_vocab = n_vocab
        self._row: Any = None  # log-probabilities [n_vocab] of the next choice

    def read(self, logits: Any) -> None:
        from . import _arrays

        self._row = _arrays.log_probabilities(_arrays.view(logits, (self._n_vocab,)))

    def choose(self, token: int) -> None:
        from . import _arrays

        best = _arrays.largest(self._row, self.n_top)
        top = tuple((int(i), float(self._row[i])) for i in best)
        self.tokens.append(TokenLogprob(token, float(self._row[token]), top))


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
        logprobs: int | None = None,
        speculate: str = "auto",
    ) -> None:
        self.session = session
        self.prompt = prompt  # runs on the engine's thread before the generation
        self.sampler = sampler
        for text in stop:
            if not isinstance(text, str):
                raise errors.InvalidError(f"stop has {text!r}; it must have texts")
        self.stop = [ffi.new("char[]", text.encode()) for text in stop]
        self.keep_alive = keep_alive
        self.params = params = ffi.new("ag_generate_params *")
        params[0] = lib.ag_generate_defaults()
        assign(params, "max_tokens", max_tokens)
        assign(params, "ignore_eos", ignore_eos)
        params.keep_special = keep_special
        params.speculate = choice(SPECULATE, speculate, "speculate")
        self.scorer: _Scorer | None = None
        if logprobs is not None and logprobs is not False:
            self.scorer = _Scorer(logprobs, session._model.info.n_vocab)


def _generate(request: Request, handle: Handle, out: queue.SimpleQueue[Any], ids: list[int]) -> stats.GenerationStats:
    """Run a generation on the engine's thread."""
    session, scorer = request.session, request.scorer
    result = ffi.new("ag_generate_stats *")
    result.last_id = -1
    params = request.params

    failures: list[BaseException] = []

    def fail(_type: Any, exception: BaseException, _traceback: Any) -> None:
        failures.append(exception)  # and the callback returns False, which ends the generation

    @ffi.callback("bool(void *, int32_t, const char *, size_t)", error=False, onerror=fail)
    def on_token(_user: Any, token: int, text: Any, n: int) -> bool:
        if token >= 0:
            ids.append(token)
            if scorer:
                scorer.choose(token)
        out.put((bytes(ffi.buffer(text, n)) if n else b"", len(scorer.tokens) if scorer else 0))
        return True

    @ffi.callback("bool(void *, size_t, const float *)", error=False, onerror=fail)
    def on_logits(_user: Any, _i: int, logits: Any) -> bool:
        scorer.read(logits)  # type: ignore[union-attr]
        return True

    stops = ffi.new("char *[]", request.stop)
    params.stop, params.n_stop = ffi.cast("const char *const *", stops), len(request.stop)
    params.sampler, params.tokenizer = request.sampler, session._model._tokenizer
    params.on_token = on_token
    if scorer:
        params.on_logits = on_logits

    prompt = list(request.prompt(handle.pointer))
    array = ids_array(prompt)
    try:
        session._consume(
            handle,
            lambda s: call(lib.ag_session_generate, s, array, len(prompt), params, result),
            lambda: prompt + ids,
        )
    finally:
        session._unfed = result.last_id if result.last_id >= 0 else None
    if failures:
        raise failures[0]
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
        self._scorer = request.scorer
        self._n_shown = 0  # log-probabilities up to the last piece
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
            text = self._decoder.decode(piece[0])
            self._n_shown = piece[1]
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
    def has_logprobs(self) -> bool:
        """Whether the call requested log-probabilities."""
        return self._scorer is not None

    @property
    def logprobs(self) -> list[TokenLogprob]:
        """Log-probabilities of the chosen tokens up to the last piece, if the call requested them."""
        return self._scorer.tokens[: self._n_shown] if self._scorer else []

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


class TokenReport:
    """Log-probabilities of a generation's tokens with the texts of the tokens, each token once.

    The texts join to the answer: a token keeps the space before it, and a character that several tokens
    share belongs to the last of them.
    """

    def __init__(self, model: Model, generation: Generation) -> None:
        self._generation = generation
        self._n_reported = 0
        if generation.has_logprobs:
            self._tokenizer = model._need_tokenizer()
            self._decoder = self._make_decoder()

    def _make_decoder(self) -> Any:
        decoder = create(lib.ag_decoder_create, "ag_decoder", self._tokenizer, True, True)
        return ffi.gc(decoder, lib.ag_decoder_destroy)

    def _next(self, token: int) -> str:
        """Return the characters that the next token of the answer completes."""
        text = TextBuffer()
        call(lib.ag_decoder_push, self._decoder, token, text.pointer)
        return str(text)

    def _alone(self, token: int) -> str:
        """Return the text of a token that may not be part of the answer."""
        text, decoder = TextBuffer(), self._make_decoder()
        call(lib.ag_decoder_push, decoder, token, text.pointer)
        call(lib.ag_decoder_flush, decoder, text.pointer)
        return str(text)

    def take(self) -> list[tuple[str, float, list[tuple[str, float]]]]:
        """Return text, log-probability and the most likely tokens of each token since the last call."""
        entries = self._generation.logprobs[self._n_reported :]
        self._n_reported += len(entries)
        return [(self._next(e.token), e.logprob, [(self._alone(i), p) for i, p in e.top]) for e in entries]
