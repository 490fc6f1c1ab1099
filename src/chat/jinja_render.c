/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/jinja_eval.h"
#include "chat/jinja_list.h"
#include "chat/jinja_ops.h"
#include "chat/jinja_string.h"
#include "core/alloc.h"
#include "core/fail.h"

#include <string.h>

static ag_jinja_limits complete(ag_jinja_limits l) {
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

/* The input, the template's own words, then the environment's globals. */
static ag_jv initial_value(ag_jctx *c, uint32_t id) {
    const ag_jstr *name = c->t->names[id];
    const json_t *v = member(c->in->variables, name);
    if (v) return ag_jfrom_json(c, v, true);
    const json_t *own = member(c->in->trusted, name);
    if (own) return ag_jfrom_json(c, own, false);
    if (id == c->t->self_id) return (ag_jv){.kind = AG_JSELF};
    int global = ag_jglobal_find(name);
    return global < 0 ? ag_jfail_value() : (ag_jv){AG_JFUNCTION, {.integer = global}};
}

static bool set_root(ag_jctx *c) {
    c->root = ag_jtake_zeroed(c, c->t->n_names * sizeof *c->root + 1);
    for (uint32_t i = 0; c->root && i < c->t->n_names; i++) {
        if (c->t->is_read[i]) c->root[i] = initial_value(c, i);
        if (c->status != AG_OK) return false;
    }
    return c->root != NULL;
}

static ag_status copy_out(const ag_jbuf *b, ag_jinja_output *out, ag_error *err) {
    out->text = ag_malloc(b->len + 1);
    if (b->n_spans) out->spans = ag_malloc(b->n_spans * sizeof *out->spans);
    if (!out->text || (b->n_spans && !out->spans)) {
        return AG_FAIL(err, NOMEM, "rendered text of %zu bytes", b->len);
    }
    if (b->len) memcpy(out->text, b->text, b->len);
    out->text[b->len] = '\0';
    out->len = b->len;
    if (b->n_spans) memcpy(out->spans, b->spans, b->n_spans * sizeof *out->spans);
    out->n_spans = b->n_spans;
    return AG_OK;
}

ag_status ag_jinja_render(const ag_jinja *t, const ag_jinja_input *in, ag_jinja_output *out,
                          ag_error *err) {
    *out = (ag_jinja_output){0};
    ag_jinja_input input = *in;
    input.limits = complete(in->limits);
    ag_jctx c = {.t = t, .in = &input, .err = err};
    c.arena.limit = input.limits.memory_bytes;
    c.steps = input.limits.steps;
    c.depth = input.limits.depth;
    c.out = ag_jbuf_create(&c);
    if (c.out) c.out->most = input.limits.output_bytes;
    if (c.out && set_root(&c)) ag_jexec(&c, &t->body);
    if (c.status == AG_OK) c.status = copy_out(c.out, out, err);
    if (c.status != AG_OK) ag_jinja_output_free(out);
    ag_jinja_arena_free(&c.arena);
    return c.status;
}

void ag_jinja_output_free(ag_jinja_output *out) {
    ag_free(out->text);
    ag_free(out->spans);
    *out = (ag_jinja_output){0};
}
