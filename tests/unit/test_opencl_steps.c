/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of decoding with what only some families have, described by hand: in one launch they give
 * the values of the operations but for rounding. */
#include "backend/opencl/steps.h"
#include "memory/galloc.h"
#include "unit/opencl_device.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LAYERS = 2, DIM = 256, FFN = 512, VOCAB = 512, HEADS = 4, KV_HEADS = 2, HEAD_DIM = 64 };
enum { ROWS = 16, BLOCKS = 3, MOST_TENSORS = 64, WINDOW = 40, TOKENS = 150 };
enum { K_BYTES = AG_KV_BLOCK * HEAD_DIM * 2, P_BYTES = AG_KV_BLOCK * 4 };

static ag_backend *be;
static ag_memory *host;

static void must(ag_status st) {
    if (st != AG_OK) fail_msg("%s: %s", ag_status_name(st), ag_backend_error(be)->msg);
}

/* A model's weights, and what its passes compute in. */
typedef struct network {
    ag_decode_layer layers[LAYERS];
    ag_tensor tensors[MOST_TENSORS];
    ag_buffer *owners[MOST_TENSORS];
    size_t n;
    const ag_tensor *norm, *lm_head;
    ag_tensor *rows, *normed, *q, *k, *v, *out, *branch, *gate, *up;
    float embedding[DIM], logit_softcap;
    uint32_t position, visible_from;
} network;

static uint32_t random_state;

static float random_value(void) {
    random_state = random_state * 1664525 + 1013904223;
    return (float)(int32_t)random_state * 0x1p-31f;
}

static ag_tensor *make(network *n, ag_memory *memory, ag_shape shape, float low, float high) {
    ag_tensor *t = &n->tensors[n->n];
    const size_t count = ag_shape_numel(&shape);
    float *values = malloc(count * sizeof *values);
    assert_true(n->n < MOST_TENSORS && values);
    must(ag_tensor_alloc(t, &n->owners[n->n++], memory, AG_USAGE_SCRATCH, AG_F32, shape, NULL));
    for (size_t i = 0; i < count; i++) {
        values[i] = low + (high - low) * (random_value() + 1) / 2;
    }
    must(ag_buffer_upload(t->buffer, t->offset, values, count * sizeof *values, NULL));
    free(values);
    return t;
}

static ag_tensor *vector(network *n, size_t size, float low, float high) {
    return make(n, ag_backend_memory(be), ag_shape_1d(size), low, high);
}

static ag_tensor *matrix(network *n, size_t rows, size_t cols) {
    const float most = sqrtf(3 / (float)cols);
    const ag_tensor *src = make(n, host, ag_shape_2d(rows, cols), -most, most);
    ag_tensor *w = &n->tensors[n->n];
    must(ag_prepare_weight(be, w, &n->owners[n->n++], src, AG_Q4_0, NULL, NULL));
    return w;
}

static ag_tensor *on_device(network *n, size_t rows, size_t cols) {
    return make(n, ag_backend_memory(be), ag_shape_2d(rows, cols), 0, 0);
}

static void make_layer(network *n, ag_decode_layer *l, uint32_t features) {
    const bool post = features & AG_STEP_POST_NORM, qk = features & AG_STEP_QK_NORM;
    const size_t turned = features & AG_STEP_PARTIAL_ROPE ? HEAD_DIM / 8 : HEAD_DIM / 2;
    *l = (ag_decode_layer){
        .attention_norm = vector(n, DIM, 0.5f, 1.5f),
        .ffn_norm = vector(n, DIM, 0.5f, 1.5f),
        .wq = matrix(n, HEADS * HEAD_DIM, DIM),
        .wk = matrix(n, KV_HEADS * HEAD_DIM, DIM),
        .wv = matrix(n, KV_HEADS * HEAD_DIM, DIM),
        .wo = matrix(n, DIM, HEADS * HEAD_DIM),
        .w_gate = matrix(n, FFN, DIM),
        .w_up = matrix(n, FFN, DIM),
        .w_down = matrix(n, DIM, FFN),
        .bq = features & AG_STEP_QKV_BIAS ? vector(n, HEADS * HEAD_DIM, -1, 1) : NULL,
        .q_norm = qk ? vector(n, HEAD_DIM, 0.5f, 2) : NULL,
        .k_norm = qk ? vector(n, HEAD_DIM, 0.5f, 2) : NULL,
        .post_attention_norm = post ? vector(n, DIM, 0.5f, 1.5f) : NULL,
        .post_ffn_norm = post ? vector(n, DIM, 0.5f, 1.5f) : NULL,
        .inv_freq = make(n, host, ag_shape_1d(turned), 0.01f, 1),
        .rope_factor = 1.25f,
        .n_heads = HEADS,
        .scale = 0.125f,
        .softcap = features & AG_STEP_SOFTCAP ? 3 : 0,
        .activation = features & AG_STEP_GELU ? AG_ACTIVATION_GELU_TANH : AG_ACTIVATION_SILU,
    };
}

