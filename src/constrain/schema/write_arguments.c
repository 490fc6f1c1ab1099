/* SPDX-License-Identifier: Apache-2.0 */
/* Values that are not written as JSON: arguments one by one, texts without quotes, and objects
 * whose strings stand between marks. */
#include "constrain/schema/writer.h"
#include "core/fail.h"

#include <string.h>

typedef ag_schema_writer writer;

static uint32_t write_mark(writer *w, ag_mark mark, uint32_t next) {
    return next == AG_NET_NOWHERE ? next : ag_net_literal(w->net, mark.s, mark.n, next);
}

static bool same_marks(ag_mark a, ag_mark b) { return a.n == b.n && !memcmp(a.s, b.s, a.n); }

/* ---- texts without quotes ---- */

/* Texts of `from`, or all where it is NULL, in which the expression is not found. */
static ag_status without(writer *w, const ag_text_dfa *from, const char *regex, size_t n,
                         const ag_text_dfa **out) {
    const ag_text_dfa *found;
    AG_TRY(ag_shaper_regex(&w->s, regex, n, true, &found));
    return ag_texts_except(&w->s, from, found, out);
}

/* What is read as a value where nothing says that it is text. */
static const char readable[] =
    "^\\s*([\\[{(\"\\-0-9]|(true|false|null|True|False|None)\\s*$)|^\\s*$";

static ag_status prepare_texts(writer *w) {
    const ag_mark stop = w->notation->stop;
    if (w->stopped) return AG_OK;
    AG_TRY(without(w, NULL, "\\x00", 4, &w->stopped)); /* no reader takes it */
    if (stop.n) AG_TRY(without(w, w->stopped, stop.s, stop.n, &w->stopped));
    return without(w, w->stopped, readable, sizeof readable - 1, &w->unread);
}

