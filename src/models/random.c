/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of a known shape from random numbers: for measuring speed. */
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

/* Any bits are valid nibbles, bytes and mantissas; scales and exponents are set to give small
 * values of both signs. */
static void fill_random(void *dst, ag_dtype type, size_t n_values, uint64_t *state) {
    size_t bytes = ag_dtype_row_bytes(type, n_values);
    uint8_t *p = dst;
    for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        uint64_t r = next_random(state);
        memcpy(p + i, &r, bytes - i < sizeof r ? bytes - i : sizeof r);
    }
    size_t unit = ag_dtype_block_bytes(type);
    for (size_t i = 0; i < bytes; i += unit) {
        uint16_t half;
        if (type == AG_F32) {
            uint32_t bits;
            memcpy(&bits, p + i, sizeof bits);
            bits = (bits & 0x807fffffu) | 0x3c800000u; /* 2^-6 .. 2^-5 */
            memcpy(p + i, &bits, sizeof bits);
            continue;
        }
        memcpy(&half, p + i, sizeof half);
        if (type == AG_BF16) {
            half = (uint16_t)((half & 0x807f) | 0x3c80);
        } else if (type == AG_F16) {
            half = (uint16_t)((half & 0x83ff) | 0x2400);
        } else if (type == AG_Q8_0) {
            half = (uint16_t)((half & 0x3ff) | 0x0800); /* about 2^-13 */
        } else {
            half = (uint16_t)((half & 0x3ff) | 0x1800); /* about 2^-9 */
        }
        memcpy(p + i, &half, sizeof half);
        if (ag_dtype_scales(type) == 2) { /* m = -8 d: exponent plus three, sign set */
            half = (uint16_t)((half + 0x0c00) | 0x8000);
            memcpy(p + i + sizeof half, &half, sizeof half);
        }
    }
}

typedef struct making {
    ag_model_weights *w;
    ag_backend *backend;
    const ag_model_params *params;
    ag_memory *host; /* where the random bytes stand before they are prepared */
    uint64_t state, done, total;
} making;

static ag_status make_matrix(making *mk, ag_tensor *out, const ag_weight_spec *spec,
                             ag_error *err) {
    ag_dtype type = ag_weight_type(AG_F32, mk->params, spec->cols);
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
    float *ones = ag_malloc(spec->rows * sizeof *ones);
    if (!ones) return AG_FAIL(err, NOMEM, "tensor %s: %zu values", spec->name, spec->rows);
    for (size_t i = 0; i < spec->rows; i++) ones[i] = 1.0f;
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
            ag_tensor *out = (ag_tensor *)(void *)((char *)&mk->w->layers[l] + spec.member);
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
