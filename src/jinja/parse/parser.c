/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/parse/parser.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "jinja/value/string.h"
#include "text/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { PARSE_DEPTH = 200, TEMPLATE_BYTES = 4 << 20, TREE_BYTES = 256 << 20 };

static void *record(ag_jparser *p, ag_status status, const char *fmt, va_list args) {
    if (p->status != AG_OK) return NULL; /* keep the first error */
    char message[300], tag_note[80] = "";
    vsnprintf(message, sizeof message, fmt, args);
    if (p->tag) snprintf(tag_note, sizeof tag_note, ", in {%% %s %%}", p->tag);
    p->status = ag_fail(p->err, status, __FILE__, __LINE__, "%s, line %u%s: %s", p->t->name,
                        p->at->line, tag_note, message);
    return NULL;
}

void *ag_jparse_fail(ag_jparser *p, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    record(p, AG_FORMAT, fmt, args);
    va_end(args);
    return NULL;
}

__attribute__((format(printf, 2, 3))) static void *limit_error(ag_jparser *p, const char *fmt,
                                                               ...) {
    va_list args;
    va_start(args, fmt);
    record(p, AG_LIMIT, fmt, args);
    va_end(args);
    return NULL;
}

static void *fail_memory(ag_jparser *p) {
    if (p->t->memory.over_limit)
        return limit_error(p, "the template exceeds the memory limit of the parser");
    if (p->status == AG_OK) {
        p->status =
            ag_fail(p->err, AG_NOMEM, __FILE__, __LINE__, "%s: tree of the template", p->t->name);
    }
    return NULL;
}

void *ag_jparse_alloc(ag_jparser *p, size_t bytes) {
    void *m = ag_jinja_alloc(&p->t->arena, bytes);
    if (!m) return fail_memory(p);
    memset(m, 0, bytes);
    return m;
}

bool ag_jparse_grow(ag_jparser *p, void *array, size_t n, size_t *cap, size_t size) {
    return ag_jinja_grow(&p->t->arena, array, n, cap, size) || fail_memory(p);
}

ag_jnode *ag_jnode_create(ag_jparser *p, ag_jnode_kind kind) {
    ag_jnode *n = ag_jparse_alloc(p, sizeof *n);
    if (!n) return NULL;
    n->kind = (uint8_t)kind;
    n->line = p->at->line;
    return n;
}

/* Creates a string. Counts its characters and hashes it now, so that renders in several threads
 * need not write to it. */
ag_jstr *ag_jparse_string(ag_jparser *p, const char *text, size_t len) {
    ag_jstr *s = ag_jparse_alloc(p, sizeof *s);
    if (!s) return NULL;
    s->text = text;
    s->len = len;
    s->n_chars = ag_jstr_count(text, len);
    s->hash = ag_jstr_hash_of(text, len);
    s->is_permanent = true;
    return s;
}

ag_jstr *ag_jparse_name(ag_jparser *p) {
    const ag_jtoken *t = p->at;
    if (!ag_jparse_expect(p, AG_JT_NAME)) return NULL;
    return ag_jparse_string(p, t->text, t->len);
}

static bool intern(ag_jparser *p, const ag_jstr *name, uint32_t *id) {
    ag_jinja *t = p->t;
    for (size_t i = 0; i < t->n_names; i++) {
        if (ag_jstr_equal(t->names[i], name)) return *id = (uint32_t)i, true;
    }
    if (t->n_names == AG_JMAX_VARIABLES)
        return limit_error(p, "the template has more than %d variables", AG_JMAX_VARIABLES), false;
    if (!ag_jparse_grow(p, &t->names, t->n_names, &t->cap_names, sizeof *t->names)) return false;
    ag_jstr *copy = ag_jparse_string(p, name->text, name->len);
    if (!copy) return false;
    t->names[t->n_names] = copy;
    *id = (uint32_t)t->n_names++;
    return true;
}

bool ag_jparse_variable(ag_jparser *p, const ag_jstr *name, uint32_t *id) {
    return intern(p, name, id);
}

static bool intern_special(ag_jparser *p, const char *name, uint32_t *id) {
    ag_jstr *s = ag_jparse_string(p, name, strlen(name));
    return s && intern(p, s, id);
}

bool ag_jparse_is_name(const ag_jparser *p, const char *name) {
    return p->at->kind == AG_JT_NAME && p->at->len == strlen(name) &&
           !memcmp(p->at->text, name, p->at->len);
}

bool ag_jparse_skip(ag_jparser *p, ag_jtoken_kind kind) {
    if (p->at->kind != kind) return false;
    if (kind != AG_JT_EOF) p->at++;
    return true;
}

