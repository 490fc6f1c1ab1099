/* SPDX-License-Identifier: Apache-2.0 */
#include "text/bytes.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "text/utf8.h"

#include <stdint.h>
#include <string.h>

ag_status ag_text_reserve(ag_text *text, size_t more, ag_error *err) {
    if (more > SIZE_MAX / 4 - text->len) return AG_FAIL(err, NOMEM, "text of %zu bytes more", more);
    AG_TRY(AG_GROW(text->data, &text->cap, text->len + more + 1, err));
    text->data[text->len] = '\0';
    return AG_OK;
}

ag_status ag_text_append(ag_text *text, const char *bytes, size_t n, ag_error *err) {
    if (text->cap - text->len <= n) AG_TRY(ag_text_reserve(text, n, err));
    if (n) memcpy(text->data + text->len, bytes, n);
    text->len += n;
    text->data[text->len] = '\0';
    return AG_OK;
}

ag_status ag_text_append_string(ag_text *text, const char *s, ag_error *err) {
    return ag_text_append(text, s, strlen(s), err);
}

ag_status ag_text_append_char(ag_text *text, uint32_t cp, ag_error *err) {
    char utf8[4];
    return ag_text_append(text, utf8, ag_utf8_put(utf8, cp), err);
}

void ag_text_free(ag_text *text) {
    if (!text) return;
    ag_free(text->data);
    *text = (ag_text){0};
}

ag_status ag_ids_reserve(ag_ids *ids, size_t more, ag_error *err) {
    if (more > SIZE_MAX / 8 - ids->n) return AG_FAIL(err, NOMEM, "list of %zu ids more", more);
    return AG_GROW(ids->data, &ids->cap, ids->n + more, err);
}

ag_status ag_ids_push(ag_ids *ids, int32_t id, ag_error *err) {
    if (ids->n == ids->cap) AG_TRY(ag_ids_reserve(ids, 1, err));
    ids->data[ids->n++] = id;
    return AG_OK;
}

void ag_ids_free(ag_ids *ids) {
    if (!ids) return;
    ag_free(ids->data);
    *ids = (ag_ids){0};
}

enum { GROWTH_FACTOR = 64, GROWTH_BASE = 256 };

const char *ag_find_bytes(const char *s, size_t n, const char *what) {
    const size_t len = strlen(what);
    const char *const end = s + n;
    for (const char *p = s; (size_t)(end - p) >= len; p++) {
        p = memchr(p, what[0], (size_t)(end - p) - len + 1);
        if (!p || !memcmp(p, what, len)) return p;
    }
    return NULL;
}

size_t ag_growth_limit(size_t n) {
    return n < (SIZE_MAX - GROWTH_BASE) / GROWTH_FACTOR ? n * GROWTH_FACTOR + GROWTH_BASE
                                                        : SIZE_MAX;
}

ag_status ag_growth_check(size_t made, size_t limit, const char *path, ag_error *err) {
    if (made <= limit) return AG_OK;
    return AG_FAIL(err, LIMIT, "the tokenizer's %s expands a text beyond %zu bytes", path, limit);
}
