# SPDX-License-Identifier: Apache-2.0
"""Cache policies in Python: classes that score or select the slots of a layer with NumPy.

Slot: a token in one layer and KV head. An eviction calls a policy once for each layer, on the engine's
thread. Arrays that it gets are views of the library's memory, without a copy. They are valid during
the call only: a policy that keeps one fails, and must keep a copy.
"""

from __future__ import annotations

import threading
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from . import errors
from ._native import choice, ffi, lib, text_of

IMPORTANCE = {
    "none": lib.AG_IMPORTANCE_NONE,
    "window": lib.AG_IMPORTANCE_WINDOW,
    "total": lib.AG_IMPORTANCE_TOTAL,
    "newest": lib.AG_IMPORTANCE_NEWEST,
    "keys": lib.AG_IMPORTANCE_KEYS,
    "chunk": lib.AG_IMPORTANCE_CHUNK,
}


def policy_names() -> list[str]:
    """Return the names of the library's policies; the first is "none"."""
    names: list[str] = []
    while (policy := lib.ag_eviction_policy_at(len(names))) != ffi.NULL:
        names.append(text_of(policy.name))
    return names


class _Lease:
    """Makes the arrays of one call, and finds out whether one of them outlives it."""

    def __init__(self) -> None:
        self._roots: list[weakref.ref[Any]] | None = []

    def array(self, pointer: Any, shape: tuple[int, ...], kind: str = "float32") -> Any:
        from . import _arrays

        if self._roots is None:
            raise errors.PolicyError("a view is valid during the policy's call only; keep a copy")
        array = _arrays.read_only(_arrays.view(pointer, shape, kind))
        self._roots.append(weakref.ref(array.base))  # arrays that are made of it keep this one alive
        return array

    def end(self) -> bool:
        """End the lease. Return whether an array is still in use."""
        roots, self._roots = self._roots or [], None
        return any(root() is not None for root in roots)


class KeysHead:
    """The slots of one KV head, in order of position."""

    def __init__(self, lease: _Lease, c: Any) -> None:
        self._lease, self._c = lease, c
        self.n_slots: int = c.n_slots
        self.dim: int = c.dim
        self.n_protected: int = c.n_protected  # first slots, retained whatever their scores

    @property
    def keys(self) -> Any:
        """Keys [n_slots, dim] float32, rotated to their positions unless the policy is `unrotated`."""
        return self._lease.array(self._c.keys, (self.n_slots, self.dim))

    @property
    def values(self) -> Any:
        """Values [n_slots, dim] float32. The policy must set `with_values`."""
        return self._optional(self._c.values, (self.n_slots, self.dim), "values: set with_values")

    @property
    def positions(self) -> Any:
        """Logical positions [n_slots] uint32, ascending."""
        return self._lease.array(self._c.positions, (self.n_slots,), "uint32")

    @property
    def sums(self) -> Any:
        """Attention inside chunks of a prompt, [n_slots] float32. For the importance "chunk" only."""
        return self._optional(self._c.sums, (self.n_slots,), "sums: set importance = 'chunk'")

    def _optional(self, pointer: Any, shape: tuple[int, ...], what: str) -> Any:
        if pointer == ffi.NULL:
            raise errors.PolicyError(f"the policy does not request {what}")
        return self._lease.array(pointer, shape)


