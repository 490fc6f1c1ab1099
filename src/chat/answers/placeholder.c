/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/answers/placeholder.h"

#include "chat/answers/answer_index.h"
#include "chat/interrupt.h"
#include "chat/json_scan.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "core/keyed_hash.h"
#include "text/bytes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- which messages were ---- */

void ag_chat_stand_ins_free(ag_chat_stand_ins *s) {
    ag_free(s->list);
    json_decref(s->messages);
    *s = (ag_chat_stand_ins){0};
}

static bool has_text(const ag_chat_answer *t) {
    return json_string_length(json_array_get(t->said, 0)) > 0;
}
static size_t count_calls(const ag_chat_answer *t) {
    return json_array_size(json_array_get(t->said, 1));
}

static ag_status add_stand_in(ag_chat_stand_ins *s, const ag_chat_answer *t, size_t message,
                              ag_error *err) {
    void *array = s->list;
    ag_status st = ag_array_grow(&array, &s->cap, s->n + 1, sizeof *s->list, err);
    s->list = array;
    AG_TRY(st);
    s->list[s->n++] = (ag_chat_stand_in){.answer = t,
                                         .message = message,
                                         .has_content = has_text(t),
                                         .has_calls = count_calls(t) > 0};
    return AG_OK;
}

/* Reasoning that a client leaves out is not said otherwise. */
static ag_status find_answer(const ag_answer_index *index, const json_t *m, size_t i, size_t *from,
                             ag_chat_stand_ins *s, ag_error *err) {
    const char *role = json_string_value(json_object_get(m, "role"));
    json_t *said;
    AG_TRY(ag_chat_check_interrupt("finding sampled answers", err));
    if (!role || strcmp(role, "assistant") != 0) return AG_OK;
    AG_TRY(ag_chat_canonical_message(m, &said, err));
    const ag_chat_answer *t = ag_answer_index_find(index, said, ag_chat_message_reasoning(m), from);
    json_decref(said);
    return t ? add_stand_in(s, t, i, err) : AG_OK;
}

ag_status ag_chat_find_answers(const ag_chat *c, ag_chat_stand_ins *s, ag_error *err) {
    ag_answer_index index;
    size_t i, from = 0;
    json_t *m;
    AG_TRY(ag_answer_index_create(c->answers, c->n_answers, &index, err));
    ag_status st = AG_OK;
    json_array_foreach(c->messages, i, m) {
        if (st == AG_OK) st = find_answer(&index, m, i, &from, s, err);
    }
    ag_answer_index_free(&index);
    return st;
}

/* ---- words in their place ---- */

/* Letters and digits that nobody who writes a conversation or tools can know. */
static void choose_words(ag_chat_stand_ins *s) {
    snprintf(s->beginning, sizeof s->beginning, "Q7v%016" PRIx64 "w", ag_unpredictable());
    for (size_t i = 0; i < s->n; i++) {
        ag_chat_stand_in *x = &s->list[i];
        x->words = x->reasoning = x->argument = (ag_chat_word){.n = 0};
        snprintf(x->words.text, sizeof x->words.text, "%sc%zuq", s->beginning, i);
        snprintf(x->reasoning.text, sizeof x->reasoning.text, "%sr%zuq", s->beginning, i);
        snprintf(x->argument.text, sizeof x->argument.text, "%sa%zuq", s->beginning, i);
    }
}

static json_t *calls_with(const json_t *calls, const char *word) {
    json_t *copy = json_deep_copy(calls), *call;
    size_t i;
    json_array_foreach(copy, i, call) {
        json_t *f = json_object_get(call, "function");
        json_t *args = json_pack("{s:s}", "a", word);
        if (json_object_set_new(f ? f : call, "arguments", args) == 0) continue;
        json_decref(copy);
        return NULL;
    }
    return copy;
}