bool ag_jparse_skip_name(ag_jparser *p, const char *name) {
    if (!ag_jparse_is_name(p, name)) return false;
    p->at++;
    return true;
}

static void unexpected(ag_jparser *p, const char *expected) {
    if (p->at->kind == AG_JT_NAME || p->at->kind == AG_JT_STRING) {
        ag_jparse_fail(p, "expected '%s', got '%.*s'", expected,
                       (int)(p->at->len < 40 ? p->at->len : 40), p->at->text);
    } else {
        ag_jparse_fail(p, "expected '%s', got '%s'", expected, ag_jtoken_name(p->at->kind));
    }
}

bool ag_jparse_expect(ag_jparser *p, ag_jtoken_kind kind) {
    if (ag_jparse_skip(p, kind)) return true;
    unexpected(p, ag_jtoken_name(kind));
    return false;
}

bool ag_jparse_expect_name(ag_jparser *p, const char *name) {
    if (ag_jparse_skip_name(p, name)) return true;
    unexpected(p, name);
    return false;
}

bool ag_jparse_enter(ag_jparser *p) {
    if (++p->depth <= PARSE_DEPTH) return true;
    p->depth--;
    limit_error(p, "nesting exceeds %d levels", PARSE_DEPTH);
    return false;
}

/* Returns a copy with
 *  for \r
 *  and \r, without a newline at the end. */
static char *normalised(ag_jinja *t, const char *text, size_t *n) {
    char *copy = ag_jinja_alloc(&t->arena, *n + 1);
    if (!copy) return NULL;
    size_t len = 0;
    for (size_t i = 0; i < *n; i++) {
        if (text[i] == '\r') {
            if (i + 1 < *n && text[i + 1] == '\n') i++;
            copy[len++] = '\n';
        } else {
            copy[len++] = text[i];
        }
    }
    if (len && copy[len - 1] == '\n') len--;
    copy[len] = '\0';
    *n = len;
    return copy;
}

static void parse_all(ag_jparser *p, const ag_jtokens *tokens) {
    ag_jinja *t = p->t;
    p->at = tokens->items;
    t->is_read = ag_jparse_alloc(p, AG_JMAX_VARIABLES * sizeof *t->is_read);
    if (!t->is_read) return;
    if (!intern_special(p, "loop", &t->loop) || !intern_special(p, "caller", &t->caller) ||
        !intern_special(p, "varargs", &t->varargs) || !intern_special(p, "kwargs", &t->kwargs) ||
        !ag_jparse_body(p, NULL, &t->body)) {
        return;
    }
}

ag_status ag_jinja_parse(const char *name, const char *text, size_t n, ag_jinja **out,
                         ag_error *err) {
    *out = NULL;
    if (n > TEMPLATE_BYTES) {
        return AG_FAIL(err, LIMIT, "%s: the template has %zu bytes, at most %d are allowed", name,
                       n, TEMPLATE_BYTES);
    }
    size_t valid = ag_utf8_valid_prefix(text, n);
    if (valid < n) return AG_FAIL(err, FORMAT, "%s: not UTF-8 at byte %zu", name, valid);
    ag_jinja *t = ag_calloc(1, sizeof *t);
    if (!t) return AG_FAIL(err, NOMEM, "%s: template", name);
    t->memory.limit = TREE_BYTES;
    t->arena.memory = &t->memory;
    ag_jparser p = {.t = t, .err = err};
    size_t name_bytes = strlen(name) + 1;
    char *own_name = ag_jinja_alloc(&t->arena, name_bytes);
    char *copy = own_name ? normalised(t, text, &n) : NULL;
    if (!copy) {
        p.status = AG_FAIL(err, NOMEM, "%s: %zu bytes of the template", name, n);
    } else {
        memcpy(own_name, name, name_bytes);
        t->name = own_name;
        ag_jtokens tokens = {0};
        p.status = ag_jinja_tokenize(&t->arena, t->name, copy, n, &tokens, err);
        if (p.status == AG_OK) parse_all(&p, &tokens);
    }
    if (p.status == AG_OK) *out = t;
    else ag_jinja_destroy(t);
    return p.status;
}

void ag_jinja_destroy(ag_jinja *t) {
    if (!t) return;
    ag_jinja_arena_free(&t->arena);
    ag_free(t);
}

bool ag_jinja_reads(const ag_jinja *t, const char *name) {
    size_t n = strlen(name);
    for (size_t i = 0; i < t->n_names; i++) {
        if (t->names[i]->len == n && !memcmp(t->names[i]->text, name, n)) { return t->is_read[i]; }
    }
    return false;
}
