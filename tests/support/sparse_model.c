/* SPDX-License-Identifier: Apache-2.0 */
#include "support/sparse_model.h"

#include "models/tensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEAD_DIM = 32, BF16_BYTES = 2 };

static ag_model_spec spec_of(const sparse_model *m) {
    const uint32_t n_heads = m->hidden_size / HEAD_DIM;
    ag_model_spec s = ag_spec_plain(n_heads, n_heads / 2, HEAD_DIM);
    s.vocab_size = m->vocab_size;
    s.hidden_size = m->hidden_size;
    s.intermediate_size = m->intermediate_size;
    s.n_layers = m->n_layers;
    return s;
}

static bool write_config(const sparse_model *m, const char *dir) {
    char path[512];
    const ag_model_spec c = spec_of(m);
    snprintf(path, sizeof path, "%s/config.json", dir);
    FILE *f = fopen(path, "w");
    if (!f) return false;
    fprintf(f,
            "{\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": %u, "
            "\"num_hidden_layers\": %u, \"num_attention_heads\": %u, \"num_key_value_heads\": %u, "
            "\"head_dim\": %u, \"intermediate_size\": %u, \"vocab_size\": %u, "
            "\"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-5, "
            "\"tie_word_embeddings\": true}",
            c.hidden_size, c.n_layers, c.kinds[0].n_heads, c.kinds[0].n_kv_heads,
            c.kinds[0].head_dim, c.intermediate_size, c.vocab_size);
    return !fclose(f);
}

static void add_tensor(FILE *header, ag_weight_spec spec, uint64_t *offset) {
    const uint64_t bytes = (uint64_t)spec.rows * spec.cols * BF16_BYTES;
    fprintf(header, "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":[%zu", *offset ? "," : "", spec.name,
            spec.rows);
    if (spec.kind == AG_WEIGHT_MATRIX) fprintf(header, ",%zu", spec.cols);
    fprintf(header, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", *offset, *offset + bytes);
    *offset += bytes;
}

/* The JSON, and in *n_data how many bytes follow it. */
static char *header_of(const ag_model_spec *c, uint64_t *n_data) {
    char *json = NULL;
    size_t n = 0;
    FILE *header = open_memstream(&json, &n);
    if (!header) return NULL;
    *n_data = 0;
    fputc('{', header);
    add_tensor(header, ag_embedding_weight(c), n_data);
    for (uint32_t l = 0; l < c->n_layers; l++) {
        for (size_t i = 0; i < ag_layer_weight_count(c, l); i++) {
            add_tensor(header, ag_layer_weight(c, l, i), n_data);
        }
    }
    add_tensor(header, ag_norm_weight(c), n_data);
    fputc('}', header);
    return fclose(header) ? NULL : json;
}

static bool write_weights(const sparse_model *m, const char *dir) {
    char path[512];
    const ag_model_spec c = spec_of(m);
    uint64_t n_data;
    char *json = header_of(&c, &n_data);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    FILE *f = json ? fopen(path, "wb") : NULL;
    const uint64_t n = json ? strlen(json) : 0;
    bool ok = f && fwrite(&n, sizeof n, 1, f) == 1 && fwrite(json, n, 1, f) == 1;
    if (f && fclose(f)) ok = false;
    free(json);
    return ok && truncate(path, (off_t)(sizeof n + n + n_data)) == 0;
}

bool sparse_model_write(const sparse_model *m, char *dir, size_t cap) {
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, cap, "%s/ag-model-XXXXXX", tmp ? tmp : "/tmp");
    if (mkdtemp(dir) && write_config(m, dir) && write_weights(m, dir)) return true;
    perror(dir);
    return false;
}
