/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of a 1B model: width 2048, 32 heads of 64 with 8 KV heads, feed-forward width 8192; for one
 * token and for a prompt of 512. */
#include "micro_bench.h"

typedef struct shape {
    const char *op;
    void (*run)(const oracle_case *c, oracle_run *run);
    ag_dtype type;
    size_t m, n, k;
    double nmse;
} shape;

#define PRODUCT(type, m, n, k) \
    { "matmul_prepared", oracle_matmul_prepared, type, m, n, k, 2e-4 }
/* q and o; k and v; gate and up; down. */
#define PRODUCTS(type, m)                                                                    \
    PRODUCT(type, m, 2048, 2048), PRODUCT(type, m, 512, 2048), PRODUCT(type, m, 8192, 2048), \
        PRODUCT(type, m, 2048, 8192)
#define ROWS(m)                                                           \
    {"rms_norm", oracle_rms_norm, AG_F32, m, 2048, 0, 1e-12},             \
        {"add_rms_norm", oracle_add_rms_norm, AG_F32, m, 2048, 0, 1e-12}, \
        {"add_assign", oracle_add_assign, AG_F32, m, 2048, 0, 1e-12},     \
        {"silu_mul", oracle_silu_mul, AG_F32, m, 8192, 0, 1e-12},         \
        {"rope", oracle_rope, AG_F32, m, 64, 32, 1e-12}, {                \
        "softmax", oracle_softmax, AG_F32, 32 * (m), 512, 0, 1e-12        \
    }

static const shape shapes[] = {
    PRODUCTS(AG_Q4_0, 1),
    PRODUCTS(AG_Q4_0, 512),
    PRODUCTS(AG_Q4_1, 1),
    PRODUCTS(AG_Q4_1, 512),
    PRODUCTS(AG_Q8_0, 1),
    PRODUCTS(AG_Q8_0, 512),
    PRODUCTS(AG_Q5_0, 1),
    PRODUCTS(AG_Q5_0, 512),
    PRODUCTS(AG_Q4_K, 1),
    PRODUCTS(AG_Q4_K, 512),
    PRODUCTS(AG_Q5_K, 1),
    PRODUCTS(AG_Q5_K, 512),
    PRODUCTS(AG_Q6_K, 1),
    PRODUCTS(AG_Q6_K, 512),
    PRODUCTS(AG_F16, 1),
    PRODUCTS(AG_F16, 512),
    PRODUCTS(AG_BF16, 1),
    PRODUCTS(AG_BF16, 512),
    PRODUCTS(AG_F32, 1),
    PRODUCTS(AG_F32, 512),
    ROWS(1),
    ROWS(512),
    {"attention", oracle_attention, AG_F32, 1, 1000, 64, 1e-10},
    {"attention", oracle_attention, AG_F16, 1, 1000, 64, 1e-10},
    {"attention", oracle_attention, AG_Q8_0, 1, 1000, 64, 2e-9},
};

bool shape_at(size_t i, oracle_case *out) {
    if (i >= sizeof shapes / sizeof shapes[0]) return false;
    const shape *s = &shapes[i];
    *out = (oracle_case){s->op, s->type, s->m, s->n, s->k, DATA_PLAIN, s->nmse, s->run};
    return true;
}
