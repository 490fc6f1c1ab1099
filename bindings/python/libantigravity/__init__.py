# SPDX-License-Identifier: Apache-2.0
"""Large language models on this machine, with a managed KV cache.

import libantigravity as ag

model = ag.Model()
for piece in model.generate("Once upon a time", max_tokens=60):
    print(piece, end="", flush=True)
"""

from ._native import ffi as _ffi
from ._native import lib as _lib
from ._native import text_of as _text_of
from .errors import (
    BusyError,
    CancelledError,
    DeviceError,
    DTypeError,
    Error,
    ForkError,
    FormatError,
    InvalidError,
    IOFailedError,
    LimitError,
    NotFoundError,
    OutOfMemoryError,
    PolicyError,
    RefusedError,
    ShapeError,
    UnsupportedError,
)
from .generation import Generation, TokenLogprob
from .model import Model
from .params import MemoryWatch, SessionParams, Spill
from .policy import KeysHead, KeysLayer, Policy, SelectHead, SelectLayer, policy_names
from .sampling import Sampling
from .session import Scores, Session, StepItem, StepResult
from .stats import (
    CompressionStats,
    Eviction,
    EvictionStats,
    GenerationStats,
    MemoryUsage,
    ModelInfo,
    SpillStats,
)

__version__ = _text_of(_lib.ag_version())


def memory_usage() -> MemoryUsage:
    """Return the resident memory of this process in bytes."""
    c = _ffi.new("ag_memory_usage *")
    if _lib.ag_process_memory(c):
        raise UnsupportedError("this system does not report the memory of a process")
    return MemoryUsage(c.anonymous, c.file, c.peak)


__all__ = [
    "BusyError",
    "CancelledError",
    "CompressionStats",
    "DTypeError",
    "DeviceError",
    "Error",
    "Eviction",
    "EvictionStats",
    "ForkError",
    "FormatError",
    "Generation",
    "GenerationStats",
    "IOFailedError",
    "InvalidError",
    "KeysHead",
    "KeysLayer",
    "LimitError",
    "MemoryUsage",
    "MemoryWatch",
    "Model",
    "ModelInfo",
    "NotFoundError",
    "OutOfMemoryError",
    "Policy",
    "PolicyError",
    "RefusedError",
    "Sampling",
    "Scores",
    "SelectHead",
    "SelectLayer",
    "Session",
    "SessionParams",
    "ShapeError",
    "Spill",
    "SpillStats",
    "StepItem",
    "StepResult",
    "TokenLogprob",
    "UnsupportedError",
    "memory_usage",
    "policy_names",
]
