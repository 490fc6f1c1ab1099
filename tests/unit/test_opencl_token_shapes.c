/* SPDX-License-Identifier: Apache-2.0 */
/* A whole token in one launch for heads, caches and weights of every kind: its attention against
 * doubles, its new rows against the rounding of the cache, its logits against those of the
 * operations. "test_opencl_token_shapes PATTERN" takes the variants whose names fit, on any device.
 */
#include "backend/opencl/steps.h"
#include "core/alloc.h"
#include "core/hadamard.h"
#include "models/model_impl.h"
#include "quant/quant.h"
#include "unit/opencl_device.h"

#include <antigravity/antigravity.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct variant {
    uint32_t head_dim, group, n_kv;
    ag_dtype k_type, v_type;
    enum { PLAIN, ROTATED, BIASES, BOTH } extras; /* keys by Hadamard; biases of q, k, v and o */
    ag_dtype weights; /* 0: Q4_0; MIXED: another for each matrix; FLOATS: also F16 and BF16 */
    /* Columns: of less than a segment; of whole segments, and down in several at once, for devices
     * whose operations round activations too; of an odd number of blocks. */
    enum { NARROW, WIDE, ODD } columns;
} variant;
#define MIXED ((ag_dtype)AG_DTYPE_COUNT)
#define FLOATS ((ag_dtype)(AG_DTYPE_COUNT + 1))

static bool is_rotated(const variant *v) { return v->extras & ROTATED; }

static bool has_biases(const variant *v) { return v->extras & BIASES; }

/* For drivers that take half a minute to compile the kernel. */
static const variant few[] = {{128, 3, 2, AG_Q8_0, AG_Q4_0, BOTH, MIXED, NARROW},
                              {64, 4, 2, AG_F16, AG_F16, PLAIN, FLOATS, NARROW}};

