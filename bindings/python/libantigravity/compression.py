# SPDX-License-Identifier: Apache-2.0
"""Compression by replay: the model repeats its text, and the slots that it needs for that remain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import errors
from ._native import Progress, assign, call, ffi, lib, make_progress

if TYPE_CHECKING:
    from .model import Model


class Replay:
    """ag_compress_params, with what they borrow."""

    def __init__(
        self,
        model: Model,
        *,
        keep_ratio: float = 0.0,
        keep_tokens: int = 0,
        replay: float = 1.0,
        chunk: int | None = None,
        sinks: int | None = None,
        recent: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        try:
            chat_format = model._chat_format()
        except errors.NotFoundError:
            chat_format = ffi.NULL
        self._request = ffi.gc(ffi.new("ag_replay_request *"), lib.ag_replay_request_free)
        call(lib.ag_replay_request_make, model._need_tokenizer(), chat_format, self._request)
        self.pointer = c = ffi.new("ag_compress_params *")
        c[0] = lib.ag_replay_request_params(self._request)
        given = {"keep_ratio": keep_ratio, "keep_tokens": keep_tokens, "replay": replay}
        for name, value in {**given, "chunk": chunk, "sinks": sinks, "recent": recent}.items():
            if value is not None:
                assign(c, name, value)
        self._failures: list[BaseException] = []
        if progress:
            self._report, self._failures = make_progress(progress)
            c.progress = self._report

    def run(self, function: Any, session: Any, ids: Any, n: int, *out: Any) -> None:
        """Call a function of the library that replays the text of a session."""
        try:
            call(function, session, ids, n, self.pointer, *out)
        except errors.CancelledError:
            if self._failures:
                raise self._failures[0] from None
            raise
