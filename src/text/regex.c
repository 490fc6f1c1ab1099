/* SPDX-License-Identifier: Apache-2.0 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "platform/clock.h"
#include "text/json_get.h"
#include "text/utf8.h"

#include <pcre2.h>
#include <string.h>

struct ag_pattern {
    pcre2_general_context *general;
    pcre2_code *code; /* NULL: a literal */
    char *literal;
    size_t len;
};

/* Step limit of one match from one start. A pattern that exceeds it backtracks exponentially;
 * patterns of published tokenizers need one or two steps per character. */
enum { MATCH_STEPS = 10 * 1000 * 1000, HEAP_KIB = 64 * 1024, MAX_PATTERN = 1 << 16 };

/* Quadratic patterns stay below the step limit; the clock stops them, at a hundredth of the usual
 * speed. It is read every CLOCK_PERIOD searches and after MAX_STARTS starts without a match. */
enum { CLOCK_PERIOD = 32, MAX_STARTS = 512 };
static const double seconds_free = 1, seconds_per_byte = 2e-6;

static void *pcre_alloc(PCRE2_SIZE n, void *user) {
    (void)user;
    return ag_malloc(n);
}

static void pcre_release(void *p, void *user) {
    (void)user;
    ag_free(p);
}

static ag_status compile(ag_pattern *p, const char *s, size_t n, const char *path, ag_error *err) {
    int code = 0;
    PCRE2_SIZE at = 0;
    p->general = pcre2_general_context_create(pcre_alloc, pcre_release, NULL);
    pcre2_compile_context *cc = p->general ? pcre2_compile_context_create(p->general) : NULL;
    if (!cc) return AG_FAIL(err, NOMEM, "%s: pattern", path);
    pcre2_set_newline(cc, PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(cc, 100);
    p->code = pcre2_compile((PCRE2_SPTR)s, n,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C |
                                PCRE2_USE_OFFSET_LIMIT,
                            &code, &at, cc);
    pcre2_compile_context_free(cc);
    if (!p->code) {
        char message[120];
        pcre2_get_error_message(code, (PCRE2_UCHAR *)message, sizeof message);
        if (code == 121) return AG_FAIL(err, NOMEM, "%s: pattern", path);
        return AG_FAIL(err, FORMAT, "%s at offset %zu: %s", path, (size_t)at, message);
    }
    /* Without JIT the interpreter gives the same results. */
    pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE);
    return AG_OK;
}

ag_status ag_pattern_regex(const char *s, size_t n, const char *path, ag_pattern **out,
                           ag_error *err) {
    *out = NULL;
    if (n > MAX_PATTERN) {
        return AG_FAIL(err, FORMAT, "%s has %zu bytes, at most %d are allowed", path, n,
                       MAX_PATTERN);
    }
    ag_text translated = {0};
    ag_pattern *p = ag_calloc(1, sizeof *p);
    ag_status st = p ? AG_OK : AG_FAIL(err, NOMEM, "%s: pattern", path);
    if (st != AG_OK) goto done;
    st = ag_regex_translate(s, n, &translated, err);
    if (st != AG_OK) ag_error_prefix(err, st, "%s", path);
    else st = compile(p, translated.data, translated.len, path, err);
done:
    ag_text_free(&translated);
    if (st == AG_OK) *out = p;
    else ag_pattern_destroy(p);
    return st;
}

ag_status ag_pattern_literal(const char *s, size_t n, const char *path, ag_pattern **out,
                             ag_error *err) {
    *out = NULL;
    /* An empty string matches between any two characters, like the empty expression. */
    if (n == 0) return ag_pattern_regex("", 0, path, out, err);
    ag_pattern *p = ag_calloc(1, sizeof *p);
    if (p) p->literal = ag_strndup(s, n);
    if (!p || !p->literal) {
        ag_free(p);
        return AG_FAIL(err, NOMEM, "%s: pattern", path);
    }
    p->len = n;
    *out = p;
    return AG_OK;
}

ag_status ag_pattern_parse(const json_t *v, const char *path, ag_pattern **out, ag_error *err) {
    *out = NULL;
    const json_t *s = json_object_get(v, "String");
    if (json_is_string(v)) s = v;
    if (json_is_string(s)) {
        return ag_pattern_literal(json_string_value(s), json_string_length(s), path, out, err);
    }
    s = json_object_get(v, "Regex");
    if (json_is_string(s)) {
        return ag_pattern_regex(json_string_value(s), json_string_length(s), path, out, err);
    }
    return AG_FAIL(err, FORMAT, "%s must be {\"String\": ...} or {\"Regex\": ...}", path);
}

