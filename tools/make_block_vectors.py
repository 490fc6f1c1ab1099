#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Blocks of every quantised type and the floats that the gguf package gives for them.

    make_block_vectors.py tests/data/quant/blocks.bin

For each type: its name in 8 bytes, the number of blocks and the bytes of a block as 32 bits, the
blocks, then their values as float32. All little-endian. Needs gguf and numpy.
"""
import struct
import sys

import gguf
import numpy as np

# Name, bytes of a block, places of its halves; 32 or 256 values.
TYPES = [
    ("q4_0", 18, [0]), ("q4_1", 20, [0, 2]), ("q8_0", 34, [0]), ("q5_0", 22, [0]), ("q5_1", 24, [0, 2]),
    ("q2_k", 84, [80, 82]), ("q3_k", 110, [108]), ("q4_k", 144, [0, 2]), ("q5_k", 176, [0, 2]),
    ("q6_k", 210, [208]), ("iq4_nl", 18, [0]), ("mxfp4", 17, []),
]
# Zeros, the least and the largest subnormal, the least and the largest normal half, one third; of both signs.
HALVES = [0x0000, 0x0001, 0x03ff, 0x0400, 0x7bff, 0x3555]


def blocks_of(rng, name, size, halves):
    """Random blocks with halves of ordinary sizes; then blocks of one byte throughout, or of counting bytes, with extreme
    halves."""
    n = 10 if name.endswith("_k") else 40
    blocks = rng.integers(0, 256, (n, size), dtype=np.uint8)
    ordinary = n // 2
    for i, fill in enumerate([0x00, 0xFF, 0x0F, 0xF0]):
        blocks[ordinary + i % (n - ordinary)] = fill
    blocks[-1] = np.arange(size, dtype=np.uint32).astype(np.uint8)
    for i in range(n):
        for at in halves:
            if i < ordinary:
                half = np.float16(rng.normal(0, 0.1)).view(np.uint16)
            else:
                half = HALVES[(i + at) % len(HALVES)] | (0x8000 if i // len(HALVES) % 2 else 0)
            blocks[i, at:at + 2] = np.frombuffer(struct.pack("<H", half), dtype=np.uint8)
    if name == "mxfp4":
        blocks[:, 0] = np.clip(np.linspace(0, 252, n), 0, 252).astype(np.uint8)
        blocks[1, 0] = 1
    return blocks


def main(path):
    rng = np.random.default_rng(5)
    with open(path, "wb") as out:
        for name, size, halves in TYPES:
            blocks = blocks_of(rng, name, size, halves)
            kind = gguf.GGMLQuantizationType[name.upper()]
            values = gguf.quants.dequantize(blocks, kind).astype("<f4")
            assert np.isfinite(values).all(), name
            out.write(struct.pack("<8sII", name.encode(), len(blocks), size))
            out.write(blocks.tobytes())
            out.write(values.tobytes())


if __name__ == "__main__":
    main(sys.argv[1])
