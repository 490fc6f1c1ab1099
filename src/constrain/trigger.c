/* SPDX-License-Identifier: Apache-2.0 */
#include "constrain/trigger.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "text/bytes.h"

#include <stdatomic.h>
#include <string.h>

/* SPACE_MAX: white space and other text before a start. INDENT_MAX: as in neat JSON. */
enum { MAX_TEXTS = 2048, SPACE_MAX = 1024, INDENT_MAX = 40 };

typedef struct text_list {
    ag_text *at; /* [n] owned */
    size_t n, cap, longest;
} text_list;

struct ag_trigger {
    atomic_size_t users;
    text_list anywhere; /* begin the constrained part, anywhere outside reasoning */
    text_list before;   /* may precede a start */
    text_list starts;   /* parts of all starts, one after the other */
    size_t *start_ends; /* [n_starts] end of each start in starts.at */
    size_t n_starts, start_ends_cap;
    text_list opens, closes; /* begin and end reasoning */
    bool in_reasoning;       /* the text begins in reasoning */
};

typedef enum match { NO, PARTIAL, YES } match;

/* ---- reading ---- */

static ag_status add_text(text_list *l, ag_text text, ag_error *err) {
    ag_status st = l->n < MAX_TEXTS && text.len
                       ? AG_GROW(l->at, &l->cap, l->n + 1, err)
                       : AG_FAIL(err, FORMAT, "trigger: a text is empty, or there are too many");
    if (st != AG_OK) {
        ag_text_free(&text);
        return st;
    }
    if (text.len > l->longest) l->longest = text.len;
    l->at[l->n++] = text;
    return AG_OK;
}

/* Reads an array of delimiters in the notation of grammars. */
static ag_status read_delimiters(const ag_grammar_scope *scope, const json_t *list, text_list *l,
                                 ag_error *err) {
    size_t i;
    const json_t *v;
    json_array_foreach(list, i, v) {
        ag_text text = {0};
        const ag_status st =
            ag_grammar_delimiter(scope, json_string_value(v), json_string_length(v), &text, err);
        if (st != AG_OK) {
            ag_text_free(&text);
            return st;
        }
        AG_TRY(add_text(l, text, err));
    }
    return AG_OK;
}

static ag_status read_starts(ag_trigger *t, const json_t *list, ag_error *err) {
    size_t i, k;
    const json_t *start, *part;
    json_array_foreach(list, i, start) {
        json_array_foreach(start, k, part) {
            ag_text text = {0};
            const size_t n = json_string_length(part);
            AG_TRY(ag_text_append(&text, json_string_value(part), n, err));
            AG_TRY(add_text(&t->starts, text, err));
        }
        if (!k) return AG_FAIL(err, FORMAT, "trigger: a start is empty");
        AG_TRY(AG_GROW(t->start_ends, &t->start_ends_cap, t->n_starts + 1, err));
        t->start_ends[t->n_starts++] = t->starts.n;
    }
    return AG_OK;
}

static ag_status read_trigger(const ag_grammar_scope *scope, const json_t *v, ag_trigger *t,
                              ag_error *err) {
    if (!json_is_object(v)) return AG_FAIL(err, FORMAT, "trigger: not a JSON object");
    AG_TRY(read_delimiters(scope, json_object_get(v, "anywhere"), &t->anywhere, err));
    AG_TRY(read_delimiters(scope, json_object_get(v, "before"), &t->before, err));
    AG_TRY(read_delimiters(scope, json_object_get(v, "reasoning_open"), &t->opens, err));
    AG_TRY(read_delimiters(scope, json_object_get(v, "reasoning_close"), &t->closes, err));
    AG_TRY(read_starts(t, json_object_get(v, "starts"), err));
    t->in_reasoning = json_is_true(json_object_get(v, "in_reasoning"));
    if (t->anywhere.n + t->n_starts) return AG_OK;
    return AG_FAIL(err, FORMAT, "trigger: neither \"anywhere\" nor \"starts\"; one is needed");
}

