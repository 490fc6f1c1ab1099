/* SPDX-License-Identifier: Apache-2.0 */
/* Builds a chain of stages, also from the JSON object "decoder". */
#include "core/alloc.h"
#include "core/fail.h"
#include "text/decoder.h"
#include "text/json_get.h"
#include "text/utf8.h"

#include <string.h>

/* Stages call each other recursively. */
enum { MAX_NESTING = 16, MAX_STAGES = 32 };

static ag_status set_content(ag_decode_stage *s, const char *content, size_t n, ag_error *err) {
    s->len = n;
    s->content = ag_strndup(content, n);
    return s->content ? AG_OK : AG_FAIL(err, NOMEM, "text of %zu bytes", n);
}

static ag_status set_stage_content(ag_decode_stage *s, const json_t *v, bool one_char,
                                   const char *path, ag_error *err) {
    size_t n = json_string_length(v);
    if (one_char && (n == 0 || n != ag_utf8_len(json_string_value(v)[0]))) {
        return AG_FAIL(err, FORMAT, "%s: \"%.60s\" must be one character", path,
                       json_string_value(v));
    }
    return set_content(s, json_string_value(v), n, err);
}

static ag_status parse_count(const json_t *v, const char *path, const char *key, size_t *out,
                             ag_error *err) {
    json_t *n;
    AG_TRY(ag_json_required(v, path, key, JSON_INTEGER, &n, err));
    if (json_integer_value(n) < 0 || json_integer_value(n) > INT32_MAX) {
        return AG_FAIL(err, FORMAT, "%s.%s is %lld, it must be in 0..2147483647", path, key,
                       (long long)json_integer_value(n));
    }
    *out = (size_t)json_integer_value(n);
    return AG_OK;
}

static ag_status parse_metaspace(ag_decode_stage *s, const json_t *v, const char *path,
                                 ag_error *err) {
    json_t *content, *scheme;
    bool prefix;
    AG_TRY(ag_json_required(v, path, "replacement", JSON_STRING, &content, err));
    AG_TRY(ag_json_optional(v, path, "prepend_scheme", JSON_STRING, &scheme, err));
    AG_TRY(ag_json_bool(v, path, "add_prefix_space", true, &prefix, err));
    s->kind = AG_DECODE_METASPACE;
    s->drop_first = scheme ? strcmp(json_string_value(scheme), "never") != 0 : prefix;
    return set_stage_content(s, content, true, path, err);
}

static ag_status parse_stage(ag_decode_stage *s, const json_t *v, const char *path,
                             const char *type, ag_error *err) {
    json_t *content;
    if (strcmp(type, "Fuse") == 0) {
        s->kind = AG_DECODE_FUSE;
        return AG_OK;
    }
    if (strcmp(type, "ByteFallback") == 0) {
        s->kind = AG_DECODE_BYTE_FALLBACK;
        return AG_OK;
    }
    if (strcmp(type, "ByteLevel") == 0) {
        s->kind = AG_DECODE_BYTE_LEVEL;
        return AG_OK;
    }
    if (strcmp(type, "Metaspace") == 0) return parse_metaspace(s, v, path, err);
    if (strcmp(type, "Strip") == 0) {
        s->kind = AG_DECODE_STRIP;
        AG_TRY(parse_count(v, path, "start", &s->strip_start, err));
        AG_TRY(parse_count(v, path, "stop", &s->strip_stop, err));
        AG_TRY(ag_json_required(v, path, "content", JSON_STRING, &content, err));
        return set_stage_content(s, content, true, path, err);
    }
    if (strcmp(type, "Replace") == 0) {
        char inner_path[AG_JSON_PATH_BYTES];
        snprintf(inner_path, sizeof inner_path, "%.140s.pattern", path);
        s->kind = AG_DECODE_REPLACE;
        AG_TRY(ag_json_required(v, path, "content", JSON_STRING, &content, err));
        AG_TRY(ag_pattern_parse(json_object_get(v, "pattern"), inner_path, &s->pattern, err));
        return set_stage_content(s, content, false, path, err);
    }
    return ag_json_unsupported(path, type, err);
}

