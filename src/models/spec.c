/* SPDX-License-Identifier: Apache-2.0 */
#include "models/spec.h"

#include "core/fail.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *ag_mixer_name(ag_mixer mixer) {
    static const char *const names[] = {"attention", "short_conv", "delta_net"};
    return names[mixer];
}

ag_model_spec ag_spec_plain(uint32_t n_heads, uint32_t n_kv_heads, uint32_t head_dim) {
    return (ag_model_spec){
        .architecture = "LlamaForCausalLM",
        .n_kinds = 1,
        .kinds = {{.n_heads = n_heads,
                   .n_kv_heads = n_kv_heads,
                   .head_dim = head_dim,
                   .scale = 1.0f / sqrtf((float)head_dim)}},
        .n_ropes = 1,
        .ropes = {{.theta = 10000, .n_rotated = head_dim}},
        .norm_eps = 1e-5f,
        .embedding_scale = 1,
        .bos_id = -1,
    };
}

/* Compare members, since padding may differ. */
static bool is_same_mixer(const ag_layer_spec *a, const ag_layer_spec *b) {
    const ag_delta_params *c = &a->delta, *d = &b->delta;
    return a->mixer == b->mixer && a->conv_taps == b->conv_taps && c->n_k_heads == d->n_k_heads &&
           c->n_v_heads == d->n_v_heads && c->k_dim == d->k_dim && c->v_dim == d->v_dim &&
           c->tiled == d->tiled && c->eps == d->eps;
}

static bool is_same_attention(const ag_layer_spec *a, const ag_layer_spec *b) {
    return a->n_heads == b->n_heads && a->n_kv_heads == b->n_kv_heads &&
           a->head_dim == b->head_dim && a->shares_kv == b->shares_kv && a->v_norm == b->v_norm &&
           a->out_gate == b->out_gate && a->rope == b->rope && a->window == b->window &&
           a->scale == b->scale && a->softcap == b->softcap && a->qkv_bias == b->qkv_bias &&
           a->out_bias == b->out_bias && a->qk_norm == b->qk_norm &&
           a->full_qk_norm == b->full_qk_norm && a->v_from_k == b->v_from_k && a->sinks == b->sinks;
}

static bool is_same_route(const ag_route_params *a, const ag_route_params *b) {
    return a->n_experts == b->n_experts && a->n_used == b->n_used && a->scoring == b->scoring &&
           a->normalise == b->normalise && a->sum_eps == b->sum_eps && a->factor == b->factor;
}

static bool is_same_experts(const ag_expert_spec *a, const ag_expert_spec *b) {
    return is_same_route(&a->route, &b->route) && a->width == b->width &&
           a->shared_width == b->shared_width && a->shared_gate == b->shared_gate &&
           a->router_bias == b->router_bias && a->choice_bias == b->choice_bias &&
           a->matrix_biases == b->matrix_biases && a->beside_dense == b->beside_dense &&
           a->gate_limit == b->gate_limit;
}

static bool is_same(const ag_layer_spec *a, const ag_layer_spec *b) {
    return is_same_mixer(a, b) && is_same_attention(a, b) &&
           is_same_experts(&a->experts, &b->experts) && a->activation == b->activation &&
           a->ffn_dim == b->ffn_dim && a->ffn_bias == b->ffn_bias &&
           a->post_norms == b->post_norms && a->no_pre_norms == b->no_pre_norms;
}

ag_status ag_spec_set_layer(ag_model_spec *s, uint32_t layer, const ag_layer_spec *kind,
                            ag_error *err) {
    uint32_t k = 0;
    while (k < s->n_kinds && !is_same(&s->kinds[k], kind)) k++;
    if (k == AG_MAX_LAYER_KINDS) {
        return AG_FAIL(err, LIMIT, "layer %u needs kind number %u, the limit is %d", layer, k + 1,
                       AG_MAX_LAYER_KINDS);
    }
    s->kinds[k] = *kind;
    if (k == s->n_kinds) s->n_kinds++;
    s->kind_of[layer] = (uint8_t)k;
    return AG_OK;
}

ag_status ag_spec_set_all(ag_model_spec *s, const ag_layer_spec *kind, ag_error *err) {
    for (uint32_t l = 0; l < s->n_layers; l++) AG_TRY(ag_spec_set_layer(s, l, kind, err));
    return AG_OK;
}

bool ag_spec_is_long(const ag_model_spec *s, uint64_t n_positions) {
    for (uint32_t i = 0; i < s->n_ropes; i++) {
        const ag_rope_scaling *scaling = &s->ropes[i].scaling;
        if (scaling->type == AG_ROPE_LONGROPE &&
            (double)n_positions > scaling->original_max_position_embeddings) {
            return true;
        }
    }
    return false;
}

/* ---- mixers ---- */

uint32_t ag_spec_channels(const ag_model_spec *s, const ag_layer_spec *kind) {
    const ag_delta_params *d = &kind->delta;
    if (kind->mixer == AG_MIXER_SHORT_CONV) return s->hidden_size;
    if (kind->mixer == AG_MIXER_ATTENTION) return 0;
    return 2 * d->n_k_heads * d->k_dim + d->n_v_heads * d->v_dim;
}

bool ag_spec_state(const ag_model_spec *s, const ag_layer_spec *kind, ag_state_layer *out) {
    const size_t channels = ag_spec_channels(s, kind);
    if (kind->mixer == AG_MIXER_ATTENTION) return false;
    *out = (ag_state_layer){.n_values = (kind->conv_taps - 1) * channels, .row_values = {channels}};
    if (kind->mixer == AG_MIXER_DELTA_NET) {
        out->n_values += (size_t)kind->delta.n_v_heads * kind->delta.k_dim * kind->delta.v_dim;
        out->row_values[1] = out->row_values[2] = kind->delta.n_v_heads;
    }
    return true;
}

uint32_t ag_spec_kv_source(const ag_model_spec *s, uint32_t layer) {
    const ag_layer_spec *kind = ag_spec_layer(s, layer);
    if (kind->mixer != AG_MIXER_ATTENTION) return UINT32_MAX;
    if (!kind->shares_kv) return layer;
    while (layer--) {
        const ag_layer_spec *other = ag_spec_layer(s, layer);
        if (other->mixer == AG_MIXER_ATTENTION && !other->shares_kv &&
            other->window == kind->window && other->head_dim == kind->head_dim &&
            other->n_kv_heads == kind->n_kv_heads) {
            return layer;
        }
    }
    return UINT32_MAX;
}
