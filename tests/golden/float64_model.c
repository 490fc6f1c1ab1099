/* SPDX-License-Identifier: Apache-2.0 */
#include "golden/float64_model.h"

#include "formats/weight_source.h"
#include "models/config.h"
#include "models/tensors.h"
#include "models/weights.h"
#include "quant/quant.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LAYERS = 8, MAX_WEIGHTS = AG_LAYER_TENSORS + AG_EXPERT_TABLES * 16, MAX_EXPERTS = 64 };

/* Weights of a layer, each found by its number and that of its expert, which is 0 for others. */
typedef struct block {
    size_t n;
    ag_layer_tensor tensors[MAX_WEIGHTS];
    uint32_t experts[MAX_WEIGHTS];
    double *values[MAX_WEIGHTS];
    double *k, *v; /* [FLOAT64_MAX_POSITIONS, n_kv_heads * head_dim] */
    double *sinks; /* [FLOAT64_MAX_SINKS, n_kv_heads * head_dim] keys before they rotate */
} block;

struct float64_model {
    ag_model_spec spec;
    bool is_long;
    block blocks[MAX_LAYERS];
    double *norm, *embedding, *lm_head; /* lm_head may be the embedding */
};

/* ---- loading ---- */

static void *take(size_t n) {
    void *p = calloc(n, sizeof(double));
    if (!p) abort();
    return p;
}

/* Returns NULL if there is no tensor with this name and size. */
static double *read_tensor(const ag_weight_source *source, const ag_weight_spec *w) {
    const ag_source_tensor *t = ag_source_find(source, w->name);
    const ag_shape shape = ag_weight_file_shape(w);
    const size_t n = ag_shape_numel(&shape);
    if (!t || t->n_bytes != ag_dtype_row_bytes(t->dtype, n)) return NULL;
    float *values = malloc(n * sizeof *values);
    void *bytes = malloc(t->n_bytes);
    double *out = take(w->rows * w->cols);
    if (!values || !bytes || ag_source_read(source, t, 0, bytes, t->n_bytes, NULL) != AG_OK)
        abort();
    ag_dequantize_row(t->dtype, values, bytes, n);
    for (size_t i = 0; i < w->rows * w->cols; i++) {
        const size_t at = ag_weight_value_at(w, i / w->cols, i % w->cols);
        out[i] = (double)values[at] + (w->add_one ? 1 : 0);
    }
    free(values);
    free(bytes);
    return out;
}

static bool read_block(float64_model *m, const ag_weight_source *source, uint32_t layer) {
    const ag_layer_spec *is = ag_spec_layer(&m->spec, layer);
    block *b = &m->blocks[layer];
    const size_t n = ag_layer_weight_count(&m->spec, layer);
    if (n > MAX_WEIGHTS || is->experts.route.n_experts > MAX_EXPERTS) return false;
    for (size_t i = 0; i < n; i++) {
        const ag_weight_spec w = ag_layer_weight(&m->spec, layer, i);
        b->n = i + 1;
        b->tensors[i] = w.tensor;
        b->experts[i] = w.expert;
        b->values[i] = read_tensor(source, &w);
        if (!b->values[i]) fprintf(stderr, "no tensor %s\n", w.name);
        if (!b->values[i]) return false;
    }
    b->k = take((size_t)FLOAT64_MAX_POSITIONS * is->n_kv_heads * is->head_dim);
    b->v = take((size_t)FLOAT64_MAX_POSITIONS * is->n_kv_heads * is->head_dim);
    b->sinks = take((size_t)FLOAT64_MAX_SINKS * is->n_kv_heads * is->head_dim);
    return true;
}

/* Takes the naming of experts whose first matrix the file has. */
static void name_experts(float64_model *m, const ag_weight_source *source) {
    for (size_t i = 0; ag_expert_naming(i, &m->spec); i++) {
        for (size_t k = 0; k < ag_layer_weight_count(&m->spec, 0); k++) {
            const ag_weight_spec w = ag_layer_weight(&m->spec, 0, k);
            if (w.tensor == AG_LT_EXPERT_GATE && ag_source_find(source, w.name)) return;
        }
    }
}

