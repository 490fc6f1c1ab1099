# SPDX-License-Identifier: Apache-2.0
"""Session: a KV cache, a position and the tokens that the model has consumed."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from . import errors, stats
from ._engine import Handle, Job, clear_cancellation
from ._native import (
    IdBuffer,
    Progress,
    call,
    check,
    check_names,
    choice,
    create,
    ffi,
    ids_array,
    lib,
    make_progress,
    text_of,
)
from .compression import Replay
from .generation import Generation, Request
from .params import Built, SessionParams, eviction_params, session_params
from .policy import forget_failure, raise_failure

if TYPE_CHECKING:
    from ._arrays import Floats
    from .constraints import Format
    from .model import Model

T = TypeVar("T")

PRESSURES = {
    "normal": lib.AG_PRESSURE_NORMAL,
    "soft": lib.AG_PRESSURE_SOFT,
    "hard": lib.AG_PRESSURE_HARD,
    "critical": lib.AG_PRESSURE_CRITICAL,
}


class Scores(NamedTuple):
    """Result of Session.score()."""

    logprobs: Floats  # [n] natural logarithms; NaN for a first token without logits before it
    is_greedy: Any  # [n] bool: the token had the largest logit


def run_with_policies(handles: Sequence[Handle], function: Callable[[], T]) -> T:
    """Run a function of sessions that may evict, on the engine's thread.

    An exception of a policy is raised in place of the library's, and also if the function succeeds.
    """
    for handle in handles:
        if handle.is_cancelled:
            clear_cancellation(handle)
    forget_failure()
    try:
        result = function()
    except errors.CancelledError:
        raise
    except errors.Error:
        raise_failure()
        raise
    raise_failure()
    return result


class Session:
    """One text in a KV cache. `Model.session` creates it.

    The arrays of `logits` belong to the session: its next call overwrites them.
    """

    def __init__(self, model: Model, handle: Handle, built: Built | None, ids: Sequence[int] = ()) -> None:
        self._model = model
        self._engine = model._engine
        self._handle: Handle | None = handle
        self._built = built  # its memory lives as long as the session
        self._ids = array("i", ids)
        self._unfed: int | None = None  # chosen by the last generation, not consumed yet
        self._prompt_end = 0  # tokens of the last prompt of Model.generate and the ones before
        self._job: Job[Any] | None = None  # the last call that consumes tokens

    # ---- calls on the engine's thread ----

    def _open(self) -> Handle:
        """Return the session's handle, which a call holds until its end."""
        handle = self._handle
        if handle is None:
            raise errors.InvalidError("the session is closed")
        return handle

    def _note_consumed(self, handle: Handle, new: Sequence[int]) -> None:
        """Record those of the new tokens that were consumed."""
        self._ids.extend(new)
        del self._ids[lib.ag_session_position(handle.pointer) :]
        self._unfed = None

    def _consume(self, handle: Handle, function: Callable[[Any], T], new: Callable[[], Sequence[int]]) -> T:
        """Run a function of the session that consumes tokens. `new` returns those that it may have consumed.

        Call it on the engine's thread.
        """
        try:
            return run_with_policies([handle], lambda: function(handle.pointer))
        finally:
            self._note_consumed(handle, new())

    def _run(self, function: Callable[[Any], T], new: Sequence[int] = ()) -> T:
        handle = self._open()
        job = self._job = self._engine.submit(lambda: self._consume(handle, function, lambda: new), (handle,))
        return job.wait()

    def _read(self, function: Callable[[Any], T]) -> T:
        handle = self._open()
        return self._engine.run(lambda: function(handle.pointer))

    def _run_in_place(self, function: Callable[[Any], T]) -> T:
        """Run a function that consumes no token, and which cancel() ends."""
        handle = self._open()
        job = self._job = self._engine.submit(
            lambda: run_with_policies([handle], lambda: function(handle.pointer)), (handle,)
        )
        return job.wait()

    # ---- tokens ----

    def prefill(self, tokens: str | Sequence[int], progress: Progress | None = None) -> Floats:
        """Consume a text or token ids. Return the logits [n_vocab] of the next token.

        progress(done, total) is called after each chunk. An interrupt ends the call within one layer;
        complete chunks stay consumed, and `position` tells how many tokens these are.
        """
        ids = self._model._ids(tokens, bos=not self._ids)
        c_ids = ids_array(ids)
        report, failures = make_progress(progress) if progress else (ffi.NULL, [])

        def run(pointer: Any) -> None:
            try:
                call(lib.ag_session_prefill, pointer, c_ids, len(ids), report, ffi.NULL)
            finally:
                if failures:
                    raise failures[0]

        self._run(run, ids)
        return self._logits()

    def decode(self, token: int) -> Floats:
        """Consume one token. Return the logits [n_vocab] of the next token."""
        self._run(lambda s: call(lib.ag_session_decode, s, token), (token,))
        return self._logits()

    def score(self, tokens: str | Sequence[int]) -> Scores:
        """Consume a text or token ids. Return the log-probability of each of its tokens.

        The first token is scored by the logits before the call, so a session that has consumed a
        context scores its continuation.
        """
        import numpy as np

        from . import _arrays

        ids = self._model._ids(tokens, bos=not self._ids)
        c_ids, n_vocab = ids_array(ids), self._model.info.n_vocab
        logprobs = np.full(len(ids), np.nan, np.float32)
        is_greedy = np.zeros(len(ids), np.bool_)

        def enter(i: int, row: Any) -> None:
            if i < len(ids):
                logits = _arrays.view(row, (n_vocab,))
                logprobs[i], is_greedy[i] = _arrays.log_probability(logits, ids[i])

        @ffi.callback("bool(void *, size_t, const float *)", error=False)
        def receive(_user: Any, i: int, row: Any) -> bool:
            enter(i + 1, row)
            return True

        def run(pointer: Any) -> None:
            before = lib.ag_session_logits(pointer)
            if before != ffi.NULL and ids and 0 <= ids[0] < n_vocab:
                enter(0, before)
            call(lib.ag_session_score, pointer, c_ids, len(ids), receive, ffi.NULL)

        self._run(run, ids)
        return Scores(logprobs, is_greedy)

    def _logits(self) -> Floats:
        from . import _arrays

        handle = self._open()
        row = self._engine.run(lambda: lib.ag_session_logits(handle.pointer))
        if row == ffi.NULL:
            raise errors.InvalidError("the session has no logits: it has not consumed a token")
        return _arrays.read_only(_arrays.view(row, (self._model.info.n_vocab,), keep_alive=handle))

    @property
    def logits(self) -> Floats:
        """Logits [n_vocab] float32 of the next token: a view that the session's next call overwrites."""
        return self._logits()

    @property
    def position(self) -> int:
        """Number of consumed tokens."""
        return int(self._read(lib.ag_session_position))

    @property
    def capacity_left(self) -> int:
        """How many more tokens fit."""
        return int(self._read(lib.ag_session_capacity_left))

    @property
    def tokens(self) -> list[int]:
        """All consumed token ids."""
        return list(self._ids)

    def generate(
        self,
        prompt: str | Sequence[int] = (),
        *,
        max_tokens: int = 128,
        stop: str | Sequence[str] = (),
        response_format: Format | None = None,
        ignore_eos: bool = False,
        logprobs: int | None = None,
        speculate: str = "auto",
        **sampling: Any,
    ) -> Generation:
        """Consume a prompt and generate text: an iterator over its pieces.

        Without a prompt the text continues where it is. The last token of a generation is chosen but
        not consumed; the next generation consumes it first. `sampling` has the fields of Sampling.
        `max_tokens` -1 is no limit. See Model.generate for the other parameters.
        """
        model = self._model
        ids = model._ids(prompt, bos=not self._ids)
        sampler, constraint = model._make_sampler(response_format, sampling, Session.generate)

        def prompt_ids(_session: Any) -> list[int]:
            return [*([] if self._unfed is None else [self._unfed]), *ids]

        return Generation(
            Request(
                self,
                prompt_ids,
                sampler,
                max_tokens=max_tokens,
                stop=[stop] if isinstance(stop, str) else stop,
                ignore_eos=ignore_eos,
                keep_alive=(constraint,),
                logprobs=logprobs,
                speculate=speculate,
            )
        )

    def truncate(self, position: int) -> None:
        """Remove the tokens from `position` on."""
        self._run(lambda s: call(lib.ag_session_truncate, s, position))

    def reset(self) -> None:
        """Remove all tokens."""
        self._run(lib.ag_session_reset)

    def cancel(self) -> None:
        """Cancel the call of another thread that is consuming tokens: it raises CancelledError within one
        layer. Complete chunks stay consumed. Does nothing if there is no such call."""
        if self._job is not None:
            self._job.cancel()

    def begin_turn(self) -> None:
        """Mark the start of a turn of a conversation, for the policy "turns"."""
        self._read(lambda s: call(lib.ag_session_begin_turn, s, lib.ag_session_position(s)))

    # ---- copies ----

    def fork(self, **eviction: Any) -> Session:
        """Return a session with the same tokens, which shares the cache's memory.

        `eviction` has the eviction fields of SessionParams: the fork then has this policy, from its
        next token on.
        """
        handle, out = self._open(), ffi.new("ag_session **")
        check_names(eviction, SessionParams)
        built = eviction_params(SessionParams(**eviction)) if eviction else None

        def fork() -> Handle:
            if built is None:
                call(lib.ag_session_fork, handle.pointer, out)
            else:
                call(lib.ag_session_fork_with, handle.pointer, built.c, out)
            return Handle(self._engine, out[0], lib.ag_session_destroy, handle.parent)

        made = self._engine.run(lambda: run_with_policies([handle], fork))
        return Session(self._model, made, built or self._built, self._ids)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the session to a file, which contains the conversation."""
        ids, n, tokenizer = ids_array(self._ids), len(self._ids), self._model._tokenizer
        name = os.fspath(path).encode()
        handle = self._open()

        def write() -> None:
            call(lib.ag_session_save, handle.pointer, name, tokenizer, ids, n)

        self._engine.run(lambda: run_with_policies([handle], write))

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Replace the session's content by a saved one."""
        ids, name, tokenizer = IdBuffer(), os.fspath(path).encode(), self._model._tokenizer
        self._read(lambda s: call(lib.ag_session_restore, s, name, tokenizer, ids.pointer))
        self._ids = array("i", ids.list())

    # ---- the cache ----

    def kv(self, layer: int, head: int = 0) -> tuple[Floats, Floats]:
        """Return keys and values [n_slots, head_dim] float32 of a KV head, decoded from the cache.

        Keys are rotated to their positions. The arrays are copies that may be kept, and
        torch.from_numpy() uses them without another copy.
        """
        import numpy as np

        def read(pointer: Any) -> tuple[Any, Any]:
            cache = lib.ag_session_kv_cache(pointer)
            kind = lib.ag_kv_cache_layer(cache, layer)
            if kind == ffi.NULL or not 0 <= head < kind.n_kv_heads:
                raise errors.InvalidError(f"layer {layer}, KV head {head}: the cache has no such head")
            n, dim = lib.ag_kv_cache_n_slots(cache, layer, head), kind.head_dim
            keys, values = np.empty((n, dim), np.float32), np.empty((n, dim), np.float32)
            k, v = ffi.from_buffer("float[]", keys), ffi.from_buffer("float[]", values)
            error = ffi.new("ag_error *")
            for slot in range(n):
                at = slot * dim
                check(lib.ag_kv_cache_read(cache, layer, head, slot, k + at, v + at, error), error)
            return keys, values

        return self._read(read)

    def positions(self, layer: int, head: int = 0) -> list[int]:
        """Return the logical positions of the slots of a KV head, ascending."""

        def read(pointer: Any) -> list[int]:
            cache = lib.ag_session_kv_cache(pointer)
            n = lib.ag_kv_cache_n_slots(cache, layer, head)
            return [lib.ag_kv_cache_position(cache, layer, head, slot) for slot in range(n)]

        return self._read(read)

    def compress(self, keep_ratio: float = 0.0, keep_tokens: int = 0, **options: Any) -> stats.CompressionStats:
        """Evict the slots that the session needs least to repeat its text, whatever later questions are.

        keep_ratio   share of the slots that remains, and `keep_tokens` the mean number of slots of a
                     head; the smaller one applies
        replay       share of the tokens that the model repeats; 1. It takes the time of their prefill
        chunk        tokens that are repeated at a time; 2048
        sinks        first tokens that remain; 4. `recent`: newest tokens that remain; 0
        progress     progress(done, total) is called with repeated tokens
        """
        check_names(options, Replay, Session.compress)
        replay = Replay(self._model, keep_ratio=keep_ratio, keep_tokens=keep_tokens, **options)
        ids, n, report = ids_array(self._ids), len(self._ids), ffi.new("ag_compress_report *")
        self._run_in_place(lambda s: replay.run(lib.ag_session_compress, s, ids, n, report))
        return stats.compression_stats(report)

    def head_maxima(self, **options: Any) -> Floats:
        """Return how much each KV head needs its slots to repeat the text: [n_heads] float32, 0 to 1.

        The heads of all layers in order, for SessionParams.head_shares. The session does not change.
        Options as for compress().
        """
        import numpy as np

        check_names(options, Replay)
        replay = Replay(self._model, **options)
        ids, n = ids_array(self._ids), len(self._ids)

        def measure(pointer: Any) -> Floats:
            cache, layer, n_heads = lib.ag_session_kv_cache(pointer), 0, 0
            while (kind := lib.ag_kv_cache_layer(cache, layer)) != ffi.NULL:
                layer, n_heads = layer + 1, n_heads + kind.n_kv_heads
            maxima = np.empty(n_heads, np.float32)
            out = ffi.from_buffer("float[]", maxima)
            replay.run(lib.ag_session_head_maxima, pointer, ids, n, out, n_heads)
            return maxima

        return self._run_in_place(measure)

    def protect(self, n: int) -> None:
        """Reduce the protected prefix to the first n tokens, which are never evicted."""
        self._read(lambda s: call(lib.ag_session_protect, s, n))

    @property
    def protected(self) -> int:
        """Length of the protected prefix in tokens; 0 without a policy."""
        return int(self._read(lib.ag_session_protected))

    @property
    def kv_budget(self) -> int:
        """How many tokens an eviction retains; 0 without a policy."""
        return int(self._read(lib.ag_session_kv_budget))

    @property
    def spilled(self) -> stats.SpillStats:
        """Statistics of the spill file; all 0 without one."""

        def read(pointer: Any) -> stats.SpillStats:
            c = ffi.new("ag_spill_stats *")
            lib.ag_session_spilled(pointer, c)
            return stats.spill_stats(c)

        return self._read(read)

    @property
    def memory_pressure(self) -> str:
        """Memory pressure at the last check: "normal", "soft", "hard" or "critical"."""
        return self._read(lambda s: text_of(lib.ag_pressure_name(lib.ag_session_memory_pressure(s))))

    def hint_memory(self, level: str) -> None:
        """Set the memory pressure that the application knows of, until the next call of this function."""
        value = choice(PRESSURES, level, "level")
        self._read(lambda s: lib.ag_session_memory_hint(s, value))

    @property
    def kv_bytes(self) -> int:
        """Bytes of the cache's blocks in use."""
        return int(self._read(lambda s: lib.ag_kv_cache_memory_usage_bytes(lib.ag_session_kv_cache(s))))

    @property
    def evictions(self) -> stats.EvictionStats:
        """Statistics of evictions since the session was created or reset."""
        return self._read(lambda s: stats.eviction_stats(lib.ag_session_evictions(s)))

    @property
    def last_evictions(self) -> stats.EvictionStats:
        """Statistics of evictions during the last call that consumed tokens."""
        return self._read(lambda s: stats.eviction_stats(lib.ag_session_last_evictions(s)))

    # ---- life ----

    def close(self) -> None:
        """Free the session's memory, once no view of its logits is left."""
        self._handle = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class StepItem(NamedTuple):
    """One session's tokens in a step of `Model.step`."""

    session: Session
    tokens: Sequence[int]
    logits: str = "last"  # "none", "last" or "all"
    hidden: bool = False  # whether to return hidden states
    phase: str | None = None  # "prompt", "decode" or "verify"; None: "decode" for one token