class SelectHead:
    """The slots of one KV head from which the policy selects `n_keep`.

    Slots [0, n_protected) and the newest `n_recent` must stay; the `n_expired` slots after the
    protected ones must leave. n_protected + n_recent <= n_keep <= n_slots - n_expired.
    """

    def __init__(self, lease: _Lease, c: Any) -> None:
        self._lease, self._c = lease, c
        view = c.view
        self.index: int = c.head  # of the head in its layer
        self.n_keep: int = c.n_keep
        self.n_slots: int = view.n_slots
        self.n_protected: int = view.n_protected
        self.n_expired: int = view.n_expired
        self.n_recent: int = view.n_recent
        self.n_scored: int = view.n_scored  # slots [0, n_scored) have scores; newer ones came after

    @property
    def positions(self) -> Any:
        """Logical positions [n_slots] uint32, ascending."""
        return self._lease.array(self._c.view.positions, (self.n_slots,), "uint32")

    @property
    def importance(self) -> Any:
        """Importance [n_slots] float32; larger is retained. None without importance."""
        pointer = self._c.view.importance
        return None if pointer == ffi.NULL else self._lease.array(pointer, (self.n_slots,))

    @property
    def turns(self) -> list[int]:
        """First positions of the conversation's turns, ascending."""
        view = self._c.view
        return ffi.unpack(view.turns, view.n_turns) if view.n_turns else []

    def best(self, scores: Any) -> Any:
        """Return the slots that must stay and those with the highest scores [n_slots], n_keep in all.

        Ties go to the lower slot, as in the library's policies.
        """
        import numpy as np

        rank = np.array(scores, np.float32)
        end = max(self.n_slots - self.n_recent, self.n_protected + self.n_expired)
        rank[: self.n_protected] = np.inf
        rank[self.n_protected : self.n_protected + self.n_expired] = -np.inf
        rank[end:] = np.inf
        _check_numbers(rank, "best", self.index)
        return np.sort(np.argsort(-rank, kind="stable")[: self.n_keep])


H = TypeVar("H", bound="KeysHead | SelectHead")


class Layer(Generic[H]):
    """The KV heads of one layer. Iterating yields its heads."""

    def __init__(self, index: int, heads: list[H]) -> None:
        self.index = index
        self.heads = heads

    def __iter__(self) -> Iterator[H]:
        return iter(self.heads)

    def __len__(self) -> int:
        return len(self.heads)

    @property
    def is_rectangular(self) -> bool:
        """Whether all heads have the same number of slots."""
        return len({h.n_slots for h in self.heads}) == 1


class KeysLayer(Layer[KeysHead]):
    """All KV heads of a layer, for `Policy.from_keys`."""

    def __init__(self, lease: _Lease, index: int, c: Any, n: int) -> None:
        super().__init__(index, [KeysHead(lease, c[i]) for i in range(n)])
        self._lease = lease
        self.removed: float = c[0].removed  # share of the layer's slots that will be evicted

    @property
    def keys(self) -> Any:
        """Keys of all heads [n_heads, n_slots, dim] float32. The heads must have equal lengths."""
        return self._joined("keys")

    @property
    def values(self) -> Any:
        """Values of all heads [n_heads, n_slots, dim] float32. The heads must have equal lengths."""
        return self._joined("values")

    def _joined(self, name: str) -> Any:
        """Return the arrays of all heads as one array: heads lie at equal distances in memory."""
        first = self.heads[0]
        if not self.is_rectangular or len(self) == 1:
            if len(self) == 1:
                return getattr(first, name)[None]
            raise errors.PolicyError(f"the heads have different lengths: use [head.{name} for head in layer]")
        pointers = [getattr(h._c, name) for h in self.heads]
        if pointers[0] == ffi.NULL:
            return getattr(first, name)  # raises
        stride = pointers[1] - pointers[0]
        n = first.n_slots * first.dim
        flat = self._lease.array(pointers[0], (stride * (len(self) - 1) + n,))
        from numpy.lib.stride_tricks import as_strided

        shape, strides = (len(self), first.n_slots, first.dim), (4 * stride, 4 * first.dim, 4)
        return as_strided(flat, shape, strides)


class SelectLayer(Layer[SelectHead]):
    """The KV heads of a layer from which slots leave, for `Policy.select`."""


