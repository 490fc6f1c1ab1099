# SPDX-License-Identifier: Apache-2.0
"""Sampling parameters and samplers."""

from __future__ import annotations

import numbers
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ._native import array_of, assign, call, create, ffi, instance, lib


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen. None: the model's recommendation, else the library's default.

    The steps are applied in the order of the fields. `temperature` 0 is greedy. `seed` None draws one.
    """

    logit_bias: Mapping[int, float] | None = None  # added to the logit of each id
    repetition_penalty: float | None = None  # 1: off
    repetition_window: int | None = None  # newest tokens
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    top_n_sigma: float | None = None  # 0: off
    top_k: int | None = None  # 0: off
    typical_p: float | None = None  # 1: off
    top_p: float | None = None  # 1: off
    min_p: float | None = None  # 0: off
    temperature: float | None = None
    seed: int | None = None


_DIRECT = [f.name for f in fields(Sampling) if f.name not in ("logit_bias", "seed")]


def recommended(path: str) -> Any:
    """Return ag_sampler_params with the recommendations of the model at `path`."""
    params = ffi.new("ag_sampler_params *")
    params[0] = lib.ag_sampler_defaults()
    call(lib.ag_chat_sampling_load, path.encode(), params, ffi.NULL)
    return params


def make_sampler(base: Any, sampling: Sampling, n_vocab: int) -> Any:
    """Return an ag_sampler, which is destroyed with the returned object."""
    params = ffi.new("ag_sampler_params *")
    params[0] = base[0]
    for name in _DIRECT:
        value = getattr(sampling, name)
        if value is not None:
            assign(params, name, value)
    biases = instance(sampling.logit_bias or {}, Mapping, "logit_bias", "a mapping")  # type: ignore[type-abstract]
    rows = ({"id": int(i), "bias": bias} for i, bias in biases.items())
    bias_list = array_of("ag_logit_bias", rows, "logit_bias must map token ids to numbers")
    params.logit_bias = bias_list
    params.n_logit_bias = len(biases)
    seed = secrets.randbits(32) if sampling.seed is None else sampling.seed
    assign(params, "seed", int(seed) % 2**64 if isinstance(seed, numbers.Integral) else seed)
    return ffi.gc(create(lib.ag_sampler_create, "ag_sampler", params, n_vocab), lib.ag_sampler_destroy)
