/* SPDX-License-Identifier: Apache-2.0 */
/* Constraint of an answer that may call tools or not. */
#include "chat/calls/call_grammar.h"
#include "chat/conversation.h"
#include "chat/message.h"
#include "core/fail.h"

#include <antigravity/constrain.h>

typedef struct calls {
    const ag_chat *c;
    const ag_constraint_vocab *vocab;
    const ag_constraint_params *limits;
    ag_call_free_params params;
    ag_error *err;
} calls;

static ag_status create(calls *x, const json_t *tools, ag_constraint **out) {
    ag_text grammar = {0};
    ag_status st = ag_call_free_grammar(x->c->format, tools, &x->params, &grammar, x->err);
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

ag_status ag_chat_constrain_calls(const ag_chat *c, const ag_constraint_vocab *v,
                                  const ag_constraint_params *limits, unsigned flags,
                                  ag_constraint **out, ag_error *err) {
    calls x = {.c = c, .vocab = v, .limits = limits, .err = err};
    x.params.several = flags & AG_CHAT_SEVERAL_CALLS;
    x.params.in_reasoning = c->starts_in_reasoning;
    *out = NULL;
    if (!c->tools || c->no_calls) return AG_OK;
    ag_status st = create(&x, c->tools, out);
    if (st == AG_OK || is_other_failure(st)) return st;
    json_t *loose = json_object();
    st = loose ? find_loose(&x, loose) : no_memory(&x);
    x.params.loose = loose;
    if (st == AG_OK) st = create(&x, c->tools, out);
    json_decref(loose);
    return is_other_failure(st) ? st : AG_OK;
}
