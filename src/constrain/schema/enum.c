/* SPDX-License-Identifier: Apache-2.0 */
/* Values that stand in a schema: enum and const. */
#include "constrain/schema/keywords.h"
#include "core/fail.h"

#include <string.h>

typedef struct values {
    ag_shaper *s;
    uint32_t id;
    const char *keyword;
    ag_ways ways;
} values;

static ag_status value_goal(values *x, const json_t *v, ag_goal *out) {
    uint32_t id;
    AG_TRY(ag_schema_doc_const(&x->s->doc, x->id, x->keyword, v, &id, x->s->err));
    return ag_goal_of(x->s, id, false, out);
}

static ag_status add_array(values *x, const json_t *v) {
    const size_t n = json_array_size(v);
    ag_array_shape *a = ag_shaper_get(x->s, 1, sizeof *a);
    ag_goal *prefix = ag_shaper_get(x->s, n, sizeof *prefix);
    if (!a || !prefix) return ag_shaper_no_memory(x->s);
    for (size_t i = 0; i < n; i++) AG_TRY(value_goal(x, json_array_get(v, i), &prefix[i]));
    *a = (ag_array_shape){
        .prefix = prefix, .n_prefix = n, .rest = AG_GOAL_NEVER, .least = n, .most = n};
    return ag_ways_add(x->s, &x->ways, (ag_shape){.array = a});
}

static ag_status add_object(values *x, const json_t *v) {
    const size_t n = json_object_size(v);
    ag_object_shape *o = ag_shaper_get(x->s, 1, sizeof *o);
    ag_property *list = ag_shaper_get(x->s, n, sizeof *list);
    if (!o || !list) return ag_shaper_no_memory(x->s);
    json_t *object = (json_t *)(uintptr_t)v, *member; /* iterating changes nothing */
    const char *name;
    size_t i = 0;
    json_object_foreach(object, name, member) {
        list[i] = (ag_property){name, strlen(name), true, AG_GOAL_ANY};
        AG_TRY(value_goal(x, member, &list[i++].goal));
    }
    *o = (ag_object_shape){.properties = list, .n_properties = n, .most = n};
    return ag_ways_add(x->s, &x->ways, (ag_shape){.object = o});
}

/* null, booleans, numbers and strings are one shape. */
static ag_status add_scalars(values *x, const json_t *const *list, size_t n) {
    ag_shaper *s = x->s;
    ag_shape shape = {0};
    ag_number_shape *number = ag_shaper_get(s, 1, sizeof *number);
    ag_string_shape *string = ag_shaper_get(s, 1, sizeof *string);
    const json_t **numbers = ag_shaper_get(s, n, sizeof *numbers);
    const char **texts = ag_shaper_get(s, n, sizeof *texts);
    size_t *lens = ag_shaper_get(s, n, sizeof *lens), n_texts = 0;
    if (!number || !string || !numbers || !texts || !lens) return ag_shaper_no_memory(s);
    *number = (ag_number_shape){.is_list = true, .values = numbers};
    string->most = SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        shape.null |= json_is_null(list[i]);
        shape.yes |= json_is_true(list[i]);
        shape.no |= json_is_false(list[i]);
        if (json_is_number(list[i])) numbers[number->n_values++] = list[i];
        if (!json_is_string(list[i])) continue;
        lens[n_texts] = json_string_length(list[i]);
        texts[n_texts++] = json_string_value(list[i]);
    }
    if (number->n_values) shape.number = number;
    if (n_texts) {
        ag_text_dfa d;
        AG_TRY(ag_text_dfa_texts(&d, texts, lens, n_texts, &s->limits, s->err));
        AG_TRY(ag_shaper_keep(s, &d, &string->texts));
        shape.string = string;
    }
    const bool any = shape.null || shape.yes || shape.no || shape.number || shape.string;
    return any ? ag_ways_add(x->s, &x->ways, shape) : AG_OK;
}

ag_status ag_schema_values(ag_shaper *s, uint32_t id, const char *keyword,
                           const json_t *const *list, size_t n, ag_ways *out) {
    values x = {.s = s, .id = id, .keyword = keyword};
    AG_TRY(add_scalars(&x, list, n));
    for (size_t i = 0; i < n; i++) {
        if (json_is_array(list[i])) AG_TRY(add_array(&x, list[i]));
        if (json_is_object(list[i])) AG_TRY(add_object(&x, list[i]));
    }
    *out = x.ways;
    return AG_OK;
}