ag_status ag_trigger_parse(const ag_grammar_scope *scope, const json_t *v, ag_trigger **out,
                           ag_error *err) {
    ag_trigger *t = *out = ag_calloc(1, sizeof *t);
    if (!t) return AG_FAIL(err, NOMEM, "trigger of a constraint");
    t->users = 1;
    const ag_status st = read_trigger(scope, v, t, err);
    if (st == AG_OK) return st;
    ag_trigger_release(t);
    *out = NULL;
    return st;
}

ag_trigger *ag_trigger_retain(ag_trigger *t) {
    if (t) atomic_fetch_add(&t->users, 1);
    return t;
}

static void free_list(text_list *l) {
    for (size_t i = 0; i < l->n; i++) ag_text_free(&l->at[i]);
    ag_free(l->at);
}

void ag_trigger_release(ag_trigger *t) {
    if (!t || atomic_fetch_sub(&t->users, 1) > 1) return;
    free_list(&t->anywhere);
    free_list(&t->before);
    free_list(&t->starts);
    free_list(&t->opens);
    free_list(&t->closes);
    ag_free(t->start_ends);
    ag_free(t);
}

/* ---- matching ---- */

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static match match_text(const ag_text *text, const char *s, size_t n) {
    const size_t n_compared = n < text->len ? n : text->len;
    if (memcmp(text->data, s, n_compared) != 0) return NO;
    return n_compared < text->len ? PARTIAL : YES;
}

/* Matches the longest text of the list at s[0..n), n > 0. PARTIAL: one of them may come. */
static match match_list(const text_list *l, const char *s, size_t n, size_t *len) {
    *len = 0;
    for (size_t i = 0; i < l->n; i++) {
        const match m = match_text(&l->at[i], s, n);
        if (m == PARTIAL) return PARTIAL;
        if (m == YES && l->at[i].len > *len) *len = l->at[i].len;
    }
    return *len ? YES : NO;
}

/* Returns the length of the longest text of the list that s[0..n) ends with; 0 if there is none. */
static size_t match_end(const text_list *l, const char *s, size_t n) {
    size_t len = 0;
    for (size_t i = 0; i < l->n; i++) {
        const ag_text *text = &l->at[i];
        if (text->len <= len || text->len > n || text->data[text->len - 1] != s[n - 1]) continue;
        if (!memcmp(text->data, s + n - text->len, text->len)) len = text->len;
    }
    return len;
}

/* Returns the length of white space as neat JSON has it. */
static size_t neat_space(const char *s, size_t n) {
    size_t i = n && s[0] == '\n';
    if (!i) return n && s[0] == ' ';
    while (i < n && i <= INDENT_MAX && (s[i] == ' ' || s[i] == '\t')) i++;
    return i;
}

/* Matches the parts [begin, end) of a start, with neat white space between them. */
static match match_parts(const ag_trigger *t, size_t begin, size_t end, const char *s, size_t n) {
    size_t at = 0;
    for (size_t i = begin; i < end; i++) {
        if (i > begin) at += neat_space(s + at, n - at);
        const match m = match_text(&t->starts.at[i], s + at, n - at);
        if (m != YES) return m;
        at += t->starts.at[i].len;
    }
    return YES;
}

static match match_start(const ag_trigger *t, const char *s, size_t n) {
    match best = NO;
    for (size_t i = 0; i < t->n_starts && best != YES; i++) {
        const match m = match_parts(t, i ? t->start_ends[i - 1] : 0, t->start_ends[i], s, n);
        if (m > best) best = m;
    }
    return best;
}

/* Matches s[0..n), a text from its start or from behind reasoning or a constrained part, from
 * state->n_skipped on. YES: a start is there. *reasons: reasoning has opened; the result is then
 * NO. */