static const variant all[] = {
    /* groups */
    {64, 1, 4, AG_F16, AG_F16, PLAIN, 0, NARROW},
    {64, 2, 2, AG_F16, AG_F16, PLAIN, 0, NARROW},
    {64, 3, 2, AG_F16, AG_F16, PLAIN, 0, NARROW},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, 0, NARROW},
    {64, 5, 1, AG_F16, AG_F16, PLAIN, 0, NARROW},
    {64, 6, 2, AG_F16, AG_F16, PLAIN, 0, NARROW},
    {64, 7, 2, AG_F16, AG_F16, PLAIN, 0, NARROW},
    {64, 8, 2, AG_F16, AG_F16, PLAIN, 0, NARROW},
    {128, 1, 3, AG_F16, AG_F16, PLAIN, 0, NARROW},
    {128, 2, 2, AG_F16, AG_F16, PLAIN, 0, NARROW},
    {128, 3, 2, AG_F16, AG_F16, PLAIN, 0, NARROW},
    {128, 4, 2, AG_F16, AG_F16, PLAIN, 0, NARROW},
    {128, 5, 2, AG_F16, AG_F16, PLAIN, 0, NARROW},
    {128, 6, 1, AG_F16, AG_F16, PLAIN, 0, NARROW},
    {128, 7, 2, AG_F16, AG_F16, PLAIN, 0, NARROW},
    {128, 8, 2, AG_F16, AG_F16, PLAIN, 0, NARROW},
    {32, 1, 4, AG_F16, AG_F16, PLAIN, 0, NARROW},
    {32, 4, 2, AG_F16, AG_F16, PLAIN, 0, NARROW},
    {80, 2, 2, AG_F16, AG_F16, PLAIN, 0, NARROW},
    {80, 4, 2, AG_F16, AG_F16, PLAIN, 0, NARROW},
    {96, 1, 3, AG_F16, AG_F16, PLAIN, 0, NARROW},
    {96, 8, 2, AG_F16, AG_F16, PLAIN, 0, NARROW},
    /* types */
    {64, 2, 2, AG_F32, AG_F32, PLAIN, 0, NARROW},
    {64, 4, 2, AG_F32, AG_F32, PLAIN, 0, NARROW},
    {64, 2, 2, AG_Q8_0, AG_Q8_0, PLAIN, 0, NARROW},
    {64, 4, 2, AG_Q8_0, AG_Q8_0, PLAIN, 0, NARROW},
    {64, 2, 2, AG_Q4_0, AG_Q4_0, PLAIN, 0, NARROW},
    {64, 4, 2, AG_Q4_0, AG_Q4_0, PLAIN, 0, NARROW},
    {64, 4, 2, AG_Q8_0, AG_Q4_0, PLAIN, 0, NARROW},
    {64, 4, 2, AG_Q4_0, AG_Q8_0, PLAIN, 0, NARROW},
    {64, 4, 2, AG_F16, AG_Q8_0, PLAIN, 0, NARROW},
    {64, 4, 2, AG_Q8_0, AG_F16, PLAIN, 0, NARROW},
    {64, 4, 2, AG_F16, AG_Q4_0, PLAIN, 0, NARROW},
    {64, 4, 2, AG_Q4_0, AG_F16, PLAIN, 0, NARROW},
    {64, 4, 2, AG_F32, AG_F16, PLAIN, 0, NARROW},
    {64, 4, 2, AG_F16, AG_F32, PLAIN, 0, NARROW},
    {128, 4, 2, AG_F32, AG_F32, PLAIN, 0, NARROW},
    {128, 4, 2, AG_Q8_0, AG_Q8_0, PLAIN, 0, NARROW},
    {128, 4, 2, AG_Q4_0, AG_Q4_0, PLAIN, 0, NARROW},
    {128, 4, 2, AG_Q8_0, AG_Q4_0, PLAIN, 0, NARROW},
    {128, 3, 2, AG_Q8_0, AG_Q4_0, PLAIN, 0, NARROW},
    {128, 8, 2, AG_Q8_0, AG_Q8_0, PLAIN, 0, NARROW},
    {128, 8, 2, AG_F32, AG_F32, PLAIN, 0, NARROW},
    {32, 4, 2, AG_Q4_0, AG_Q8_0, PLAIN, 0, NARROW},
    {96, 2, 2, AG_Q8_0, AG_Q4_0, PLAIN, 0, NARROW},
    {96, 2, 2, AG_F32, AG_Q8_0, PLAIN, 0, NARROW},
    {80, 2, 2, AG_F32, AG_F32, PLAIN, 0, NARROW},
    /* biases, rotations */
    {64, 4, 2, AG_F16, AG_F16, BIASES, 0, NARROW},
    {64, 7, 2, AG_F16, AG_F16, BIASES, 0, NARROW},
    {128, 4, 2, AG_F16, AG_F16, BIASES, 0, NARROW},
    {64, 2, 2, AG_Q4_0, AG_Q4_0, ROTATED, 0, NARROW},
    {64, 4, 2, AG_Q4_0, AG_Q4_0, ROTATED, 0, NARROW},
    {64, 4, 2, AG_Q4_0, AG_Q8_0, ROTATED, 0, NARROW},
    {64, 4, 2, AG_Q4_0, AG_F16, ROTATED, 0, NARROW},
    {128, 3, 2, AG_Q4_0, AG_Q4_0, ROTATED, 0, NARROW},
    {128, 4, 2, AG_Q4_0, AG_Q4_0, ROTATED, 0, NARROW},
    {128, 4, 2, AG_Q4_0, AG_Q8_0, ROTATED, 0, NARROW},
    {96, 2, 2, AG_Q4_0, AG_Q4_0, ROTATED, 0, NARROW},
    {80, 2, 2, AG_F16, AG_F16, ROTATED, 0, NARROW},
    {128, 3, 2, AG_Q8_0, AG_Q4_0, BOTH, 0, NARROW},
    /* weights */
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_Q4_1, NARROW},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_Q5_0, NARROW},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_Q5_1, NARROW},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_Q8_0, NARROW},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_Q2_K, NARROW},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_Q3_K, NARROW},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_Q4_K, NARROW},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_Q5_K, NARROW},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_Q6_K, NARROW},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_IQ4_NL, NARROW},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_MXFP4, NARROW},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_Q4_0, WIDE},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_Q4_1, WIDE},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_Q5_0, WIDE},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_Q5_1, WIDE},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_Q8_0, WIDE},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_Q2_K, WIDE},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_Q3_K, WIDE},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_Q4_K, WIDE},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_Q5_K, WIDE},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_Q6_K, WIDE},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_IQ4_NL, WIDE},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_MXFP4, WIDE},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_Q4_0, ODD},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_Q4_1, ODD},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_Q5_0, ODD},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_Q5_1, ODD},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_Q8_0, ODD},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_IQ4_NL, ODD},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_MXFP4, ODD},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, MIXED, NARROW},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, MIXED, WIDE},
    {128, 3, 2, AG_Q8_0, AG_Q4_0, BOTH, MIXED, NARROW},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_BF16, NARROW},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_BF16, WIDE},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_BF16, ODD},
    {128, 3, 2, AG_Q8_0, AG_Q4_0, BOTH, AG_BF16, NARROW},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_F16, NARROW},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_F16, WIDE},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, AG_F16, ODD},
    {64, 4, 2, AG_F16, AG_F16, PLAIN, FLOATS, NARROW},
};

