/* SPDX-License-Identifier: Apache-2.0 */
/* The keywords enum and const. */
#include "constrain/schema/keywords.h"
#include "core/fail.h"

#include <string.h>

typedef struct enum_reader {
    ag_schema_compiler *s;
    uint32_t id;
    const char *keyword;
    ag_alternatives alternatives;
} enum_reader;

static ag_status value_schemas(enum_reader *x, const json_t *v, ag_schema_set *out) {
    uint32_t id;
    AG_TRY(ag_schema_doc_const(&x->s->doc, x->id, x->keyword, v, &id, x->s->err));
    return ag_schema_set_of(x->s, id, false, out);
}

static ag_status add_array(enum_reader *x, const json_t *v) {
    const size_t n = json_array_size(v);
    ag_array_set *a = ag_schema_alloc(x->s, 1, sizeof *a);
    ag_schema_set *prefix = ag_schema_alloc(x->s, n, sizeof *prefix);
    if (!a || !prefix) return ag_schema_no_memory(x->s);
    for (size_t i = 0; i < n; i++) AG_TRY(value_schemas(x, json_array_get(v, i), &prefix[i]));
    *a = (ag_array_set){
        .prefix = prefix, .n_prefix = n, .items = AG_SCHEMA_NONE, .min = n, .max = n};
    return ag_alternatives_add_set(x->s, &x->alternatives, (ag_value_set){.array = a});
}

static ag_status add_object(enum_reader *x, const json_t *v) {
    const size_t n = json_object_size(v);
    ag_object_set *o = ag_schema_alloc(x->s, 1, sizeof *o);
    ag_property *list = ag_schema_alloc(x->s, n, sizeof *list);
    if (!o || !list) return ag_schema_no_memory(x->s);
    json_t *object = (json_t *)(uintptr_t)v, *member; /* iterating changes nothing */
    const char *name;
    size_t i = 0;
    json_object_foreach(object, name, member) {
        list[i] = (ag_property){name, strlen(name), true, AG_SCHEMA_ANY};
        AG_TRY(value_schemas(x, member, &list[i++].schemas));
    }
    *o = (ag_object_set){.properties = list, .n_properties = n, .max = n};
    return ag_alternatives_add_set(x->s, &x->alternatives, (ag_value_set){.object = o});
}

/* Adds one value set for all nulls, booleans, numbers and strings. */
static ag_status add_scalars(enum_reader *x, const json_t *const *list, size_t n) {
    ag_schema_compiler *s = x->s;
    ag_value_set scalars = {0};
    ag_number_set *number = ag_schema_alloc(s, 1, sizeof *number);
    ag_string_set *string = ag_schema_alloc(s, 1, sizeof *string);
    const json_t **numbers = ag_schema_alloc(s, n, sizeof *numbers);
    const char **texts = ag_schema_alloc(s, n, sizeof *texts);
    size_t *lens = ag_schema_alloc(s, n, sizeof *lens), n_texts = 0;
    if (!number || !string || !numbers || !texts || !lens) return ag_schema_no_memory(s);
    *number = (ag_number_set){.is_list = true, .values = numbers};
    string->max = SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        scalars.null_value |= json_is_null(list[i]);
        scalars.true_value |= json_is_true(list[i]);
        scalars.false_value |= json_is_false(list[i]);
        if (json_is_number(list[i])) numbers[number->n_values++] = list[i];
        if (!json_is_string(list[i])) continue;
        lens[n_texts] = json_string_length(list[i]);
        texts[n_texts++] = json_string_value(list[i]);
    }
    if (number->n_values) scalars.number = number;
    if (n_texts) {
        ag_text_dfa d;
        AG_TRY(ag_text_dfa_texts(&d, texts, lens, n_texts, &s->limits, s->err));
        AG_TRY(ag_schema_adopt(s, &d, &string->texts));
        scalars.string = string;
    }
    const bool any = scalars.null_value || scalars.true_value || scalars.false_value ||
                     scalars.number || scalars.string;
    return any ? ag_alternatives_add_set(x->s, &x->alternatives, scalars) : AG_OK;
}

ag_status ag_schema_read_values(ag_schema_compiler *s, uint32_t id, const char *keyword,
                                const json_t *const *list, size_t n, ag_alternatives *out) {
    enum_reader x = {.s = s, .id = id, .keyword = keyword};
    AG_TRY(add_scalars(&x, list, n));
    for (size_t i = 0; i < n; i++) {
        if (json_is_array(list[i])) AG_TRY(add_array(&x, list[i]));
        if (json_is_object(list[i])) AG_TRY(add_object(&x, list[i]));
    }
    *out = x.alternatives;
    return AG_OK;
}
