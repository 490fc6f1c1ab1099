/* SPDX-License-Identifier: Apache-2.0 */
/* Random weights, for benchmarks. */
#include "core/alloc.h"
#include "core/fail.h"
#include "memory/galloc.h"
#include "models/weights.h"

#include <string.h>

static uint64_t next_random(uint64_t *state) { /* xorshift64*, Vigna 2016 */
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1du;
}

/* Half-precision scales of a block: their offsets, and the bits that make them small: random & mask
 * | set. */
typedef struct factor {
    uint16_t at, mask, set; /* at: offset in bytes */
    uint16_t base_at; /* offset of the second half, which is the first times 2^shift with `sign`; 0:
                         none */
    uint16_t shift, sign;
} factor;

/* Any bits are valid levels and sub-block scales. Values are about 2^-6, with both signs. */
static const factor factors[AG_DTYPE_COUNT] = {
    [AG_F16] = {.mask = 0x83ff, .set = 0x2400},
    [AG_BF16] = {.mask = 0x807f, .set = 0x3c80},
    [AG_Q8_0] = {.mask = 0x3ff, .set = 0x0800}, /* about 2^-13 */
    [AG_Q4_0] = {.mask = 0x3ff, .set = 0x1800}, /* about 2^-9 */
    [AG_Q4_1] = {0, 0x3ff, 0x1800, 2, 3, 0x8000},
    [AG_Q5_0] = {.mask = 0x3ff, .set = 0x1400},
    [AG_Q5_1] = {0, 0x3ff, 0x1400, 2, 4, 0x8000},
    [AG_Q2_K] = {80, 0x3ff, 0x1000, 82, 1, 0},
    [AG_Q3_K] = {.at = 108, .mask = 0x3ff, .set = 0x0c00},
    [AG_Q4_K] = {0, 0x3ff, 0x0400, 2, 3, 0},
    [AG_Q5_K] = {0, 0x1ff, 0x0200, 2, 4, 0},
    [AG_Q6_K] = {.at = 208, .mask = 0xff, .set = 0x0100},
    [AG_IQ4_NL] = {.mask = 0x3ff, .set = 0x0800},
    [AG_MXFP4] = {.mask = 0xff01, .set = 119}, /* the exponent alone: 2^-8 */
};

static void set_factors(uint8_t *block, ag_dtype type) {
    const factor *f = &factors[type];
    uint16_t half;
    if (type == AG_F32) {
        uint32_t bits;
        memcpy(&bits, block, sizeof bits);
        bits = (bits & 0x807fffffu) | 0x3c800000u; /* 2^-6 .. 2^-5 */
        memcpy(block, &bits, sizeof bits);
        return;
    }
    memcpy(&half, block + f->at, sizeof half);
    half = (uint16_t)((half & f->mask) | f->set);
    memcpy(block + f->at, &half, sizeof half);
    if (!f->base_at) return;
    half = (uint16_t)((half + (f->shift << 10)) | f->sign);
    memcpy(block + f->base_at, &half, sizeof half);
}

static void fill_random(void *dst, ag_dtype type, size_t n_values, uint64_t *state) {
    size_t bytes = ag_dtype_row_bytes(type, n_values), block = ag_dtype_block_bytes(type);
    uint8_t *p = dst;
    for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        uint64_t r = next_random(state);
        memcpy(p + i, &r, bytes - i < sizeof r ? bytes - i : sizeof r);
    }
    for (size_t i = 0; i < bytes; i += block) set_factors(p + i, type);
}

typedef struct making {
    ag_model_weights *w;
    ag_backend *backend;
    const ag_model_params *params;
    ag_memory *host; /* memory of the random bytes until they are prepared */
    uint64_t state, done, total;
} making;

static ag_status make_matrix(making *mk, ag_tensor *out, const ag_weight_spec *spec,
                             ag_error *err) {
    ag_dtype type = ag_weight_type(spec, AG_F32, mk->params);
    ag_tensor src;
    ag_buffer *bytes;
    AG_TRY(ag_tensor_alloc(&src, &bytes, mk->host, AG_USAGE_SCRATCH, type,
                           ag_shape_2d(spec->rows, spec->cols), err));
    fill_random(ag_tensor_data(&src), type, spec->rows * spec->cols, &mk->state);
    ag_status st =
        ag_model_weights_put_matrix(mk->w, mk->backend, out, spec, &src, type, NULL, NULL, err);
    ag_buffer_release(&bytes);
    return st;
}

static ag_status make_ones(making *mk, ag_tensor *out, const ag_weight_spec *spec, ag_error *err) {
    const size_t n = spec->rows * spec->cols;
    float *ones = ag_malloc(n * sizeof *ones);
    if (!ones) return AG_FAIL(err, NOMEM, "tensor %s of %zu values", spec->name, n);
    for (size_t i = 0; i < n; i++) ones[i] = 1.0f;
    ag_status st = ag_model_weights_put_vector(mk->w, mk->backend, out, spec, ones, err);
    ag_free(ones);
    return st;
}

static ag_status make_weight(making *mk, ag_tensor *out, const ag_weight_spec *spec,
                             ag_error *err) {
    if (spec->kind == AG_WEIGHT_MATRIX) AG_TRY(make_matrix(mk, out, spec, err));
    else AG_TRY(make_ones(mk, out, spec, err));
    mk->done += (uint64_t)spec->rows * spec->cols;
    const ag_model_params *p = mk->params;
    if (p->progress && !p->progress(p->progress_user, mk->done, mk->total)) {
        return AG_FAIL(err, CANCELLED, "making weights was cancelled at %s", spec->name);
    }
    return AG_OK;
}

static ag_status make_layers(making *mk, const ag_model_spec *s, ag_error *err) {
    for (uint32_t l = 0; l < s->n_layers; l++) {
        for (size_t i = 0; i < ag_layer_weight_count(s, l); i++) {
            ag_weight_spec spec = ag_layer_weight(s, l, i);
            ag_tensor *out = ag_model_weights_slot(mk->w, l, &spec);
            AG_TRY(make_weight(mk, out, &spec, err));
        }
    }
    return AG_OK;
}

ag_status ag_model_weights_random(ag_model_weights *w, ag_backend *be, const ag_model_spec *s,
                                  const ag_model_params *params, ag_error *err) {
    making mk = {.w = w, .backend = be, .params = params, .state = 0x9e3779b97f4a7c15u};
    mk.total = ag_spec_parameters(s, true);
    AG_TRY(ag_galloc_create(&mk.host, err));
    ag_status st = ag_model_weights_begin(w, s, err);
    if (st == AG_OK) st = make_layers(&mk, s, err);
    if (st == AG_OK) {
        ag_weight_spec spec = ag_norm_weight(s);
        st = make_weight(&mk, &w->norm, &spec, err);
    }
    if (st == AG_OK) {
        ag_weight_spec spec = ag_lm_head_weight(s);
        st = make_weight(&mk, &w->lm_head, &spec, err);
    }
    if (st != AG_OK) ag_model_weights_release(w);
    ag_galloc_destroy(mk.host);
    return st;
}
