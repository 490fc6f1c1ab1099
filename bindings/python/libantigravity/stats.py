# SPDX-License-Identifier: Apache-2.0
"""Statistics and properties, as plain dataclasses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._native import dtype_name, lib, text_of


@dataclass(frozen=True)
class ModelInfo:
    """Properties of a model."""

    architecture: str
    n_layers: int
    hidden_size: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    n_vocab: int
    max_positions: int  # positions the model was trained for
    bos_id: int  # -1: none
    eos_ids: tuple[int, ...]
    n_parameters: int
    weight_type: str  # most frequent type in memory
    weight_bytes: int
    file_bytes: int


@dataclass(frozen=True)
class Eviction:
    """One eviction, over all layers and heads."""

    reason: str  # "budget", "trained length" or "memory pressure"
    pressure: str  # "normal" unless the reason is "memory pressure"
    policy: str
    position: int  # of the next token
    n_before: int  # tokens of the fullest head; the mean over heads if their numbers differ
    n_kept: int
    bytes_returned: int
    seconds: float


@dataclass(frozen=True)
class EvictionStats:
    """Sums over the evictions of a session."""

    n_evictions: int
    n_tokens: int  # tokens evicted from the fullest head
    bytes_returned: int
    seconds: float
    longest_s: float


@dataclass(frozen=True)
class SpillStats:
    """Slots of single KV heads in a spill file."""

    n_spilled: int
    n_reloaded: int
    n_dropped: int  # removed for Spill.max_bytes
    n_failed: int  # lost because the file could not be written or read
    file_bytes: int  # in use, of the session and its forks
    trouble: str  # the first error of the file; "": none


@dataclass(frozen=True)
class CompressionStats:
    """A compression by replay. Slots are summed over all KV heads of the layers without a window."""

    n_heads: int
    n_before: int
    n_kept: int
    n_replayed: int  # tokens fed for the replay
    bytes_returned: int
    seconds: float


@dataclass(frozen=True)
class GenerationStats:
    """A finished generation. Times are in seconds."""

    finish: str  # "eos", "stop_string", "max_tokens", "context" or "cancelled"
    finish_reason: str  # OpenAI's name: "stop", "length" or "cancelled"
    n_prompt: int
    n_generated: int  # tokens, without a final EOS
    prefill_s: float
    first_token_s: float
    decode_s: float
    kv_bytes: int
    n_drafted: int
    n_accepted: int
    evictions: EvictionStats


@dataclass(frozen=True)
class MemoryUsage:
    """Resident bytes of this process."""

    anonymous: int
    file: int
    peak: int


def model_info(c: Any) -> ModelInfo:
    return ModelInfo(
        architecture=text_of(c.architecture),
        n_layers=c.n_layers,
        hidden_size=c.hidden_size,
        n_heads=c.n_heads,
        n_kv_heads=c.n_kv_heads,
        head_dim=c.head_dim,
        n_vocab=c.n_vocab,
        max_positions=c.max_positions,
        bos_id=c.bos_id,
        eos_ids=tuple(c.eos_ids[i] for i in range(c.n_eos)),
        n_parameters=c.n_parameters,
        weight_type=dtype_name(c.weight_type),
        weight_bytes=c.weight_bytes,
        file_bytes=c.file_bytes,
    )


def eviction(c: Any) -> Eviction:
    return Eviction(
        reason=text_of(lib.ag_eviction_reason_name(c.reason)),
        pressure=text_of(lib.ag_pressure_name(c.level)),
        policy=text_of(c.policy),
        position=c.position,
        n_before=c.n_before,
        n_kept=c.n_kept,
        bytes_returned=c.bytes_returned,
        seconds=c.seconds,
    )


def spill_stats(c: Any) -> SpillStats:
    return SpillStats(c.n_spilled, c.n_reloaded, c.n_dropped, c.n_failed, c.file_bytes, text_of(c.trouble))


def compression_stats(c: Any) -> CompressionStats:
    return CompressionStats(c.n_heads, c.n_before, c.n_kept, c.n_replayed, c.bytes_returned, c.seconds)


def eviction_stats(c: Any) -> EvictionStats:
    return EvictionStats(c.n_evictions, c.n_tokens, c.bytes_returned, c.seconds, c.longest_s)


def generation_stats(c: Any) -> GenerationStats:
    return GenerationStats(
        finish=text_of(lib.ag_finish_detail(c.finish)),
        finish_reason=text_of(lib.ag_finish_reason(c.finish)),
        n_prompt=c.n_prompt,
        n_generated=c.n_generated,
        prefill_s=c.prefill_s,
        first_token_s=c.first_token_s,
        decode_s=c.decode_s,
        kv_bytes=c.kv_bytes,
        n_drafted=c.n_drafted,
        n_accepted=c.n_accepted,
        evictions=eviction_stats(c.evictions),
    )
