/* SPDX-License-Identifier: Apache-2.0 */
/* Writes values that are not plain JSON: arguments one by one, strings without quotes, and objects
 * whose strings are between delimiters. */
#include "constrain/schema/writer.h"
#include "core/fail.h"

#include <string.h>

typedef ag_schema_writer writer;

static uint32_t write_delimiter(writer *w, ag_delimiter delimiter, uint32_t next) {
    return next == AG_PDA_FAIL ? next : ag_pda_literal(w->pda, delimiter.s, delimiter.n, next);
}

static bool same_delimiters(ag_delimiter a, ag_delimiter b) {
    return a.n == b.n && (!a.n || !memcmp(a.s, b.s, a.n));
}

/* ---- strings without quotes ---- */

/* Returns the texts of `from` (NULL: all) that do not contain a match of the expression. */
static ag_status without(writer *w, const ag_text_dfa *from, const char *regex, size_t n,
                         const ag_text_dfa **out) {
    const ag_text_dfa *found;
    AG_TRY(ag_schema_regex(&w->s, regex, n, true, &found));
    return ag_texts_subtract(&w->s, from, found, out);
}

/* Texts that read as a value of another type. */
static const char readable[] =
    "^\\s*([\\[{(\"\\-0-9]|(true|false|null|True|False|None)\\s*$)|^\\s*$";

static ag_status prepare_texts(writer *w) {
    const ag_delimiter stop = w->notation->stop;
    if (w->without_stop) return AG_OK;
    AG_TRY(without(w, NULL, "\\x00", 4, &w->without_stop)); /* no reader accepts NUL */
    if (stop.n) AG_TRY(without(w, w->without_stop, stop.s, stop.n, &w->without_stop));
    return without(w, w->without_stop, readable, sizeof readable - 1, &w->unambiguous);
}

/* Writes a string without quotes, then next. unambiguous: leaves out texts that read as another
 * value. */
static ag_status write_raw(writer *w, const ag_string_set *x, bool unambiguous, uint32_t next,
                           uint32_t *out) {
    ag_schema_compiler *s = &w->s;
    AG_TRY(prepare_texts(w));
    const ag_text_dfa *base = unambiguous ? w->unambiguous : w->without_stop, *texts;
    if (!x->texts && !x->min && x->max == SIZE_MAX) {
        *out = ag_pda_dfa(w->pda, base, AG_FORM_TEXT, next);
        return AG_OK;
    }
    const ag_string_set shorter = ag_string_set_shorten(x);
    AG_TRY(ag_string_dfa(s, &shorter, &texts));
    ag_text_dfa both;
    AG_TRY(ag_text_dfa_combine(&both, texts, base, AG_TEXT_AND, &s->limits, w->err));
    *out = both.n_states ? ag_pda_dfa(w->pda, &both, AG_FORM_TEXT, next) : AG_PDA_FAIL;
    ag_text_dfa_free(&both);
    return AG_OK;
}

bool ag_schema_is_text(const json_t *schema) {
    const char *type = json_string_value(json_object_get(schema, "type"));
    const json_t *list = json_object_get(schema, "enum"), *one;
    size_t i;
    if (type) return !strcmp(type, "string");
    if (json_is_string(json_object_get(schema, "const"))) return true;
    json_array_foreach(list, i, one) {
        if (!json_is_string(one)) return false;
    }
    return json_array_size(list) > 0;
}

/* ---- one argument ---- */

/* Returns whether every notation reads the bytes as a name. */
static bool is_plain_name(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const char c = s[i];
        const bool fits = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
                          (c >= 'a' && c <= 'z') || c == '_' || c == '-' || c == '.' ||
                          (unsigned char)c >= 0x80;
        if (!fits) return false;
    }
    return n > 0;
}

/* Starts of a value, without what precedes the argument's name: of text and of other values. */
typedef struct value_starts {
    uint32_t text, other;
} value_starts;

