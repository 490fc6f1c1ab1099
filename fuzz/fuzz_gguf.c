/* SPDX-License-Identifier: Apache-2.0 */
/* The input is a GGUF file. An accepted file must contain what its header describes, and
 * everything that a source makes of it must be readable, and so must the model's description. */
#include "fuzz.h"

#include "formats/gguf.h"
#include "models/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void check(const ag_gguf *g, const unsigned char *bytes, size_t n) {
    uint64_t end = 0;
    for (size_t i = 0; i < g->list.n; i++) {
        const ag_source_tensor *t = &g->list.tensors[i];
        if (t->offset < end || t->offset > n || t->n_bytes > n - t->offset) abort();
        end = t->offset + t->n_bytes;
        size_t n_elements = 1;
        for (int k = 0; k < t->shape.n_dims; k++) n_elements *= t->shape.dim[k];
        if (t->dtype == AG_F32 && n_elements * 4 != t->n_bytes) abort();
        if (strlen(t->name) > AG_GGUF_MAX_NAME || !*t->name || !t->dtype_name) abort();
    }
    for (size_t i = 0; i < g->n_entries; i++) {
        const ag_gguf_entry *e = &g->entries[i];
        const unsigned char *p = e->first;
        for (uint64_t k = 0; k < e->n && e->type == AG_GGUF_STRING; k++) ag_gguf_next_string(&p);
        if (e->type != AG_GGUF_STRING) p += e->n * ag_gguf_type_bytes(e->type);
        if (e->first < bytes || p > bytes + n) abort();
        char *key = strndup(e->key.text, e->key.n);
        if (!key || ag_gguf_find(g, key) != e) abort();
        free(key);
    }
}

/* Reads every byte of every string, so that a sanitizer reports strings outside the file. */
static void touch(const ag_source_string *s, size_t n) {
    unsigned sum = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < s[i].n; k++) sum += (unsigned char)s[i].text[k];
    }
    if (sum == 1) putchar('\n');
}

/* A description that was read has experts within their limits. */
static void read_spec(const ag_weight_source *s) {
    static ag_model_spec spec;
    ag_error err;
    if (ag_spec_read(s, &spec, &err) != AG_OK) return;
    for (uint32_t i = 0; i < spec.n_kinds; i++) {
        const ag_expert_spec *x = &spec.kinds[i].experts;
        if (!x->route.n_experts) continue;
        if (!x->width || !x->route.n_used || x->route.n_used > x->route.n_experts) abort();
    }
}

static void read_source(const char *path) {
    ag_error err;
    ag_weight_source *s;
    if (ag_source_open(path, &s, &err) != AG_OK) return;
    for (int part = AG_SOURCE_CONFIG; part <= AG_SOURCE_CHAT_TEMPLATE; part++) {
        ag_source_text text;
        if (ag_source_read_text(s, (ag_source_text_kind)part, &text, &err) != AG_OK) continue;
        if (text.text && text.text[text.n]) abort();
        ag_source_text_free(&text);
    }
    read_spec(s);
    ag_source_vocabulary v;
    if (ag_source_read_vocabulary(s, &v, &err) == AG_OK) {
        touch(v.tokens, v.n_tokens);
        touch(v.merges, v.n_merges);
        touch(&v.model, 1);
        if (v.n_tokens && (v.bos < -1 || v.bos >= (int64_t)v.n_tokens)) abort();
    }
    ag_source_vocabulary_free(&v);
    if (ag_source_open_tensors(s, &err) == AG_OK && ag_source_n_tensors(s) == 0) abort();
    ag_source_destroy(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    unsigned char *copy = malloc(n ? n : 1);
    if (!copy) abort();
    if (n) memcpy(copy, data, n);
    ag_error err;
    ag_gguf g;
    const ag_status st = ag_gguf_parse(copy, n, "input", &g, &err);
    if (st == AG_OK) check(&g, copy, n);
    ag_gguf_free(&g);
    free(copy);
    if (st != AG_OK) return 0;
    char path[64] = "/tmp/ag-fuzz-gguf-XXXXXX";
    const int fd = mkstemp(path);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n) abort();
    read_source(path);
    close(fd);
    unlink(path);
    return 0;
}
