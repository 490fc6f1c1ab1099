# SPDX-License-Identifier: Apache-2.0
"""The C library: loads it and converts its statuses, texts and lists."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from . import errors
from ._ffi import ffi as _ffi

LIBRARY = pathlib.Path(__file__).with_name("libantigravity.so")

ffi: Any = _ffi


def _load() -> Any:
    try:
        return ffi.dlopen(str(LIBRARY))
    except OSError as e:
        raise ImportError(f"{LIBRARY}: cannot load the library: {e}") from e


lib: Any = _load()


def text_of(pointer: Any) -> str:
    """Return the text of a C string; "" for NULL."""
    return "" if pointer == ffi.NULL else ffi.string(pointer).decode("utf-8", "replace")


def check(status: int, error: Any) -> None:
    """Raise the library's error unless the status is AG_OK."""
    if status:
        raise errors.make_error(text_of(lib.ag_status_name(status)), text_of(error.msg))


def call(function: Any, *arguments: Any) -> None:
    """Call a function whose last parameter is `ag_error *err`."""
    error = ffi.new("ag_error *")
    check(function(*arguments, error), error)


def create(function: Any, kind: str, *arguments: Any) -> Any:
    """Call a function that ends in `..., T **out, ag_error *err` and return *out."""
    out = ffi.new(kind + " **")
    call(function, *arguments, out)
    return out[0]


def ids_array(ids: Sequence[int]) -> Any:
    """Return token ids as a C array that owns its memory."""
    try:
        return ffi.new("int32_t[]", list(ids))
    except (TypeError, OverflowError) as e:
        raise TypeError(f"token ids must be a sequence of 32-bit integers: {e}") from None


Progress = Callable[[int, int], Any]


def make_progress(
    function: Progress | None, is_cancelled: Callable[[], bool] = lambda: False
) -> tuple[Any, list[BaseException]]:
    """Return an ag_progress_fn, and a list that gets the exception of `function`, which cancels the work."""
    failures: list[BaseException] = []

    @ffi.callback("bool(void *, uint64_t, uint64_t)", error=False)
    def report(_user: Any, done: int, total: int) -> bool:
        try:
            if function is not None:
                function(done, total)
            return not is_cancelled()
        except BaseException as e:
            failures.append(e)
            return False

    return report, failures


class TextBuffer:
    """An ag_text: bytes that the library appends."""

    def __init__(self) -> None:
        self.pointer = ffi.gc(ffi.new("ag_text *"), lib.ag_text_free)

    def bytes(self) -> bytes:
        return bytes(ffi.buffer(self.pointer.data, self.pointer.len)) if self.pointer.len else b""

    def __str__(self) -> str:
        return self.bytes().decode("utf-8", "replace")


class IdBuffer:
    """An ag_ids: token ids that the library appends."""

    def __init__(self) -> None:
        self.pointer = ffi.gc(ffi.new("ag_ids *"), lib.ag_ids_free)

    def list(self) -> list[int]:
        return ffi.unpack(self.pointer.data, self.pointer.n) if self.pointer.n else []


def dtype(name: str, what: str) -> int:
    """Return the ag_dtype of a name."""
    out = ffi.new("ag_dtype *")
    if not lib.ag_dtype_parse(name.encode(), out):
        raise errors.InvalidError(f"{what} is '{name}': unknown type; types are f32, f16, q8_0, q4_0, ...")
    return int(ffi.cast("int", out[0]))


def dtype_name(value: int) -> str:
    return text_of(lib.ag_dtype_name(value))


def choice(names: dict[str, int], name: str, what: str) -> int:
    """Return the value of a name of an enumeration."""
    if name not in names:
        raise errors.InvalidError(f"{what} is '{name}': it must be one of {', '.join(names)}")
    return names[name]