static void make_network(network *n, uint32_t features) {
    *n = (network){.logit_softcap = features & AG_STEP_LOGIT_SOFTCAP ? 2 : 0};
    random_state = 5;
    for (int i = 0; i < LAYERS; i++) make_layer(n, &n->layers[i], features);
    const bool differ = features & AG_STEP_LAYER_KINDS;
    if (!differ) n->layers[1].inv_freq = n->layers[0].inv_freq;
    if (differ) n->layers[1].scale = 0.2f;
    if (features & AG_STEP_WINDOW) {
        n->layers[1].window = WINDOW;
        n->layers[1].visible_from = &n->visible_from;
    }
    n->norm = vector(n, DIM, 0.5f, 1.5f);
    n->lm_head = matrix(n, VOCAB, DIM);
    n->rows = on_device(n, ROWS, DIM);
    n->normed = on_device(n, 1, DIM);
    n->branch = on_device(n, 1, DIM);
    n->q = on_device(n, 1, HEADS * HEAD_DIM);
    n->k = on_device(n, 1, KV_HEADS * HEAD_DIM);
    n->v = on_device(n, 1, KV_HEADS * HEAD_DIM);
    n->out = on_device(n, 1, HEADS * HEAD_DIM);
    n->gate = on_device(n, 1, FFN);
    n->up = on_device(n, 1, FFN);
}

static void end_network(network *n) {
    for (size_t i = 0; i < n->n; i++) ag_buffer_release(&n->owners[i]);
}

/* A sequence: its cache and its logits. */
typedef struct sequence {
    network *net;
    ag_buffer *memory, *logits_owner;
    ag_kv_block blocks[LAYERS][KV_HEADS][BLOCKS];
    uint32_t n_slots[LAYERS][KV_HEADS];
    ag_kv_view kv[LAYERS];
    ag_tensor logits;
    float row[VOCAB]; /* the last token's logits */
} sequence;

static void begin_sequence(sequence *s, network *net) {
    const size_t block = 2 * K_BYTES + P_BYTES;
    *s = (sequence){.net = net};
    must(ag_memory_alloc(ag_backend_memory(be), LAYERS * KV_HEADS * BLOCKS * block, AG_USAGE_KV,
                         &s->memory, NULL));
    must(ag_tensor_alloc(&s->logits, &s->logits_owner, ag_backend_memory(be), AG_USAGE_SCRATCH,
                         AG_F32, ag_shape_2d(1, VOCAB), NULL));
    for (size_t l = 0; l < LAYERS; l++) {
        for (size_t i = 0; i < KV_HEADS * BLOCKS; i++) {
            const size_t at = (l * BLOCKS + i % BLOCKS) * KV_HEADS + i / BLOCKS;
            s->blocks[l][i / BLOCKS][i % BLOCKS] = (ag_kv_block){s->memory, at * block};
        }
        s->kv[l] = (ag_kv_view){.k_type = AG_F16,
                                .v_type = AG_F16,
                                .n_kv_heads = KV_HEADS,
                                .head_dim = HEAD_DIM,
                                .v_offset = K_BYTES,
                                .p_offset = 2 * K_BYTES,
                                .blocks = s->blocks[l][0],
                                .blocks_per_head = BLOCKS,
                                .n_slots = s->n_slots[l]};
    }
}