class Policy:
    """Base class of cache policies. A policy overrides `from_keys`, `select` or both.

    Equal arrays must give equal results: a policy keeps no state between calls.
    """

    name = ""  # for statistics and saved sessions; "": the name of the class
    # The source of `SelectHead.importance`: "none", "window" (attention of a prompt's last queries),
    # "total" (attention of all queries), "newest" (of the newest query), "keys" or "chunk"
    # (`from_keys`).
    importance = "none"
    unrotated = False  # `from_keys` gets keys before their rotation
    with_values = False  # `from_keys` gets values too
    prefill_block = 0  # maximum tokens of a prefill chunk once the budget is used; 0: any
    whole_prefill = False  # prefers one eviction after a prompt to one after each chunk

    def from_keys(self, layer: KeysLayer) -> Any:
        """Return the importance of a layer's slots: an array [n_heads, n_slots], or a list of arrays
        [n_slots], one for each head. Required for the importance "keys" and "chunk"."""
        raise NotImplementedError

    def select(self, layer: SelectLayer) -> Sequence[Any]:
        """Return the slots to retain for each head: a mask [n_slots], or n_keep ascending slots.

        Without this function the slots of the highest importance stay.
        """
        raise NotImplementedError


_FROM_KEYS = ("keys", "chunk")


class _Failure(threading.local):
    """The first exception of a policy in the call that runs on this engine's thread."""

    error: errors.PolicyError | None = None


_failure = _Failure()


def forget_failure() -> None:
    """Begin a call: exceptions of calls before it do not count."""
    _failure.error = None


def guard(what: str, function: Callable[[], Any]) -> None:
    """Run a function that a caller gave; its exception becomes that of the call."""
    try:
        function()
    except BaseException as e:
        if _failure.error is None:
            _failure.error = errors.PolicyError(f"{what}: {_describe(e)}")
            _failure.error.__cause__ = e


def raise_failure() -> None:
    """Raise the first exception of a policy in this call, if there is one."""
    error, _failure.error = _failure.error, None
    if error is not None:
        raise error


def _attributes(policy: Policy) -> tuple[Any, ...]:
    """Return the attributes of a policy that its C form copies."""
    p = policy
    return p.name, p.importance, p.unrotated, p.with_values, p.prefill_block, p.whole_prefill


def _describe(e: BaseException) -> str:
    try:
        return f"{type(e).__name__}: {e}"
    except Exception:  # of its __str__
        return type(e).__name__


