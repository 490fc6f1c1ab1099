/* SPDX-License-Identifier: Apache-2.0 */
#include "constrain/schema/compiler.h"

#include "constrain/interrupts.h"
#include "core/alloc.h"
#include "core/fail.h"

#include <string.h>

enum { MAX_SHAPER_BYTES = 256 << 20 };

struct ag_dfa_list {
    ag_text_dfa dfa;
    ag_dfa_list *next;
    const char *regex; /* [n] that it is of; NULL: another */
    size_t n;
    bool search;
    ag_dfa_list *same_hash;
};

ag_status ag_shaper_init(ag_shaper *s, const char *text, size_t n, const ag_text_limits *limits,
                         ag_error *err) {
    *s = (ag_shaper){.limits = *limits, .most_work = limits->work / 16, .err = err};
    s->arena.most = MAX_SHAPER_BYTES;
    AG_TRY(ag_schema_doc_load(&s->doc, text, n, err));
    uint32_t any;
    return ag_interner_add(&s->goals, NULL, 0, limits->states, "a schema", &any, err);
}

void ag_shaper_free(ag_shaper *s) {
    for (ag_dfa_list *d = s->dfas; d; d = d->next) ag_text_dfa_free(&d->dfa);
    ag_arena_free(&s->arena);
    ag_interner_free(&s->goals);
    ag_free(s->expanded);
    ag_schema_doc_free(&s->doc);
}

ag_status ag_shaper_no_memory(ag_shaper *s) {
    if (s->arena.bytes > MAX_SHAPER_BYTES / 2) {
        return AG_FAIL(s->err, LIMIT, "a schema that takes more than %d MiB to compile",
                       MAX_SHAPER_BYTES >> 20);
    }
    return AG_FAIL(s->err, NOMEM, "schema compiler");
}

void *ag_shaper_get(ag_shaper *s, size_t n, size_t size) {
    return ag_arena_get(&s->arena, n, size);
}

ag_status ag_shaper_keep(ag_shaper *s, ag_text_dfa *d, const ag_text_dfa **out) {
    ag_dfa_list *kept = ag_shaper_get(s, 1, sizeof *kept);
    if (!kept) {
        ag_text_dfa_free(d);
        return ag_shaper_no_memory(s);
    }
    kept->dfa = *d;
    kept->next = s->dfas;
    s->dfas = kept;
    *d = (ag_text_dfa){0};
    *out = &kept->dfa;
    return AG_OK;
}

ag_status ag_shaper_regex(ag_shaper *s, const char *regex, size_t n, bool search,
                          const ag_text_dfa **out) {
    uint32_t hash = search;
    for (size_t i = 0; i < n; i++) hash = (hash ^ (uint8_t)regex[i]) * 0x01000193u;
    ag_dfa_list **known = &s->regexes[(hash ^ hash >> 15) % 256];
    for (ag_dfa_list *d = *known; d; d = d->same_hash) {
        if (d->n != n || d->search != search || memcmp(d->regex, regex, n) != 0) continue;
        *out = &d->dfa;
        return AG_OK;
    }
    ag_text_dfa made;
    AG_TRY(ag_text_dfa_regex(&made, regex, n, search, &s->limits, s->err));
    AG_TRY(ag_shaper_keep(s, &made, out));
    ag_dfa_list *kept = s->dfas;
    kept->regex = regex;
    kept->n = n;
    kept->search = search;
    kept->same_hash = *known;
    *known = kept;
    return AG_OK;
}

ag_status ag_shaper_charge(ag_shaper *s, size_t steps) {
    s->work += steps;
    if (s->work <= s->most_work) return ag_compile_steps(steps, s->err);
    return AG_FAIL(s->err, LIMIT, "schema: more than %zu steps of combining", s->most_work);
}

static ag_status add_goal(ag_shaper *s, const uint32_t *list, size_t n, ag_goal *out) {
    return ag_interner_add(&s->goals, list, n, s->limits.states, "a schema", out, s->err);
}

ag_status ag_goal_of(ag_shaper *s, uint32_t schema, bool negative, ag_goal *out) {
    const json_t *v = s->doc.schemas[schema].value;
    if (json_is_boolean(v) || (json_is_object(v) && !json_object_size(v))) {
        const bool holds = !json_is_false(v) != negative;
        *out = holds ? AG_GOAL_ANY : AG_GOAL_NEVER;
        return AG_OK;
    }
    const uint32_t one = 2 * schema + negative;
    return add_goal(s, &one, 1, out);
}

ag_status ag_goal_and(ag_shaper *s, ag_goal a, ag_goal b, ag_goal *out) {
    *out = AG_GOAL_NEVER;
    if (a == AG_GOAL_NEVER || b == AG_GOAL_NEVER) return AG_OK;
    *out = a == AG_GOAL_ANY ? b : a;
    if (a == AG_GOAL_ANY || b == AG_GOAL_ANY || a == b) return AG_OK;
    size_t n_a, n_b, n = 0;
    const uint32_t *x = ag_interner_list(&s->goals, a, &n_a);
    const uint32_t *y = ag_interner_list(&s->goals, b, &n_b);
    uint32_t *both = ag_shaper_get(s, n_a + n_b, sizeof *both);
    if (!both) return ag_shaper_no_memory(s);
    /* In the order of a, then what only b has: the order of properties follows it. */
    for (size_t i = 0; i < n_a; i++) both[n++] = x[i];
    for (size_t i = 0; i < n_b; i++) {
        bool known = false;
        for (size_t k = 0; k < n_a; k++) known |= x[k] == y[i];
        for (size_t k = 0; k < n_a; k++) {
            if ((x[k] ^ 1) != y[i]) continue;
            *out = AG_GOAL_NEVER; /* a schema and its opposite */
            return AG_OK;
        }
        if (!known) both[n++] = y[i];
    }
    return add_goal(s, both, n, out);
}

ag_status ag_schema_malformed(ag_shaper *s, uint32_t id, const char *keyword, const char *why) {
    char place[AG_SCHEMA_PLACE];
    return AG_FAIL(s->err, FORMAT, "schema: %s: %s",
                   ag_schema_doc_place(&s->doc, id, keyword, place), why);
}

ag_status ag_schema_unsupported(ag_shaper *s, uint32_t id, const char *keyword, const char *why) {
    char place[AG_SCHEMA_PLACE];
    return AG_FAIL(s->err, UNSUPPORTED, "schema: %s: %s",
                   ag_schema_doc_place(&s->doc, id, keyword, place), why);
}
