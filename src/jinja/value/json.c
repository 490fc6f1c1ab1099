/* SPDX-License-Identifier: Apache-2.0 */
/* Values from JSON, and json.dumps. */
#include "jinja/value/list.h"
#include "jinja/value/ops.h"
#include "jinja/value/string.h"
#include "text/utf8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Long strings are created once per render, because counting their characters takes time. */
enum { LONG_STRING = 1024, FIRST_SLOTS = 64 };

struct ag_jstring_cache {
    struct cached_string {
        const json_t *json;
        ag_jstr *string;
    } * slots;
    size_t n, n_slots; /* power of two */
};

static struct cached_string *cache_slot(const ag_jstring_cache *k, const json_t *j) {
    const uint64_t hash = (uint64_t)(uintptr_t)j * 0x9E3779B97F4A7C15u;
    size_t i = (size_t)(hash >> 32) & (k->n_slots - 1);
    while (k->slots[i].json && k->slots[i].json != j) i = (i + 1) & (k->n_slots - 1);
    return &k->slots[i];
}

static bool grow_cache(ag_jctx *c, ag_jstring_cache *k) {
    ag_jstring_cache more = {.n = k->n, .n_slots = k->n_slots ? k->n_slots * 2 : FIRST_SLOTS};
    more.slots = ag_jalloc_permanent(c, more.n_slots * sizeof *more.slots);
    if (!more.slots) return false;
    memset(more.slots, 0, more.n_slots * sizeof *more.slots);
    for (size_t i = 0; i < k->n_slots; i++) {
        if (k->slots[i].json) *cache_slot(&more, k->slots[i].json) = k->slots[i];
    }
    *k = more;
    return true;
}

static ag_jstr *long_string(ag_jctx *c, const json_t *j, bool is_input) {
    if (!c->string_cache) {
        c->string_cache = ag_jalloc_permanent(c, sizeof *c->string_cache);
        if (!c->string_cache) return NULL;
        *c->string_cache = (ag_jstring_cache){0};
    }
    ag_jstring_cache *k = c->string_cache;
    if (k->n * 2 >= k->n_slots && !grow_cache(c, k)) return NULL;
    struct cached_string *slot = cache_slot(k, j);
    if (slot->json) return slot->string;
    ag_jstr *s = ag_jalloc_permanent(c, sizeof *s);
    if (!s) return NULL;
    ag_jstr_init(s, json_string_value(j), json_string_length(j), is_input);
    s->is_permanent = true;
    *slot = (struct cached_string){j, s};
    k->n++;
    return s;
}

static ag_jstr *string_of(ag_jctx *c, const json_t *j, bool is_input) {
    if (json_string_length(j) >= LONG_STRING) return long_string(c, j, is_input);
    return ag_jstr_create(c, json_string_value(j), json_string_length(j), is_input);
}

ag_jv ag_jfrom_json(ag_jctx *c, const json_t *j, bool from_input) {
    switch (json_typeof(j)) {
    case JSON_OBJECT:
        return ag_jdict_value(ag_jdict_of_json(c, j, from_input));
    case JSON_ARRAY:
        return ag_jlist_value(ag_jlist_of_json(c, j, from_input));
    case JSON_STRING:
        return ag_jstring(string_of(c, j, from_input));
    case JSON_INTEGER:
        return ag_jint(json_integer_value(j));
    case JSON_REAL:
        return ag_jfloat(json_real_value(j));
    case JSON_TRUE:
        return ag_jbool(true);
    case JSON_FALSE:
        return ag_jbool(false);
    default:
        return ag_jnone();
    }
}