static bool read_all(float64_model *m, ag_weight_source *source, ag_error *err) {
    if (ag_spec_read(source, &m->spec, err) != AG_OK) return false;
    if (ag_source_open_tensors(source, err) != AG_OK) return false;
    if (ag_spec_layer(&m->spec, 0)->experts.route.n_experts) name_experts(m, source);
    if (m->spec.n_layers > MAX_LAYERS) return false;
    for (uint32_t l = 0; l < m->spec.n_layers; l++) {
        if (!read_block(m, source, l)) return false;
    }
    const ag_weight_spec norm = ag_norm_weight(&m->spec), table = ag_embedding_weight(&m->spec);
    const ag_weight_spec head = ag_lm_head_weight(&m->spec);
    m->norm = read_tensor(source, &norm);
    m->embedding = read_tensor(source, &table);
    m->lm_head = read_tensor(source, &head);
    if (!m->lm_head) m->lm_head = m->embedding;
    return m->norm && m->embedding;
}

float64_model *float64_model_load(const char *dir) {
    ag_weight_source *source = NULL;
    ag_error err = {.msg = ""};
    float64_model *m = calloc(1, sizeof *m);
    if (!m) abort();
    const bool done = ag_source_open(dir, &source, &err) == AG_OK && read_all(m, source, &err);
    ag_source_destroy(source);
    if (done) return m;
    fprintf(stderr, "%s: %s\n", dir, err.msg);
    float64_model_destroy(m);
    return NULL;
}

void float64_model_destroy(float64_model *m) {
    if (!m) return;
    for (size_t l = 0; l < MAX_LAYERS; l++) {
        for (size_t i = 0; i < m->blocks[l].n; i++) free(m->blocks[l].values[i]);
        free(m->blocks[l].k);
        free(m->blocks[l].v);
        free(m->blocks[l].sinks);
    }
    if (m->lm_head != m->embedding) free(m->lm_head);
    free(m->embedding);
    free(m->norm);
    free(m);
}

const ag_model_spec *float64_model_spec(const float64_model *m) { return &m->spec; }

void float64_model_set_long(float64_model *m, bool is_long) { m->is_long = is_long; }

/* ---- computing ---- */

#define WEIGHT(b, name) find_weight(b, AG_LT_##name, 0)

/* NULL if the layer has none. */
static const double *find_weight(const block *b, ag_layer_tensor tensor, uint32_t expert) {
    for (size_t i = 0; i < b->n; i++) {
        if (b->tensors[i] == tensor && b->experts[i] == expert) return b->values[i];
    }
    return NULL;
}

/* out [rows] = w [rows, cols] x + bias */
static void project(double *out, const double *w, const double *bias, const double *x, size_t rows,
                    size_t cols) {
    for (size_t r = 0; r < rows; r++) {
        double sum = bias ? bias[r] : 0;
        for (size_t c = 0; c < cols; c++) sum += w[r * cols + c] * x[c];
        out[r] = sum;
    }
}

/* w NULL: nothing happens to x. */
static void rms_norm(double *out, const double *x, const double *w, size_t n, double eps) {
    double squares = 0;
    for (size_t i = 0; i < n; i++) squares += x[i] * x[i];
    const double factor = 1 / sqrt(squares / (double)n + eps);
    for (size_t i = 0; i < n; i++) out[i] = w ? x[i] * factor * w[i] : x[i];
}

/* YaRN: what turns `fast` times in the original length stays, what turns `slow` times is divided.
 */
static double yarn(const ag_rope_spec *rope, uint32_t pair, double f) {
    const ag_rope_scaling *s = &rope->scaling;
    const double n = rope->n_rotated, per_turn = s->original_max_position_embeddings / 6.283185307;
    const double of_fast = n * log(per_turn / s->beta_fast) / (2 * log(rope->theta));
    const double of_slow = n * log(per_turn / s->beta_slow) / (2 * log(rope->theta));
    const double low = fmax(s->round_to_pairs ? floor(of_fast) : of_fast, 0);
    const double high = fmin(s->round_to_pairs ? ceil(of_slow) : of_slow, n - 1);
    const double divided = fmin(fmax((pair - low) / (high - low), 0), 1);
    return f / s->factor * divided + f * (1 - divided);
}

