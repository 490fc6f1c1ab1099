/* SPDX-License-Identifier: Apache-2.0 */
#include "constrain/pda/token_tree.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "text/bytes.h"
#include "text/token_bytes.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_NODES = (1 << 24) - 1 };

static int compare_texts(const void *a, const void *b) {
    const ag_token_text *x = a, *y = b;
    const uint32_t n = x->n < y->n ? x->n : y->n;
    const int c = n ? memcmp(x->s, y->s, n) : 0;
    if (c) return c;
    if (x->n != y->n) return x->n < y->n ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static uint32_t shared_bytes(const ag_token_text *a, const ag_token_text *b) {
    uint32_t n = 0;
    while (n < a->n && n < b->n && a->s[n] == b->s[n]) n++;
    return n;
}

size_t ag_token_texts_sort(ag_token_text *list, size_t n) {
    size_t nodes = 1;
    if (n) qsort(list, n, sizeof *list, compare_texts);
    for (size_t i = 0; i < n; i++) {
        nodes += list[i].n - (i ? shared_bytes(&list[i - 1], &list[i]) : 0);
    }
    return nodes;
}

void ag_token_texts_link(ag_token_text *list, size_t n, ag_token_node *nodes, uint32_t *path) {
    uint32_t open = 0, n_nodes = 1; /* open: depth of the newest node */
    nodes[0] = (ag_token_node){.token = -1};
    path[0] = 0;
    for (size_t i = 0; i < n; i++) {
        ag_token_text *s = &list[i];
        const uint32_t shared = i ? shared_bytes(s - 1, s) : 0;
        for (; open > shared; open--) {
            nodes[path[open]].skip = (n_nodes - path[open]) & 0xFFFFFF;
        }
        for (uint32_t d = shared; d < s->n; d++) {
            path[++open] = n_nodes;
            nodes[n_nodes++] = (ag_token_node){.byte = s->s[d], .token = -1, .depth = d + 1};
        }
        s->node = path[open];
    }
    for (; open > 0; open--) nodes[path[open]].skip = (n_nodes - path[open]) & 0xFFFFFF;
    nodes[0].skip = n_nodes & 0xFFFFFF;
}

/* Fills t->bytes and t->start. */
static ag_status read_spellings(ag_token_tree *t, const ag_tokenizer *tokenizer, ag_error *err) {
    ag_text all = {0};
    ag_token_bytes reader = {0};
    ag_status st = ag_token_bytes_open(&reader, tokenizer, err);
    for (size_t id = 0; st == AG_OK && id < t->n_vocab; id++) {
        t->start[id] = (uint32_t)all.len;
        const size_t before = all.len;
        if (ag_tokenizer_is_special(tokenizer, (int32_t)id)) {
            char text[AG_SPECIAL_TEXT_BYTES];
            ag_special_token_text((int32_t)id, text);
            st = ag_text_append(&all, text, sizeof text, err);
            continue;
        }
        st = ag_token_bytes_read(&reader, (int32_t)id, &all, err);
        /* No text has this byte: special tokens start with it. */
        if (all.len > before &&
            memchr(all.data + before, AG_SPECIAL_PREFIX_BYTE, all.len - before)) {
            all.len = before;
        }
        if (st == AG_OK && all.len > UINT32_MAX)
            st = AG_FAIL(err, LIMIT, "the text of the vocabulary exceeds 4 GiB");
    }
    ag_token_bytes_close(&reader);
    t->start[t->n_vocab] = (uint32_t)all.len;
    t->bytes = (unsigned char *)all.data; /* ag_free() releases it as ag_text_free() would */
    return st;
}

void ag_special_token_text(int32_t id, char out[AG_SPECIAL_TEXT_BYTES]) {
    const uint32_t n = (uint32_t)id;
    out[0] = (char)AG_SPECIAL_PREFIX_BYTE;
    for (int i = 0; i < 4; i++) out[1 + i] = (char)(n >> (24 - 8 * i));
}

bool ag_token_tree_is_special(const ag_token_tree *t, int32_t id) {
    if (id < 0 || (size_t)id >= t->n_vocab) return false;
    return t->start[id] < t->start[id + 1] && t->bytes[t->start[id]] == AG_SPECIAL_PREFIX_BYTE;
}

static ag_status build_nodes(ag_token_tree *t, ag_token_text *list, size_t n, ag_error *err) {
    const size_t n_nodes = ag_token_texts_sort(list, n);
    if (n_nodes > MAX_NODES) {
        return AG_FAIL(err, LIMIT,
                       "the vocabulary is too large: its tree has %zu nodes; the maximum is %d",
                       n_nodes, MAX_NODES);
    }
    for (size_t i = 0; i < n; i++) {
        if (list[i].n > t->max_depth) t->max_depth = list[i].n;
    }
    uint32_t *path = ag_calloc(t->max_depth + 1, sizeof *path);
    t->nodes = ag_calloc(n_nodes, sizeof *t->nodes);
    if (!path || !t->nodes) {
        ag_free(path);
        return AG_FAIL(err, NOMEM, "token tree of %zu nodes", n_nodes);
    }
    ag_token_texts_link(list, n, t->nodes, path);
    t->n_nodes = (uint32_t)n_nodes;
    ag_free(path);
    for (size_t i = 0; i < n; i++) {
        ag_token_node *end = &t->nodes[list[i].node];
        t->node_of[list[i].id] = list[i].node;
        t->same[list[i].id] = end->token;
        end->token = list[i].id;
    }
    return AG_OK;
}

ag_status ag_token_tree_build(ag_token_tree *t, const ag_tokenizer *tokenizer, size_t n_vocab,
                              ag_error *err) {
    *t = (ag_token_tree){.n_vocab = n_vocab};
    t->same = ag_calloc(n_vocab, sizeof *t->same);
    t->node_of = ag_calloc(n_vocab, sizeof *t->node_of);
    t->start = ag_calloc(n_vocab + 1, sizeof *t->start);
    ag_token_text *list = ag_calloc(n_vocab, sizeof *list);
    ag_status st = AG_OK;
    if (!t->same || !t->node_of || !t->start || !list) {
        st = AG_FAIL(err, NOMEM, "token tree of %zu tokens", n_vocab);
    }
    if (st == AG_OK) st = read_spellings(t, tokenizer, err);
    size_t n = 0;
    for (size_t id = 0; st == AG_OK && id < n_vocab; id++) {
        const uint32_t len = t->start[id + 1] - t->start[id];
        if (len) list[n++] = (ag_token_text){t->bytes + t->start[id], len, (int32_t)id, 0, 0};
    }
    if (st == AG_OK) st = build_nodes(t, list, n, err);
    ag_free(list);
    return st;
}

void ag_token_tree_free(ag_token_tree *t) {
    ag_free(t->nodes);
    ag_free(t->same);
    ag_free(t->node_of);
    ag_free(t->start);
    ag_free(t->bytes);
    *t = (ag_token_tree){0};
}
