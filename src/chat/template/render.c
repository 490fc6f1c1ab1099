/* SPDX-License-Identifier: Apache-2.0 */
/* A conversation as text and as ids. */
#include "chat/answers/placeholder.h"
#include "chat/conversation.h"
#include "chat/json_scan.h"
#include "chat/message.h"
#include "chat/template/normalise.h"
#include "core/fail.h"
#include "text/bytes.h"

#include <string.h>
#include <time.h>

/* Stands behind the text of a last message that is to be gone on with. */
static const char more_to_come[] = "Q7vzContinuesHere";

typedef struct rendering {
    ag_chat *c;
    unsigned flags;
    ag_chat_stand_ins answers;
    ag_jinja_output out;
    size_t end; /* of out.text, as far as it counts */
    ag_cut_list cuts;
} rendering;

/* ---- variables ---- */

/* Takes over `messages`: *out has them with `more_to_come` after the text of the last one. */
static ag_status replace_last(json_t *messages, const json_t *content, json_t **out,
                              ag_error *err) {
    const size_t last = json_array_size(messages) - 1;
    json_t *m = json_copy(json_array_get(messages, last));
    ag_text text = {0};
    ag_status st = ag_chat_append_content(content, &text, err);
    if (st == AG_OK) st = ag_text_append(&text, more_to_come, sizeof more_to_come - 1, err);
    const bool ok =
        st == AG_OK &&
        json_object_set_new(m, "content", json_stringn_nocheck(text.data, text.len)) == 0 &&
        json_array_set(messages, last, m) == 0;
    ag_text_free(&text);
    json_decref(m);
    *out = ok ? messages : NULL;
    if (ok) return AG_OK;
    json_decref(messages);
    return st != AG_OK ? st : AG_FAIL(err, NOMEM, "messages of a conversation");
}

/* *out: NULL without messages. */
static ag_status with_mark(json_t *messages, json_t **out, ag_error *err) {
    const size_t n = json_array_size(messages);
    *out = NULL;
    if (!n) return AG_OK;
    json_t *copy = json_copy(messages);
    if (!copy) return AG_FAIL(err, NOMEM, "messages of a conversation");
    const json_t *content = json_object_get(json_array_get(messages, n - 1), "content");
    return replace_last(copy, content, out, err);
}

static void clock_of(const ag_chat *c, struct tm *now) {
    const time_t seconds = c->has_clock ? (time_t)c->clock : time(NULL);
    if (c->has_clock) gmtime_r(&seconds, now);
    else localtime_r(&seconds, now);
}

/* Takes over messages and tools (NULL: none). */
static json_t *variables_of(const rendering *r, json_t *messages, json_t *tools,
                            const struct tm *now) {
    const ag_chat *c = r->c;
    const bool none = r->flags & AG_CHAT_NO_REWRITING || c->format->bears & AG_BEARS_NO_TOOLS;
    const bool prompt = !(r->flags & (AG_CHAT_NO_PROMPT | AG_CHAT_CONTINUE));
    json_t *v = json_copy(c->variables);
    if (!tools) tools = none ? json_null() : json_array();
    bool ok = v && json_object_set(v, "messages", messages) == 0 &&
              json_object_set(v, "tools", tools) == 0 &&
              json_object_set_new(v, "add_generation_prompt", json_boolean(prompt)) == 0;
    if (ok && !(r->flags & AG_CHAT_NO_REWRITING))
        ok = ag_chat_add_other_names(c->format, c->tools, v, now);
    json_decref(messages);
    json_decref(tools);
    if (ok) return v;
    json_decref(v);
    return NULL;
}

/* ---- text ---- */

static ag_status fitted(const rendering *r, json_t **messages, json_t **tools, ag_error *err) {
    ag_chat view = *r->c;
    if (r->answers.messages) view.messages = r->answers.messages;
    json_t *marked = NULL;
    if (r->flags & AG_CHAT_CONTINUE) AG_TRY(with_mark(view.messages, &marked, err));
    if (marked) view.messages = marked;
    ag_status st = AG_OK;
    if (r->flags & AG_CHAT_NO_REWRITING) {
        *messages = json_incref(view.messages);
        *tools = json_incref(view.tools);
    } else {
        st = ag_chat_normalise(&view, messages, tools, err);
    }
    json_decref(marked);
    return st;
}

