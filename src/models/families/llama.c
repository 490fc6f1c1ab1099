/* SPDX-License-Identifier: Apache-2.0 */
/* Llama, Mistral, Mixtral and Ministral 3: plain layers. All layers of a Mistral may have one
 * window. Mixtral has experts in all layers. Queries of Ministral 3 may be scaled by their
 * position. */
#include "core/fail.h"
#include "models/families/family.h"

/* Mistral's GGUF files have the architecture llama and this key. Llama ignores `sliding_window` of
 * a config.json. */
static const char gguf_window[] = "attention.sliding_window";

/* Key that no config.json has: GGUF files of Mixtral have the architecture llama, too. */
static const char gguf_experts[] = "gguf_experts";

/* Reads the experts of a Mixtral. Their weights are always divided by their sum. */
static ag_status read_experts(ag_config_reader *r, const ag_model_spec *s, ag_layer_spec *kind) {
    kind->experts = (ag_expert_spec){
        .route = {.n_experts = 8, .n_used = 2, .scoring = AG_SCORING_SOFTMAX, .factor = 1}};
    AG_TRY(ag_config_experts(r, s, &kind->experts));
    kind->experts.route.normalise = true;
    return AG_OK;
}

static ag_status describe_llama(ag_config_reader *r, const ag_layer_spec *plain, ag_model_spec *s) {
    ag_layer_spec kind = *plain;
    bool attention = false;
    ag_config_bool(r, "attention_bias", &attention);
    ag_config_bool(r, "mlp_bias", &kind.ffn_bias);
    ag_config_window(r, gguf_window, &kind.window);
    kind.qkv_bias = kind.out_bias = attention;
    if (ag_config_value(r, gguf_experts)) AG_TRY(read_experts(r, s, &kind));
    return ag_spec_set_all(s, &kind, r->err);
}

static ag_status complete_llama(const ag_gguf_reader *r, json_t *config) {
    json_t *window = json_object_get(config, "sliding_window");
    json_t *experts = json_object_get(config, "num_experts");
    if ((window && json_object_set(config, gguf_window, window)) ||
        (experts && json_object_set(config, gguf_experts, experts))) {
        return AG_FAIL(r->err, NOMEM, "%s: configuration", r->where);
    }
    return AG_OK;
}

const ag_family ag_family_llama = {
    .names = {{"LlamaForCausalLM", "llama"}},
    .defaults = AG_LLAMA_DEFAULTS,
    .gguf = {.architectures = {"llama"}, .paired_rows = true, .complete = complete_llama},
    .describe = describe_llama,
};

static ag_status describe_mixtral(ag_config_reader *r, const ag_layer_spec *plain,
                                  ag_model_spec *s) {
    ag_layer_spec kind = *plain;
    ag_config_window(r, "sliding_window", &kind.window);
    AG_TRY(read_experts(r, s, &kind));
    return ag_spec_set_all(s, &kind, r->err);
}

static const ag_tensor_alias mixtral_aliases[] = {{AG_LT_ROUTER, "block_sparse_moe.gate.weight"},
                                                  {.suffix = NULL}};

const ag_family ag_family_mixtral = {
    .names = {{"MixtralForCausalLM", "mixtral"}},
    .defaults = {.vocab_size = 32000,
                 .hidden_size = 4096,
                 .intermediate_size = 14336,
                 .n_layers = 32,
                 .n_heads = 32,
                 .n_kv_heads = 8,
                 .max_positions = 131072,
                 .rope_theta = 1e6,
                 .norm_eps = 1e-5,
                 .bos_id = 1,
                 .eos_id = 2},
    .aliases = mixtral_aliases,
    .gguf = {.architectures = {"llama"}, .paired_rows = true},
    .describe = describe_mixtral,
};

static ag_status describe_mistral(ag_config_reader *r, const ag_layer_spec *plain,
                                  ag_model_spec *s) {
    ag_layer_spec kind = *plain;
    if (!json_object_get(r->object, "sliding_window")) kind.window = 4096;
    ag_config_window(r, "sliding_window", &kind.window);
    return ag_spec_set_all(s, &kind, r->err);
}

const ag_family ag_family_mistral = {
    .names = {{"MistralForCausalLM", "mistral"}},
    .defaults = {.vocab_size = 32000,
                 .hidden_size = 4096,
                 .intermediate_size = 14336,
                 .n_layers = 32,
                 .n_heads = 32,
                 .n_kv_heads = 8,
                 .max_positions = 131072,
                 .rope_theta = 10000,
                 .bos_id = 1,
                 .eos_id = 2},
    .gguf = {.architectures = {"llama"}, .paired_rows = true},
    .describe = describe_mistral,
};

/* Default of a configuration without keys for rotation. */
static const ag_rope_spec ministral_rope = {
    .theta = 1e6,
    .scaling = {.type = AG_ROPE_YARN,
                .factor = 16,
                .original_max_position_embeddings = 16384,
                .beta_fast = 32,
                .beta_slow = 1,
                .round_to_pairs = true},
};

static ag_status describe_ministral(ag_config_reader *r, const ag_layer_spec *plain,
                                    ag_model_spec *s) {
    ag_layer_spec kind = *plain;
    const json_t *rope, *old;
    double beta = 0;
    AG_TRY(ag_config_object(r, "rope_parameters", &rope));
    AG_TRY(ag_config_object(r, "rope_scaling", &old));
    if (old) rope = old;
    if (!rope && !ag_config_value(r, "rope_theta")) {
        s->ropes[0] = ministral_rope;
        s->ropes[0].n_rotated = kind.head_dim;
        beta = 0.1;
    }
    ag_config_reader inner = {rope, r->where, r->err, r->status};
    ag_config_real(&inner, "llama_4_scaling_beta", 0, 1e3, &beta);
    AG_TRY(inner.status);
    s->query_beta = (float)beta;
    s->query_period = (uint32_t)s->ropes[0].scaling.original_max_position_embeddings;
    if (beta != 0 && !s->query_period) {
        return AG_FAIL(r->err, FORMAT,
                       "%s: llama_4_scaling_beta needs original_max_position_embeddings", r->where);
    }
    ag_config_window(r, "sliding_window", &kind.window);
    AG_TRY(r->status);
    return ag_spec_set_all(s, &kind, r->err);
}

const ag_family ag_family_ministral3 = {
    .names = {{"Ministral3ForCausalLM", "ministral3"},
              {"Mistral3ForConditionalGeneration", "mistral3"}},
    .defaults = {.vocab_size = 131072,
                 .hidden_size = 4096,
                 .intermediate_size = 14336,
                 .n_layers = 34,
                 .n_heads = 32,
                 .n_kv_heads = 8,
                 .head_dim = 128,
                 .max_positions = 262144,
                 .rope_theta = 1e6,
                 .norm_eps = 1e-5,
                 .bos_id = 1,
                 .eos_id = 2},
    .gguf = {.architectures = {"mistral3"}, .paired_rows = true},
    .describe = describe_ministral,
};
