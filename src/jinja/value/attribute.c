/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes, items and slices. `x.name` prefers a method or attribute to an item; `x['name']`
 * prefers the item. A missing one is undefined, not an error. */
#include "jinja/builtins/methods.h"
#include "jinja/loop.h"
#include "jinja/value/list.h"
#include "jinja/value/ops.h"
#include "jinja/value/string.h"

#include <stdio.h>

static ag_jv undefined_of(ag_jctx *c, ag_jundefined u) {
    ag_jundefined *p = ag_jalloc(c, sizeof *p);
    if (!p) return ag_jfail_value();
    *p = u;
    return (ag_jv){AG_JUNDEFINED, {.undefined = p}};
}

ag_jv ag_jundefined_variable(ag_jctx *c, ag_jstr *name) {
    return undefined_of(c, (ag_jundefined){.of = ag_jfail_value(), .name = ag_jstring(name)});
}

ag_jv ag_jundefined_hint(ag_jctx *c, const char *hint) {
    return undefined_of(c, (ag_jundefined){.hint = hint});
}

ag_jv ag_jfail_undefined(ag_jctx *c, ag_jv v) {
    const ag_jundefined *u = v.as.undefined;
    if (u->hint) return ag_jfail(c, "%s", u->hint);
    char name[100] = "?";
    if (u->name.kind == AG_JSTRING) {
        snprintf(name, sizeof name, "%.*s",
                 (int)(u->name.as.string->len < 80 ? u->name.as.string->len : 80),
                 u->name.as.string->text);
    } else if (u->name.kind == AG_JINT) {
        snprintf(name, sizeof name, "%lld", (long long)u->name.as.integer);
    }
    if (ag_jfailed(u->of)) return ag_jfail(c, "'%s' is undefined", name);
    if (u->unsafe) {
        return ag_jfail(c, "access to attribute '%s' of '%s' object is unsafe", name,
                        ag_jtype_name(u->of));
    }
    const char *of = u->of.kind == AG_JNONE ? "None" : ag_jtype_name(u->of);
    return ag_jfail(c, "'%s'%s has no %s '%s'", of, u->of.kind == AG_JNONE ? "" : " object",
                    u->name.kind == AG_JSTRING ? "attribute" : "element", name);
}

static ag_jv absent(ag_jctx *c, ag_jv v, ag_jv name) {
    return undefined_of(c, (ag_jundefined){.of = v, .name = name});
}

/* Returns a method or attribute of the object itself. Returns AG_JFAIL without an error if there is
 * none. */
static ag_jv own_attribute(ag_jctx *c, ag_jv v, ag_jstr *name, int method) {
    if (v.kind == AG_JLOOP) {
        ag_jv own = ag_jloop_attribute(c, v, name);
        if (!ag_jfailed(own) || c->status != AG_OK) return own;
    }
    if (v.kind == AG_JNAMESPACE) {
        return ag_jdict_find_string(c, v.as.dict, name, ag_jstr_hash_of(name->text, name->len));
    }
    if (v.kind == AG_JTUPLE && v.as.list->is_group) {
        if (ag_jstr_is(name, "grouper")) return v.as.list->items[0];
        if (ag_jstr_is(name, "list")) return v.as.list->items[1];
    }
    if (method < 0) return ag_jfail_value();
    ag_jmethod_access access = ag_jmethod_of(v, method);
    if (access == AG_JMETHOD_ABSENT) return ag_jfail_value();
    if (access == AG_JMETHOD_UNSAFE) {
        return undefined_of(c, (ag_jundefined){.of = v, .name = ag_jstring(name), .unsafe = true});
    }
    ag_jmethod *m = ag_jalloc(c, sizeof *m);
    if (!m) return ag_jfail_value();
    *m = (ag_jmethod){v, method};
    return (ag_jv){AG_JMETHOD, {.method = m}};
}

static bool is_private(const ag_jstr *name) { return name->len && name->text[0] == '_'; }