static ag_backend *be;
static ag_model *model;
static ag_session *whole, *parts;

enum { VOCAB = 512, MOST_SLOTS = 768 };
static const uint32_t dims[] = {256, 2048, 288}, ffn_dims[] = {512, 6144, 544};
/* Noise grows with each layer, and with its width. */
static const uint32_t layers[] = {2, 1, 2};

static const ag_tensor_type mixed[] = {
    {"blk.0.attn_q", AG_Q4_1},   {"blk.0.attn_k", AG_Q5_0},   {"blk.0.attn_v", AG_IQ4_NL},
    {"blk.0.attn_out", AG_Q8_0}, {"blk.0.ffn_gate", AG_Q4_K}, {"blk.0.ffn_up", AG_Q5_K},
    {"blk.0.ffn_down", AG_Q6_K}, {"blk.1.attn_q", AG_Q8_0},   {"blk.1.attn_k", AG_Q4_K},
    {"blk.1.attn_v", AG_MXFP4},  {"blk.1.attn_out", AG_Q3_K}, {"blk.1.ffn_gate", AG_Q5_0},
    {"blk.1.ffn_up", AG_Q5_1},   {"blk.1.ffn_down", AG_Q2_K}, {"output", AG_Q4_1},
};

/* Products of quantised and of float weights, of both kinds one after the other. */
static const ag_tensor_type floats[] = {
    {"blk.0.attn_q", AG_BF16},   {"blk.0.attn_k", AG_F16},    {"blk.0.attn_v", AG_BF16},
    {"blk.0.attn_out", AG_F16},  {"blk.0.ffn_gate", AG_F16},  {"blk.0.ffn_up", AG_F16},
    {"blk.0.ffn_down", AG_Q6_K}, {"blk.1.attn_q", AG_Q8_0},   {"blk.1.attn_k", AG_Q4_K},
    {"blk.1.attn_v", AG_MXFP4},  {"blk.1.attn_out", AG_Q3_K}, {"blk.1.ffn_gate", AG_Q5_0},
    {"blk.1.ffn_up", AG_Q5_1},   {"blk.1.ffn_down", AG_BF16}, {"output", AG_F16},
};

static bool is_one_type(const variant *v) { return v->weights < AG_DTYPE_COUNT; }

/* Quantised activations against floats, through two layers of noise. */
static const double close_logits = 0.05;
/* Halves of queries, keys, values and weights; a share of the largest component of a head. */
static const double close_attention = 0.004;

/* -1 .. 1 */
static void fill_bias(const ag_tensor *t, uint32_t seed) {
    const size_t n = ag_shape_numel(&t->shape);
    float *values = ag_calloc(n, sizeof *values);
    ag_error err;
    assert_non_null(values);
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = ((uint32_t)i + 1 + 1000 * seed) * 2654435761u;
        values[i] = (float)(int32_t)bits * 0x1p-31f;
    }
    if (ag_buffer_upload(t->buffer, t->offset, values, n * sizeof *values, &err) != AG_OK) {
        fail_msg("%s", err.msg);
    }
    ag_free(values);
}

