#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write a Hugging Face model directory of random BF16 weights in the shape of a known Llama, for measuring.

usage: make_bench_model.py OUT [--shape llama-3.2-1b] [--shard-mib N] [--seed N]        needs numpy
The same shapes as `antigravity bench --shape`, but from files: what loading costs can be measured too. There is no
tokenizer: use --prompt-ids. Memory stays at some 100 MiB whatever the size; the disk needs two bytes a parameter
(1b: 2.3 GiB, 3b: 6.0, 8b: 15.0). OUT must not exist and appears only when it is complete.
"""
import argparse
import json
import os
import shutil
import struct
import sys
import sys

import numpy as np

SHAPES = {  # hidden, layers, heads, kv heads, head dim, ffn, vocabulary, tied, rope factor
    "tiny": (256, 10, 4, 2, 64, 768, 4096, True, 32.0),
    "llama-3.2-1b": (2048, 16, 32, 8, 64, 8192, 128256, True, 32.0),
    "llama-3.2-3b": (3072, 28, 24, 8, 128, 8192, 128256, True, 32.0),
    "llama-3.1-8b": (4096, 32, 32, 8, 128, 14336, 128256, False, 8.0),
}
CHUNK = 1 << 23  # elements made at a time
BF16_ONE = 0x3F80


def config(shape):
    dim, layers, heads, kv, head_dim, ffn, vocab, tied, factor = shape
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": dim,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "head_dim": head_dim,
        "intermediate_size": ffn,
        "vocab_size": vocab,
        "tie_word_embeddings": tied,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 131072,
        "rope_theta": 500000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
        "torch_dtype": "bfloat16",
    }


def tensors(shape):
    """(name, shape) of every tensor, in the order of the layers."""
    dim, layers, heads, kv, head_dim, ffn, vocab, tied, _ = shape
    yield "model.embed_tokens.weight", (vocab, dim)
    for i in range(layers):
        p = f"model.layers.{i}."
        yield p + "input_layernorm.weight", (dim,)
        yield p + "self_attn.q_proj.weight", (heads * head_dim, dim)
        yield p + "self_attn.k_proj.weight", (kv * head_dim, dim)
        yield p + "self_attn.v_proj.weight", (kv * head_dim, dim)
        yield p + "self_attn.o_proj.weight", (dim, heads * head_dim)
        yield p + "post_attention_layernorm.weight", (dim,)
        yield p + "mlp.gate_proj.weight", (ffn, dim)
        yield p + "mlp.up_proj.weight", (ffn, dim)
        yield p + "mlp.down_proj.weight", (dim, ffn)
    yield "model.norm.weight", (dim,)
    if not tied:
        yield "lm_head.weight", (vocab, dim)


def n_bytes(dims):
    return 2 * int(np.prod(dims, dtype=np.int64))


def split(all_tensors, most_bytes):
    """Lists of tensors, each of at most most_bytes if that is possible; 0: one list."""
    shards, size = [[]], 0
    for name, dims in all_tensors:
        if most_bytes and shards[-1] and size + n_bytes(dims) > most_bytes:
            shards.append([])
            size = 0
        shards[-1].append((name, dims))
        size += n_bytes(dims)
    return shards


def normal_bf16(rng, std):
    """65536 BF16 values of a normal distribution: drawing from them is faster than drawing anew."""
    values = (rng.standard_normal(1 << 16, dtype=np.float32) * std).astype(np.float32)
    return (values.view(np.uint32) >> 16).astype("<u2")


def write_tensor(f, rng, dims):
    if len(dims) == 1:  # a norm
        np.full(dims, BF16_ONE, "<u2").tofile(f)
        return
    table = normal_bf16(rng, dims[1] ** -0.5)  # activations keep their size from layer to layer
    left = n_bytes(dims) // 2
    while left:
        n = min(left, CHUNK)
        table[rng.integers(0, 1 << 16, n, dtype=np.uint16)].tofile(f)
        left -= n


def write_shard(path, shard, rng):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, dims in shard:
        header[name] = {"dtype": "BF16", "shape": dims, "data_offsets": [offset, offset + n_bytes(dims)]}
        offset += n_bytes(dims)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, dims in shard:
            write_tensor(f, rng, dims)
    return offset


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f, indent=2)
        f.write("\n")


def write_model(folder, shape, most_bytes, seed):
    rng = np.random.default_rng(seed)
    shards = split(tensors(shape), most_bytes)
    names = [f"model-{i + 1:05}-of-{len(shards):05}.safetensors" for i in range(len(shards))]
    if len(shards) == 1:
        names = ["model.safetensors"]
    total, weight_map = 0, {}
    for name, shard in zip(names, shards):
        total += write_shard(os.path.join(folder, name), shard, rng)
        weight_map.update((tensor, name) for tensor, _ in shard)
    if len(shards) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        write_json(os.path.join(folder, "model.safetensors.index.json"), index)
    write_json(os.path.join(folder, "config.json"), config(shape))


def main():
    parser = argparse.ArgumentParser(description="Write a model directory of random weights.")
    parser.add_argument("out")
    parser.add_argument("--shape", choices=SHAPES, default="llama-3.2-1b")
    parser.add_argument("--shard-mib", type=int, default=0, help="largest size of a file; 0: one file")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if os.path.exists(args.out):
        sys.exit(f"{args.out} exists already")
    partial = args.out.rstrip("/") + ".partial"
    os.makedirs(partial)
    try:
        write_model(partial, SHAPES[args.shape], args.shard_mib << 20, args.seed)
        os.rename(partial, args.out)
    except BaseException:
        shutil.rmtree(partial)
        raise


if __name__ == "__main__":
    main()
