# SPDX-License-Identifier: Apache-2.0
"""The C library: loads it and converts its statuses, texts, lists and parameters."""

from __future__ import annotations

import difflib
import inspect
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

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


T = TypeVar("T")


def type_error(name: str, value: Any, wanted: str) -> TypeError:
    """Return the error of a parameter whose value has a wrong type."""
    return TypeError(f"{name} is {value!r} ({type(value).__name__}): it must be {wanted}")


def check_names(options: Iterable[str], kind: Callable[..., Any], *callers: Callable[..., Any]) -> None:
    """Raise TypeError unless each option is a field of `kind`. Parameters of the callers are suggested too."""
    fields, *more = ([*inspect.signature(f).parameters] for f in (kind, *callers))
    known = sorted({*fields, *(name for names in more for name in names)} - {"self", "model"})
    for name in options:
        if name not in fields:
            near = difflib.get_close_matches(name, known, 1)
            advice = f"did you mean '{near[0]}'?" if near else f"options are {', '.join(known)}"
            raise TypeError(f"unknown option '{name}'; {advice}")


def instance(value: Any, kind: type[T], name: str, wanted: str) -> T:
    """Return the value of a parameter, which must be an instance of `kind`."""
    if isinstance(value, kind):
        return value
    if isinstance(value, type) and issubclass(value, kind):
        made = value.__name__
        raise TypeError(f"{name} is the class {made}: it must be an instance: {name}={made}()")
    raise type_error(name, value, wanted)


def assign(c: Any, field: str, value: Any, name: str = "") -> None:
    """Set a number of a structure. `name` is its parameter; "": it is called as the field."""
    try:
        setattr(c, field, value)
    except OverflowError as e:
        raise errors.InvalidError(f"{name or field} is {value!r}: out of range: {e}") from None
    except TypeError:
        structure = ffi.typeof(c)
        fields = dict((structure.item if structure.kind == "pointer" else structure).fields)
        wanted = {"float": "a number", "double": "a number", "_Bool": "True or False"}
        raise type_error(name or field, value, wanted.get(fields[field].type.cname, "an integer")) from None


def encode(text: str, name: str) -> bytes:
    """Return the UTF-8 of a parameter."""
    if not isinstance(text, str):
        raise type_error(name, text, "a text")
    return text.encode()


def array_of(kind: str, values: Iterable[Any], rule: str) -> Any:
    """Return a C array that owns its memory. A TypeError states the rule."""
    try:
        return ffi.new(f"{kind}[]", list(values))
    except (TypeError, ValueError, OverflowError) as e:
        raise TypeError(f"{rule}: {e}") from None


def ids_array(ids: Sequence[int]) -> Any:
    """Return token ids as a C array that owns its memory."""
    return array_of("int32_t", ids, "token ids must be a sequence of 32-bit integers")


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
    if not lib.ag_dtype_parse(encode(name, what), out):
        raise errors.InvalidError(f"{what} is '{name}': unknown type; types are f32, f16, q8_0, q4_0, ...")
    return int(ffi.cast("int", out[0]))


def dtype_name(value: int) -> str:
    return text_of(lib.ag_dtype_name(value))


def choice(names: dict[str, int], name: str, what: str) -> int:
    """Return the value of a name of an enumeration."""
    encode(name, what)  # fails for other types
    if name not in names:
        raise errors.InvalidError(f"{what} is '{name}': it must be one of {', '.join(names)}")
    return names[name]
