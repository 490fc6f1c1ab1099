/* SPDX-License-Identifier: Apache-2.0 */
/* Constraints of answers that may call tools or not, with free or constrained content. */
#include "chat/calls/call_grammar.h"
#include "chat/calls/grammar_text.h"
#include "chat/conversation.h"
#include "chat/json_text.h"
#include "chat/message.h"
#include "core/fail.h"
#include "formats/json.h"
#include "text/bytes.h"

#include <antigravity/constrain.h>
#include <string.h>

typedef struct calls {
    const ag_chat *c;
    const ag_constraint_vocab *vocab;
    const ag_constraint_params *limits;
    ag_call_free_params params;
    const char *content; /* part of a grammar that the content matches; NULL: it is free */
    ag_error *err;
} calls;

static ag_status create(calls *x, const json_t *tools, ag_constraint **out) {
    ag_text grammar = {0};
    const ag_chat_format *f = x->c->format;
    ag_status st = x->content ? ag_call_content_grammar(f, tools, x->params.loose, x->content,
                                                        &grammar, x->err)
                              : ag_call_free_grammar(f, tools, &x->params, &grammar, x->err);
    ag_constraint_params p = *x->limits;
    p.kind = AG_CONSTRAINT_GRAMMAR;
    p.text = grammar.data;
    p.len = grammar.len;
    if (st == AG_OK) st = ag_constraint_create(x->vocab, &p, out, x->err);
    ag_text_free(&grammar);
    return st;
}

/* Returns whether a failure is not about the tools. */
static bool is_other_failure(ag_status st) { return st == AG_NOMEM || st == AG_CANCELLED; }

static ag_status no_memory(const calls *x) {
    return AG_FAIL(x->err, NOMEM, "constraint of %zu tools", json_array_size(x->c->tools));
}

/* Adds the names of tools whose parameters cannot be constrained to `loose`. */
static ag_status find_loose(calls *x, json_t *loose) {
    json_t *tool;
    size_t i;
    json_array_foreach(x->c->tools, i, tool) {
        ag_constraint *one = NULL;
        json_t *list = json_pack("[O]", tool);
        const ag_status st = list ? create(x, list, &one) : no_memory(x);
        json_decref(list);
        ag_constraint_destroy(one);
        if (st == AG_OK) continue;
        if (is_other_failure(st)) return st;
        json_t *name = json_object_get(ag_chat_function(tool), "name");
        if (json_object_set_new(loose, json_string_value(name), json_true()) != 0)
            return no_memory(x);
    }
    return AG_OK;
}

/* Creates the constraint; tools whose parameters cannot be constrained may get any object. */
static ag_status create_with_loose_tools(calls *x, ag_constraint **out) {
    json_t *loose = json_object();
    ag_status st = loose ? find_loose(x, loose) : no_memory(x);
    x->params.loose = loose;
    if (st == AG_OK) st = create(x, x->c->tools, out);
    x->params.loose = NULL;
    json_decref(loose);
    return st;
}

ag_status ag_chat_constrain_calls(const ag_chat *c, const ag_constraint_vocab *v,
                                  const ag_constraint_params *limits, unsigned flags,
                                  ag_constraint **out, ag_error *err) {
    calls x = {.c = c, .vocab = v, .limits = limits, .err = err};
    x.params.several = flags & AG_CHAT_SEVERAL_CALLS;
    x.params.in_reasoning = c->starts_in_reasoning;
    *out = NULL;
    if (!c->tools || c->no_calls) return AG_OK;
    ag_status st = create(&x, c->tools, out);
    if (st != AG_OK && !is_other_failure(st)) st = create_with_loose_tools(&x, out);
    return is_other_failure(st) ? st : AG_OK;
}

/* Appends the choices as alternatives. */
static ag_status append_choices(const ag_constraint_params *p, ag_text *out, ag_error *err) {
    ag_call_writer w = {.out = out, .err = err};
    for (size_t i = 0; i < p->n_choices; i++) {
        AG_TRY(ag_call_put(&w, i ? "| " : "("));
        AG_TRY(ag_call_put_quoted(&w, p->choices[i], strlen(p->choices[i])));
    }
    return ag_call_put(&w, ")");
}

/* Appends a regular expression or a grammar, which keeps its own names of rules. */
static ag_status append_text(const ag_constraint_params *p, ag_text *out, ag_error *err) {
    const bool is_regex = p->kind == AG_CONSTRAINT_REGEX;
    AG_TRY(ag_text_append_string(out, is_regex ? "%regex " : "%grammar ", err));
    return ag_json_text_quote(p->text ? p->text : "", p->text ? p->len : 0, out, err);
}

static ag_status append_schema(const ag_constraint_params *p, ag_text *out, ag_error *err) {
    json_t *schema;
    AG_TRY(ag_json_parse(p->text, p->len, "schema", &schema, err));
    ag_status st = ag_text_append_string(out, "%json ", err);
    if (st == AG_OK) st = ag_json_text_append(schema, out, err);
    json_decref(schema);
    return st;
}

/* Appends the part of a grammar that matches the content; nothing if there are no choices. */
static ag_status append_content(const ag_constraint_params *p, ag_text *out, ag_error *err) {
    if (p->kind == AG_CONSTRAINT_JSON_SCHEMA) return append_schema(p, out, err);
    if (p->kind == AG_CONSTRAINT_JSON_OBJECT)
        return ag_text_append_string(out, "%json {\"type\": \"object\"}", err);
    if (p->kind != AG_CONSTRAINT_CHOICES) return append_text(p, out, err);
    return p->n_choices ? append_choices(p, out, err) : AG_OK;
}

/* Fails with the error of the content's own text, if it has one. */
static ag_status check_content(const calls *x) {
    ag_constraint *alone;
    const ag_status st = ag_constraint_create(x->vocab, x->limits, &alone, x->err);
    ag_constraint_destroy(alone);
    return st;
}

/* Creates the constraint, without calls if they cannot be constrained. */
static ag_status create_with_content(calls *x, bool has_tools, ag_constraint **out) {
    ag_status st = create(x, has_tools ? x->c->tools : NULL, out);
    if (st == AG_OK || is_other_failure(st)) return st;
    AG_TRY(check_content(x));
    if (!has_tools) return st;
    st = create_with_loose_tools(x, out);
    if (st == AG_OK || is_other_failure(st)) return st;
    return create(x, NULL, out);
}

ag_status ag_chat_constrain_content(const ag_chat *c, const ag_constraint_vocab *v,
                                    const ag_constraint_params *content, ag_constraint **out,
                                    ag_error *err) {
    calls x = {.c = c, .vocab = v, .limits = content, .err = err};
    ag_text part = {0};
    *out = NULL;
    if (c->format->calls.kind != AG_CALLS_HARMONY) return AG_OK;
    ag_status st = append_content(content, &part, err);
    x.content = part.data;
    if (st == AG_OK && part.len) st = create_with_content(&x, c->tools && !c->no_calls, out);
    ag_text_free(&part);
    return st;
}
