/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/kernels.h"

#include "backend/cpu/features.h"

#include <string.h>

/* In ascending order within an architecture. A set replaces kernels of the sets before it. */
static const struct {
    ag_cpu_isa isa;
    void (*fill)(ag_cpu_kernels *table);
} sets[] = {
    {AG_CPU_COMMON, ag_cpu_kernels_common},
#ifdef AG_CPU_X86
    {AG_CPU_AVX2, ag_cpu_kernels_avx2},
    {AG_CPU_AVXVNNI, ag_cpu_kernels_avxvnni},
    {AG_CPU_AVX512, ag_cpu_kernels_avx512},
    {AG_CPU_AMX, ag_cpu_kernels_amx},
#endif
#ifdef AG_CPU_AARCH64
    {AG_CPU_NEON, ag_cpu_kernels_neon},
    {AG_CPU_NEON_DOTPROD, ag_cpu_kernels_neon_dotprod},
    {AG_CPU_NEON_I8MM, ag_cpu_kernels_neon_i8mm},
#endif
};

const char *ag_cpu_kernels_init(ag_cpu_kernels *table, const char *isa_cap) {
    if (isa_cap && !ag_cpu_isa_known(isa_cap)) return NULL;
    const uint32_t features = ag_cpu_features();
    const char *chosen = NULL;
    memset(table, 0, sizeof *table);
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        if (!(features >> sets[i].isa & 1)) continue;
        sets[i].fill(table);
        chosen = ag_cpu_isa_name(sets[i].isa);
        if (isa_cap && !strcmp(isa_cap, chosen)) break;
    }
    return chosen;
}