static void end_sequence(sequence *s) {
    ag_buffer_release(&s->memory);
    ag_buffer_release(&s->logits_owner);
}

static ag_tensor first_row(const network *n) {
    ag_tensor x = *n->rows;
    x.shape = ag_shape_2d(1, DIM);
    return x;
}

static ag_tensor heads_of(const ag_tensor *t, size_t heads) {
    ag_tensor v = *t;
    v.shape = ag_shape_3d(1, heads, HEAD_DIM);
    return v;
}

static void norm_heads(ag_tensor *t, size_t heads, const ag_tensor *w) {
    ag_tensor rows = *t;
    rows.shape = ag_shape_2d(heads, HEAD_DIM);
    if (w) must(ag_rms_norm(be, &rows, &rows, w, 1e-5f));
}

static void attend(sequence *s, size_t l, const ag_decode_layer *layer) {
    network *n = s->net;
    ag_tensor q = heads_of(n->q, HEADS), k = heads_of(n->k, KV_HEADS);
    ag_tensor v = heads_of(n->v, KV_HEADS), out = heads_of(n->out, HEADS);
    must(ag_rope_pair(be, &q, &k, &n->position, layer->inv_freq, layer->rope_factor));
    must(ag_kv_write(be, &s->kv[l], &k, &v, &n->position));
    for (int h = 0; h < KV_HEADS; h++) s->n_slots[l][h]++;
    const ag_attention_seq seq = {.kv = s->kv[l],
                                  .n_rows = 1,
                                  .visible_until = &n->position,
                                  .visible_from = layer->window ? &n->visible_from : NULL};
    const ag_attention_params p = {.scale = layer->scale, .softcap = layer->softcap};
    must(ag_attention(be, &out, &q, &seq, 1, &p));
}

static void add_branch(network *n, ag_tensor *x, const ag_tensor *norm) {
    if (norm) must(ag_rms_norm(be, n->branch, n->branch, norm, 1e-5f));
    must(ag_add_assign(be, x, n->branch));
}

static ag_status run_operations(void *user) {
    sequence *s = user;
    network *n = s->net;
    ag_tensor x = first_row(n);
    for (size_t i = 0; i < LAYERS; i++) {
        const ag_decode_layer *l = &n->layers[i];
        must(ag_rms_norm(be, n->normed, &x, l->attention_norm, 1e-5f));
        must(ag_matmul_transposed(be, n->q, n->normed, l->wq));
        must(ag_matmul_transposed(be, n->k, n->normed, l->wk));
        must(ag_matmul_transposed(be, n->v, n->normed, l->wv));
        if (l->bq) must(ag_add_bias(be, n->q, l->bq));
        norm_heads(n->q, HEADS, l->q_norm);
        norm_heads(n->k, KV_HEADS, l->k_norm);
        attend(s, i, l);
        must(ag_matmul_transposed(be, n->branch, n->out, l->wo));
        add_branch(n, &x, l->post_attention_norm);
        must(ag_rms_norm(be, n->normed, &x, l->ffn_norm, 1e-5f));
        must(ag_matmul_transposed(be, n->gate, n->normed, l->w_gate));
        must(ag_matmul_transposed(be, n->up, n->normed, l->w_up));
        must((l->activation == AG_ACTIVATION_SILU ? ag_silu_mul : ag_gelu_mul)(be, n->gate, n->up));
        must(ag_matmul_transposed(be, n->branch, n->gate, l->w_down));
        add_branch(n, &x, l->post_ffn_norm);
    }
    must(ag_rms_norm(be, n->normed, &x, n->norm, 1e-5f));
    must(ag_matmul_transposed(be, &s->logits, n->normed, n->lm_head));
    if (n->logit_softcap > 0) must(ag_softcap(be, &s->logits, n->logit_softcap));
    return AG_OK;
}