static void rotate(double *head, const ag_rope_spec *rope, bool is_long, uint32_t position) {
    const uint32_t half = rope->n_rotated / 2;
    const double factor = rope->attention_factor != 0 ? (double)rope->attention_factor : 1;
    for (uint32_t i = 0; i < half; i++) {
        double f = pow(rope->theta, -2.0 * i / rope->n_rotated);
        if (rope->scaling.type == AG_ROPE_LINEAR) f /= rope->scaling.factor;
        if (rope->scaling.type == AG_ROPE_YARN) f = yarn(rope, i, f);
        if (rope->n_divisors) f /= (double)rope->divisors[is_long][i];
        const double c = factor * cos(position * f), s = factor * sin(position * f);
        const double a = head[i], b = head[i + half];
        head[i] = a * c - b * s;
        head[i + half] = b * c + a * s;
    }
}

/* Heads normed where the layer norms them. */
static void norm_heads(double *x, uint32_t n_heads, const double *norm, const ag_model_spec *s,
                       const ag_layer_spec *is) {
    if (norm && is->full_qk_norm)
        rms_norm(x, x, norm, (size_t)n_heads * is->head_dim, (double)ag_spec_eps(s));
    for (uint32_t h = 0; h < n_heads; h++) {
        double *head = x + (size_t)h * is->head_dim;
        if (norm && !is->full_qk_norm)
            rms_norm(head, head, norm, is->head_dim, (double)ag_spec_eps(s));
    }
}

static void rotate_heads(double *x, uint32_t n_heads, const float64_model *m,
                         const ag_layer_spec *is, uint32_t position) {
    if (is->rope == AG_NO_ROPE) return;
    for (uint32_t h = 0; h < n_heads; h++) {
        rotate(x + (size_t)h * is->head_dim, &m->spec.ropes[is->rope], m->is_long, position);
    }
}

void float64_model_move_sinks(float64_model *m, uint32_t n, uint32_t by) {
    for (uint32_t l = 0; l < m->spec.n_layers; l++) {
        const ag_layer_spec *is = ag_spec_layer(&m->spec, l);
        const size_t row = (size_t)is->n_kv_heads * is->head_dim;
        for (uint32_t p = 0; p < n; p++) {
            double *k = m->blocks[l].k + p * row;
            memcpy(k, m->blocks[l].sinks + p * row, row * sizeof *k);
            rotate_heads(k, is->n_kv_heads, m, is, p + by);
        }
    }
}

typedef struct query {
    uint32_t layer, position;
    float64_sees_fn sees;
    void *user;
} query;

static void attend(double *out, const double *q, const block *b, const ag_layer_spec *is,
                   const query *at, uint32_t head) {
    const size_t row = (size_t)is->n_kv_heads * is->head_dim;
    const size_t first = head / (is->n_heads / is->n_kv_heads) * is->head_dim;
    const double sink = is->sinks ? WEIGHT(b, SINKS)[head] : -INFINITY;
    double weights[FLOAT64_MAX_POSITIONS], top = sink;
    for (uint32_t p = 0; p <= at->position; p++) {
        double score = 0;
        for (size_t i = 0; i < is->head_dim; i++) score += q[i] * b->k[p * row + first + i];
        score *= (double)is->scale;
        if (is->softcap != 0) score = (double)is->softcap * tanh(score / (double)is->softcap);
        weights[p] = at->sees(at->user, at->layer, at->position, p) ? score : -INFINITY;
        if (weights[p] > top) top = weights[p];
    }
    memset(out, 0, is->head_dim * sizeof *out);
    double sum = exp(sink - top);
    for (uint32_t p = 0; p <= at->position; p++) sum += weights[p] = exp(weights[p] - top);
    for (uint32_t p = 0; p <= at->position; p++) {
        for (size_t i = 0; i < is->head_dim; i++)
            out[i] += weights[p] / sum * b->v[p * row + first + i];
    }
}

