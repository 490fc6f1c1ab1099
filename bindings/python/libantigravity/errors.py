# SPDX-License-Identifier: Apache-2.0
"""Errors: one class for each status of the library. The message is the library's."""

from __future__ import annotations


class Error(Exception):
    """Base class of all errors of the library.

    `status` is the library's name of the reason: "NOMEM", "INVALID", ...
    """

    status = "INVALID"


class OutOfMemoryError(Error, MemoryError):
    status = "NOMEM"


class InvalidError(Error, ValueError):
    """An argument is out of range."""

    status = "INVALID"


class ShapeError(Error, ValueError):
    status = "SHAPE"


class DTypeError(Error, TypeError):
    status = "DTYPE"


class FormatError(Error, ValueError):
    """A file or text is malformed."""

    status = "FORMAT"


class UnsupportedError(Error):
    status = "UNSUPPORTED"


class NotFoundError(Error, LookupError):
    """There is no such file, tensor or name."""

    status = "NOT_FOUND"


class IOFailedError(Error, OSError):
    """Reading or writing failed."""

    status = "IO"


class LimitError(Error):
    """A capacity or context limit is reached."""

    status = "LIMIT"


class CancelledError(Error):
    """The caller cancelled the work."""

    status = "CANCELLED"


class DeviceError(Error):
    """The device or its driver failed."""

    status = "DEVICE"


class RefusedError(Error, ValueError):
    """The model's chat template rejects the conversation."""

    status = "REFUSED"


class BusyError(Error):
    status = "BUSY"


class PolicyError(Error):
    """A cache policy failed. `__cause__` is the exception of the policy."""


class ForkError(Error):
    """The process was forked after the model was loaded."""


_CLASSES = {
    c.status: c
    for c in (
        OutOfMemoryError,
        InvalidError,
        ShapeError,
        DTypeError,
        FormatError,
        UnsupportedError,
        NotFoundError,
        IOFailedError,
        LimitError,
        CancelledError,
        DeviceError,
        RefusedError,
        BusyError,
    )
}


def make_error(status: str, message: str) -> Error:
    """Return the exception of a status of the library."""
    return _CLASSES.get(status, Error)(message)
