/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/answers/placeholder.h"

#include "chat/answers/answer_index.h"
#include "chat/interrupt.h"
#include "chat/json_scan.h"
#include "chat/message.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "core/keyed_hash.h"
#include "text/bytes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- messages that were sampled ---- */

void ag_placeholders_free(ag_placeholders *s) {
    ag_free(s->list);
    json_decref(s->messages);
    *s = (ag_placeholders){0};
}

static ag_status add_placeholder(ag_placeholders *s, const ag_chat_answer *t, size_t message,
                                 ag_error *err) {
    AG_TRY(AG_GROW(s->list, &s->cap, s->n + 1, err));
    s->list[s->n++] = (ag_placeholder){.answer = t,
                                       .message = message,
                                       .has_content = t->has_content,
                                       .has_calls = t->n_calls > 0};
    return AG_OK;
}

/* Adds a placeholder if message i equals an answer. A message without reasoning equals answers with
 * any, since clients often leave it out. */
static ag_status match_message(const ag_answer_index *index, const json_t *m, size_t i,
                               size_t *from, ag_placeholders *s, ag_error *err) {
    ag_text canonical = {0};
    AG_TRY(ag_chat_check_interrupt("finding sampled answers", err));
    if (!ag_chat_has_role(m, "assistant")) return AG_OK;
    const ag_chat_answer *t = NULL;
    const ag_status st = ag_chat_canonical_message(m, &canonical, err);
    if (st == AG_OK)
        t = ag_answer_index_find(index, &canonical, ag_chat_message_reasoning(m), from);
    ag_text_free(&canonical);
    return t ? add_placeholder(s, t, i, err) : st;
}

ag_status ag_placeholders_find(const ag_chat *c, ag_placeholders *s, ag_error *err) {
    ag_answer_index index;
    size_t i, from = 0;
    json_t *m;
    AG_TRY(ag_answer_index_create(c->answers, c->n_answers, &index, err));
    ag_status st = AG_OK;
    json_array_foreach(c->messages, i, m) {
        if (st == AG_OK) st = match_message(&index, m, i, &from, s, err);
    }
    ag_answer_index_free(&index);
    return st;
}

/* ---- sentinels ---- */

/* Chooses sentinels from unpredictable digits, which no client can put into a message or a tool. */
static void choose_sentinels(ag_placeholders *s) {
    snprintf(s->prefix, sizeof s->prefix, "Q7v%016" PRIx64 "w", ag_unpredictable());
    for (size_t i = 0; i < s->n; i++) {
        ag_placeholder *x = &s->list[i];
        x->content = x->reasoning = x->argument = (ag_sentinel){.n = 0};
        snprintf(x->content.text, sizeof x->content.text, "%sc%zuq", s->prefix, i);
        snprintf(x->reasoning.text, sizeof x->reasoning.text, "%sr%zuq", s->prefix, i);
        snprintf(x->argument.text, sizeof x->argument.text, "%sa%zuq", s->prefix, i);
    }
}

/* Returns a copy of the calls whose arguments are {"a": sentinel}. NULL: out of memory. */
static json_t *calls_with(const json_t *calls, const char *sentinel) {
    json_t *copy = json_deep_copy(calls), *call;
    size_t i;
    json_array_foreach(copy, i, call) {
        json_t *f = json_object_get(call, "function");
        json_t *args = json_pack("{s:s}", "a", sentinel);
        if (json_object_set_new(f ? f : call, "arguments", args) == 0) continue;
        json_decref(copy);
        return NULL;
    }
    return copy;
}

/* Replaces a message by a copy with the sentinels of x. Returns false if out of memory. */
static bool insert_sentinels(json_t *messages, const ag_placeholder *x) {
    json_t *m = json_copy(json_array_get(messages, x->message));
    bool ok = m != NULL;
    if (ok && x->has_content)
        ok = json_object_set_new(m, "content", json_string(x->content.text)) == 0;
    if (ok && json_string_length(json_object_get(m, "reasoning_content"))) {
        ok = json_object_set_new(m, "reasoning_content", json_string(x->reasoning.text)) == 0;
    }
    if (ok && x->has_calls) {
        json_t *calls = calls_with(json_object_get(m, "tool_calls"), x->argument.text);
        ok = json_object_set_new(m, "tool_calls", calls) == 0;
    }
    if (ok) return json_array_set_new(messages, x->message, m) == 0;
    json_decref(m);
    return false;
}

