/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/answers/sampled_answer.h"

#include "chat/answers/answer_index.h"
#include "chat/parse/parser.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "core/keyed_hash.h"
#include "text/bytes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_ANSWERS = 4096 };

/* ---- what a message says ---- */

/* Id, name and arguments: text that holds JSON says what the JSON does. NULL: out of memory. */
static json_t *said_by_call(json_t *call) {
    const json_t *f = json_object_get(call, "function");
    if (!f) f = call;
    json_t *arguments = json_object_get(f, "arguments");
    json_t *value = json_loadb(json_is_string(arguments) ? json_string_value(arguments) : "",
                               json_string_length(arguments), JSON_DECODE_ANY, NULL);
    json_t *said = json_pack("[O?O?O?]", json_object_get(call, "id"), json_object_get(f, "name"),
                             value ? value : arguments);
    json_decref(value);
    return said;
}

static ag_status said_by_calls(const json_t *calls, json_t *said, ag_error *err) {
    json_t *call;
    size_t i;
    json_array_foreach(calls, i, call) {
        AG_TRY(ag_chat_check_interrupt("reading calls", err));
        if (json_array_append_new(said, said_by_call(call)) == 0) continue;
        return AG_FAIL(err, NOMEM, "tool calls of a message");
    }
    return AG_OK;
}

/* *said: [text, [calls]] */
static ag_status said_by(const json_t *m, json_t **said, ag_error *err) {
    ag_text text = {0};
    json_t *calls = json_array();
    *said = NULL;
    ag_status st = calls ? AG_OK : AG_FAIL(err, NOMEM, "tool calls of a message");
    if (st == AG_OK) st = ag_chat_append_content(json_object_get(m, "content"), &text, err);
    if (st == AG_OK) st = said_by_calls(json_object_get(m, "tool_calls"), calls, err);
    if (st == AG_OK) {
        *said =
            json_pack("[oO]", json_stringn_nocheck(text.data ? text.data : "", text.len), calls);
        if (!*said) st = AG_FAIL(err, NOMEM, "text of a message");
    }
    ag_text_free(&text);
    json_decref(calls);
    return st;
}

static bool has_text(const ag_chat_answer *t) {
    return json_string_length(json_array_get(t->said, 0)) > 0;
}
static size_t count_calls(const ag_chat_answer *t) {
    return json_array_size(json_array_get(t->said, 1));
}

/* ---- what was sampled ---- */

/* Also one that says nothing, of which the message does not speak. */
static bool begins_reasoning(const ag_chat_format *f, const ag_text *text) {
    const char *s = text->data;
    if (!s || !f->reasoning_open) return false;
    while (ag_is_json_space(*s)) s++;
    return strncmp(s, f->reasoning_open, strlen(f->reasoning_open)) == 0;
}

/* How many ids the reasoning takes, with its mark and the white space behind: those after which the
 * text has exactly so many bytes. SIZE_MAX if no border of a token is there. */
static ag_status count_reasoning(const ag_chat_format *f, const int32_t *ids, size_t n,
                                 bool has_reasoning, size_t *count, ag_error *err) {
    ag_decoder *d;
    ag_text text = {0};
    *count = 0;
    AG_TRY(ag_tokenizer_decode(f->tokenizer, ids, n, true, &text, err));
    if (!has_reasoning && !begins_reasoning(f, &text)) {
        ag_text_free(&text);
        return AG_OK;
    }
    const char *close = text.data ? strstr(text.data, f->reasoning_close) : NULL;
    size_t wanted = close ? (size_t)(close - text.data) + strlen(f->reasoning_close) : SIZE_MAX;
    while (close && ag_is_json_space(text.data[wanted])) wanted++;
    text.len = 0;
    *count = SIZE_MAX;
    ag_status st = ag_decoder_create(f->tokenizer, true, false, &d, err);
    for (size_t i = 0; st == AG_OK && i < n && text.len <= wanted; i++) {
        if (text.len == wanted && *count == SIZE_MAX) *count = i;
        st = ag_decoder_push(d, ids[i], &text, err);
    }
    ag_decoder_destroy(d);
    ag_text_free(&text);
    return st;
}

