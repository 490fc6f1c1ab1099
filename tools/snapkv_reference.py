#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SnapKV (arXiv:2404.14469) in NumPy, to compare the library's selection with.

    tools/snapkv_reference.py tests/data/snapkv/cases.json

writes 50 random cases: keys and queries as integers in units of 1/32, and the slots that stay for
each KV head. The protected prefix is 0. Weights of the query heads of a group are meant before
pooling; pooling pads with zeros that count in the average's divisor; among equals the lower slot
stays. A case whose last kept and first dropped scores differ, but by less than 1e-3 relative, is
drawn again: there another order of summation may decide."""
import json
import sys

import numpy as np

UNIT = 32


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def scores(q, k, kernel, pool):
    """q [heads, window, dim], k [kv_heads, n, dim] -> pooled scores [kv_heads, n - window]."""
    heads, window, dim = q.shape
    kv_heads, n, _ = k.shape
    group = heads // kv_heads
    hidden = np.triu(np.full((window, n), -np.inf), n - window + 1)
    a = softmax(q @ np.repeat(k, group, axis=0).transpose(0, 2, 1) / np.sqrt(dim) + hidden)
    s = a[:, :, : n - window].sum(axis=1).reshape(kv_heads, group, -1).mean(axis=1)
    reach = kernel // 2
    padded = np.pad(s, ((0, 0), (reach, reach)))
    shifted = np.stack([padded[:, i : i + n - window] for i in range(kernel)])
    return shifted.max(axis=0) if pool == "max" else shifted.sum(axis=0) / kernel


def selection(pooled, n, window, budget):
    """Slots that stay for one KV head, and how clear the choice was."""
    order = np.argsort(-pooled, kind="stable")
    chosen = order[: budget - window]
    last, first = pooled[chosen[-1]], pooled[order[budget - window]]
    keep = np.concatenate([np.sort(chosen), np.arange(n - window, n)])
    return keep, 1.0 if last == first else (last - first) / last


def draw(rng):
    kv_heads = int(rng.choice([1, 2, 3]))
    group = int(rng.choice([1, 2, 4]))
    dim = int(rng.choice([8, 16]))
    window = int(rng.choice([1, 4, 8, 12]))
    n = int(rng.integers(window + 8, 80))
    budget = int(rng.integers(window + 1, n))
    kernel = int(rng.choice([1, 3, 5, 7, 15]))
    pool = str(rng.choice(["average", "max"]))
    q = np.clip(rng.normal(0, 1.5, (kv_heads * group, window, dim)) * UNIT, -127, 127).astype(int)
    k = np.clip(rng.normal(0, 1.5, (kv_heads, n, dim)) * UNIT, -127, 127).astype(int)
    pooled = scores(q / UNIT, k / UNIT, kernel, pool)
    picked = [selection(p, n, window, budget) for p in pooled]
    case = {"heads": kv_heads * group, "kv_heads": kv_heads, "dim": dim, "n": n, "window": window,
            "budget": budget, "kernel": kernel, "pool": pool, "q": q.ravel().tolist(),
            "k": k.ravel().tolist(), "keep": [p[0].tolist() for p in picked]}
    return case, min(p[1] for p in picked)


def main(path):
    rng = np.random.default_rng(20240414)
    cases = []
    while len(cases) < 50:
        case, clearness = draw(rng)
        if clearness >= 1e-3:
            cases.append(case)
    with open(path, "w", encoding="ascii") as f:
        f.write('{"cases": [\n')
        f.write(",\n".join(json.dumps(c, separators=(",", ":")) for c in cases))
        f.write("\n]}\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
