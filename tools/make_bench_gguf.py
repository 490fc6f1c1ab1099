#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write a GGUF of random Q4_0 weights in a Llama shape, for timing llama.cpp-based peers on the same work as ours.

usage: make_bench_gguf.py OUT.gguf [--shape 1b|3b]        needs the PyPI packages gguf and numpy
The embedding is Q4_0 and tied (no output.weight), the vocabulary is empty ("no_vocab"): fit for speed, not for text.
Peers' own benchmark: pp = prompt tokens in one batch, tg = one token at a time.
"""
import argparse
import gguf
import numpy as np

SHAPES = {  # hidden, layers, heads, kv heads, head dim, ffn, vocabulary
    "1b": (2048, 16, 32, 8, 64, 8192, 128256),
    "3b": (3072, 28, 24, 8, 128, 8192, 128256),
}


def random_q4_0(rng, rows, cols):
    """(rows, cols / 32 * 18) uint8: random nibbles, scales between 0.002 and 0.006."""
    blocks = np.empty((rows * cols // 32, 18), np.uint8)
    blocks[:, 2:] = rng.integers(0, 256, (len(blocks), 16), dtype=np.uint8)
    scale = (rng.random(len(blocks), dtype=np.float32) * 0.004 + 0.002).astype(np.float16)
    blocks[:, :2] = scale.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(rows, cols // 32 * 18)


def main():
    args = argparse.ArgumentParser()
    args.add_argument("out")
    args.add_argument("--shape", choices=SHAPES, default="1b")
    args = args.parse_args()
    dim, layers, heads, kv, head_dim, ffn, vocab = SHAPES[args.shape]
    rng = np.random.default_rng(0)
    w = gguf.GGUFWriter(args.out, "llama")
    w.add_block_count(layers)
    w.add_context_length(131072)
    w.add_embedding_length(dim)
    w.add_feed_forward_length(ffn)
    w.add_head_count(heads)
    w.add_head_count_kv(kv)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_freq_base(500000.0)
    w.add_rope_dimension_count(head_dim)
    w.add_key_length(head_dim)
    w.add_value_length(head_dim)
    w.add_vocab_size(vocab)
    w.add_tokenizer_model("no_vocab")

    def q4(name, rows, cols):
        w.add_tensor(name, random_q4_0(rng, rows, cols), raw_dtype=gguf.GGMLQuantizationType.Q4_0)

    q4("token_embd.weight", vocab, dim)
    w.add_tensor("output_norm.weight", np.ones(dim, np.float32))
    for i in range(layers):
        p = f"blk.{i}."
        w.add_tensor(p + "attn_norm.weight", np.ones(dim, np.float32))
        w.add_tensor(p + "ffn_norm.weight", np.ones(dim, np.float32))
        q4(p + "attn_q.weight", heads * head_dim, dim)
        q4(p + "attn_k.weight", kv * head_dim, dim)
        q4(p + "attn_v.weight", kv * head_dim, dim)
        q4(p + "attn_output.weight", dim, heads * head_dim)
        q4(p + "ffn_gate.weight", ffn, dim)
        q4(p + "ffn_up.weight", ffn, dim)
        q4(p + "ffn_down.weight", dim, ffn)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    main()
