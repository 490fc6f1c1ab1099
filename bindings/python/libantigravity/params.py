# SPDX-License-Identifier: Apache-2.0
"""Parameters of sessions, and their C form."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from . import errors, stats
from ._native import array_of, assign, choice, dtype, ffi, instance, lib
from .policy import Policy, guard, make_table, policy_names

HEAD_BUDGETS = {
    "even": lib.AG_HEAD_BUDGET_EVEN,
    "adaptive": lib.AG_HEAD_BUDGET_ADAPTIVE,
    "adaptive-values": lib.AG_HEAD_BUDGET_VALUES,
    "shares": lib.AG_HEAD_BUDGET_SHARES,
}
PREFILLS = {
    "auto": lib.AG_KV_PREFILL_AUTO,
    "bounded": lib.AG_KV_PREFILL_BOUNDED,
    "whole": lib.AG_KV_PREFILL_WHOLE,
}
K_ROTATIONS = {"auto": lib.AG_K_ROTATION_AUTO, "off": lib.AG_K_ROTATION_OFF, "on": lib.AG_K_ROTATION_ON}


@dataclass(frozen=True)
class Spill:
    """Where evicted slots are written. They are reloaded when queries attend to them."""

    path: str | os.PathLike[str]  # a directory, for an unnamed file in it, or a file that does not exist yet
    max_bytes: int = 0  # limit of the file; the oldest slots are dropped; 0: no limit
    block: int = 0  # slots of a KV head that are moved together, at most 128; 0: 16
    exact: bool = False  # store rows as in the cache; else keys as Q8_0 and values as Q4_0 if that is smaller


@dataclass(frozen=True)
class MemoryWatch:
    """When the memory of the system makes a session evict."""

    threshold_bytes: int = 256 << 20  # pressure starts below this much available memory
    target_ratio: float = 0.75  # share of the cache that soft pressure retains
    soft_waits: bool = False  # soft pressure evicts nothing: the caller reads Session.memory_pressure


@dataclass(frozen=True)
class SessionParams:
    """Parameters of a session. None: the library's default.

    The smallest budget applies; without one, the policy's default.
    """

    max_seq_len: int | None = None  # slots of the cache for each KV head; 2048
    prefill_chunk: int | None = None  # tokens of a prefill step; 512
    k_type: str = "f16"  # types of the cache: f32, f16, q8_0, q4_0
    v_type: str = "f16"
    k_rotation: str = "auto"  # Hadamard rotation of keys: "auto" (for q4_0), "off" or "on"
    kv_policy: str | Policy | None = None  # a name of policy_names() or a Policy
    kv_budget: int | None = None  # tokens that an eviction retains; 1024
    kv_budget_bytes: int | None = None  # the same in bytes of the whole cache
    kv_budget_ratio: float | None = None  # the same as a share of max_seq_len
    protected_prefix: int | None = None  # first tokens that are never evicted; 4
    recent: int | None = None  # newest tokens that are retained; 32
    slack: int | None = None  # tokens over the budget before decoding evicts; 64
    window: int | None = None  # tokens of the policy "sliding"; 1024
    head_budget: str = "even"  # "even", "adaptive", "adaptive-values" or "shares"
    head_shares: Sequence[float] | None = None  # weights of all KV heads for "shares": Session.head_maxima()
    prefill: str = "auto"  # when a prompt is evicted: "auto", "bounded" or "whole"
    snapkv_window: int | None = None  # last queries of a prompt that "snapkv" scores with; 32
    snapkv_kernel: int | None = None  # slots pooled, an odd number; 5
    snapkv_pool: str = "average"  # "average" or "max"
    spill: Spill | None = None  # None: evicted slots are lost
    memory: MemoryWatch | None = None  # None: the session does not watch memory
    on_eviction: Callable[[stats.Eviction], Any] | None = None  # called after each eviction


_LIMITS = {
    "protected_prefix": "protected_prefix",
    "recent": "recent",
    "slack": "slack",
    "window": "window",
    "snapkv_window": "snapkv_window",
    "snapkv_kernel": "snapkv_kernel",
    "kv_budget": "budget_tokens",
    "kv_budget_bytes": "budget_bytes",
    "kv_budget_ratio": "budget_ratio",
}


class Built:
    """A structure of the library, and the memory that a session with it borrows."""

    def __init__(self, kind: str) -> None:
        self.c = ffi.new(f"{kind} *")
        self.borrowed: list[Any] = []


def _set_policy(built: Built, policy: str | Policy | None) -> None:
    if isinstance(policy, str):
        built.c.policy = lib.ag_eviction_policy_find(policy.encode())
        if built.c.policy == ffi.NULL:
            raise errors.InvalidError(
                f"kv_policy is '{policy}': it must be one of {', '.join(policy_names())} or a Policy"
            )
    elif policy is not None:
        table = make_table(instance(policy, Policy, "kv_policy", "a name or a Policy"))
        built.borrowed.append(table)
        built.c.policy = table.pointer


def _set_spill(built: Built, spill: Spill) -> None:
    path = ffi.new("char[]", os.fsencode(instance(spill, Spill, "spill", "a Spill").path))
    c = ffi.new("ag_spill_params *")
    c.path = path
    for name in ("max_bytes", "block", "exact"):
        assign(c, name, getattr(spill, name), f"spill.{name}")
    built.borrowed += [path, c]
    built.c.spill = c


def _set_listener(built: Built, listener: Callable[[stats.Eviction], Any]) -> None:
    @ffi.callback("void(void *, const ag_eviction *)")
    def report(_user: Any, eviction: Any) -> None:
        guard("on_eviction", lambda: listener(stats.eviction(eviction)))

    built.borrowed.append(report)
    built.c.on_eviction = report


def eviction_params(p: SessionParams) -> Built:
    """Return ag_eviction_params."""
    built = Built("ag_eviction_params")
    c = built.c
    c[0] = lib.ag_eviction_defaults()
    _set_policy(built, p.kv_policy)
    budgets = [name for name in ("kv_budget", "kv_budget_bytes", "kv_budget_ratio") if getattr(p, name) is not None]
    if budgets and p.kv_policy is None and p.memory is None:
        raise errors.InvalidError(f"{budgets[0]} needs a kv_policy: without one nothing is evicted")
    for name, field in _LIMITS.items():
        if getattr(p, name) is not None:
            assign(c, field, getattr(p, name), name)
    c.head_budget = choice(HEAD_BUDGETS, p.head_budget, "head_budget")
    c.prefill = choice(PREFILLS, p.prefill, "prefill")
    c.snapkv_pool = choice({"average": lib.AG_POOL_AVERAGE, "max": lib.AG_POOL_MAX}, p.snapkv_pool, "snapkv_pool")
    if p.head_shares is not None:
        c.head_shares = shares = array_of("float", p.head_shares, "head_shares must be a sequence of numbers")
        c.n_head_shares = len(shares)
        built.borrowed.append(shares)
    if p.memory is not None:
        instance(p.memory, MemoryWatch, "memory", "a MemoryWatch")
        for name in ("threshold_bytes", "target_ratio", "soft_waits"):
            assign(c.memory, name, getattr(p.memory, name), f"memory.{name}")
    if p.spill is not None:
        _set_spill(built, p.spill)
    if p.on_eviction is not None:
        _set_listener(built, p.on_eviction)
    return built


def session_params(p: SessionParams) -> Built:
    """Return ag_session_params."""
    built = Built("ag_session_params")
    c = built.c
    c[0] = lib.ag_session_defaults()
    for name in ("max_seq_len", "prefill_chunk"):
        if getattr(p, name) is not None:
            assign(c, name, getattr(p, name))
    c.k_type, c.v_type = dtype(p.k_type, "k_type"), dtype(p.v_type, "v_type")
    c.k_rotation = choice(K_ROTATIONS, p.k_rotation, "k_rotation")
    eviction = eviction_params(p)
    c.eviction = eviction.c[0]
    built.borrowed = eviction.borrowed
    return built
