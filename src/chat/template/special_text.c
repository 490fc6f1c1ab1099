/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/template/special_text.h"

#include "chat/json_scan.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "core/interrupt.h"
#include "text/bytes.h"
#include "text/utf8.h"

#include <stdlib.h>
#include <string.h>

/* ---- collection ---- */

/* Adds the token to f->special_texts if it is special, or if the template's text contains it. */
static ag_status add_special_text(ag_chat_format *f, const ag_added_token *t, const char *jinja,
                                  ag_error *err) {
    size_t n;
    const char *s = ag_tokenizer_token(f->tokenizer, t->id, &n);
    if (!s || n == 0) return AG_OK;
    char *spelling = ag_strndup(s, n);
    if (!spelling) return AG_FAIL(err, NOMEM, "special tokens of the chat template");
    /* Other added tokens occur in ordinary text too: runs of spaces, HTML tags. */
    if (!t->special && !strstr(jinja, spelling)) {
        ag_free(spelling);
        return AG_OK;
    }
    f->special_texts[f->n_special_texts++] = (ag_special_text){.spelling = spelling,
                                                               .len = n,
                                                               .id = t->id,
                                                               .is_special = t->special,
                                                               .lstrip = t->lstrip,
                                                               .rstrip = t->rstrip};
    return AG_OK;
}

/* Sorts by first byte, then longest first. */
static int by_first_byte(const void *pa, const void *pb) {
    const ag_special_text *a = pa, *b = pb;
    const unsigned char x = (unsigned char)a->spelling[0], y = (unsigned char)b->spelling[0];
    if (x != y) return x < y ? -1 : 1;
    if (a->len != b->len) return a->len > b->len ? -1 : 1;
    return memcmp(a->spelling, b->spelling, a->len);
}

ag_status ag_special_text_collect(ag_chat_format *f, const char *jinja, ag_error *err) {
    if (!f->tokenizer) return AG_OK;
    const ag_added_set *const sets[] = {&f->tokenizer->added.raw, &f->tokenizer->added.normalized};
    const size_t n = sets[0]->n + sets[1]->n;
    f->special_texts = ag_calloc(n + 1, sizeof *f->special_texts);
    if (!f->special_texts) return AG_FAIL(err, NOMEM, "special tokens of the chat template");
    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; i < sets[k]->n; i++) {
            AG_TRY(add_special_text(f, &sets[k]->tokens[i], jinja, err));
        }
    }
    if (f->n_special_texts)
        qsort(f->special_texts, f->n_special_texts, sizeof *f->special_texts, by_first_byte);
    for (size_t b = 0, i = 0; b <= 256; b++) {
        while (i < f->n_special_texts && (unsigned char)f->special_texts[i].spelling[0] < b) i++;
        f->first_special_text[b] = (uint32_t)i;
    }
    return AG_OK;
}

const ag_special_text *ag_special_text_longest(const ag_chat_format *f, const char *s, size_t n,
                                               bool special_only) {
    if (n == 0) return NULL;
    const unsigned char c = (unsigned char)s[0];
    for (size_t i = f->first_special_text[c]; i < f->first_special_text[c + 1]; i++) {
        const ag_special_text *m = &f->special_texts[i];
        if (special_only && !m->is_special) continue;
        if (m->len <= n && !memcmp(m->spelling, s, m->len)) return m;
    }
    return NULL;
}

/* ---- ranges ---- */

void ag_id_range_list_free(ag_id_range_list *l) {
    ag_free(l->ranges);
    *l = (ag_id_range_list){0};
}

ag_status ag_id_range_list_add(ag_id_range_list *l, ag_id_range range, ag_error *err) {
    AG_TRY(AG_GROW(l->ranges, &l->cap, l->n + 1, err));
    l->ranges[l->n++] = range;
    return AG_OK;
}

