#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write a GGUF of random weights in a known shape, for timing llama.cpp-based peers on the same work as ours.

usage: make_bench_gguf.py OUT.gguf [--shape 1b|3b|qwen3-30b-a3b|qwen3-dense-twin|gpt-oss-20b] [--layers N]        needs numpy
The vocabulary is empty ("no_vocab"): fit for speed, not for text.
1b and 3b are Llamas in Q4_0 whose embedding is tied (no output.weight).
qwen3-30b-a3b is in Q4_K. qwen3-dense-twin has the same attention and a feed-forward part as wide as the 8 experts of a token.
gpt-oss-20b has its experts in MXFP4, other matrices in Q8_0.
Rows of routers are normal, times exp(N(0, 0.7)) each, so that some experts are chosen far more often than others, as in trained models.
The program prints the share of choices that the busiest quarter of experts gets with random rows, over all layers.
Residual branches are small against the embedding, so that the tokens of a text stay as different as random ones.
Format: GGUF version 3, https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""
import argparse
import struct
from dataclasses import dataclass, replace

import numpy as np

ALIGNMENT = 32
CHUNK_ROWS = 4096
SKEW, ROUTER_SEED = 0.7, 1


@dataclass(frozen=True)
class Shape:
    arch: str
    hidden: int
    layers: int
    heads: int
    kv: int
    head_dim: int
    ffn: int  # width of the feed-forward part, or of an expert
    vocab: int
    kind: str = "q4_0"
    expert_kind: str = "q4_0"
    tied: bool = True
    experts: int = 0
    used: int = 0
    rope_base: float = 500000.0


SHAPES = {
    "1b": Shape("llama", 2048, 16, 32, 8, 64, 8192, 128256),
    "3b": Shape("llama", 3072, 28, 24, 8, 128, 8192, 128256),
    "qwen3-30b-a3b": Shape("qwen3moe", 2048, 48, 32, 4, 128, 768, 151936, "q4_k", "q4_k", False, 128, 8, 1e6),
    "qwen3-dense-twin": Shape("qwen3", 2048, 48, 32, 4, 128, 6144, 151936, "q4_k", "q4_k", False, rope_base=1e6),
    "gpt-oss-20b": Shape("gpt-oss", 2880, 24, 64, 8, 64, 2880, 201088, "q8_0", "mxfp4", False, 32, 4, 150000.0),
}


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def pair(key, value):
    """A key with its value: a string, a float, or an integer of 32 bits."""
    kind, data = {
        str: lambda: (8, text(value)),
        float: lambda: (6, struct.pack("<f", value)),
        int: lambda: (4, struct.pack("<I", value)),
    }[type(value)]()
    return text(key) + struct.pack("<I", kind) + data


def metadata(s):
    pairs = {
        "block_count": s.layers,
        "context_length": 131072,
        "embedding_length": s.hidden,
        "feed_forward_length": s.ffn,
        "attention.head_count": s.heads,
        "attention.head_count_kv": s.kv,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "attention.key_length": s.head_dim,
        "attention.value_length": s.head_dim,
        "rope.freq_base": s.rope_base,
        "rope.dimension_count": s.head_dim,
        "vocab_size": s.vocab,
    }
    if s.experts:
        pairs |= {"expert_count": s.experts, "expert_used_count": s.used, "expert_feed_forward_length": s.ffn}
    if s.arch == "gpt-oss":
        pairs |= {
            "attention.sliding_window": 128,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 32.0,
            "rope.scaling.original_context_length": 4096,
        }
    pairs = {f"{s.arch}.{key}": value for key, value in pairs.items()}
    return {"general.architecture": s.arch, **pairs, "tokenizer.ggml.model": "no_vocab"}


def feed_forward(s, p):
    """The tensors of a feed-forward part."""
    if not s.experts:
        yield p + "ffn_gate.weight", (s.ffn, s.hidden), s.kind
        yield p + "ffn_up.weight", (s.ffn, s.hidden), s.kind
        yield p + "ffn_down.weight", (s.hidden, s.ffn), s.kind
        return
    biased = s.arch == "gpt-oss"
    yield p + "ffn_gate_inp.weight", (s.experts, s.hidden), "router"
    if biased:
        yield p + "ffn_gate_inp.bias", (s.experts,), "zeros"
    for name, rows, cols in (("gate", s.ffn, s.hidden), ("up", s.ffn, s.hidden), ("down", s.hidden, s.ffn)):
        yield f"{p}ffn_{name}_exps.weight", (s.experts, rows, cols), s.expert_kind
        if biased:
            yield f"{p}ffn_{name}_exps.bias", (s.experts, rows), "zeros"


def attention(s, p):
    """The tensors of an attention part."""
    wide, narrow = s.heads * s.head_dim, s.kv * s.head_dim
    for name, rows, cols in (("q", wide, s.hidden), ("k", narrow, s.hidden), ("v", narrow, s.hidden), ("output", s.hidden, wide)):
        yield f"{p}attn_{name}.weight", (rows, cols), s.kind
        if s.arch == "gpt-oss":
            yield f"{p}attn_{name}.bias", (rows,), "zeros"
    if s.arch == "gpt-oss":
        yield p + "attn_sinks.weight", (s.heads,), "zeros"
    elif s.arch != "llama":
        yield p + "attn_q_norm.weight", (s.head_dim,), "ones"
        yield p + "attn_k_norm.weight", (s.head_dim,), "ones"


