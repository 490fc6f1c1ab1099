/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/out_model.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "models/config.h"
#include "models/rope.h"

#include <limits.h>
#include <math.h>

static bool is_near(double a, double b) { return fabs(a - b) <= 1e-4 * fabs(a); }

/* llama3, longrope and proportional scaling is stored as a tensor, so only n_rotated and theta are
 * compared. */
static bool same_rotation(const ag_rope_spec *a, const ag_rope_spec *b) {
    const ag_rope_type type = a->scaling.type;
    if (a->n_rotated != b->n_rotated || !is_near(a->theta, b->theta)) return false;
    if (type != AG_ROPE_DEFAULT && type != AG_ROPE_LINEAR && type != AG_ROPE_YARN) return true;
    const double factors[] = {a->attention_factor != 0 ? (double)a->attention_factor : 1,
                              b->attention_factor != 0 ? (double)b->attention_factor : 1};
    const uint32_t n = a->n_rotated / 2;
    float *freqs = ag_malloc(2 * n * sizeof *freqs);
    if (!freqs) return false;
    ag_rope_inv_freq(a, false, freqs);
    ag_rope_inv_freq(b, false, freqs + n);
    bool same = is_near(factors[0], factors[1]);
    for (uint32_t i = 0; i < n; i++) same = same && is_near((double)freqs[i], (double)freqs[n + i]);
    ag_free(freqs);
    return same;
}

static const char *expert_difference(const ag_expert_spec *a, const ag_expert_spec *b) {
    const ag_route_params *x = &a->route, *y = &b->route;
    if (x->n_experts != y->n_experts) return "the layers that have experts";
    if (!x->n_experts) return NULL;
    if (x->n_used != y->n_used) return "num_experts_per_tok";
    if (x->scoring != y->scoring) return "the scores of the router";
    if (x->scoring != AG_SCORING_CHOSEN && x->normalise != y->normalise) return "norm_topk_prob";
    if (!is_near((double)x->factor, (double)y->factor)) return "routed_scaling_factor";
    if (a->choice_bias != b->choice_bias) return "use_expert_bias";
    if (a->shared_width != b->shared_width || a->shared_gate != b->shared_gate)
        return "shared experts";
    if (!is_near((double)a->gate_limit, (double)b->gate_limit)) return "swiglu_limit";
    return NULL;
}

/* Returns the name of the first difference, NULL if there is none. Sizes of tensors are not
 * compared: loading checks them. */
static const char *layer_difference(const ag_model_spec *a, const ag_model_spec *b,
                                    uint32_t layer) {
    const ag_layer_spec *x = ag_spec_layer(a, layer), *y = ag_spec_layer(b, layer);
    if (x->mixer != y->mixer) return "the layers that have attention";
    if (x->ffn_bias != y->ffn_bias) return "mlp_bias";
    const char *of_experts = expert_difference(&x->experts, &y->experts);
    if (of_experts || x->mixer != AG_MIXER_ATTENTION) return of_experts;
    if (x->v_from_k != y->v_from_k) return "attention_k_eq_v";
    if (x->n_heads != y->n_heads || x->head_dim != y->head_dim) return "attention heads";
    if (x->shares_kv != y->shares_kv) return "the layers that share keys and values";
    if (x->window != y->window) return "attention windows";
    if (x->qkv_bias != y->qkv_bias || x->out_bias != y->out_bias) return "attention_bias";
    if (!is_near((double)x->softcap, (double)y->softcap)) return "attn_logit_softcapping";
    if ((x->rope == AG_NO_ROPE) != (y->rope == AG_NO_ROPE))
        return "the layers that have rotary positions";
    if (x->rope == AG_NO_ROPE || same_rotation(&a->ropes[x->rope], &b->ropes[y->rope])) return NULL;
    return "rope_parameters";
}

static const char *difference(const ag_model_spec *a, const ag_model_spec *b) {
    if (a->n_layers != b->n_layers) return "num_hidden_layers";
    if (!is_near((double)a->logit_softcap, (double)b->logit_softcap))
        return "final_logit_softcapping";
    if (a->n_layer_inputs != b->n_layer_inputs) return "vocab_size_per_layer_input";
    if (!is_near((double)a->query_beta, (double)b->query_beta)) return "llama_4_scaling_beta";
    if (a->query_beta != 0 && a->query_period != b->query_period) return "llama_4_scaling_beta";
    for (uint32_t l = 0; l < a->n_layers; l++) {
        const char *difference_name = layer_difference(a, b, l);
        if (difference_name) return difference_name;
    }
    return NULL;
}

static ag_status read_back(ag_gguf_writer *file, ag_model_spec *out, ag_error *err) {
    char path[PATH_MAX];
    ag_weight_source *source;
    AG_TRY(ag_checksummed_writer_preview(&file->file, path, sizeof path, err));
    AG_TRY(ag_source_open(path, &source, err));
    ag_status st = ag_source_open_tensors(source, err);
    if (st == AG_OK) st = ag_spec_read(source, out, err);
    ag_source_destroy(source);
    return st;
}

static ag_status compare(const ag_weight_source *source, ag_gguf_writer *file, ag_model_spec *specs,
                         ag_error *err) {
    ag_error inner = {0};
    AG_TRY(ag_spec_read(source, &specs[0], err));
    const ag_status st = read_back(file, &specs[1], &inner);
    const char *difference_name = st == AG_OK ? difference(&specs[0], &specs[1]) : inner.msg;
    if (!difference_name) return AG_OK;
    return AG_FAIL(err, UNSUPPORTED, "%s: a GGUF file cannot describe this model: %s", source->path,
                   difference_name);
}

ag_status ag_check_same_model(const ag_weight_source *source, ag_gguf_writer *file, ag_error *err) {
    ag_model_spec *specs = ag_calloc(2, sizeof *specs); /* a spec is too large for the stack */
    if (!specs) return AG_FAIL(err, NOMEM, "description of %s", source->path);
    const ag_status st = compare(source, file, specs, err);
    ag_free(specs);
    return st;
}
