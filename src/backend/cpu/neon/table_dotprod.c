/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/neon/neon.h"

#define PRODUCT(NAME, name)                      \
    static const ag_cpu_matmul matmul_##name = { \
        AG_MATMUL_X16(name, ag_pack_x16__neon, ag_matmul_##name##_x16__neon_dotprod)};
AG_X16_MAP(PRODUCT)

void ag_cpu_kernels_neon_dotprod(ag_cpu_kernels *t) {
#define PREPARED(NAME, name) t->prepared[AG_##NAME] = &matmul_##name;
    AG_X16_MAP(PREPARED)
#define FILL(slot) t->slot = ag_##slot##__neon_dotprod;
    AG_ATTENTION_SLOTS(FILL)
}
