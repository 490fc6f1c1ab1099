/* SPDX-License-Identifier: Apache-2.0 */

#include "core/fail.h"
#include "models/lower.h"

#include <stdio.h>
#include <string.h>

static ag_layer_kind describe_kind(const ag_model_spec *s, const ag_layer_spec *k) {
    ag_layer_kind kind = {
        .mixer = k->mixer,
        .channels = ag_spec_channels(s, k),
        .intermediate_size = ag_spec_ffn_dim(s, k),
    };
    if (k->mixer == AG_MIXER_ATTENTION) {
        kind.n_heads = k->n_heads;
        kind.n_kv_heads = k->n_kv_heads;
        kind.head_dim = k->head_dim;
        kind.window = k->window;
    } else if (k->mixer == AG_MIXER_DELTA_NET) {
        kind.n_heads = k->delta.n_v_heads;
        kind.n_kv_heads = k->delta.n_k_heads;
        kind.head_dim = k->delta.v_dim;
    }
    return kind;
}

static void describe_kinds(const ag_model_spec *s, ag_model_info *info) {
    ag_state_layer states[AG_MAX_LAYERS];
    uint32_t n_states = 0;
    info->n_layer_kinds = s->n_kinds;
    for (uint32_t k = 0; k < s->n_kinds; k++) info->layer_kinds[k] = describe_kind(s, &s->kinds[k]);
    for (uint32_t l = 0; l < s->n_layers; l++) {
        info->layer_kinds[s->kind_of[l]].n_layers++;
        info->layer_kinds[s->kind_of[l]].n_kv_layers += ag_spec_kv_source(s, l) == l;
        n_states += ag_spec_state(s, ag_spec_layer(s, l), &states[n_states]);
    }
    for (uint32_t k = 0; k < s->n_kinds; k++) {
        const ag_route_params *route = &s->kinds[k].experts.route;
        if (!route->n_experts) continue;
        info->n_experts = route->n_experts;
        info->n_experts_used = route->n_used;
    }
    info->state_bytes = ag_layer_state_bytes(states, n_states);
}

/* Returns the first kind with attention. */
static const ag_layer_spec *first_attention(const ag_model_spec *s) {
    for (uint32_t k = 0; k < s->n_kinds; k++) {
        if (s->kinds[k].mixer == AG_MIXER_ATTENTION) return &s->kinds[k];
    }
    return &s->kinds[0];
}

ag_status ag_spec_describe(const ag_model_spec *s, ag_model_info *info, ag_error *err) {
    ag_program *program;
    const ag_layer_spec *attention = first_attention(s);
    *info = (ag_model_info){
        .n_layers = s->n_layers,
        .hidden_size = s->hidden_size,
        .intermediate_size = s->intermediate_size,
        .n_heads = attention->n_heads,
        .n_kv_heads = attention->n_kv_heads,
        .head_dim = attention->head_dim,
        .layer_input_size = s->layer_input,
        .n_vocab = s->vocab_size,
        .max_positions = s->max_positions,
        .rope_theta = (float)s->ropes[0].theta,
        .norm_eps = s->norm_eps,
        .tied = s->tie_word_embeddings,
        .bos_id = s->bos_id,
        .n_eos = s->n_eos,
    };
    snprintf(info->architecture, sizeof info->architecture, "%s", s->architecture);
    snprintf(info->rope_scaling, sizeof info->rope_scaling, "%s",
             ag_rope_type_name(s->ropes[0].scaling.type));
    memcpy(info->eos_ids, s->eos_ids, sizeof info->eos_ids);
    describe_kinds(s, info);
    AG_TRY(ag_lower(s, &program, err));
    info->workspace_columns = program->cols;
    ag_program_destroy(program);
    return AG_OK;
}
