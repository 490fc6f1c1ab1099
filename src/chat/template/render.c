/* SPDX-License-Identifier: Apache-2.0 */
/* Renders a conversation as text and as ids. */
#include "chat/answers/placeholder.h"
#include "chat/answers/sampled_body.h"
#include "chat/conversation.h"
#include "chat/message.h"
#include "chat/template/normalise.h"
#include "core/fail.h"
#include "text/bytes.h"

#include <string.h>
#include <time.h>

/* Marks the end of a last message that the answer continues. */
static const char end_sentinel[] = "Q7vzContinuesHere";

typedef struct rendering {
    ag_chat *c;
    unsigned flags;
    ag_placeholders placeholders;
    ag_jinja_output out;
    size_t end; /* end of the part of out.text that counts */
    ag_id_range_list ranges;
} rendering;

/* ---- variables ---- */

/* *out: a copy of the messages with end_sentinel after the last text; NULL if there are none. */
static ag_status with_sentinel(json_t *messages, json_t **out, ag_error *err) {
    const size_t n = json_array_size(messages);
    *out = NULL;
    if (!n) return AG_OK;
    json_t *copy = json_copy(messages), *m = json_copy(json_array_get(messages, n - 1));
    ag_text text = {0};
    ag_status st = ag_chat_append_content(json_object_get(m, "content"), &text, err);
    if (st == AG_OK) st = ag_text_append_string(&text, end_sentinel, err);
    if (st == AG_OK &&
        (json_object_set_new(m, "content", json_stringn_nocheck(text.data, text.len)) != 0 ||
         json_array_set(copy, n - 1, m) != 0)) {
        st = AG_FAIL(err, NOMEM, "messages of a conversation");
    }
    ag_text_free(&text);
    json_decref(m);
    if (st == AG_OK) *out = copy;
    else json_decref(copy);
    return st;
}

static void clock_of(const ag_chat *c, struct tm *now) {
    const time_t seconds = c->has_clock ? (time_t)c->clock : time(NULL);
    if (c->has_clock) gmtime_r(&seconds, now);
    else localtime_r(&seconds, now);
}

/* Returns the template's variables; NULL if out of memory. Takes over messages and tools (NULL:
 * none). */
static json_t *variables_of(const rendering *r, json_t *messages, json_t *tools,
                            const struct tm *now) {
    const ag_chat *c = r->c;
    const bool none = r->flags & AG_CHAT_NO_REWRITING || c->format->accepts & AG_ACCEPTS_NULL_TOOLS;
    const bool prompt = !(r->flags & (AG_CHAT_NO_PROMPT | AG_CHAT_CONTINUE));
    json_t *v = json_copy(c->variables);
    if (!tools) tools = none ? json_null() : json_array();
    bool ok = v && json_object_set(v, "messages", messages) == 0 &&
              json_object_set(v, "tools", tools) == 0 &&
              json_object_set_new(v, "add_generation_prompt", json_boolean(prompt)) == 0;
    if (ok && !(r->flags & AG_CHAT_NO_REWRITING))
        ok = ag_chat_format_add_aliases(c->format, c->tools, v, now);
    json_decref(messages);
    json_decref(tools);
    if (ok) return v;
    json_decref(v);
    return NULL;
}

/* ---- text ---- */

/* *messages, *tools: what the template gets; owned. Contains the placeholders and, for
 * AG_CHAT_CONTINUE, end_sentinel. */
static ag_status make_messages(const rendering *r, json_t **messages, json_t **tools,
                               ag_error *err) {
    ag_chat view = *r->c;
    if (r->placeholders.messages) view.messages = r->placeholders.messages;
    json_t *with_end = NULL;
    if (r->flags & AG_CHAT_CONTINUE) AG_TRY(with_sentinel(view.messages, &with_end, err));
    if (with_end) view.messages = with_end;
    ag_status st = AG_OK;
    if (r->flags & AG_CHAT_NO_REWRITING) {
        *messages = json_incref(view.messages);
        *tools = json_incref(view.tools);
    } else {
        st = ag_chat_normalise(&view, messages, tools, err);
    }
    json_decref(with_end);
    return st;
}

/* Renders to r->out. */
static ag_status render_variables(rendering *r, json_t *variables, const struct tm *now,
                                  ag_error *err) {
    const ag_chat_format *f = r->c->format;
    ag_error render_err = {0};
    const ag_jinja_limits limits = {.memory_bytes = r->c->memory_limit};
    ag_jinja_usage *usage = &r->c->usage;
    ag_jinja_output_free(&r->out);
    ag_status st = ag_chat_format_render(f, variables, now, limits, usage, &r->out, &render_err);
    /* Some templates need a list of tools in some conversations only, such as with documents. */
    if (st == AG_INVALID && json_is_null(json_object_get(variables, "tools")) &&
        !(r->flags & AG_CHAT_NO_REWRITING)) {
        ag_jinja_output_free(&r->out);
        if (json_object_set_new(variables, "tools", json_array()) != 0) {
            return AG_FAIL(err, NOMEM, "variables of the chat template");
        }
        st = ag_chat_format_render(f, variables, now, limits, usage, &r->out, &render_err);
    }
    if (st != AG_OK && err) *err = render_err;
    return st == AG_OK ? ag_preamble_expand(r->c->preamble, &r->out, err) : st;
}

