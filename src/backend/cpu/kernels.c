/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/kernels.h"

#include "backend/cpu/features.h"

#include <string.h>

const char *ag_cpu_kernels_init(ag_cpu_kernels *table, const char *isa_cap) {
    if (isa_cap && !ag_cpu_isa_known(isa_cap)) return NULL;
    memset(table, 0, sizeof *table);
    ag_cpu_kernels_common(table);
    return "common";
}
