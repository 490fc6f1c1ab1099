/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes and operations of each operation of the oracle's table; m, n and k as in the table. */
#include "micro_bench.h"

#include <string.h>

typedef struct sizes {
    double m, n, k;
    double row_k, row_n; /* bytes of k and n values of the case's type */
} sizes;

enum { F = sizeof(float) };

static work of_plain_matmul(const sizes *s) {
    return (work){F * (s->m * s->k + s->k * s->n + s->m * s->n), 2 * s->m * s->n * s->k, false};
}

static work of_matmul(const sizes *s) {
    return (work){s->n * s->row_k + F * s->m * (s->k + s->n), 2 * s->m * s->n * s->k, false};
}

/* Weights of n, 1 and n / 2 + 3 rows; the last is F32. */
static work of_group(const sizes *s) {
    const double floats = (double)((size_t)s->n / 2 + 3), n = s->n + 1 + floats;
    return (work){(s->n + 1) * s->row_k + F * (floats * s->k + s->m * (s->k + n)),
                  2 * s->m * n * s->k, false};
}

/* Two sequences of m queries, six query heads over two KV heads; nearly all slots are filled. */
static work of_attention(const sizes *s) {
    return (work){2 * 2 * 2 * s->n * s->row_k + F * 2 * 2 * 6 * s->m * s->k,
                  2 * 6 * s->m * 2 * 2 * s->n * s->k / (s->m > 1 ? 2 : 1), false};
}

static work of_rms_norm(const sizes *s) { return (work){.bytes = F * s->n * (2 * s->m + 1)}; }
static work of_add_rms_norm(const sizes *s) { return (work){.bytes = F * s->n * (4 * s->m + 1)}; }
static work of_update(const sizes *s) { return (work){.bytes = F * 2 * s->m * s->n}; }
static work of_two_rows(const sizes *s) { return (work){.bytes = F * 3 * s->m * s->n}; }
static work of_add_bias(const sizes *s) { return (work){.bytes = F * s->n * (2 * s->m + 1)}; }
static work of_rope(const sizes *s) { return (work){.bytes = F * 2 * s->m * s->n * s->k}; }
static work of_rope_pair(const sizes *s) {
    return (work){.bytes = F * 2 * s->m * s->n * (s->k + s->k / 2 + 1)};
}
static work of_conversion(const sizes *s) { return (work){.bytes = s->m * (s->row_n + F * s->n)}; }

static const struct {
    const char *op;
    work (*of)(const sizes *s);
} op_work[] = {
    {"matmul", of_plain_matmul},
    {"matmul_transposed", of_matmul},
    {"matmul_prepared", of_matmul},
    {"matmul_slice", of_matmul},
    {"matmul_group", of_group},
    {"rms_norm", of_rms_norm},
    {"add_rms_norm", of_add_rms_norm},
    {"softmax", of_update},
    {"add_assign", of_two_rows},
    {"add_bias", of_add_bias},
    {"scale", of_update},
    {"silu_mul", of_two_rows},
    {"gelu_mul", of_two_rows},
    {"softcap", of_update},
    {"rope", of_rope},
    {"rope_pair", of_rope_pair},
    {"gather", of_conversion},
    {"cast_from", of_conversion},
    {"cast_to", of_conversion},
    {"attention", of_attention},
};

work work_of(const oracle_case *c, const char *isa) {
    const sizes s = {(double)c->m, (double)c->n, (double)c->k,
                     (double)ag_dtype_row_bytes(c->type, c->k),
                     (double)ag_dtype_row_bytes(c->type, c->n)};
    for (size_t i = 0; i < sizeof op_work / sizeof op_work[0]; i++) {
        if (strcmp(op_work[i].op, c->op) != 0) continue;
        work e = op_work[i].of(&s);
        e.of_bytes = !strcmp(c->op, "matmul_prepared") && ag_dtype_is_quantized(c->type) &&
                     strcmp(isa, "common") != 0;
        return e;
    }
    return (work){0};
}