typedef struct finder {
    const ag_chat_format *f;
    const ag_jinja_output *out;
    size_t span; /* first span that does not end before the current position */
    size_t from, to;
    ag_id_range_list *l;
    ag_error *err;
} finder;

/* Returns whether s is a role. It comes from the conversation, but templates build special tokens
 * with it: <|user|>. */
static bool is_role(const char *s, size_t n) {
    static const char *const roles[] = {"system",    "user",    "assistant",   "tool",
                                        "developer", "ipython", "environment", "function"};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (strlen(roles[i]) == n && !memcmp(s, roles[i], n)) return true;
    }
    return false;
}

/* Returns the next span of text from the conversation that does not end before `at`; NULL if none.
 */
static const ag_jinja_span *span_at(finder *x, size_t at) {
    while (x->span < x->out->n_spans) {
        const ag_jinja_span *s = &x->out->spans[x->span];
        if (s->end > at && !is_role(x->out->text + s->begin, s->end - s->begin)) return s;
        x->span++;
    }
    return NULL;
}

/* Appends a range for the special token at *at, with the white space that the token strips, and
 * moves *at to its end. */
static ag_status add_special_token(finder *x, const ag_special_text *m, size_t *at) {
    size_t begin = *at, end = *at + m->len;
    const size_t min_begin = x->l->n ? x->l->ranges[x->l->n - 1].end : x->from;
    while (m->rstrip && end < x->to && ag_is_json_space(x->out->text[end])) end++;
    while (m->lstrip && begin > min_begin && ag_is_json_space(x->out->text[begin - 1])) begin--;
    *at = end;
    int32_t *id = &x->f->special_texts[m - x->f->special_texts].id;
    return ag_id_range_list_add(x->l, (ag_id_range){begin, end, id, 1}, x->err);
}

/* Divides a spelling that came from the conversation after its first character, so that the
 * tokenizer does not find it. Between ranges the tokenizer finds added tokens, but not special
 * ones. */
static ag_status split_spelling(finder *x, const ag_special_text *m, size_t at) {
    const size_t first = ag_utf8_len(m->spelling[0]);
    const size_t last = x->l->n ? x->l->ranges[x->l->n - 1].end : 0;
    if (m->is_special || first >= m->len || at + first <= last) return AG_OK;
    return ag_id_range_list_add(x->l, (ag_id_range){at + first, at + first, NULL, 0}, x->err);
}

/* Returns the first span that does not end before `from`. Callers pass consecutive ranges of one
 * text, so a binary search keeps the whole search linear. */
static size_t first_span(const ag_jinja_output *out, size_t from) {
    size_t low = 0, high = out->n_spans;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (out->spans[middle].end > from) high = middle;
        else low = middle + 1;
    }
    return low;
}

ag_status ag_special_text_find_ranges(const ag_chat_format *f, const ag_jinja_output *out,
                                      size_t from, size_t to, ag_id_range_list *l, ag_error *err) {
    finder x = {.f = f, .out = out, .from = from, .to = to, .l = l, .err = err};
    if (f->n_special_texts == 0) return AG_OK;
    x.span = first_span(out, from);
    for (size_t at = from, step = 0; at < to; step++) {
        if (ag_interrupted_at(step))
            return AG_FAIL(err, CANCELLED, "finding special tokens: interrupted");
        const unsigned char c = (unsigned char)out->text[at];
        if (f->first_special_text[c] == f->first_special_text[c + 1]) {
            at++;
            continue;
        }
        const ag_jinja_span *s = span_at(&x, at);
        const size_t own_end = !s || s->begin >= to ? to : s->begin;
        const ag_special_text *m = NULL;
        if (own_end > at) m = ag_special_text_longest(f, out->text + at, own_end - at, false);
        if (m) {
            AG_TRY(add_special_token(&x, m, &at));
            continue;
        }
        m = ag_special_text_longest(f, out->text + at, to - at, false);
        if (m) AG_TRY(split_spelling(&x, m, at));
        at++;
    }
    return AG_OK;
}