/* Writes the escape of cp. Returns its length, 0 if cp needs none. */
static size_t json_escape(uint32_t cp, bool ascii, char out[16]) {
    static const char shorts[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    for (const char *s = shorts; *s; s += 2) {
        if (cp == (unsigned char)*s) return out[0] = '\\', out[1] = s[1], 2;
    }
    if (cp >= 0x20 && (cp < 0x7F || !ascii)) return 0;
    if (cp == 0x7F) return 0;
    if (cp < 0x10000) return (size_t)snprintf(out, 16, "\\u%04x", (unsigned)cp);
    cp -= 0x10000;
    return (size_t)snprintf(out, 16, "\\u%04x\\u%04x", (unsigned)(0xD800 + (cp >> 10)),
                            (unsigned)(0xDC00 + (cp & 0x3FF)));
}

static bool append_string(ag_jctx *c, ag_jbuf *b, const ag_jstr *s, bool ascii) {
    size_t done = 0, n_escapes = 0;
    if (!ag_jbuf_append_text(c, b, "\"")) return false;
    for (size_t at = 0; at < s->len;) {
        uint32_t cp = (unsigned char)s->text[at];
        size_t n = 1;
        char text[16];
        if (cp >= 0x80 && !ascii) {
            at++;
            continue;
        }
        if (cp >= 0x80) n = ag_utf8_get(s->text + at, &cp);
        size_t len = json_escape(cp, ascii, text);
        if (len) {
            if (!ag_jwork_eighth(c, &n_escapes) || !ag_jbuf_append_slice(c, b, s, done, at) ||
                !ag_jbuf_append_bytes(c, b, text, len, ag_jstr_is_input(s, at))) {
                return false;
            }
            done = at + n;
        }
        at += n;
    }
    return ag_jbuf_append_slice(c, b, s, done, s->len) && ag_jbuf_append_text(c, b, "\"");
}

static bool append_number(ag_jctx *c, ag_jbuf *b, double d) {
    if (isnan(d)) return ag_jbuf_append_text(c, b, "NaN");
    if (isinf(d)) return ag_jbuf_append_text(c, b, d < 0 ? "-Infinity" : "Infinity");
    return ag_jappend_repr(c, b, ag_jfloat(d));
}

static bool append_constant(ag_jctx *c, ag_jbuf *b, ag_jv v) {
    if (v.kind == AG_JNONE) return ag_jbuf_append_text(c, b, "null");
    return ag_jbuf_append_text(c, b, v.as.boolean ? "true" : "false");
}

typedef struct json_writer {
    ag_jbuf *b;
    const ag_jjson_style *style;
    size_t level;
} json_writer;

static bool append_value(ag_jctx *c, json_writer *w, ag_jv v);

/* Appends the line break and indent before an item or a closing bracket. */
static bool append_line(ag_jctx *c, json_writer *w) {
    if (!w->style->indent) return true;
    return ag_jbuf_append_text(c, w->b, "\n") &&
           ag_jbuf_append_repeated(c, w->b, w->style->indent, w->level);
}

static bool append_items(ag_jctx *c, json_writer *w, const ag_jlist *l) {
    if (!l->n) return ag_jbuf_append_text(c, w->b, "[]");
    if (!ag_jbuf_append_text(c, w->b, "[")) return false;
    w->level++;
    for (size_t i = 0; i < l->n; i++) {
        ag_jregion r;
        ag_jregion_begin(c, &r);
        if (i && !ag_jbuf_append(c, w->b, w->style->item_separator)) return false;
        if (!append_line(c, w) || !append_value(c, w, ag_jlist_get(c, l, i))) return false;
        ag_jregion_end(c, &r);
    }
    w->level--;
    return append_line(c, w) && ag_jbuf_append_text(c, w->b, "]");
}

static bool append_key(ag_jctx *c, json_writer *w, ag_jv key) {
    switch (key.kind) {
    case AG_JSTRING:
        return append_string(c, w->b, key.as.string, w->style->ensure_ascii);
    case AG_JNONE:
    case AG_JBOOL:
        return ag_jbuf_append_text(c, w->b, "\"") && append_constant(c, w->b, key) &&
               ag_jbuf_append_text(c, w->b, "\"");
    case AG_JINT:
    case AG_JFLOAT:
        return ag_jbuf_append_text(c, w->b, "\"") && append_value(c, w, key) &&
               ag_jbuf_append_text(c, w->b, "\"");
    default:
        ag_jfail(c, "keys must be str, int, float, bool or None, not %s", ag_jtype_name(key));
        return false;
    }
}

static int by_key(ag_jctx *c, const void *a, const void *b) {
    return ag_jcompare(c, ((const ag_jentry *)a)->key, ((const ag_jentry *)b)->key);
}

static bool append_entry(ag_jctx *c, json_writer *w, bool is_first, ag_jv key, ag_jv value) {
    return (is_first || ag_jbuf_append(c, w->b, w->style->item_separator)) && append_line(c, w) &&
           append_key(c, w, key) && ag_jbuf_append(c, w->b, w->style->key_separator) &&
           append_value(c, w, value);
}

/* Appends the members of a JSON object without creating entries. */
static bool append_members(ag_jctx *c, json_writer *w, const ag_jdict *d) {
    json_t *object = (json_t *)(uintptr_t)d->source; /* iterating does not modify it */
    bool is_first = true;
    for (void *it = json_object_iter(object); it; it = json_object_iter_next(object, it)) {
        const char *key = json_object_iter_key(it);
        ag_jregion r;
        ag_jregion_begin(c, &r);
        ag_jv k = ag_jstring(ag_jstr_create(c, key, strlen(key), d->from_input));
        ag_jv v = ag_jfrom_json(c, json_object_iter_value(it), d->from_input);
        if (ag_jfailed(k) || !append_entry(c, w, is_first, k, v)) return false;
        ag_jregion_end(c, &r);
        is_first = false;
    }
    return true;
}

static bool append_items_of(ag_jctx *c, json_writer *w, ag_jdict *d) {
    if (d->source && !w->style->sort_keys) return append_members(c, w, d);
    const ag_jentry *entries = ag_jdict_entries(c, d);
    if (!entries) return false;
    for (size_t i = 0; i < d->n; i++) {
        ag_jregion r;
        ag_jregion_begin(c, &r);
        if (!append_entry(c, w, i == 0, entries[i].key, entries[i].value)) return false;
        ag_jregion_end(c, &r);
    }
    return true;
}

static bool append_entries(ag_jctx *c, json_writer *w, ag_jdict *d) {
    if (!d->n) return ag_jbuf_append_text(c, w->b, "{}");
    if (w->style->sort_keys) {
        ag_jdict *sorted = ag_jdict_copy(c, d);
        if (!sorted || !ag_jlist_sort(c, sorted->entries, d->n, sizeof *sorted->entries, by_key)) {
            return false;
        }
        d = sorted;
    }
    if (!ag_jbuf_append_text(c, w->b, "{")) return false;
    w->level++;
    if (!append_items_of(c, w, d)) return false;
    w->level--;
    return append_line(c, w) && ag_jbuf_append_text(c, w->b, "}");
}

static bool append_kind(ag_jctx *c, json_writer *w, ag_jv v) {
    switch (v.kind) {
    case AG_JNONE:
    case AG_JBOOL:
        return append_constant(c, w->b, v);
    case AG_JINT:
        return ag_jappend_repr(c, w->b, v);
    case AG_JFLOAT:
        return append_number(c, w->b, v.as.number);
    case AG_JSTRING:
        return append_string(c, w->b, v.as.string, w->style->ensure_ascii);
    case AG_JLIST:
    case AG_JTUPLE:
        return append_items(c, w, v.as.list);
    case AG_JDICT:
        return append_entries(c, w, v.as.dict);
    default:
        ag_jfail(c, "Object of type %s is not JSON serializable", ag_jtype_name(v));
        return false;
    }
}

/* Appends a value of any type. Returns false for a failed value, if values are nested too deeply,
 * and if memory is exhausted; the context has the error. */
static bool append_value(ag_jctx *c, json_writer *w, ag_jv v) {
    if (ag_jfailed(v) || !ag_jenter(c)) return false;
    bool ok = append_kind(c, w, v);
    ag_jleave(c);
    return ok;
}

bool ag_jappend_json(ag_jctx *c, ag_jbuf *b, ag_jv v, const ag_jjson_style *style) {
    json_writer w = {b, style, 0};
    return append_value(c, &w, v);
}