void ag_chat_answer_free(ag_chat_answer *t) {
    json_decref(t->said);
    json_decref(t->reasoning);
    ag_ids_free(&t->ids);
    *t = (ag_chat_answer){0};
}

static json_t *reasoning_of(const json_t *message) {
    json_t *text = json_object_get(message, "reasoning_content");
    return json_string_length(text) ? text : NULL;
}

ag_status ag_chat_make_answer(const ag_chat *c, const json_t *message, const int32_t *ids, size_t n,
                              ag_chat_answer *t, ag_error *err) {
    AG_TRY(said_by(message, &t->said, err));
    t->reasoning = json_incref(reasoning_of(message));
    AG_TRY(ag_ids_reserve(&t->ids, n, err));
    memcpy(t->ids.data, ids, n * sizeof *ids);
    t->ids.n = n;
    return count_reasoning(c->format, ids, n, t->reasoning || t->opened, &t->n_reasoning, err);
}

ag_status ag_chat_remember(ag_chat *c, ag_chat_answer *answer, ag_error *err) {
    if (c->n_answers == MAX_ANSWERS) {
        ag_chat_answer_free(&c->answers[0]);
        memmove(c->answers, c->answers + 1, --c->n_answers * sizeof *c->answers);
    }
    void *array = c->answers;
    const ag_status st =
        ag_array_grow(&array, &c->answers_cap, c->n_answers + 1, sizeof *answer, err);
    c->answers = array;
    if (st == AG_OK) c->answers[c->n_answers++] = *answer;
    else ag_chat_answer_free(answer);
    *answer = (ag_chat_answer){0};
    return st;
}

ag_status ag_chat_add_answer(ag_chat *c, const ag_chat_parser *p, const int32_t *ids, size_t n,
                             ag_error *err) {
    ag_text message = {0};
    ag_status st = ag_chat_parser_message(p, &message, err);
    if (st == AG_OK) st = ag_chat_add_json(c, message.data, message.len, err);
    ag_text_free(&message);
    if (st != AG_OK || !ids || n == 0 || !c->format->tokenizer) return st;
    const json_t *newest = json_array_get(c->messages, json_array_size(c->messages) - 1);
    ag_chat_answer answer = {.opened = p->params.opened};
    st = ag_chat_make_answer(c, newest, ids, n, &answer, err);
    if (st == AG_OK) st = ag_chat_remember(c, &answer, err);
    else ag_chat_answer_free(&answer);
    if (st != AG_OK) ag_chat_truncate(c, ag_chat_n_messages(c) - 1);
    return st;
}

/* ---- which messages were ---- */

void ag_chat_stand_ins_free(ag_chat_stand_ins *s) {
    ag_free(s->list);
    json_decref(s->messages);
    *s = (ag_chat_stand_ins){0};
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
    AG_TRY(said_by(m, &said, err));
    const ag_chat_answer *t = ag_answer_index_find(index, said, reasoning_of(m), from);
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
    return s->messages ? AG_OK : AG_FAIL(err, NOMEM, "messages of a conversation");
}

/* ---- where they stand ---- */

typedef struct place {
    size_t begin, end;
    bool with_reasoning;
} place;

/* The first `what` of s[0..n), or NULL. Not strstr(): under a sanitizer that reads all of s. */
static const char *find_text(const char *s, size_t n, const char *what) {
    const size_t len = strlen(what);
    const char *const end = s + n;
    for (const char *p = s; (size_t)(end - p) >= len; p++) {
        p = memchr(p, what[0], (size_t)(end - p) - len + 1);
        if (!p || !memcmp(p, what, len)) return p;
    }
    return NULL;
}

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
    for (; (p = find_text(p, n - (size_t)(p - text), s->beginning)); p += strlen(s->beginning)) {
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
    const char *found = find_text(w->text + from, w->n - from, w->f->turn_end);
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