static void make_model(const variant *v) {
    ag_model_spec spec = ag_spec_plain(v->n_kv * v->group, v->n_kv, v->head_dim);
    spec.vocab_size = VOCAB;
    spec.hidden_size = dims[v->columns];
    spec.intermediate_size = ffn_dims[v->columns];
    spec.n_layers = layers[v->columns];
    spec.max_positions = 4096;
    spec.ropes[0].attention_factor = 1.1875f;
    spec.kinds[0].qkv_bias = spec.kinds[0].out_bias = has_biases(v);
    ag_model_params params = ag_model_defaults();
    params.weights = v->weights && is_one_type(v) ? v->weights : AG_Q4_0;
    params.tensor_types = is_one_type(v) ? NULL : v->weights == MIXED ? mixed : floats;
    params.n_tensor_types = is_one_type(v) ? 0 : sizeof mixed / sizeof mixed[0];
    ag_error err;
    if (ag_model_random(be, &spec, &params, &model, &err) != AG_OK) fail_msg("%s", err.msg);
    for (uint32_t l = 0; has_biases(v) && l < layers[v->columns]; l++) {
        const ag_layer *layer = &model->weights.layers[l];
        fill_bias(&layer->of[AG_LT_BQ], 7 * l);
        fill_bias(&layer->of[AG_LT_BK], 7 * l + 1);
        fill_bias(&layer->of[AG_LT_BV], 7 * l + 2);
        fill_bias(&layer->of[AG_LT_BO], 7 * l + 3);
    }
}

static ag_session *new_session(const variant *v) {
    ag_session_params p = ag_session_defaults();
    p.max_seq_len = MOST_SLOTS;
    p.k_type = v->k_type;
    p.v_type = v->v_type;
    p.k_rotation = is_rotated(v) ? AG_K_ROTATION_ON : AG_K_ROTATION_OFF;
    ag_session *s;
    ag_error err;
    if (ag_session_create(model, &p, &s, &err) != AG_OK) fail_msg("%s", err.msg);
    return s;
}

static int make_all(void **state) {
    make_model(*state);
    whole = new_session(*state);
    parts = new_session(*state);
    return 0;
}

static int drop_all(void **state) {
    (void)state;
    ag_session_destroy(whole);
    ag_session_destroy(parts);
    ag_model_destroy(model);
    whole = parts = NULL;
    model = NULL;
    return 0;
}

static void consume(ag_session *s, ag_cl_switch wanted, uint32_t n) {
    int32_t ids[MOST_SLOTS];
    ag_error err;
    const uint32_t position = ag_session_position(s);
    for (uint32_t i = 0; i < n; i++) ids[i] = (int32_t)((position + i) * 2654435761u % VOCAB);
    ag_cl_of(be)->switches.token = wanted;
    if (ag_session_prefill(s, ids, n, NULL, NULL, &err) != AG_OK) fail_msg("%s", err.msg);
}

static uint32_t steps_taken(void) { return ag_cl_of(be)->counts.launched; }

/* Root of the mean square of the difference, as a share of that of the logits. */
static double distance(ag_session *a, ag_session *b) {
    const float *x = ag_session_logits(a), *y = ag_session_logits(b);
    double difference = 0, size = 0;
    for (uint32_t i = 0; i < VOCAB; i++) {
        difference += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        size += (double)y[i] * (double)y[i];
    }
    return sqrt(difference / size);
}

/* ---- attention of the last layer, from what the launch left in its boxes ---- */

typedef struct packet {
    uint32_t data, tag;
} packet;

static void download(void *out, ag_buffer *buf, size_t at, size_t n) {
    ag_error err;
    if (ag_buffer_download(out, buf, at, n, &err) != AG_OK) fail_msg("%s", err.msg);
}

