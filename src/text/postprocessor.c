/* SPDX-License-Identifier: Apache-2.0 */
#include "text/postprocessor.h"

#include "core/fail.h"
#include "text/json_get.h"

#include <string.h>

/* A file can name one list of ids thousands of times. */
enum { MAX_NESTING = 16, MAX_IDS = 1024 };

/* Appends the ids that the template's "special_tokens" gives for a name. */
static ag_status append_special(ag_ids *ids, const json_t *specials, const json_t *piece,
                                const char *place, const ag_vocab *vocab, ag_error *err) {
    json_t *name, *list, *id;
    size_t i;
    char where[AG_JSON_PLACE];
    AG_TRY(ag_json_required(piece, place, "id", JSON_STRING, &name, err));
    const json_t *special = json_object_get(specials, json_string_value(name));
    snprintf(where, sizeof where, "%.90s: special token \"%.40s\"", place, json_string_value(name));
    AG_TRY(ag_json_expect_object(special, where, err));
    AG_TRY(ag_json_required(special, where, "ids", JSON_ARRAY, &list, err));
    if (ids->n + json_array_size(list) > MAX_IDS) {
        return AG_FAIL(err, FORMAT, "%s: more than %d ids beside the text", where, MAX_IDS);
    }
    json_array_foreach(list, i, id) {
        json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
        if (value < 0 || value >= vocab->n_ids || !ag_vocab_has(vocab, (int32_t)value)) {
            return AG_FAIL(err, FORMAT, "%s.ids[%zu] is not an id of the vocabulary", where, i);
        }
        AG_TRY(ag_ids_push(ids, (int32_t)value, err));
    }
    return AG_OK;
}

/* A later processor wraps what the earlier ones put around the text. */
static ag_status wrap_ids(ag_postprocessor *pp, ag_ids *before, const ag_ids *behind,
                          ag_error *err) {
    AG_TRY(ag_ids_reserve(before, pp->before.n, err));
    for (size_t i = 0; i < pp->before.n; i++) before->data[before->n++] = pp->before.data[i];
    ag_ids swap = pp->before;
    pp->before = *before;
    *before = swap;
    AG_TRY(ag_ids_reserve(&pp->behind, behind->n, err));
    for (size_t i = 0; i < behind->n; i++) pp->behind.data[pp->behind.n++] = behind->data[i];
    return AG_OK;
}

static ag_status read_template(const json_t *v, const char *place, const ag_vocab *vocab,
                               ag_ids *before, ag_ids *behind, ag_error *err) {
    json_t *single, *specials, *item;
    size_t i, n_texts = 0;
    AG_TRY(ag_json_required(v, place, "single", JSON_ARRAY, &single, err));
    AG_TRY(ag_json_optional(v, place, "special_tokens", JSON_OBJECT, &specials, err));
    json_array_foreach(single, i, item) {
        char where[AG_JSON_PLACE];
        snprintf(where, sizeof where, "%.100s.single[%zu]", place, i);
        AG_TRY(ag_json_expect_object(item, where, err));
        const json_t *special = json_object_get(item, "SpecialToken");
        if (special) {
            AG_TRY(append_special(n_texts ? behind : before, specials, special, where, vocab, err));
            continue;
        }
        const json_t *name = json_object_get(json_object_get(item, "Sequence"), "id");
        if (!json_is_string(name) || strcmp(json_string_value(name), "A") != 0) {
            return AG_FAIL(err, FORMAT, "%s is neither a SpecialToken nor the Sequence A", where);
        }
        n_texts++;
    }
    if (n_texts == 1) return AG_OK;
    return AG_FAIL(err, UNSUPPORTED, "%s.single has the text %zu times, not once", place, n_texts);
}

static ag_status add_processor(ag_postprocessor *pp, const json_t *v, const char *place, int depth,
                               const ag_vocab *vocab, ag_error *err) {
    const char *type;
    AG_TRY(ag_json_component(v, place, &type, err));
    if (strcmp(type, "ByteLevel") == 0) return AG_OK; /* moves offsets, not ids */
    if (strcmp(type, "TemplateProcessing") == 0) {
        ag_ids before = {0}, behind = {0};
        ag_status st = read_template(v, place, vocab, &before, &behind, err);
        if (st == AG_OK) st = wrap_ids(pp, &before, &behind, err);
        ag_ids_free(&before);
        ag_ids_free(&behind);
        return st;
    }
    if (strcmp(type, "Sequence") != 0) return ag_json_unsupported(place, type, err);
    if (depth == MAX_NESTING) return AG_FAIL(err, FORMAT, "%s: nested too deeply", place);
    json_t *list, *item;
    size_t i;
    AG_TRY(ag_json_required(v, place, "processors", JSON_ARRAY, &list, err));
    json_array_foreach(list, i, item) {
        char inner[AG_JSON_PLACE];
        snprintf(inner, sizeof inner, "%.90s.processors[%zu]", place, i);
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
    ag_ids_free(&pp->before);
    ag_ids_free(&pp->behind);
}
