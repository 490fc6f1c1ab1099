/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/context.h"

#include "core/fail.h"
#include "core/interrupt.h"
#include "jinja/parse/template.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { CHECK_STEPS = 4096 }; /* between two calls of the interrupt function */

static ag_jv record(ag_jctx *c, ag_status status, const char *fmt, va_list args) {
    if (c->status != AG_OK) return ag_jfail_value(); /* keep the first error */
    char message[400];
    vsnprintf(message, sizeof message, fmt, args);
    const ag_jnode *at = c->at ? c->at : c->statement;
    c->status = ag_fail(c->err, status, __FILE__, __LINE__, "%s, line %u, in %s: %s", c->t->name,
                        at ? at->line : 1, ag_jnode_construct(c->statement), message);
    return ag_jfail_value();
}

ag_jv ag_jfail(ag_jctx *c, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    ag_jv v = record(c, AG_INVALID, fmt, args);
    va_end(args);
    return v;
}

ag_jv ag_jfail_as(ag_jctx *c, ag_status status, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    ag_jv v = record(c, status, fmt, args);
    va_end(args);
    return v;
}

void ag_jctx_init(ag_jctx *c, const ag_jinja *t, const ag_jinja_input *in, ag_error *err) {
    *c = (ag_jctx){.t = t, .in = in, .err = err, .oldest_store = UINT64_MAX};
    c->memory.limit = in->limits.memory_bytes;
    c->arena.memory = c->permanent.memory = &c->memory;
    c->steps = in->limits.steps;
    c->check_at = c->steps;
    c->depth = in->limits.depth;
}

void ag_jctx_free(ag_jctx *c) {
    ag_jbufs_free(c, NULL);
    ag_jinja_arena_free(&c->arena);
    ag_jinja_arena_free(&c->permanent);
}

void *ag_jfail_memory(ag_jctx *c, size_t bytes) {
    if (c->memory.over_limit) {
        const double mib = (double)c->memory.limit / (1 << 20);
        ag_jfail_as(c, AG_LIMIT, "values and text exceed %.6g MiB", mib);
    } else {
        ag_jfail_as(c, AG_NOMEM, "%zu bytes for values of the template", bytes);
    }
    return NULL;
}

void *ag_jalloc(ag_jctx *c, size_t bytes) {
    void *p = ag_jinja_alloc(&c->arena, bytes);
    return p ? p : ag_jfail_memory(c, bytes);
}

void *ag_jalloc_zeroed(ag_jctx *c, size_t bytes) {
    void *p = ag_jalloc(c, bytes);
    if (p) memset(p, 0, bytes);
    return p;
}

bool ag_jgrow(ag_jctx *c, void *array, size_t n, size_t *cap, size_t size) {
    return ag_jinja_grow(&c->arena, array, n, cap, size) || ag_jfail_memory(c, (n + 1) * size);
}

void *ag_jalloc_permanent(ag_jctx *c, size_t bytes) {
    void *p = ag_jinja_alloc(&c->permanent, bytes);
    return p ? p : ag_jfail_memory(c, bytes);
}

bool ag_jwork_checked(ag_jctx *c, size_t steps) {
    if (steps > c->steps) {
        c->steps = 0;
        c->over_steps = true;
        ag_jfail_as(c, AG_LIMIT, "rendering takes more than %llu steps",
                    (unsigned long long)c->in->limits.steps);
        return false;
    }
    c->steps -= steps;
    c->check_at = c->steps > CHECK_STEPS ? c->steps - CHECK_STEPS : 0;
    if (!ag_interrupted()) return true;
    ag_jfail_as(c, AG_CANCELLED, "interrupted");
    return false;
}

bool ag_jenter(ag_jctx *c) {
    if (c->depth == 0) {
        ag_jfail_as(c, AG_LIMIT, "nesting exceeds %u levels", (unsigned)c->in->limits.depth);
        return false;
    }
    c->depth--;
    return ag_jwork(c, 1) ? true : (c->depth++, false);
}
