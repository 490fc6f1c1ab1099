# SPDX-License-Identifier: Apache-2.0
"""NumPy arrays over memory of the library. Imported when the first array is made."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ._native import ffi

Floats = npt.NDArray[np.float32]
Positions = npt.NDArray[np.uint32]


def view(pointer: Any, shape: tuple[int, ...], kind: str = "float32", keep_alive: Any = None) -> Any:
    """Return an array over C memory, without a copy. `keep_alive` lives at least as long."""
    n = 1
    for size in shape:
        n *= size
    type_ = np.dtype(kind)
    if keep_alive is not None:
        pointer = ffi.gc(ffi.cast("void *", pointer), lambda _, __=keep_alive: None)
    return np.frombuffer(ffi.buffer(pointer, n * type_.itemsize), type_).reshape(shape)


def read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


def row_writer(n_rows: int, n_columns: int) -> tuple[Floats, Any]:
    """Return an array [n_rows, n_columns] and an ag_logits_fn that copies its rows there."""
    rows = np.empty((n_rows, n_columns), np.float32)
    memory = ffi.from_buffer("float[]", rows)

    @ffi.callback("bool(void *, size_t, const float *)", error=False)
    def copy_row(_user: Any, i: int, row: Any) -> bool:
        ffi.memmove(memory + i * n_columns, row, 4 * n_columns)
        return True

    return rows, copy_row


def log_probabilities(logits: Floats) -> Floats:
    """Return the natural log-probabilities of all tokens, an array of its own."""
    top = np.max(logits)
    return logits - np.float32(top + np.log(np.exp(logits - top).sum(dtype=np.float64)))


def largest(row: Floats, n: int) -> Any:
    """Return the indices of the n largest elements, the largest first."""
    if not n:
        return row[:0]
    best = np.argpartition(-row, n - 1)[:n]
    return best[np.argsort(-row[best], kind="stable")]


def log_probability(logits: Floats, token: int) -> tuple[float, bool]:
    """Return a token's natural log-probability and whether its logit is the largest."""
    largest = np.max(logits)
    total = np.exp(logits.astype(np.float64) - largest).sum()
    return float(logits[token] - largest - np.log(total)), bool(logits[token] == largest)