static ag_status render_variables(rendering *r, json_t *variables, const struct tm *now,
                                  ag_error *err) {
    const ag_chat_format *f = r->c->format;
    ag_error why = {0};
    const ag_jinja_limits limits = {.memory_bytes = r->c->memory_limit};
    ag_jinja_usage *usage = &r->c->usage;
    ag_jinja_output_free(&r->out);
    ag_status st = ag_chat_format_render(f, variables, now, limits, usage, &r->out, &why);
    /* Some want a list of tools in certain conversations only: with documents. */
    if (st == AG_INVALID && json_is_null(json_object_get(variables, "tools")) &&
        !(r->flags & AG_CHAT_NO_REWRITING)) {
        ag_jinja_output_free(&r->out);
        if (json_object_set_new(variables, "tools", json_array()) != 0) {
            return AG_FAIL(err, NOMEM, "variables of the chat template");
        }
        st = ag_chat_format_render(f, variables, now, limits, usage, &r->out, &why);
    }
    if (st != AG_OK && err) *err = why;
    return st;
}

static ag_status render_text(rendering *r, ag_error *err) {
    json_t *messages, *tools;
    struct tm now;
    AG_TRY(fitted(r, &messages, &tools, err));
    clock_of(r->c, &now);
    json_t *variables = variables_of(r, messages, tools, &now);
    if (!variables) return AG_FAIL(err, NOMEM, "variables of the chat template");
    const ag_status st = render_variables(r, variables, &now, err);
    json_decref(variables);
    AG_TRY(st);
    r->end = r->out.len;
    if (!(r->flags & AG_CHAT_CONTINUE)) return AG_OK;
    const char *last = NULL;
    for (const char *p = r->out.text; (p = strstr(p, more_to_come)); p++) last = p;
    if (!last) return AG_FAIL(err, UNSUPPORTED, "the chat template hides the text to go on with");
    r->end = (size_t)(last - r->out.text);
    return AG_OK;
}

/* Renders until the place of every sampled answer is known, or given up. */
static ag_status render_answers(rendering *r, ag_error *err) {
    bool missed = true;
    for (int round = 0; missed; round++) {
        for (size_t i = 0; round == 2 && i < r->answers.n; i++) r->answers.list[i].answer = NULL;
        AG_TRY(ag_chat_stand_in_for(r->c, &r->answers, err));
        AG_TRY(render_text(r, err));
        r->cuts.n = 0;
        AG_TRY(ag_chat_cut_answers(r->c, &r->answers, &r->out, r->end, &r->cuts, &missed, err));
    }
    return AG_OK;
}

static ag_status append_ids(rendering *r, ag_ids *ids, ag_error *err) {
    const ag_chat_format *f = r->c->format;
    if (!f->tokenizer) return AG_FAIL(err, INVALID, "ids of a chat format without a tokenizer");
    if (r->answers.n == 0) { AG_TRY(ag_chat_find_cuts(f, &r->out, 0, r->end, &r->cuts, err)); }
    return ag_tokenizer_encode_cut(f->tokenizer, r->out.text, r->end, r->cuts.cuts, r->cuts.n, ids,
                                   err);
}

static bool ends_open(const ag_chat_format *f, const char *s, size_t n) {
    const size_t len = strlen(f->reasoning_open);
    while (n && ag_is_json_space(s[n - 1])) n--;
    return n >= len && !memcmp(s + n - len, f->reasoning_open, len);
}

ag_status ag_chat_render(ag_chat *c, unsigned flags, ag_ids *ids, ag_text *text, ag_error *err) {
    rendering r = {.c = c, .flags = flags};
    const size_t n_ids = ids ? ids->n : 0;
    ag_status st = AG_OK;
    c->begun.len = 0;
    c->no_calls = flags & AG_CHAT_NO_CALLS;
    const bool wants_answers = ids && c->n_answers && !(flags & AG_CHAT_NO_REWRITING);
    if (wants_answers) st = ag_chat_find_answers(c, &r.answers, err);
    if (st == AG_OK) st = r.answers.n ? render_answers(&r, err) : render_text(&r, err);
    if (st == AG_OK && ids) st = append_ids(&r, ids, err);
    if (st == AG_OK) {
        c->is_open = !(flags & (AG_CHAT_NO_PROMPT | AG_CHAT_CONTINUE)) &&
                     ends_open(c->format, r.out.text, r.end);
    }
    if (st == AG_OK && text && r.answers.n) {
        json_decref(r.answers.messages);
        r.answers.messages = NULL;
        st = render_text(&r, err);
    }
    if (st == AG_OK && text) st = ag_text_append(text, r.out.text, r.end, err);
    if (st != AG_OK && ids) ids->n = n_ids;
    ag_chat_stand_ins_free(&r.answers);
    ag_cut_list_free(&r.cuts);
    ag_jinja_output_free(&r.out);
    return st;
}

size_t ag_chat_common_prefix(const ag_ids *a, const ag_ids *b) {
    size_t n = 0;
    while (n < a->n && n < b->n && a->data[n] == b->data[n]) n++;
    return n;
}
