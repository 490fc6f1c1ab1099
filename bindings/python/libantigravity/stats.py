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
class EvictionStats:
    """Sums over the evictions of a session."""

    n_evictions: int
    n_tokens: int  # tokens evicted from the fullest head
    bytes_returned: int
    seconds: float
    longest_s: float


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