ag_status ag_placeholders_insert(const ag_chat *c, ag_placeholders *s, ag_error *err) {
    json_decref(s->messages);
    s->messages = json_copy(c->messages);
    choose_sentinels(s);
    for (size_t i = 0; s->messages && i < s->n; i++) {
        if (!s->list[i].answer || insert_sentinels(s->messages, &s->list[i])) continue;
        json_decref(s->messages);
        s->messages = NULL;
    }
    return s->messages ? AG_OK : AG_FAIL(err, NOMEM, "messages of a conversation");
}

/* ---- locations in the rendered text ---- */

typedef struct location {
    size_t begin, end;
    bool with_reasoning;
} location;

/* Returns the sentinel at `at`, where the common prefix begins; NULL if none is there. */
static ag_sentinel *sentinel_at(ag_placeholders *s, const char *at) {
    const char *kind = at + strlen(s->prefix), *p = kind + 1;
    size_t i = 0;
    if (!strchr("cra", *kind) || !*kind) return NULL;
    for (; *p >= '0' && *p <= '9' && i < s->n; p++) i = 10 * i + (size_t)(*p - '0');
    if (i >= s->n) return NULL;
    ag_placeholder *x = &s->list[i];
    ag_sentinel *w = *kind == 'c' ? &x->content : *kind == 'r' ? &x->reasoning : &x->argument;
    return strncmp(at, w->text, strlen(w->text)) == 0 ? w : NULL;
}

/* Finds all sentinels in one pass over the text, since there can be one per message. */
static void find_sentinels(ag_placeholders *s, const char *text, size_t n) {
    const char *p = text;
    for (; (p = ag_find_bytes(p, n - (size_t)(p - text), s->prefix)); p += strlen(s->prefix)) {
        ag_sentinel *w = sentinel_at(s, p);
        if (!w) continue;
        if (w->n++ == 0) w->begin = (size_t)(p - text);
        w->end = (size_t)(p - text) + strlen(w->text);
    }
}

/* Returns false if the template wrote a sentinel more than once. */
static bool is_certain(const ag_placeholder *x) {
    return x->content.n <= 1 && x->reasoning.n <= 1 && x->argument.n <= x->answer->n_calls;
}

/* Search state; answers are located in order. */
typedef struct walk {
    const ag_chat_format *f;
    const char *text;
    size_t n;          /* bytes of text */
    size_t from;       /* end of the last located answer */
    size_t skipped_to; /* end of the sentinels of the last answer that could not be located */
    size_t searched_from, found_end; /* first end of a turn from searched_from on; SIZE_MAX: none */
} walk;

/* Returns the first end of a turn from `from` on; SIZE_MAX if there is none. Remembers it for the
 * next answer. */
static size_t turn_end(walk *w, size_t from) {
    if (!w->f->turn_end) return SIZE_MAX;
    if (from >= w->searched_from && from <= w->found_end) return w->found_end;
    const char *found = ag_find_bytes(w->text + from, w->n - from, w->f->turn_end);
    w->searched_from = from;
    w->found_end = found ? (size_t)(found - w->text) : SIZE_MAX;
    return w->found_end;
}

static bool is_at_or_after(const ag_sentinel *sentinel, size_t from) {
    return sentinel->n && sentinel->begin >= from;
}

/* Returns the last position of `what` before `to` and after the previous answer; SIZE_MAX if there
 * is none. */
static size_t find_last(const walk *w, size_t to, const char *what) {
    const size_t len = what ? strlen(what) : SIZE_MAX;
    const size_t from = w->skipped_to > w->from && w->skipped_to <= to ? w->skipped_to : w->from;
    if (to < from || len > to - from) return SIZE_MAX;
    for (size_t at = to - len + 1; at-- > from;) {
        if (!memcmp(w->text + at, what, len)) return at;
    }
    return SIZE_MAX;
}