/* Adds one alternative of an argument: strings in their own form, other values in theirs. */
static ag_status add_values(writer *w, const ag_value_set *x, bool is_text, uint32_t next,
                            value_starts *out) {
    const ag_schema_notation *n = w->notation;
    uint32_t value = AG_PDA_FAIL;
    if (x->string) {
        const bool is_marked = !same_delimiters(n->open, n->open_value) ||
                               !same_delimiters(n->before_text, n->before_value);
        AG_TRY(write_raw(w, x->string, !is_text && !is_marked, next, &value));
        out->text = ag_pda_either(w->pda, out->text, write_delimiter(w, n->before_text, value));
    }
    ag_value_set others = *x;
    others.string = NULL;
    AG_TRY(ag_write_values(w, &others, next, &value));
    out->other = ag_pda_either(w->pda, out->other, write_delimiter(w, n->before_value, value));
    return AG_OK;
}

/* Writes what precedes a value, after the argument's name, the value, then next. */
static ag_status write_value(writer *w, const ag_property *p, uint32_t next, value_starts *out) {
    *out = (value_starts){AG_PDA_FAIL, AG_PDA_FAIL};
    if (!w->notation->raw_texts) {
        AG_TRY(ag_write_call(w, p->schemas, next, &out->other));
        out->other = write_delimiter(w, w->notation->before_value, out->other);
        return AG_OK;
    }
    const json_t *schema = json_object_get(json_object_get(w->s.doc.root, "properties"), p->name);
    const bool is_text = ag_schema_is_text(schema);
    ag_alternatives alternatives;
    AG_TRY(ag_schema_set_values(&w->s, p->schemas, &alternatives));
    for (size_t i = 0; i < alternatives.n; i++)
        AG_TRY(add_values(w, alternatives.list[i].values, is_text, next, out));
    return AG_OK;
}

static uint32_t write_name(writer *w, ag_delimiter open, const ag_property *p, uint32_t next) {
    return write_delimiter(w, open, write_delimiter(w, (ag_delimiter){p->name, p->len}, next));
}

static ag_status write_argument(writer *w, const ag_property *p, uint32_t next, uint32_t *out) {
    const ag_schema_notation *n = w->notation;
    value_starts values;
    *out = AG_PDA_FAIL;
    if (next == AG_PDA_FAIL || p->schemas == AG_SCHEMA_NONE) return AG_OK;
    if (!is_plain_name(p->name, p->len)) {
        /* An optional argument is left out. */
        if (!p->required) return AG_OK;
        return AG_FAIL(
            w->err, UNSUPPORTED,
            "schema: property \"%.80s\": the name needs quotes, which the notation lacks", p->name);
    }
    AG_TRY(write_value(w, p, write_delimiter(w, n->close, next), &values));
    if (same_delimiters(n->open, n->open_value)) {
        *out = write_name(w, n->open, p, ag_pda_either(w->pda, values.text, values.other));
    } else {
        *out = ag_pda_either(w->pda, write_name(w, n->open, p, values.text),
                             write_name(w, n->open_value, p, values.other));
    }
    return AG_OK;
}

/* Writes the declared properties in order, from the last to the first. Other names are not
 * written. */
static ag_status write_members(writer *w, const ag_object_set *x, uint32_t next, uint32_t *out) {
    size_t required = 0;
    for (size_t i = 0; i < x->n_properties; i++) required += x->properties[i].required;
    if (x->min > required) {
        return ag_schema_unsupported(&w->s, w->schema, "minProperties",
                                     "not supported for the arguments of a call");
    }
    if (x->n_required_matches) {
        return ag_schema_unsupported(&w->s, w->schema, "not",
                                     "undeclared arguments of a call cannot be required");
    }
    if (x->max < x->n_properties) {
        return ag_schema_unsupported(&w->s, w->schema, "maxProperties",
                                     "not supported for the arguments of a call");
    }
    uint32_t first = next, more = next; /* where no property, or at least one, precedes */
    for (size_t i = x->n_properties; i-- > 0 && w->pda->status == AG_OK;) {
        const ag_property *p = &x->properties[i];
        uint32_t one;
        AG_TRY(write_argument(w, p, more, &one));
        first = ag_pda_either(w->pda, one, p->required ? AG_PDA_FAIL : first);
        more = ag_pda_either(w->pda, write_delimiter(w, w->notation->between, one),
                             p->required ? AG_PDA_FAIL : more);
    }
    *out = first;
    return AG_OK;
}

