/* SPDX-License-Identifier: Apache-2.0 */
/* Table of the element types, one row each. All lists of types are generated from it. It uses the
 * preprocessor only, because OpenCL kernels include it too.
 *
 * X(NAME, "name", elements of a block, bytes of a block, F16 values at its start, roles)
 *   Q4_0  f16 d, 16 bytes: byte i holds element i (low nibble) and i + 16 (high); (nibble - 8) * d
 *   Q4_1  f16 d, f16 m, the same nibbles; nibble * d + m
 *   Q8_0  f16 d, 32 int8; q * d
 *   Q5_0  f16 d, 4 bytes: bit i is the fifth bit of element i, nibbles as Q4_0; (level - 16) * d
 *   Q5_1  f16 d, f16 m, the same; level * d + m
 *   Q2_K to Q6_K  256 elements in sub-blocks of 16 or 32 with their own scales (src/quant/quant.h)
 *   IQ4_NL  as Q4_0; nibbles are indices into a table of 16 values (src/quant/iq4_nl.c)
 *   MXFP4   a byte e, nibbles as Q4_0; 4-bit floats times 2^(e - 127) (src/quant/mxfp4.c)
 * Little-endian. Source of the block types: the GGML format family. Roles: ag_dtype_role. */
#ifndef ANTIGRAVITY_DTYPE_TABLE_H
#define ANTIGRAVITY_DTYPE_TABLE_H

#define AG_DTYPE_MAP(X)                                                            \
    X(F32, "f32", 1, 4, 0, AG_DTYPE_FLOATS | AG_DTYPE_WEIGHT | AG_DTYPE_CACHE)     \
    X(F16, "f16", 1, 2, 0, AG_DTYPE_FLOATS | AG_DTYPE_WEIGHT | AG_DTYPE_CACHE)     \
    X(BF16, "bf16", 1, 2, 0, AG_DTYPE_FLOATS | AG_DTYPE_WEIGHT)                    \
    X(I32, "i32", 1, 4, 0, 0)                                                      \
    X(U8, "u8", 1, 1, 0, 0)                                                        \
    X(Q4_0, "q4_0", 32, 18, 1, AG_DTYPE_FLOATS | AG_DTYPE_WEIGHT | AG_DTYPE_CACHE) \
    X(Q4_1, "q4_1", 32, 20, 2, AG_DTYPE_FLOATS | AG_DTYPE_WEIGHT)                  \
    X(Q8_0, "q8_0", 32, 34, 1, AG_DTYPE_FLOATS | AG_DTYPE_WEIGHT | AG_DTYPE_CACHE) \
    X(Q5_0, "q5_0", 32, 22, 1, AG_DTYPE_FLOATS | AG_DTYPE_WEIGHT)                  \
    X(Q5_1, "q5_1", 32, 24, 2, AG_DTYPE_FLOATS | AG_DTYPE_WEIGHT)                  \
    X(Q2_K, "q2_k", 256, 84, 0, AG_DTYPE_FLOATS | AG_DTYPE_WEIGHT)                 \
    X(Q3_K, "q3_k", 256, 110, 0, AG_DTYPE_FLOATS | AG_DTYPE_WEIGHT)                \
    X(Q4_K, "q4_k", 256, 144, 2, AG_DTYPE_FLOATS | AG_DTYPE_WEIGHT)                \
    X(Q5_K, "q5_k", 256, 176, 2, AG_DTYPE_FLOATS | AG_DTYPE_WEIGHT)                \
    X(Q6_K, "q6_k", 256, 210, 0, AG_DTYPE_FLOATS | AG_DTYPE_WEIGHT)                \
    X(IQ4_NL, "iq4_nl", 32, 18, 1, AG_DTYPE_FLOATS | AG_DTYPE_WEIGHT)              \
    X(MXFP4, "mxfp4", 32, 17, 0, AG_DTYPE_FLOATS | AG_DTYPE_WEIGHT)

#endif