/* Returns where the section of calls begins whose first argument is at `at`. This is the nearest
 * trigger before it, since a system prompt can show how calls are written too. */
static size_t section_begin(const walk *w, size_t at) {
    const ag_call_format *f = &w->f->calls;
    for (size_t i = 0; i < AG_CALL_TRIGGERS && f->triggers[i]; i++) {
        const size_t found = find_last(w, at, f->triggers[i]);
        if (found != SIZE_MAX) return found;
    }
    return SIZE_MAX;
}

/* Finds the start of an answer after w->from. */
static bool find_answer_begin(walk *w, const ag_placeholder *x, location *out) {
    const ag_sentinel *sentinel = x->has_content ? &x->content : &x->argument;
    const bool has_reasoning = is_at_or_after(&x->reasoning, w->from);
    if (!is_at_or_after(sentinel, w->from) ||
        (has_reasoning && x->reasoning.begin > sentinel->begin))
        return false;
    out->with_reasoning = has_reasoning;
    out->begin = has_reasoning ? x->reasoning.begin : sentinel->begin;
    if (has_reasoning && !x->answer->starts_in_reasoning)
        out->begin = find_last(w, out->begin, w->f->reasoning_open);
    if (!has_reasoning && !x->has_content) out->begin = section_begin(w, out->begin);
    /* An end of a turn between start and sentinel: the start belongs to an earlier turn. */
    return out->begin != SIZE_MAX && turn_end(w, out->begin) >= sentinel->begin;
}

/* Finds the end of an answer: the end of its turn, or of its sentinel if no end of a turn follows.
 * Returns false if other text follows its content, or no end of a turn follows its calls. */
static bool find_answer_end(walk *w, const ag_placeholder *x, size_t to, location *out) {
    const ag_sentinel *sentinel = x->has_calls ? &x->argument : &x->content;
    if (!is_at_or_after(sentinel, out->begin)) return false;
    const size_t end = turn_end(w, sentinel->end);
    for (size_t i = sentinel->end; end != SIZE_MAX && !x->has_calls && i < end; i++) {
        if (!ag_is_json_space(w->text[i])) return false;
    }
    if (end == SIZE_MAX && x->has_calls) return false;
    out->end = end == SIZE_MAX ? sentinel->end : end;
    return out->end <= to;
}

/* Appends the id range of a located answer. If the template leaves out its reasoning and no token
 * ends there, drops the placeholder. */
static ag_status add_range(ag_placeholder *x, const location *at, ag_id_range_list *l, bool *missed,
                           ag_error *err) {
    const ag_chat_answer *t = x->answer;
    const size_t skip = at->with_reasoning ? 0 : t->n_reasoning;
    if (skip > t->ids.n) {
        x->answer = NULL;
        *missed = true;
        return AG_OK;
    }
    return ag_id_range_list_add(
        l, (ag_id_range){at->begin, at->end, t->ids.data + skip, t->ids.n - skip}, err);
}

ag_status ag_placeholders_locate(const ag_chat *c, ag_placeholders *s, const ag_jinja_output *out,
                                 size_t to, ag_id_range_list *l, bool *missed, ag_error *err) {
    walk w = {.f = c->format, .text = out->text, .n = out->len, .searched_from = SIZE_MAX};
    *missed = false;
    find_sentinels(s, out->text, out->len);
    for (size_t i = 0; i < s->n; i++) {
        ag_placeholder *x = &s->list[i];
        location at = {0};
        if (!x->answer) continue;
        if (!is_certain(x) || !find_answer_begin(&w, x, &at) || !find_answer_end(&w, x, to, &at)) {
            x->answer = NULL;
            *missed = true;
            w.skipped_to = x->has_calls ? x->argument.end : x->content.end;
            continue;
        }
        AG_TRY(ag_special_text_find_ranges(c->format, out, w.from, at.begin, l, err));
        AG_TRY(add_range(x, &at, l, missed, err));
        w.from = at.end;
    }
    return ag_special_text_find_ranges(c->format, out, w.from, to, l, err);
}
