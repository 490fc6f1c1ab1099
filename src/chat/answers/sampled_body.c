/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/answers/sampled_body.h"

#include "chat/interrupt.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "core/keyed_hash.h"

#include <stdlib.h>
#include <string.h>

typedef struct body {
    uint64_t hash;
    ag_text text;       /* owned */
    const int32_t *ids; /* [n_ids] of a sampled answer, borrowed */
    size_t n_ids;
} body;

typedef struct body_list {
    const ag_tokenizer *tokenizer;
    int32_t start, message; /* ids of <|start|> and <|message|> */
    body *all;              /* sorted by hash */
    size_t n, cap;
} body_list;

static void free_bodies(body_list *b) {
    for (size_t i = 0; i < b->n; i++) ag_text_free(&b->all[i].text);
    ag_free(b->all);
}

static int by_hash(const void *pa, const void *pb) {
    const body *a = pa, *b = pb;
    return a->hash < b->hash ? -1 : a->hash > b->hash;
}

/* ---- sampled answers ---- */

static ag_status add_body(body_list *b, const int32_t *ids, size_t n, ag_error *err) {
    if (!n) return AG_OK;
    AG_TRY(AG_GROW(b->all, &b->cap, b->n + 1, err));
    body *x = &b->all[b->n++];
    *x = (body){.ids = ids, .n_ids = n};
    AG_TRY(ag_tokenizer_decode(b->tokenizer, ids, n, true, &x->text, err));
    x->hash = ag_keyed_hash(x->text.data, x->text.len);
    return AG_OK;
}

/* Adds the texts that follow <|message|> in the ids of an answer. */
static ag_status add_answer(body_list *b, const ag_ids *ids, ag_error *err) {
    for (size_t i = 0; i < ids->n; i++) {
        if (ids->data[i] != b->message) continue;
        const size_t begin = i + 1;
        size_t end = begin;
        while (end < ids->n && !ag_tokenizer_is_special(b->tokenizer, ids->data[end])) end++;
        AG_TRY(add_body(b, ids->data + begin, end - begin, err));
        i = end - 1;
    }
    return AG_OK;
}

static ag_status add_answers(body_list *b, const ag_chat *c, ag_error *err) {
    for (size_t i = 0; i < c->n_answers; i++) {
        AG_TRY(ag_chat_check_interrupt("finding sampled answers", err));
        AG_TRY(add_answer(b, &c->answers[i].ids, err));
    }
    if (b->n) qsort(b->all, b->n, sizeof *b->all, by_hash);
    return AG_OK;
}

/* ---- the rendered text ---- */

static const body *find_body(const body_list *b, const char *text, size_t n) {
    const body key = {.hash = ag_keyed_hash(text, n)};
    const body *x = b->n ? bsearch(&key, b->all, b->n, sizeof *b->all, by_hash) : NULL;
    return n && x && x->text.len == n && !memcmp(x->text.data, text, n) ? x : NULL;
}

static bool is_token(const ag_id_range *r, int32_t id) { return r->n_ids && r->ids[0] == id; }

/* Returns whether a message that starts at s[0..n) is the assistant's. */
static bool is_assistants(const char *s, size_t n) {
    static const char role[] = "assistant";
    return n >= sizeof role - 1 && !memcmp(s, role, sizeof role - 1);
}

/* Appends the ranges of `special` and of known bodies between them. */
static ag_status add_ranges(const body_list *b, const char *text, size_t to,
                            const ag_id_range_list *special, ag_id_range_list *l, ag_error *err) {
    bool is_own = false;
    for (size_t i = 0; i < special->n; i++) {
        const ag_id_range *r = &special->ranges[i];
        AG_TRY(ag_id_range_list_add(l, *r, err));
        if (is_token(r, b->start)) is_own = is_assistants(text + r->end, to - r->end);
        if (!is_own || !is_token(r, b->message)) continue;
        size_t next = i + 1; /* a range without ids divides a spelling inside the body */
        while (next < special->n && !special->ranges[next].n_ids) next++;
        const size_t end = next < special->n ? special->ranges[next].begin : to;
        const body *x = find_body(b, text + r->end, end - r->end);
        if (!x) continue;
        const ag_id_range range = {r->end, end, (int32_t *)(uintptr_t)x->ids, x->n_ids};
        AG_TRY(ag_id_range_list_add(l, range, err));
        i = next - 1;
    }
    return AG_OK;
}

ag_status ag_sampled_bodies_locate(const ag_chat *c, const ag_jinja_output *out, size_t to,
                                   ag_id_range_list *l, ag_error *err) {
    const ag_tokenizer *t = c->format->tokenizer;
    body_list b = {.tokenizer = t,
                   .start = ag_tokenizer_id(t, "<|start|>", 9),
                   .message = ag_tokenizer_id(t, "<|message|>", 11)};
    ag_id_range_list special = {0};
    ag_status st = ag_special_text_find_ranges(c->format, out, 0, to, &special, err);
    if (st == AG_OK) st = add_answers(&b, c, err);
    if (st == AG_OK) st = add_ranges(&b, out->text, to, &special, l, err);
    ag_id_range_list_free(&special);
    free_bodies(&b);
    return st;
}