static bool fuses(const ag_decode_stage *s) {
    return s->kind == AG_DECODE_FUSE || s->kind == AG_DECODE_BYTE_LEVEL;
}

static bool takes_chunks(const ag_decode_stage *s) {
    return s->kind == AG_DECODE_FUSE || s->kind == AG_DECODE_STRIP ||
           s->kind == AG_DECODE_METASPACE;
}

/* Appends a zeroed stage; *out is borrowed. */
static ag_status append_stage(ag_decode_chain *c, const char *path, ag_decode_stage **out,
                              ag_error *err) {
    if (c->n == MAX_STAGES) {
        return AG_FAIL(err, FORMAT, "%s: the decoder has more than %d stages", path, MAX_STAGES);
    }
    AG_TRY(AG_GROW(c->stages, &c->cap, c->n + 1, err));
    ag_decode_stage *s = *out = &c->stages[c->n++];
    *s = (ag_decode_stage){0};
    if (c->n > 1) s->after_fusing = s[-1].after_fusing || fuses(&s[-1]);
    return AG_OK;
}

ag_status ag_decode_chain_add(ag_decode_chain *c, ag_decode_kind kind, ag_error *err) {
    ag_decode_stage *s = NULL;
    AG_TRY(append_stage(c, "decoder", &s, err));
    s->kind = kind;
    return AG_OK;
}

ag_status ag_decode_chain_add_replace(ag_decode_chain *c, const char *pattern, const char *content,
                                      ag_error *err) {
    ag_decode_stage *s = NULL;
    AG_TRY(append_stage(c, "decoder", &s, err));
    s->kind = AG_DECODE_REPLACE;
    AG_TRY(ag_pattern_literal(pattern, strlen(pattern), "decoder", &s->pattern, err));
    return set_content(s, content, strlen(content), err);
}

ag_status ag_decode_chain_add_strip(ag_decode_chain *c, const char *content, size_t start,
                                    ag_error *err) {
    ag_decode_stage *s = NULL;
    AG_TRY(append_stage(c, "decoder", &s, err));
    s->kind = AG_DECODE_STRIP;
    s->strip_start = start;
    return set_content(s, content, strlen(content), err);
}

static ag_status read_stage(ag_decode_chain *c, const json_t *v, const char *path, const char *type,
                            ag_error *err) {
    ag_decode_stage *s = NULL;
    AG_TRY(append_stage(c, path, &s, err));
    AG_TRY(parse_stage(s, v, path, type, err));
    if (!s->after_fusing || takes_chunks(s)) return AG_OK;
    return AG_FAIL(err, UNSUPPORTED, "%s: \"%s\" after a stage that fuses tokens is not supported",
                   path, type);
}

static ag_status add_stages(ag_decode_chain *c, const json_t *v, const char *path, int depth,
                            ag_error *err) {
    const char *type;
    AG_TRY(ag_json_component(v, path, &type, err));
    if (strcmp(type, "Sequence") != 0) return read_stage(c, v, path, type, err);
    if (depth == MAX_NESTING) return AG_FAIL(err, FORMAT, "%s is nested too deeply", path);
    json_t *list, *item;
    size_t i;
    AG_TRY(ag_json_required(v, path, "decoders", JSON_ARRAY, &list, err));
    json_array_foreach(list, i, item) {
        char inner[AG_JSON_PATH_BYTES];
        snprintf(inner, sizeof inner, "%.100s.decoders[%zu]", path, i);
        AG_TRY(add_stages(c, item, inner, depth + 1, err));
    }
    return AG_OK;
}

ag_status ag_decode_chain_read_json(ag_decode_chain *c, const json_t *v, ag_error *err) {
    if (v && !json_is_null(v)) return add_stages(c, v, "decoder", 0, err);
    return ag_decode_chain_add(c, AG_DECODE_SPACED, err);
}

void ag_decode_chain_free(ag_decode_chain *c) {
    for (size_t i = 0; i < c->n; i++) {
        ag_pattern_destroy(c->stages[i].pattern);
        ag_free(c->stages[i].content);
    }
    ag_free(c->stages);
    *c = (ag_decode_chain){0};
}
