/* SPDX-License-Identifier: Apache-2.0 */
#include "core/decode_step.h"

static bool same_tensor(const ag_tensor *a, const ag_tensor *b) {
    if (a == b) return true;
    return a && b && a->buffer == b->buffer && a->offset == b->offset &&
           ag_shape_numel(&a->shape) == ag_shape_numel(&b->shape);
}

static bool same_cache(const ag_kv_view *a, const ag_kv_view *b) {
    return a->k_type == b->k_type && a->v_type == b->v_type && a->n_kv_heads == b->n_kv_heads &&
           a->head_dim == b->head_dim && a->v_offset == b->v_offset && a->p_offset == b->p_offset;
}

static bool same_kind(const ag_decode_layer *a, const ag_decode_layer *b) {
    return a->n_heads == b->n_heads && a->scale == b->scale && a->softcap == b->softcap &&
           a->activation == b->activation && same_tensor(a->inv_freq, b->inv_freq) &&
           a->rope_factor == b->rope_factor;
}

static bool rotates_whole_heads(const ag_decode_layer *l, const ag_kv_view *kv) {
    return l->inv_freq && ag_shape_numel(&l->inv_freq->shape) == kv->head_dim / 2;
}

static bool is_wider(const ag_tensor *norm, const ag_kv_view *kv) {
    return norm && ag_shape_numel(&norm->shape) > kv->head_dim;
}

static uint32_t layer_features(const ag_decode_layer *l, const ag_kv_view *kv) {
    uint32_t f = 0;
    if (l->bq || l->bk || l->bv) f |= AG_STEP_QKV_BIAS;
    if (l->bo) f |= AG_STEP_OUT_BIAS;
    if (l->b_gate || l->b_up || l->b_down) f |= AG_STEP_FFN_BIAS;
    if (l->q_norm || l->k_norm) f |= AG_STEP_QK_NORM;
    if (is_wider(l->q_norm, kv) || is_wider(l->k_norm, kv)) f |= AG_STEP_WHOLE_QK_NORM;
    if (l->post_attention_norm || l->post_ffn_norm) f |= AG_STEP_POST_NORM;
    if (!l->attention_norm || !l->ffn_norm) f |= AG_STEP_NO_PRE_NORM;
    if (l->activation == AG_ACTIVATION_GELU_TANH) f |= AG_STEP_GELU;
    if (l->window) f |= AG_STEP_WINDOW;
    if (l->softcap != 0) f |= AG_STEP_SOFTCAP;
    if (!rotates_whole_heads(l, kv)) f |= AG_STEP_PARTIAL_ROPE;
    return f;
}

uint32_t ag_step_most_slots(const ag_decode_step *step) {
    uint32_t most = 0;
    for (uint32_t l = 0; l < step->n_layers; l++) {
        const uint32_t n = ag_kv_view_most_slots(&step->kv[l]);
        if (n > most) most = n;
    }
    return most;
}

uint32_t ag_step_features(const ag_decode_step *step) {
    uint32_t f = 0;
    if (step->logit_softcap != 0) f |= AG_STEP_LOGIT_SOFTCAP;
    if (step->query_periods) f |= AG_STEP_QUERY_FACTOR;
    if (step->hadamard) f |= AG_STEP_HADAMARD;
    if (step->device_scores) f |= AG_STEP_SCORES;
    for (uint32_t i = 0; i < step->n_layers; i++) {
        const ag_decode_layer *l = &step->layers[i];
        f |= layer_features(l, &step->kv[i]);
        if (same_kind(l, &step->layers[0]) && same_cache(&step->kv[i], &step->kv[0])) continue;
        f |= AG_STEP_LAYER_KINDS;
    }
    return f;
}
