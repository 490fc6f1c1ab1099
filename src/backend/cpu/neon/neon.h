/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels for 64-bit ARM: NEON, which is always present, and products of bytes with the extensions
 * dotprod (four columns of four rows) and i8mm (eight columns of two rows by two rows). They were
 * tested under an emulator and never timed, since no ARM machine was available. Only attention,
 * whose code other sets share, prefetches. */
#ifndef AG_BACKEND_CPU_NEON_H
#define AG_BACKEND_CPU_NEON_H

#include "backend/cpu/kernels.h"

ag_pack_fn ag_pack_x16__neon;
/* Packs two adjacent rows of a tile in turns of 8 bytes. */
ag_pack_fn ag_pack_x16__neon_i8mm;

#define DECLARE(NAME, name)                            \
    ag_matmul_fn ag_matmul_##name##_x16__neon;         \
    ag_matmul_fn ag_matmul_##name##_x16__neon_dotprod; \
    ag_matmul_fn ag_matmul_##name##_x16__neon_i8mm;
AG_X16_MAP(DECLARE)
#undef DECLARE
ag_matmul_fn ag_matmul_f32__neon;
ag_matmul_fn ag_matmul_f16__neon;
ag_matmul_fn ag_matmul_bf16__neon;
#define DECLARE(slot) ag_##slot##_fn ag_##slot##__neon;
AG_VECTOR_SLOTS(DECLARE)
#undef DECLARE
#define DECLARE(slot) ag_##slot##_fn ag_##slot##__neon_dotprod;
AG_ATTENTION_SLOTS(DECLARE)
#undef DECLARE

#endif
