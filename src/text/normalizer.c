/* SPDX-License-Identifier: Apache-2.0 */
#include "text/normalizer.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "core/interrupt.h"
#include "text/json_get.h"
#include "text/utf8.h"

#include <string.h>
#include <utf8proc.h>

enum kind { PREPEND, REPLACE, FORM, LOWERCASE, STRIP, PRECOMPILED };
enum { MAX_NESTING = 16, MAX_STEPS = 64 };

struct ag_normalizer_step {
    enum kind kind;
    ag_unicode_form form; /* FORM */
    ag_pattern *pattern;  /* REPLACE */
    char *content;        /* PREPEND, REPLACE */
    size_t len;
    bool left, right;      /* STRIP */
    ag_precompiled *table; /* PRECOMPILED */
};
typedef struct ag_normalizer_step step;

static ag_status copy_content(step *s, const char *content, size_t n, ag_error *err) {
    s->len = n;
    s->content = ag_strndup(content, n);
    return s->content ? AG_OK : AG_FAIL(err, NOMEM, "text of %zu bytes", n);
}

static ag_status copy_string(step *s, const json_t *v, ag_error *err) {
    return copy_content(s, json_string_value(v), json_string_length(v), err);
}

/* Appends a zeroed step; *out is borrowed. */
static ag_status append_step(ag_normalizer *nm, const char *path, step **out, ag_error *err) {
    if (nm->n == MAX_STEPS) {
        return AG_FAIL(err, FORMAT, "%s: the normalizer has more than %d steps", path, MAX_STEPS);
    }
    AG_TRY(AG_GROW(nm->steps, &nm->cap, nm->n + 1, err));
    *out = &nm->steps[nm->n++];
    **out = (step){0};
    return AG_OK;
}

ag_status ag_normalizer_add_form(ag_normalizer *nm, ag_unicode_form form, ag_error *err) {
    step *s = NULL;
    AG_TRY(append_step(nm, "normalizer", &s, err));
    s->kind = FORM;
    s->form = form;
    return AG_OK;
}

ag_status ag_normalizer_add_prepend(ag_normalizer *nm, const char *content, ag_error *err) {
    step *s = NULL;
    AG_TRY(append_step(nm, "normalizer", &s, err));
    s->kind = PREPEND;
    return copy_content(s, content, strlen(content), err);
}

ag_status ag_normalizer_add_replace(ag_normalizer *nm, const char *pattern, const char *content,
                                    ag_error *err) {
    step *s = NULL;
    AG_TRY(append_step(nm, "normalizer", &s, err));
    s->kind = REPLACE;
    AG_TRY(ag_pattern_literal(pattern, strlen(pattern), "normalizer", &s->pattern, err));
    return copy_content(s, content, strlen(content), err);
}

static ag_status parse_step(step *s, const json_t *v, const char *path, const char *type,
                            ag_error *err) {
    static const char *const forms[] = {"NFC", "NFD", "NFKC", "NFKD"};
    json_t *content;
    for (int i = 0; i < 4; i++) {
        if (strcmp(type, forms[i]) == 0) {
            s->kind = FORM;
            s->form = (ag_unicode_form)i;
            return AG_OK;
        }
    }
    if (strcmp(type, "Lowercase") == 0) {
        s->kind = LOWERCASE;
        return AG_OK;
    }
    if (strcmp(type, "Strip") == 0) {
        s->kind = STRIP;
        AG_TRY(ag_json_bool(v, path, "strip_left", true, &s->left, err));
        return ag_json_bool(v, path, "strip_right", true, &s->right, err);
    }
    if (strcmp(type, "Precompiled") == 0) {
        s->kind = PRECOMPILED;
        AG_TRY(ag_json_required(v, path, "precompiled_charsmap", JSON_STRING, &content, err));
        return ag_precompiled_parse(json_string_value(content), json_string_length(content), path,
                                    &s->table, err);
    }
    if (strcmp(type, "Prepend") == 0) {
        s->kind = PREPEND;
        AG_TRY(ag_json_required(v, path, "prepend", JSON_STRING, &content, err));
        return copy_string(s, content, err);
    }
    if (strcmp(type, "Replace") == 0) {
        s->kind = REPLACE;
        char inner_path[AG_JSON_PATH_BYTES];
        snprintf(inner_path, sizeof inner_path, "%s.pattern", path);
        AG_TRY(ag_json_required(v, path, "content", JSON_STRING, &content, err));
        AG_TRY(ag_pattern_parse(json_object_get(v, "pattern"), inner_path, &s->pattern, err));
        return copy_string(s, content, err);
    }
    return ag_json_unsupported(path, type, err);
}

static ag_status add_normalizer(ag_normalizer *nm, const json_t *v, const char *path, int depth,
                                ag_error *err) {
    const char *type;
    AG_TRY(ag_json_component(v, path, &type, err));
    if (strcmp(type, "Sequence") != 0) {
        step *s = NULL;
        AG_TRY(append_step(nm, path, &s, err));
        return parse_step(s, v, path, type, err);
    }
    if (depth == MAX_NESTING) return AG_FAIL(err, FORMAT, "%s is nested too deeply", path);
    json_t *list, *item;
    size_t i;
    AG_TRY(ag_json_required(v, path, "normalizers", JSON_ARRAY, &list, err));
    json_array_foreach(list, i, item) {
        char inner[AG_JSON_PATH_BYTES];
        snprintf(inner, sizeof inner, "%.100s.normalizers[%zu]", path, i);
        AG_TRY(add_normalizer(nm, item, inner, depth + 1, err));
    }
    return AG_OK;
}