def tensors(s):
    """(name, shape, kind), shapes outermost first."""
    yield "token_embd.weight", (s.vocab, s.hidden), s.kind
    yield "output_norm.weight", (s.hidden,), "ones"
    if not s.tied:
        yield "output.weight", (s.vocab, s.hidden), s.kind
    for i in range(s.layers):
        p = f"blk.{i}."
        yield p + "attn_norm.weight", (s.hidden,), "ones"
        yield p + ("post_attention_norm.weight" if s.arch == "gpt-oss" else "ffn_norm.weight"), (s.hidden,), "ones"
        yield from attention(s, p)
        yield from feed_forward(s, p)


def deviation(name, cols):
    """Returns the standard deviation of a matrix's weights."""
    return 1.0 if name == "token_embd.weight" else 0.5 / cols**0.5


def halves(values):
    return values.astype("<f2").view(np.uint8).reshape(-1, 2)


def q4_0(rng, n, std):
    """Random nibbles, whose deviation from 8 is 4.6."""
    scale = rng.uniform(0.5, 1.5, n) * std / 4.6
    return np.concatenate([halves(scale), rng.integers(0, 256, (n, 16), np.uint8)], 1)


def q8_0(rng, n, std):
    """Random bytes, whose deviation is 74."""
    scale = rng.uniform(0.5, 1.5, n) * std / 74
    return np.concatenate([halves(scale), rng.integers(0, 256, (n, 32), np.uint8)], 1)


def q4_k(rng, n, std):
    """Random scales, minima and nibbles; the minima take away what nibbles have as their mean."""
    scale = rng.uniform(0.5, 1.5, n) * std / 245
    return np.concatenate([halves(scale), halves(7.5 * scale), rng.integers(0, 256, (n, 140), np.uint8)], 1)


def mxfp4(rng, n, std):
    """Random codes, whose deviation is 2.9, and exponents about the one that gives `std`."""
    exponent = 127 + round(np.log2(std / 2.9))
    scale = rng.integers(exponent - 1, exponent + 2, (n, 1)).astype(np.uint8)
    return np.concatenate([scale, rng.integers(0, 256, (n, 16), np.uint8)], 1)


# type of tensors in GGUF, values and bytes of a block, and a function that makes blocks
KINDS = {
    "ones": (0, 1, 4, None),
    "zeros": (0, 1, 4, None),
    "router": (0, 1, 4, None),
    "q4_0": (2, 32, 18, q4_0),
    "q8_0": (8, 32, 34, q8_0),
    "q4_k": (12, 256, 144, q4_k),
    "mxfp4": (39, 32, 17, mxfp4),
}


def n_bytes(shape, kind):
    _, values, size, _ = KINDS[kind]
    return int(np.prod(shape)) // values * size


def padding(n):
    return b"\0" * (-n % ALIGNMENT)


def busiest_quarter(router, used, rng):
    """Returns the share of choices that the busiest quarter of a router's experts gets with 2,048 random rows."""
    scores = rng.standard_normal((2048, router.shape[1]), np.float32) @ router.T
    chosen = np.argpartition(-scores, used - 1, 1)[:, :used]
    counts = np.sort(np.bincount(chosen.ravel(), minlength=len(router)))
    return counts[-(len(router) // 4) :].sum() / counts.sum()


def routers(s):
    """Makes the router of each layer in turn."""
    rng = np.random.default_rng(ROUTER_SEED)
    for _ in range(s.layers):
        rows = rng.standard_normal((s.experts, s.hidden)) / s.hidden**0.5
        yield (rows * np.exp(rng.normal(0, SKEW, (s.experts, 1)))).astype("<f4")


def write_matrix(f, rng, name, shape, kind):
    _, values, _, make = KINDS[kind]
    rows, cols = int(np.prod(shape[:-1])), shape[-1]
    for row in range(0, rows, CHUNK_ROWS):
        make(rng, min(CHUNK_ROWS, rows - row) * cols // values, deviation(name, cols)).tofile(f)


def write_gguf(f, s):
    """Writes the file. Returns the shares of the busiest quarter of experts, one for each layer."""
    pairs, listed = metadata(s), list(tensors(s))
    header = b"GGUF" + struct.pack("<IQQ", 3, len(listed), len(pairs))
    header += b"".join(pair(k, v) for k, v in pairs.items())
    offset = 0
    for name, shape, kind in listed:
        dims = shape[::-1]  # innermost first
        header += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, KINDS[kind][0], offset)
        offset += n_bytes(shape, kind) + len(padding(n_bytes(shape, kind)))
    f.write(header + padding(len(header)))
    rng, rest, shares = np.random.default_rng(0), routers(s), []
    for name, shape, kind in listed:
        if kind in ("ones", "zeros"):
            np.full(shape, kind == "ones", "<f4").tofile(f)
        elif kind == "router":
            router = next(rest)
            router.tofile(f)
            shares.append(busiest_quarter(router, s.used, rng))
        else:
            write_matrix(f, rng, name, shape, kind)
        f.write(padding(n_bytes(shape, kind)))
    return shares


def main():
    args = argparse.ArgumentParser(description="Write a GGUF of random weights in a known shape.")
    args.add_argument("out")
    args.add_argument("--shape", choices=SHAPES, default="1b")
    args.add_argument("--layers", type=int, help="default: all of the shape")
    args = args.parse_args()
    shape = SHAPES[args.shape]
    if args.layers:
        shape = replace(shape, layers=args.layers)
    with open(args.out, "wb") as f:
        shares = write_gguf(f, shape)
    if shares:
        print(f"busiest quarter of experts: {np.mean(shares):.0%} of choices ({min(shares):.0%} to {max(shares):.0%})")


if __name__ == "__main__":
    main()