static match match_from_start(const ag_trigger *t, ag_trigger_state *state, const char *s, size_t n,
                              bool *reasons) {
    size_t len;
    *reasons = false;
    for (size_t at; (at = state->n_skipped) < n;) {
        if (is_space(s[at])) {
            state->n_skipped++;
            continue;
        }
        const match open = state->may_reason ? match_list(&t->opens, s + at, n - at, &len) : NO;
        *reasons = open == YES;
        if (open == YES) return NO;
        const match start = match_start(t, s + at, n - at);
        if (start == YES) return YES;
        const match before = match_list(&t->before, s + at, n - at, &len);
        if (open == PARTIAL || start == PARTIAL || before == PARTIAL) return PARTIAL;
        if (before == NO) return NO;
        state->n_skipped += len;
        state->may_reason = false;
    }
    return n <= SPACE_MAX ? PARTIAL : NO;
}

/* ---- texts ---- */

void ag_trigger_begin(const ag_trigger *t, ag_trigger_state *s) {
    s->seen.len = s->start = s->n_skipped = 0;
    s->where = t->in_reasoning ? AG_TRIGGER_REASONING : AG_TRIGGER_START;
    s->may_reason = true;
}

void ag_trigger_resume(ag_trigger_state *s) {
    s->seen.len = s->start = s->n_skipped = 0;
    s->where = AG_TRIGGER_START;
    s->may_reason = false;
}

/* Drops bytes that no match needs any more. */
static void compact(const ag_trigger *t, ag_trigger_state *s) {
    size_t from = s->start;
    const size_t longest =
        s->where == AG_TRIGGER_REASONING ? t->closes.longest : t->anywhere.longest;
    if (s->where != AG_TRIGGER_START && s->seen.len - from > longest) from = s->seen.len - longest;
    if (!from) return;
    memmove(s->seen.data, s->seen.data + from, s->seen.len - from);
    s->seen.len -= from;
    s->start = 0;
}

/* Reads the newest byte. Returns whether the constrained part has begun. */
static bool read_byte(const ag_trigger *t, ag_trigger_state *s, size_t *begin) {
    const char *text = s->seen.data + s->start;
    const size_t n = s->seen.len - s->start;
    if (s->where == AG_TRIGGER_REASONING) {
        if (!match_end(&t->closes, text, n)) return false;
        s->where = AG_TRIGGER_START;
        s->may_reason = false;
        s->start = s->seen.len;
        s->n_skipped = 0;
        return false;
    }
    const size_t n_anywhere = match_end(&t->anywhere, text, n);
    *begin = s->seen.len - n_anywhere;
    if (n_anywhere) return true;
    if (s->where == AG_TRIGGER_TEXT) return false;
    bool reasons;
    const match m = match_from_start(t, s, text, n, &reasons);
    *begin = s->start + s->n_skipped;
    if (m == YES) return true;
    if (m == NO) s->where = reasons ? AG_TRIGGER_REASONING : AG_TRIGGER_TEXT;
    if (reasons) s->start = s->seen.len;
    return false;
}

ag_status ag_trigger_push(const ag_trigger *t, ag_trigger_state *s, const unsigned char *bytes,
                          size_t n, bool *fires, size_t *begin, ag_error *err) {
    *fires = false;
    compact(t, s);
    AG_TRY(ag_text_reserve(&s->seen, n, err));
    if (n) memcpy(s->seen.data + s->seen.len, bytes, n);
    for (size_t i = 0; i < n && !*fires; i++) {
        s->seen.len++;
        *fires = read_byte(t, s, begin);
        if (*fires) s->seen.len += n - i - 1;
    }
    return AG_OK;
}

void ag_trigger_undo(ag_trigger_state *s, const ag_trigger_state *before, size_t n) {
    s->seen.len -= n;
    s->where = before->where;
    s->may_reason = before->may_reason;
    s->n_skipped = before->n_skipped;
    /* The bytes before `start` are gone if the push has dropped some. */
    const size_t dropped = before->seen.len - s->seen.len;
    s->start = before->start > dropped ? before->start - dropped : 0;
}

ag_status ag_trigger_copy(ag_trigger_state *to, const ag_trigger_state *from, ag_error *err) {
    const size_t n = from->seen.len;
    to->seen.len = 0;
    AG_TRY(ag_text_append(&to->seen, from->seen.data, n, err));
    to->start = from->start;
    to->n_skipped = from->n_skipped;
    to->where = from->where;
    to->may_reason = from->may_reason;
    return AG_OK;
}