static bool put_words(json_t *messages, const ag_chat_stand_in *x) {
    json_t *m = json_copy(json_array_get(messages, x->message));
    bool ok = m != NULL;
    if (ok && x->has_content)
        ok = json_object_set_new(m, "content", json_string(x->words.text)) == 0;
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

ag_status ag_chat_stand_in_for(const ag_chat *c, ag_chat_stand_ins *s, ag_error *err) {
    json_decref(s->messages);
    s->messages = json_copy(c->messages);
    choose_words(s);
    for (size_t i = 0; s->messages && i < s->n; i++) {
        if (!s->list[i].answer || put_words(s->messages, &s->list[i])) continue;
        json_decref(s->messages);
        s->messages = NULL;
    }
    return s->messages ? AG_OK : AG_FAIL(err, NOMEM, "a conversation of sampled answers");
}

/* ---- where they stand ---- */

typedef struct place {
    size_t begin, end;
    bool with_reasoning;
} place;

/* The word that begins at `at`, behind the beginning that all have in common, or NULL. */
static ag_chat_word *word_at(ag_chat_stand_ins *s, const char *at) {
    const char *kind = at + strlen(s->beginning), *p = kind + 1;
    size_t i = 0;
    if (!strchr("cra", *kind) || !*kind) return NULL;
    for (; *p >= '0' && *p <= '9' && i < s->n; p++) i = 10 * i + (size_t)(*p - '0');
    if (i >= s->n) return NULL;
    ag_chat_stand_in *x = &s->list[i];
    ag_chat_word *w = *kind == 'c' ? &x->words : *kind == 'r' ? &x->reasoning : &x->argument;
    return strncmp(at, w->text, strlen(w->text)) == 0 ? w : NULL;
}

/* Where all words stand, in one pass over the text: there may be as many as messages. */
static void find_words(ag_chat_stand_ins *s, const char *text, size_t n) {
    const char *p = text;
    for (; (p = ag_find_bytes(p, n - (size_t)(p - text), s->beginning));
         p += strlen(s->beginning)) {
        ag_chat_word *w = word_at(s, p);
        if (!w) continue;
        if (w->n++ == 0) w->begin = (size_t)(p - text);
        w->end = (size_t)(p - text) + strlen(w->text);
    }
}

/* Which is not so where a template says something twice. */
static bool is_certain(const ag_chat_stand_in *x) {
    return x->words.n <= 1 && x->reasoning.n <= 1 && x->argument.n <= count_calls(x->answer);
}

/* A walk over the text. */
typedef struct walk {
    const ag_chat_format *f;
    const char *text;
    size_t n;      /* number of bytes of the text */
    size_t from;   /* answers that are found begin here or behind */
    size_t passed; /* the end of the words that were looked at last */
    size_t looked_from,
        closed; /* the first end of a turn at or behind looked_from; SIZE_MAX: none */
} walk;

/* The next end of a turn, or SIZE_MAX. What one answer asked for is there for the next one's. */
static size_t turn_end(walk *w, size_t from) {
    if (!w->f->turn_end) return SIZE_MAX;
    if (from >= w->looked_from && from <= w->closed) return w->closed;
    const char *found = ag_find_bytes(w->text + from, w->n - from, w->f->turn_end);
    w->looked_from = from;
    w->closed = found ? (size_t)(found - w->text) : SIZE_MAX;
    return w->closed;
}

static bool is_behind(const ag_chat_word *word, size_t from) {
    return word->n && word->begin >= from;
}

/* The last one before `to`, but behind the answer before, also one whose place could not be told.
 * SIZE_MAX: it is not there. */
static size_t last_of(const walk *w, size_t to, const char *what) {
    const size_t len = what ? strlen(what) : SIZE_MAX;
    const size_t from = w->passed > w->from && w->passed <= to ? w->passed : w->from;
    if (to < from || len > to - from) return SIZE_MAX;
    for (size_t at = to - len + 1; at-- > from;) {
        if (!memcmp(w->text + at, what, len)) return at;
    }
    return SIZE_MAX;
}

/* What opens the section of calls whose first argument is at `at`: the nearest one before it, since
 * a system prompt may show how calls are written, too. */
static size_t section_begin(const walk *w, size_t at) {
    const ag_call_format *f = &w->f->calls;
    for (size_t i = 0; i < AG_CALL_TRIGGERS && f->triggers[i]; i++) {
        const size_t found = last_of(w, at, f->triggers[i]);
        if (found != SIZE_MAX) return found;
    }
    return SIZE_MAX;
}

/* Where the answer begins whose words stand behind w->from. */
static bool find_begin(walk *w, const ag_chat_stand_in *x, place *out) {
    const ag_chat_word *word = x->has_content ? &x->words : &x->argument;
    const bool thinks = is_behind(&x->reasoning, w->from);
    if (!is_behind(word, w->from) || (thinks && x->reasoning.begin > word->begin)) return false;
    out->with_reasoning = thinks;
    out->begin = thinks ? x->reasoning.begin : word->begin;
    if (thinks && !x->answer->opened) out->begin = last_of(w, out->begin, w->f->reasoning_open);
    if (!thinks && !x->has_content) out->begin = section_begin(w, out->begin);
    /* What was found before the answer is none of it. */
    return out->begin != SIZE_MAX && turn_end(w, out->begin) >= word->begin;
}

static bool find_end(walk *w, const ag_chat_stand_in *x, size_t to, place *out) {
    const ag_chat_word *word = x->has_calls ? &x->argument : &x->words;
    if (!is_behind(word, out->begin)) return false;
    const size_t end = turn_end(w, word->end);
    for (size_t i = word->end; end != SIZE_MAX && !x->has_calls && i < end; i++) {
        if (!ag_is_json_space(w->text[i])) return false;
    }
    if (end == SIZE_MAX && x->has_calls) return false;
    out->end = end == SIZE_MAX ? word->end : end;
    return out->end <= to;
}

static ag_status cut_answer(ag_chat_stand_in *x, const place *at, ag_cut_list *l, bool *missed,
                            ag_error *err) {
    const ag_chat_answer *t = x->answer;
    const size_t skip = at->with_reasoning ? 0 : t->n_reasoning;
    if (skip > t->ids.n) {
        x->answer = NULL;
        *missed = true;
        return AG_OK;
    }
    return ag_cut_list_add(
        l, (ag_text_cut){at->begin, at->end, t->ids.data + skip, t->ids.n - skip}, err);
}

ag_status ag_chat_cut_answers(const ag_chat *c, ag_chat_stand_ins *s, const ag_jinja_output *out,
                              size_t to, ag_cut_list *l, bool *missed, ag_error *err) {
    walk w = {.f = c->format, .text = out->text, .n = out->len, .looked_from = SIZE_MAX};
    *missed = false;
    find_words(s, out->text, out->len);
    for (size_t i = 0; i < s->n; i++) {
        ag_chat_stand_in *x = &s->list[i];
        place at = {0};
        if (!x->answer) continue;
        if (!is_certain(x) || !find_begin(&w, x, &at) || !find_end(&w, x, to, &at)) {
            x->answer = NULL;
            *missed = true;
            w.passed = x->has_calls ? x->argument.end : x->words.end;
            continue;
        }
        AG_TRY(ag_chat_find_cuts(c->format, out, w.from, at.begin, l, err));
        AG_TRY(cut_answer(x, &at, l, missed, err));
        w.from = at.end;
    }
    return ag_chat_find_cuts(c->format, out, w.from, to, l, err);
}