ag_status ag_write_arguments(writer *w, ag_schema_set root, uint32_t next, uint32_t *out) {
    *out = root == AG_SCHEMA_ANY ? next : AG_PDA_FAIL;
    if (root == AG_SCHEMA_NONE || root == AG_SCHEMA_ANY) return AG_OK;
    ag_alternatives alternatives;
    AG_TRY(ag_schema_set_values(&w->s, root, &alternatives));
    for (size_t i = 0; i < alternatives.n; i++) {
        const ag_object_set *x = alternatives.list[i].values->object;
        uint32_t one;
        if (!x) continue;
        AG_TRY(write_members(w, x, next, &one));
        *out = ag_pda_either(w->pda, *out, one);
    }
    return AG_OK;
}

/* ---- delimited notation ---- */

ag_status ag_write_delimited_string(writer *w, const ag_string_set *x, uint32_t next,
                                    uint32_t *out) {
    const ag_delimiter quote = w->notation->quote;
    AG_TRY(write_raw(w, x, false, write_delimiter(w, quote, next), out));
    *out = write_delimiter(w, quote, *out);
    return AG_OK;
}

ag_status ag_write_delimited_array(writer *w, uint32_t next, uint32_t *out) {
    const uint32_t close = ag_pda_byte(w->pda, ']', next);
    const uint32_t loop = ag_pda_split(w->pda, AG_PDA_UNSET, close);
    uint32_t item;
    AG_TRY(ag_write_delimited_value(w, loop, &item));
    ag_pda_patch(w->pda, loop, ag_pda_byte(w->pda, ',', item));
    *out = ag_pda_byte(w->pda, '[', ag_pda_either(w->pda, item, close));
    return AG_OK;
}

static ag_status write_any_object(writer *w, uint32_t next, uint32_t *out) {
    const uint32_t close = ag_pda_byte(w->pda, '}', next);
    const uint32_t loop = ag_pda_split(w->pda, AG_PDA_UNSET, close);
    uint32_t member;
    AG_TRY(ag_write_delimited_value(w, loop, &member));
    member = write_delimiter(w, w->notation->before_value, member);
    member = ag_pda_regex(w->pda, "[A-Za-z_][A-Za-z0-9_]*", member);
    ag_pda_patch(w->pda, loop, write_delimiter(w, w->notation->between, member));
    *out = ag_pda_byte(w->pda, '{', ag_pda_either(w->pda, member, close));
    return AG_OK;
}

ag_status ag_write_delimited_object(writer *w, const ag_object_set *x, uint32_t next,
                                    uint32_t *out) {
    if (x == &ag_any_object) return write_any_object(w, next, out);
    AG_TRY(write_members(w, x, ag_pda_byte(w->pda, '}', next), out));
    if (*out != AG_PDA_FAIL) *out = ag_pda_byte(w->pda, '{', *out);
    return AG_OK;
}

ag_status ag_write_delimited_value(writer *w, uint32_t next, uint32_t *out) {
    ag_pda *pda = w->pda;
    if (w->delimited_value == AG_PDA_UNSET) {
        w->delimited_value = ag_pda_rule_plain(pda, AG_PDA_UNSET);
        /* not ag_any_value, which would call this function again */
        const ag_value_set any = {.null_value = true,
                                  .true_value = true,
                                  .false_value = true,
                                  .number = &ag_any_number,
                                  .string = &ag_any_string,
                                  .array = &ag_any_array,
                                  .object = &ag_any_object};
        uint32_t start;
        AG_TRY(ag_write_values(w, &any, ag_pda_end(pda), &start));
        ag_pda_rule_set_start(pda, w->delimited_value, start);
    }
    *out = ag_pda_call(pda, w->delimited_value, next);
    return AG_OK;
}
