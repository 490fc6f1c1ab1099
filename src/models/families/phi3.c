/* SPDX-License-Identifier: Apache-2.0 */
/* Phi-3, 3.5 and 4-mini. q, k and v are one tensor, gate and up another. Models for long texts use
 * longrope. Phi-4-mini rotates three quarters of a head. */
#include "core/fail.h"
#include "models/families/family.h"

static const ag_tensor_alias aliases[] = {
    {AG_LT_WQ, "self_attn.qkv_proj.weight"}, {AG_LT_WK, "self_attn.qkv_proj.weight"},
    {AG_LT_WV, "self_attn.qkv_proj.weight"}, {AG_LT_GATE, "mlp.gate_up_proj.weight"},
    {AG_LT_UP, "mlp.gate_up_proj.weight"},   {.suffix = NULL},
};

static const ag_tensor_alias gguf_aliases[] = {
    {AG_LT_WQ, "attn_qkv.weight"}, {AG_LT_WK, "attn_qkv.weight"}, {AG_LT_WV, "attn_qkv.weight"},
    {AG_LT_GATE, "ffn_up.weight"}, {AG_LT_UP, "ffn_up.weight"},   {.suffix = NULL},
};

static ag_status describe(ag_config_reader *r, const ag_layer_spec *plain, ag_model_spec *s) {
    ag_layer_spec kind = *plain;
    ag_config_window(r, "sliding_window", &kind.window);
    AG_TRY(r->status);
    if (kind.window >= s->max_positions) kind.window = 0; /* 262144 in published files means none */
    return ag_spec_set_all(s, &kind, r->err);
}

const ag_family ag_family_phi3 = {
    .names = {{"Phi3ForCausalLM", "phi3"}},
    .defaults = {.vocab_size = 32064,
                 .hidden_size = 3072,
                 .intermediate_size = 8192,
                 .n_layers = 32,
                 .n_heads = 32,
                 .max_positions = 4096,
                 .rope_theta = 10000,
                 .rotary_share = 1,
                 .norm_eps = 1e-5,
                 .bos_id = 1,
                 .eos_id = 32000},
    .aliases = aliases,
    .gguf = {.architectures = {"phi3"}, .aliases = gguf_aliases},
    .describe = describe,
};