/* Renders to r->out, and sets r->end: for AG_CHAT_CONTINUE, where end_sentinel begins. */
static ag_status render_text(rendering *r, ag_error *err) {
    json_t *messages, *tools;
    struct tm now;
    AG_TRY(make_messages(r, &messages, &tools, err));
    clock_of(r->c, &now);
    json_t *variables = variables_of(r, messages, tools, &now);
    if (!variables) return AG_FAIL(err, NOMEM, "variables of the chat template");
    const ag_status st = render_variables(r, variables, &now, err);
    json_decref(variables);
    AG_TRY(st);
    r->end = r->out.len;
    if (!(r->flags & AG_CHAT_CONTINUE)) return AG_OK;
    const char *last = NULL;
    for (const char *p = r->out.text; (p = strstr(p, end_sentinel)); p++) last = p;
    if (!last)
        return AG_FAIL(err, UNSUPPORTED, "the chat template does not write the text to continue");
    r->end = (size_t)(last - r->out.text);
    return AG_OK;
}

/* Renders until the location of each sampled answer is certain. In the third round the rest are
 * rendered as text. */
static ag_status render_answers(rendering *r, ag_error *err) {
    bool missed = true;
    for (int round = 0; missed; round++) {
        for (size_t i = 0; round == 2 && i < r->placeholders.n; i++)
            r->placeholders.list[i].answer = NULL;
        AG_TRY(ag_placeholders_insert(r->c, &r->placeholders, err));
        AG_TRY(render_text(r, err));
        r->ranges.n = 0;
        AG_TRY(ag_placeholders_locate(r->c, &r->placeholders, &r->out, r->end, &r->ranges, &missed,
                                      err));
    }
    return AG_OK;
}

/* Returns whether sampled ids are found by the text of harmony messages, not by placeholders. */
static bool is_harmony(const ag_chat *c) { return c->format->calls.kind == AG_CALLS_HARMONY; }

static ag_status encode_output(rendering *r, ag_ids *ids, ag_error *err) {
    const ag_chat_format *f = r->c->format;
    if (!f->tokenizer)
        return AG_FAIL(err, INVALID,
                       "token ids need a tokenizer: the chat format was created without one");
    if (is_harmony(r->c) && !(r->flags & AG_CHAT_NO_REWRITING)) {
        AG_TRY(ag_sampled_bodies_locate(r->c, &r->out, r->end, &r->ranges, err));
    } else if (r->placeholders.n == 0) {
        AG_TRY(ag_special_text_find_ranges(f, &r->out, 0, r->end, &r->ranges, err));
    }
    return ag_tokenizer_encode_ranges(f->tokenizer, r->out.text, r->end, r->ranges.ranges,
                                      r->ranges.n, ids, err);
}

ag_status ag_chat_render(ag_chat *c, unsigned flags, ag_ids *ids, ag_text *text, ag_error *err) {
    rendering r = {.c = c, .flags = flags};
    const size_t n_ids = ids ? ids->n : 0;
    ag_status st = AG_OK;
    ag_preamble_choose(c->preamble);
    c->call_prefix.len = 0;
    c->no_calls = flags & AG_CHAT_NO_CALLS;
    const bool has_placeholders =
        ids && c->n_answers && !(flags & AG_CHAT_NO_REWRITING) && !is_harmony(c);
    if (has_placeholders) st = ag_placeholders_find(c, &r.placeholders, err);
    if (st == AG_OK) st = r.placeholders.n ? render_answers(&r, err) : render_text(&r, err);
    if (st == AG_OK && ids) st = encode_output(&r, ids, err);
    if (st == AG_OK) {
        c->starts_in_reasoning = !(flags & (AG_CHAT_NO_PROMPT | AG_CHAT_CONTINUE)) &&
                                 ag_chat_format_ends_in_reasoning(c->format, r.out.text, r.end);
    }
    if (st == AG_OK && text && r.placeholders.n) {
        json_decref(r.placeholders.messages);
        r.placeholders.messages = NULL;
        st = render_text(&r, err);
    }
    if (st == AG_OK && text) st = ag_text_append(text, r.out.text, r.end, err);
    if (st != AG_OK && ids) ids->n = n_ids;
    ag_placeholders_free(&r.placeholders);
    ag_id_range_list_free(&r.ranges);
    ag_jinja_output_free(&r.out);
    return st;
}

size_t ag_chat_common_prefix(const ag_ids *a, const ag_ids *b) {
    size_t n = 0;
    while (n < a->n && n < b->n && a->data[n] == b->data[n]) n++;
    return n;
}