void ag_pattern_destroy(ag_pattern *p) {
    if (!p) return;
    pcre2_code_free(p->code);
    pcre2_general_context_free(p->general);
    ag_free(p->literal);
    ag_free(p);
}

ag_status ag_cursor_open(ag_cursor *c, const ag_pattern *p, ag_error *err) {
    *c = (ag_cursor){.pattern = p, .next = 1};
    if (!p->code) return AG_OK;
    c->data = pcre2_match_data_create(1, p->general);
    c->context = pcre2_match_context_create(p->general);
    if (!c->data || !c->context) {
        ag_cursor_close(c);
        return AG_FAIL(err, NOMEM, "match of a pattern");
    }
    pcre2_set_match_limit(c->context, MATCH_STEPS);
    pcre2_set_heap_limit(c->context, HEAP_KIB);
    return AG_OK;
}

void ag_cursor_close(ag_cursor *c) {
    pcre2_match_data_free(c->data);
    pcre2_match_context_free(c->context);
    c->data = NULL;
    c->context = NULL;
}

void ag_cursor_reset(ag_cursor *c, const char *text, size_t len) {
    c->text = text;
    c->len = len;
    c->next = len ? 0 : 1; /* nothing matches in an empty text, not even an empty pattern */
    c->last_end = SIZE_MAX;
    c->total_len += len;
}

static void next_literal(ag_cursor *c, size_t *start, size_t *end, bool *found) {
    const ag_pattern *p = c->pattern;
    const char *hit = p->len == 1 ? memchr(c->text + c->next, p->literal[0], c->len - c->next)
                                  : memmem(c->text + c->next, c->len - c->next, p->literal, p->len);
    *found = hit != NULL;
    if (!hit) return;
    *start = (size_t)(hit - c->text);
    *end = *start + p->len;
    c->next = *end;
}

static ag_status check_clock(ag_cursor *c, size_t from, ag_error *err) {
    size_t n = c->n_searches++;
    if (n % CLOCK_PERIOD && from == c->next) return AG_OK;
    double now = ag_thread_cpu_s(), max = seconds_free + seconds_per_byte * (double)c->total_len;
    if (n == 0) c->began = now;
    if (now - c->began < max) return AG_OK;
    return AG_FAIL(err, LIMIT,
                   "matching a pattern failed at offset %zu of %zu bytes: it took over %.1f s",
                   c->next, c->len, max);
}

/* Searches for a match that starts in [from, last]. */
static int match(ag_cursor *c, size_t from, size_t last, uint32_t options) {
    pcre2_set_offset_limit(c->context, last);
    return pcre2_match(c->pattern->code, (PCRE2_SPTR)c->text, c->len, from,
                       PCRE2_NO_UTF_CHECK | options, c->data, c->context);
}

static ag_status search(ag_cursor *c, bool *found, ag_error *err) {
    int rc = PCRE2_ERROR_NOMATCH;
    for (size_t from = c->next, last; from <= c->len && rc == PCRE2_ERROR_NOMATCH;
         from = last + 1) {
        AG_TRY(check_clock(c, from, err));
        last = c->len - from > MAX_STARTS ? from + MAX_STARTS : c->len;
        while (last + 1 < c->len && ((unsigned char)c->text[last + 1] & 0xC0) == 0x80) last++;
        rc = match(c, from, last, 0);
        if (rc == PCRE2_ERROR_JIT_STACKLIMIT) rc = match(c, from, last, PCRE2_NO_JIT);
    }
    *found = rc >= 0;
    if (rc >= 0 || rc == PCRE2_ERROR_NOMATCH) return AG_OK;
    if (rc == PCRE2_ERROR_NOMEMORY) return AG_FAIL(err, NOMEM, "match of a pattern");
    char message[120];
    pcre2_get_error_message(rc, (PCRE2_UCHAR *)message, sizeof message);
    return AG_FAIL(err, LIMIT, "matching a pattern failed at offset %zu of %zu bytes: %s", c->next,
                   c->len, message);
}

ag_status ag_cursor_next(ag_cursor *c, size_t *start, size_t *end, bool *found, ag_error *err) {
    *found = false;
    if (!c->pattern->code) {
        if (c->next < c->len) next_literal(c, start, end, found);
        return AG_OK;
    }
    while (c->next <= c->len) {
        AG_TRY(search(c, found, err));
        if (!*found) break;
        const PCRE2_SIZE *at = pcre2_get_ovector_pointer(c->data);
        *start = at[0];
        *end = at[1];
        if (*start < *end || *end != c->last_end) {
            c->next = c->last_end = *end;
            return AG_OK;
        }
        /* Skip an empty match directly after the previous match. */
        c->next += c->next < c->len ? ag_utf8_len(c->text[c->next]) : 1;
        *found = false;
    }
    return AG_OK;
}
