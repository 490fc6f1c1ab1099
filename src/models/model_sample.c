/* SPDX-License-Identifier: Apache-2.0 */
/* Identifies a model by a sample of its weights. */
#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/checksum.h"
#include "core/fail.h"
#include "core/little_endian.h"
#include "models/model_impl.h"

#include <string.h>

enum { PIECE = 64 };

/* Adds name, type, size, and the first, middle and last bytes of a tensor. */
static ag_status add_tensor(ag_checksum *sum, const ag_weight_source *source,
                            const ag_source_tensor *t, ag_error *err) {
    unsigned char piece[PIECE];
    unsigned char size[8];
    ag_put_number(size, t->n_bytes, sizeof size);
    ag_checksum_add(sum, t->name, strlen(t->name) + 1);
    ag_checksum_add(sum, t->dtype_name, strlen(t->dtype_name) + 1);
    ag_checksum_add(sum, size, sizeof size);
    size_t n = t->n_bytes < PIECE ? (size_t)t->n_bytes : PIECE;
    const uint64_t offsets[] = {0, (t->n_bytes - n) / 2, t->n_bytes - n};
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
        AG_TRY(ag_source_read(source, t, offsets[i], piece, n, err));
        ag_checksum_add(sum, piece, n);
    }
    return AG_OK;
}

static ag_status add_vector(ag_checksum *sum, ag_backend *be, const ag_tensor *v, ag_error *err) {
    size_t n = ag_tensor_bytes(v);
    void *bytes = ag_malloc(n);
    if (!bytes) return AG_FAIL(err, NOMEM, "vector of %zu bytes", n);
    ag_status st = ag_take_error(be, ag_read(be, bytes, v, n), err);
    if (st == AG_OK) ag_checksum_add(sum, bytes, n);
    ag_free(bytes);
    return st;
}

ag_status ag_model_sample(ag_model *m, uint64_t *out, ag_error *err) {
    ag_checksum sum;
    ag_checksum_begin(&sum);
    size_t n = m->source ? ag_source_n_tensors(m->source) : 0;
    for (size_t i = 0; i < n; i++)
        AG_TRY(add_tensor(&sum, m->source, ag_source_tensor_at(m->source, i), err));
    for (uint32_t i = 0; i < m->spec.n_ropes; i++) {
        AG_TRY(add_vector(&sum, m->backend, &m->inv_freq[i][0], err));
        if (!m->spec.ropes[i].n_divisors) continue;
        AG_TRY(add_vector(&sum, m->backend, &m->inv_freq[i][1], err));
    }
    AG_TRY(add_vector(&sum, m->backend, &m->weights.norm, err));
    *out = ag_checksum_value(&sum);
    return AG_OK;
}