static float as_float(uint32_t bits) {
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

typedef struct layer_state {
    const variant *v;
    uint32_t n_heads, position;
    float *q, *k_new, *v_new; /* [heads][head_dim], as projected; q and k_new then rotated */
    float *out;               /* [n_heads][head_dim] as the kernel sent it */
    float *step;              /* [n_heads * head_dim / 32] scales of it */
    float *keys, *values;     /* [slots][head_dim] of one KV head */
} layer_state;

static void add_bias(float *to, const ag_tensor *t) {
    const size_t n = ag_shape_numel(&t->shape);
    float *values = ag_calloc(n, sizeof *values);
    assert_non_null(values);
    download(values, t->buffer, t->offset, n * sizeof *values);
    for (size_t i = 0; i < n; i++) to[i] += values[i];
    ag_free(values);
}

static void add_biases(layer_state *s) {
    const ag_layer *layer = &model->weights.layers[layers[s->v->columns] - 1];
    add_bias(s->q, &layer->of[AG_LT_BQ]);
    add_bias(s->k_new, &layer->of[AG_LT_BK]);
    add_bias(s->v_new, &layer->of[AG_LT_BV]);
}

static void take_boxes(layer_state *s) {
    const ag_cl_token *token = newest_token(be);
    const size_t n = (size_t)(s->n_heads + 2 * s->v->n_kv) * s->v->head_dim;
    const size_t n_out = (size_t)s->n_heads * s->v->head_dim, n_blocks = n_out / AG_QK;
    packet *p = ag_calloc(n + n_out, sizeof *p);
    assert_non_null(p);
    download(p, token->store, token->at.qkv, n * sizeof *p);
    for (size_t i = 0; i < n; i++) s->q[i] = as_float(p[i].data);
    if (has_biases(s->v)) add_biases(s);
    if (s->v->weights == AG_F16 || s->v->weights == AG_BF16) {
        download(p, token->store, token->at.out, n_out * sizeof *p);
        for (size_t i = 0; i < n_out; i++) s->out[i] = as_float(p[i].data);
        ag_free(p);
        return;
    }
    download(p, token->store, token->at.out, n_blocks * 10 * sizeof *p);
    for (size_t b = 0; b < n_blocks; b++) {
        s->step[b] = as_float(p[b * 10 + 8].data);
        for (size_t i = 0; i < AG_QK; i++) {
            const uint32_t word = p[b * 10 + i / 4].data;
            s->out[b * AG_QK + i] = (float)(int8_t)(word >> (i % 4 * 8)) * s->step[b];
        }
    }
    ag_free(p);
}

static void rotate(const layer_state *s, float *x) {
    const uint32_t half = s->v->head_dim / 2;
    const double factor = (double)model->spec.ropes[0].attention_factor;
    for (uint32_t i = 0; i < half; i++) {
        const double angle = (double)s->position * (double)ag_tensor_f32(&model->inv_freq[0][0])[i];
        const float c = (float)(factor * cos(angle)), t = (float)(factor * sin(angle));
        const float a = x[i], b = x[i + half];
        x[i] = a * c - b * t;
        x[i + half] = b * c + a * t;
    }
}

/* Checks that the newest slot holds `row`, rounded as the cache does. */
static void check_row(ag_dtype type, bool rotated, const float *row, const float *kept,
                      uint32_t n) {
    unsigned char stored[4 * 128];
    float want[128];
    size_t bad;
    memcpy(want, row, n * sizeof *want);
    if (rotated) ag_hadamard(want, 1, n);
    assert_int_equal(ag_quantize_row(type, stored, want, n, AG_ROUND_KV, &bad), AG_OK);
    ag_dequantize_row(type, want, stored, n);
    if (rotated) ag_hadamard(want, 1, n);
    for (uint32_t i = 0; i < n; i++) {
        if (kept[i] != want[i]) fail_msg("component %u is kept as %g, not %g", i, kept[i], want[i]);
    }
}

/* The largest error of a head, as a share of its largest component, less what eight bits lose. */
static double error_of_head(const layer_state *s, uint32_t head, uint32_t n_slots) {
    const uint32_t d = s->v->head_dim;
    const float *q = s->q + (size_t)head * d;
    double sum[128] = {0}, total = 0, largest = 0, worst = 0, scores[MOST_SLOTS], most = -INFINITY;
    for (uint32_t i = 0; i < n_slots; i++) {
        scores[i] = 0;
        for (uint32_t c = 0; c < d; c++) scores[i] += (double)q[c] * s->keys[(size_t)i * d + c];
        scores[i] /= sqrt(d);
        most = fmax(most, scores[i]);
    }
    for (uint32_t i = 0; i < n_slots; i++) {
        const double weight = exp(scores[i] - most);
        total += weight;
        for (uint32_t c = 0; c < d; c++) sum[c] += weight * s->values[(size_t)i * d + c];
    }
    for (uint32_t c = 0; c < d; c++) largest = fmax(largest, fabs(sum[c] / total));
    for (uint32_t c = 0; c < d; c++) {
        const size_t at = (size_t)head * d + c;
        const double error = fabs(s->out[at] - sum[c] / total) - 0.51 * s->step[at / AG_QK];
        if (!(error / largest < worst)) worst = error / largest;
    }
    return worst;
}

static double check_kv_head(const layer_state *s, ag_kv_cache *cache, uint32_t head) {
    const uint32_t last = layers[s->v->columns] - 1;
    const uint32_t d = s->v->head_dim, n = ag_kv_cache_n_slots(cache, last, head);
    double worst = 0;
    ag_error err;
    for (uint32_t i = 0; i < n; i++) {
        if (ag_kv_cache_read(cache, last, head, i, s->keys + (size_t)i * d,
                             s->values + (size_t)i * d, &err) != AG_OK) {
            fail_msg("%s", err.msg);
        }
    }
    const size_t newest = (size_t)(n - 1) * d;
    check_row(s->v->v_type, false, s->v_new + (size_t)head * d, s->values + newest, d);
    /* Elsewhere products and sums may be rounded once or twice. */
    if (s->position == 0) {
        check_row(s->v->k_type, is_rotated(s->v), s->k_new + (size_t)head * d, s->keys + newest, d);
    }
    for (uint32_t g = 0; g < s->v->group; g++) {
        const double e = error_of_head(s, head * s->v->group + g, n);
        if (!(e < worst)) worst = e;
    }
    return worst;
}

static double check_attention(const variant *v, ag_session *session) {
    const uint32_t n_heads = v->n_kv * v->group;
    const size_t n_q = (size_t)n_heads * v->head_dim, n_kv = (size_t)v->n_kv * v->head_dim;
    const size_t rows = (size_t)MOST_SLOTS * v->head_dim;
    float *memory = ag_calloc(3 * n_q + 2 * n_kv + 2 * rows, sizeof *memory);
    assert_non_null(memory);
    layer_state s = {.v = v, .n_heads = n_heads, .position = ag_session_position(session) - 1};
    s.q = memory;
    s.k_new = s.q + n_q;
    s.v_new = s.k_new + n_kv;
    s.out = s.v_new + n_kv;
    s.step = s.out + n_q;
    s.keys = s.step + n_q;
    s.values = s.keys + rows;
    take_boxes(&s);
    for (size_t i = 0; i < n_heads + v->n_kv; i++) rotate(&s, s.q + i * v->head_dim);
    double worst = 0;
    for (uint32_t h = 0; h < v->n_kv; h++) {
        const double e = check_kv_head(&s, ag_session_kv_cache(session), h);
        if (!(e < worst)) worst = e;
    }
    ag_free(memory);
    return worst;
}

/* ---- variants ---- */

/* Both sessions read n tokens by operations, in the same slots. */
static void skip_to_same(uint32_t n) {
    ag_error err;
    consume(parts, AG_CL_OFF, n);
    ag_session_destroy(whole);
    if (ag_session_fork(parts, &whole, &err) != AG_OK) fail_msg("%s", err.msg);
}

/* Tokens one by one, from the first on, over the end of a block, and where a head's slots are cut
 * into pieces for several work-groups. */
static void launch_equals_the_operations(void **state) {
    static const struct { uint32_t from, n; } runs[] = {{0, 20}, {120, 12}, {257, 2}, {638, 4}};
    const variant *v = *state;
    /* Wide products make scores large, and attention then selects among nearly equal slots. Small
     * differences grow. The first token has only one slot. */
    const bool first_only = v->columns == WIDE;
    const size_t n = first_only ? 1 : sizeof runs / sizeof runs[0];
    double attention = 0, logits = 0;
    for (size_t r = 0; r < n; r++) {
        const uint32_t skipped = runs[r].from - ag_session_position(whole);
        if (skipped) skip_to_same(skipped);
        for (uint32_t i = 0; i < (first_only ? 1 : runs[r].n); i++) {
            const uint32_t before = steps_taken();
            consume(whole, AG_CL_ON, 1);
            assert_int_not_equal(steps_taken(), before);
            const double e = check_attention(v, whole);
            if (!(e < attention)) attention = e;
            consume(parts, AG_CL_OFF, 1);
            const double d = distance(whole, parts);
            if (!(d < logits)) logits = d;
        }
    }
    printf("largest error of attention %.5f, distance of logits %.4f\n", attention, logits);
    assert_true(attention < close_attention);
    /* If operations round activations as the launch does, only the last bits differ. */
    assert_true(logits < (first_only && ag_cl_of(be)->int_dot ? 0.005 : close_logits));
}

enum { N_ALL = sizeof all / sizeof all[0], N_FEW = sizeof few / sizeof few[0] };

static void name_variant(const variant *v, char *out, size_t cap) {
    static const char *const columns[] = {"", ", wide", ", odd"};
    snprintf(out, cap, "heads of %u, %u to a KV head, keys %s%s, values %s%s, weights %s%s",
             v->head_dim, v->group, ag_dtype_name(v->k_type), is_rotated(v) ? " rotated" : "",
             ag_dtype_name(v->v_type), has_biases(v) ? ", biases" : "",
             v->weights == MIXED    ? "mixed"
             : v->weights == FLOATS ? "mixed with floats"
                                    : ag_dtype_name(v->weights ? v->weights : AG_Q4_0),
             columns[v->columns]);
}

/* The kernel computes attention in halves. */
static void float_weights_with_a_cache_of_f32_are_not_in_the_launch(void **state) {
    (void)state;
    ag_cl_token_shape s = {
        .head_dim = 64, .k_type = AG_F16, .v_type = AG_F16, .row_types = 1u << AG_BF16};
    assert_true(ag_cl_token_has_run(&s));
    s.k_type = AG_F32;
    assert_false(ag_cl_token_has_run(&s));
    s.k_type = AG_F16;
    s.v_type = AG_F32;
    assert_false(ag_cl_token_has_run(&s));
    s.row_types = 1u << AG_Q4_0;
    assert_true(ag_cl_token_has_run(&s));
}

int main(int argc, char **argv) {
    static char names[N_ALL][128];
    struct CMUnitTest tests[N_ALL + 1];
    be = open_opencl();
    if (!be) return EXIT_SKIPPED;
    const bool every = ag_cl_of(be)->device.is_gpu || argc > 1;
    const variant *variants = every ? all : few;
    const size_t n = every ? N_ALL : N_FEW;
    for (size_t i = 0; i < n; i++) {
        name_variant(&variants[i], names[i], sizeof names[i]);
        tests[i] = (struct CMUnitTest){names[i], launch_equals_the_operations, make_all, drop_all,
                                       (void *)(uintptr_t)&variants[i]};
    }
    tests[n] = (struct CMUnitTest)cmocka_unit_test(
        float_weights_with_a_cache_of_f32_are_not_in_the_launch);
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    int failed = _cmocka_run_group_tests("token_shapes", tests, n + 1, NULL, NULL);
    ag_backend_destroy(be);
    return failed;
}
