/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the JSON object "pre_tokenizer". */
#include "core/fail.h"
#include "text/json_get.h"
#include "text/pretokenizer.h"
#include "text/utf8.h"

#include <string.h>

enum { MAX_NESTING = 16 };

/* Matches, as Rust's regex crate does, a run of word characters or a run of characters that are
 * neither word nor space. */
static const char whitespace_pattern[] = "[" AG_REGEX_WORD "]+|[^" AG_REGEX_WORD "\\s]+";

static ag_status parse_behavior(const json_t *v, const char *path, ag_split_behavior *out,
                                ag_error *err) {
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    json_t *name;
    AG_TRY(ag_json_required(v, path, "behavior", JSON_STRING, &name, err));
    for (int i = 0; i < 5; i++) {
        if (strcmp(json_string_value(name), names[i]) == 0) {
            *out = (ag_split_behavior)i;
            return AG_OK;
        }
    }
    return AG_FAIL(err, UNSUPPORTED, "%s.behavior: \"%.60s\" is not supported", path,
                   json_string_value(name));
}

static ag_status parse_split(ag_pretokenizer *pt, const json_t *v, const char *path,
                             ag_error *err) {
    ag_split_behavior behavior = AG_SPLIT_ISOLATED;
    ag_pattern *pattern;
    bool invert;
    char inner_path[AG_JSON_PATH_BYTES];
    snprintf(inner_path, sizeof inner_path, "%.140s.pattern", path);
    AG_TRY(parse_behavior(v, path, &behavior, err));
    AG_TRY(ag_json_bool(v, path, "invert", false, &invert, err));
    AG_TRY(ag_pattern_parse(json_object_get(v, "pattern"), inner_path, &pattern, err));
    return ag_pretokenizer_add_split(pt, (ag_splitter){pattern, AG_CLASS_NONE, behavior, invert},
                                     err);
}

static ag_status parse_byte_level(ag_pretokenizer *pt, const json_t *v, const char *path,
                                  ag_error *err) {
    bool prefix, use_regex;
    AG_TRY(ag_json_bool(v, path, "add_prefix_space", true, &prefix, err));
    AG_TRY(ag_json_bool(v, path, "use_regex", true, &use_regex, err));
    if (prefix) AG_TRY(ag_pretokenizer_add_prefix(pt, " ", 1, false, err));
    if (use_regex) {
        AG_TRY(ag_pretokenizer_add_regex(pt, AG_REGEX_GPT2, path, AG_SPLIT_ISOLATED, false, err));
    }
    return ag_pretokenizer_add_bytes(pt, err);
}

/* Reads prepend_scheme, or add_prefix_space of older files. */
static ag_status parse_scheme(const json_t *v, const char *path, const char **scheme,
                              ag_error *err) {
    bool prefix;
    json_t *name;
    AG_TRY(ag_json_bool(v, path, "add_prefix_space", true, &prefix, err));
    AG_TRY(ag_json_optional(v, path, "prepend_scheme", JSON_STRING, &name, err));
    *scheme = name ? json_string_value(name) : prefix ? "always" : "never";
    if (strcmp(*scheme, "always") && strcmp(*scheme, "first") && strcmp(*scheme, "never")) {
        return AG_FAIL(err, UNSUPPORTED, "%s.prepend_scheme: \"%.60s\" is not supported", path,
                       *scheme);
    }
    return AG_OK;
}

static ag_status parse_metaspace(ag_pretokenizer *pt, const json_t *v, const char *path,
                                 ag_error *err) {
    json_t *replacement;
    const char *scheme;
    bool split;
    AG_TRY(ag_json_required(v, path, "replacement", JSON_STRING, &replacement, err));
    AG_TRY(parse_scheme(v, path, &scheme, err));
    AG_TRY(ag_json_bool(v, path, "split", true, &split, err));
    const char *s = json_string_value(replacement);
    size_t n = json_string_length(replacement);
    if (n == 0 || n != ag_utf8_len(s[0])) {
        return AG_FAIL(err, FORMAT, "%s.replacement must be one character", path);
    }
    AG_TRY(ag_pretokenizer_add_spaces(pt, s, n, err));
    if (strcmp(scheme, "never") != 0) {
        AG_TRY(ag_pretokenizer_add_prefix(pt, s, n, strcmp(scheme, "first") == 0, err));
    }
    if (!split) return AG_OK;
    ag_splitter before = {.behavior = AG_SPLIT_MERGED_WITH_NEXT};
    AG_TRY(ag_pattern_parse(replacement, path, &before.pattern, err));
    return ag_pretokenizer_add_split(pt, before, err);
}

static ag_status parse_component(ag_pretokenizer *pt, const json_t *v, const char *path,
                                 const char *type, ag_error *err) {
    if (strcmp(type, "Split") == 0) return parse_split(pt, v, path, err);
    if (strcmp(type, "ByteLevel") == 0) return parse_byte_level(pt, v, path, err);
    if (strcmp(type, "Metaspace") == 0) return parse_metaspace(pt, v, path, err);
    if (strcmp(type, "Digits") == 0) {
        bool individual;
        AG_TRY(ag_json_bool(v, path, "individual_digits", false, &individual, err));
        ag_split_behavior behavior = individual ? AG_SPLIT_ISOLATED : AG_SPLIT_CONTIGUOUS;
        return ag_pretokenizer_add_split(pt, (ag_splitter){NULL, AG_CLASS_NUMERIC, behavior, false},
                                         err);
    }
    if (strcmp(type, "WhitespaceSplit") == 0) {
        return ag_pretokenizer_add_split(
            pt, (ag_splitter){NULL, AG_CLASS_WHITE_SPACE, AG_SPLIT_REMOVED, false}, err);
    }
    if (strcmp(type, "Whitespace") == 0) {
        return ag_pretokenizer_add_regex(pt, whitespace_pattern, path, AG_SPLIT_REMOVED, true, err);
    }
    return ag_json_unsupported(path, type, err);
}

static ag_status add_pretokenizer(ag_pretokenizer *pt, const json_t *v, const char *path, int depth,
                                  ag_error *err) {
    const char *type;
    AG_TRY(ag_json_component(v, path, &type, err));
    if (strcmp(type, "Sequence") != 0) return parse_component(pt, v, path, type, err);
    if (depth == MAX_NESTING) return AG_FAIL(err, FORMAT, "%s is nested too deeply", path);
    json_t *list, *item;
    size_t i;
    AG_TRY(ag_json_required(v, path, "pretokenizers", JSON_ARRAY, &list, err));
    json_array_foreach(list, i, item) {
        char inner[AG_JSON_PATH_BYTES];
        snprintf(inner, sizeof inner, "%.100s.pretokenizers[%zu]", path, i);
        AG_TRY(add_pretokenizer(pt, item, inner, depth + 1, err));
    }
    return AG_OK;
}

ag_status ag_pretokenizer_read_json(ag_pretokenizer *pt, const json_t *v, ag_error *err) {
    if (!v || json_is_null(v)) return AG_OK;
    return add_pretokenizer(pt, v, "pre_tokenizer", 0, err);
}
