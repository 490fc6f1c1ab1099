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
    double rope_factor; /* llama3 scaling; 1: none */
} known_shape;

/* Sizes of the published config.json files; "tiny" is the bundled model's. */
static const known_shape shapes[] = {
    {"tiny", 256, 10, 4, 2, 64, 768, 4096, true, 32},
    {"llama-3.2-1b", 2048, 16, 32, 8, 64, 8192, 128256, true, 32},
    {"llama-3.2-3b", 3072, 28, 24, 8, 128, 8192, 128256, true, 32},
    {"llama-3.1-8b", 4096, 32, 32, 8, 128, 14336, 128256, false, 8},
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

const char *ag_model_shape_name(size_t i) { return i < N_SHAPES ? shapes[i].name : NULL; }

static const known_shape *find_shape(const char *name) {
    for (size_t i = 0; i < N_SHAPES; i++) {
        if (ag_ascii_equal(shapes[i].name, name)) return &shapes[i];
        /* the first shape that ends in -1b matches "1b" */
        const char *dash = strrchr(shapes[i].name, '-');
        if (dash && ag_ascii_equal(dash + 1, name)) return &shapes[i];
    }
    return NULL;
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
    const known_shape *s = find_shape(name);
    if (!s) return unknown_shape(name, err);
    *out = spec_of(s);
    return AG_OK;
}