class StepResult(NamedTuple):
    """What a step computed for one session."""

    logits: Floats | None  # "last": [n_vocab], a view as Session.logits; "all": [n, n_vocab]
    hidden: Floats | None  # [n, hidden_size] after the last norm


PHASES = {
    "prompt": lib.AG_PHASE_PROMPT,
    "decode": lib.AG_PHASE_DECODE,
    "verify": lib.AG_PHASE_VERIFY,
}
ROWS = {"none": lib.AG_LOGITS_NONE, "last": lib.AG_LOGITS_LAST, "all": lib.AG_LOGITS_ALL}


def run_step(model: Model, items: Iterable[StepItem | tuple[Any, ...]]) -> list[StepResult]:
    """Run one pass over the weights for tokens of different sessions of a model."""
    from . import _arrays

    parts = [StepItem(*item) for item in items]
    c_items = ffi.new("ag_step_item[]", len(parts))
    handles = [part.session._open() for part in parts]
    alive: list[Any] = []  # memory that the step uses
    all_rows: list[Any] = []
    hidden_rows: list[Any] = []
    for c, part, handle in zip(c_items, parts, handles, strict=True):
        n = len(part.tokens)
        ids = ids_array(part.tokens)
        phase = part.phase or ("decode" if n == 1 else "prompt")
        c.session, c.ids, c.n = handle.pointer, ids, n
        c.phase, c.logits = choice(PHASES, phase, "phase"), choice(ROWS, part.logits, "logits")
        rows = _arrays.row_writer(n, model.info.n_vocab) if part.logits == "all" else (None, ffi.NULL)
        hidden = _arrays.row_writer(n, model.info.hidden_size) if part.hidden else (None, ffi.NULL)
        c.row, c.hidden = rows[1], hidden[1]
        alive += [ids, rows, hidden]
        all_rows.append(rows[0])
        hidden_rows.append(hidden[0])

    def run() -> None:
        try:
            run_with_policies(handles, lambda: call(lib.ag_session_step, c_items, len(parts)))
        finally:
            for part, handle in zip(parts, handles, strict=True):
                part.session._note_consumed(handle, part.tokens)

    model._engine.run(run, handles)
    results = []
    for part, rows, hidden in zip(parts, all_rows, hidden_rows, strict=True):
        logits = part.session.logits if part.logits == "last" else rows
        results.append(StepResult(logits, hidden))
    return results


def create_session(model: Model, params: SessionParams) -> Session:
    built = session_params(params)
    parent = model._open()

    def make() -> Handle:
        pointer = create(lib.ag_session_create, "ag_session", parent.pointer, built.c)
        return Handle(model._engine, pointer, lib.ag_session_destroy, parent)

    return Session(model, model._engine.run(make), built)