static ag_decode_step next_step(sequence *s, uint32_t position) {
    network *n = s->net;
    n->position = position;
    n->visible_from = position + 1 > WINDOW ? position + 1 - WINDOW : 0;
    random_state = position + 77;
    for (int i = 0; i < DIM; i++) n->embedding[i] = random_value();
    return (ag_decode_step){.layers = n->layers,
                            .n_layers = LAYERS,
                            .norm = n->norm,
                            .lm_head = n->lm_head,
                            .eps = 1e-5f,
                            .logit_softcap = n->logit_softcap,
                            .embedding = n->embedding,
                            .position = position,
                            .positions = &n->position,
                            .rows = n->rows,
                            .kv = s->kv,
                            .logits = &s->logits};
}

static void count_token(sequence *s) {
    for (size_t l = 0; l < LAYERS; l++) {
        for (int h = 0; h < KV_HEADS; h++) s->n_slots[l][h]++;
    }
}

static void read_row(sequence *s) { must(ag_read(be, s->row, &s->logits, sizeof s->row)); }

static void by_operations(sequence *s, uint32_t position) {
    const ag_decode_step step = next_step(s, position);
    must(ag_buffer_upload(step.rows->buffer, step.rows->offset, step.embedding,
                          sizeof s->net->embedding, NULL));
    must(run_operations(s));
    read_row(s);
}

static bool in_one_launch(sequence *s, uint32_t position) {
    const ag_decode_step step = next_step(s, position);
    bool taken;
    must(ag_try_decode_step(be, &step, &taken));
    if (taken) count_token(s);
    if (taken) read_row(s);
    return taken;
}

static double distance(const sequence *a, const sequence *b) {
    double difference = 0, size = 0;
    for (int i = 0; i < VOCAB; i++) {
        difference += ((double)a->row[i] - b->row[i]) * ((double)a->row[i] - b->row[i]);
        size += (double)b->row[i] * b->row[i];
    }
    return sqrt(difference / size);
}

/* ---- tests ---- */

/* Close to the operations with these features, which must not be those of a step without them. */
static void computes_it_in_one_launch(void **state) {
    const uint32_t features = (uint32_t)(uintptr_t)*state;
    network net;
    sequence whole, plain;
    double worst = 0;
    make_network(&net, features);
    begin_sequence(&whole, &net);
    begin_sequence(&plain, &net);
    ag_cl_of(be)->switches.token = AG_CL_ON;
    for (uint32_t i = 0; i < TOKENS; i++) {
        assert_true(in_one_launch(&whole, i));
        by_operations(&plain, i);
        worst = fmax(worst, distance(&whole, &plain));
    }
    printf("largest distance of the logits: %.4f\n", worst);
    assert_true(worst < 0.08);
    end_sequence(&whole);
    end_sequence(&plain);
    end_network(&net);
}

static void leaves_the_rest_to_the_operations(void **state) {
    (void)state;
    static const uint32_t others[] = {AG_STEP_POST_NORM, AG_STEP_SOFTCAP, AG_STEP_PARTIAL_ROPE,
                                      AG_STEP_LOGIT_SOFTCAP, AG_STEP_LAYER_KINDS};
    ag_cl_of(be)->switches.token = AG_CL_ON;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        network net;
        sequence s;
        make_network(&net, others[i]);
        begin_sequence(&s, &net);
        assert_false(in_one_launch(&s, 0));
        end_sequence(&s);
        end_network(&net);
    }
}

#define WITH(name, test, features) \
    { name, test, NULL, NULL, (void *)(uintptr_t)(features) }

int main(void) {
    be = open_opencl();
    if (!be) return EXIT_SKIPPED;
    if (ag_galloc_create(&host, NULL) != AG_OK) return EXIT_FAILURE;
    enum {
        QWEN3 = AG_STEP_QK_NORM | AG_STEP_WINDOW | AG_STEP_GELU,
    };
    const struct CMUnitTest tests[] = {
        WITH("computes_windows_and_norms_in_one_launch", computes_it_in_one_launch, QWEN3),
        cmocka_unit_test(leaves_the_rest_to_the_operations),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ag_galloc_destroy(host);
    ag_backend_destroy(be);
    return failed;
}
