/* SPDX-License-Identifier: Apache-2.0 */
/* Granite 3 and the dense models of Granite 4: factors of embeddings, branches, scores and logits.
 * MiniCPM has all but the factor of scores. The factor of branches needs no operation: the stream
 * is divided by it instead, and the epsilon of norms by its square. */
#include "core/fail.h"
#include "models/families/family.h"

#include <math.h>
#include <string.h>

typedef struct factors {
    double embedding, branch, scores, logits; /* logits are divided by theirs */
} factors;

static ag_status describe_with(ag_config_reader *r, const ag_layer_spec *plain, factors f,
                               ag_model_spec *s) {
    ag_layer_spec kind = *plain;
    bool bias = false;
    ag_config_real(r, "embedding_multiplier", 1e-3, 1e6, &f.embedding);
    ag_config_real(r, "residual_multiplier", 1e-3, 1e3, &f.branch);
    ag_config_real(r, "attention_multiplier", 1e-6, 1e3, &f.scores);
    ag_config_real(r, "logits_scaling", 1e-3, 1e6, &f.logits);
    ag_config_bool(r, "attention_bias", &bias);
    ag_config_bool(r, "mlp_bias", &kind.ffn_bias);
    AG_TRY(r->status);
    kind.qkv_bias = kind.out_bias = bias;
    kind.scale = (float)f.scores;
    s->embedding_scale = (float)(f.embedding / f.branch);
    s->eps_factor = (float)(1 / (f.branch * f.branch));
    s->logit_factor = (float)(1 / f.logits);
    return ag_spec_set_all(s, &kind, r->err);
}

static ag_status describe(ag_config_reader *r, const ag_layer_spec *plain, ag_model_spec *s) {
    return describe_with(r, plain, (factors){1, 1, 1, 1}, s);
}

static const ag_gguf_key keys[] = {
    {"embedding_scale", "embedding_multiplier", true},
    {"residual_scale", "residual_multiplier", true},
    {"attention.scale", "attention_multiplier", true},
    {"logit_scale", "logits_scaling", true},
    {NULL, NULL, false},
};

const ag_family ag_family_granite = {
    .names = {{"GraniteForCausalLM", "granite"}},
    .defaults = AG_LLAMA_DEFAULTS,
    .gguf = {.architectures = {"granite"}, .paired_rows = true, .keys = keys},
    .describe = describe,
};

/* ---- with experts ---- */

static const ag_tensor_alias moe_aliases[] = {
    {AG_LT_ROUTER, "block_sparse_moe.router.layer.weight"},
    {AG_LT_SHARED_GATE, "shared_mlp.input_linear.weight"},
    {AG_LT_SHARED_UP, "shared_mlp.input_linear.weight"},
    {AG_LT_SHARED_DOWN, "shared_mlp.output_linear.weight"},
    {.suffix = NULL},
};

static ag_status describe_moe(ag_config_reader *r, const ag_layer_spec *plain, ag_model_spec *s) {
    ag_layer_spec kind = *plain;
    double shared = strcmp(s->architecture, "GraniteMoeSharedForCausalLM") ? 0 : 1024;
    kind.experts = (ag_expert_spec){
        .route = {.n_experts = 8, .n_used = 2, .scoring = AG_SCORING_CHOSEN, .factor = 1}};
    ag_config_real(r, "shared_expert_intermediate_size", 0, 1 << 22,
                   &shared); /* key of GGUF files */
    ag_config_real(r, "shared_intermediate_size", 0, 1 << 22, &shared);
    kind.experts.shared_width = (uint32_t)shared;
    AG_TRY(ag_config_experts(r, s, &kind.experts));
    return describe(r, &kind, s);
}

const ag_family ag_family_granite_moe = {
    .names = {{"GraniteMoeForCausalLM", "granitemoe"},
              {"GraniteMoeSharedForCausalLM", "granitemoeshared"}},
    .defaults = AG_LLAMA_DEFAULTS,
    .aliases = moe_aliases,
    .gguf = {.architectures = {"granitemoe"}, .paired_rows = true, .keys = keys},
    .describe = describe_moe,
};

/* ---- MiniCPM ---- */

/* MiniCPM's own keys are in directories; its GGUF files have Granite's keys. */
static ag_status describe_minicpm(ag_config_reader *r, const ag_layer_spec *plain,
                                  ag_model_spec *s) {
    double embedding = 1, depth = sqrt(s->n_layers), base = s->hidden_size;
    ag_config_real(r, "scale_emb", 1e-3, 1e6, &embedding);
    ag_config_real(r, "scale_depth", 1e-3, 1e3, &depth);
    ag_config_real(r, "dim_model_base", 1, 1e6, &base);
    const factors f = {embedding, depth / sqrt(s->n_layers), (double)plain->scale,
                       s->hidden_size / base};
    return describe_with(r, plain, f, s);
}

const ag_family ag_family_minicpm = {
    .names = {{"MiniCPMForCausalLM", "minicpm"}},
    .defaults = {.vocab_size = 32000,
                 .hidden_size = 4096,
                 .intermediate_size = 11008,
                 .n_layers = 32,
                 .n_heads = 32,
                 .max_positions = 2048,
                 .rope_theta = 10000,
                 .bos_id = 1,
                 .eos_id = 2,
                 .tie_word_embeddings = true},
    .gguf = {.architectures = {"minicpm"}, .paired_rows = true, .keys = keys},
    .describe = describe_minicpm,
};

/* ---- Granite 4, without experts and recurrent layers ---- */

static const ag_tensor_alias hybrid_aliases[] = {
    {AG_LT_GATE, "shared_mlp.input_linear.weight"},
    {AG_LT_UP, "shared_mlp.input_linear.weight"},
    {AG_LT_DOWN, "shared_mlp.output_linear.weight"},
    {.suffix = NULL},
};

static ag_status unsupported(ag_config_reader *r, const char *what) {
    return AG_FAIL(r->err, UNSUPPORTED,
                   "%s: %s; only dense models with attention in all layers are supported", r->where,
                   what);
}

static ag_status describe_hybrid(ag_config_reader *r, const ag_layer_spec *plain,
                                 ag_model_spec *s) {
    const json_t *types = ag_config_value(r, "layer_types");
    const char *turns = json_string_value(ag_config_value(r, "position_embedding_type"));
    double experts = 8;
    ag_layer_spec kind = *plain;
    ag_config_real(r, "num_local_experts", 0, 1e6, &experts);
    AG_TRY(r->status);
    if (experts != 0) return unsupported(r, "num_local_experts is not 0");
    if (!types) types = ag_config_value(r, "layers_block_type");
    for (uint32_t l = 0; l < s->n_layers; l++) {
        const char *type = json_string_value(json_array_get(types, l));
        if (type && (!strcmp(type, "attention") || !strcmp(type, "full_attention"))) continue;
        return unsupported(r, "layer_types has other layers than attention");
    }
    s->intermediate_size = 1024;
    ag_config_size(r, "shared_intermediate_size", 1 << 22, &s->intermediate_size);
    if (!turns || strcmp(turns, "rope") != 0) kind.rope = AG_NO_ROPE;
    return describe(r, &kind, s);
}

const ag_family ag_family_granite_hybrid = {
    .names = {{"GraniteMoeHybridForCausalLM", "granitemoehybrid"}},
    .defaults = AG_LLAMA_DEFAULTS,
    .aliases = hybrid_aliases,
    .describe = describe_hybrid,
};