ag_jv ag_jattribute(ag_jctx *c, ag_jv v, ag_jstr *name, int method) {
    if (v.kind == AG_JUNDEFINED) return ag_jfail_undefined(c, v);
    ag_jv own = own_attribute(c, v, name, method);
    if (!ag_jfailed(own) || c->status != AG_OK) return own;
    if (v.kind == AG_JDICT) {
        ag_jv item = ag_jdict_find_string(c, v.as.dict, name, ag_jstr_hash(name));
        if (!ag_jfailed(item) || c->status != AG_OK) return item;
    }
    return undefined_of(
        c, (ag_jundefined){.of = v, .name = ag_jstring(name), .unsafe = is_private(name)});
}

/* Returns item i, from the end if i < 0. Returns AG_JFAIL without an error if it does not exist. */
static ag_jv numbered_item(ag_jctx *c, ag_jv v, int64_t i) {
    int64_t n = ag_jlength(v);
    if (i < 0) i += n;
    return i < 0 || i >= n ? ag_jfail_value() : ag_jitem_at(c, v, (size_t)i);
}

/* Returns whether v can be a key. An unhashable key is not an error: no entry has it. */
static bool is_hashable(ag_jctx *c, ag_jv v) {
    if (v.kind == AG_JVIEW) return v.as.view->kind == AG_JVIEW_VALUES;
    if (v.kind == AG_JLIST || v.kind == AG_JDICT) return false;
    if (v.kind != AG_JTUPLE) return true;
    if (!ag_jenter(c)) return false;
    bool ok = true;
    for (size_t i = 0; ok && i < v.as.list->n; i++)
        ok = is_hashable(c, ag_jlist_get(c, v.as.list, i));
    ag_jleave(c);
    return ok;
}

ag_jv ag_jitem(ag_jctx *c, ag_jv v, ag_jv index) {
    if (v.kind == AG_JUNDEFINED) return ag_jfail_undefined(c, v);
    if (v.kind == AG_JDICT) {
        if (!is_hashable(c, index))
            return c->status != AG_OK ? ag_jfail_value() : absent(c, v, index);
        ag_jv item = ag_jdict_find(c, v.as.dict, index);
        if (!ag_jfailed(item)) return item;
    } else if (ag_jis_integer(index) &&
               (v.kind == AG_JSTRING || ag_jis_sequence(v) || v.kind == AG_JRANGE)) {
        ag_jv item = numbered_item(c, v, ag_jinteger(index));
        if (!ag_jfailed(item)) return item;
    }
    if (c->status != AG_OK) return ag_jfail_value();
    if (index.kind == AG_JSTRING) {
        ag_jstr *name = index.as.string;
        ag_jv own = own_attribute(c, v, name, ag_jmethod_find(name->text, name->len));
        if (!ag_jfailed(own) || c->status != AG_OK) return own;
    }
    return absent(c, v, index);
}

static bool slice_part(ag_jctx *c, ag_jv v, int64_t *out, bool *given) {
    *given = v.kind != AG_JNONE;
    if (!*given) return true;
    if (!ag_jis_integer(v)) {
        ag_jfail(c, "slice indices must be integers or None, not '%s'", ag_jtype_name(v));
        return false;
    }
    *out = ag_jinteger(v);
    return true;
}

static int64_t clamped(int64_t i, int64_t n, int64_t low, int64_t high) {
    if (i < 0) i += n;
    return i < low ? low : i > high ? high : i;
}

typedef struct bounds {
    int64_t start, stop, step; /* within the items; stop may be -1 */
} bounds;

/* Computes the bounds of a slice of n items. Returns the number of its items, -1 on failure. */
static int64_t slice_bounds(ag_jctx *c, const ag_jv parts[3], int64_t n, bounds *out) {
    int64_t start = 0, stop = 0, step = 1;
    bool has_start, has_stop, has_step;
    if (!slice_part(c, parts[0], &start, &has_start) ||
        !slice_part(c, parts[1], &stop, &has_stop) || !slice_part(c, parts[2], &step, &has_step)) {
        return -1;
    }
    if (step == 0) return ag_jfail(c, "slice step cannot be zero"), -1;
    if (step == INT64_MIN) step = -INT64_MAX;
    bool back = step < 0;
    int64_t low = back ? -1 : 0, high = back ? n - 1 : n;
    start = has_start ? clamped(start, n, low, high) : back ? n - 1 : 0;
    stop = has_stop ? clamped(stop, n, low, high) : back ? -1 : n;
    *out = (bounds){start, stop, step};
    if (back) return start > stop ? (start - stop - 1) / -step + 1 : 0;
    return start < stop ? (stop - start - 1) / step + 1 : 0;
}

