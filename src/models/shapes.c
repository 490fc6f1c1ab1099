/* SPDX-License-Identifier: Apache-2.0 */
#include "models/spec.h"

#include "core/ascii.h"
#include "core/fail.h"

#include <stdio.h>
#include <string.h>

typedef struct known_shape {
    const char *name;
    uint32_t hidden, layers, heads, kv_heads, head_dim, ffn, vocab;
    bool tied;
    double rope_factor;            /* llama3 scaling; 1: none */
    uint32_t experts, used, width; /* experts of all layers; 0: none */
    bool is_gpt_oss;               /* attention and experts of gpt-oss */
} known_shape;

/* Sizes of the published config.json files; "tiny" is the bundled model's. */
static const known_shape shapes[] = {
    {"tiny", 256, 10, 4, 2, 64, 768, 4096, true, 32, 0, 0, 0, false},
    {"llama-3.2-1b", 2048, 16, 32, 8, 64, 8192, 128256, true, 32, 0, 0, 0, false},
    {"llama-3.2-3b", 3072, 28, 24, 8, 128, 8192, 128256, true, 32, 0, 0, 0, false},
    {"llama-3.1-8b", 4096, 32, 32, 8, 128, 14336, 128256, false, 8, 0, 0, 0, false},
    {"qwen3-30b-a3b", 2048, 48, 32, 4, 128, 6144, 151936, false, 1, 128, 8, 768, false},
    {"gpt-oss-20b", 2880, 24, 64, 8, 64, 2880, 201088, false, 1, 32, 4, 2880, true},
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

const char *ag_model_shape_name(size_t i) { return i < N_SHAPES ? shapes[i].name : NULL; }

/* Finds the shape that has the first n characters of `name` as its name. */
static const known_shape *find_shape(const char *text, size_t n) {
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name), text);
    for (size_t i = 0; i < N_SHAPES; i++) {
        if (ag_ascii_equal(shapes[i].name, name)) return &shapes[i];
        /* the first shape that ends in -1b matches "1b" */
        const char *dash = strrchr(shapes[i].name, '-');
        if (dash && ag_ascii_equal(dash + 1, name)) return &shapes[i];
    }
    return NULL;
}

/* Sets the experts, and what else differs from Llama. */
static void set_experts(const known_shape *s, ag_model_spec *spec) {
    ag_layer_spec *kind = &spec->kinds[0];
    kind->experts = (ag_expert_spec){.route = {.n_experts = s->experts,
                                               .n_used = s->used,
                                               .scoring = AG_SCORING_SOFTMAX,
                                               .normalise = true,
                                               .factor = 1},
                                     .width = s->width};
    kind->qk_norm = !s->is_gpt_oss;
    if (!s->is_gpt_oss) return;
    kind->experts.route.scoring = AG_SCORING_CHOSEN;
    kind->experts.router_bias = kind->experts.matrix_biases = true;
    kind->experts.gate_limit = 7;
    kind->activation = AG_ACTIVATION_SWIGLU_CLAMPED;
    kind->qkv_bias = kind->out_bias = kind->sinks = true;
    spec->n_kinds = 2;
    spec->kinds[1] = *kind;
    spec->kinds[0].window = 128;
    for (uint32_t l = 0; l < spec->n_layers; l++) spec->kind_of[l] = l % 2;
}

static ag_model_spec spec_of(const known_shape *s) {
    ag_model_spec spec = ag_spec_plain(s->heads, s->kv_heads, s->head_dim);
    spec.vocab_size = s->vocab;
    spec.hidden_size = s->hidden;
    spec.intermediate_size = s->ffn;
    spec.n_layers = s->layers;
    spec.max_positions = 131072;
    spec.tie_word_embeddings = s->tied;
    spec.ropes[0].theta = 500000;
    spec.ropes[0].scaling = (ag_rope_scaling){
        .type = AG_ROPE_LLAMA3,
        .factor = s->rope_factor,
        .low_freq_factor = 1,
        .high_freq_factor = 4,
        .original_max_position_embeddings = 8192,
    };
    if (s->rope_factor == 1) spec.ropes[0].scaling = (ag_rope_scaling){.type = AG_ROPE_DEFAULT};
    if (s->experts) set_experts(s, &spec);
    return spec;
}

static ag_status unknown_shape(const char *name, ag_error *err) {
    char list[256] = "";
    for (size_t i = 0; i < N_SHAPES; i++) {
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", shapes[i].name);
    }
    return AG_FAIL(err, NOT_FOUND, "unknown shape \"%s\"; known: %s", name, list);
}

ag_status ag_shape_spec(const char *name, ag_model_spec *out, ag_error *err) {
    const size_t n = strcspn(name, ":");
    const known_shape *found = find_shape(name, n);
    if (!found) return unknown_shape(name, err);
    known_shape s = *found;
    if (name[n] && (sscanf(name + n, ":%u", &s.layers) != 1 || s.layers - 1 >= AG_MAX_LAYERS)) {
        return AG_FAIL(err, INVALID, "shape \"%s\": the number of layers must be 1 to %d", name,
                       AG_MAX_LAYERS);
    }
    *out = spec_of(&s);
    return AG_OK;
}
