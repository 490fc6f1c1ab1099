/* SPDX-License-Identifier: Apache-2.0 */
#include "support/tiny_model.h"

#include "quant/quant.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_TENSORS = 32, HEADS = 2, KV_HEADS = 1, HEAD_DIM = 32 };

typedef struct entry {
    char name[96];
    size_t rows, cols; /* cols 0: a vector */
} entry;

typedef struct layout {
    entry entries[MAX_TENSORS];
    size_t n;
} layout;

static void add(layout *l, const tiny_model *m, size_t rows, size_t cols, const char *name) {
    if (m->leave_out && !strcmp(m->leave_out, name)) return;
    entry *e = &l->entries[l->n++];
    snprintf(e->name, sizeof e->name, "%s", name);
    e->rows = rows + (m->reshape && !strcmp(m->reshape, name));
    e->cols = cols;
}

static void add_layer(layout *l, const tiny_model *m, int layer) {
    static const struct {
        const char *suffix;
        size_t rows, cols;
    } parts[] = {
        {"input_layernorm.weight", TINY_DIM, 0},
        {"self_attn.q_proj.weight", HEADS * HEAD_DIM, TINY_DIM},
        {"self_attn.k_proj.weight", KV_HEADS * HEAD_DIM, TINY_DIM},
        {"self_attn.v_proj.weight", KV_HEADS * HEAD_DIM, TINY_DIM},
        {"self_attn.o_proj.weight", TINY_DIM, HEADS * HEAD_DIM},
        {"post_attention_layernorm.weight", TINY_DIM, 0},
        {"mlp.gate_proj.weight", TINY_FFN, TINY_DIM},
        {"mlp.up_proj.weight", TINY_FFN, TINY_DIM},
        {"mlp.down_proj.weight", TINY_DIM, TINY_FFN},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        char name[96];
        snprintf(name, sizeof name, "model.layers.%d.%s", layer, parts[i].suffix);
        add(l, m, parts[i].rows, parts[i].cols, name);
    }
}

static layout lay_out(const tiny_model *m) {
    layout l = {.n = 0};
    if (!m->only_head) add(&l, m, TINY_VOCAB, TINY_DIM, "model.embed_tokens.weight");
    if (m->only_head || m->with_head) add(&l, m, TINY_VOCAB, TINY_DIM, "lm_head.weight");
    for (int i = 0; i < TINY_LAYERS; i++) add_layer(&l, m, i);
    add(&l, m, TINY_DIM, 0, "model.norm.weight");
    if (m->extra_tensor) add(&l, m, 4, 0, m->extra_tensor);
    return l;
}

static size_t value_bytes(const tiny_model *m) {
    return m->dtype && (!strcmp(m->dtype, "F16") || !strcmp(m->dtype, "BF16")) ? 2 : 4;
}

static size_t n_values(const entry *e) { return e->rows * (e->cols ? e->cols : 1); }

static void write_value(FILE *f, const tiny_model *m, float v) {
    if (value_bytes(m) == 4) {
        fwrite(&v, 4, 1, f);
    } else {
        uint16_t h = !strcmp(m->dtype, "F16") ? ag_f32_to_f16(v) : ag_f32_to_bf16(v);
        fwrite(&h, 2, 1, f);
    }
}

/* Norms near 1, everything else in [-0.25, 0.25), different for every tensor. */
static float value_at(size_t tensor, bool vector, size_t i) {
    uint32_t x = (uint32_t)(tensor * 7919 + i + 1) * 2654435761u;
    x ^= x >> 15;
    float v = (float)(x % 4096) / 8192.0f - 0.25f;
    return vector ? 1.0f + v : v;
}

static void write_header(FILE *f, const tiny_model *m, const layout *l) {
    char *json = NULL;
    size_t n = 0, offset = 0;
    FILE *j = open_memstream(&json, &n);
    fprintf(j, "{");
    for (size_t i = 0; i < l->n; i++) {
        const entry *e = &l->entries[i];
        size_t bytes = n_values(e) * value_bytes(m);
        fprintf(j, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%zu", i ? "," : "", e->name,
                m->dtype ? m->dtype : "F32", e->rows);
        if (e->cols) fprintf(j, ",%zu", e->cols);
        fprintf(j, "],\"data_offsets\":[%zu,%zu]}", offset, offset + bytes);
        offset += bytes;
    }
    fprintf(j, "}");
    fclose(j);
    /* The format pads with spaces to whatever alignment the writer likes. */
    size_t pad = (8 - n % 8) % 8 + (m->unaligned ? 1 : 0);
    uint64_t total = n + pad;
    fwrite(&total, sizeof total, 1, f);
    fprintf(f, "%s%*s", json, (int)pad, "");
    free(json);
}