/* unread: it must not look like a value either. */
static ag_status write_raw(writer *w, const ag_string_shape *x, bool unread, uint32_t next,
                           uint32_t *out) {
    ag_shaper *s = &w->s;
    AG_TRY(prepare_texts(w));
    const ag_text_dfa *base = unread ? w->unread : w->stopped, *texts;
    if (!x->texts && !x->least && x->most == SIZE_MAX) {
        *out = ag_net_dfa(w->net, base, AG_FORM_TEXT, next);
        return AG_OK;
    }
    const ag_string_shape shorter = ag_schema_shorter(x);
    AG_TRY(ag_string_dfa(s, &shorter, &texts));
    ag_text_dfa both;
    AG_TRY(ag_text_dfa_combine(&both, texts, base, AG_TEXT_AND, &s->limits, w->err));
    *out = both.n_states ? ag_net_dfa(w->net, &both, AG_FORM_TEXT, next) : AG_NET_NOWHERE;
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

/* Bytes that every notation reads as part of a name. */
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

/* A value of this shape behind what leads to it: a string in its own way, all else in the other. */
static ag_status write_way(writer *w, const ag_shape *x, bool is_text, uint32_t next,
                           uint32_t *out) {
    const ag_schema_notation *n = w->notation;
    uint32_t value = AG_NET_NOWHERE;
    *out = AG_NET_NOWHERE;
    if (x->string) {
        const bool unread = !is_text && same_marks(n->before_text, n->before_value);
        AG_TRY(write_raw(w, x->string, unread, next, &value));
        *out = write_mark(w, n->before_text, value);
    }
    ag_shape others = *x;
    others.string = NULL;
    AG_TRY(ag_schema_write_shape(w, &others, next, &value));
    *out = ag_net_either(w->net, *out, write_mark(w, n->before_value, value));
    return AG_OK;
}

/* What leads to a value, the value, then next. */
static ag_status write_value(writer *w, const ag_property *p, uint32_t next, uint32_t *out) {
    static const ag_way any = {&ag_any_shape, AG_GOAL_ANY};
    if (!w->notation->raw_texts) {
        AG_TRY(ag_schema_call_goal(w, p->goal, next, out));
        *out = write_mark(w, w->notation->before_value, *out);
        return AG_OK;
    }
    const json_t *schema = json_object_get(json_object_get(w->s.doc.root, "properties"), p->name);
    const bool is_text = ag_schema_is_text(schema);
    ag_ways ways = {&any, 1};
    *out = AG_NET_NOWHERE;
    if (p->goal == AG_GOAL_NEVER) return AG_OK;
    if (p->goal != AG_GOAL_ANY) {
        AG_TRY(ag_goal_expand(&w->s, p->goal, &ways));
        AG_TRY(ag_ways_flatten(&w->s, ways, &ways));
    }
    for (size_t i = 0; i < ways.n; i++) {
        uint32_t one;
        AG_TRY(write_way(w, ways.list[i].shape, is_text, next, &one));
        *out = ag_net_either(w->net, *out, one);
    }
    return AG_OK;
}

static ag_status write_argument(writer *w, const ag_property *p, uint32_t next, uint32_t *out) {
    const ag_schema_notation *n = w->notation;
    *out = AG_NET_NOWHERE;
    if (next == AG_NET_NOWHERE || p->goal == AG_GOAL_NEVER) return AG_OK;
    if (!is_plain_name(p->name, p->len)) {
        /* One that need not be there is left out. */
        if (!p->required) return AG_OK;
        return AG_FAIL(w->err, UNSUPPORTED, "schema: the name \"%.80s\" needs quotes", p->name);
    }
    AG_TRY(write_value(w, p, write_mark(w, n->close, next), out));
    *out = write_mark(w, (ag_mark){p->name, p->len}, *out);
    *out = write_mark(w, n->open, *out);
    return AG_OK;
}

/* All arguments, in the order of the schema: from the last to the first. Names that the schema does
 * not have are not written. */
static ag_status write_arguments(writer *w, const ag_object_shape *x, uint32_t next,
                                 uint32_t *out) {
    size_t required = 0;
    for (size_t i = 0; i < x->n_properties; i++) required += x->properties[i].required;
    if (x->least > required) {
        return ag_schema_unsupported(&w->s, w->schema, "minProperties",
                                     "arguments of a call are not counted");
    }
    if (x->n_some) {
        return ag_schema_unsupported(&w->s, w->schema, "not",
                                     "arguments of a call that are not declared must be there");
    }
    if (x->most < x->n_properties) {
        return ag_schema_unsupported(&w->s, w->schema, "maxProperties",
                                     "arguments of a call are not counted");
    }
    uint32_t first = next, more = next; /* where none, or one, has been written */
    for (size_t i = x->n_properties; i-- > 0 && w->net->status == AG_OK;) {
        const ag_property *p = &x->properties[i];
        uint32_t one;
        AG_TRY(write_argument(w, p, more, &one));
        first = ag_net_either(w->net, one, p->required ? AG_NET_NOWHERE : first);
        more = ag_net_either(w->net, write_mark(w, w->notation->between, one),
                             p->required ? AG_NET_NOWHERE : more);
    }
    *out = first;
    return AG_OK;
}

ag_status ag_schema_write_arguments(writer *w, ag_goal root, uint32_t next, uint32_t *out) {
    *out = root == AG_GOAL_ANY ? next : AG_NET_NOWHERE;
    if (root == AG_GOAL_NEVER || root == AG_GOAL_ANY) return AG_OK;
    ag_ways ways;
    AG_TRY(ag_goal_expand(&w->s, root, &ways));
    AG_TRY(ag_ways_flatten(&w->s, ways, &ways));
    for (size_t i = 0; i < ways.n; i++) {
        const ag_object_shape *x = ways.list[i].shape->object;
        uint32_t one;
        if (!x) continue;
        AG_TRY(write_arguments(w, x, next, &one));
        *out = ag_net_either(w->net, *out, one);
    }
    return AG_OK;
}

/* ---- between marks ---- */

ag_status ag_schema_marked_string(writer *w, const ag_string_shape *x, uint32_t next,
                                  uint32_t *out) {
    const ag_mark quote = w->notation->quote;
    AG_TRY(write_raw(w, x, false, write_mark(w, quote, next), out));
    *out = write_mark(w, quote, *out);
    return AG_OK;
}

static uint32_t write_byte(writer *w, char c, uint32_t next) {
    return ag_net_bytes(w->net, (uint8_t)c, (uint8_t)c, next);
}

ag_status ag_schema_marked_array(writer *w, uint32_t next, uint32_t *out) {
    const uint32_t close = write_byte(w, ']', next);
    const uint32_t loop = ag_net_split(w->net, AG_NET_NOWHERE, close);
    uint32_t item;
    AG_TRY(ag_schema_marked_value(w, loop, &item));
    ag_net_patch(w->net, loop, write_byte(w, ',', item));
    *out = write_byte(w, '[', ag_net_either(w->net, item, close));
    return AG_OK;
}

static ag_status any_object(writer *w, uint32_t next, uint32_t *out) {
    const uint32_t close = write_byte(w, '}', next);
    const uint32_t loop = ag_net_split(w->net, AG_NET_NOWHERE, close);
    uint32_t member;
    AG_TRY(ag_schema_marked_value(w, loop, &member));
    member = write_mark(w, w->notation->before_value, member);
    member = ag_net_regex(w->net, "[A-Za-z_][A-Za-z0-9_]*", member);
    ag_net_patch(w->net, loop, write_mark(w, w->notation->between, member));
    *out = write_byte(w, '{', ag_net_either(w->net, member, close));
    return AG_OK;
}

ag_status ag_schema_marked_object(writer *w, const ag_object_shape *x, uint32_t next,
                                  uint32_t *out) {
    if (x == &ag_any_object) return any_object(w, next, out);
    AG_TRY(write_arguments(w, x, write_byte(w, '}', next), out));
    if (*out != AG_NET_NOWHERE) *out = write_byte(w, '{', *out);
    return AG_OK;
}

ag_status ag_schema_marked_value(writer *w, uint32_t next, uint32_t *out) {
    ag_net *net = w->net;
    if (w->marked_value == AG_NET_NOWHERE) {
        const ag_net_rule none = {.kind = AG_RULE_PLAIN, .start = AG_NET_NOWHERE};
        w->marked_value = ag_net_rule_add(net, none);
        /* Each type has its own way here, so that this is not asked for again without end. */
        const ag_shape any = {.null = true,
                              .yes = true,
                              .no = true,
                              .number = &ag_any_number,
                              .string = &ag_any_string,
                              .array = &ag_any_array,
                              .object = &ag_any_object};
        uint32_t start;
        AG_TRY(ag_schema_write_shape(w, &any, ag_net_end(net), &start));
        ag_net_rule_start(net, w->marked_value, start);
    }
    *out = ag_net_call(net, w->marked_value, next);
    return AG_OK;
}
