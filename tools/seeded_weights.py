#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the model.safetensors of a test model from its weights.json.

usage: seeded_weights.py DIR [--out FILE] [--check]
  --out FILE  use FILE in place of DIR/model.safetensors
  --check     write nothing, compare that file with the computed one byte by byte; exit status 1 if they differ
needs the PyPI package numpy

A test model has random weights, so its file is not stored. weights.json holds a seed and a list of tensors, and this
program computes the file from them. tests/support/seeded_weights.c does the same when the tests are built. This text is
the specification: both give the same bytes.

weights.json is {"seed": S, "dtype": "BF16", "tensors": {NAME: {"shape": [...], ...}, ...}}.
  S is an integer, 0 <= S < 2^53. Tensors are in file order.
  A tensor's own "dtype" replaces the common one. It is BF16, F32 or U8.
  BF16 and F32 tensors have "mean" and "half_range": multiples of 2^-12, less than 2^16 in magnitude.
  U8 tensors have "min" and "max": integers, 0 <= min <= max <= 255.
  "zero": [FIRST, COUNT], where present: elements FIRST to FIRST + COUNT - 1, counted in row-major order, are 0.

Random numbers: unsigned 64-bit integers, all arithmetic modulo 2^64.
  1. hash = FNV-1a of NAME: start with hash = 0xCBF29CE484222325; for each byte, hash = (hash XOR byte) * 0x100000001B3.
  2. state = S XOR hash.
  3. For each element of the tensor in row-major order, one step of splitmix64:
       state = state + 0x9E3779B97F4A7C15
       z = state
       z = (z XOR (z >> 30)) * 0xBF58476D1CE4E5B9
       z = (z XOR (z >> 27)) * 0x94D049BB133111EB
       z = z XOR (z >> 31)
       n = z >> 40, an integer of 24 bits
     A zeroed element takes a step too.

Values:
  BF16, F32  mean + half_range * ((n - 2^23) / 2^23), in double precision. Every step is exact there, so neither the order
             of operations nor a fused multiply-add changes the result. Round it to float32: to nearest, ties to even.
             For BF16, round again, with b the 32 bits of the float32: (b + 0x7FFF + ((b >> 16) AND 1)) >> 16.
  U8         min + ((n * (max - min + 1)) >> 24)

File: the header's length (8 bytes), the header, then the data of all tensors without gaps. Numbers are little-endian.
  The header is JSON without spaces, then spaces up to a length that is a multiple of 8:
  {"__metadata__":{"format":"pt"},"NAME":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},...}

Test vector, seed 1, tensor "model.norm.weight": hash = 0xD6D6E5AFD11604E4; the first four n = 0x5240D3 0xA20AFB 0x5346A4 0x4252A5.
  BF16, mean 1, half_range 0.25:   3F69 3F89 3F6A 3F61   (F32: 3F69206A 3F8882BF 3F69A352 3F612952)
  U8, min 121, max 125:            122 124 122 122
"""
import argparse, json, math, sys
import numpy as np

U64 = np.uint64


def fnv1a(name):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return h


def random_24_bits(seed, name, count):
    """Returns n of the first `count` elements."""
    state = U64(seed ^ fnv1a(name)) + np.arange(1, count + 1, dtype=U64) * U64(0x9E3779B97F4A7C15)
    z = (state ^ (state >> U64(30))) * U64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> U64(27))) * U64(0x94D049BB133111EB)
    return ((z ^ (z >> U64(31))) >> U64(40)).astype(np.int64)


def tensor_data(seed, name, tensor, dtype):
    """Returns the elements as they are stored: uint16 for BF16, float32 for F32, uint8 for U8."""
    n = random_24_bits(seed, name, math.prod(tensor["shape"]))
    if dtype == "U8":
        data = (tensor["min"] + (n * (tensor["max"] - tensor["min"] + 1) >> 24)).astype("u1")
    else:
        data = (tensor["mean"] + tensor["half_range"] * ((n - 2**23) / 2**23)).astype("<f4")
        if dtype == "BF16":
            bits = data.view("<u4")
            data = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")
    if "zero" in tensor:
        first, count = tensor["zero"]
        data[first:first + count] = 0
    return data


def file_bytes(manifest):
    header, parts, end = {"__metadata__": {"format": "pt"}}, [], 0
    for name, tensor in manifest["tensors"].items():
        dtype = tensor.get("dtype", manifest["dtype"])
        parts.append(tensor_data(manifest["seed"], name, tensor, dtype).tobytes())
        begin, end = end, end + len(parts[-1])
        header[name] = {"dtype": dtype, "shape": tensor["shape"], "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(parts)


def test():
    """Fails if this program does not give the test vector above."""
    def first(dtype, **tensor):
        return tensor_data(1, "model.norm.weight", {"shape": [4], **tensor}, dtype)
    assert fnv1a("model.norm.weight") == 0xD6D6E5AFD11604E4
    assert random_24_bits(1, "model.norm.weight", 4).tolist() == [0x5240D3, 0xA20AFB, 0x5346A4, 0x4252A5]
    assert first("BF16", mean=1, half_range=0.25).tolist() == [0x3F69, 0x3F89, 0x3F6A, 0x3F61]
    assert first("F32", mean=1, half_range=0.25).view("<u4").tolist() == [0x3F69206A, 0x3F8882BF, 0x3F69A352, 0x3F612952]
    assert first("U8", min=121, max=125).tolist() == [122, 124, 122, 122]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dir"), parser.add_argument("--out"), parser.add_argument("--check", action="store_true")
    a = parser.parse_args()
    test()
    path = a.out or f"{a.dir}/model.safetensors"
    with open(f"{a.dir}/weights.json") as f:
        data = file_bytes(json.load(f))
    if not a.check:
        with open(path, "wb") as f:
            f.write(data)
        return 0
    with open(path, "rb") as f:
        old = f.read()
    if old == data:
        print(f"{path}: equal, {len(data)} bytes")
        return 0
    position = next((i for i, (x, y) in enumerate(zip(old, data)) if x != y), min(len(old), len(data)))
    print(f"{path}: {len(old)} bytes, computed {len(data)}, first difference at byte {position}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
