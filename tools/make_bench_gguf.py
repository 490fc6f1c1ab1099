#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write a GGUF of random Q4_0 weights in a Llama shape, for timing llama.cpp-based peers on the same work as ours.

usage: make_bench_gguf.py OUT.gguf [--shape 1b|3b]        needs numpy
The embedding is Q4_0 and tied (no output.weight), the vocabulary is empty ("no_vocab"): fit for speed, not for text.
Format: GGUF version 3, https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""
import argparse
import struct

import numpy as np

SHAPES = {  # hidden, layers, heads, kv heads, head dim, ffn, vocabulary
    "1b": (2048, 16, 32, 8, 64, 8192, 128256),
    "3b": (3072, 28, 24, 8, 128, 8192, 128256),
}
F32, Q4_0 = 0, 2  # types of tensors
ALIGNMENT = 32
CHUNK_ROWS = 4096


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


def metadata(shape):
    dim, layers, heads, kv, head_dim, ffn, vocab = shape
    return {
        "general.architecture": "llama",
        "llama.block_count": layers,
        "llama.context_length": 131072,
        "llama.embedding_length": dim,
        "llama.feed_forward_length": ffn,
        "llama.attention.head_count": heads,
        "llama.attention.head_count_kv": kv,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.attention.key_length": head_dim,
        "llama.attention.value_length": head_dim,
        "llama.rope.freq_base": 500000.0,
        "llama.rope.dimension_count": head_dim,
        "llama.vocab_size": vocab,
        "tokenizer.ggml.model": "no_vocab",
    }


def tensors(shape):
    """(name, rows, columns); rows 0: a vector of F32."""
    dim, layers, heads, kv, head_dim, ffn, vocab = shape
    yield "token_embd.weight", vocab, dim
    yield "output_norm.weight", 0, dim
    for i in range(layers):
        p = f"blk.{i}."
        yield p + "attn_norm.weight", 0, dim
        yield p + "ffn_norm.weight", 0, dim
        yield p + "attn_q.weight", heads * head_dim, dim
        yield p + "attn_k.weight", kv * head_dim, dim
        yield p + "attn_v.weight", kv * head_dim, dim
        yield p + "attn_output.weight", dim, heads * head_dim
        yield p + "ffn_gate.weight", ffn, dim
        yield p + "ffn_up.weight", ffn, dim
        yield p + "ffn_down.weight", dim, ffn


def n_bytes(rows, cols):
    return rows * cols // 32 * 18 if rows else cols * 4


def padding(n):
    return b"\0" * (-n % ALIGNMENT)


def write_q4_0(f, rng, rows, cols):
    """Random nibbles, scales between 0.002 and 0.006."""
    for row in range(0, rows, CHUNK_ROWS):
        n = min(CHUNK_ROWS, rows - row) * cols // 32
        blocks = np.empty((n, 18), np.uint8)
        blocks[:, 2:] = rng.integers(0, 256, (n, 16), dtype=np.uint8)
        scale = (rng.random(n, dtype=np.float32) * 0.004 + 0.002).astype("<f2")
        blocks[:, :2] = scale.view(np.uint8).reshape(-1, 2)
        blocks.tofile(f)


def write_gguf(f, shape):
    pairs, listed = metadata(shape), list(tensors(shape))
    header = b"GGUF" + struct.pack("<IQQ", 3, len(listed), len(pairs))
    header += b"".join(pair(k, v) for k, v in pairs.items())
    offset = 0
    for name, rows, cols in listed:
        dims = (cols, rows) if rows else (cols,)  # innermost first
        header += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, Q4_0 if rows else F32, offset)
        offset += n_bytes(rows, cols) + len(padding(n_bytes(rows, cols)))
    f.write(header + padding(len(header)))
    rng = np.random.default_rng(0)
    for _, rows, cols in listed:
        if rows:
            write_q4_0(f, rng, rows, cols)
        else:
            np.ones(cols, "<f4").tofile(f)
        f.write(padding(n_bytes(rows, cols)))


def main():
    args = argparse.ArgumentParser(description="Write a GGUF of random Q4_0 weights.")
    args.add_argument("out")
    args.add_argument("--shape", choices=SHAPES, default="1b")
    args = args.parse_args()
    with open(args.out, "wb") as f:
        write_gguf(f, SHAPES[args.shape])


if __name__ == "__main__":
    main()
