# SPDX-License-Identifier: Apache-2.0
"""Model: weights, a tokenizer and a chat template, and the calls that use them."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from . import chat as _chat
from . import constraints, errors, sampling, stats, store
from ._engine import Engine, Handle, Job
from ._native import (
    IdBuffer,
    Progress,
    TextBuffer,
    assign,
    call,
    check_names,
    create,
    dtype,
    encode,
    ffi,
    lib,
    make_progress,
    text_of,
)
from .generation import Generation, Request
from .params import SessionParams
from .session import Session, StepItem, StepResult, create_session, run_step

if TYPE_CHECKING:
    from ._arrays import Floats

WEIGHTS = {"auto": lib.AG_WEIGHTS_AUTO, "mix": lib.AG_WEIGHTS_MIX}
DEFAULT_CONTEXT = 4096


def _load(
    engine: Engine,
    path: str,
    backend_params: Any,
    model_params: Any,
    progress: Progress | None,
) -> tuple[Handle, Handle]:
    """Create a backend and load a model on it."""
    jobs: list[Job[tuple[Handle, Handle]]] = []
    report, failures = make_progress(progress, lambda: bool(jobs) and jobs[0].cancelled)

    def load() -> tuple[Handle, Handle]:
        pointer = create(lib.ag_backend_create, "ag_backend", backend_params)
        backend = Handle(engine, pointer, lib.ag_backend_destroy)
        model_params.progress = report
        try:
            model = create(lib.ag_model_load, "ag_model", pointer, path.encode(), model_params)
        except errors.CancelledError:
            if failures:
                raise failures[0] from None
            raise
        return backend, Handle(engine, model, lib.ag_model_destroy, backend)

    jobs.append(engine.submit(load))
    return jobs[0].wait()


class Model:
    """A loaded model.

    Any thread may use it: calls take turns on the model's own thread, and release the GIL. After
    os.fork() the child's calls raise ForkError.

        model = Model("models/demo")
        print(model.generate("Once upon a time", max_tokens=40).text())
    """

    def __init__(
        self,
        path_or_name: str | os.PathLike[str] | None = None,
        *,
        backend: str = "cpu",
        device: str | None = None,
        threads: int = 0,
        weights: str = "auto",
        max_seq_len: int | None = None,
        session: SessionParams | None = None,
        chat_template: str | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Load a model.

        path_or_name   a directory, a GGUF file, or a name in the store; None: the bundled demo
        backend        "cpu" or "opencl"; `device` is an index or a part of a name
        threads        0: the usable cores
        weights        "auto" (as the file, or a mix), "mix", or a type: "q8_0", "f32", ...
        max_seq_len    tokens that a chat or a text can have; None: the trained length, at most 4096
        session        other parameters of the sessions of `generate`, `chat` and `embed`
        chat_template  Jinja text in place of the model's template
        progress       progress(done, total) is called with the converted bytes of the file
        """
        self.path = store.find_model(path_or_name)
        self.name = pathlib.PurePath(self.path).name
        self._template = chat_template
        params = ffi.new("ag_backend_params *")
        texts = {"backend": backend, "device": device}
        names = [ffi.new("char[]", encode(t, name)) if t is not None else ffi.NULL for name, t in texts.items()]
        params.name, params.device = names
        assign(params, "n_threads", threads, "threads")
        model_params = ffi.new("ag_model_params *")
        model_params[0] = lib.ag_model_defaults()
        model_params.weights = WEIGHTS[weights] if weights in WEIGHTS else dtype(weights, "weights")
        self._engine = Engine()
        self._handle: Handle | None
        self._backend, self._handle = _load(self._engine, self.path, params, model_params, progress)
        self.info = stats.model_info(lib.ag_model_get_info(self._open().pointer))
        self._tokenizer = self._load_tokenizer()
        self._sampling = sampling.recommended(self.path)
        self._format: Any = None
        self._constraint_vocabulary: constraints.Vocabulary | None = None
        self._session_params = session or SessionParams(
            max_seq_len=max_seq_len or min(self.info.max_positions, DEFAULT_CONTEXT)
        )
        self._free_sessions: list[Session] = []  # at most one, which the last call left

    def _load_tokenizer(self) -> Any:
        try:
            tokenizer = create(lib.ag_tokenizer_load, "ag_tokenizer", self.path.encode())
        except errors.NotFoundError:
            return ffi.NULL
        return ffi.gc(tokenizer, lib.ag_tokenizer_destroy)

    # ---- objects of the library ----

    def _open(self) -> Handle:
        """Return the model's handle, which a call holds until its end."""
        handle = self._handle
        if handle is None:
            raise errors.InvalidError("the model is closed")
        return handle

    def _need_tokenizer(self) -> Any:
        if self._tokenizer == ffi.NULL:
            raise errors.NotFoundError(f"{self.path}: the model has no tokenizer; give token ids")
        return self._tokenizer

    def _chat_format(self) -> Any:
        """Return the chat format, which is loaded once."""
        if self._format is None:
            template = ffi.NULL if self._template is None else encode(self._template, "chat_template")
            tokenizer = self._need_tokenizer()
            chat_format = create(lib.ag_chat_format_load, "ag_chat_format", self.path.encode(), tokenizer, template)
            self._format = ffi.gc(chat_format, lambda f, _=tokenizer: lib.ag_chat_format_destroy(f))
        return self._format

    def _vocabulary(self) -> constraints.Vocabulary:
        """Return the vocabulary for constraints, which is prepared once."""
        if self._constraint_vocabulary is None:
            self._constraint_vocabulary = constraints.Vocabulary(
                self._need_tokenizer(), self.info.n_vocab, self.info.eos_ids
            )
        return self._constraint_vocabulary

    def _make_sampler(
        self,
        response_format: constraints.Format | None,
        options: Mapping[str, Any],
        *callers: Callable[..., Any],
    ) -> tuple[Any, Any]:
        """Return a sampler and its constraint, which must live as long. The callers got the options."""
        check_names(options, sampling.Sampling, *callers)
        sampler = sampling.make_sampler(self._sampling, sampling.Sampling(**options), self.info.n_vocab)
        constraint = None
        if response_format is not None:
            constraint = constraints.from_format(self._vocabulary(), response_format)
            constraints.attach(sampler, constraint)
        return sampler, constraint

    # ---- text ----

    def tokenize(self, text: str, *, bos: bool = True, special: bool = False) -> list[int]:
        """Return the token ids of a text.

        bos      add the ids at the start and end of a text, as the model's tokenizer does
        special  encode "<|eot_id|>" as the special token, not as text
        """
        flags = (lib.AG_ENCODE_BOS if bos else 0) | (lib.AG_ENCODE_PARSE_SPECIAL if special else 0)
        ids, encoded = IdBuffer(), text.encode()
        call(lib.ag_tokenizer_encode, self._need_tokenizer(), encoded, len(encoded), flags, ids.pointer)
        return ids.list()

    def detokenize(self, ids: Sequence[int], *, special: bool = False) -> str:
        """Return the text of token ids; special tokens are written with `special` only."""
        text = TextBuffer()
        array = list(ids)
        call(lib.ag_tokenizer_decode, self._need_tokenizer(), array, len(array), special, text.pointer)
        return str(text)

    def _ids(self, tokens: str | Sequence[int], bos: bool) -> list[int]:
        return self.tokenize(tokens, bos=bos) if isinstance(tokens, str) else list(tokens)

    # ---- sessions ----

    def session(self, params: SessionParams | None = None, **options: Any) -> Session:
        """Return a new session. `options` are fields of SessionParams, such as kv_policy."""
        if params is None:
            check_names(options, SessionParams)
            params = SessionParams(**{"max_seq_len": self._session_params.max_seq_len, **options})
        elif options:
            raise TypeError("give either SessionParams or its fields")
        return create_session(self, params)

    def step(self, items: Iterable[StepItem | tuple[Any, ...]]) -> list[StepResult]:
        """Run one pass over the weights for tokens of different sessions of this model.

        An item is (session, tokens), or a StepItem, which also requests logits of all tokens or hidden
        states. On error no session has moved. A step may have at most prefill_chunk tokens of a session.
        """
        return run_step(self, items)

    def _borrow_session(self) -> Session:
        """Return the session that the last call left, or a new one."""
        try:
            return self._free_sessions.pop()
        except IndexError:
            return create_session(self, self._session_params)

    def _give_back(self, session: Session) -> None:
        if not self._free_sessions and self._handle is not None:
            self._free_sessions.append(session)

    def _rewinder(self, session: Session, ids: list[int]) -> Callable[[Any], Sequence[int]]:
        """Return a function that prepares a session for a prompt and returns what it must consume.

        A prompt that continues the last one, as the next turn of a chat does, keeps its tokens in the
        cache. Other prompts start again, so that equal calls give equal texts: a token that is computed
        among others differs by rounding.
        """

        def rewind(pointer: Any) -> Sequence[int]:
            common, end = 0, min(len(session._ids), len(ids) - 1)
            while common < end and session._ids[common] == ids[common]:
                common += 1
            if common < session._prompt_end:
                common = 0
            try:
                call(lib.ag_session_truncate, pointer, common)
            except errors.InvalidError:
                common = 0
                lib.ag_session_reset(pointer)
            del session._ids[common:]
            session._unfed = None
            session._prompt_end = len(ids)
            return ids[common:]

        return rewind

    def _start(
        self,
        ids: list[int],
        sampler: Any,
        *,
        max_tokens: int,
        stop: Sequence[str],
        ignore_eos: bool = False,
        keep_special: bool = False,
        keep_alive: Sequence[Any] = (),
        logprobs: int | None = None,
        speculate: str = "auto",
    ) -> Generation:
        session = self._borrow_session()
        try:
            request = Request(
                session,
                self._rewinder(session, ids),
                sampler,
                max_tokens=max_tokens,
                stop=stop,
                ignore_eos=ignore_eos,
                keep_special=keep_special,
                keep_alive=keep_alive,
                logprobs=logprobs,
                speculate=speculate,
            )
        except BaseException:
            self._give_back(session)
            raise
        return Generation(request, lambda: self._give_back(session))

    # ---- generation ----

    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int = 128,
        stop: str | Sequence[str] = (),
        response_format: constraints.Format | None = None,
        ignore_eos: bool = False,
        logprobs: int | None = None,
        speculate: str = "auto",
        **options: Any,
    ) -> Generation:
        """Generate a text: an iterator over its pieces, which stops the work when it is closed.

        prompt           a text or token ids
        max_tokens       -1: until the text or the context ends
        stop             texts that end the generation and are not part of it
        response_format  {"type": "json_object"}, ...: see constraints.from_format()
        logprobs         record the log-probabilities of the chosen tokens, and of this many of the most
                         likely tokens, 0 to 20: Generation.logprobs; without drafts, which is slower
        speculate        whether drafts are verified: "auto", "off" or "always"; the text is the same
        options          fields of Sampling: temperature, top_p, top_k, seed, ...
        """
        sampler, constraint = self._make_sampler(response_format, options, Model.generate)
        return self._start(
            self._ids(prompt, bos=True),
            sampler,
            max_tokens=max_tokens,
            stop=[stop] if isinstance(stop, str) else stop,
            ignore_eos=ignore_eos,
            keep_alive=(constraint,),
            logprobs=logprobs,
            speculate=speculate,
        )

    def _answer(
        self,
        messages: Sequence[_chat.Message],
        *,
        tools: Sequence[_chat.Tool] | None = None,
        tool_choice: str | Mapping[str, Any] | None = "auto",
        response_format: constraints.Format | None = None,
        max_tokens: int | None = None,
        stop: str | Sequence[str] | None = None,
        template_variables: Mapping[str, Any] | None = None,
        logprobs: bool = False,
        top_logprobs: int | None = None,
        **options: Any,
    ) -> _chat.Answer:
        if top_logprobs is not None and not logprobs:
            raise errors.InvalidError("top_logprobs needs logprobs")
        conversation = _chat.Conversation(self, messages, tools, tool_choice, response_format, template_variables)
        sampler, _ = self._make_sampler(None, options, Model._answer, Model.chat)
        constraints.attach(sampler, conversation.constraint)
        stops = [stop] if isinstance(stop, str) else list(stop or ())
        generation = self._start(
            conversation.ids,
            sampler,
            max_tokens=-1 if max_tokens is None else max_tokens,
            stop=stops + conversation.stops(),
            keep_special=True,
            keep_alive=(conversation.constraint,),
            logprobs=(top_logprobs or 0) if logprobs else None,
        )
        return _chat.Answer(self, conversation, generation)

    @overload
    def chat(
        self, messages: Sequence[_chat.Message], *, stream: Literal[False] = False, **options: Any
    ) -> _chat.Completion: ...

    @overload
    def chat(
        self, messages: Sequence[_chat.Message], *, stream: Literal[True], **options: Any
    ) -> Iterator[_chat.Chunk]: ...

    def chat(
        self, messages: Sequence[_chat.Message], *, stream: bool = False, **options: Any
    ) -> _chat.Completion | Iterator[_chat.Chunk]:
        """Answer a conversation, in the shapes of OpenAI's chat completions.

        messages            dicts with role, content, tool_calls, ...
        stream              return an iterator of chunks; closing it stops the work
        tools, tool_choice  functions that the model may call
        response_format     {"type": "json_object"}, {"type": "json_schema", ...}, ...
        max_tokens          None: until the answer or the context ends
        stop                texts that end the answer
        logprobs            report log-probabilities of the chosen tokens, and of the `top_logprobs` (0 to
                            20) most likely ones
        template_variables  variables of the chat template, such as {"enable_thinking": False}

        Other options are fields of Sampling: temperature, top_p, top_k, seed, ...
        """
        answer = self._answer(messages, **options)
        return answer.chunks() if stream else answer.completion()

    # ---- embeddings ----

    def embed(self, texts: str | Sequence[str]) -> Floats:
        """Return the embeddings of texts, [n, hidden_size] float32 rows of length 1.

        A row is the mean of the text's hidden states after the last norm. One text gives one row
        [hidden_size].
        """
        import numpy as np

        rows = [self._embed_one(text) for text in ([texts] if isinstance(texts, str) else texts)]
        return rows[0] if isinstance(texts, str) else np.array(rows, np.float32)

    def _embed_one(self, text: str) -> Any:
        import numpy as np

        ids = self.tokenize(text)
        if not ids:
            raise errors.InvalidError("a text to embed has no tokens")
        session = self._borrow_session()
        session.reset()
        params = self._session_params
        chunk = min(params.prefill_chunk or 512, params.max_seq_len or 2048)
        total = np.zeros(self.info.hidden_size, np.float64)
        for begin in range(0, len(ids), chunk):
            item = StepItem(session, ids[begin : begin + chunk], "none", True, "prompt")
            total += run_step(self, [item])[0].hidden.sum(0, dtype=np.float64)  # type: ignore[union-attr]
        session._prompt_end = len(ids)  # its chunks differ from those of a prompt
        self._give_back(session)
        length = np.sqrt((total * total).sum())
        return (total / length if length > 0 else total).astype(np.float32)

    # ---- life ----

    @property
    def description(self) -> str:
        """One line: device, instruction sets, threads."""
        pointer = self._backend.pointer
        return self._engine.run(lambda: text_of(lib.ag_backend_describe(pointer)))

    def close(self) -> None:
        """Free the model's memory, once no session of it is left."""
        self._handle = None
        self._free_sessions.clear()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
