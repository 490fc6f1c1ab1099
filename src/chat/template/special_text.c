/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/template/special_text.h"

#include "chat/json_scan.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "text/bytes.h"
#include "text/utf8.h"

#include <stdlib.h>
#include <string.h>

/* ---- which ---- */

static ag_status add_mark(ag_chat_format *f, const ag_added_token *t, const char *jinja,
                          ag_error *err) {
    size_t n;
    const char *s = ag_tokenizer_token(f->tokenizer, t->id, &n);
    if (!s || n == 0) return AG_OK;
    char *spelling = ag_strndup(s, n);
    if (!spelling) return AG_FAIL(err, NOMEM, "special tokens of the chat template");
    /* Others are parts of ordinary texts, too: runs of spaces, tags of HTML. */
    if (!t->special && !strstr(jinja, spelling)) {
        ag_free(spelling);
        return AG_OK;
    }
    f->marks[f->n_marks++] = (ag_chat_mark){.spelling = spelling,
                                            .len = n,
                                            .id = t->id,
                                            .is_special = t->special,
                                            .lstrip = t->lstrip,
                                            .rstrip = t->rstrip};
    return AG_OK;
}

/* By first byte, the longest first. */
static int by_place(const void *pa, const void *pb) {
    const ag_chat_mark *a = pa, *b = pb;
    const unsigned char x = (unsigned char)a->spelling[0], y = (unsigned char)b->spelling[0];
    if (x != y) return x < y ? -1 : 1;
    if (a->len != b->len) return a->len > b->len ? -1 : 1;
    return memcmp(a->spelling, b->spelling, a->len);
}

ag_status ag_chat_collect_marks(ag_chat_format *f, const char *jinja, ag_error *err) {
    if (!f->tokenizer) return AG_OK;
    const ag_added_set *const sets[] = {&f->tokenizer->added.raw, &f->tokenizer->added.normalized};
    const size_t n = sets[0]->n + sets[1]->n;
    f->marks = ag_calloc(n + 1, sizeof *f->marks);
    if (!f->marks) return AG_FAIL(err, NOMEM, "special tokens of the chat template");
    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; i < sets[k]->n; i++) {
            AG_TRY(add_mark(f, &sets[k]->tokens[i], jinja, err));
        }
    }
    if (f->n_marks) qsort(f->marks, f->n_marks, sizeof *f->marks, by_place);
    for (size_t b = 0, i = 0; b <= 256; b++) {
        while (i < f->n_marks && (unsigned char)f->marks[i].spelling[0] < b) i++;
        f->first_mark[b] = (uint32_t)i;
    }
    return AG_OK;
}

const ag_chat_mark *ag_chat_longest_mark(const ag_chat_format *f, const char *s, size_t n,
                                         bool special_only) {
    if (n == 0) return NULL;
    const unsigned char c = (unsigned char)s[0];
    for (size_t i = f->first_mark[c]; i < f->first_mark[c + 1]; i++) {
        const ag_chat_mark *m = &f->marks[i];
        if (special_only && !m->is_special) continue;
        if (m->len <= n && !memcmp(m->spelling, s, m->len)) return m;
    }
    return NULL;
}

/* ---- where ---- */

void ag_cut_list_free(ag_cut_list *l) {
    ag_free(l->cuts);
    *l = (ag_cut_list){0};
}

ag_status ag_cut_list_add(ag_cut_list *l, ag_text_cut cut, ag_error *err) {
    void *array = l->cuts;
    ag_status st = ag_array_grow(&array, &l->cap, l->n + 1, sizeof cut, err);
    l->cuts = array;
    if (st == AG_OK) l->cuts[l->n++] = cut;
    return st;
}

typedef struct finder {
    const ag_chat_format *f;
    const ag_jinja_output *out;
    size_t span; /* the first that does not end before where the search is */
    size_t from, to;
    ag_cut_list *l;
    ag_error *err;
} finder;

/* A role is the conversation's word, but one that templates build marks of: <|user|>. */
static bool is_role(const char *s, size_t n) {
    static const char *const roles[] = {"system",    "user",    "assistant",   "tool",
                                        "developer", "ipython", "environment", "function"};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (strlen(roles[i]) == n && !memcmp(s, roles[i], n)) return true;
    }
    return false;
}

/* The next span of the conversation's words that does not end before `at`, or NULL. */
static const ag_jinja_span *span_at(finder *x, size_t at) {
    while (x->span < x->out->n_spans) {
        const ag_jinja_span *s = &x->out->spans[x->span];
        if (s->end > at && !is_role(x->out->text + s->begin, s->end - s->begin)) return s;
        x->span++;
    }
    return NULL;
}

/* The mark becomes its token, with the white space that the tokenizer says it takes along. */
static ag_status cut_out(finder *x, const ag_chat_mark *m, size_t *at) {
    size_t begin = *at, end = *at + m->len;
    const size_t floor = x->l->n ? x->l->cuts[x->l->n - 1].end : x->from;
    while (m->rstrip && end < x->to && ag_is_json_space(x->out->text[end])) end++;
    while (m->lstrip && begin > floor && ag_is_json_space(x->out->text[begin - 1])) begin--;
    *at = end;
    int32_t *id = &x->f->marks[m - x->f->marks].id;
    return ag_cut_list_add(x->l, (ag_text_cut){begin, end, id, 1}, x->err);
}

/* The spelling in the conversation's words stays text. Special ones are not looked for there; of
 * others, which the tokenizer always finds, it sees the halves. */
static ag_status divide(finder *x, const ag_chat_mark *m, size_t at) {
    const size_t first = ag_utf8_len(m->spelling[0]);
    const size_t last = x->l->n ? x->l->cuts[x->l->n - 1].end : 0;
    if (m->is_special || first >= m->len || at + first <= last) return AG_OK;
    return ag_cut_list_add(x->l, (ag_text_cut){at + first, at + first, NULL, 0}, x->err);
}

/* Parts of one text are asked for one after another, so none begins at the first span again. */
static size_t first_span(const ag_jinja_output *out, size_t from) {
    size_t low = 0, high = out->n_spans;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (out->spans[middle].end > from) high = middle;
        else low = middle + 1;
    }
    return low;
}

ag_status ag_chat_find_cuts(const ag_chat_format *f, const ag_jinja_output *out, size_t from,
                            size_t to, ag_cut_list *l, ag_error *err) {
    finder x = {.f = f, .out = out, .from = from, .to = to, .l = l, .err = err};
    if (f->n_marks == 0) return AG_OK;
    x.span = first_span(out, from);
    for (size_t at = from; at < to;) {
        const unsigned char c = (unsigned char)out->text[at];
        if (f->first_mark[c] == f->first_mark[c + 1]) {
            at++;
            continue;
        }
        const ag_jinja_span *s = span_at(&x, at);
        const size_t own_end = !s || s->begin >= to ? to : s->begin;
        const ag_chat_mark *m = NULL;
        if (own_end > at) m = ag_chat_longest_mark(f, out->text + at, own_end - at, false);
        if (m) {
            AG_TRY(cut_out(&x, m, &at));
            continue;
        }
        /* Every spelling that begins here, not only the longest, would be found. */
        for (size_t i = f->first_mark[c]; i < f->first_mark[c + 1]; i++) {
            m = &f->marks[i];
            if (m->len <= to - at && !memcmp(m->spelling, out->text + at, m->len)) {
                AG_TRY(divide(&x, m, at));
                break;
            }
        }
        at++;
    }
    return AG_OK;
}