static bool write_weights(const tiny_model *m, const char *dir) {
    char path[512];
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    FILE *f = fopen(path, "wb");
    if (!f) return false;
    layout l = lay_out(m);
    write_header(f, m, &l);
    for (size_t t = 0; t < l.n; t++) {
        const entry *e = &l.entries[t];
        bool poisoned = m->poison && !strcmp(m->poison, e->name);
        for (size_t i = 0; i < n_values(e); i++) {
            write_value(f, m, poisoned && i == 5 ? m->poison_value : value_at(t, !e->cols, i));
        }
    }
    return !fclose(f);
}

static bool write_config(const tiny_model *m, const char *dir) {
    char path[512];
    snprintf(path, sizeof path, "%s/config.json", dir);
    FILE *f = fopen(path, "w");
    if (!f) return false;
    fprintf(f,
            "{\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": %d, "
            "\"num_hidden_layers\": %d, \"num_attention_heads\": %d, \"num_key_value_heads\": %d, "
            "\"head_dim\": %d, \"intermediate_size\": %d, \"vocab_size\": %d, "
            "\"max_position_embeddings\": 256, \"rms_norm_eps\": 1e-5, \"eos_token_id\": 2, "
            "\"bos_token_id\": 1, \"tie_word_embeddings\": %s%s}",
            TINY_DIM, TINY_LAYERS, HEADS, KV_HEADS, HEAD_DIM, TINY_FFN, TINY_VOCAB,
            m->tied ? "true" : "false", m->config_extra ? m->config_extra : "");
    return !fclose(f);
}

/* The characters that stand for bytes in byte-level vocabularies (GPT-2), as UTF-8 in JSON. */
static void byte_character(char out[8], unsigned byte, unsigned *next) {
    bool plain = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    unsigned c = plain ? byte : 0x100 + (*next)++;
    if (c == '"' || c == '\\') {
        snprintf(out, 8, "\\%c", c);
    } else if (c < 0x80) {
        snprintf(out, 8, "%c", c);
    } else {
        snprintf(out, 8, "%c%c", (int)(0xc0 | c >> 6), (int)(0x80 | (c & 0x3f)));
    }
}

static bool write_tokenizer(const char *dir) {
    static const char *const merges[] = {
        "t h",  "h e",  "i n", "e r", "a n", "r e", "o n", "a t", "e n", "o r", "th e",
        "an d", "in g", "s t", "e d", "o u", "l l", "i s", "i t", "e s", "a r", "a l",
        "o f",  "w h",  "s e", "l e", "m e", "n o", "l y", "v e", "u n", "d e", "s a",
        "h a",  "w a",  "b e", "t o", "s o", "f o", "k e", "g o", "w e"};
    enum { N_MERGES = sizeof merges / sizeof merges[0], N_ADDED = 2 };
    _Static_assert(256 + N_MERGES + N_ADDED == TINY_VOCAB, "one id for every row of the model");
    char path[512];
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    FILE *f = fopen(path, "w");
    if (!f) return false;
    fprintf(f, "{\"added_tokens\":[{\"id\":298,\"content\":\"<s>\",\"special\":true},"
               "{\"id\":299,\"content\":\"</s>\",\"special\":true}],\"normalizer\":null,"
               "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
               "\"trim_offsets\":true,\"use_regex\":true},\"post_processor\":null,"
               "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,"
               "\"trim_offsets\":true,\"use_regex\":true},\"model\":{\"type\":\"BPE\",\"vocab\":{");
    unsigned next = 0;
    for (unsigned b = 0; b < 256; b++) {
        char c[8];
        byte_character(c, b, &next);
        fprintf(f, "%s\"%s\":%u", b ? "," : "", c, b);
    }
    for (size_t i = 0; i < N_MERGES; i++) {
        const char *space = strchr(merges[i], ' ');
        fprintf(f, ",\"%.*s%s\":%zu", (int)(space - merges[i]), merges[i], space + 1, 256 + i);
    }
    fprintf(f, "},\"merges\":[");
    for (size_t i = 0; i < N_MERGES; i++) fprintf(f, "%s\"%s\"", i ? "," : "", merges[i]);
    fprintf(f, "]}}");
    return !fclose(f);
}

bool tiny_model_write(const tiny_model *m, char *dir, size_t cap) {
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, cap, "%s/ag-model-XXXXXX", tmp ? tmp : "/tmp");
    if (mkdtemp(dir) && write_config(m, dir) && write_weights(m, dir) &&
        (!m->with_tokenizer || write_tokenizer(dir))) {
        return true;
    }
    perror(dir);
    return false;
}

void tiny_model_remove(const char *dir) {
    DIR *d = opendir(dir);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (e->d_name[0] != '.') unlink(path);
    }
    if (d) closedir(d);
    rmdir(dir);
}
