/* SPDX-License-Identifier: Apache-2.0 */
#include "core/alloc.h"
#include "jinja/builtins/globals.h"
#include "jinja/eval.h"
#include "jinja/value/list.h"
#include "jinja/value/string.h"

#include <string.h>

static ag_jinja_limits with_defaults(ag_jinja_limits l) {
    if (!l.steps) l.steps = AG_JINJA_STEPS;
    if (!l.depth) l.depth = AG_JINJA_DEPTH;
    if (!l.output_bytes) l.output_bytes = AG_JINJA_OUTPUT_BYTES;
    if (!l.memory_bytes) l.memory_bytes = AG_JINJA_MEMORY_BYTES;
    return l;
}

static const json_t *member(const json_t *object, const ag_jstr *name) {
    char key[256];
    if (!object || name->len >= sizeof key) return NULL;
    memcpy(key, name->text, name->len);
    key[name->len] = '\0';
    return json_object_get(object, key);
}

/* Looks up a name in the variables, the trusted variables and the functions of the environment, in
 * this order. Returns AG_JFAIL if it is in none of them. */
static ag_jv initial_value(ag_jctx *c, uint32_t id) {
    const ag_jstr *name = c->t->names[id];
    const json_t *v = member(c->in->variables, name);
    if (v) return ag_jfrom_json(c, v, true);
    const json_t *own = member(c->in->trusted, name);
    if (own) return ag_jfrom_json(c, own, false);
    int global = ag_jglobal_find(name);
    return global < 0 ? ag_jfail_value() : (ag_jv){AG_JFUNCTION, {.integer = global}};
}

static bool set_root(ag_jctx *c) {
    c->root = ag_jalloc_zeroed(c, c->t->n_names * sizeof *c->root + 1);
    for (uint32_t i = 0; c->root && i < c->t->n_names; i++) {
        if (c->t->is_read[i]) c->root[i] = initial_value(c, i);
        if (c->status != AG_OK) return false;
    }
    return c->root != NULL;
}

static void report_usage(const ag_jctx *c, ag_jinja_usage *usage) {
    if (!usage) return;
    *usage = (ag_jinja_usage){
        .steps = c->in->limits.steps - c->steps,
        .peak_bytes = c->memory.peak,
        .over_steps = c->over_steps,
        .over_memory = c->memory.over_limit,
    };
}

ag_status ag_jinja_render(const ag_jinja *t, const ag_jinja_input *in, ag_jinja_output *out,
                          ag_error *err) {
    *out = (ag_jinja_output){0};
    ag_jinja_input input = *in;
    input.limits = with_defaults(in->limits);
    ag_jctx c;
    ag_jctx_init(&c, t, &input, err);
    c.out = ag_jbuf_create(&c);
    if (c.out) c.out->max_len = input.limits.output_bytes;
    if (c.out && set_root(&c)) ag_jexec(&c, &t->body);
    if (c.status == AG_OK) ag_jbuf_move_out(&c, c.out, out);
    if (c.status != AG_OK) ag_jinja_output_free(out);
    report_usage(&c, in->usage);
    ag_jctx_free(&c);
    return c.status;
}

void ag_jinja_output_free(ag_jinja_output *out) {
    ag_free(out->text);
    ag_free(out->spans);
    *out = (ag_jinja_output){0};
}