class _Table:
    """The ag_eviction_policy of a Policy."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.attributes = _attributes(policy)
        self._handle = ffi.new_handle(self)
        kind = type(policy)
        self.name = policy.name or kind.__name__
        self._name = ffi.new("char[]", self.name.encode())
        self.pointer = table = ffi.new("ag_eviction_policy *")
        table.name = self._name
        table.importance = choice(IMPORTANCE, policy.importance, f"{self.name}.importance")
        table.unrotated, table.with_values = policy.unrotated, policy.with_values
        table.prefill_block, table.whole_prefill = policy.prefill_block, policy.whole_prefill
        table.user = self._handle
        selects = kind.select is not Policy.select
        if policy.importance in _FROM_KEYS:
            if kind.from_keys is Policy.from_keys:
                raise errors.InvalidError(f"{self.name}: the importance '{policy.importance}' needs a method from_keys")
            table.from_keys_layer = _from_keys_layer
        elif policy.importance == "none" and not selects:
            raise errors.InvalidError(f"{self.name}: a policy without importance needs a method select")
        if selects:
            table.select_layer = _select_layer
        else:
            table.select = lib.ag_eviction_policy_find(b"keydiff").select

    def run(self, function: Callable[[_Lease], None], error: Any) -> int:
        """Run a function of the policy; its exception becomes the error of the call."""
        lease = _Lease()
        try:
            function(lease)
            if lease.end():
                raise errors.PolicyError("an array is in use after the call; keep a copy")
            return int(lib.AG_OK)
        except BaseException as e:
            traceback.clear_frames(e.__traceback__)
            lease.end()
            text = f"eviction policy {self.name}: {_describe(e)}"
            if _failure.error is None:
                _failure.error = errors.PolicyError(text)
                _failure.error.__cause__ = e
            error.status = lib.AG_INVALID
            # Without a part of a character.
            message = text.encode("utf-8", "replace")[:487].decode("utf-8", "ignore").encode()
            ffi.memmove(error.msg, message.ljust(488, b"\0"), 488)
            return int(lib.AG_INVALID)


def _check_numbers(scores: Any, what: str, head: int) -> None:
    import numpy as np

    bad = np.flatnonzero(np.isnan(scores))
    if bad.size:
        raise ValueError(f"{what}: the score of slot {bad[0]} of head {head} is NaN; each must be a number")


def _store_importance(policy: Policy, layer: KeysLayer, c: Any) -> None:
    import numpy as np

    result = policy.from_keys(layer)
    if len(result) != len(layer):
        raise ValueError(f"from_keys returned {len(result)} rows for {len(layer)} heads")
    for i, head in enumerate(layer):
        row = np.ascontiguousarray(result[i], np.float32)
        if row.shape != (head.n_slots,):
            raise ValueError(f"from_keys returned an array {list(row.shape)} for head {i} with {head.n_slots} slots")
        _check_numbers(row, "from_keys", i)
        ffi.memmove(c[i].importance, ffi.from_buffer(row), row.nbytes)


def _check_slots(slots: Any, head: SelectHead, i: int) -> None:
    import numpy as np

    last = head.n_slots - head.n_recent
    first = head.n_protected + head.n_expired
    if slots.shape != (head.n_keep,):
        raise ValueError(f"select returned {slots.size} slots for head {i}, which retains {head.n_keep}")
    if (np.diff(slots) <= 0).any() or slots[0] < 0 or slots[-1] >= head.n_slots:
        raise ValueError(f"select: the slots of head {i} must ascend and be below {head.n_slots}")
    if (slots < head.n_protected).sum() != head.n_protected:
        raise ValueError(f"select: head {i} must retain the first {head.n_protected} slots")
    if ((slots >= head.n_protected) & (slots < first)).any():
        raise ValueError(f"select: slots {head.n_protected} to {first - 1} of head {i} have expired")
    if (slots >= last).sum() != head.n_recent:
        raise ValueError(f"select: head {i} must retain the newest {head.n_recent} slots")


def _store_slots(policy: Policy, layer: SelectLayer, c: Any) -> None:
    import numpy as np

    result = policy.select(layer)
    if len(result) != len(layer):
        raise ValueError(f"select returned {len(result)} rows for {len(layer)} heads")
    for i, head in enumerate(layer):
        row = np.asarray(result[i])
        if row.dtype == np.bool_ and row.shape != (head.n_slots,):
            raise ValueError(f"select returned a mask {list(row.shape)} for {head.n_slots} slots")
        if row.size and row.dtype.kind not in "biu":
            raise ValueError(f"select returned {row.dtype} for head {i}: slots are integers, or a mask of bool")
        slots = np.flatnonzero(row) if row.dtype == np.bool_ else row.astype(np.int64)
        _check_slots(slots, head, i)
        kept = np.ascontiguousarray(slots, np.uint32)
        ffi.memmove(c[i].keep, ffi.from_buffer(kept), kept.nbytes)


@ffi.callback(
    "ag_status(void *, const ag_eviction_params *, uint32_t, const ag_eviction_inputs *, size_t, ag_error *)",
    error=lib.AG_INVALID,
)
def _from_keys_layer(user: Any, _p: Any, index: int, heads: Any, n: int, error: Any) -> int:
    table = ffi.from_handle(user)
    return table.run(lambda lease: _store_importance(table.policy, KeysLayer(lease, index, heads, n), heads), error)


@ffi.callback(
    "ag_status(void *, const ag_eviction_params *, uint32_t, const ag_eviction_head *, size_t, ag_error *)",
    error=lib.AG_INVALID,
)
def _select_layer(user: Any, _p: Any, index: int, heads: Any, n: int, error: Any) -> int:
    table = ffi.from_handle(user)

    def select(lease: _Lease) -> None:
        layer = SelectLayer(index, [SelectHead(lease, heads[i]) for i in range(n)])
        _store_slots(table.policy, layer, heads)

    return table.run(select, error)


def make_table(policy: Policy) -> _Table:
    """Return the C form of a policy, one for each object until an attribute changes: forks share its statistics.

    A change holds for later sessions.
    """
    table = policy.__dict__.get("_table")
    if table is None or table.attributes != _attributes(policy):
        table = policy.__dict__["_table"] = _Table(policy)
    return table
