/* SPDX-License-Identifier: Apache-2.0 */
/* Instruction sets: their names and the detection of those that this machine can run. */
#ifndef AG_BACKEND_CPU_FEATURES_H
#define AG_BACKEND_CPU_FEATURES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(NAME, "name"), in ascending order within an architecture. */
#define AG_CPU_ISA_MAP(X)           \
    X(COMMON, "common")             \
    X(AVX2, "avx2")                 \
    X(AVXVNNI, "avxvnni")           \
    X(AVX512, "avx512")             \
    X(AMX, "amx")                   \
    X(NEON, "neon")                 \
    X(NEON_DOTPROD, "neon_dotprod") \
    X(NEON_I8MM, "neon_i8mm")

typedef enum ag_cpu_isa {
#define AG_CPU_ISA_ENUM(name, text) AG_CPU_##name,
    AG_CPU_ISA_MAP(AG_CPU_ISA_ENUM)
#undef AG_CPU_ISA_ENUM
        AG_CPU_ISA_COUNT
} ag_cpu_isa;

const char *ag_cpu_isa_name(ag_cpu_isa isa);
bool ag_cpu_isa_known(const char *name);

/* Returns bit 1 << isa for every set that the processor has and whose registers the system saves.
 */
uint32_t ag_cpu_features(void);

/* Writes the names ("common avx2 avx512") to buf, always terminated. Returns buf. */
const char *ag_cpu_features_format(uint32_t features, char *buf, size_t cap);

#endif