ag_status ag_normalizer_read_json(ag_normalizer *nm, const json_t *v, ag_error *err) {
    if (!v || json_is_null(v)) return AG_OK;
    return add_normalizer(nm, v, "normalizer", 0, err);
}

void ag_normalizer_free(ag_normalizer *nm) {
    for (size_t i = 0; i < nm->n; i++) {
        ag_pattern_destroy(nm->steps[i].pattern);
        ag_precompiled_destroy(nm->steps[i].table);
        ag_free(nm->steps[i].content);
    }
    ag_free(nm->steps);
    *nm = (ag_normalizer){0};
}

static ag_status replace_matches(const step *s, const char *text, size_t len, size_t limit,
                                 ag_text *out, bool *lost_start, ag_error *err) {
    ag_cursor c;
    AG_TRY(ag_cursor_open(&c, s->pattern, err));
    ag_cursor_reset(&c, text, len);
    size_t done = 0, start, end;
    bool found;
    ag_status st;
    for (size_t n = 0; (st = ag_cursor_next(&c, &start, &end, &found, err)) == AG_OK && found;
         n++) {
        if (ag_interrupted_at(n)) {
            st = AG_FAIL(err, CANCELLED, "normalizing text: interrupted");
            break;
        }
        /* A replacement of several characters has the position of the last one. */
        if (start == 0 && end > 0 && (s->len == 0 || end > ag_utf8_len(text[0]))) {
            *lost_start = true;
        }
        if ((st = ag_text_append(out, text + done, start - done, err)) != AG_OK) break;
        if ((st = ag_text_append(out, s->content, s->len, err)) != AG_OK) break;
        if ((st = ag_growth_check(out->len, limit, "normalizer", err)) != AG_OK) break;
        done = end;
    }
    if (st == AG_OK) st = ag_text_append(out, text + done, len - done, err);
    ag_cursor_close(&c);
    return st;
}

static ag_status lowercase(const char *text, size_t len, ag_text *out, ag_error *err) {
    AG_TRY(ag_text_reserve(out, len, err));
    for (size_t i = 0; i < len;) {
        uint32_t cp;
        i += ag_utf8_get(text + i, &cp);
        if (cp == 0x130) { /* the only letter whose lower case has two characters */
            AG_TRY(ag_text_append(out, "i\xCC\x87", 3, err));
        } else {
            AG_TRY(ag_text_append_char(out, (uint32_t)utf8proc_tolower((int32_t)cp), err));
        }
    }
    return AG_OK;
}

static ag_status strip_spaces(const step *s, const char *text, size_t len, ag_text *out,
                              bool *lost_start, ag_error *err) {
    size_t start = 0;
    uint32_t cp;
    while (s->left && start < len) {
        size_t n = ag_utf8_get(text + start, &cp);
        if (!ag_is_white_space(cp)) break;
        start += n;
        *lost_start = true;
    }
    while (s->right && len > start) {
        size_t last = ag_utf8_last(text, len);
        ag_utf8_get(text + last, &cp);
        if (!ag_is_white_space(cp)) break;
        len = last;
    }
    return ag_text_append(out, text + start, len - start, err);
}

static ag_status apply_step(const step *s, const char *text, size_t len, size_t limit, ag_text *out,
                            bool *lost_start, ag_error *err) {
    switch (s->kind) {
    case PREPEND:
        if (len) AG_TRY(ag_text_append(out, s->content, s->len, err));
        return ag_text_append(out, text, len, err);
    case REPLACE:
        return replace_matches(s, text, len, limit, out, lost_start, err);
    case FORM:
        return ag_unicode_normalize(s->form, text, len, out, err);
    case LOWERCASE:
        return lowercase(text, len, out, err);
    case PRECOMPILED:
        return ag_precompiled_apply(s->table, text, len, limit, out, err);
    case STRIP:
        break;
    }
    return strip_spaces(s, text, len, out, lost_start, err);
}

ag_status ag_normalizer_apply(const ag_normalizer *nm, const char *text, size_t len, ag_text *out,
                              ag_text *scratch, bool *lost_start, ag_error *err) {
    out->len = 0;
    if (nm->n == 0) return ag_text_append(out, text, len, err);
    size_t limit = ag_growth_limit(len);
    for (size_t i = 0; i < nm->n; i++) {
        scratch->len = 0;
        AG_TRY(ag_text_reserve(scratch, len, err));
        AG_TRY(apply_step(&nm->steps[i], text, len, limit, scratch, lost_start, err));
        AG_TRY(ag_growth_check(scratch->len, limit, "normalizer", err));
        ag_text swap = *out;
        *out = *scratch;
        *scratch = swap;
        text = out->data;
        len = out->len;
    }
    return AG_OK;
}
