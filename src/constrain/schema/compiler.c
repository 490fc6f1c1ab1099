/* SPDX-License-Identifier: Apache-2.0 */
#include "constrain/schema/compiler.h"

#include "constrain/interrupts.h"
#include "core/alloc.h"
#include "core/fail.h"

#include <string.h>

enum { COMPILER_BYTES_MAX = 256 << 20 };

struct ag_dfa_list {
    ag_text_dfa dfa;
    ag_dfa_list *next;
    const char *regex; /* [n] source of the automaton; NULL: not a regular expression */
    size_t n;
    bool search;
    ag_dfa_list *same_hash;
};

ag_status ag_schema_compiler_init(ag_schema_compiler *s, const char *text, size_t n,
                                  const ag_text_limits *limits, ag_error *err) {
    *s = (ag_schema_compiler){.limits = *limits, .max_work = limits->work / 16, .err = err};
    s->arena.max = COMPILER_BYTES_MAX;
    AG_TRY(ag_schema_doc_load(&s->doc, text, n, err));
    uint32_t any;
    return ag_interner_add(&s->sets, NULL, 0, limits->states, "schema", &any, err);
}

void ag_schema_compiler_free(ag_schema_compiler *s) {
    for (ag_dfa_list *d = s->dfas; d; d = d->next) ag_text_dfa_free(&d->dfa);
    ag_arena_free(&s->arena);
    ag_interner_free(&s->sets);
    ag_free(s->expanded);
    ag_schema_doc_free(&s->doc);
}

ag_status ag_schema_no_memory(ag_schema_compiler *s) {
    if (s->arena.bytes > COMPILER_BYTES_MAX / 2) {
        return AG_FAIL(s->err, LIMIT, "schema: too large: compiling takes more than %d MiB",
                       COMPILER_BYTES_MAX >> 20);
    }
    return AG_FAIL(s->err, NOMEM, "schema compiler");
}

void *ag_schema_alloc(ag_schema_compiler *s, size_t n, size_t size) {
    return ag_arena_get(&s->arena, n, size);
}

ag_status ag_schema_adopt(ag_schema_compiler *s, ag_text_dfa *d, const ag_text_dfa **out) {
    ag_dfa_list *copy = ag_schema_alloc(s, 1, sizeof *copy);
    if (!copy) {
        ag_text_dfa_free(d);
        return ag_schema_no_memory(s);
    }
    copy->dfa = *d;
    copy->next = s->dfas;
    s->dfas = copy;
    *d = (ag_text_dfa){0};
    *out = &copy->dfa;
    return AG_OK;
}

ag_status ag_schema_regex(ag_schema_compiler *s, const char *regex, size_t n, bool search,
                          const ag_text_dfa **out) {
    uint32_t hash = search;
    for (size_t i = 0; i < n; i++) hash = (hash ^ (uint8_t)regex[i]) * 0x01000193u;
    ag_dfa_list **bucket = &s->regexes[(hash ^ hash >> 15) % 256];
    for (ag_dfa_list *d = *bucket; d; d = d->same_hash) {
        if (d->n != n || d->search != search || memcmp(d->regex, regex, n) != 0) continue;
        *out = &d->dfa;
        return AG_OK;
    }
    ag_text_dfa made;
    AG_TRY(ag_text_dfa_regex(&made, regex, n, search, &s->limits, s->err));
    AG_TRY(ag_schema_adopt(s, &made, out));
    ag_dfa_list *copy = s->dfas;
    copy->regex = regex;
    copy->n = n;
    copy->search = search;
    copy->same_hash = *bucket;
    *bucket = copy;
    return AG_OK;
}

ag_status ag_schema_charge(ag_schema_compiler *s, size_t steps) {
    s->work += steps;
    if (s->work <= s->max_work) return ag_compile_steps(steps, s->err);
    return AG_FAIL(s->err, LIMIT, "schema: too expensive: combining takes more than %zu steps",
                   s->max_work);
}

static ag_status intern_set(ag_schema_compiler *s, const uint32_t *list, size_t n,
                            ag_schema_set *out) {
    return ag_interner_add(&s->sets, list, n, s->limits.states, "schema", out, s->err);
}

ag_status ag_schema_set_of(ag_schema_compiler *s, uint32_t schema, bool negative,
                           ag_schema_set *out) {
    const json_t *v = s->doc.schemas[schema].value;
    if (json_is_boolean(v) || (json_is_object(v) && !json_object_size(v))) {
        const bool holds = !json_is_false(v) != negative;
        *out = holds ? AG_SCHEMA_ANY : AG_SCHEMA_NONE;
        return AG_OK;
    }
    const uint32_t one = 2 * schema + negative;
    return intern_set(s, &one, 1, out);
}

ag_status ag_schema_set_and(ag_schema_compiler *s, ag_schema_set a, ag_schema_set b,
                            ag_schema_set *out) {
    *out = AG_SCHEMA_NONE;
    if (a == AG_SCHEMA_NONE || b == AG_SCHEMA_NONE) return AG_OK;
    *out = a == AG_SCHEMA_ANY ? b : a;
    if (a == AG_SCHEMA_ANY || b == AG_SCHEMA_ANY || a == b) return AG_OK;
    size_t n_a, n_b, n = 0;
    const uint32_t *x = ag_interner_list(&s->sets, a, &n_a);
    const uint32_t *y = ag_interner_list(&s->sets, b, &n_b);
    uint32_t *both = ag_schema_alloc(s, n_a + n_b, sizeof *both);
    if (!both) return ag_schema_no_memory(s);
    /* The members of a, then those of b alone. Properties are written in this order. */
    for (size_t i = 0; i < n_a; i++) both[n++] = x[i];
    for (size_t i = 0; i < n_b; i++) {
        bool bucket = false;
        for (size_t k = 0; k < n_a; k++) bucket |= x[k] == y[i];
        for (size_t k = 0; k < n_a; k++) {
            if ((x[k] ^ 1) != y[i]) continue;
            *out = AG_SCHEMA_NONE; /* a schema and its negation */
            return AG_OK;
        }
        if (!bucket) both[n++] = y[i];
    }
    return intern_set(s, both, n, out);
}

ag_status ag_schema_malformed(ag_schema_compiler *s, uint32_t id, const char *keyword,
                              const char *message) {
    char path[AG_SCHEMA_PATH_BYTES];
    return AG_FAIL(s->err, FORMAT, "schema: %s: %s", ag_schema_doc_path(&s->doc, id, keyword, path),
                   message);
}

ag_status ag_schema_unsupported(ag_schema_compiler *s, uint32_t id, const char *keyword,
                                const char *message) {
    char path[AG_SCHEMA_PATH_BYTES];
    return AG_FAIL(s->err, UNSUPPORTED, "schema: %s: %s",
                   ag_schema_doc_path(&s->doc, id, keyword, path), message);
}
