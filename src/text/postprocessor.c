/* SPDX-License-Identifier: Apache-2.0 */
#include "text/postprocessor.h"

#include "core/fail.h"
#include "text/json_get.h"

#include <string.h>

/* A file can name a list of ids many times. */
enum { MAX_NESTING = 16, MAX_IDS = 1024 };

/* Appends the ids of a name in the template's "special_tokens". */
static ag_status append_special(ag_ids *ids, const json_t *specials, const json_t *piece,
                                const char *path, const ag_vocab *vocab, ag_error *err) {
    json_t *name, *list, *id;
    size_t i;
    char inner_path[AG_JSON_PATH_BYTES];
    AG_TRY(ag_json_required(piece, path, "id", JSON_STRING, &name, err));
    const json_t *special = json_object_get(specials, json_string_value(name));
    snprintf(inner_path, sizeof inner_path, "%.90s: special token \"%.40s\"", path,
             json_string_value(name));
    AG_TRY(ag_json_expect_object(special, inner_path, err));
    AG_TRY(ag_json_required(special, inner_path, "ids", JSON_ARRAY, &list, err));
    if (ids->n + json_array_size(list) > MAX_IDS) {
        return AG_FAIL(err, FORMAT, "%s: the template adds more than %d ids to a text", inner_path,
                       MAX_IDS);
    }
    json_array_foreach(list, i, id) {
        json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
        if (value < 0 || value >= vocab->n_ids || !ag_vocab_has(vocab, (int32_t)value)) {
            return AG_FAIL(err, FORMAT, "%s.ids[%zu] is not an id of the vocabulary", inner_path,
                           i);
        }
        AG_TRY(ag_ids_push(ids, (int32_t)value, err));
    }
    return AG_OK;
}

/* Puts the ids of a later processor around those of the earlier ones. */
static ag_status wrap_ids(ag_postprocessor *pp, ag_ids *prefix, const ag_ids *suffix,
                          ag_error *err) {
    AG_TRY(ag_ids_reserve(prefix, pp->prefix.n, err));
    for (size_t i = 0; i < pp->prefix.n; i++) prefix->data[prefix->n++] = pp->prefix.data[i];
    ag_ids swap = pp->prefix;
    pp->prefix = *prefix;
    *prefix = swap;
    AG_TRY(ag_ids_reserve(&pp->suffix, suffix->n, err));
    for (size_t i = 0; i < suffix->n; i++) pp->suffix.data[pp->suffix.n++] = suffix->data[i];
    return AG_OK;
}

static ag_status read_template(const json_t *v, const char *path, const ag_vocab *vocab,
                               ag_ids *prefix, ag_ids *suffix, ag_error *err) {
    json_t *single, *specials, *item;
    size_t i, n_texts = 0;
    AG_TRY(ag_json_required(v, path, "single", JSON_ARRAY, &single, err));
    AG_TRY(ag_json_optional(v, path, "special_tokens", JSON_OBJECT, &specials, err));
    json_array_foreach(single, i, item) {
        char inner_path[AG_JSON_PATH_BYTES];
        snprintf(inner_path, sizeof inner_path, "%.100s.single[%zu]", path, i);
        AG_TRY(ag_json_expect_object(item, inner_path, err));
        const json_t *special = json_object_get(item, "SpecialToken");
        if (special) {
            AG_TRY(append_special(n_texts ? suffix : prefix, specials, special, inner_path, vocab,
                                  err));
            continue;
        }
        const json_t *name = json_object_get(json_object_get(item, "Sequence"), "id");
        if (!json_is_string(name) || strcmp(json_string_value(name), "A") != 0) {
            return AG_FAIL(err, FORMAT, "%s must be a SpecialToken or the Sequence A", inner_path);
        }
        n_texts++;
    }
    if (n_texts == 1) return AG_OK;
    return AG_FAIL(err, UNSUPPORTED, "%s.single contains the text %zu times, it must once", path,
                   n_texts);
}

static ag_status add_processor(ag_postprocessor *pp, const json_t *v, const char *path, int depth,
                               const ag_vocab *vocab, ag_error *err) {
    const char *type;
    AG_TRY(ag_json_component(v, path, &type, err));
    if (strcmp(type, "ByteLevel") == 0) return AG_OK; /* changes offsets, not ids */
    if (strcmp(type, "TemplateProcessing") == 0) {
        ag_ids prefix = {0}, suffix = {0};
        ag_status st = read_template(v, path, vocab, &prefix, &suffix, err);
        if (st == AG_OK) st = wrap_ids(pp, &prefix, &suffix, err);
        ag_ids_free(&prefix);
        ag_ids_free(&suffix);
        return st;
    }
    if (strcmp(type, "Sequence") != 0) return ag_json_unsupported(path, type, err);
    if (depth == MAX_NESTING) return AG_FAIL(err, FORMAT, "%s is nested too deeply", path);
    json_t *list, *item;
    size_t i;
    AG_TRY(ag_json_required(v, path, "processors", JSON_ARRAY, &list, err));
    json_array_foreach(list, i, item) {
        char inner[AG_JSON_PATH_BYTES];
        snprintf(inner, sizeof inner, "%.90s.processors[%zu]", path, i);
        AG_TRY(add_processor(pp, item, inner, depth + 1, vocab, err));
    }
    return AG_OK;
}

ag_status ag_postprocessor_read_json(ag_postprocessor *pp, const json_t *v, const ag_vocab *vocab,
                                     ag_error *err) {
    if (!v || json_is_null(v)) return AG_OK;
    return add_processor(pp, v, "post_processor", 0, vocab, err);
}

void ag_postprocessor_free(ag_postprocessor *pp) {
    ag_ids_free(&pp->prefix);
    ag_ids_free(&pp->suffix);
}