static double activate(double x, ag_activation how) {
    if (how == AG_ACTIVATION_SILU) return x / (1 + exp(-x));
    return x / 2 * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

/* Adds a branch to the stream, normed where the layer norms it. */
static void add_branch(double *stream, double *branch, const double *norm, const ag_model_spec *s) {
    if (norm) rms_norm(branch, branch, norm, s->hidden_size, (double)ag_spec_eps(s));
    for (size_t i = 0; i < s->hidden_size; i++) stream[i] += branch[i];
}

static void self_attention(float64_model *m, const query *at, double *stream) {
    const ag_model_spec *s = &m->spec;
    const ag_layer_spec *is = ag_spec_layer(s, at->layer);
    block *b = &m->blocks[at->layer];
    const size_t dim = s->hidden_size, d = is->head_dim;
    const size_t q_dim = is->n_heads * d, kv_dim = is->n_kv_heads * d;
    double *x = take(dim), *q = take(q_dim), *out = take(q_dim);
    double *k = b->k + at->position * kv_dim, *v = b->v + at->position * kv_dim;
    rms_norm(x, stream, WEIGHT(b, ATTENTION_NORM), dim, (double)ag_spec_eps(s));
    project(q, WEIGHT(b, WQ), WEIGHT(b, BQ), x, q_dim, dim);
    project(k, WEIGHT(b, WK), WEIGHT(b, BK), x, kv_dim, dim);
    project(v, WEIGHT(b, WV), WEIGHT(b, BV), x, kv_dim, dim);
    norm_heads(q, is->n_heads, WEIGHT(b, Q_NORM), s, is);
    norm_heads(k, is->n_kv_heads, WEIGHT(b, K_NORM), s, is);
    if (at->position < FLOAT64_MAX_SINKS)
        memcpy(b->sinks + at->position * kv_dim, k, kv_dim * sizeof *k);
    rotate_heads(q, is->n_heads, m, is, at->position);
    rotate_heads(k, is->n_kv_heads, m, is, at->position);
    if (s->query_beta != 0) {
        const double periods = floor(at->position / (double)s->query_period);
        for (size_t i = 0; i < q_dim; i++) q[i] *= 1 + (double)s->query_beta * log(1 + periods);
    }
    for (uint32_t h = 0; h < is->n_heads; h++) { attend(out + h * d, q + h * d, b, is, at, h); }
    project(x, WEIGHT(b, WO), WEIGHT(b, BO), out, dim, q_dim);
    add_branch(stream, x, WEIGHT(b, POST_ATTENTION_NORM), s);
    free(x);
    free(q);
    free(out);
}

/* Weights of a feed-forward part or of an expert, and its activation. */
typedef struct ffn {
    const double *gate, *up, *down, *gate_bias, *up_bias, *down_bias;
    size_t width;
    const ag_layer_spec *is;
} ffn;

static double gated(double gate, double up, const ag_layer_spec *is) {
    if (is->activation != AG_ACTIVATION_SWIGLU_CLAMPED) return activate(gate, is->activation) * up;
    const double limit = (double)is->experts.gate_limit, g = fmin(gate, limit);
    return (fmax(fmin(up, limit), -limit) + 1) * g / (1 + exp(-1.702 * g));
}

static void compute_ffn(double *out, const double *x, const ffn *f, size_t dim) {
    double *gate = take(f->width), *up = take(f->width);
    project(gate, f->gate, f->gate_bias, x, f->width, dim);
    project(up, f->up, f->up_bias, x, f->width, dim);
    for (size_t i = 0; i < f->width; i++) gate[i] = gated(gate[i], up[i], f->is);
    project(out, f->down, f->down_bias, gate, dim, f->width);
    free(gate);
    free(up);
}

/* Returns a bias of expert e in a table of `rows` values each; NULL: no table. */
static const double *bias_of(const double *table, uint32_t e, size_t rows) {
    return table ? table + e * rows : NULL;
}

static ffn expert_of(const block *b, const ag_layer_spec *is, uint32_t e, size_t dim) {
    const size_t width = is->experts.width;
    return (ffn){.gate = find_weight(b, AG_LT_EXPERT_GATE, e),
                 .up = find_weight(b, AG_LT_EXPERT_UP, e),
                 .down = find_weight(b, AG_LT_EXPERT_DOWN, e),
                 .gate_bias = bias_of(WEIGHT(b, EXPERT_GATE_BIAS), e, width),
                 .up_bias = bias_of(WEIGHT(b, EXPERT_UP_BIAS), e, width),
                 .down_bias = bias_of(WEIGHT(b, EXPERT_DOWN_BIAS), e, dim),
                 .width = width,
                 .is = is};
}

/* out = the sum of the experts with the largest logits, weighted by the softmax of these. */
static void mix_experts(double *out, const double *x, const block *b, const ag_layer_spec *is,
                        size_t dim) {
    const uint32_t n = is->experts.route.n_experts;
    double logits[MAX_EXPERTS], sum = 0, *one = take(dim);
    bool is_chosen[MAX_EXPERTS] = {false};
    project(logits, WEIGHT(b, ROUTER), WEIGHT(b, ROUTER_BIAS), x, n, dim);
    for (uint32_t k = 0; k < is->experts.route.n_used; k++) {
        uint32_t best = n;
        for (uint32_t e = 0; e < n; e++)
            if (!is_chosen[e] && (best == n || logits[e] > logits[best])) best = e;
        is_chosen[best] = true;
        sum += exp(logits[best]);
    }
    memset(out, 0, dim * sizeof *out);
    for (uint32_t e = 0; e < n; e++) {
        const ffn expert = expert_of(b, is, e, dim);
        if (!is_chosen[e]) continue;
        compute_ffn(one, x, &expert, dim);
        for (size_t i = 0; i < dim; i++) out[i] += exp(logits[e]) / sum * one[i];
    }
    free(one);
}

static void feed_forward(float64_model *m, uint32_t layer, double *stream) {
    const ag_model_spec *s = &m->spec;
    const ag_layer_spec *is = ag_spec_layer(s, layer);
    const block *b = &m->blocks[layer];
    const size_t dim = s->hidden_size;
    const ffn dense = {.gate = WEIGHT(b, GATE),
                       .up = WEIGHT(b, UP),
                       .down = WEIGHT(b, DOWN),
                       .gate_bias = WEIGHT(b, BIAS_GATE),
                       .up_bias = WEIGHT(b, BIAS_UP),
                       .down_bias = WEIGHT(b, BIAS_DOWN),
                       .width = s->intermediate_size,
                       .is = is};
    double *x = take(dim), *out = take(dim);
    rms_norm(x, stream, WEIGHT(b, FFN_NORM), dim, (double)ag_spec_eps(s));
    if (is->experts.route.n_experts) mix_experts(out, x, b, is, dim);
    else compute_ffn(out, x, &dense, dim);
    add_branch(stream, out, WEIGHT(b, POST_FFN_NORM), s);
    free(x);
    free(out);
}

void float64_model_token(float64_model *m, uint32_t position, int32_t id, float64_sees_fn sees,
                         void *user, double *logits) {
    const ag_model_spec *s = &m->spec;
    const size_t dim = s->hidden_size;
    double *stream = take(dim);
    for (size_t i = 0; i < dim; i++) {
        stream[i] = m->embedding[(size_t)id * dim + i] * (double)s->embedding_scale;
    }
    for (uint32_t l = 0; l < s->n_layers; l++) {
        const query at = {l, position, sees, user};
        self_attention(m, &at, stream);
        feed_forward(m, l, stream);
    }
    rms_norm(stream, stream, m->norm, dim, (double)ag_spec_eps(s));
    for (size_t i = 0; s->logit_factor != 0 && i < dim; i++) stream[i] *= (double)s->logit_factor;
    project(logits, m->lm_head, NULL, stream, s->vocab_size, dim);
    for (size_t i = 0; s->logit_softcap != 0 && i < s->vocab_size; i++) {
        logits[i] = (double)s->logit_softcap * tanh(logits[i] / (double)s->logit_softcap);
    }
    free(stream);
}