static ag_jv sliced_string(ag_jctx *c, ag_jstr *s, int64_t first, int64_t step, int64_t n) {
    if (!ag_jwork_bytes(c, s->len)) return ag_jfail_value();
    if (n == 0) return ag_jstring(ag_jstr_slice(c, s, 0, 0));
    if (step == 1) {
        size_t begin = ag_jstr_offset(s, (size_t)first);
        return ag_jstring(ag_jstr_slice(c, s, begin, ag_jstr_offset(s, (size_t)(first + n))));
    }
    ag_jbuf *b = ag_jbuf_create(c);
    size_t at = b ? ag_jstr_offset(s, (size_t)first) : 0;
    for (int64_t i = 0; b && i < n; i++) {
        size_t end = at + 1;
        while (end < s->len && ((unsigned char)s->text[end] & 0xC0) == 0x80) end++;
        if (!ag_jwork(c, 1) || !ag_jbuf_append_slice(c, b, s, at, end)) return ag_jfail_value();
        if (i + 1 == n) break;
        for (int64_t k = 0; k < step; k++) { /* to the start of the next character */
            at++;
            while (at < s->len && ((unsigned char)s->text[at] & 0xC0) == 0x80) at++;
        }
        for (int64_t k = 0; k > step; k--) {
            at--;
            while (at > 0 && ((unsigned char)s->text[at] & 0xC0) == 0x80) at--;
        }
    }
    ag_jstr *r = b ? ag_jbuf_string(c, b) : NULL;
    return ag_jstring(r ? ag_jstr_as_markup(c, r, s->markup) : NULL);
}

static ag_jv sliced_range(ag_jctx *c, const ag_jrange *r, const bounds *at, int64_t n) {
    ag_jrange *s = ag_jalloc(c, sizeof *s);
    if (!s) return ag_jfail_value();
    s->start = r->start + at->start * r->step;
    s->stop = r->start + at->stop * r->step;
    s->n = (size_t)n;
    if (__builtin_mul_overflow(r->step, at->step, &s->step)) {
        return ag_jfail_as(c, AG_UNSUPPORTED, "an integer exceeds 64 bits");
    }
    return (ag_jv){AG_JRANGE, {.range = s}};
}

ag_jv ag_jslice(ag_jctx *c, ag_jv v, const ag_jv parts[3]) {
    if (v.kind == AG_JUNDEFINED) return ag_jfail_undefined(c, v);
    if (v.kind != AG_JSTRING && !ag_jis_sequence(v) && v.kind != AG_JRANGE) {
        return ag_jfail(c, "'%s' object cannot be sliced", ag_jtype_name(v));
    }
    bounds at;
    int64_t n = slice_bounds(c, parts, ag_jlength(v), &at);
    if (n < 0) return ag_jfail_value();
    if (v.kind == AG_JSTRING) return sliced_string(c, v.as.string, at.start, at.step, n);
    if (v.kind == AG_JRANGE) return sliced_range(c, v.as.range, &at, n);
    ag_jlist *l = NULL;
    if (at.step == 1) {
        l = ag_jlist_slice(c, v.as.list, n ? (size_t)at.start : 0, (size_t)n);
    } else if (ag_jwork(c, (size_t)n / 8)) {
        l = ag_jlist_create(c, (size_t)n);
        for (int64_t i = 0; l && i < n; i++) {
            ag_jv item = ag_jlist_get(c, v.as.list, (size_t)(at.start + i * at.step));
            if (!ag_jlist_push(c, l, item)) return ag_jfail_value();
        }
    }
    return v.kind == AG_JLIST ? ag_jlist_value(l) : ag_jtuple_value(l);
}
